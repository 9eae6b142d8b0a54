//! Rows of requests against starts worked out by hand.

use super::*;
use crate::workload::access_log::AccessLog;

const S: u64 = 1_000_000_000;

fn one_thread(number: u32, of: u32) -> OneThread {
    OneThread { number, of }
}

fn phase(duration_s: f64, rate_per_s: f64) -> PhaseRate {
    PhaseRate { duration_ns: (duration_s * 1e9) as u64, rate_per_s }
}

fn drawn() -> Source {
    Source::Drawn(Choice::uniform(10).unwrap())
}

fn rows(source: &Source, arrivals: &Arrivals, seed: u64, threads: u32) -> Vec<Stream> {
    (0..threads).map(|thread| stream(source, arrivals, seed, one_thread(thread, threads))).collect()
}

fn take_all(mut row: Stream) -> Vec<Arrival> {
    std::iter::from_fn(|| {
        let due_ns = row.next_due_ns();
        let arrival = row.take();
        assert_eq!(arrival.map(|arrival| arrival.intended_ns), due_ns);
        arrival
    })
    .collect()
}

fn starts_ns(source: &Source, arrivals: &Arrivals, threads: u32) -> Vec<Vec<u64>> {
    let rows = rows(source, arrivals, 1, threads);
    rows.into_iter().map(|row| take_all(row).iter().map(|arrival| arrival.intended_ns).collect()).collect()
}

#[test]
fn fixed_starts_by_hand() {
    // 4/s for 1 s, silence for 1 s, 2/s for 1.2 s: the last phase has a third start, at its 1.0 s.
    let arrivals = Arrivals::Fixed { phases: vec![phase(1.0, 4.0), phase(1.0, 0.0), phase(1.2, 2.0)] };
    let whole = [0, S / 4, S / 2, S * 3 / 4, 2 * S, S * 5 / 2, 3 * S];
    assert_eq!(starts_ns(&drawn(), &arrivals, 1), [whole]);
    let two = starts_ns(&drawn(), &arrivals, 2);
    assert_eq!(two[0], [0, S / 2, 2 * S, 3 * S]);
    assert_eq!(two[1], [S / 4, S * 3 / 4, S * 5 / 2]);
    // More threads than starts: the rest have none.
    let three = starts_ns(&drawn(), &Arrivals::Fixed { phases: vec![phase(1.0, 2.0)] }, 3);
    assert_eq!(three, [vec![0], vec![S / 2], vec![]]);
}

#[test]
fn fixed_starts_do_not_drift() {
    let starts = starts_ns(&drawn(), &Arrivals::Fixed { phases: vec![phase(100.0, 3000.0)] }, 1);
    assert_eq!(starts[0].len(), 300_000);
    assert_eq!(starts[0][299_997], 99_999 * S / 1000);
}

#[test]
fn poisson_phases_have_their_rates_on_all_threads_together() {
    let phases = vec![phase(20.0, 4000.0), phase(5.0, 0.0), phase(20.0, 1000.0)];
    let threads = starts_ns(&drawn(), &Arrivals::Poisson { phases }, 2);
    assert!(threads.iter().all(|starts| starts.is_sorted()));
    let all: Vec<u64> = threads.concat();
    let count = |from_s: u64, to_s: u64| {
        all.iter().filter(|&&start| (from_s * S..to_s * S).contains(&start)).count() as f64
    };
    assert!((count(0, 20) - 80_000.0).abs() < 5.0 * 80_000_f64.sqrt(), "{}", count(0, 20));
    assert_eq!(count(20, 25), 0.0);
    assert!((count(25, 45) - 20_000.0).abs() < 5.0 * 20_000_f64.sqrt(), "{}", count(25, 45));
    assert_eq!(count(45, 1000), 0.0);
    // Each second of a phase has its rate, the first and the last too.
    for second in (0..20).chain(25..45) {
        let mean = if second < 20 { 4000.0 } else { 1000.0_f64 };
        assert!((count(second, second + 1) - mean).abs() < 6.0 * mean.sqrt(), "second {second}");
    }
    let mut of_first: Vec<u64> = threads[0].iter().copied().filter(|&start| start < 20 * S).collect();
    assert!((of_first.len() as f64 - 40_000.0).abs() < 5.0 * 40_000_f64.sqrt());
    of_first.dedup();
    let gaps: Vec<f64> = of_first.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential's deviation is its mean");
}

