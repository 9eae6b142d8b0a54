//! The formulas against closed forms, and against the simulation.

use super::fair::Fair;
use super::simulation::{self, Arrival, Policy, Served};
use super::sizes::Sizes;
use super::srpt::Srpt;
use super::steady::{fair_number, fair_response_s, srpt_response_s, srpt_responses_s};
use super::{Cycle, Period};

const SEED: u64 = 18;

/// W1 of the paper, with a low load of choice.
fn w1(low_load: f64) -> Cycle {
    Cycle { high: Period { duration_s: 25.0, load: 1.2 }, low: Period { duration_s: 25.0, load: low_load } }
}

/// A bounded Pareto distribution with about the figures of the paper's trace (section 3.3.1), on a link of 10 Mbit/s.
fn web() -> Sizes {
    let (least, most, shape) = (300.0_f64, 2.0e6_f64, 1.05_f64);
    let count = 400;
    let size = |number: u32| {
        let share = (f64::from(number) + 0.5) / f64::from(count);
        least * (1.0 - share * (1.0 - (least / most).powf(shape))).powf(-1.0 / shape)
    };
    let sizes: Vec<(f64, f64)> = (0..count).map(|number| (size(number), 1.0)).collect();
    Sizes::new(&sizes, 1.25e6).unwrap()
}

/// Exponential service times of mean 1 in fine steps.
fn exponential() -> Sizes {
    let count = 20_000;
    let size = |number: u32| -(1.0 - (f64::from(number) + 0.5) / f64::from(count)).ln();
    let sizes: Vec<(f64, f64)> = (0..count).map(|number| (size(number), 1.0)).collect();
    Sizes::new(&sizes, 1.0).unwrap()
}

fn single() -> Sizes {
    Sizes::new(&[(1.0, 1.0)], 1.0).unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= share * expected.abs(), "{found} and not {expected}");
}

/// The mean response time of the jobs whose service time is in a range.
fn mean_in(jobs: &[Served], range: std::ops::Range<f64>) -> f64 {
    simulation::mean_s(jobs.iter().filter(|job| range.contains(&job.arrival.service_s))).unwrap()
}

#[test]
fn steady_processor_sharing_is_that_of_mm1() {
    // M/M/1 with service rate 1 and arrivals 0.8: 1 / (1 - 0.8).
    let sizes = exponential();
    let mean: f64 = sizes.atoms().iter().map(|atom| atom.share * fair_response_s(atom.service_s, 0.8)).sum();
    assert_near(mean, 5.0, 0.01);
    assert_near(fair_number(0.8), 4.0, 1e-9);
    assert!(fair_response_s(1.0, 1.0).is_infinite());
}

#[test]
fn steady_srpt_of_one_size_is_md1_in_the_order_of_arrival() {
    // M/D/1 (Pollaczek and Khinchine): 1 + load / (2 (1 - load)).
    for load in [0.1, 0.5, 0.9] {
        assert_near(srpt_response_s(&single(), load), 1.0 + load / (2.0 * (1.0 - load)), 1e-9);
    }
    assert!(srpt_response_s(&single(), 1.0).is_infinite());
}

#[test]
fn steady_srpt_is_that_of_the_simulation() {
    let sizes = exponential();
    let steady = [Period { duration_s: 200_000.0, load: 0.8 }];
    let arrivals = simulation::arrivals(&sizes, &steady, 1, SEED).unwrap();
    let jobs = simulation::serve(&Policy::Srpt, &arrivals).unwrap();
    assert_near(simulation::mean_s(jobs.iter()).unwrap(), srpt_response_s(&sizes, 0.8), 0.03);
    let responses = srpt_responses_s(&sizes, 0.8);
    for range in [0.0..0.5, 0.5..1.0, 1.0..2.0, 2.0..4.0] {
        let of_range = || {
            sizes
                .atoms()
                .iter()
                .zip(&responses)
                .filter(|(atom, _)| range.contains(&atom.service_s))
                .map(|(atom, response)| (atom.share, atom.share * response))
        };
        let (share, sum) = of_range().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        assert_near(mean_in(&jobs, range.clone()), sum / share, 0.05);
    }
    let fair = simulation::serve(&Policy::Fair, &arrivals).unwrap();
    assert_near(simulation::mean_s(fair.iter()).unwrap(), 5.0, 0.04);
}

#[test]
fn small_requests_are_served_under_overload_and_large_ones_wait_for_ever() {
    let sizes = Sizes::new(&[(1.0, 0.5), (10.0, 0.5)], 1.0).unwrap();
    let responses = srpt_responses_s(&sizes, sizes.arrivals_per_s(1.5));
    assert!(responses[0] < 20.0 && responses[1].is_infinite(), "{responses:?}");
}

