//! Helpers: the jobs that were started, and the results of tasks.

use std::sync::Arc;

use flash_engine::limits::{HAND_OVER_BYTES_MAX, LOAD_BYTES, SMALL_FILE_BYTES_MAX};
use flash_engine::{Finding, JobId, ListingForm, LookUpError, Outcome, SiteId, SiteRules, Task, Want, find};
use flash_http::negotiate::Coding;
use flash_http::types::TypeTable;

use super::files::{Content, FileHandle, Files};

/// The helpers of the worker.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    pub(crate) idle: usize,
    /// Helpers that ended and were not replaced yet. Another one is requested when a job finds none idle.
    pub(crate) ended: usize,
    /// Helpers that were requested and come with the next turn.
    pub(crate) coming: usize,
    pub(crate) running: Vec<(JobId, Task<FileHandle>)>,
    pub(crate) abandoned: Vec<JobId>,
    /// Abandoned jobs whose helpers have not ended yet.
    dying: Vec<JobId>,
    /// Abandoned helpers hang and do not even end. Otherwise they end in the next turn.
    pub(crate) uninterruptible: bool,
    /// How many jobs were ever started.
    pub(crate) started: usize,
    /// A description of each job, in order, for tests of disk accesses.
    pub(crate) history: Vec<String>,
    /// Loaded pages are evicted before they can be used.
    pub(crate) thrash: bool,
    /// Every task fails with this error number.
    pub(crate) failure: Option<i32>,
    /// The file system cannot make holes.
    pub(crate) has_no_holes: bool,
    /// A found file is brought into the store instead of the page cache.
    pub(crate) has_store: bool,
    /// Length of a listing in bytes.
    pub(crate) listing_bytes: u64,
    /// The time that a listing made now gives as its own.
    pub(crate) listing_ms: u64,
}

impl Helpers {
    pub(crate) fn new(idle: usize) -> Self {
        Self { idle, listing_bytes: 100, ..Self::default() }
    }

    pub(crate) fn start(&mut self, id: JobId, task: &Task<FileHandle>) -> bool {
        if self.idle == 0 {
            self.coming += std::mem::take(&mut self.ended);
            return false;
        }
        assert!(self.running.iter().all(|(other, _)| *other != id), "a job started twice");
        self.idle -= 1;
        self.started += 1;
        self.history.push(describe(task));
        self.running.push((id, task.clone()));
        true
    }

    pub(crate) fn abandon(&mut self, id: JobId) {
        let at =
            self.running.iter().position(|(other, _)| *other == id).expect("only a running job is abandoned");
        self.running.remove(at);
        self.abandoned.push(id);
        self.dying.push(id);
        self.ended += 1;
    }

    pub(crate) fn is_one_gone(&self) -> bool {
        !self.uninterruptible && !self.dying.is_empty()
    }

