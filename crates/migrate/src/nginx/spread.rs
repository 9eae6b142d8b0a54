//! Turns values of locations into rules. nginx chooses one location for each path, and Flash applies every rule that fits.
//!
//! A rule of a location excepts the paths of the locations that nginx prefers to it, if their value is another one.

use super::location::Location;
use crate::pattern::{self, Paths};

/// A rule to be: its form of paths, the forms that it excepts, and the number of its location.
pub(super) type Part = (String, Vec<String>, usize);

/// A form as a rule has it.
pub(super) fn form(path: &str) -> String {
    if path == "/*" { "*".to_owned() } else { path.to_owned() }
}

/// The paths of the requests of a location.
pub(super) fn of_requests(location: &Location) -> Paths {
    location.shapes.iter().map(|shape| (shape.path.clone(), shape.except.clone())).collect()
}

/// The parts for locations whose value is not the default one. Each path fits at most those of one value.
pub(super) fn apart<T: PartialEq + Default>(values: &[T], paths: &[Paths]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut whole = Vec::new();
    for at in (0..values.len()).rev() {
        if values[at] == T::default() || whole.iter().any(|earlier| covers(*earlier, at, values, paths)) {
            continue;
        }
        whole.push(at);
        for (path, own) in &paths[at] {
            let preferred = (0..at).filter(|other| values[*other] != values[at]);
            parts.extend(part(path, excepted(path, own, preferred, paths), at));
        }
    }
    parts
}

/// The parts for locations that have a value, of which the first that fits counts.
pub(super) fn in_order<T>(values: &[Option<T>], paths: &[Paths]) -> Vec<Part> {
    let mut parts = Vec::new();
    for at in (0..values.len()).filter(|at| values[*at].is_some()) {
        for (path, own) in &paths[at] {
            let preferred = (0..at).filter(|other| values[*other].is_none());
            parts.extend(part(path, excepted(path, own, preferred, paths), at));
        }
    }
    parts
}

/// The part, if it has a path.
fn part(path: &str, except: Vec<String>, at: usize) -> Option<Part> {
    let is_empty = except.iter().any(|all| pattern::has_all_of(all, path));
    (!is_empty).then(|| (form(path), except, at))
}

/// The forms that a path excepts: its own, and those of preferred locations that overlap it.
pub(super) fn excepted(
    path: &str,
    own: &[String],
    preferred: impl Iterator<Item = usize>,
    paths: &[Paths],
) -> Vec<String> {
    let mut except: Vec<String> = own.to_vec();
    for other in preferred {
        for (theirs, _) in paths[other].iter().filter(|(theirs, _)| pattern::overlap(theirs, path)) {
            if !except.iter().any(|earlier| pattern::has_all_of(earlier, theirs)) {
                except.retain(|earlier| !pattern::has_all_of(theirs, earlier));
                except.push(theirs.clone());
            }
        }
    }
    except
}

/// Whether the rules of `wide`, which nginx prefers less, have all paths of `at` and the same value.
fn covers<T: PartialEq>(wide: usize, at: usize, values: &[T], paths: &[Paths]) -> bool {
    let do_overlap = |one: usize, other: usize| {
        paths[one].iter().any(|(a, _)| paths[other].iter().any(|(b, _)| pattern::overlap(a, b)))
    };
    values[wide] == values[at]
        && paths[at].iter().all(|(path, _)| {
            paths[wide].iter().any(|(all, except)| except.is_empty() && pattern::has_all_of(&form(all), path))
        })
        && (at + 1..wide).all(|other| values[other] == values[wide] || !do_overlap(other, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&[&str]]) -> Vec<Paths> {
        all.iter().map(|paths| paths.iter().map(|path| ((*path).to_owned(), Vec::new())).collect()).collect()
    }

    #[test]
    fn preferred_locations_are_excepted() {
        let paths = paths(&[&["*.js", "*.css"], &["/img/*"], &["/*"]]);
        let parts = apart(&["long", "", "short"], &paths);
        let except = |path: &str| parts.iter().find(|part| part.0 == path).map(|part| part.1.clone());
        assert_eq!(except("*").unwrap(), ["*.js", "*.css", "/img/*"]);
        assert_eq!(except("*.js").unwrap(), [""; 0]);
    }

    #[test]
    fn locations_of_the_same_value_have_one_rule() {
        let paths = paths(&[&["/img/a.js"], &["*.js"], &["/img/*"], &["/*"]]);
        let parts = apart(&["same", "same", "same", "same"], &paths);
        assert_eq!(parts.len(), 1);
        let parts = apart(&["same", "other", "same", "same"], &paths);
        let found: Vec<&str> = parts.iter().map(|part| part.0.as_str()).collect();
        assert_eq!(
            found,
            ["*", "*.js", "/img/a.js"],
            "the path is one of `*.js`, which the first rule excepts"
        );
    }

    #[test]
    fn the_first_value_counts() {
        let paths = paths(&[&["/a"], &["/b"], &["/*"]]);
        let parts = in_order(&[Some(1), None, Some(2)], &paths);
        assert_eq!(parts, [("/a".to_owned(), vec![], 0), ("*".to_owned(), vec!["/b".to_owned()], 2)]);
    }
}
