//! A changed file is noticed in time, and no answer is ever padded or mixed from two states.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::harness::{
    Broken, Client, Folder, Launch, Page, Server, SmallDisk, film, film_bytes, is, pattern, skip,
    unlike_before, wait_for, wait_until, workers, write_aside,
};

fn quick(folder: &Folder) -> Server {
    Launch::new(folder).args(["--freshness", "100ms"]).start()
}

/// Waits until a target gets this answer; other processes may need time for that.
#[track_caller]
fn becomes(server: &Server, target: &str, status: u16, text: &str) -> Page {
    let what = format!("{target} to become {status} {text:?}");
    wait_for(&what, || Some(server.get(target)).filter(|page| page.brief() == (status, text.to_owned())))
}

#[track_caller]
fn becomes_status(server: &Server, target: &str, status: u16) {
    wait_until(&format!("{target} to become {status}"), || server.get(target).status == status);
}

#[test]
fn changes_are_noticed_within_a_second_by_default() {
    let folder = Folder::with_hello();
    let server = Launch::with_workers(&folder, 2).start();
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
    }
    unlike_before();
    folder.www("hello.txt", "changed");
    std::thread::sleep(Duration::from_millis(1200));
    // From each worker, because each has its own cache.
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").text(), "changed");
    }
}

#[test]
fn changed_replaced_deleted_and_new_files_are_noticed() {
    let folder = Folder::with_hello();
    let server = quick(&folder);
    let path = folder.served("hello.txt");
    becomes(&server, "/hello.txt", 200, "hello\n");
    folder.www("hello.txt", "longer than before\n");
    becomes(&server, "/hello.txt", 200, "longer than before\n");
    folder.www("hello.txt", "LONGER THAN BEFORE\n");
    becomes(&server, "/hello.txt", 200, "LONGER THAN BEFORE\n");
    write_aside(&path, "replaced");
    becomes(&server, "/hello.txt", 200, "replaced");
    folder.www("hello.txt", "");
    becomes(&server, "/hello.txt", 200, "");
    fs::remove_file(&path).unwrap();
    becomes_status(&server, "/hello.txt", 404);
    folder.www("hello.txt", "made again");
    becomes(&server, "/hello.txt", 200, "made again");
    fs::remove_file(&path).unwrap();
    folder.www("hello.txt/index.html", "a directory now");
    becomes_status(&server, "/hello.txt", 301);
    becomes(&server, "/hello.txt/", 200, "a directory now");
    fs::remove_dir_all(&path).unwrap();
    becomes_status(&server, "/hello.txt/", 404);
    folder.www("hello.txt", "a file again");
    becomes(&server, "/hello.txt", 200, "a file again");
}

#[test]
fn changes_of_large_files_are_noticed() {
    let folder = Folder::new();
    let [first, second] = [1, 2].map(|seed| pattern(2_000_000, seed));
    let path = folder.www("film.bin", &first);
    let server = quick(&folder);
    let mut client = server.client();
    assert!(client.get("/film.bin").body == first);
    write_aside(&path, &second);
    wait_until("the new film", || client.get("/film.bin").body == second);
    unlike_before();
    fs::write(&path, &first).unwrap();
    wait_until("the old film", || client.get("/film.bin").body == first);
    fs::write(&path, &second[..1_000_000]).unwrap();
    wait_until("the short film", || client.get("/film.bin").body == second[..1_000_000]);
}

#[test]
fn changes_in_quick_succession_are_all_seen() {
    let folder = Folder::new();
    let path = folder.www("page.txt", "000");
    let server = Launch::new(&folder).args(["--freshness", "0s"]).start();
    let mut client = server.client();
    for n in 1..150 {
        // The same length, and often the same tick of the file system's clock.
        let text = format!("{n:03}");
        File::options().write(true).open(&path).unwrap().write_all_at(text.as_bytes(), 0).unwrap();
        wait_until(&text, || client.get("/page.txt").text() == text);
    }
}

#[test]
fn a_change_within_the_same_second_is_noticed_where_times_are_coarse() {
    let folder = Folder::with_hello();
    let place = folder.served("disk");
    fs::create_dir(&place).unwrap();
    let Some(_disk) = SmallDisk::with_coarse_times(&place, &folder.path("image")) else { return };
    let server = quick(&folder);
    let path = place.join("page.txt");
    let modified = || fs::metadata(&path).unwrap().modified().unwrap();
    for round in 0..1000 {
        let [old, new] = ["old", "new"].map(|age| format!("{age} {round}"));
        fs::write(&path, &old).unwrap();
        let before = modified();
        becomes(&server, "/disk/page.txt", 200, &old);
        // Long enough after the first change for it to look old by a fine clock.
        std::thread::sleep(Duration::from_millis(60));
        server.get("/disk/page.txt");
        fs::write(&path, &new).unwrap();
        becomes(&server, "/disk/page.txt", 200, &new);
        if modified() == before {
            return;
        }
    }
    panic!("this machine never makes two changes within a second");
}

