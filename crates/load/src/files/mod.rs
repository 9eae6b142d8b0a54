//! The files that the lab generates: their layout in directories, their lengths and their bytes.
//!
//! `fileset` writes them, `workload` chooses among them, and the generator checks answers against them. Pure.

pub mod content;
pub mod heavy_tail;
pub mod layout;
