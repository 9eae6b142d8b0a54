//! Records as the kernel writes them (perf_event_open(2)), made by hand.

use super::*;

const ENTERS: Source = Source::Enter { id: 8, args: 16 };
const EXITS: Source = Source::Exit { id: 8, ret: 16 };

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend((8 + body.len() as u16).to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn two(low: u32, high: u32) -> u64 {
    u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap())
}

fn sample(identifier: u64, tid: u32, raw: &[u64]) -> Vec<u8> {
    let mut body = words(&[identifier, two(7, tid), 1000]);
    body.extend((raw.len() as u32 * 8).to_ne_bytes());
    body.extend(words(raw));
    body.extend([0; 4]);
    record(SAMPLE, 0, &body)
}

fn decoder() -> Decoder {
    let mut decoder = Decoder::default();
    decoder.add(1, ENTERS, 70);
    decoder.add(2, EXITS, 70);
    decoder.add(3, Source::Switch, 70);
    decoder.add(11, ENTERS, 80);
    decoder
}

fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    decoder.decode(4, bytes, &mut events);
    events
}

#[test]
fn samples_are_calls_and_stacks() {
    let mut decoder = decoder();
    let mut bytes = sample(1, 70, &[0, 17, 1, 2, 3, 4, 5, 6]);
    bytes.extend(sample(2, 70, &[0, 17, -11_i64 as u64]));
    bytes.extend(record(SAMPLE, 0, &words(&[3, two(7, 70), 1000, 3, u64::MAX - 127, 0xf1, 0xf2, 0])));
    let what: Vec<What> = decode(&mut decoder, &bytes).into_iter().map(|event| event.what).collect();
    assert_eq!(
        what,
        [
            What::Enter { call: 17, args: [1, 2, 3, 4, 5, 6] },
            What::Exit { call: 17, result: -11 },
            What::Stack { frames: vec![0xf1, 0xf2] },
        ]
    );
    assert_eq!(decoder.broken, 0);
}

#[test]
fn a_thread_that_is_followed_twice_counts_once() {
    let mut decoder = decoder();
    let mut bytes = sample(1, 71, &RAW);
    bytes.extend(sample(11, 71, &RAW));
    bytes.extend(sample(99, 71, &RAW));
    assert_eq!(decode(&mut decoder, &bytes).len(), 1);
}

const RAW: [u64; 8] = [0, 17, 0, 0, 0, 0, 0, 0];

/// A record about threads, from an event of that number.
fn of_task(kind: u32, misc: u16, front: &[u64], tid: u32, identifier: u64) -> Vec<u8> {
    record(kind, misc, &[words(front), words(&[two(7, tid), 1000, identifier])].concat())
}

fn forks(parent: u32, child: u32, identifier: u64) -> Vec<u8> {
    of_task(FORK, 0, &[two(7, 7), two(child, parent), 1000], parent, identifier)
}

fn executes(tid: u32, identifier: u64) -> Vec<u8> {
    let name = u64::from_ne_bytes(*b"nginx\0\0\0");
    of_task(COMM, MISC_OUT_OR_EXEC, &[two(7, tid), name], tid, identifier)
}

/// How many events there are.
fn count(decoder: &mut Decoder, bytes: &[Vec<u8>]) -> usize {
    decode(decoder, &bytes.concat()).len()
}

#[test]
fn a_thread_that_has_all_of_its_own_events_is_not_followed_by_those_it_has_inherited() {
    let mut decoder = decoder();
    decoder.follow(80);
    assert_eq!(count(&mut decoder, &[sample(1, 80, &RAW)]), 0, "inherited, on some cores only");
    assert_eq!(count(&mut decoder, &[sample(11, 80, &RAW)]), 1);
    // A thread that it starts has both, and inherits the choice.
    assert_eq!(count(&mut decoder, &[forks(80, 81, 1), forks(80, 81, 11)]), 1);
    assert_eq!(count(&mut decoder, &[sample(1, 81, &RAW), sample(11, 81, &RAW)]), 1);
    assert_eq!(count(&mut decoder, &[sample(11, 81, &RAW)]), 1);
}