#[test]
fn overload_of_one_size_under_fair_is_that_of_the_equation_of_growth() {
    // Each second 1.2 requests arrive; 1 - exp(-a) = a / 1.2 has the solution 0.3548 or so.
    let fair = Fair::new(&single(), w1(0.0)).unwrap();
    let a = fair.growth_per_s;
    assert!((1.0 - (-a).exp() - a / 1.2).abs() < 1e-9 && a > 0.3, "{a}");
    assert_near(fair.number_at(25.0), 25.0 * a, 1e-9);
    // All work is there at the end of the overload, and the OFF period serves it in (1.2 - 1) 25 s.
    assert_near(fair.elapsed_s(1.0), 5.0, 1e-3);
    assert!(fair.number_at(29.9) > 0.0 && fair.number_at(30.1) == 0.0);
}

/// The closed form of Theorem 1 for one size of 1: `1 - F_r(y)` is `(rate / a) (1 - exp(-a (1 - y)))`.
#[test]
fn delays_of_one_size_under_fair_are_theorem_1() {
    let fair = Fair::new(&single(), w1(0.0)).unwrap();
    let (a, t, rate) = (fair.growth_per_s, 25.0, 1.2);
    let steps = 20_000;
    let integral = |f: &dyn Fn(f64) -> f64, to: f64| {
        let at = |step: i32| f((f64::from(step) + 0.5) / f64::from(steps) * to);
        (0..steps).map(at).sum::<f64>() * to / f64::from(steps)
    };
    let left = |y: f64| rate / a * (1.0 - (-a * (1.0 - y)).exp());
    // F_e in closed form; (load - 1) t F_e(y) is the time in which each request gets y.
    let elapsed = |y: f64| rate * t * (y - ((-a * (1.0 - y)).exp() - (-a).exp()) / a);
    for y in [0.0, 0.3, 0.9] {
        assert_near(fair.left_share(y), left(y), 1e-9);
        assert_near(fair.elapsed_s(y), integral(&left, y) * a * t, 1e-3);
        assert_near(fair.elapsed_s(y), elapsed(y), 1e-3);
    }
    let theorem = (rate - 1.0) * t * 1.0 - t / 2.0 * (1.0 - (-a).exp())
        + a * t * integral(&|z| (1.0 - left(1.0 - z)) * (-a * z).exp(), 1.0);
    assert_near(fair.delay_in_overload_s(1.0), theorem, 2e-3);
}

#[test]
fn one_size_under_srpt_is_the_deterministic_queue() {
    // In the order of arrival a request that comes at u waits 0.2 u: on average 2.5 s. W1 with low load 0.2 goes on for
    // 6.25 s of it, with arrivals that wait for half of 5 s on average.
    let delays = |low_load| Srpt::new(&single(), w1(low_load)).unwrap().delays_s()[0];
    assert_near(delays(0.0), 2.5, 1e-9);
    assert_near(delays(0.2), (30.0 * 2.5 + 0.2 * 6.25 * 2.5) / 35.0, 1e-9);
    let srpt = Srpt::new(&single(), w1(0.2)).unwrap();
    assert_near(srpt.number_at(25.0), 5.0, 1e-9);
    assert_near(srpt.number_at(25.0 + 6.25 / 2.0), 2.5, 1e-9);
    assert!(srpt.number_at(40.0) < 1.0);
}

#[test]
fn large_requests_under_srpt_wait_as_in_theorem_1() {
    // t (load(x) - 1/2), at the middle of each size's own share of the work.
    let sizes = web();
    let delays = Srpt::new(&sizes, w1(0.0)).unwrap().delays_s();
    let rate = sizes.arrivals_per_s(1.2);
    let mut below = 0.0;
    for (atom, delay_s) in sizes.atoms().iter().zip(delays) {
        let own = rate * atom.share * atom.service_s;
        if below > 1.0 {
            assert_near(delay_s, 25.0 * (below + own / 2.0 - 0.5), 1e-9);
        } else if below + own < 1.0 {
            assert_eq!(delay_s, 0.0);
        }
        below += own;
    }
}

/// Both policies on the sizes of the web, in the ON/OFF model and with low load, against 30 simulated cycles.
#[test]
fn alternating_load_is_that_of_the_simulation() {
    let sizes = web();
    for low_load in [0.0, 0.2, 0.5] {
        let cycle = w1(low_load);
        let cycles = 30;
        let arrivals = simulation::arrivals(&sizes, &[cycle.high, cycle.low], cycles, SEED).unwrap();
        let fair = Fair::new(&sizes, cycle).unwrap();
        let srpt = Srpt::new(&sizes, cycle).unwrap();
        let simulated = |policy| simulation::serve(policy, &arrivals).unwrap();
        let (by_fair, by_srpt) = (simulated(&Policy::Fair), simulated(&Policy::Srpt));
        let means = [&by_fair, &by_srpt].map(|jobs| simulation::mean_s(jobs.iter()).unwrap());
        assert_near(fair.mean_s(), means[0], 0.15);
        assert_near(srpt.mean_s(), means[1], 0.15);
        // The simulation agrees with the theory on who wins, by how much, and that the largest do not lose.
        let gain = fair.mean_s() / srpt.mean_s();
        assert_near(gain, means[0] / means[1], 0.15);
        let largest = sizes.quantile_s(0.99);
        let of_largest = [&by_fair, &by_srpt].map(|jobs| mean_in(jobs, largest..f64::INFINITY));
        assert!(of_largest[1] < 1.1 * of_largest[0], "{of_largest:?}");
    }
}

