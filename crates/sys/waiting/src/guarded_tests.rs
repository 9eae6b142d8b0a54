//! Tests of guarded files. Those of folders that others can change need root, as whom alone Flash refuses them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use super::*;
use crate::skipping::skip;

/// A user without rights.
const OTHER: u32 = 65533;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn refusal<T>(result: io::Result<T>) -> String {
    result.map(drop).expect_err("refused").to_string()
}

#[test]
fn a_link_or_a_fifo_is_not_opened() {
    let folder = folder();
    let [log, victim] = ["log", "victim"].map(|name| folder.path().join(name));
    fs::write(&victim, "precious").expect("a file");
    symlink(&victim, &log).expect("a link");
    let place = GuardedFile::find(&log).expect("a place");
    assert!(refusal(place.append()).contains("symbolic link"));
    assert!(refusal(place.read()).contains("symbolic link"));
    fs::remove_file(&log).expect("removed");
    fs::hard_link(&victim, &log).expect("a link");
    assert!(refusal(place.append()).contains("another name"));
    fs::remove_file(&log).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &log, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    // Without a reader, a FIFO cannot even be opened; with one, it is found to be none.
    assert!(refusal(place.append()).contains("not a regular file"));
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&log).expect("a reader");
    assert!(refusal(place.append()).contains("not a regular file"));
    assert!(refusal(place.read()).contains("not a regular file"));
    assert_eq!(fs::read(&victim).expect("the file"), b"precious");
}

#[test]
fn a_file_is_created_for_its_owner_and_its_group() {
    let folder = folder();
    let path = folder.path().join("log");
    let place = GuardedFile::find(&path).expect("a place");
    place.append().expect("a file");
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o7137, 0, "at most 0640");
    assert!(place.read().expect("a file").is_some());
    GuardedFile::find(Path::new("/dev/null")).and_then(|place| place.append()).expect("a device of root");
}

#[test]
fn a_file_is_replaced_at_once() {
    let folder = folder();
    let path = folder.path().join("list");
    let place = GuardedFile::find(&path).expect("a place");
    assert!(place.read().expect("no file").is_none());
    fs::write(folder.path().join("list.new"), "unfinished").expect("a file");
    let next = place.create_next().expect("the next version");
    fs::write(&path, "old").expect("the old version");
    rustix::io::write(&next, b"new").expect("written");
    assert_eq!(fs::read(&path).expect("the old version"), b"old");
    place.use_next().expect("renamed");
    assert_eq!(fs::read(&path).expect("the new version"), b"new");
    assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    place.create_next().expect("another");
    place.drop_next();
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
}

#[test]
fn root_refuses_folders_that_others_can_change() {
    if !privileges::is_root() {
        return skip("needs root, to be a danger to others");
    }
    let folder = folder();
    let inner = folder.path().join("logs");
    fs::create_dir(&inner).expect("a folder");
    let path = inner.join("log");
    let find = || GuardedFile::find(&path);
    let mode = |of: &Path, mode| fs::set_permissions(of, Permissions::from_mode(mode)).expect("a mode");
    for wrong in [0o777, 0o1777] {
        mode(&inner, wrong);
        assert!(refusal(find()).contains("run `chmod go-w"), "{wrong:o}");
    }
    chown(&inner, None, Some(OTHER)).expect("a group");
    mode(&inner, 0o770);
    assert!(refusal(find()).contains("can write to it"));
    mode(&inner, 0o750);
    find().expect("only its owner writes");
    mode(folder.path(), 0o777);
    assert!(refusal(find()).contains("replace the folders in it"));
    mode(folder.path(), 0o1777);
    find().expect("others cannot replace root's folder there");
    symlink(&inner, folder.path().join("link")).expect("a link");
    GuardedFile::find(&folder.path().join("link/log")).expect("root's link");
    std::os::unix::fs::lchown(folder.path().join("link"), Some(OTHER), None).expect("another owner");
    assert!(refusal(GuardedFile::find(&folder.path().join("link/log"))).contains("replace the folders"));
    let below = inner.join("below");
    fs::create_dir(&below).expect("a folder");
    chown(&inner, Some(OTHER), None).expect("another owner");
    mode(folder.path(), 0o755);
    assert!(refusal(GuardedFile::find(&below.join("log"))).contains("run `chown root"));
}

#[test]
fn the_group_of_a_service_may_write_to_a_folder_on_the_path_but_place_no_link() {
    if !privileges::is_root() {
        return skip("needs root, to be a danger to others");
    }
    let folder = folder();
    let inner = folder.path().join("logs");
    fs::create_dir(&inner).expect("a folder");
    let link = folder.path().join("link");
    symlink(&inner, &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(OTHER), None).expect("another owner");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o775)).expect("a mode");
    for (group, is_found) in [(SERVICE_GROUPS_END - 1, true), (SERVICE_GROUPS_END, false)] {
        chown(folder.path(), None, Some(group)).expect("a group");
        assert_eq!(GuardedFile::find(&inner.join("log")).is_ok(), is_found, "{group}");
        assert!(refusal(GuardedFile::find(&link.join("log"))).contains("replace the folders"), "{group}");
    }
}

#[test]
fn root_works_in_the_folder_of_a_user_with_the_rights_of_this_user() {
    if !privileges::is_root() {
        return skip("needs root, to have another user's folder");
    }
    let folder = folder();
    let inner = folder.path().join("logs");
    fs::create_dir(&inner).expect("a folder");
    chown(&inner, Some(OTHER), None).expect("an owner");
    let path = inner.join("log");
    let place = GuardedFile::find(&path).expect("a place");
    place.append().expect("a file");
    assert_eq!(path.metadata().expect("the file").uid(), OTHER);
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "precious").expect("a file of root, which the user has moved here");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    assert!(refusal(place.append()).contains("give the file to this user"));
    assert_eq!(fs::read(&path).expect("the file"), b"precious");
}