#[test]
fn a_number_that_is_used_again_is_followed_as_whoever_started_it_is() {
    let mut decoder = decoder();
    decoder.follow(70);
    decoder.follow(80);
    assert_eq!(count(&mut decoder, &[forks(70, 71, 1), sample(1, 71, &RAW)]), 2);
    // Its end was lost.
    assert_eq!(count(&mut decoder, &[forks(80, 71, 11), sample(11, 71, &RAW)]), 2);
    let end = of_task(EXIT, 0, &[two(7, 1), two(71, 1), 1000], 71, 11);
    // The new one's begin as well.
    assert_eq!(count(&mut decoder, &[end, sample(1, 71, &RAW)]), 2);
}

#[test]
fn a_thread_that_executes_a_program_takes_its_events_to_its_new_number() {
    for end_is_known in [true, false] {
        let mut decoder = decoder();
        decoder.follow(70);
        decoder.follow(80);
        let end = of_task(EXIT, 0, &[two(7, 1), two(70, 1), 1000], 70, 1);
        if end_is_known {
            assert_eq!(count(&mut decoder, &[end]), 1);
        }
        assert_eq!(count(&mut decoder, &[executes(70, 11), sample(11, 70, &RAW)]), 2);
    }
}

#[test]
fn one_that_is_followed_twice_and_executes_a_program_counts_once() {
    for twice in [[executes(80, 11), executes(80, 1)], [executes(80, 1), executes(80, 11)]] {
        let mut decoder = decoder();
        decoder.follow(80);
        count(&mut decoder, &twice);
        assert_eq!(count(&mut decoder, &[sample(1, 80, &RAW), sample(11, 80, &RAW)]), 1);
        assert_eq!(count(&mut decoder, &[sample(11, 80, &RAW)]), 1, "its own");
    }
}

#[test]
fn switches_threads_names_and_losses() {
    let trailer = |tid| words(&[two(7, tid), 1000, 1]);
    let with = |front: &[u64], tid| [words(front), trailer(tid)].concat();
    let mut bytes = record(SWITCH, MISC_OUT_OR_EXEC | MISC_PREEMPT, &trailer(70));
    bytes.extend(record(SWITCH, MISC_OUT_OR_EXEC, &trailer(70)));
    bytes.extend(record(SWITCH, 0, &trailer(70)));
    bytes.extend(record(FORK, 0, &with(&[two(8, 7), two(72, 70), 1000], 70)));
    bytes.extend(record(EXIT, 0, &with(&[two(7, 1), two(70, 1), 1000], 70)));
    let name = u64::from_ne_bytes(*b"nginx\0\0\0");
    bytes.extend(record(COMM, MISC_OUT_OR_EXEC, &with(&[two(7, 70), name], 70)));
    bytes.extend(record(LOST, 0, &with(&[1, 42], 70)));
    let mut decoder = decoder();
    let what: Vec<What> = decode(&mut decoder, &bytes).into_iter().map(|event| event.what).collect();
    assert_eq!(
        what,
        [
            What::Off { runnable: true },
            What::Off { runnable: false },
            What::On,
            What::Fork { child_pid: 8, child_tid: 72 },
            What::End,
            What::Name { name: "nginx".to_owned(), executed: true },
            What::Lost { count: 42 },
        ]
    );
    assert_eq!(decoder.broken, 0);
}

#[test]
fn what_makes_no_sense_is_counted_and_never_more_is_read_than_there_is() {
    let whole = [
        sample(1, 70, &[0, 17, 1, 2, 3, 4, 5, 6]),
        record(SAMPLE, 0, &words(&[3, two(7, 70), 1000, u64::MAX])),
        record(SWITCH, 0, &words(&[1])),
    ]
    .concat();
    for end in 0..whole.len() {
        let mut decoder = decoder();
        assert!(decode(&mut decoder, &whole[..end]).len() <= 1);
    }
    let mut decoder = decoder();
    assert_eq!(decode(&mut decoder, &whole).len(), 1);
    assert_eq!(decoder.broken, 2);
    // A record of no length would have no end.
    decode(&mut decoder, &[0; 64]);
    assert_eq!(decoder.broken, 3);
}

#[test]
fn fields_are_where_the_format_says() {
    let format = "name: sys_enter\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
    assert_eq!(offset_of(format, "id"), Some(8));
    assert_eq!(offset_of(format, "args"), Some(16));
    assert_eq!(offset_of(format, "pid"), None);
}
