//! Whole simulations: the set of `bench/`, a shift of popularity, a crawler, logs, and what is said of them.

use clap::Parser;

use super::*;
use flash_load::workload::Spec;

const MB: u64 = 1_000_000;
/// Directories of the set of 3 GB.
const DIRECTORIES: u32 = 586;
const FILES: u32 = DIRECTORIES * 36;
/// One minute of 3,000 requests/s.
const MINUTE: usize = 180_000;

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn options(source: Spec) -> Options {
    Options { source, ..CommandLine::parse_from(["cache", "--requests=1000"]).options }
}

/// Files of the 3 GB set in the order of a draw.
fn draw(requests: usize, seed: u64) -> Vec<u32> {
    let files = workload::Options { directories: Some(DIRECTORIES), ..workload::Options::default() };
    let workload = Workload::open(&Spec::Specweb99, &files).unwrap();
    let mut demand = workload.demands(&Arrivals::Closed, seed, 1).remove(0);
    (0..requests).map(|_| demand.next_path().unwrap()).collect()
}

fn of_set(asked: Vec<u32>) -> Requests {
    let catalogue = Catalogue::specweb99(DIRECTORIES, None);
    Requests::new((0..FILES).map(|file| catalogue.file_bytes(file).unwrap()), asked).unwrap()
}

/// Which requests had to wait for the disk under Flash's policy.
fn missed(memory_bytes: u64, asked: &[u32]) -> Vec<bool> {
    let requests = of_set(asked.to_vec());
    let mut cache = Policy::Flash.cache(memory_bytes, &requests);
    let mut is_missed =
        |file| requests.blocks_of(file).fold(false, |missed, block| missed | !cache.access(block));
    asked.iter().map(|file| is_missed(*file)).collect()
}

fn count(missed: &[bool]) -> usize {
    missed.iter().filter(|missed| **missed).count()
}

#[test]
fn the_policy_is_near_the_best_static_placement() {
    let requests = of_set(draw(2_000_000, 1));
    for memory_bytes in [512 * MB, 1_000 * MB] {
        let of = |policy| simulate::simulate(policy, memory_bytes, &requests, 1_000_000);
        let (own, best, lru) = (of(Policy::Flash), of(Policy::Static), of(Policy::Lru));
        assert!(own.misses as f64 <= 1.5 * best.misses as f64, "{own:?} {best:?}");
        assert!(own.reads as f64 <= 1.5 * best.reads as f64, "{own:?} {best:?}");
        assert!(own.misses * 2 < lru.misses && best.misses < own.misses, "{own:?} {lru:?}");
    }
}

#[test]
fn a_shift_of_popularity_is_followed_within_a_minute() {
    let mut asked = draw(1_000_000 + 2 * MINUTE, 2);
    for file in &mut asked[1_000_000..] {
        // Every directory changes its place, and the most popular ones were hardly asked for before.
        *file = (*file / 36 * 7 + 293) % DIRECTORIES * 36 + *file % 36;
    }
    for memory_bytes in [512 * MB, 1_000 * MB] {
        let missed = missed(memory_bytes, &asked);
        let of_minute = |from: usize| count(&missed[from..from + MINUTE]);
        let [before, first, second] = [1_000_000 - MINUTE, 1_000_000, 1_000_000 + MINUTE].map(of_minute);
        assert!(first > before, "{before} {first}: there was no shift");
        assert!(second as f64 <= 1.5 * before as f64, "{before} {first} {second} in {memory_bytes}");
    }
}

#[test]
fn a_crawler_costs_the_hot_set_little() {
    // All files were read before, so that the crawler cannot spare anybody a first read.
    let mut asked: Vec<u32> = (0..FILES).collect();
    asked.extend(draw(3_000_000, 3));
    let begin = asked.len() - 1_500_000;
    let (mut crawled, mut is_hot) = (asked[..begin].to_vec(), vec![false; begin]);
    let mut crawler = 0..FILES;
    for (index, file) in asked[begin..].iter().enumerate() {
        crawled.push(*file);
        is_hot.push(true);
        if index % 10 == 0
            && let Some(file) = crawler.next()
        {
            crawled.push(file);
            is_hot.push(false);
        }
    }
    assert_eq!(crawler.next(), None);
    for memory_bytes in [512 * MB, 1_000 * MB] {
        let alone = count(&missed(memory_bytes, &asked)[begin..]);
        let beside = missed(memory_bytes, &crawled);
        let beside = beside.iter().zip(&is_hot).filter(|(missed, is_hot)| **missed && **is_hot).count();
        assert!(beside as f64 <= 1.05 * alone as f64, "{alone} alone, {beside} beside it, in {memory_bytes}");
    }
}

