//! The watcher process: it reports to the keeper which names of the sites change, so that findings of helpers are true without
//! a check until something happens. It answers no request, and its own look-ups may wait: while it is late, names are only
//! checked as without it.
//!
//! It watches every directory beneath the roots that [`watched::reports_changes`], by fanotify or inotify ([`source`]). Each root is watched in parts
//! ([`roots`]): a part of which it may have missed a change begins anew, and one that it cannot watch is checked instead.

mod depend;
mod events;
mod given;
mod roots;
mod source;
mod tree;

use std::io::{self, IoSlice};
use std::time::Duration;

use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::names::{NameHash, NamesReader};
use flash_prompt::{OwnedFd, channel, clock};
use flash_waiting::happening::{How, WatchId};
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::paths::Rights;
use flash_waiting::watched::{self, Mounts};
use flash_worker::codec::encode;
use flash_worker::control::Order;
use flash_worker::names::Subtrees;
use flash_worker::store_protocol::{FromWatcher, WRONG_MAX, WatcherFigures};

use crate::config::Settings;
use crate::control::Control;
use crate::sandbox::{self, Role};
use depend::{Change, each_name};
use events::{Event, Seen, parent};
use given::Given;
use roots::{Appearing, Progress, Root, Which, find_roots};
use source::Source;
use tree::Tree;

/// The longest pause after which it reports until when the keeper knows all changes. Findings of helpers wait for that.
const UNTIL_MS: u64 = 200;
/// The pause before a subtree begins anew, so that many moved directories cost few walks.
const ANEW_MS: u64 = 200;
/// Directories are watched for this long before events are read again.
const TURN_MS: u64 = 20;
/// Reads of events in a turn, each of some hundred.
const READS_MAX: usize = 64;
/// The pause after events that were all of files that nobody serves: other programs can change theirs all the time, and their
/// next events merge meanwhile.
const OTHERS_PAUSE: Duration = Duration::from_millis(2);
/// The epoll token of events.
const EVENTS: u64 = 0;

struct Watcher {
    control: Control,
    epoll: Epoll,
    source: Source,
    mounts: Mounts,
    names: NamesReader,
    subtrees: Subtrees,
    roots: Vec<Root>,
    /// Sites whose file systems do not report every change.
    sites_unreported: u64,
    tree: Tree,
    /// Directories that are gone. Events of them can still come, as the kernel merges events.
    gone: Vec<WatchId>,
    /// None if the keeper is gone; another one will come.
    keeper: Option<OwnedFd>,
    changed: Vec<NameHash>,
    until_every_ms: u64,
    next_until_ms: u64,
    /// The figures that the keeper knows.
    figures_sent: Option<WatcherFigures>,
}

/// Watches until the supervisor is gone, or the configuration ends.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    let mut given = Given::receive(&control, settings)?;
    let (source, mounts) = match Source::of(given.queue.take()).and_then(|own| Ok((own, Mounts::watch()?))) {
        Ok(both) => both,
        Err(why) => return do_without(control, settings, &why),
    };
    let watcher = Watcher::of(control, settings, given, (source, mounts))?;
    let folders: Vec<_> = watcher.roots.iter().map(|root| (&root.folder, Rights::ReadAndList)).collect();
    let in_force = sandbox::close(Role::Watcher, settings, &folders, CallList::Watcher)?;
    watcher.control.ready(in_force)?;
    watcher.run()
}

/// Reports why nothing is watched, and does nothing until the end.
fn do_without(control: OwnedFd, settings: &Settings, why: &io::Error) -> io::Result<()> {
    let mut epoll = Epoll::new(1)?;
    let control = Control::watch(control, &epoll)?;
    control.ready(sandbox::close(Role::Watcher, settings, &[], CallList::Watcher)?)?;
    control.report(format!(
        "cannot watch the roots for changes ({why}); their names are checked instead, each every freshness"
    ));
    loop {
        epoll.wait(None)?.for_each(drop);
        while let Some(order) = control.receive()? {
            if matches!(order, Order::Drain) {
                return Ok(());
            }
        }
    }
}