#[test]
fn a_deleted_or_moved_file_that_is_open_is_not_served_once_more() {
    let folder = Folder::new();
    let server = quick(&folder);
    // Small and large: only large files were open while their content was in memory.
    for (number, bytes) in [100, 700_000].into_iter().enumerate() {
        for moved in [false, true] {
            let name = format!("file-{number}-{moved}.bin");
            let path = folder.www(&name, pattern(bytes, 7));
            let target = format!("/{name}");
            wait_until("the file", || server.get(&target).status == 200);
            let kept = File::open(&path).unwrap();
            if moved {
                fs::rename(&path, path.with_extension("moved")).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            std::thread::sleep(Duration::from_millis(400));
            assert_eq!(server.get(&target).status, 404, "{bytes} bytes, moved: {moved}");
            drop(kept);
        }
    }
}

#[test]
fn a_release_is_switched_by_a_symlink() {
    let folder = Folder::new();
    for release in ["one", "two"] {
        for name in ["index.html", "a/b.css"] {
            folder.www(&format!("releases/{release}/{name}"), release);
        }
    }
    let current = folder.served("current");
    symlink("releases/one", &current).unwrap();
    let server = quick(&folder);
    for release in ["one", "two", "one"] {
        let aside = folder.served("next");
        symlink(format!("releases/{release}"), &aside).unwrap();
        fs::rename(&aside, &current).unwrap();
        becomes(&server, "/current/", 200, release);
        becomes(&server, "/current/a/b.css", 200, release);
    }
    fs::remove_file(&current).unwrap();
    symlink("/etc", &current).unwrap();
    becomes_status(&server, "/current/", 404);
}

#[test]
fn precompressed_siblings_come_and_go() {
    let folder = Folder::new();
    folder.www("page.html", "plain");
    let server = quick(&folder);
    let becomes = |text: &str, vary: Option<&str>| {
        wait_until(text, || {
            let page = server.get_with("/page.html", &["Accept-Encoding: gzip"]);
            page.text() == text && page.field("Vary") == vary
        });
    };
    becomes("plain", None);
    folder.www("page.html.gz", "first");
    becomes("first", Some("Accept-Encoding"));
    unlike_before();
    folder.www("page.html.gz", "second");
    becomes("second", Some("Accept-Encoding"));
    fs::remove_file(folder.served("page.html.gz")).unwrap();
    becomes("plain", None);
}

/// Replaces a page like a reproducible build, which gives all files one time.
fn put_with_old_time(folder: &Folder, text: &str) {
    let when = SystemTime::UNIX_EPOCH + Duration::from_secs(315_532_800);
    let aside = folder.www("page.txt.new", text);
    File::options().append(true).open(&aside).unwrap().set_modified(when).unwrap();
    fs::rename(&aside, folder.served("page.txt")).unwrap();
}

#[test]
fn a_file_of_the_same_length_and_time_is_another_file() {
    let folder = Folder::new();
    let write = |text: &str| put_with_old_time(&folder, text);
    write("first");
    let server = quick(&folder);
    becomes(&server, "/page.txt", 200, "first");
    write("other");
    becomes(&server, "/page.txt", 200, "other");
}

#[test]
fn two_contents_never_share_a_tag_with_ctime() {
    // A strong tag changes with the content (RFC 9110, section 8.8.1). With a shared tag a client would keep an old
    // file forever, or join parts of two files by `If-Range`.
    let folder = Folder::new();
    let write = |text: &str| put_with_old_time(&folder, text);
    write("first");
    let server = Launch::new(&folder).args(["--freshness", "100ms", "--etag", "changed"]).start();
    let first = server.get("/page.txt");
    write("other");
    let other = becomes(&server, "/page.txt", 200, "other");
    assert_ne!(first.must("ETag"), other.must("ETag"), "for {} and {}", first.text(), other.text());
}

/// A download that began at one mirror continues at another, and a cache in front of both keeps one copy.
#[test]
fn mirrors_of_one_file_send_the_same_tag() {
    let mirrors = [(); 2].map(|()| {
        let folder = Folder::new();
        put_with_old_time(&folder, "content");
        unlike_before();
        folder
    });
    let plain = mirrors.each_ref().map(|folder| quick(folder).get("/page.txt").must("ETag").to_owned());
    assert_eq!(plain[0], plain[1]);
    let server = quick(&mirrors[1]);
    let page = server.get_with("/page.txt", &["Range: bytes=3-", &format!("If-Range: {}", plain[0])]);
    assert_eq!(page.brief(), (206, "tent".to_owned()));
    let page = server.get_with("/page.txt", &[&format!("If-None-Match: {}", plain[0])]);
    assert_eq!(page.status, 304);
    let strong = mirrors.each_ref().map(|folder| {
        let server = Launch::new(folder).args(["--etag", "changed"]).start();
        server.get("/page.txt").must("ETag").to_owned()
    });
    assert_ne!(strong[0], strong[1]);
    assert_ne!(strong[0], plain[0]);
}

#[test]
fn under_steady_replacement_every_answer_is_of_one_state() {
    let folder = Folder::new();
    // Each state has one letter and one length, alternately small and large.
    let state = |n: usize| vec![b'a' + (n % 26) as u8; 1000 + n * 7919 % 400_000];
    let path = folder.www("page.bin", state(0));
    folder.www("page.bin.new", "");
    let server = Launch::with_workers(&folder, 2).args(["--freshness", "0s"]).start();
    let over = AtomicBool::new(false);
    let tags: Mutex<HashMap<String, (u8, usize)>> = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut answers = 0;
                while !over.load(Ordering::Relaxed) || answers < 20 {
                    let page = match client.try_get("/page.bin") {
                        // An answer whose file changes in mid-transfer is cut, and a file that changes all the time
                        // may get an error.
                        Err(Broken::Cut { page }) => {
                            let body = page.map(|page| page.body).unwrap_or_default();
                            assert!(body.windows(2).all(|two| two[0] == two[1]), "mixed, then cut");
                            client = server.client();
                            continue;
                        }
                        Ok(page) if page.status == 503 => {
                            client = server.client();
                            continue;
                        }
                        other => other.unwrap(),
                    };
                    answers += 1;
                    assert_eq!(page.status, 200);
                    let found = (page.body[0], page.body.len());
                    assert!(page.body == vec![found.0; found.1], "two states in one answer");
                    let tag = page.must("ETag").to_owned();
                    let known = *tags.lock().unwrap().entry(tag.clone()).or_insert(found);
                    assert_eq!(known, found, "two contents of one tag {tag}");
                }
            });
        }
        for n in 1..250 {
            write_aside(&path, state(n));
            std::thread::sleep(Duration::from_millis(4));
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut client = server.client();
    wait_until("the last state", || client.get("/page.bin").body == state(249));
}

