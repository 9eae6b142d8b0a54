//! Names that all workers share: a worker answers from them without a look-up, and never with something older than it
//! has found itself.

use flash_engine::limits::{
    NAME_ENTRY_BYTES, UNREPORTED_MS, UNWATCHED_MS, VERSION_BYTES, WATCHED_MS, WATCHED_PROOF_MS,
};
use flash_engine::{Rules, SiteId};

use crate::machine::store::Word;
use crate::machine::world::{FRESHNESS_MS, STALE_MS};
use crate::machine::{World, rules};

const SITE: SiteId = SiteId(0);

/// A worker whose own cache of names holds hardly any, in a world with files `f0` to `f9` that nobody has asked for.
fn forgetful() -> World {
    let mut rules = rules();
    rules.names_bytes_max = 2_000;
    let mut world = World::with(rules);
    for number in 0..10 {
        world.machine.files.add_cold(&format!("f{number}"), &*format!("content {number}"));
    }
    world.machine.files.missing_cached = false;
    world
}

/// Asks for each file once.
fn get_all(world: &mut World) {
    for number in 0..10 {
        assert_eq!(world.get(&format!("/f{number}")).text(), format!("content {number}"));
    }
}

fn jobs(world: &mut World) -> usize {
    std::mem::take(&mut world.machine.helpers.history).len()
}

#[test]
fn a_name_that_the_worker_has_forgotten_is_answered_without_a_look_up() {
    let mut world = forgetful();
    get_all(&mut world);
    assert_eq!(world.get("/none").status, 404);
    assert_eq!(jobs(&mut world), 11);
    (0..10).for_each(|number| world.machine.files.forget_name(&format!("f{number}")));
    let look_ups = world.machine.calls.look_ups;
    get_all(&mut world);
    assert_eq!(world.get("/none").status, 404);
    assert_eq!((jobs(&mut world), world.machine.calls.look_ups), (0, look_ups));
    assert!(world.engine.counters().names_shared > 0);
    world.end();
}

#[test]
fn a_full_cache_takes_a_shared_name_at_its_second_request() {
    const FILES: usize = 8;
    let mut rules = rules();
    rules.names_bytes_max = (FILES * (NAME_ENTRY_BYTES + VERSION_BYTES + 10)) as u64;
    let mut world = World::with(rules);
    let ask = |world: &mut World, file: usize, number: usize| {
        // No two heads are equal, so none is known by its bytes.
        let request = format!("GET /f{file} HTTP/1.1\r\nHost: a\r\nCookie: {number}\r\n\r\n");
        assert_eq!(world.ask(request).1.text(), format!("content {file}"));
        world.engine.counters().names_shared
    };
    (0..2 * FILES)
        .for_each(|file| world.machine.files.add_cold(&format!("f{file}"), &*format!("content {file}")));
    world.machine.files.missing_cached = false;
    watch(&mut world);
    (0..2 * FILES).for_each(|file| _ = ask(&mut world, file, 9));
    let taken: Vec<Vec<bool>> = (0..2 * FILES)
        .map(|file| {
            let shared: Vec<u64> = (0..5).map(|number| ask(&mut world, file, number)).collect();
            shared.windows(2).map(|pair| pair[0] != pair[1]).collect()
        })
        .collect();
    assert!(taken.iter().any(|again| again[0]), "the first request of some files left nothing");
    assert!(taken.iter().all(|again| !again[1..].contains(&true)), "{taken:?}");
    world.end();
}

#[test]
fn a_shared_name_is_checked_like_the_workers_own() {
    let mut world = forgetful();
    get_all(&mut world);
    world.pass(FRESHNESS_MS + 1);
    jobs(&mut world);
    // The kernel still knows the names.
    let look_ups = world.machine.calls.look_ups;
    get_all(&mut world);
    assert_eq!((jobs(&mut world), world.machine.calls.look_ups), (0, look_ups + 10));
    // It has forgotten them: helpers check, and then another worker's request has them fresh.
    world.pass(FRESHNESS_MS + 1);
    (0..10).for_each(|number| world.machine.files.forget_name(&format!("f{number}")));
    get_all(&mut world);
    assert_eq!(jobs(&mut world), 10);
    (0..10).for_each(|number| world.machine.files.forget_name(&format!("f{number}")));
    get_all(&mut world);
    assert_eq!(jobs(&mut world), 0);
    // Beyond the stale limit nothing is believed.
    world.pass(FRESHNESS_MS + STALE_MS + 1);
    world.machine.files.remove("f3");
    assert_eq!(world.get("/f3").status, 404);
    world.end();
}

