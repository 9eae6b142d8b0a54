//! The help that `flash load`, `flash profile` and `flash compare` share. Their options are those of the lab.

/// The end of the help of every command that drives servers.
pub(crate) const MORE: &str = "\
TIME is a whole number with a unit: 250ms, 10s or 2m. SIZE is a whole number of bytes, or has a unit: 64KiB or 3GB.

In an open loop, requests arrive at their planned times whether or not earlier ones were answered, and latency counts \
from the planned time. Give the load generator its own core; it warns when it was the limit, and not the server.

Exit codes: 0 done, 1 failed, 2 usage error, 3 a --require limit was exceeded, 130 interrupted (the results so far are \
kept).";
