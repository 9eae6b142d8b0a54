//! The store: Flash's own memory, shared by all workers. It answers on every file system and for every owner, never with bytes of
//! another state of a file, and survives the death of every process except the supervisor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::Value;

use crate::harness::disk::Disk;
use crate::harness::documented::block;
use crate::harness::{
    Client, Folder, Launch, Over, Page, Server, adapted, evict, film, is, is_root, kill, only_plain, pattern,
    skip, skips, stats_at, unlike_before, wait_for, wait_until, write_aside,
};

/// The length of a block of a large file, in bytes.
const BLOCK_BYTES: usize = 512 * 1024;

/// The path of a server's control socket.
fn control(folder: &Folder) -> PathBuf {
    folder.path("control.sock")
}

/// A server with a store of this size, which checks its files only once an hour.
fn launch(folder: &Folder, cache_memory: &str) -> Launch {
    launch_with(folder, 1, cache_memory).args(["--freshness", "1h"])
}

/// The same with this many workers, and the default freshness.
fn launch_with(folder: &Folder, workers: usize, cache_memory: &str) -> Launch {
    // A file that was just written is not stored.
    unlike_before();
    let launch = Launch::with_workers(folder, workers).args(["--cache-memory", cache_memory]);
    launch.arg("--control").arg(control(folder))
}

/// A figure of the store, once its keeper has reported.
#[track_caller]
fn figure(folder: &Folder, name: &str) -> u64 {
    wait_for("figures of the store", || stats_at(&control(folder))["store"][name].as_u64())
}

/// Repeats requests for files until the store has this many blocks.
#[track_caller]
fn wait_for_blocks(server: &Server, folder: &Folder, targets: &[&str], blocks: u64) {
    wait_until("the blocks in the store", || {
        targets.iter().for_each(|target| assert_eq!(server.get(target).status, 200, "{target}"));
        figure(folder, "blocks") >= blocks
    });
    assert_eq!(figure(folder, "blocks"), blocks);
}

/// Files of one length with different contents, and their targets.
fn files(folder: &Folder, count: u64, bytes: usize) -> Vec<(String, Vec<u8>)> {
    let file = |n| {
        let content = pattern(bytes, n);
        evict(&folder.www(&format!("{n}.bin"), &content));
        (format!("/{n}.bin"), content)
    };
    (0..count).map(file).collect()
}

#[track_caller]
fn assert_page(page: &Page, content: &[u8], target: &str) {
    assert!(page.status == 200 && page.body == content, "{target}: {} {}", page.status, page.body.len());
}

/// Clients that request all files, each in its own order, while `meanwhile` runs.
fn under_load(server: &Server, files: &[(String, Vec<u8>)], meanwhile: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..3_usize {
            let over = &over;
            scope.spawn(move || {
                let mut turn = client * 7;
                while !over.load(Ordering::Relaxed) {
                    // A killed worker closes its connections.
                    let mut connection = server.client();
                    for _ in 0..50 {
                        turn += 2 * client + 1;
                        let (target, content) = &files[turn % files.len()];
                        match connection.try_get(target) {
                            Ok(page) => assert_page(&page, content, target),
                            Err(_) => break,
                        }
                    }
                }
            });
        }
        let _over = Over(&over);
        meanwhile();
    });
}

/// Makes the server answer a small and a large file, and then from the store alone.
fn assert_answers_from_store(folder: &Folder, launch: Launch) {
    let (small, large) = (pattern(100_000, 1), pattern(1_500_001, 2));
    let server = launch.start();
    wait_for_blocks(&server, folder, &["/small.bin", "/large.bin"], 4);
    let before = stats_at(&control(folder));
    for _ in 0..10 {
        assert_page(&server.get("/small.bin"), &small, "/small.bin");
        assert_page(&server.get("/large.bin"), &large, "/large.bin");
        let page = server.get_with("/large.bin", &["Range: bytes=500000-1100000"]);
        assert!(page.status == 206 && page.body == large[500_000..=1_100_000]);
    }
    let after = wait_for("all to be counted", || {
        let stats = stats_at(&control(folder));
        let counted = stats["sum"]["requests"].as_u64()? == before["sum"]["requests"].as_u64()? + 30;
        counted.then_some(stats)
    });
    let of = |stats: &Value, path: &str| stats.pointer(path).and_then(Value::as_u64).unwrap();
    let more = |path: &str| of(&after, path) - of(&before, path);
    assert_eq!(more("/sum/stored_bytes"), 10 * (100_000 + 1_500_001 + 600_001), "{after}");
    assert!(more("/sum/caches/contents/hits") >= 10);
    for job in ["load", "read", "fill"] {
        assert_eq!(more(&format!("/sum/jobs/{job}/started")), 0, "{job}");
    }
    assert_eq!((more("/store/loads"), more("/store/blocks")), (0, 0));
}

