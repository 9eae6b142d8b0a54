//! The random world of a run: settings, sites, files, and the health of its disk.

use flash_engine::limits::{HEADS_BYTES_PER_CLIENT_MAX, JOBS_QUEUED_MAX};
use flash_engine::{
    BodyRules, Cutoffs, FieldChanges, LogFormat, LogRules, Optimizations, PathRule, PathRules, Policy,
    ProxyRules, Rules, SiteRules, Timeouts,
};
use flash_http::EncodedSlash;
use flash_http::response::ServerField;
use flash_http::types::TypeTable;

use crate::bounded::Bounds;
use crate::disk::{CODINGS, Disk, Lead, Target, add_obstacles};
use crate::machine::files::Residency;
use crate::machine::{KIB, MIB, Machine, StoreSize, at_most};
use crate::rng::Rng;

/// The health of the disk and its helpers for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    pub(crate) latency_max_ms: u64,
    /// Percentage of jobs that never end.
    pub(crate) stalls: u64,
    /// Percentage of jobs that fail.
    pub(crate) fails: u64,
    /// Percentage of jobs whose helper dies.
    pub(crate) deaths: u64,
    /// Percentage of jobs whose pages are evicted before they are used.
    pub(crate) thrash: u64,
}

impl Health {
    pub(crate) const GOOD: Self = Self { latency_max_ms: 5, stalls: 0, fails: 0, deaths: 0, thrash: 0 };

    pub(crate) fn random(rng: &mut Rng) -> Self {
        let mut often = |most: u64| if rng.chance(40) { rng.between(1, most) } else { 0 };
        Self {
            stalls: often(30),
            fails: often(20),
            deaths: often(20),
            thrash: often(70),
            latency_max_ms: rng.pick(&[2, 20, 20, 300, 3_000]),
        }
    }
}

/// Decisions made before the run begins.
pub(crate) struct Plan {
    /// The store is so large that no block ever leaves it.
    pub(crate) ample: bool,
    /// The size of the store, if there is one.
    pub(crate) store: Option<StoreSize>,
    /// At some time, everything outside the engine's caches leaves memory, and the disk does not answer until
    /// the end.
    pub(crate) frozen: bool,
    pub(crate) helpers: usize,
    pub(crate) clients: u64,
    pub(crate) hot_clients: u64,
    pub(crate) chaos_ms: u64,
    /// Mean interval of disk events.
    pub(crate) trouble_ms: u64,
    pub(crate) drains: bool,
    pub(crate) jumps: bool,
    /// This many clients come at once and request unknown names.
    pub(crate) crowd: u64,
    /// These clients share one address.
    pub(crate) crowd_is_one: bool,
    /// This many clients come one after the other, at this interval, and each requests another unknown name.
    pub(crate) rush: u64,
    pub(crate) rush_gap_ms: u64,
    /// This many clients come at once from one address and send an unfinished long head.
    pub(crate) hoard: u64,
    /// The last site is on a file system that only helpers can reach.
    pub(crate) places: bool,
    /// Some clients speak HTTP/2.
    pub(crate) streams: bool,
    /// Percentage of connections of a single request at a time that are encrypted.
    pub(crate) encrypted: u64,
    pub(crate) rule: RunRule,
    /// The bounds of the second site.
    pub(crate) bounds: Bounds,
    /// Known names are served for as long as the disk does not answer.
    pub(crate) endless_stale: bool,
    pub(crate) default_site: bool,
    /// At the end of the run, the clients leave at once instead of being answered.
    pub(crate) leave_at_once: bool,
}