#[test]
fn a_missing_root_does_not_end_the_server() {
    let folder = Folder::with_hello();
    let server = quick(&folder);
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(server.get("/unheard-of-before").status, 404);
    if is(&["amped"]) {
        server.some("helper");
    }
    fs::remove_dir_all(folder.path("www")).unwrap();
    becomes_status(&server, "/hello.txt", 404);
    becomes_status(&server, "/", 404);
    becomes_status(&server, "/unheard-of", 404);
    assert_eq!(server.role("worker").len(), workers(1));
}

/// Begins to download a file of `A`s, applies `change` while the client blocks the server, and returns the rest of
/// the answer.
fn download_while(change: impl FnOnce(&Folder, &fs::File)) -> (Vec<u8>, Server, Folder) {
    let folder = Folder::with_hello();
    let path = folder.www("film.bin", vec![b'A'; film_bytes()]);
    let server = quick(&folder);
    let mut client = server.client();
    assert_eq!(client.begin("/film.bin"), film_bytes());
    let mut got = client.some(50_000);
    wait_blocked(&server);
    change(&folder, &File::options().write(true).open(path).unwrap());
    got.extend(client.rest(film_bytes() - got.len()));
    assert!(got.len() <= film_bytes());
    if got.len() < film_bytes() {
        client.assert_gone();
    }
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    (got, server, folder)
}