/// A folder with a small and a large file in one of its folders.
fn with_small_and_large(place: &str) -> Folder {
    let folder = Folder::new();
    folder.write(&format!("{place}/small.bin"), pattern(100_000, 1));
    evict(&folder.write(&format!("{place}/large.bin"), pattern(1_500_001, 2)));
    folder
}

#[test]
fn the_store_answers_on_a_local_disk() {
    let folder = with_small_and_large("www");
    assert_answers_from_store(&folder, launch(&folder, "64MiB"));
}

#[test]
fn the_store_answers_for_files_of_another_owner() {
    if only_plain("the key of the certificate belongs to another user") {
        return;
    }
    if !is_root() {
        return skip("needs root, for files of root and a server of another user");
    }
    let folder = with_small_and_large("www");
    assert_answers_from_store(&folder, launch(&folder, "64MiB").user(None));
    // A folder in which another user can create a control socket.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    fs::remove_file(control(&folder)).unwrap_or_default();
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    assert_answers_from_store(&folder, launch(&folder, "64MiB").user(None).through(other));
}

/// A script that mounts a file system on `www`, in a private namespace, and then executes the server.
fn through_mount(folder: &Folder, script: &str) -> Option<Vec<String>> {
    let script = format!("cd {} && {script} && exec \"$@\"", folder.path("").display());
    let words = ["unshare", "--mount", "sh", "-ec", &script, "sh"].map(str::to_owned).to_vec();
    let probe = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if probe.is_ok_and(|output| output.status.success()) {
        return Some(words);
    }
    skip("needs root and unshare, to mount a file system");
    None
}

