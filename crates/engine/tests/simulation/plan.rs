//! The random world of a run: settings, sites, files, and how its disk behaves.

use flash_engine::limits::{HEADS_BYTES_PER_CLIENT_MAX, JOBS_QUEUED_MAX};
use flash_engine::{LogFormat, Optimizations, Rules, SiteRules, Timeouts};
use flash_http::EncodedSlash;
use flash_http::types::TypeTable;

use crate::disk::{CODINGS, Disk, Lead, Target, add_obstacles};
use crate::machine::files::Residency;
use crate::machine::{KIB, MIB, Machine};
use crate::rng::Rng;

/// How the disk and its helpers behave for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    pub(crate) latency_max_ms: u64,
    /// Jobs in a hundred that never end.
    pub(crate) stalls: u64,
    /// That fail.
    pub(crate) fails: u64,
    /// Whose helper dies.
    pub(crate) deaths: u64,
    /// Whose pages are gone again before they are used.
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

/// What was decided before the run began.
pub(crate) struct Plan {
    /// Content caches are so large that nothing ever leaves them.
    pub(crate) ample: bool,
    /// At some time everything leaves memory but what the engine holds, and the disk answers nothing
    /// until the end.
    pub(crate) frozen: bool,
    pub(crate) helpers: usize,
    pub(crate) clients: u64,
    pub(crate) hot_clients: u64,
    pub(crate) chaos_ms: u64,
    /// Disk events come about this often.
    pub(crate) trouble_ms: u64,
    pub(crate) drains: bool,
    pub(crate) jumps: bool,
    /// So many clients come at once and ask for what nobody knows.
    pub(crate) crowd: u64,
    /// They come from one address.
    pub(crate) crowd_is_one: bool,
    /// So many clients come at once from one address and send all but the end of a long head.
    pub(crate) hoard: u64,
    /// The last site is on a file system that only helpers reach.
    pub(crate) places: bool,
    /// Some clients speak the protocol of streams.
    pub(crate) streams: bool,
    /// What is known is served beside a disk that does not answer for as long as it does not.
    pub(crate) endless_stale: bool,
    pub(crate) default_site: bool,
    /// How the run ends: the clients leave at once instead of being answered.
    pub(crate) walk_out: bool,
}

impl Plan {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let frozen = rng.chance(20);
        let chaos_ms = rng.pick(&[300, 2_000, 8_000, 30_000]);
        // More than jobs may be queued, or than there is room for their heads; rarely, for it takes long.
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
            places: rng.chance(15),
            streams: rng.chance(25),
            endless_stale: frozen && rng.chance(70),
            ample: frozen || rng.chance(40),
            helpers: rng.pick(&[0, 1, 1, 2, 4]),
            clients: rng.between(2, 9),
            hot_clients: rng.between(1, 3),
            chaos_ms,
            trouble_ms: rng.pick(&[5, 50, 400]).max(chaos_ms / 150),
            drains: rng.chance(20),
            jumps: rng.chance(20),
            default_site: rng.chance(85),
            walk_out: rng.chance(25),
        }
    }
}

/// Longer than a run, jumps of the clock aside.
pub(crate) const STALE_WITHOUT_END_MS: u64 = 100_000_000;

pub(crate) fn rules(rng: &mut Rng, plan: &Plan) -> Rules {
    let site = |rng: &mut Rng, root: &str, hosts: Vec<String>| SiteRules {
        hosts,
        root: root.into(),
        index: vec!["index.html".into()],
        browse: rng.chance(70),
        precompressed: rng.chance(75),
        encoded_slash: EncodedSlash::Decode,
    };
    let first = if plan.default_site { vec![] } else { vec!["h".into()] };
    let cache_memory_bytes =
        if plan.ample { 64 * MIB } else { rng.pick(&[0, 0, 1_000, 40 * KIB, 200 * KIB, MIB]) };
    Rules {
        sites: vec![
            site(rng, "/s0", first),
            site(rng, "/s1", vec!["b.example".into(), "*.c.example".into()]),
        ],
        types: TypeTable::new([]),
        cache_parts: 1,
        helpers_max: plan.helpers.max(1),
        freshness_ms: rng.pick(&[0, 20, 300, 1_000, 60_000]),
        // Contents are served beside a disk that answers nothing for as long as the stale bound.
        stale_ms: if plan.endless_stale {
            STALE_WITHOUT_END_MS
        } else {
            rng.pick(&[0, 500, 10_000, STALE_WITHOUT_END_MS])
        },
        cache_memory_bytes,
        optimizations: Optimizations::default(),
        connections_max: rng.pick(&[4, 12, 100, 100]) + (plan.crowd + plan.hoard) as usize,
        open_files_max: rng.pick(&[1, 1, 2, 8, 1024]),
        timeouts: Timeouts {
            head_ms: rng.pick(&[300, 3_000, 10_000]),
            idle_ms: rng.pick(&[500, 5_000, 60_000]),
            job_ms: rng.pick(&[100, 1_000, 5_000]),
        },
        least_rate_bytes_per_s: rng.pick(&[0, 1, 1024]),
        log_format: rng.pick(&[LogFormat::Off, LogFormat::Json, LogFormat::Combined]),
        etag_of_change: rng.chance(40),
    }
}

/// Which optimizations are on: all that there are by default in half of the runs, any in the others.
/// The numbers are `rng`'s own, so that either half is of worlds of every kind.
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

/// Makes the files and the addresses that clients ask for.
pub(crate) fn fill(disk: &mut Disk, machine: &mut Machine, rng: &mut Rng, rules: &Rules, plan: &Plan) {
    disk.etag_of_change = rules.etag_of_change;
    machine.files.missing_cached = plan.crowd == 0 && rng.chance(50);
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