#[test]
fn large_files_are_cut_into_blocks_and_empty_ones_have_none() {
    let requests = Requests::new([2 * BLOCK_BYTES + 1, 0, 5].into_iter(), vec![0, 1, 2, 2]).unwrap();
    let blocks: Vec<_> = (0..3)
        .map(|file| requests.blocks_of(file).map(|b| (b.number, b.bytes)).collect::<Vec<_>>())
        .collect();
    assert_eq!(blocks, [vec![(0, BLOCK_BYTES), (1, BLOCK_BYTES), (2, 1)], vec![], vec![(3, 5)]]);
    assert_eq!((requests.asked_files(), requests.asked_bytes()), (3, 2 * BLOCK_BYTES + 6));
    let outcome = simulate::simulate(Policy::Lru, 3 * BLOCK_BYTES, &requests, 0);
    let expected = Outcome {
        policy: Policy::Lru,
        memory_bytes: 3 * BLOCK_BYTES,
        requests: 4,
        misses: 2,
        reads: 4,
        asked_bytes: 2 * BLOCK_BYTES + 11,
        missed_bytes: 2 * BLOCK_BYTES + 6,
    };
    assert_eq!(outcome, expected);
    assert_eq!(Requests::new([u64::MAX].into_iter(), Vec::new()).map(|requests| requests.asked.len()), None);
}

#[test]
fn a_log_is_simulated_and_queries_name_no_files() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = |path: &str, bytes: u64| {
        format!("h - - [10/Oct/2000:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 {bytes}\n")
    };
    fs::write(
        &file,
        line("/a", 1_000_000) + &line("/a?x=1", 1_000_000) + &line("/a?x=2", 10) + &line("/b", 9),
    )
    .unwrap();
    let options = Options { warm_up_share: 0.0, ..options(Spec::Log { file: file.path().to_owned() }) };
    let simulated = simulated(&options).unwrap();
    assert_eq!((simulated.files, simulated.set_bytes, simulated.requests), (2, 1_000_009, 4));
    let last = simulated.outcomes.last().unwrap();
    assert_eq!((last.policy, last.memory_bytes, last.misses, last.reads), (Policy::Static, 1_000_009, 2, 3));
    let words = simulated.answer.text();
    assert!(
        words.starts_with("977 KiB with the policy flash holds 50.0 % of the requests (750 disk"),
        "{words}"
    );
    assert!(words.ends_with("twice the memory would save no disk reads."), "{words}");
    fs::write(&file, line("/a", 0)).unwrap();
    let error = run(&options).unwrap_err();
    assert!(
        error.exit_code() == 2 && error.to_string().contains("no file is longer than 0 bytes"),
        "{error}"
    );
}

#[test]
fn the_answer_has_only_figures_that_were_computed() {
    let outcome = |memory_bytes, misses| Outcome {
        policy: Policy::Flash,
        memory_bytes,
        requests: 1_000,
        misses,
        reads: 2 * misses,
        asked_bytes: 1,
        missed_bytes: 0,
    };
    let outcomes = [outcome(1 << 30, 300), outcome(2 << 30, 100), outcome(4 << 30, 98)];
    let of = |outcomes: &[Outcome], twice: Option<u64>| {
        Answer::of(Policy::Flash, outcomes, |bytes| outcome(bytes, twice.unwrap())).text()
    };
    assert_eq!(
        of(&outcomes, None),
        "2 GiB with the policy flash holds 90.0 % of the requests (200 disk reads for each 1,000); twice the memory \
         would save 2.00 % of the disk reads."
    );
    assert!(of(&outcomes[..1], Some(100)).ends_with("twice the memory would save 7 of 10 disk reads."));
    assert!(of(&[outcome(1 << 20, 0)], Some(0)).ends_with("no request had to wait for the disk."));
}

#[test]
fn wrong_options_are_refused() {
    let refused = |options: &Options| run(options).unwrap_err().exit_code();
    let good = options(Spec::Specweb99);
    assert_eq!(refused(&Options { warm_up_share: 1.0, ..good.clone() }), 2);
    assert_eq!(refused(&Options { warm_up_share: f64::NAN, ..good.clone() }), 2);
    assert_eq!(refused(&Options { memory_bytes: vec![0], ..good.clone() }), 2);
    assert_eq!(refused(&Options { requests: 0, ..good.clone() }), 2);
    assert_eq!(refused(&options(Spec::Log { file: "/nonexistent".into() })), 1);
    let unknown = options(Spec::Single { path: "/a".to_owned() });
    assert_eq!(refused(&unknown), 2, "its length is not known");
}