#[test]
fn the_store_answers_on_tmpfs() {
    let folder = with_small_and_large("content");
    let Some(words) = through_mount(&folder, "mount -t tmpfs none www && cp content/* www && sleep 0.1")
    else {
        return;
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_answers_from_store(&folder, launch(&folder, "64MiB").through_all(&words));
    assert_answers_from_store(&folder, launch(&folder, "64MiB").user(None).through_all(&words));
}

#[test]
fn the_store_answers_on_overlayfs() {
    let folder = with_small_and_large("content");
    fs::create_dir(folder.path("upper")).unwrap();
    fs::create_dir(folder.path("aside")).unwrap();
    let mount = "mount -t overlay none -o lowerdir=content,upperdir=upper,workdir=aside www";
    let Some(words) = through_mount(&folder, mount) else { return };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_answers_from_store(&folder, launch(&folder, "64MiB").through_all(&words));
    assert_answers_from_store(&folder, launch(&folder, "64MiB").user(None).through_all(&words));
}

#[test]
fn the_store_answers_while_the_disk_hangs() {
    if skips(&["sped", "mp", "mt"], "they wait for the disk themselves") {
        return;
    }
    let folder = Folder::with_hello();
    let contents = [("small", pattern(100_000, 1)), ("large", pattern(1_500_001, 2))];
    for (name, content) in &contents {
        folder.write(&format!("disk/{name}.bin"), content);
    }
    folder.write("disk/cold.bin", "cold");
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
    let server = launch(&folder, "64MiB").args(["--job-deadline", "1h"]).start();
    wait_for_blocks(&server, &folder, &["/mount/small.bin", "/mount/large.bin"], 4);
    disk.tell("all hang");
    let mut cold = server.client();
    cold.ask("/mount/cold.bin");
    disk.wait_until_held(1);
    for _ in 0..5 {
        for (name, content) in &contents {
            assert_page(&server.get(&format!("/mount/{name}.bin")), content, name);
        }
    }
    assert!(!cold.has_heard());
    disk.tell("all ok");
    assert_eq!(cold.page().brief(), (200, "cold".into()));
}

#[test]
fn a_block_wanted_by_several_workers_is_loaded_once() {
    let folder = Folder::new();
    let files = files(&folder, 6, 2 * BLOCK_BYTES - 5);
    let server = launch_with(&folder, 3, "64MiB").start();
    under_load(&server, &files, || {
        wait_until("all in the store", || figure(&folder, "blocks") == 12);
    });
    assert_eq!((figure(&folder, "loads"), figure(&folder, "blocks")), (12, 12));
    assert_eq!((figure(&folder, "evictions"), figure(&folder, "refused")), (0, 0));
}

#[test]
fn a_changing_file_is_never_mixed() {
    const LAST: u64 = 60;
    // Every other state has the length of the previous one.
    let state = |n: u64| pattern(300_000 + (n as usize / 2) * 1_000, n);
    let folder = Folder::new();
    let path = folder.www("page.bin", state(0));
    let states: Vec<Vec<u8>> = (0..=LAST).map(state).collect();
    let server = launch_with(&folder, 1, "64MiB").args(["--freshness", "20ms"]).start();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut newest = 0;
                while !over.load(Ordering::Relaxed) {
                    // A worker may close a connection whose file changed while it was sent.
                    let Ok(page) = client.try_get("/page.bin") else {
                        client = server.client();
                        continue;
                    };
                    // Ten times in a row it changed before it was read, on a busy machine.
                    if page.status == 503 && page.text().contains("The file keeps changing.") {
                        continue;
                    }
                    let found = states.iter().position(|state| *state == page.body);
                    let found = found.unwrap_or_else(|| panic!("no state: {} {}", page.status, page.text()));
                    newest = newest.max(found);
                }
            });
        }
        let _over = Over(&over);
        for (number, state) in states.iter().enumerate().skip(1) {
            std::thread::sleep(std::time::Duration::from_millis(45));
            let before = figure(&folder, "loads");
            write_aside(&path, state);
            if number as u64 == LAST / 2 {
                wait_until("it is kept in between", || figure(&folder, "loads") > before);
            }
        }
        let last = wait_for("the last state", || {
            Some(server.get("/page.bin")).filter(|page| page.body == states[LAST as usize])
        });
        assert_eq!(last.status, 200);
    });
}

#[test]
fn more_files_than_memory_are_served_within_it() {
    let folder = Folder::new();
    let mut files = files(&folder, 40, 100_000);
    let large = pattern(3_000_001, 99);
    folder.www("large.bin", &large);
    files.push(("/large.bin".to_owned(), large));
    let server = launch(&folder, "1MiB").start();
    under_load(&server, &files, || {
        wait_until("evictions", || {
            let stats = stats_at(&control(&folder));
            let of = |name: &str| stats["store"][name].as_u64();
            assert!(of("held_bytes") <= of("bytes_max"), "{stats}");
            of("evictions") > Some(30)
        });
    });
    assert_eq!(figure(&folder, "bytes_max"), 1 << 20);
    assert_eq!(server.stderr(), "");
}

/// Pipelined answers to a client that does not read for a while: more than the sockets hold.
const PIPELINED: usize = 60;

