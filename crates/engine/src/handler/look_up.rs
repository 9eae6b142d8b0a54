//! Finds the entry for a path: in the name cache or among the names that all workers share, otherwise by a look-up
//! that cannot block, otherwise through a helper. Called by [`handler`](crate::handler).

use std::sync::Arc;

use flash_http::target::is_hidden;

use super::FileRequest;
use super::error_page::{BUSY, EXHAUSTED, NOT_FOUND, READ_FAILED, Refusal};
use crate::caches::{LookedUp, NameEntry, OpenFiles, Resolved, SharedFinding, Version, find};
use crate::context::Context;
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::limits::SIBLINGS_MS;
use crate::machine::{FileKind, Finding, LookUpError, Machine, SharedName, Task, Want};
use crate::slab::SiteId;

/// The result of a look-up in the worker.
pub(super) enum LookUp<F> {
    /// The entry was in the name cache, or made from a name that all workers share.
    Known(Arc<NameEntry>),
    /// The entry is new; its file was opened just now.
    Opened(Arc<NameEntry>),
    /// A helper must look the path up. A stale entry is used if it does not do so within a moment.
    Wait(Box<Wanted<F, Arc<Version>>>, Option<Arc<NameEntry>>),
    /// The path does not lead to a file that can be served.
    Refused(Refusal),
}

/// The answer of the open files of an entry to whether it is still true.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// The file has not changed since, so it has not lost a name either: that changes its times.
    Confirms,
    Contradicts,
    /// It is not open, or only a helper can ask.
    Silent,
}

/// Whether a known entry is still valid.
enum Check {
    True,
    False,
    /// Only a helper can tell.
    WouldWait,
    /// The look-up failed.
    Failed(Refusal),
}

/// Finds the entry for a path. `reopen` means that its file must be opened again.
pub(super) fn look_up<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    reopen: bool,
) -> LookUp<M::File> {
    let now_ms = context.core.clock.ms();
    if !reopen && let Some(entry) = newest(context, (asked.site, &asked.path)) {
        if entry.is_fresh(now_ms, context.core.rules.freshness_ms) {
            if !entry.needs_proof(now_ms) || !matches!(check(context, asked, &entry), Check::False) {
                context.core.counters.name_hits += 1;
                context.core.counters.names_watched += u64::from(entry.is_watched());
                return LookUp::Known(entry);
            }
            // It was confirmed just now, wrongly.
            entry.miss();
        } else if let Some(look_up) = confirm(context, asked, entry) {
            return look_up;
        }
        report_wrong(context, asked.site, &asked.path);
    }
    if is_hidden(&asked.path) {
        return LookUp::Refused(NOT_FOUND);
    }
    context.core.counters.name_misses += 1;
    match find_cached(context, asked, Want::Content, None) {
        Ok(finding) => {
            let name = LookedUp { site: asked.site, path: &asked.path, as_of_ms: now_ms, is_own: true };
            LookUp::Opened(context.core.caches.learn(name, finding, context.core.clock.now))
        }
        Err(LookUpError::WouldWait) => LookUp::Wait(Box::new(wanted_find(asked.site, &asked.path)), None),
        Err(error) => LookUp::Refused(refusal_of(error)),
    }
}

/// The entry for a path, if it is known and fresh.
pub(super) fn fresh<M: Machine>(
    context: &mut Context<'_, M>,
    (site, path): (SiteId, &[u8]),
) -> Option<Arc<NameEntry>> {
    let now_ms = context.core.clock.ms();
    let entry = newest(context, (site, path))?;
    entry.is_fresh(now_ms, context.core.rules.freshness_ms).then_some(entry)
}