#[test]
fn a_seed_repeats_and_another_does_not() {
    let arrivals = Arrivals::Poisson { phases: vec![phase(1.0, 500.0)] };
    let all = |seed| rows(&drawn(), &arrivals, seed, 2).into_iter().map(take_all).collect::<Vec<_>>();
    let (one, other) = (all(1), all(2));
    assert_eq!(one, all(1));
    assert_ne!(one, other);
    assert_ne!(one[0], one[1], "threads have rows of their own");
    let ids =
        |arrivals: &[Arrival]| arrivals.iter().take(100).map(|arrival| arrival.path_id).collect::<Vec<_>>();
    let faster = Arrivals::Poisson { phases: vec![phase(1.0, 5000.0)] };
    let faster = take_all(stream(&drawn(), &faster, 1, one_thread(0, 2)));
    assert_eq!(ids(&one[0]), ids(&faster), "the choices do not depend on the rate");
}

#[test]
fn chosen_files_come_in_their_order_at_the_starts_of_a_workload() {
    let mut files = 0..;
    let mut row = poisson(1, phase(2.0, 500.0), move || files.next().unwrap());
    let mut starts = Vec::new();
    while let Some(due_ns) = row.next_due_ns() {
        let arrival = row.take().unwrap();
        assert_eq!((arrival.intended_ns, arrival.path_id), (due_ns, starts.len() as u32));
        starts.push(due_ns);
    }
    assert_eq!(row.take(), None);
    let arrivals = Arrivals::Poisson { phases: vec![phase(2.0, 500.0)] };
    assert_eq!([starts], starts_ns(&drawn(), &arrivals, 1)[..]);
}

#[test]
fn rates_that_make_no_sense_are_silence() {
    for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let phases = vec![phase(1.0, rate_per_s), phase(1.0, 1.0)];
        assert_eq!(starts_ns(&drawn(), &Arrivals::Fixed { phases: phases.clone() }, 1), [[S]]);
        let poisson = starts_ns(&drawn(), &Arrivals::Poisson { phases }, 1);
        assert!(poisson[0].iter().all(|start| (S..2 * S).contains(start)));
    }
    assert!(starts_ns(&drawn(), &Arrivals::Poisson { phases: Vec::new() }, 1)[0].is_empty());
}

/// Requests at 0, 0.5, 1 and 3 s for files 0, 1, 0 and 2; 4 s long.
fn log(is_loop: bool) -> Source {
    let line = |second: u32, path: &str| {
        format!("h - - [10/Oct/2000:10:00:{second:02} +0000] \"GET {path} HTTP/1.0\" 200 1\n")
    };
    let text = line(0, "/a") + &line(0, "/b") + &line(1, "/a") + &line(3, "/c");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let log = AccessLog::read(file.path(), None).unwrap();
    Source::Log { replay: Arc::new(Replay::new(&log)), is_loop }
}

fn pairs(arrivals: &[Arrival]) -> Vec<(u64, u32)> {
    arrivals.iter().map(|arrival| (arrival.intended_ns * 1000 / S, arrival.path_id)).collect()
}

#[test]
fn a_log_comes_at_its_own_times_or_faster() {
    let once = |speed, threads| -> Vec<_> {
        let rows = rows(&log(false), &Arrivals::Log { speed }, 1, threads);
        rows.into_iter().map(|row| pairs(&take_all(row))).collect()
    };
    assert_eq!(once(1.0, 1), [[(0, 0), (500, 1), (1000, 0), (3000, 2)]]);
    assert_eq!(once(4.0, 1), [[(0, 0), (125, 1), (250, 0), (750, 2)]]);
    assert_eq!(once(0.5, 1), [[(0, 0), (1000, 1), (2000, 0), (6000, 2)]]);
    assert_eq!(once(1.0, 3), [vec![(0, 0), (3000, 2)], vec![(500, 1)], vec![(1000, 0)]]);
    for speed in [0.0, -1.0, f64::NAN] {
        assert!(once(speed, 1)[0].is_empty());
    }
}

#[test]
fn a_log_keeps_its_gaps_in_phases_of_other_rates() {
    // The log has 1/s. In the first phase its 4 s pass in 2 s, then none does, then 1 s of its next round passes in 2 s.
    let phases = vec![phase(2.0, 2.0), phase(1.0, 0.0), phase(2.0, 0.5)];
    let in_phases = |is_loop, threads| {
        let rows = rows(&log(is_loop), &Arrivals::LogPhases { phases: phases.clone() }, 1, threads);
        let mut whole: Vec<_> = rows.into_iter().flat_map(|row| pairs(&take_all(row))).collect();
        whole.sort_unstable();
        whole
    };
    let once = [(0, 0), (250, 1), (500, 0), (1500, 2)];
    assert_eq!(in_phases(false, 1), once);
    let looped = [&once[..], &[(3000, 0), (4000, 1)]].concat();
    assert_eq!(in_phases(true, 1), looped);
    assert_eq!(in_phases(true, 3), looped);
    for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let arrivals = Arrivals::LogPhases { phases: vec![phase(1.0, rate_per_s)] };
        assert!(starts_ns(&log(true), &arrivals, 1)[0].is_empty(), "{rate_per_s}");
    }
    let of_drawn = starts_ns(&drawn(), &Arrivals::LogPhases { phases }, 1);
    assert!(of_drawn[0].is_empty(), "only logs have times of their own");
}