impl Plan {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let frozen = rng.chance(20);
        let chaos_ms = rng.pick(&[300, 2_000, 8_000, 30_000]);
        // More clients than jobs can be queued, or more heads than there is room for. This is rare, because
        // it takes long.
        let (crowd, crowd_is_one, hoard) = match rng.below(200) {
            0 => (JOBS_QUEUED_MAX as u64 + 80, false, 0),
            1 => (JOBS_QUEUED_MAX as u64 + 80, true, 0),
            2 => (0, false, HEADS_BYTES_PER_CLIENT_MAX as u64 / 31_000 + 80),
            3..20 => (rng.between(10, 40), false, 0),
            _ => (0, false, 0),
        };
        Self {
            frozen,
            crowd,
            crowd_is_one,
            hoard,
            rush: 0,
            rush_gap_ms: 0,
            places: rng.chance(15),
            streams: rng.chance(25),
            encrypted: 0,
            rule: RunRule::None,
            bounds: Bounds::default(),
            endless_stale: frozen && rng.chance(70),
            ample: frozen || rng.chance(40),
            store: None,
            helpers: rng.pick(&[0, 1, 1, 2, 4]),
            clients: rng.between(2, 9),
            hot_clients: rng.between(1, 3),
            chaos_ms,
            trouble_ms: rng.pick(&[5, 50, 400]).max(chaos_ms / 150),
            drains: rng.chance(20),
            jumps: rng.chance(20),
            default_site: rng.chance(85),
            leave_at_once: rng.chance(25),
        }
    }
}

/// The decisions about the queue: a rush of clients in some runs, and the bound of the wait. They use their
/// own random numbers.
pub(crate) fn queue(rng: &mut Rng, plan: &mut Plan) -> u64 {
    if rng.chance(10) && plan.crowd < 100 && plan.hoard == 0 {
        plan.rush = rng.between(20, 150);
        plan.rush_gap_ms = rng.pick(&[0, 1, 5, 20]);
    }
    rng.pick(&[0, 100, 1_000, 5_000, 5_000])
}

/// How many connections are encrypted, in percent. None of a crowd are: they would all wait for their handshakes, and the
/// properties of crowds are about requests that arrive. It uses its own random numbers.
pub(crate) fn encrypted(rng: &mut Rng, plan: &Plan) -> u64 {
    let share = rng.pick(&[0, 0, 50, 100]);
    if plan.crowd + plan.rush + plan.hoard > 0 { 0 } else { share }
}

/// The size of the store, if there is one. It uses its own random numbers.
pub(crate) fn store(rng: &mut Rng, plan: &Plan) -> Option<StoreSize> {
    let length_bytes = 512 * MIB;
    if plan.ample {
        return Some(StoreSize { length_bytes, slots_max: 100_000, bytes_max: 128 * MIB });
    }
    let bytes_max = rng.pick(&STORE_BYTES);
    let slots_max = rng.pick(&[3, 10, 1_000, 1_000]);
    // Some stores have only slightly more addresses than bytes.
    let length_bytes = if rng.chance(20) { bytes_max + 64 * KIB } else { length_bytes };
    (!rng.chance(15)).then_some(StoreSize { length_bytes, slots_max, bytes_max })
}

/// Sizes of stores that are too small.
pub(crate) const STORE_BYTES: [u64; 6] = [0, 12 * KIB, 200 * KIB, 700 * KIB, 2 * MIB, 4 * MIB];

/// Longer than a run, apart from jumps of the clock.
pub(crate) const STALE_WITHOUT_END_MS: u64 = 100_000_000;

/// The field that the rule of a run sets, and its values in other answers and in errors.
pub(crate) const RULE_FIELD: &str = "X-Rule";
pub(crate) const RULE_VALUES: [&str; 2] = ["yes", "error"];

/// The rule of all sites of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunRule {
    None,
    /// Each answer gets a field.
    Adds,
    /// The same, and no answer has `Accept-Ranges`.
    Replaces,
}

/// Chooses the sites whose texts are compressed. It uses its own random numbers.
pub(crate) fn compression(rng: &mut Rng, rules: &mut Rules) {
    rules.sites.iter_mut().for_each(|site| site.compress = rng.chance(40));
}

/// Chooses the rule. It uses its own random numbers.
pub(crate) fn path_rule(rng: &mut Rng, rules: &Rules) -> RunRule {
    let changes = !rules.optimizations.align_heads && rng.chance(50);
    if changes { rng.pick(&[RunRule::Adds, RunRule::Replaces]) } else { RunRule::None }
}

