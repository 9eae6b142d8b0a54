//! Checks the places to listen at with each other: the length of paths, which no single place knows before it is absolute, and
//! those that contradict each other.
//!
//! Called by `config::resolve` with the merged options of all sources.

use super::combinations::{no_effect, problem};
use super::error::Problem;
use super::listen::{Listen, SOCKET_PATH_BYTES_MAX};
use super::options::Overrides;
use super::table::{Given, Origin};

fn places(given: Option<&Given<Vec<Listen>>>) -> &[Listen] {
    given.map_or(&[], |given| &given.value)
}

/// Adds a problem for each path that is too long, each place that both lists name, permissions without a socket, and a rate that no
/// connection has.
pub(super) fn check(given: &Overrides, problems: &mut Vec<Problem>) {
    let lists = [("listen", &given.listen), ("listen_tls", &given.listen_tls)];
    let lists = lists.map(|(key, given)| (key, given.as_ref()));
    let mut has_path = false;
    for (key, given) in lists {
        let Some(given) = given else { continue };
        for path in given.value.iter().filter_map(Listen::path) {
            has_path = true;
            let length = path.as_os_str().len();
            if length > SOCKET_PATH_BYTES_MAX {
                let why = format!(
                    "the path `{}` has {length} bytes, and a socket can have {SOCKET_PATH_BYTES_MAX} (unix(7)); \
                     choose a shorter one",
                    path.display()
                );
                problems.push(problem(key, &given.origin, "cannot be used", &why));
            }
        }
    }
    let [(_, plain), (key, tls)] = lists;
    for both in
        places(tls).iter().filter(|listen| listen.address().is_none() && places(plain).contains(listen))
    {
        let origin = tls.map_or(&Origin::Default, |given| &given.origin);
        let why = format!("`listen` names `{both}` too, and a connection there is either encrypted or not");
        problems.push(problem(key, origin, "cannot be used", &why));
    }
    if [plain, tls].map(places).concat().iter().all(|listen| listen.path().is_some()) {
        let why = "all listeners are Unix sockets, and the kernel bounds the rate of TCP alone";
        problems.extend(no_effect(given, "connection_rate", why));
    }
    if !has_path {
        let why = "neither `listen` nor `listen_tls` has a Unix socket; systemd's have SocketMode=";
        problems.extend(no_effect(given, "listen_mode", why));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::super::{options, table};
    use super::*;

    /// The problems with these options.
    fn problems(given: &[(&str, &[&str])]) -> Vec<String> {
        let mut overrides = Overrides::default();
        for (key, texts) in given {
            let items: Vec<&OsStr> = texts.iter().map(OsStr::new).collect();
            options::find(key)
                .expect("an option")
                .set(&mut overrides, &items, Origin::Flag)
                .expect("a value");
        }
        table::rebase(&mut overrides, Path::new("/"));
        let mut problems = Vec::new();
        check(&overrides.or(Overrides::defaults()), &mut problems);
        problems.iter().map(|problem| format!("{problem:?}")).collect()
    }

    #[test]
    fn paths_have_a_length_and_places_one_protocol() {
        let [fits, long] = [SOCKET_PATH_BYTES_MAX, SOCKET_PATH_BYTES_MAX + 1]
            .map(|bytes| format!("unix:/{}", "a".repeat(bytes - 1)));
        assert_eq!(problems(&[("listen", &[&fits]), ("listen_tls", &["unix:/b"])]), [""; 0]);
        let found = problems(&[("listen", &["unix:/a"]), ("listen_tls", &[&long])]);
        assert!(found.len() == 1 && found[0].contains("has 108 bytes"), "{found:?}");
        let found =
            problems(&[("listen", &["unix:/a", "systemd:b"]), ("listen_tls", &["unix:/./a", "systemd:b"])]);
        assert!(found.len() == 2 && found[0].contains("either encrypted or not"), "{found:?}");
    }

    #[test]
    fn a_rate_needs_an_address() {
        let rate: (&str, &[&str]) = ("connection_rate", &["1Mbit"]);
        assert_eq!(problems(&[rate]), [""; 0]);
        assert_eq!(problems(&[rate, ("listen", &["unix:/a"])]).len(), 1);
        assert_eq!(problems(&[rate, ("listen", &["unix:/a"]), ("listen_tls", &["[::1]:443"])]), [""; 0]);
        assert_eq!(problems(&[rate, ("listen", &["unix:/a", "systemd:b"])]), [""; 0]);
    }

    #[test]
    fn permissions_need_a_socket_at_a_path() {
        assert_eq!(problems(&[("listen_mode", &["0666"])]).len(), 1);
        assert_eq!(problems(&[("listen_mode", &["0666"]), ("listen", &["systemd:a"])]).len(), 1);
        assert_eq!(problems(&[("listen_mode", &["0666"]), ("listen_tls", &["unix:/a"])]), [""; 0]);
    }
}