/// Waits until the worker is idle, because it has filled the client's socket.
fn wait_blocked(server: &Server) {
    let ticks = || {
        let of_worker = |pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11);
            (fields.next().unwrap().to_owned(), fields.next().unwrap().to_owned())
        };
        server.role("worker").into_iter().map(of_worker).collect::<Vec<_>>()
    };
    let mut before = ticks();
    wait_until("the worker to be blocked on its client", || {
        std::thread::sleep(Duration::from_millis(60));
        let now = ticks();
        std::mem::replace(&mut before, now.clone()) == now
    });
}

#[test]
fn a_file_truncated_in_mid_transfer() {
    let (got, server, _folder) = download_while(|_, film| film.set_len(100_000).unwrap());
    assert!(got.iter().all(|byte| *byte == b'A'), "padded");
    assert!(got.len() < film_bytes(), "more than the file has");
    wait_until("the film as it is now", || server.get("/film.bin").body == vec![b'A'; 100_000]);
}

#[test]
fn a_file_truncated_and_extended_in_mid_transfer() {
    let (got, ..) = download_while(|_, film| {
        film.set_len(0).unwrap();
        film.set_len(film_bytes() as u64).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == b'A'), "zeros of the new file in the old one");
    assert!(got.len() < film_bytes());
}

#[test]
fn a_file_overwritten_in_mid_transfer() {
    let (got, server, _folder) = download_while(|_, film| {
        film.write_all_at(&vec![b'B'; film_bytes()], 0).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == b'A'), "mixed");
    assert!(got.len() < film_bytes());
    wait_until("the film as it is now", || server.get("/film.bin").body == vec![b'B'; film_bytes()]);
}

#[test]
fn a_file_replaced_in_mid_transfer() {
    let (got, server, _folder) = download_while(|folder, _| {
        write_aside(&folder.served("film.bin"), vec![b'B'; 1_000_000]);
    });
    // Cut, or complete: the old file still exists for processes that have it open.
    assert!(got.iter().all(|byte| *byte == b'A'), "mixed");
    wait_until("the film as it is now", || server.get("/film.bin").body == vec![b'B'; 1_000_000]);
}

#[test]
fn a_file_deleted_in_mid_transfer() {
    let (got, server, _folder) = download_while(|folder, _| {
        fs::remove_file(folder.served("film.bin")).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == b'A'), "mixed");
    becomes_status(&server, "/film.bin", 404);
}

/// The open descriptors of deleted files in a folder, of all processes. None if they cannot be seen.
fn descriptors_of_deleted(folder: &Path) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    for process in processes.filter(|path| path.join("cmdline").exists()) {
        let descriptors = match fs::read_dir(process.join("fd")) {
            Ok(descriptors) => descriptors,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return None,
            // The process has ended.
            Err(_) => continue,
        };
        let links = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let is_ours =
            |link: &PathBuf| link.starts_with(folder) && link.to_string_lossy().ends_with(" (deleted)");
        found.extend(links.filter(is_ours));
    }
    Some(found)
}

#[test]
fn the_space_of_a_deleted_file_is_freed_without_requests() {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    let server = quick(&folder);
    assert!(server.get("/film.bin").body == film());
    fs::remove_file(folder.served("film.bin")).unwrap();
    let www = folder.path("www").canonicalize().unwrap();
    // A file stays open for half a minute after its last request.
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let Some(kept) = descriptors_of_deleted(&www) else {
            return skip("needs root, to see the descriptors of all processes");
        };
        if kept.is_empty() {
            break;
        }
        assert!(Instant::now() < patience, "still open: {kept:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(server.get("/film.bin").status, 404);
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_file_grown_in_mid_transfer() {
    let (got, server, _folder) = download_while(|_, film| {
        film.write_all_at(b"BBBB", film_bytes() as u64).unwrap();
    });
    assert!(got.iter().all(|byte| *byte == b'A'), "more than the head said");
    wait_until("the film as it is now", || server.get("/film.bin").body.ends_with(b"ABBBB"));
}

#[test]
fn a_growing_file_is_served_with_its_length_at_the_start() {
    let folder = Folder::new();
    let path = folder.www("app.log", vec![b'A'; 500_000]);
    let server = quick(&folder);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let log = File::options().append(true).open(&path).unwrap();
            while !over.load(Ordering::Relaxed) {
                std::io::Write::write_all(&mut &log, b"AAAAAAAA").unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for _ in 0..20 {
            match Client::to(server.addresses[0]).try_get("/app.log") {
                Ok(page) if page.status == 200 => assert!(page.body.iter().all(|b| *b == b'A')),
                Ok(page) => assert_eq!(page.status, 503),
                Err(Broken::Cut { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
