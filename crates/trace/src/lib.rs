//! System calls that block: kernel traces of any process, recorded by the kernel's perf events, and what they show of
//! its event loops and thread pools. `flash trace` and `flash doctor`.
//!
//! The idea is DeBox's: the performance of system calls as a first-class result, here without a kernel
//! patch. This crate watches any process, and does not depend on how Flash is built.
//!
//! ```text
//! attach     chooses the threads and opens the kernel's events for them    decode     turns records into events
//! tap        sees requests and answers on the network, as events           segment    decodes packets
//! recorder   takes events while the processes run                          analysis   makes a `Trace` of them
//! roll_call  finds threads that have ended and new listening sockets       roles      tells loops from other threads
//! world      reads descriptors, paths and names from /proc                 model      defines the `Trace`
//! table      prints the table of `flash trace`                             page       draws the page, `strip` a timeline
//! diagnosis  judges loops, `pools` thread pools, as data                   diagnosis_text  puts that into words
//! ```

#![allow(missing_docs, reason = "only this workspace uses it: a comment stands where a name does not say it")]

mod analysis;
mod attach;
mod calls;
mod decode;
mod diagnosis;
mod diagnosis_text;
mod display;
pub mod doctor;
mod event;
#[cfg(test)]
#[path = "fixture_tests.rs"]
mod fixture;
mod model;
mod output;
mod page;
mod pools;
mod reason;
mod recorder;
mod roles;
mod roll_call;
mod segment;
mod strip;
mod symbols;
mod table;
mod tap;
mod world;

use std::path::PathBuf;

use flash_kit::Ending as ExitEnding;
use flash_kit::Result;
use model::Ending;

use output::json;
use page::html;
use recorder::record;
pub use recorder::{BUFFER, RecordOptions, Subject};
use table::table;

#[derive(Clone, Debug)]
pub struct Options {
    pub record: RecordOptions,
    pub json: Option<PathBuf>,
    /// The file to write the page to.
    pub html: Option<PathBuf>,
}

/// Records, prints a table, writes the files.
///
/// Errors: those of `record`; run, for a file that can't be written.
pub fn run(options: &Options) -> Result<ExitEnding> {
    output::check_places(&[options.json.as_deref(), options.html.as_deref()])?;
    let trace = record(&options.record)?;
    let kept = options.json.as_ref().map_or(Ok(()), |path| output::write(path, &json(&trace)));
    let drawn = options.html.as_ref().map_or(Ok(()), |path| output::write(path, &html(&trace)));
    output::print(&table(&trace))?;
    kept.and(drawn)?;
    Ok(match trace.ending {
        Ending::Interrupted => ExitEnding::Interrupted,
        Ending::Duration | Ending::TargetEnded => ExitEnding::Done,
    })
}
