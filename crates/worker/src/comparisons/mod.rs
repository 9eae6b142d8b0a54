//! Code that only the paper's comparisons need (Flash 1999, sections 3 and 6): workers that do jobs themselves (SPED, MP and
//! MT), and sending parts of files by sendfile(2) or from mappings. A worker of AMPED with its defaults uses none of it.

mod own_jobs;
mod send_parts;

pub use own_jobs::{OwnJob, OwnJobs};
pub use send_parts::SendFile;
pub(crate) use send_parts::Sending;
