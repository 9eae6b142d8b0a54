//! How a command of the lab ended, for its exit code.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything was measured, and every requirement holds.
    Done,
    /// A requirement does not hold: exit code 3.
    RequirementFailed,
    /// The data are not good enough for a verdict: exit code 4.
    CannotTell,
    /// A signal ended it early; the results until then are kept: exit code 130.
    Interrupted,
}

impl Ending {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::RequirementFailed => 3,
            Self::CannotTell => 4,
            Self::Interrupted => 130,
        }
    }
}