    /// The abandoned jobs whose helpers have ended since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<JobId> {
        if self.is_one_gone() { std::mem::take(&mut self.dying) } else { Vec::new() }
    }

    /// Takes a running job's task. Its helper becomes idle.
    pub(crate) fn finish(&mut self, id: JobId) -> Task<FileHandle> {
        self.idle += 1;
        self.take(id)
    }

    /// The helper of a running job dies.
    pub(crate) fn die(&mut self, id: JobId) {
        drop(self.take(id));
        self.ended += 1;
    }

    /// The task of a running job.
    pub(crate) fn task(&self, id: JobId) -> Option<Task<FileHandle>> {
        self.running.iter().find(|(other, _)| *other == id).map(|(_, task)| task.clone())
    }

    fn take(&mut self, id: JobId) -> Task<FileHandle> {
        let at = self.running.iter().position(|(other, _)| *other == id).expect("a running job");
        self.running.remove(at).1
    }

    /// Does a task on the files as they are now.
    pub(crate) fn perform(
        &self,
        task: &Task<FileHandle>,
        files: &mut Files,
        sites: &[SiteRules],
        types: &TypeTable,
    ) -> Outcome<FileHandle> {
        if let Some(number) = self.failure {
            return Outcome::Failed(number);
        }
        match task {
            Task::Find { site, path } => self.find(*site, path, files, sites, types),
            Task::List { form, path, .. } => {
                let path = path.escape_ascii().to_string();
                let text = listing(&path, *form, self.listing_bytes, self.listing_ms);
                let file = files.anonymous(Content::Bytes(text));
                let stat = file.stat();
                Outcome::Listed(file, stat, self.listing_ms)
            }
            Task::Fill { .. } => panic!("the caller must fill the store"),
            // There is no such file.
            Task::Warm { .. } => Outcome::Loaded,
            Task::Load { file, offset, length_bytes } => {
                if file.inode.borrow().fails {
                    return Outcome::Failed(5);
                }
                file.inode.borrow_mut().load(*offset, *length_bytes);
                if self.thrash {
                    file.inode.borrow_mut().evict();
                }
                Outcome::Loaded
            }
            Task::Close { .. } => Outcome::Closed,
            Task::Write { file, offset, bytes } => {
                file.inode.borrow_mut().write(*offset, bytes);
                Outcome::Written
            }
            Task::GiveBack { length_bytes: Some(_), .. } if self.has_no_holes => Outcome::Unsupported,
            Task::GiveBack { file, offset, length_bytes } => {
                file.inode.borrow_mut().give_back(*offset, *length_bytes);
                Outcome::Written
            }
            // In these tests, a stored password is the password itself.
            Task::Verify { stored, given } => Outcome::Verified(stored == given),
            Task::Deflate { plain } => Outcome::Deflated(deflate(plain)),
            Task::Touch { .. } | Task::WarmFile { .. } => panic!("only a backend queues this job"),
            Task::Read { file, offset, length_bytes } => match file.read(*offset, *length_bytes) {
                Ok(bytes) => Outcome::Bytes(bytes, file.stat()),
                Err(e) => Outcome::Failed(e.raw_os_error().unwrap_or(0)),
            },
        }
    }

    /// The file and the number of the block that a task brings into the store.
    #[expect(clippy::arc_with_non_send_sync, reason = "the files of tasks are shared in this way")]
    pub(crate) fn block_of(
        &self,
        task: &Task<FileHandle>,
        files: &mut Files,
        sites: &[SiteRules],
        types: &TypeTable,
    ) -> Option<(Arc<FileHandle>, u64)> {
        match task {
            Task::Fill { file, block, .. } => Some((Arc::clone(file), *block)),
            Task::Warm { site, path, block } => match self.find(*site, path, files, sites, types) {
                Outcome::Found(Finding::File { plain, .. }) => Some((Arc::new(plain.file?), *block)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Finds a file as `flash-server`'s helper does.
    fn find(
        &self,
        site: SiteId,
        path: &[u8],
        files: &mut Files,
        sites: &[SiteRules],
        types: &TypeTable,
    ) -> Outcome<FileHandle> {
        let rules = &sites[usize::from(site.0)];
        let look_up = |path: &[u8], want| files.open_waiting(site, path, want);
        let finding = match find(path, rules, types, Want::Content, look_up) {
            Ok(finding) => finding,
            Err(LookUpError::Failed(number)) => return Outcome::Failed(number),
            Err(_) => return Outcome::Failed(0),
        };
        if let Finding::File { plain, .. } = &finding
            && let Some(file) = &plain.file
            && plain.stat.size_bytes <= SMALL_FILE_BYTES_MAX
            && !self.thrash
            && !self.has_store
        {
            file.inode.borrow_mut().load(0, plain.stat.size_bytes);
        }
        Outcome::Found(finding)
    }
}

/// A piece of an answer as `flash-server`'s helper makes it.
fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(plain.len() + 1024);
    let mut compress = flate2::Compress::new(flate2::Compression::fast(), false);
    compress.compress_vec(plain, &mut out, flate2::FlushCompress::Sync).expect("room for the piece");
    assert_eq!(compress.total_in(), plain.len() as u64);
    out
}

/// The content of a listing made at this time.
pub(crate) fn listing(path: &str, form: ListingForm, bytes: u64, made_ms: u64) -> Vec<u8> {
    let mut text = format!("{} at {made_ms:020}", describe_listing(path, form)).into_bytes();
    text.resize(text.len().max(bytes as usize), b'.');
    // In these tests, a compressed listing is the listing behind the name of the coding.
    [form.coding.map_or("", Coding::token).as_bytes(), &text].concat()
}

fn describe_listing(path: &str, form: ListingForm) -> String {
    let kind = if form.json { "JSON" } else { "HTML" };
    format!("{kind} of {path} by {}", form.order.word())
}

fn describe(task: &Task<FileHandle>) -> String {
    match task {
        Task::Find { path, .. } => format!("find {}", path.escape_ascii()),
        Task::List { path, form, with_readme, .. } => {
            let readme = if *with_readme { " with README" } else { "" };
            format!("list {}{readme}", describe_listing(&path.escape_ascii().to_string(), *form))
        }
        Task::Fill { block, .. } => format!("fill {block}"),
        Task::Warm { path, block, .. } => format!("warm {} {block}", path.escape_ascii()),
        Task::Load { offset, length_bytes, .. } => {
            assert!(offset.is_multiple_of(LOAD_BYTES) && (1..=LOAD_BYTES).contains(length_bytes));
            format!("load {offset}+{length_bytes}")
        }
        Task::Read { offset, length_bytes, .. } => {
            assert!((1..=HAND_OVER_BYTES_MAX).contains(length_bytes), "a hand-over of {length_bytes} bytes");
            format!("read {offset}+{length_bytes}")
        }
        Task::Close { number } => format!("close {number}"),
        Task::GiveBack { offset, length_bytes, .. } => format!("give back {length_bytes:?} at {offset}"),
        Task::Write { offset, bytes, .. } => format!("write {} bytes at {offset}", bytes.len()),
        Task::Verify { .. } => "verify".to_owned(),
        Task::Deflate { plain } => format!("deflate {} bytes", plain.len()),
        Task::Touch { path, .. } => format!("touch {}", path.escape_ascii()),
        Task::WarmFile { path, .. } => format!("warm file {}", path.escape_ascii()),
    }
}