/// Gives the rule and the bounds to the sites.
pub(crate) fn give(sites: &mut [SiteRules], rule: RunRule, bounds: Bounds) {
    for (number, site) in sites.iter_mut().enumerate() {
        let paths = changing(rule).into_iter().chain(bounds.rule(number));
        site.paths = PathRules::new(paths.collect()).into();
    }
}

fn changing(rule: RunRule) -> Vec<PathRule> {
    if rule == RunRule::None {
        return vec![];
    }
    let set = |value: &str| vec![(RULE_FIELD.to_owned(), value.to_owned())];
    let remove = if rule == RunRule::Replaces { vec!["Accept-Ranges".to_owned()] } else { vec![] };
    let ruled = |fields| PathRule { fields, ..PathRule::new("/*") };
    let [success, error] = RULE_VALUES.map(set);
    vec![
        ruled(FieldChanges { set: error, remove, with_errors: true, ..FieldChanges::default() }),
        ruled(FieldChanges { set: success, ..FieldChanges::default() }),
    ]
}

pub(crate) fn rules(rng: &mut Rng, plan: &Plan) -> Rules {
    let site = |rng: &mut Rng, root: &str, hosts: Vec<String>| SiteRules {
        hosts,
        root: root.into(),
        index: vec!["index.html".into()],
        browse: rng.chance(70),
        precompressed: rng.chance(75),
        compress: false,
        encoded_slash: EncodedSlash::Decode,
        hsts: None,
        https_redirect: None,
        paths: PathRules::default().into(),
        alias_of: None,
        routes: vec![],
    };
    let first = if plan.default_site { vec![] } else { vec!["h".into()] };
    Rules {
        sites: vec![
            site(rng, "/s0", first),
            site(rng, "/s1", vec!["b.example".into(), "*.c.example".into()]),
        ],
        upstreams: vec![],
        worker: 0,
        types: TypeTable::new([]),
        names_bytes_max: flash_engine::limits::NAMES_BYTES,
        cache_parts: 1,
        helpers_max: plan.helpers.max(1),
        freshness_ms: rng.pick(&[0, 20, 300, 1_000, 60_000]),
        // If the disk does not answer, content is served up to the stale limit.
        stale_ms: if plan.endless_stale {
            STALE_WITHOUT_END_MS
        } else {
            rng.pick(&[0, 500, 10_000, STALE_WITHOUT_END_MS])
        },
        queue_wait_ms: 0,
        has_store: plan.store.is_some(),
        server_field: ServerField::Sent,
        optimizations: Optimizations::default(),
        proxies: ProxyRules::default(),
        admission: at_most(rng.pick(&[4, 12, 100, 100]) + (plan.crowd + plan.hoard + plan.rush) as usize),
        open_files_max: rng.pick(&[1, 1, 2, 8, 1024]),
        timeouts: Timeouts {
            head_ms: rng.pick(&[300, 3_000, 10_000]),
            idle_ms: rng.pick(&[500, 5_000, 60_000]),
            job_ms: rng.pick(&[100, 1_000, 5_000]),
        },
        least_rate_bytes_per_s: rng.pick(&[0, 1, 1024]),
        bodies: BodyRules::default(),
        spool_idle_ms: 0,
        http2: true,
        policy: Policy::Fair,
        egress: None,
        log: LogRules::of(rng.pick(&[LogFormat::Off, LogFormat::Json, LogFormat::Combined])),
        etag_of_change: rng.chance(40),
    }
}

/// The optimizations: those of the default in half of the runs, a random set in the others. They use their
/// own random numbers, so that both halves have worlds of every kind.
pub(crate) fn optimizations(rng: &mut Rng) -> Optimizations {
    if rng.chance(50) {
        return Optimizations::default();
    }
    Optimizations {
        name_cache: rng.chance(50),
        head_cache: rng.chance(50),
        align_heads: rng.chance(50),
        send_file: rng.chance(50),
    }
}

/// The schedule: which connection's bytes go first. It uses its own random numbers.
pub(crate) fn policy(rng: &mut Rng) -> Policy {
    match rng.below(4) {
        0 => Policy::Srpt { fixed: None },
        1 => Policy::Srpt { fixed: Cutoffs::new(&[rng.between(1, 5_000), rng.between(10_000, 300_000)]) },
        _ => Policy::Fair,
    }
}

