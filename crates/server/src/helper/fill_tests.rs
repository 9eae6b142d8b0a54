//! Filling with a keeper that is late: this test is the keeper.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::*;

/// The keeper's end of a channel.
struct Keeper(OwnedFd);

impl Keeper {
    fn receive(&self) -> Request {
        let mut bytes = [0; 100];
        let length = channel::recv(&self.0, &mut bytes, &mut Vec::new()).expect("received");
        decode(&bytes[..length]).expect("a request")
    }

    fn answer(&self, answer: &Answer) {
        codec::send(&self.0, answer, &[]).expect("sent");
    }

    fn has_nothing(&self) -> bool {
        channel::take(&self.0, &mut [0; 100]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A store whose keeper must answer within this time.
fn start(patience: Duration) -> (Fill, Keeper, OwnedFd) {
    let (ours, theirs) = channel::pair(1 << 16).expect("a pair");
    channel::set_receive_timeout(&theirs, patience).expect("set");
    let memory = store_file::create(c"flash-test", 1 << 30).expect("a memory file");
    let fill = Fill::new(memory.try_clone().expect("a copy"), vec![theirs]);
    (fill, Keeper(ours), memory)
}

/// A file that did not change just now.
fn source() -> File {
    File::open(std::env::current_exe().expect("this program")).expect("opened")
}

#[test]
fn a_keeper_that_hangs_costs_one_wait_and_no_channel() {
    let (fill, keeper, memory) = start(Duration::from_millis(20));
    let file = source();
    fill.fill(&Source::Shared(&file), 0, &mut None).expect("past the store");
    assert!(matches!(keeper.receive(), Request::Want(..)));
    assert_eq!(keeper.receive(), Request::GiveUp);
    for _ in 0..3 {
        fill.fill(&Source::Shared(&file), 0, &mut None).expect("past the store");
    }
    assert!(keeper.has_nothing() && !fill.has_lost_keeper(), "it neither asks again nor ends");
    // A late answer gives a place that is no longer its own.
    keeper.answer(&Answer::Fill(Extent { offset: 0, length: 4096 }));
    fill.fill(&Source::Shared(&file), 0, &mut None).expect("past the store");
    assert!(keeper.has_nothing());
    keeper.answer(&Answer::GivenUp);
    fill.fill(&Source::Shared(&file), 0, &mut None).expect("past the store");
    assert!(matches!(keeper.receive(), Request::Want(..)), "the keeper is back");
    assert_eq!(store_file::held_bytes(&memory).expect("its state"), 0, "nothing was written");
}

#[test]
fn a_load_by_another_process_is_waited_for() {
    let patience = Duration::from_millis(200);
    let (fill, keeper, _memory) = start(patience);
    // It is there in time, however busy the machine is.
    keeper.answer(&Answer::Joined);
    let thread = std::thread::spawn(move || {
        let want = keeper.receive();
        // Longer than the patience for a first answer.
        std::thread::sleep(patience + patience / 2);
        keeper.answer(&Answer::There);
        (want, keeper)
    });
    fill.fill(&Source::Own(source()), 0, &mut None).expect("filled");
    let (want, keeper) = thread.join().expect("no panic");
    assert!(matches!(want, Request::Want(..)) && keeper.has_nothing());
    drop(keeper);
    fill.fill(&Source::Own(source()), 0, &mut None).expect("past the store");
    assert!(fill.has_lost_keeper(), "the next process has a keeper");
}

#[test]
fn the_clock_of_another_host_can_be_two_seconds_off() {
    const SECOND_NS: i128 = 1_000_000_000;
    /// O_PATH of open(2): such a descriptor is a place on a file system that may hang, such as NFS.
    const PATH_ONLY: i32 = 0o10_000_000;
    let file = source();
    let program = std::env::current_exe().expect("this program");
    let place = OpenOptions::new().read(true).custom_flags(PATH_ONLY).open(program).expect("opened");
    let state = convert::stat(&file::stat(&file).expect("its state"));
    let changed = |ago_ns| FileStat { modified_ns: 1, changed_ns: clock::wall_ns() - ago_ns, ..state };
    let both = |ago_ns| (is_racy(&file, &changed(ago_ns)), is_racy(&place, &changed(ago_ns)));
    assert_eq!(both(0), (true, true));
    assert_eq!(both(SECOND_NS), (false, true));
    assert_eq!(both(-SECOND_NS), (false, true), "a clock that is ahead");
    assert_eq!(both(3 * SECOND_NS), (false, false));
}
