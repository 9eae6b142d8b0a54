//! The routes of a config file before they are checked, with their places in it.
//!
//! `config::file` makes them and `config::route_checks` turns them into [`Route`]s.

use std::ops::Range;
use std::path::Path;

use super::programs::{Program, Runs};
use super::routes::Route;
use super::values::UserName;

/// The programs of a route as the file has them.
#[derive(Debug)]
pub(super) struct ProgramDraft {
    pub(super) program: Program,
    /// The place of the command or directory in the file.
    pub(super) span: Range<usize>,
    pub(super) user: Option<(UserName, Range<usize>)>,
}

/// A route, and its place in the file.
#[derive(Debug)]
pub(super) struct RouteDraft {
    pub(super) route: Route,
    pub(super) span: Range<usize>,
    pub(super) program: Option<ProgramDraft>,
}

impl RouteDraft {
    /// Makes relative paths absolute, from `folder`.
    pub(super) fn rebase(&mut self, folder: &Path) {
        match self.program.as_mut().map(|draft| &mut draft.program.runs) {
            Some(Runs::Cgi(path)) => *path = folder.join(&*path),
            // A name without a slash is looked for in the directories for programs.
            Some(Runs::App(words)) if words[0].contains('/') => {
                words[0] = folder.join(&words[0]).to_string_lossy().into_owned();
            }
            _ => {}
        }
    }
}