#[test]
fn a_job_alone_takes_its_service_time_and_two_share() {
    let job = |at_s, service_s| Arrival { at_s, service_s };
    let served = |policy: &Policy, arrivals: &[Arrival]| -> Vec<f64> {
        simulation::serve(policy, arrivals).unwrap().iter().map(|job| job.response_s).collect()
    };
    // The second comes when the first has 2 left. Fair: both get half, until the second ends at 1 + 2.
    let two = [job(0.0, 3.0), job(1.0, 1.0)];
    assert_eq!(served(&Policy::Fair, &two), [4.0, 2.0]);
    assert_eq!(served(&Policy::Srpt, &two), [4.0, 1.0]);
    assert_eq!(served(&Policy::Srpt, &[job(0.0, 3.0), job(1.0, 2.5)]), [3.0, 4.5]);
    // In bands: the first is below the cutoff of 1.5 from 1.5 on, when the second, above it, has not begun.
    let bands = Policy::Bands(vec![1.5]);
    assert_eq!(served(&bands, &two), [4.0, 1.0]);
    assert_eq!(served(&bands, &[job(0.0, 3.0), job(1.4, 2.5)]), [3.1, 4.1]);
    assert_eq!(served(&Policy::Fair, &[]), [0.0; 0]);
    assert_eq!(served(&bands, &[job(5.0, 2.0), job(9.0, 1.0)]), [2.0, 1.0]);
}

#[test]
fn all_policies_keep_the_link_equally_busy_and_srpt_is_the_fastest() {
    let sizes = web();
    let cycle = w1(0.2);
    let arrivals = simulation::arrivals(&sizes, &[cycle.high, cycle.low], 4, SEED).unwrap();
    assert_eq!(arrivals, simulation::arrivals(&sizes, &[cycle.high, cycle.low], 4, SEED).unwrap());
    let cutoffs = [0.5, 0.8, 0.95, 0.993].map(|share| sizes.quantile_s(share)).to_vec();
    let policies = [Policy::Srpt, Policy::Bands(cutoffs), Policy::Fair];
    let served = policies.map(|policy| simulation::serve(&policy, &arrivals).unwrap());
    let ends = served
        .each_ref()
        .map(|jobs| jobs.iter().map(|job| job.arrival.at_s + job.response_s).fold(0.0, f64::max));
    let [srpt, bands, fair] = served.each_ref().map(|jobs| simulation::mean_s(jobs.iter()).unwrap());
    assert!((ends[0] - ends[1]).abs() < 1e-6 && (ends[0] - ends[2]).abs() < 1e-6, "{ends:?}");
    assert!(srpt < bands && bands < fair, "{srpt} {bands} {fair}");
    // Five bands get most of what SRPT gains (section 2.2 of the paper).
    assert!(bands - srpt < 0.25 * (fair - srpt), "{srpt} {bands} {fair}");
    let numbers = simulation::numbers(&served[2], &[0.0, 25.0, 1e9]);
    assert!(numbers[1] > 10.0 && numbers[2] == 0.0, "{numbers:?}");
}

#[test]
fn input_without_sense_is_refused() {
    let cycle = |high_load, low_load, low_s| Cycle {
        high: Period { duration_s: 10.0, load: high_load },
        low: Period { duration_s: low_s, load: low_load },
    };
    for wrong in [
        cycle(1.0, 0.2, 10.0),
        cycle(1.2, 1.0, 10.0),
        cycle(1.2, -0.1, 10.0),
        cycle(f64::NAN, 0.2, 10.0),
        cycle(1.2, 0.2, 0.0),
        // 10 s of a load of 2 leave 10 s of work.
        cycle(2.0, 0.0, 9.0),
    ] {
        assert_eq!(wrong.checked().unwrap_err().exit_code(), 2, "{wrong:?}");
    }
    assert!(cycle(2.0, 0.0, 10.0).checked().is_ok());
    let job = |at_s, service_s| Arrival { at_s, service_s };
    simulation::serve(&Policy::Fair, &[job(1.0, 1.0), job(0.0, 1.0)]).unwrap_err();
    simulation::serve(&Policy::Srpt, &[job(1.0, 0.0)]).unwrap_err();
    simulation::serve(&Policy::Bands(vec![2.0, 1.0]), &[]).unwrap_err();
    let endless = [Period { duration_s: 1e12, load: 0.5 }];
    simulation::arrivals(&single(), &endless, 1, SEED).unwrap_err();
}