#[test]
fn slow_readers_get_right_bytes_of_evicted_blocks() {
    let folder = Folder::new();
    let files = files(&folder, 40, 400_000);
    folder.www("film.bin", film());
    // The slow clients hold less than half: with more, nothing could be evicted.
    let server = launch(&folder, "8MiB").args(["--least-rate", "0"]).start();
    let mut viewers: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for viewer in &mut viewers {
        assert_eq!(viewer.begin("/film.bin"), film().len());
    }
    let mut slow: Vec<(Client, &(String, Vec<u8>))> =
        files[..3].iter().map(|file| (server.client(), file)).collect();
    for (client, (target, content)) in &mut slow {
        assert_page(&client.get(target), content, target);
        for _ in 0..PIPELINED {
            client.ask(target);
        }
    }
    let evictions = figure(&folder, "evictions");
    under_load(&server, &files[3..], || {
        wait_until("evictions", || figure(&folder, "evictions") > evictions + 20);
    });
    for (client, (target, content)) in &mut slow {
        for _ in 0..PIPELINED {
            assert_page(&client.page(), content, target);
        }
    }
    for viewer in &mut viewers {
        assert!(viewer.rest(film().len()) == film());
    }
    wait_until("nothing to be pinned", || {
        assert_eq!(server.get("/11.bin").status, 200);
        figure(&folder, "pinned_bytes") == 0
    });
}

/// Kills the keeper and waits for another.
#[track_caller]
fn kill_keeper(server: &Server) {
    let keeper = server.sole("keeper");
    kill("KILL", keeper);
    wait_until("another keeper", || server.role("keeper").iter().any(|pid| *pid != keeper));
}

#[test]
fn a_killed_keeper_costs_nothing() {
    let folder = Folder::new();
    let files = files(&folder, 20, 60_000);
    let server = launch(&folder, "64MiB").start();
    let targets: Vec<&str> = files.iter().map(|(target, _)| target.as_str()).collect();
    wait_for_blocks(&server, &folder, &targets, 20);
    let loads = figure(&folder, "loads");
    under_load(&server, &files, || (0..3).for_each(|_| kill_keeper(&server)));
    server.wait_for_stderr(
        "keeper ended (signal: 9 (SIGKILL), not sent by Flash; if memory ran out, dmesg says so); starting another",
    );
    assert_eq!(figure(&folder, "blocks"), 20);
    // It also loads new files.
    folder.www("new.bin", pattern(70_000, 50));
    unlike_before();
    wait_for_blocks(&server, &folder, &["/new.bin"], 21);
    // Its counts continue.
    assert!(figure(&folder, "loads") > loads, "{loads} before");
}

#[test]
fn a_keeper_that_hangs_is_replaced() {
    let folder = Folder::new();
    let files = files(&folder, 5, 60_000);
    let server = launch(&folder, "64MiB").start();
    let targets: Vec<&str> = files.iter().map(|(target, _)| target.as_str()).collect();
    wait_for_blocks(&server, &folder, &targets, 5);
    let keeper = server.sole("keeper");
    kill("STOP", keeper);
    // Meanwhile files that the store lacks are answered past it.
    for number in 0..3 {
        let (name, content) = (format!("past-{number}.bin"), pattern(70_000, 60 + number));
        folder.www(&name, &content);
        let get = || Some(server.get(&format!("/{name}"))).filter(|page| page.status != 503);
        let page = wait_for("an answer", get);
        assert!(page.status == 200 && page.body == content, "{name}: {}", page.status);
    }
    server.wait_for_stderr("killing the store's keeper: it has not answered for 10 s");
    wait_until("another keeper", || server.role("keeper").iter().any(|pid| *pid != keeper));
    folder.www("new.bin", pattern(70_000, 50));
    unlike_before();
    wait_for_blocks(&server, &folder, &["/new.bin"], 6);
}

/// The keeper gives memory back when there is none left, so its own must not be paged out.
#[test]
fn the_memory_of_workers_and_keeper_is_locked() {
    if !is_root() {
        return skip("needs root, to lock memory");
    }
    if skips(&["mp"], "each process is a worker") {
        return;
    }
    let folder = Folder::with_hello();
    let server = launch(&folder, "64MiB").start();
    for role in ["worker", "keeper"] {
        let status = fs::read_to_string(format!("/proc/{}/status", server.sole(role))).unwrap();
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        assert!(locked.trim().trim_end_matches(" kB").parse::<u64>().unwrap() > 1_000, "{role}: {status}");
    }
}