impl Watcher {
    fn of(
        control: OwnedFd,
        settings: &Settings,
        given: Given,
        (source, mounts): (Source, Mounts),
    ) -> io::Result<Self> {
        let Given { folders, names, keeper, .. } = given;
        let epoll = Epoll::new(8)?;
        epoll.add(&source, EVENTS, Watch::Input)?;
        let control = Control::watch(control, &epoll)?;
        let subtrees = Subtrees::of(folders.len());
        let (mut roots, sites_unreported) = find_roots(settings, folders, &names, subtrees);
        for root in &mut roots {
            root.mounts = mounts.beneath(&root.folder)?;
        }
        Ok(Self {
            control,
            epoll,
            mounts,
            names,
            subtrees,
            roots,
            sites_unreported,
            tree: Tree::of(source.directories_max()),
            source,
            gone: Vec::new(),
            keeper,
            changed: Vec::new(),
            until_every_ms: (settings.freshness_ms / 4).clamp(10, UNTIL_MS),
            next_until_ms: 0,
            figures_sent: None,
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            let now_ms = clock::monotonic_ms();
            let is_working = self.roots.iter().any(|root| root.is_working(now_ms));
            let timeout_ms = if is_working { 0 } else { self.until_every_ms };
            let ready: Vec<u64> = self.epoll.wait(Some(timeout_ms))?.map(|ready| ready.token).collect();
            if ready.contains(&Control::TOKEN) && !self.receive_orders()? {
                return Ok(());
            }
            let now_ms = clock::monotonic_ms();
            if self.mounts.have_changed() {
                self.compare_mounts()?;
            }
            let before = self.read_events()?;
            self.watch_some(now_ms);
            // A directory can have appeared in one before that was watched.
            let after = self.read_events()?;
            self.report_progress();
            if before.is_all && after.is_all {
                self.report_until(now_ms);
            }
            if before.others > 0 && before.own + after.own == 0 {
                std::thread::sleep(OTHERS_PAUSE);
            }
        }
    }

    /// Handles orders; false if the process must end.
    fn receive_orders(&mut self) -> io::Result<bool> {
        while let Some(order) = self.control.receive()? {
            match order {
                Order::Keeper(channel) => self.welcome(channel),
                Order::Drain => return Ok(false),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Reports to a new keeper what is watched.
    fn welcome(&mut self, channel: OwnedFd) {
        self.keeper = Some(channel);
        self.figures_sent = None;
        let since_ms = clock::monotonic_ms();
        for number in 0..self.roots.len() {
            let mut whole = Vec::new();
            for subtree in
                self.roots[number].subtrees.iter_mut().filter(|own| own.progress == Progress::Whole)
            {
                if subtree.appearing == Appearing::Reported {
                    subtree.appearing = Appearing::Unreported;
                }
                whole.push(subtree.number);
            }
            self.send_for(number, &whole, |subtree| FromWatcher::Begun { subtree, since_ms });
        }
    }

    /// Begins roots anew beneath which something was mounted or unmounted.
    fn compare_mounts(&mut self) -> io::Result<()> {
        for number in 0..self.roots.len() {
            let now = self.mounts.beneath(&self.roots[number].folder)?;
            if now != self.roots[number].mounts {
                self.roots[number].mounts = now;
                self.begin_anew(number, Which::All);
            }
        }
        Ok(())
    }

    /// Reads and handles events.
    fn read_events(&mut self) -> io::Result<Seen> {
        let mut events: Vec<Event> = Vec::new();
        let mut seen = Seen { is_all: false, own: 0, others: 0 };
        for _ in 0..READS_MAX {
            let Self { source, tree, .. } = self;
            let has_more = source.read(|happening| {
                if happening.directory().is_none_or(|directory| tree.has(directory)) {
                    events.push(Event::of(happening));
                } else {
                    seen.others += 1;
                }
            })?;
            seen.own += events.len();
            for event in events.drain(..) {
                self.handle(event);
            }
            if !has_more {
                seen.is_all = true;
                self.gone.drain(..).for_each(|directory| self.tree.forget(directory));
                break;
            }
        }
        Ok(seen)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Overflow => (0..self.roots.len()).for_each(|root| self.begin_anew(root, Which::All)),
            Event::Unwatched(watch) => self.gone.push(watch),
            Event::Unmounted(watch) | Event::Moved(watch) => {
                for found in self.tree.paths(watch) {
                    // The root is known by its descriptor, wherever it is.
                    if *found.path != *b"/" || matches!(event, Event::Unmounted(_)) {
                        self.begin_anew(found.root, self.subtree_of(&found.path));
                    }
                }
            }
            Event::Attributes(watch) => {
                for found in self.tree.paths(watch) {
                    if !self.tree.has_same_rights(watch, &self.roots[found.root].folder, &found.path) {
                        self.begin_anew(found.root, self.subtree_of(&found.path));
                    }
                    if let Some((directory, name)) = parent(&found.path) {
                        let change = Change { directory, name, is_directory: true, how: How::Changed };
                        self.handle_change(found.root, &change);
                    }
                }
            }
            Event::Name { directory, name, is_directory, how } => {
                for found in self.tree.paths(directory) {
                    let change = Change { directory: &found.path, name: &name, is_directory, how };
                    self.handle_change(found.root, &change);
                }
            }
        }
    }

    /// The subtree that a directory belongs to; all for the root itself.
    fn subtree_of(&self, path: &[u8]) -> Which {
        if path == b"/" { Which::All } else { Which::One(self.subtrees.number(&self.names, path)) }
    }

    fn handle_change(&mut self, number: usize, change: &Change<'_>) {
        let Self { names, changed, tree, roots, subtrees, .. } = self;
        let root = &mut roots[number];
        for site in &root.sites {
            each_name(change, &site.rules, |path| changed.push(names.name(site.hash, path)));
        }
        let path = [change.directory, change.name].concat();
        let beneath = [&path, &b"/"[..]].concat();
        let subtree = subtrees.number(names, &beneath);
        match (change.is_directory, change.how) {
            (true, How::Appeared) => {
                root.find(subtree, beneath.into());
                root.note_appearance(subtree);
            }
            // Every name beneath it leads elsewhere, and its watches have other paths.
            (true, How::MovedAway) => self.begin_anew(number, Which::One(subtree)),
            (true, How::Changed) if tree.was_closed(number, &beneath) => {
                self.begin_anew(number, Which::One(subtree));
            }
            (true, _) => {}
            (false, How::Appeared) if !watched::is_regular(&root.folder, &path) => {
                root.note_appearance(subtree);
            }
            (false, _) => {}
        }
        self.send_changed(WRONG_MAX);
    }

    /// Watches some of the directories that are not watched yet.
    fn watch_some(&mut self, now_ms: u64) {
        for number in 0..self.roots.len() {
            let due = self.roots[number].due(now_ms);
            if !due.is_empty() {
                self.list_root(number, &due);
            }
            for subtree in 0..self.roots[number].subtrees.len() {
                while let Some(path) = self.roots[number].subtrees[subtree].waiting.pop() {
                    self.watch_directory(number, subtree as u16, &path);
                    if clock::monotonic_ms() > now_ms + TURN_MS {
                        return;
                    }
                }
            }
        }
    }

    /// Begins subtrees with the directories in their root.
    fn list_root(&mut self, number: usize, due: &[u16]) {
        let root = &mut self.roots[number];
        let listed = self.tree.watch(&self.source, (number, &root.folder), b"/");
        for subtree in due {
            root.subtrees[usize::from(*subtree)].progress = Progress::Walks;
        }
        match listed {
            Ok(names) => {
                for name in names {
                    let path = [b"/", &name[..], b"/"].concat();
                    let subtree = self.subtrees.number(&self.names, &path);
                    if due.contains(&subtree) {
                        root.find(subtree, path.into());
                    }
                }
            }
            Err(e) => due.iter().for_each(|subtree| self.give_up(number, *subtree, b"/", &e)),
        }
    }

    fn watch_directory(&mut self, number: usize, subtree: u16, path: &[u8]) {
        let root = &mut self.roots[number];
        match self.tree.watch(&self.source, (number, &root.folder), path) {
            Ok(names) => names.iter().for_each(|name| root.find(subtree, [path, name, b"/"].concat().into())),
            Err(e) => self.give_up(number, subtree, path, &e),
        }
    }

    /// Sends what the keeper must know by now.
    fn report_progress(&mut self) {
        self.send_changed(1);
        let since_ms = clock::monotonic_ms();
        for number in 0..self.roots.len() {
            let (mut begun, mut appearing, mut appeared) = (Vec::new(), Vec::new(), Vec::new());
            for subtree in &mut self.roots[number].subtrees {
                let is_done = subtree.waiting.is_empty();
                match (subtree.progress, subtree.appearing) {
                    (Progress::Walks, _) if is_done => {
                        subtree.progress = Progress::Whole;
                        begun.push(subtree.number);
                    }
                    (Progress::Whole, Appearing::Unreported) => {
                        appearing.push(subtree.number);
                        subtree.appearing = Appearing::Reported;
                    }
                    _ => {}
                }
                if subtree.progress == Progress::Whole && subtree.appearing == Appearing::Reported && is_done
                {
                    appeared.push(subtree.number);
                    subtree.appearing = Appearing::Nothing;
                }
            }
            self.send_for(number, &begun, |subtree| FromWatcher::Begun { subtree, since_ms });
            self.send_for(number, &appearing, |subtree| FromWatcher::Appearing { subtree });
            self.send_for(number, &appeared, |subtree| FromWatcher::Appeared { subtree, since_ms });
        }
    }

    /// Reports to the keeper from time to time that it knows all changes up to `until_ms`.
    fn report_until(&mut self, until_ms: u64) {
        if until_ms < self.next_until_ms {
            return;
        }
        self.next_until_ms = until_ms + self.until_every_ms;
        let is_unwatched = |root: &Root| {
            root.subtrees.iter().filter(|subtree| subtree.progress == Progress::Unwatched).count() as u64
        };
        let figures = WatcherFigures {
            directories: self.tree.len() as u64,
            directories_max: self.tree.directories_max() as u64,
            sites: self.roots.iter().map(|root| root.sites.len() as u64).sum(),
            sites_unreported: self.sites_unreported,
            subtrees_unwatched: self.roots.iter().map(is_unwatched).sum::<u64>()
                + self.sites_unreported * self.subtrees.numbers().count() as u64,
        };
        if self.figures_sent != Some(figures) {
            self.send(&FromWatcher::Figures(figures));
            self.figures_sent = Some(figures);
        }
        self.send(&FromWatcher::Until(until_ms));
    }

    /// Changes in a root may have been missed.
    fn begin_anew(&mut self, number: usize, which: Which) {
        self.end(number, which, Progress::Begins(clock::monotonic_ms() + ANEW_MS));
    }

    fn end(&mut self, number: usize, which: Which, next: Progress) {
        let Self { roots, tree, names, subtrees, source, .. } = self;
        if roots[number].has_watches(which) {
            // The root itself stays watched: every subtree needs it.
            tree.forget_all(source, number, |path| {
                path != b"/" && (which == Which::All || which.has(subtrees.number(names, path)))
            });
        }
        let ended = roots[number].end(which, next);
        self.send_for(number, &ended, |subtree| FromWatcher::Lost { subtree });
    }

    /// A directory cannot be watched, and so its subtree cannot.
    fn give_up(&mut self, number: usize, subtree: u16, path: &[u8], why: &io::Error) {
        let advice = self.source.advice(why, (self.tree.len(), self.tree.directories_max()));
        self.end(number, Which::One(subtree), Progress::Unwatched);
        let root = &mut self.roots[number];
        // A directory whose names can be looked up but not listed is a choice of its owner, so only the figures show it.
        let is_closed = why.kind() == io::ErrorKind::PermissionDenied;
        if is_closed || std::mem::replace(&mut root.is_reported, true) {
            return;
        }
        self.control.report(format!(
            "cannot watch {} for changes ({}: {why}{advice}); names in that part of it are checked instead, each every \
             freshness (flash stats shows how many parts)",
            root.name,
            path.escape_ascii()
        ));
    }

    /// Sends the names that have changed, if there are at least this many.
    fn send_changed(&mut self, least: usize) {
        while self.changed.len() >= least.max(1) {
            let count = self.changed.len().min(WRONG_MAX);
            let names = self.changed.drain(..count).collect();
            self.send(&FromWatcher::Changed(names));
        }
    }

    /// Sends a message for each of some subtrees of a root, and each site of that.
    fn send_for(&mut self, number: usize, subtrees: &[u16], message: impl Fn(NameHash) -> FromWatcher) {
        for subtree in subtrees {
            let hashes = self.roots[number].hashes(self.subtrees, &self.names, *subtree);
            hashes.into_iter().for_each(|hash| self.send(&message(hash)));
        }
    }

    /// Sends a message to the keeper, and waits for room: a change that is not reported must not count as unchanged.
    fn send(&mut self, message: &FromWatcher) {
        let Some(keeper) = &self.keeper else { return };
        if channel::send(keeper, &[IoSlice::new(&encode(message))], &[]).is_err() {
            self.keeper = None;
        }
    }
}
