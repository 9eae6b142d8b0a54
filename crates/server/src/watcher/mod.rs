//! The watcher process: it tells the keeper which names of the sites change, so that findings of helpers are true without
//! a check until something happens. It answers no request, and its own look-ups may wait: while it is late, names are only
//! checked as without it.
//!
//! It watches every directory beneath the roots that [`watched::tells_changes`]. A root of which it may have missed a change
//! begins anew.

mod depend;
mod tree;

use std::io::{self, IoSlice};

use flash_engine::SiteRules;
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::names::{NameHash, NamesReader};
use flash_prompt::{OwnedFd, channel, clock};
use flash_waiting::inotify::{Happening, How, Inotify};
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::paths::Rights;
use flash_waiting::watched::{self, Mounts};
use flash_worker::codec::encode;
use flash_worker::control::{Order, receive_order};
use flash_worker::names::SharedNames;
use flash_worker::store_protocol::{FromWatcher, WRONG_MAX};

use crate::config::Settings;
use crate::control::Control;
use crate::convert;
use crate::sandbox::{self, Role};
use depend::{Change, each_name};
use tree::Tree;

/// How often the keeper hears until when all changes are known.
const UNTIL_MS: u64 = 50;
/// The pause before a root begins anew, so that many moved directories cost few of these.
const ANEW_MS: u64 = 200;
/// Directories that are watched before events are read again.
const DIRECTORIES_PER_TURN: usize = 64;
/// The epoll token of events.
const EVENTS: u64 = 0;

/// A site, as far as its names matter.
struct Site {
    rules: SiteRules,
    hash: NameHash,
}

/// What is known of the changes beneath a root.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Its directories are not all watched yet. It goes on at this time.
    Begins(u64),
    /// All changes are told.
    Whole,
    /// It cannot be watched.
    Unwatched,
}

struct Root {
    folder: OwnedFd,
    name: String,
    sites: Vec<Site>,
    progress: Progress,
    /// Directories that are not watched yet.
    waiting: Vec<Box<[u8]>>,
    /// Whether a directory, or a link to one, has appeared since the keeper was last told.
    has_appeared: bool,
}

struct Watcher {
    control: Control,
    epoll: Epoll,
    inotify: Inotify,
    mounts: Mounts,
    names: NamesReader,
    roots: Vec<Root>,
    tree: Tree,
    /// None if the keeper is gone; another one will come.
    keeper: Option<OwnedFd>,
    changed: Vec<NameHash>,
    next_until_ms: u64,
}

/// Watches until the supervisor is gone, or the configuration ends.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    let (inotify, mounts) = match Inotify::new().and_then(|inotify| Ok((inotify, Mounts::watch()?))) {
        Ok(both) => both,
        Err(why) => return do_without(control, settings, &why),
    };
    let watcher = Watcher::begin(control, settings, (inotify, mounts))?;
    let folders: Vec<_> = watcher.roots.iter().map(|root| (&root.folder, Rights::ReadAndList)).collect();
    let in_force = sandbox::close(Role::Watcher, settings, &folders, CallList::Watcher)?;
    watcher.control.ready(in_force)?;
    watcher.run()
}