/// The newest entry for a path that the worker knows or that all workers share, however old.
fn newest<M: Machine>(context: &mut Context<'_, M>, (site, path): (SiteId, &[u8])) -> Option<Arc<NameEntry>> {
    let (now, freshness_ms) = (context.core.clock.now, context.core.rules.freshness_ms);
    let now_ms = now.monotonic_ms();
    let own = context.core.caches.names.get(site, path).map(Arc::clone);
    if !context.core.rules.shares_names()
        || own.as_deref().is_some_and(|own| own.is_fresh(now_ms, freshness_ms))
    {
        return own;
    }
    if let Some(own) = own.as_ref().filter(|own| is_unchanged(context.machine, own, now_ms)) {
        return Some(Arc::clone(own));
    }
    own.iter().for_each(|own| own.compare(now_ms));
    let mut name = context.machine.shared_name(site, path);
    if name.is_none() && own.as_deref().is_some_and(NameEntry::is_watched) {
        // A name can be missed while its neighbours change. Twice means that it has changed itself.
        name = context.machine.shared_name(site, path);
    }
    let shared_finding = name.and_then(|name| {
        let rules = context.core.rules.site(site);
        let SharedName { facts, found_ms, confirmed_ms, watched } = name;
        Some(SharedFinding { finding: facts.finding(path, rules)?, found_ms, confirmed_ms, watched })
    });
    // A listing whose changes are not reported is made again once it is not fresh, whatever its name leads to.
    let is_listed = own.as_deref().is_some_and(|own| matches!(own.resolved, Resolved::Listing(_)));
    let shared = match shared_finding {
        Some(shared_finding) if shared_finding.watched.is_some() || !is_listed => {
            context.core.caches.take_shared(site, path, shared_finding, now)
        }
        _ => {
            own.iter().for_each(|own| own.miss());
            None
        }
    };
    context.core.counters.names_shared += u64::from(own.is_none() && shared.is_some());
    let is_old = own.is_some();
    let known = shared.or(own)?;
    if context.machine.are_changes_reported() {
        known.distrust_unreported(now_ms);
        if is_old && known.needs_second_look_up(now_ms) {
            let wanted = Wanted { urgency: Urgency::Ahead, ..wanted_find(site, path) };
            // Without room now, it is looked up later.
            let _ = context.core.jobs.submit(wanted, None, now_ms);
        }
    }
    Some(known)
}

/// Whether no change of a name was reported since its entry was found. The entry is confirmed then.
pub(super) fn is_unchanged<M: Machine>(machine: &M, entry: &NameEntry, now_ms: u64) -> bool {
    let Some(mark) = entry.mark() else { return false };
    let Some(until_ms) = machine.unchanged_ms(mark) else { return false };
    entry.confirm(until_ms.max(entry.confirmed_ms.get()), Some(mark));
    entry.compare(now_ms);
    true
}

/// Reports that the known facts about a path are wrong.
pub(super) fn report_wrong<M: Machine>(context: &mut Context<'_, M>, site: SiteId, path: &[u8]) {
    if context.core.rules.shares_names() {
        context.core.caches.outdate_shared(site, path, context.core.clock.ms());
        context.machine.report_wrong_name(site, path);
    }
}

fn refusal_of(error: LookUpError) -> Refusal {
    match error {
        LookUpError::Failed(_) => READ_FAILED,
        LookUpError::WouldWait => BUSY,
        LookUpError::Missing | LookUpError::Denied | LookUpError::Exhausted => EXHAUSTED,
    }
}

/// Checks a stale entry by a look-up that cannot block. If even that would block, a helper checks the entry.
/// Until the stale limit the old entry is served meanwhile if the open file confirms it; if no file is open, the
/// request first waits a moment for a helper that is prompt. If the file contradicts the entry, or after the limit,
/// the request waits for the helper. Returns None if the entry is wrong.
fn confirm<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    entry: Arc<NameEntry>,
) -> Option<LookUp<M::File>> {
    let now_ms = context.core.clock.ms();
    let bound_ms = context.core.rules.freshness_ms.saturating_add(context.core.rules.stale_ms);
    let too_old = entry.confirmed_ms.age_ms(now_ms) > bound_ms;
    // Each request for a hot file after a freshness interval has the entry checked for the next one.
    let bound_in_use_ms = context.core.rules.freshness_ms.saturating_mul(2);
    match check(context, asked, &entry) {
        Check::True => {
            keep_files_open(&mut context.core.caches.files, &entry);
            entry.confirmed_ms.set(now_ms);
        }
        Check::False => return None,
        Check::WouldWait => {
            let evidence = check_open_files(context, &entry);
            let wanted = || wanted_find(asked.site, &asked.path);
            if too_old || evidence == Evidence::Contradicts {
                return Some(LookUp::Wait(Box::new(wanted()), None));
            }
            let is_prompt = context.core.jobs.is_prompt(asked.site, now_ms);
            // If the queue is full, the check is tried again one freshness interval later.
            let is_queued = context.core.jobs.submit(wanted(), None, now_ms).is_ok();
            let is_in_use = entry.confirmed_ms.age_ms(now_ms) <= bound_in_use_ms;
            if evidence == Evidence::Silent && !is_in_use && is_prompt && is_queued {
                // Only this request waits. Those that come meanwhile are answered at once.
                entry.accepted_ms.set(now_ms);
                return Some(LookUp::Wait(Box::new(wanted()), Some(entry)));
            }
        }
        Check::Failed(refusal) if too_old => return Some(LookUp::Refused(refusal)),
        // The machine is short of resources, so the known entry is kept.
        Check::Failed(_) => {}
    }
    entry.accepted_ms.set(now_ms);
    context.core.counters.name_hits += 1;
    Some(LookUp::Known(entry))
}