#[test]
fn a_new_keeper_evicts_old_blocks() {
    let folder = Folder::new();
    let files = files(&folder, 40, 100_000);
    let server = launch(&folder, "1MiB").start();
    under_load(&server, &files, || {
        wait_until("evictions", || figure(&folder, "evictions") > 20);
        for _ in 0..3 {
            kill_keeper(&server);
            // Its counts continue those of the one before.
            let before = figure(&folder, "evictions");
            wait_until("evictions", || figure(&folder, "evictions") > before + 20);
        }
    });
    assert!(figure(&folder, "held_bytes") <= 1 << 20);
    wait_until("nothing to be pinned", || {
        assert_eq!(server.get("/1.bin").status, 200);
        figure(&folder, "pinned_bytes") == 0
    });
}

#[test]
fn a_killed_worker_leaves_the_store() {
    let folder = Folder::new();
    let files = files(&folder, 10, 60_000);
    let server = launch_with(&folder, 2, "64MiB").start();
    let targets: Vec<&str> = files.iter().map(|(target, _)| target.as_str()).collect();
    wait_for_blocks(&server, &folder, &targets, 10);
    let before = server.role("worker");
    under_load(&server, &files, || {
        before.iter().take(2).for_each(|worker| kill("KILL", *worker));
        wait_until("others in their place", || {
            let now = server.role("worker");
            now.len() == before.len() && !now.iter().any(|pid| before[..2].contains(pid))
        });
    });
    for (target, content) in &files {
        assert_page(&server.get(target), content, target);
    }
    assert_eq!((figure(&folder, "loads"), figure(&folder, "blocks")), (10, 10));
}