#[test]
fn what_the_worker_has_found_itself_counts_more() {
    let mut world = forgetful();
    get_all(&mut world);
    // The worker checks, finds the file changed, and forgets that again.
    world.pass(FRESHNESS_MS + 1);
    world.machine.files.tick();
    world.machine.files.add("f0", "new");
    assert_eq!(world.get("/f0").text(), "new");
    get_all_but_the_first(&mut world);
    world.machine.files.forget_name("f0");
    assert_eq!(world.get("/f0").text(), "new");
    world.end();
}

fn get_all_but_the_first(world: &mut World) {
    for number in 1..10 {
        assert_eq!(world.get(&format!("/f{number}")).text(), format!("content {number}"));
    }
}

#[test]
fn an_index_and_the_siblings_of_a_file_are_shared_too() {
    let mut world = forgetful();
    world.machine.files.add_directory("d");
    world.machine.files.add_cold("d/index.html", "an index");
    world.machine.files.add_cold("d/index.html.gz", "compressed");
    let gzip =
        |world: &mut World| world.ask("GET /d/ HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").1;
    for _ in 0..2 {
        assert_eq!(gzip(&mut world).text(), "compressed");
        assert_eq!(world.get("/d/").field("Content-Type"), Some("text/html; charset=utf-8"));
        get_all(&mut world);
    }
    jobs(&mut world);
    let look_ups = world.machine.calls.look_ups;
    assert_eq!(gzip(&mut world).text(), "compressed");
    assert_eq!(world.get("/d/").text(), "an index");
    assert_eq!((jobs(&mut world), world.machine.calls.look_ups), (0, look_ups));
    world.end();
}

/// The watcher speaks, and the keeper hears it.
fn say(world: &mut World, word: Word) {
    world.store().borrow_mut().names.say(word);
    world.hear_keeper();
}

/// The watcher has told all changes up to now.
fn tell_until(world: &mut World) {
    let now_ms = world.machine.now.monotonic_ms();
    say(world, Word::Until(now_ms));
}

/// All names of a world are watched, and the kernel has forgotten them.
fn watch(world: &mut World) {
    world.store().borrow_mut().names.has_watcher = true;
    let now_ms = world.machine.now.monotonic_ms();
    say(world, Word::Begun(SITE, now_ms));
    world.pass(1);
    get_all(world);
    assert_eq!(world.get("/none").status, 404);
    world.pass(1);
    tell_until(world);
    world.pass(UNWATCHED_MS + 1);
    tell_until(world);
    get_all(world);
    assert_eq!(world.get("/none").status, 404);
    world.machine.files.names_thrash = true;
    jobs(world);
}

fn watched() -> World {
    watched_with(rules())
}

fn watched_with(rules: Rules) -> World {
    let mut world = World::with(rules);
    for number in 0..10 {
        world.machine.files.add_cold(&format!("f{number}"), &*format!("content {number}"));
    }
    world.machine.files.missing_cached = false;
    watch(&mut world);
    world
}

#[test]
fn a_watched_name_needs_no_check_while_its_watcher_tells_all_changes() {
    for mut world in [watched(), {
        let mut world = forgetful();
        watch(&mut world);
        world
    }] {
        for _ in 0..5 {
            world.pass(FRESHNESS_MS + 1);
            tell_until(&mut world);
            get_all(&mut world);
            assert_eq!(world.get("/none").status, 404);
        }
        assert_eq!(std::mem::take(&mut world.machine.helpers.history), [""; 0]);
        // The watcher is late, so the names are checked.
        world.pass(FRESHNESS_MS + STALE_MS + 1);
        get_all(&mut world);
        assert_eq!(jobs(&mut world), 10);
        world.end();
    }
}

