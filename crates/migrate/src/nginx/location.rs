//! Locations: which paths they have, and which of them nginx chooses for a path.

use super::route;
use super::scope::{Context, Scope};
use super::site::is_refusal;
use crate::directive::Directive;
use crate::notes::Position;
use crate::pattern;
use crate::regex::{self, Shape};

/// The most locations of a server: each is compared with each.
const LOCATIONS_MAX: usize = 1_000;
/// The most forms of paths of all locations of a server.
const SHAPES_MAX: usize = 2_000;

/// How a location compares paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `=`
    Exact,
    /// `^~`
    First,
    /// `~` and `~*`
    Regex,
    Prefix,
}

#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) kind: Kind,
    /// The path, the prefix or the expression.
    pub(super) text: String,
    pub(super) shapes: Vec<Shape>,
    pub(super) scope: Scope,
    pub(super) position: Position,
    /// The text that notes show: the location as it is in the file.
    pub(super) shown: String,
}

impl Location {
    /// The location of all paths that no other one has.
    pub(super) fn rest(scope: Scope, position: &Position) -> Self {
        let shapes = vec![prefix_shape("/")];
        Self {
            kind: Kind::Prefix,
            text: "/".to_owned(),
            shapes,
            scope,
            position: position.clone(),
            shown: "`server`".to_owned(),
        }
    }

    /// Whether a path can be one of two locations.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.shapes.iter().any(|one| other.shapes.iter().any(|two| pattern::overlap(&one.path, &two.path)))
    }

    /// Whether all of its paths are hidden, and so never served.
    pub(super) fn is_hidden(&self) -> bool {
        let hidden = |shape: &Shape| shape.path.contains("/.") && !shape.path.starts_with("/.well-known");
        let of_names = self.kind == Kind::Regex
            && ["/\\.", "^/\\.", "(^|/)\\.", "(?:^|/)\\."].iter().any(|start| self.text.starts_with(start));
        of_names || (!self.shapes.is_empty() && self.shapes.iter().all(hidden))
    }
}

fn prefix_shape(prefix: &str) -> Shape {
    let groups = [("0".to_owned(), format!("{prefix}$1")), ("rest".to_owned(), "$1".to_owned())].into();
    Shape { path: format!("{prefix}*"), groups, ..Shape::default() }
}

/// The locations of a server and those within them, the named ones apart.
#[derive(Debug, Default)]
pub(super) struct Locations {
    pub(super) all: Vec<Location>,
    named: Vec<(String, Scope)>,
    shapes: usize,
}

impl Locations {
    /// The scope of a named location, such as `@app`.
    pub(super) fn named(&self, name: &str) -> Option<&Scope> {
        self.named.iter().find(|(other, _)| other == name).map(|(_, scope)| scope)
    }

    /// Adds the locations of a block, in their order. `outer` is the prefix of the location that they are in.
    pub(super) fn add(
        &mut self,
        scope: &Scope,
        directives: &[Directive],
        outer: &str,
        context: &mut Context<'_>,
    ) {
        for directive in directives.iter().filter(|directive| directive.name == "location") {
            let inner = scope.within(directive.inner(), context);
            let (mark, text) = words(directive);
            if text.starts_with('@') && mark.is_empty() {
                self.named.push((text, inner));
                continue;
            }
            if self.all.len() >= LOCATIONS_MAX || self.shapes >= SHAPES_MAX {
                context.lost(directive, "there are too many locations");
                continue;
            }
            let location = location(directive, (mark, text), outer, inner);
            let outer = if location.kind == Kind::Prefix || location.kind == Kind::First {
                &location.text
            } else {
                ""
            };
            self.shapes += location.shapes.len();
            self.add(&location.scope, directive.inner(), outer, context);
            self.note_form(&location, directive, context);
            self.all.push(location);
        }
    }

    fn note_form(&self, location: &Location, directive: &Directive, context: &mut Context<'_>) {
        let is_route = location.scope.pass.is_some() && route::extension(&location.text).is_some();
        if location.kind != Kind::Regex || location.is_hidden() || is_route {
            return;
        }
        let scope = &location.scope;
        let refuses = scope.returns.as_ref().is_some_and(|returns| is_refusal(returns.status));
        let is_closed = refuses || scope.closed || scope.asks.is_some() || !scope.access.is_empty();
        let open = if is_closed { "; these paths are open" } else { "" };
        if let Err(why) = regex::shapes(&location.text, false) {
            context.lost(directive, &format!("Flash's forms of paths have only `*`, not {why}{open}"));
        } else if location.shapes.is_empty() {
            context.lost(directive, &format!("Flash has no such form of paths{open}"));
        } else if directive.first().starts_with("~*")
            && location.text.contains(|c: char| c.is_ascii_alphabetic())
        {
            context.lost(directive, "only for lower case: Flash's forms of paths have no other");
        }
    }

    /// The locations in the order in which nginx prefers them.
    pub(super) fn sorted(mut self) -> Self {
        self.all.sort_by_key(|location| {
            let is_prefix = location.kind != Kind::Regex;
            (location.kind, std::cmp::Reverse(if is_prefix { location.text.len() } else { 0 }))
        });
        self
    }
}

/// The mark of a location and its text.
fn words(directive: &Directive) -> (&str, String) {
    let first = directive.first();
    let marks = ["=", "^~", "~*", "~"];
    let mark = marks.into_iter().find(|mark| first.starts_with(mark)).unwrap_or_default();
    let own = &first[mark.len()..];
    let text =
        if own.is_empty() { directive.args.get(1).cloned().unwrap_or_default() } else { own.to_owned() };
    (mark, text)
}

fn location(directive: &Directive, (mark, text): (&str, String), outer: &str, scope: Scope) -> Location {
    let kind = match mark {
        "=" => Kind::Exact,
        "^~" => Kind::First,
        "~" | "~*" => Kind::Regex,
        _ => Kind::Prefix,
    };
    let is_plain = pattern::is_form(&text) && !text.contains('*');
    let shapes = match kind {
        Kind::Exact if is_plain => {
            vec![Shape { groups: [("0".to_owned(), text.clone())].into(), ..Shape::of(text.clone()) }]
        }
        Kind::First | Kind::Prefix if is_plain => vec![prefix_shape(&text)],
        Kind::Regex => {
            let shapes = regex::shapes(&text, mark == "~*").unwrap_or_default();
            shapes.into_iter().filter_map(|shape| within(shape, outer)).collect()
        }
        _ => Vec::new(),
    };
    let position = directive.position.clone();
    Location { kind, text, shapes, scope, position, shown: directive.shown() }
}

/// The paths of a shape that begin with a prefix.
fn within(shape: Shape, prefix: &str) -> Option<Shape> {
    if prefix.is_empty() || shape.path.starts_with(prefix) {
        return Some(shape);
    }
    let rest = shape.path.strip_prefix('*')?;
    let mut groups = shape.groups.clone();
    groups.values_mut().for_each(|text| {
        if text.starts_with("$1") {
            text.insert_str(0, prefix);
        }
    });
    Some(Shape { path: format!("{prefix}*{rest}"), except: shape.except, groups })
}