#[test]
fn a_helper_that_dies_while_filling_leaves_no_hole() {
    if skips(&["sped", "mp", "mt"], "they have no helpers") {
        return;
    }
    let folder = Folder::with_hello();
    let contents: Vec<Vec<u8>> = (0..5).map(|n| pattern(200_000, n)).collect();
    for (n, content) in contents.iter().enumerate() {
        folder.write(&format!("disk/{n}.bin"), content);
    }
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
    let server = launch(&folder, "64MiB").start();
    for (n, content) in contents.iter().enumerate() {
        let target = format!("/mount/{n}.bin");
        disk.tell("read hang");
        let mut client = server.client();
        client.ask(&target);
        disk.wait_until_held(1);
        server.role("helper").into_iter().for_each(|helper| kill("KILL", helper));
        disk.tell("all ok");
        let page = client.page();
        if page.status != 503 {
            assert_page(&page, content, &target);
        }
        wait_until("the file", || {
            let page = server.get(&target);
            assert!(page.status == 503 || page.body == *content, "{}", page.status);
            page.status == 200
        });
    }
    let targets: Vec<String> = (0..5).map(|n| format!("/mount/{n}.bin")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    wait_for_blocks(&server, &folder, &targets, 5);
}

/// Reloads with this configuration, and waits until it is in force.
#[track_caller]
fn reload(folder: &Folder, server: &Server, cache_memory: &str) {
    let before = server.announcements().len();
    fs::write(folder.path("flash.toml"), adapted(&config(cache_memory))).unwrap();
    server.signal("HUP");
    wait_until("the next configuration", || server.announcements().len() > before);
}

fn config(cache_memory: &str) -> String {
    let workers = crate::harness::adapted("workers = 1\n");
    format!(
        "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{workers}freshness = \"1h\"\n\
         cache_memory = \"{cache_memory}\"\n"
    )
}

#[test]
fn a_reload_keeps_the_store_and_changes_its_size() {
    let folder = Folder::new();
    let files = files(&folder, 30, 100_000);
    let targets: Vec<&str> = files.iter().map(|(target, _)| target.as_str()).collect();
    unlike_before();
    let server = Launch::configured(&folder, &config("16MiB")).arg("--control").arg(control(&folder)).start();
    wait_for_blocks(&server, &folder, &targets, 30);
    let keeper = server.sole("keeper");
    reload(&folder, &server, "16MiB");
    for (target, content) in &files {
        assert_page(&server.get(target), content, target);
    }
    assert_eq!((figure(&folder, "loads"), figure(&folder, "blocks")), (30, 30));
    reload(&folder, &server, "1MiB");
    wait_until("a smaller store", || figure(&folder, "held_bytes") <= 1 << 20);
    assert_eq!(figure(&folder, "bytes_max"), 1 << 20);
    reload(&folder, &server, "32MiB");
    wait_for_blocks(&server, &folder, &targets, 30);
    assert_eq!(figure(&folder, "bytes_max"), 32 << 20);
    reload(&folder, &server, "0");
    wait_until("an empty store", || figure(&folder, "held_bytes") == 0);
    under_load(&server, &files, || std::thread::sleep(std::time::Duration::from_millis(300)));
    assert_eq!(figure(&folder, "blocks"), 0);
    reload(&folder, &server, "16MiB");
    wait_for_blocks(&server, &folder, &targets, 30);
    assert_eq!(server.sole("keeper"), keeper, "one all the time");
}

/// A server that saves its list of hot files in its folder.
fn launch_with_list(folder: &Folder) -> Launch {
    launch(folder, "64MiB").arg("--cache-list").arg(folder.path("hot"))
}

#[track_caller]
fn stop(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
}

fn list_of(folder: &Folder) -> Vec<String> {
    fs::read_to_string(folder.path("hot")).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn hot_files_are_loaded_before_the_first_request() {
    let folder = Folder::new();
    let files = files(&folder, 6, 60_000);
    let large = pattern(3 * BLOCK_BYTES, 77);
    folder.www("a large\tfile.bin", &large);
    let targets: Vec<&str> = files.iter().map(|(target, _)| target.as_str()).collect();
    let server = launch_with_list(&folder).start();
    wait_for_blocks(&server, &folder, &[&targets[..], &["/a%20large%09file.bin"]].concat(), 9);
    // Often enough to be hot, whatever the order of the others.
    let mut client = server.client();
    for _ in 0..10 {
        (0..100).for_each(|_| assert_eq!(client.get("/4.bin").status, 200));
        std::thread::sleep(std::time::Duration::from_millis(120));
    }
    drop(client);
    stop(server);
    let list = list_of(&folder);
    let root = folder.served("").display().to_string();
    let root = root.trim_end_matches('/');
    assert_eq!(list[..2], ["flash hot list 1".to_owned(), format!("0\t{root}\t/4.bin")], "{list:?}");
    assert_eq!(list.len(), 10, "{list:?}");
    let server = launch_with_list(&folder).start();
    wait_until("all that was hot", || figure(&folder, "blocks") == 9);
    let requests = stats_at(&control(&folder))["sum"]["requests"].as_u64();
    assert_eq!(requests, Some(0));
    for (target, content) in &files {
        assert_page(&server.get(target), content, target);
    }
    assert_page(&server.get("/a%20large%09file.bin"), &large, "large");
    assert_eq!(figure(&folder, "loads"), 9);
    stop(server);
    assert_eq!(list_of(&folder).len(), 10, "saved again");
}

#[test]
fn a_useless_hot_list_does_no_harm() {
    let folder = Folder::with_hello();
    let root = folder.served("").display().to_string();
    let root = root.trim_end_matches('/').to_owned();
    let lists: [Vec<u8>; 7] = [
        Vec::new(),
        pattern(100_000, 5),
        b"flash hot list 2\n0\t/\t/etc/passwd\n".to_vec(),
        b"flash hot list 1\n0\t/another\t/hello.txt\n\n\t\t\n".to_vec(),
        format!("flash hot list 1\n0\t{root}\t/gone\n7\t{root}\t/gone/too\n0\t{root}\t/\n").into_bytes(),
        format!("flash hot list 1\n4294967295\t{root}\t/hello.txt\n0\t{root}\t/../../etc/passwd\n")
            .into_bytes(),
        format!("flash hot list 1\n{}", "0\t/\t/x\n".repeat(100_000)).into_bytes(),
    ];
    for list in lists {
        folder.write("hot", &list);
        let server = launch_with_list(&folder).start();
        assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
        wait_for_blocks(&server, &folder, &["/hello.txt"], 1);
        assert_eq!(server.stderr(), "");
        stop(server);
        assert_eq!(list_of(&folder), ["flash hot list 1".to_owned(), format!("0\t{root}\t/hello.txt")]);
    }
}

#[test]
fn a_hot_list_has_every_block() {
    if only_plain("its requests take a carrier minutes on a busy machine") {
        return;
    }
    const FILES: usize = 5_000;
    let folder = Folder::new();
    (0..FILES).for_each(|n| drop(folder.www(&format!("{n}.txt"), pattern(100, n as u64))));
    let server = launch_with_list(&folder).start();
    wait_until("the files in the store", || {
        let mut client = server.client();
        (0..FILES).for_each(|n| assert_eq!(client.get(&format!("/{n}.txt")).status, 200));
        figure(&folder, "blocks") == FILES as u64
    });
    stop(server);
    assert_eq!(list_of(&folder).len(), 1 + FILES);
}

#[test]
fn a_hot_list_is_replaced_and_never_written_through_a_link() {
    let folder = Folder::with_hello();
    folder.write("hot", "flash hot list 1\n");
    // A reader of the old list keeps it.
    let old = fs::File::open(folder.path("hot")).unwrap();
    let server = launch_with_list(&folder).start();
    wait_for_blocks(&server, &folder, &["/hello.txt"], 1);
    assert_eq!(list_of(&folder).len(), 1, "not before the end");
    stop(server);
    assert_eq!(std::io::read_to_string(old).unwrap(), "flash hot list 1\n");
    assert_eq!(list_of(&folder).len(), 2);
    assert!(!folder.path("hot.new").exists());
    let victim = folder.write("victim", "precious\n");
    for name in ["hot", "hot.new"] {
        let _ = fs::remove_file(folder.path(name));
        std::os::unix::fs::symlink(&victim, folder.path(name)).unwrap();
        if name == "hot" {
            let (code, _, err) = launch_with_list(&folder).fail();
            assert_eq!(code, Some(1));
            assert!(err.contains("list of hot files") && err.contains("symbolic link"), "{err}");
            fs::remove_file(folder.path(name)).unwrap();
        } else {
            stop(launch_with_list(&folder).start());
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
}

#[test]
fn a_hot_list_that_cannot_be_opened_is_an_error() {
    let folder = Folder::with_hello();
    for place in ["www", "nowhere/hot"] {
        let (code, out, err) = launch(&folder, "64MiB").arg("--cache-list").arg(folder.path(place)).fail();
        assert_eq!((code, out.as_str()), (Some(1), ""), "{place}");
        assert!(err.contains("list of hot files") && err.contains(place), "{err}");
        assert!(err.contains("or remove cache_list"), "{err}");
    }
}

#[test]
fn root_saves_no_hot_list_where_others_can_write() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return skip("needs root, whom alone Flash protects from this");
    }
    let folder = Folder::with_hello();
    let list = folder.write("lists/x", "").with_file_name("hot");
    fs::set_permissions(folder.path("lists"), fs::Permissions::from_mode(0o1777)).unwrap();
    let (code, _, err) = launch(&folder, "64MiB").arg("--cache-list").arg(&list).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("list of hot files") && err.contains("run `chmod go-w"), "{err}");
    assert!(!list.exists() && !list.with_extension("new").exists());
}

#[test]
fn a_server_runs_without_a_store_that_cannot_be_created() {
    if skips(&["mt"], "its threads have addresses of their own") {
        return;
    }
    // Limits of the address space, which workers need to map the store, and of file lengths.
    for limit in ["--as=900000000", "--fsize=50000000"] {
        let limited = ["prlimit", limit, "--"];
        if !crate::paths::can_run_flash(&limited) {
            return skip("needs prlimit");
        }
        let folder = Folder::with_hello();
        let server = launch(&folder, "64MiB").through(limited).start();
        server.wait_for_stderr("serves without the store: ");
        for _ in 0..20 {
            assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
        }
        let said = server.stderr();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(server.role("keeper").is_empty() && stats_at(&control(&folder))["store"].is_null());
    }
}

/// Takes the right to write files from the processes that fill the store.
fn forbid_growth(server: &Server) -> bool {
    let role = if is(&["amped"]) { "helper" } else { "worker" };
    server.some(role).into_iter().all(|pid| {
        let pid = pid.to_string();
        let done = Command::new("prlimit").args(["--pid", &pid, "--fsize=0:0"]).status();
        done.is_ok_and(|status| status.success())
    })
}

#[test]
fn a_store_that_cannot_grow_keeps_its_size() {
    let folder = Folder::with_hello();
    let files = files(&folder, 10, 60_000);
    let server =
        launch(&folder, "64MiB").helpers(["--helpers-max", "1"]).helpers(["--helper-idle", "1h"]).start();
    wait_for_blocks(&server, &folder, &["/hello.txt"], 1);
    if !forbid_growth(&server) {
        return skip("needs prlimit");
    }
    for _ in 0..3 {
        for (target, content) in &files {
            assert_page(&server.get(target), content, target);
        }
    }
    let documented = block("docs/memory.md", "a_store_that_cannot_grow_keeps_its_size");
    for part in documented.trim_end().split("512 MiB") {
        server.wait_for_stderr(part);
    }
    assert_eq!(server.stderr().lines().count(), 1, "said once: {}", server.stderr());
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn without_a_store_there_is_no_keeper() {
    let folder = with_small_and_large("www");
    let server = launch(&folder, "0").start();
    for _ in 0..5 {
        assert_page(&server.get("/small.bin"), &pattern(100_000, 1), "/small.bin");
        assert_page(&server.get("/large.bin"), &pattern(1_500_001, 2), "/large.bin");
    }
    assert!(server.role("keeper").is_empty());
    let stats = stats_at(&control(&folder));
    assert!(stats["store"].is_null() && stats["sum"]["stored_bytes"] == 0, "{stats}");
    assert!(!Path::new(&folder.path("hot")).exists());
}

/// A control group with this much memory, as the words that start a server in it. Dropping it removes it.
struct Group(PathBuf);

impl Group {
    fn of(bytes: u64) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of_version_1 = groups.lines().find_map(|line| Some(line.split_once(":memory:")?.1));
        let of_version_2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let (parent, limit) = match (of_version_1, of_version_2) {
            (Some(path), _) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            (None, None) => return None,
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let group = Self(Path::new(&parent).join(format!("flash-e2e-{}-{number}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        // If this group cannot use the controller, there is no such file.
        group.0.join(limit).exists().then(|| fs::write(group.0.join(limit), bytes.to_string()).ok())??;
        Some(group)
    }

    fn launch(&self, launch: Launch) -> Launch {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        launch.through_all(&["sh", "-c", &script, "sh"])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until("the group to be empty", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn in_a_small_control_group_the_store_is_small_and_nothing_is_killed() {
    if skips(&["mp", "mt"], "the processes or threads need more memory than the group has") {
        return;
    }
    const MIB: u64 = 1 << 20;
    let folder = Folder::new();
    let files = files(&folder, 120, 1 << 20);
    // By default the size follows the memory that others use.
    for (cache_memory, sizes, warning) in
        [("auto", 6 * MIB..=72 * MIB, ""), ("1GiB", 32 * MIB..=32 * MIB, "cache_memory is lowered")]
    {
        let Some(group) = Group::of(96 * MIB) else {
            return skip("needs root and a control group of its own with the memory controller");
        };
        let server = group.launch(launch(&folder, cache_memory)).start();
        let processes = [server.role("worker"), server.role("keeper")].concat();
        for _ in 0..2 {
            for (target, content) in &files {
                assert_page(&server.get(target), content, target);
            }
        }
        // The keeper reports its figures once a second.
        wait_until("figures of after the requests", || figure(&folder, "evictions") > 0);
        let (bytes_max, held) = (figure(&folder, "bytes_max"), figure(&folder, "held_bytes"));
        assert!(sizes.contains(&bytes_max), "{bytes_max} with {cache_memory}");
        assert!(held <= *sizes.end(), "{held} of {bytes_max}");
        assert_eq!([server.role("worker"), server.role("keeper")].concat(), processes);
        assert!(
            server.stderr().contains(warning) && server.stderr().lines().count() <= 1,
            "{}",
            server.stderr()
        );
        stop(server);
    }
}