#[test]
fn a_name_is_sought_again_only_after_a_change_that_may_be_its_own() {
    let mut world = watched();
    let sought = |world: &mut World| {
        world.pass(WATCHED_MS + 1);
        tell_until(world);
        get_all(world);
        std::mem::take(&mut world.machine.calls.names)
    };
    sought(&mut world);
    for _ in 0..3 {
        assert_eq!(sought(&mut world), 0);
    }
    // The first name shares its count of changes with none of these, the second with all.
    for (other, found) in [("/long", 0), ("/g1", 10)] {
        say(&mut world, Word::Changed(vec![(SITE, other.as_bytes().to_vec())]));
        assert_eq!(sought(&mut world), found, "{other}");
        assert_eq!(sought(&mut world), 0);
    }
    assert_eq!(jobs(&mut world), 0);
    world.end();
}

#[test]
fn a_file_that_is_known_to_be_gone_is_not_served_while_its_check_would_wait() {
    let mut world = watched();
    world.machine.files.remove("f3");
    world.machine.files.add_cold("none", "here");
    say(&mut world, Word::Changed(vec![(SITE, b"/f3".to_vec()), (SITE, b"/none".to_vec())]));
    world.pass(WATCHED_MS + 1);
    assert_eq!(world.get("/f3").status, 404);
    assert_eq!(world.get("/none").text(), "here");
    assert_eq!(world.get("/f4").text(), "content 4");
    world.end();
}

#[test]
fn a_change_of_a_name_that_is_not_told_yet_is_noticed_as_soon() {
    let mut world = watched();
    world.machine.files.names_thrash = false;
    world.machine.files.add_cold("new", "written");
    say(&mut world, Word::Changed(vec![(SITE, b"/new".to_vec())]));
    assert_eq!(world.get("/new").text(), "written");
    for text in ["again", "and again"] {
        world.pass(WATCHED_MS / 2);
        world.machine.files.overwrite("new", text);
        say(&mut world, Word::Changed(vec![(SITE, b"/new".to_vec())]));
        world.pass(WATCHED_MS + 1);
        assert_eq!(world.get("/new").text(), text);
    }
    world.end();
}

#[test]
fn a_directory_that_appears_ends_the_watch_of_absent_names_only() {
    let mut world = watched();
    say(&mut world, Word::Appearing(SITE));
    world.pass(FRESHNESS_MS + STALE_MS + 1);
    tell_until(&mut world);
    get_all(&mut world);
    assert_eq!(jobs(&mut world), 0);
    world.machine.files.add_cold("none", "here");
    assert_eq!(world.get("/none").text(), "here");
    world.end();
}

#[test]
fn a_change_that_is_not_told_is_found_by_a_look_up_from_time_to_time() {
    let mut world = watched();
    world.machine.files.names_thrash = false;
    // Through a second name, which came later.
    world.machine.files.overwrite("f3", "changed");
    for _ in 0..WATCHED_PROOF_MS / FRESHNESS_MS {
        world.pass(FRESHNESS_MS + 1);
        tell_until(&mut world);
        let _ = world.get("/f3");
    }
    assert_eq!(world.get("/f3").text(), "changed");
    world.end();
}

#[test]
fn a_change_is_noticed_however_long_names_are_fresh() {
    // Longer than the machine has been running.
    for freshness_ms in [FRESHNESS_MS, 1 << 40] {
        let mut world = watched_with(Rules { freshness_ms, ..rules() });
        (world.machine.files.names_thrash, world.machine.files.missing_cached) = (false, true);
        let change = |world: &mut World, number: u64| {
            world.machine.files.add(&format!("f{number}"), "changed");
            say(world, Word::Changed(vec![(SITE, format!("/f{number}").into_bytes())]));
        };
        change(&mut world, 3);
        world.pass(WATCHED_MS + 1);
        assert_eq!(world.get("/f3").text(), "changed");
        // Names are missed for a moment, and found again before one changes.
        world.store().borrow_mut().names.are_missed = true;
        world.pass(WATCHED_MS + 1);
        assert_eq!(world.get("/f4").text(), "content 4");
        world.store().borrow_mut().names.are_missed = false;
        change(&mut world, 4);
        world.pass(UNREPORTED_MS + 1);
        tell_until(&mut world);
        assert_eq!(world.get("/f4").text(), "changed");
        world.end();
    }
}
