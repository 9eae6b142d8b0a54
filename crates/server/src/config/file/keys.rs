//! The keys that only some routes can have.

use super::super::values::Kind;

/// The keys of servers that Flash starts.
pub(super) const APP: &str = "app";
pub(super) const CGI: &str = "cgi";
pub(super) const WEIGHTS: &str = "weights";
pub(super) const IDLE_MAX: &str = "idle_max";
pub(super) const PROBE: &str = "probe";
pub(super) const INTERVAL: &str = "probe_interval";
/// The key for the user of a program.
pub(super) const USER: &str = "user";
/// Whether programs get the field of this name.
pub(super) const AUTHORIZATION: &str = "authorization";

/// The keys of which a route must have one to have the key `name`; none if any route can have it.
pub(super) fn owners(name: &str) -> &'static [&'static str] {
    match name {
        WEIGHTS => &["proxy", "fastcgi"],
        // `cgi` ends each connection after its request.
        IDLE_MAX => &["proxy", "fastcgi", APP],
        // A FastCGI application has no request that is harmless for certain.
        PROBE | INTERVAL => &["proxy"],
        // The one process of `cgi` starts all programs.
        "processes" => &[APP],
        "memory_max" | USER => &[APP, CGI],
        // Other applications get it, as all fields.
        AUTHORIZATION => &[CGI],
        _ => &[],
    }
}

/// A number of a route, or of its program, that has a default.
pub(super) struct Number<T> {
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) default: u64,
    pub(super) field: fn(&mut T) -> &mut u64,
}

/// The values of those numbers that such a route has.
pub(super) fn values_of<T: Clone>(numbers: &[Number<T>], by: &str, of: &T) -> Vec<(&'static str, Kind, u64)> {
    let has = |number: &&Number<T>| owners(number.key).is_empty() || owners(number.key).contains(&by);
    numbers
        .iter()
        .filter(has)
        .map(|number| (number.key, number.kind, *(number.field)(&mut of.clone())))
        .collect()
}