/// Makes the files and the addresses that clients request.
pub(crate) fn fill(disk: &mut Disk, machine: &mut Machine, rng: &mut Rng, rules: &Rules, plan: &Plan) {
    disk.etag_of_change = rules.etag_of_change;
    disk.compresses = rules.sites.iter().map(|site| site.compress && rules.has_store).collect();
    machine.files.missing_cached = plan.crowd == 0 && rng.chance(50) && plan.rush == 0;
    machine.helpers.listing_bytes = rng.pick(&[10, 1_000, 200_000]);
    for (number, site) in rules.sites.iter().enumerate() {
        let root = format!("s{number}/");
        machine.files.roots.push(root.clone());
        if plan.places && number + 1 == rules.sites.len() {
            machine.files.places.push(root.clone());
        }
        for directory in [".", "d", "w"] {
            machine.files.add_directory(&format!("{root}{directory}"));
        }
        let files = &mut machine.files;
        add_obstacles(files, &root);
        let put = |disk: &mut Disk, path: &str, lead| {
            disk.targets.push(Target {
                site: number as u16,
                path: path.to_owned(),
                lead,
                content_type: content_type(path),
                excuse_ms: 0,
            });
        };
        put(disk, "/d", Lead::Redirect);
        put(disk, "/d/", if site.browse { Lead::Listing } else { Lead::Missing });
        put(disk, "/special", Lead::Denied);
        put(disk, "/denied", Lead::Denied);
        put(disk, "/eio", Lead::Error);
        put(disk, "/fds", Lead::Error);
        put(disk, "/.hidden", Lead::Missing);
        machine.files.add(&format!("{root}.hidden"), "secret");
        let count = rng.between(4, 9);
        for file in 0..count {
            let name = format!("f{file}{}", rng.pick(&[".html", ".txt", ".bin", ".png"]));
            add_file(disk, machine, rng, number, site, &name, &format!("/{name}"));
        }
        add_file(disk, machine, rng, number, site, "w/index.html", "/w/");
        for none in 0..2 {
            let path = format!("none{none}");
            let plain = disk.add(machine, rng, &format!("{root}{path}"), None);
            disk.targets.push(Target {
                site: number as u16,
                path: format!("/{path}"),
                lead: Lead::File { plain, coded: [None; 3] },
                content_type: "application/octet-stream",
                excuse_ms: 0,
            });
        }
    }
}

fn add_file(
    disk: &mut Disk,
    machine: &mut Machine,
    rng: &mut Rng,
    number: usize,
    site: &SiteRules,
    name: &str,
    url: &str,
) {
    let full = format!("s{number}/{name}");
    let hot = rng.chance(35) && !machine.files.is_place(full.as_bytes());
    let mut size = || if url == "/f0.html" { 5_000 } else { Disk::size(rng) };
    let size_bytes = size();
    let plain = disk.add(machine, rng, &full, Some(size_bytes));
    let mut coded = [None; 3];
    let content_type = content_type(if url.ends_with('/') { name } else { url });
    if site.precompressed && content_type.starts_with("text/") {
        for (place, (extension, _)) in coded.iter_mut().zip(CODINGS) {
            if rng.chance(60) {
                let size_bytes = Disk::size(rng);
                *place = Some(disk.add(machine, rng, &format!("{full}{extension}"), Some(size_bytes)));
            }
        }
    }
    for place in [Some(plain)].iter().chain(&coded).flatten() {
        disk.named[*place].hot = hot;
        if hot {
            continue;
        }
        if rng.chance(50) {
            disk.forget_name(machine, *place);
        }
        let path = disk.named[*place].path.clone();
        match rng.below(10) {
            0..5 => machine.files.inode(&path).evict(),
            5 => machine.files.inode(&path).residency = Residency::Unknown,
            _ => {}
        }
    }
    let lead = Lead::File { plain, coded };
    let path = url.to_owned();
    disk.targets.push(Target { site: number as u16, path, lead, content_type, excuse_ms: 0 });
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}