#[test]
fn a_looped_log_goes_on_after_its_last_second() {
    let mut all = Vec::new();
    for mut row in rows(&log(true), &Arrivals::Log { speed: 2.0 }, 1, 3) {
        all.extend(pairs(&(0..4).map(|_| row.take().unwrap()).collect::<Vec<_>>()));
    }
    all.sort_unstable();
    let round = [(0, 0), (250, 1), (500, 0), (1500, 2)];
    let three: Vec<_> = [0, 2000, 4000].iter().flat_map(|at| round.map(|(ms, id)| (at + ms, id))).collect();
    assert_eq!(all, three);
}

#[test]
fn the_files_of_a_log_at_other_times() {
    let phases = vec![phase(10.0, 1.0)];
    let once =
        take_all(stream(&log(false), &Arrivals::Fixed { phases: phases.clone() }, 1, one_thread(0, 1)));
    assert_eq!(pairs(&once), [(0, 0), (1000, 1), (2000, 0), (3000, 2)], "ends with the log");
    // A looped one begins anywhere, another seed elsewhere, and keeps its order on any number of threads.
    let mut begins = [false; 4];
    for seed in 0..40 {
        let mut whole = Vec::new();
        for row in rows(&log(true), &Arrivals::Fixed { phases: phases.clone() }, seed, 2) {
            whole.extend(pairs(&take_all(row)));
        }
        whole.sort_unstable();
        let ids: Vec<u32> = whole.iter().map(|(_, id)| *id).collect();
        let order = [0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0];
        let begin = (0..4).find(|&begin| ids == order[begin..begin + 10]);
        begins[begin.unwrap_or_else(|| panic!("{ids:?}"))] = true;
    }
    assert_eq!(begins, [true; 4]);
}

#[test]
fn closed_loops_ask_for_paths_alone() {
    let mut row = stream(&log(false), &Arrivals::Closed, 1, one_thread(1, 2));
    assert_eq!((row.next_due_ns(), row.take()), (None, None));
    assert_eq!([row.next_path(), row.next_path(), row.next_path()], [Some(1), Some(2), None]);
    let mut row = stream(&drawn(), &Arrivals::Closed, 1, one_thread(0, 1));
    assert!((0..100).all(|_| row.next_path().is_some_and(|id| id < 10)));
    let mut row = stream(&drawn(), &Arrivals::Log { speed: 1.0 }, 1, one_thread(0, 1));
    assert_eq!((row.next_due_ns(), row.take()), (None, None), "only logs have times of their own");
}

#[test]
fn dynamic_requests_are_for_the_same_files_at_the_same_times() {
    let arrivals = Arrivals::Fixed { phases: vec![phase(10.0, 1000.0)] };
    let chance = Chance { share: 0.3, first: 10 };
    let all = take_all(stream(&drawn(), &arrivals, 1, one_thread(0, 1)));
    let mixed = take_all(stream(&drawn(), &arrivals, 1, one_thread(0, 1)).with_dynamic(chance, 1, 0));
    let as_static = |arrival: &Arrival| Arrival { path_id: arrival.path_id % 10, ..*arrival };
    assert_eq!(mixed.iter().map(as_static).collect::<Vec<_>>(), all);
    let dynamic = mixed.iter().filter(|arrival| arrival.path_id >= 10).count() as f64;
    assert!((dynamic - 3000.0).abs() < 5.0 * 2100_f64.sqrt(), "{dynamic}");
    let other = take_all(stream(&drawn(), &arrivals, 1, one_thread(0, 1)).with_dynamic(chance, 2, 0));
    assert_ne!(mixed, other, "another seed");
    let whole = Chance { share: 1.0, ..chance };
    let dynamic = take_all(stream(&drawn(), &arrivals, 1, one_thread(0, 1)).with_dynamic(whole, 1, 0));
    assert!(dynamic.iter().all(|arrival| (10..20).contains(&arrival.path_id)));
}