/// Reports why nothing is watched, and does nothing until the end.
fn do_without(control: OwnedFd, settings: &Settings, why: &io::Error) -> io::Result<()> {
    while !matches!(receive_order(&control)?, Order::Begin) {}
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
    fn begin(
        control: OwnedFd,
        settings: &Settings,
        (inotify, mounts): (Inotify, Mounts),
    ) -> io::Result<Self> {
        let (mut names, mut keeper) = (None, None);
        let mut folders: Vec<Option<OwnedFd>> = settings.sites.iter().map(|_| None).collect();
        loop {
            match receive_order(&control)? {
                Order::Root { site, is_local: true, folder } => {
                    if let Some(place) = folders.get_mut(site) {
                        *place = Some(folder);
                    }
                }
                // Whoever else has the files can change them untold.
                Order::Root { .. } => {}
                Order::NamesTable(file) => names = Some(NamesReader::map(file)?),
                Order::Keeper(channel) => keeper = Some(channel),
                Order::Begin => break,
                other => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {other:?}")));
                }
            }
        }
        let names =
            names.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a watcher without names"))?;
        let epoll = Epoll::new(8)?;
        epoll.add(&inotify, EVENTS, Watch::Input)?;
        let types = convert::types(settings);
        let mut roots: Vec<Root> = Vec::new();
        for (rules, folder) in convert::sites(settings).into_iter().zip(folders) {
            let Some(folder) = folder.filter(|folder| watched::tells_changes(folder)) else { continue };
            let Some(hash) = SharedNames::site_hash(&names, &rules, &folder, &types) else { continue };
            let name = rules.root.display().to_string();
            let site = Site { rules, hash };
            match roots.iter_mut().find(|root| root.name == name) {
                Some(root) => root.sites.push(site),
                None => roots.push(Root {
                    folder,
                    name,
                    sites: vec![site],
                    progress: Progress::Begins(0),
                    waiting: vec![b"/"[..].into()],
                    has_appeared: false,
                }),
            }
        }
        Ok(Self {
            control: Control::watch(control, &epoll)?,
            epoll,
            inotify,
            mounts,
            names,
            roots,
            tree: Tree::default(),
            keeper,
            changed: Vec::new(),
            next_until_ms: 0,
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            let is_working = self.roots.iter().any(|root| !root.waiting.is_empty());
            let timeout_ms = if is_working { 1 } else { UNTIL_MS };
            let ready: Vec<u64> = self.epoll.wait(Some(timeout_ms))?.map(|ready| ready.token).collect();
            if ready.contains(&Control::TOKEN) && !self.receive_orders()? {
                return Ok(());
            }
            let now_ms = clock::monotonic_ms();
            if self.mounts.have_changed() {
                (0..self.roots.len()).for_each(|root| self.begin_anew(root));
            }
            self.read_events()?;
            self.watch_some(now_ms)?;
            self.tell(now_ms);
        }
    }

    /// Handles orders; false if the process must end.
    fn receive_orders(&mut self) -> io::Result<bool> {
        while let Some(order) = self.control.receive()? {
            match order {
                Order::Keeper(channel) => {
                    self.keeper = Some(channel);
                    let since_ms = clock::monotonic_ms();
                    let whole = self.roots.iter().filter(|root| root.progress == Progress::Whole);
                    let sites: Vec<NameHash> = whole.flat_map(Root::hashes).collect();
                    sites.into_iter().for_each(|site| self.send(&FromWatcher::Begun { site, since_ms }));
                }
                Order::Drain => return Ok(false),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Reads and handles all events that there are.
    fn read_events(&mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::new();
        while self.inotify.read(|happening| events.push(Event::of(happening)))? {
            for event in events.drain(..) {
                self.handle(event);
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Overflow => (0..self.roots.len()).for_each(|root| self.begin_anew(root)),
            Event::Unwatched(watch) => self.tree.forget(watch),
            Event::Unmounted(watch) | Event::Moved(watch) => {
                for place in self.tree.places(watch) {
                    // The root is known by its descriptor, wherever it is.
                    if *place.path != *b"/" || matches!(event, Event::Unmounted(_)) {
                        self.begin_anew(place.root);
                    }
                }
            }
            Event::Attributes(watch) => {
                for place in self.tree.places(watch) {
                    if !self.tree.has_same_rights(watch, &self.roots[place.root].folder, &place.path) {
                        self.begin_anew(place.root);
                    }
                }
            }
            Event::Name { directory, name, is_directory, how } => {
                for place in self.tree.places(directory) {
                    let change = Change { directory: &place.path, name: &name, is_directory, how };
                    self.handle_change(place.root, &change);
                }
            }
        }
    }

    fn handle_change(&mut self, number: usize, change: &Change<'_>) {
        let Self { names, changed, tree, .. } = self;
        let root = &mut self.roots[number];
        for site in &root.sites {
            each_name(change, &site.rules, |path| changed.push(names.name(site.hash, path)));
        }
        let path = [change.directory, change.name].concat();
        match (change.is_directory, change.how) {
            (true, How::Appeared) => {
                root.waiting.push([&path, &b"/"[..]].concat().into());
                root.has_appeared = true;
            }
            // Every name beneath it leads elsewhere, and its watches have other paths.
            (true, How::MovedAway) => self.begin_anew(number),
            (true, How::Changed) if tree.was_closed(number, &[&path, &b"/"[..]].concat()) => {
                self.begin_anew(number);
            }
            (true, _) => {}
            (false, How::Appeared) => root.has_appeared |= !watched::is_regular(&root.folder, &path),
            (false, _) => {}
        }
        self.send_changed(WRONG_MAX);
    }

    /// Watches some of the directories that are not watched yet.
    fn watch_some(&mut self, now_ms: u64) -> io::Result<()> {
        for number in 0..self.roots.len() {
            if matches!(self.roots[number].progress, Progress::Begins(at_ms) if at_ms > now_ms) {
                continue;
            }
            for _ in 0..DIRECTORIES_PER_TURN {
                let Root { folder, waiting, .. } = &mut self.roots[number];
                let Some(path) = waiting.pop() else { break };
                match self.tree.watch(&self.inotify, (number, folder), &path) {
                    Ok(names) => {
                        let beneath = names.iter().map(|name| [&*path, name, b"/"].concat().into());
                        waiting.extend(beneath);
                    }
                    Err(e) => self.give_up(number, &path, &e),
                }
            }
        }
        // A directory can have appeared in one before that was watched.
        self.read_events()
    }

    /// Sends what the keeper must know by now.
    fn tell(&mut self, now_ms: u64) {
        self.send_changed(1);
        if self.roots.iter().any(|root| root.progress == Progress::Whole && !root.waiting.is_empty()) {
            return;
        }
        let since_ms = clock::monotonic_ms();
        for number in 0..self.roots.len() {
            let root = &mut self.roots[number];
            let has_appeared = std::mem::take(&mut root.has_appeared);
            let hashes: Vec<NameHash> = root.hashes().collect();
            match root.progress {
                Progress::Begins(at_ms) if at_ms <= now_ms && root.waiting.is_empty() => {
                    root.progress = Progress::Whole;
                    hashes.into_iter().for_each(|site| self.send(&FromWatcher::Begun { site, since_ms }));
                }
                Progress::Whole if has_appeared => {
                    hashes.into_iter().for_each(|site| self.send(&FromWatcher::Appeared { site, since_ms }));
                }
                _ => {}
            }
        }
        let is_any_whole = self.roots.iter().any(|root| root.progress == Progress::Whole);
        if is_any_whole && now_ms >= self.next_until_ms {
            self.next_until_ms = now_ms + UNTIL_MS;
            // All events up to now were read after this time.
            self.send(&FromWatcher::Until(now_ms));
        }
    }

    /// A change beneath a root may have been missed.
    fn begin_anew(&mut self, number: usize) {
        let root = &mut self.roots[number];
        if root.progress == Progress::Unwatched {
            return;
        }
        let was_whole = root.progress == Progress::Whole;
        root.progress = Progress::Begins(clock::monotonic_ms() + ANEW_MS);
        root.waiting = vec![b"/"[..].into()];
        root.has_appeared = false;
        self.tree.forget_root(&self.inotify, number);
        if was_whole {
            let hashes: Vec<NameHash> = self.roots[number].hashes().collect();
            hashes.into_iter().for_each(|site| self.send(&FromWatcher::Lost { site }));
        }
    }

    /// A directory cannot be watched, and so its root cannot.
    fn give_up(&mut self, number: usize, path: &[u8], why: &io::Error) {
        self.begin_anew(number);
        let watched = self.tree.len();
        let root = &mut self.roots[number];
        root.progress = Progress::Unwatched;
        root.waiting.clear();
        let advice = if why.kind() == io::ErrorKind::StorageFull {
            format!(
                "; {watched} other directories are watched, and fs.inotify.max_user_watches may allow more"
            )
        } else {
            String::new()
        };
        self.control.report(format!(
            "cannot watch {} for changes ({}: {why}{advice}); its names are checked instead, each every freshness",
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

    /// Sends a message to the keeper, and waits for room: what is not told must not count as unchanged.
    fn send(&mut self, message: &FromWatcher) {
        let Some(keeper) = &self.keeper else { return };
        if channel::send(keeper, &[IoSlice::new(&encode(message))], &[]).is_err() {
            self.keeper = None;
        }
    }
}

impl Root {
    fn hashes(&self) -> impl Iterator<Item = NameHash> {
        self.sites.iter().map(|site| site.hash)
    }
}

/// A [`Happening`] that owns its name.
#[derive(Debug)]
enum Event {
    Overflow,
    Unwatched(flash_waiting::inotify::WatchId),
    Unmounted(flash_waiting::inotify::WatchId),
    Attributes(flash_waiting::inotify::WatchId),
    Moved(flash_waiting::inotify::WatchId),
    Name { directory: flash_waiting::inotify::WatchId, name: Vec<u8>, is_directory: bool, how: How },
}

impl Event {
    fn of(happening: Happening<'_>) -> Self {
        match happening {
            Happening::Overflow => Self::Overflow,
            Happening::Unwatched(watch) => Self::Unwatched(watch),
            Happening::Unmounted(watch) => Self::Unmounted(watch),
            Happening::Attributes(watch) => Self::Attributes(watch),
            Happening::Moved(watch) => Self::Moved(watch),
            Happening::Name { directory, name, is_directory, how } => {
                Self::Name { directory, name: name.to_vec(), is_directory, how }
            }
        }
    }
}
