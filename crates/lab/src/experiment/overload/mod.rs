//! The plots and the table of `overload`: response times with the link shared equally (FAIR) and with the shortest responses first (SRPT)
//! (overload-and-srpt, section 4), and the theory beside them. Pure.

mod model;
mod shown;

use super::behind;

pub(super) use shown::{plots, setups};