/// Marks the open files of an entry as used: the entry is.
fn keep_files_open<F>(files: &mut OpenFiles<F>, entry: &NameEntry) {
    if let Resolved::File(resource) = &entry.resolved {
        resource.versions().for_each(|version| drop(files.get(version.id)));
    }
}

/// Asks the open files of an entry whether it is still true. That does not wait.
fn check_open_files<M: Machine>(context: &mut Context<'_, M>, entry: &NameEntry) -> Evidence {
    let Resolved::File(resource) = &entry.resolved else { return Evidence::Silent };
    let mut evidence = Evidence::Silent;
    for version in resource.versions() {
        let Some(file) = context.core.caches.files.get(version.id) else { continue };
        match context.machine.stat(&file) {
            Ok(stat) if !version.matches(&stat) => return Evidence::Contradicts,
            // Without the file itself, its siblings prove little.
            Ok(_) if version.id == resource.plain.id => evidence = Evidence::Confirms,
            Ok(_) | Err(_) => {}
        }
    }
    evidence
}

fn check<M: Machine>(context: &mut Context<'_, M>, asked: &FileRequest<'_>, entry: &NameEntry) -> Check {
    if matches!(entry.resolved, Resolved::Listing(_)) {
        return Check::False;
    }
    match find_cached(context, asked, Want::Stat, Some(entry)) {
        Ok(finding) if entry.confirmed_by(&finding) => Check::True,
        Ok(_) => Check::False,
        Err(LookUpError::WouldWait) => Check::WouldWait,
        Err(error) => Check::Failed(refusal_of(error)),
    }
}

/// Looks up a path by calls that cannot block. When a known entry is checked, siblings that were absent
/// recently are not looked up again.
fn find_cached<M: Machine>(
    context: &mut Context<'_, M>,
    asked: &FileRequest<'_>,
    want: Want,
    known: Option<&NameEntry>,
) -> Result<Finding<M::File>, LookUpError> {
    let now_ms = context.core.clock.ms();
    let absent =
        known.filter(|entry| now_ms < entry.siblings_ms.get() + SIBLINGS_MS).and_then(absent_siblings);
    let rules = context.core.rules.site(asked.site);
    // Siblings are looked up after their file, in the order of `Coding::ALL`.
    let mut sibling: Option<usize> = None;
    let finding = find(&asked.path, rules, &context.core.rules.types, want, |path, want| {
        if let Some(place) = &mut sibling {
            *place += 1;
            if absent.is_some_and(|absent| absent.get(*place - 1) == Some(&true)) {
                return Err(LookUpError::Missing);
            }
        }
        let found = context.machine.open_cached(asked.site, path, want);
        if sibling.is_none() && found.as_ref().is_ok_and(|found| found.stat.kind == FileKind::Regular) {
            sibling = Some(0);
        }
        found
    })?;
    if let (Some(entry), None) = (known, absent) {
        entry.siblings_ms.set(now_ms);
    }
    Ok(finding)
}

/// Which siblings of a file are absent.
fn absent_siblings(entry: &NameEntry) -> Option<[bool; 3]> {
    match &entry.resolved {
        Resolved::File(resource) => Some(resource.coded.each_ref().map(Option::is_none)),
        _ => None,
    }
}

/// The job that looks up a path.
fn wanted_find<F>(site: SiteId, path: &[u8]) -> Wanted<F, Arc<Version>> {
    Wanted {
        key: JobKey::Find(site, path.into()),
        task: Task::Find { site, path: path.into() },
        urgency: Urgency::Bounded,
        subject: None,
        remaining_bytes: 0,
    }
}
