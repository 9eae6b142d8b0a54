//! The files that the lab generates: their layout in directories, their lengths and their bytes.
//!
//! `fileset` writes them, `workload` chooses among them, and the generator checks answers against them. Pure.

pub mod content;
pub mod heavy_tail;
pub mod layout;

/// The name of the list of files, in the folder of a set.
pub const MANIFEST: &str = "manifest.txt";
