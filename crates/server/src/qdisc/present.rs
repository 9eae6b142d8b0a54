//! The discipline that a device has, from the output of `tc -json qdisc show`. Pure.
//!
//! Called by the parent module, which decides by it whether it may change the device.

use std::fmt;

use serde_json::Value;

use super::plan::ROOT;

/// The discipline at the root of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Present {
    /// One that the kernel chose: it has no handle. The kernel sets it again when another one is removed.
    Default(String),
    /// One that `flash qdisc` set, complete or not.
    Ours(String),
    /// One that somebody else set: kind and handle.
    Foreign(String),
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Present::Default(kind) => write!(f, "the default of the kernel ({kind})"),
            Present::Ours(kind) => write!(f, "what an earlier `flash qdisc` set ({kind}), complete or not"),
            Present::Foreign(there) => write!(f, "{there}"),
        }
    }
}

/// Reads the output. A device that shows no discipline has the default: a device that is down may have none.
///
/// Errors: output of another form.
pub(super) fn parse(output: &[u8]) -> Result<Present, String> {
    // An old tc prints nothing if there is nothing to show.
    if output.trim_ascii().is_empty() {
        return Ok(Present::Default("none".to_owned()));
    }
    let strange = |why: &dyn fmt::Display| {
        format!("cannot read the output of `tc -json qdisc show`: {why}; is iproute2 older than 4.16?")
    };
    let all: Value = serde_json::from_slice(output).map_err(|e| strange(&e))?;
    let all = all.as_array().ok_or_else(|| strange(&"not a list"))?;
    let Some(root) = all.iter().find(|one| one["root"] == true) else {
        return Ok(Present::Default("none".to_owned()));
    };
    let text = |name: &str| root[name].as_str().ok_or_else(|| strange(&format!("no `{name}`")));
    let (kind, handle) = (text("kind")?, text("handle")?);
    Ok(if handle == "0:" {
        Present::Default(kind.to_owned())
    } else if handle == format!("{ROOT:x}:") {
        Present::Ours(kind.to_owned())
    } else {
        Present::Foreign(format!("{kind} {handle}"))
    })
}
