//! The SPECweb99-style score: how many connections at once a server gives their bit rate.
//!
//! A profile asks for it. Each client asks without pause and reads no faster than its pace; a
//! connection conforms when it still got the least bit rate over the whole try.

use flash_waiting::process;

use crate::drive::{Driver, Level, Served, Users};
use crate::results::{Score, ScoreTry};
use flash_kit::Result;
use flash_kit::number::figure;
use flash_load::generator::ClientTotals;

/// The most that each client reads (blocking-induced-latency, section 2.3; SPECweb99).
const PACE_BITS_PER_S: u64 = 400_000;
/// The least that it must get.
const LEAST_BITS_PER_S: u64 = 320_000;
/// The most failures.
const ERRORS_SHARE_MAX: f64 = 0.01;
/// How long a try lasts by default: some thirty files of the average size, seconds.
const TRY_S: f64 = 10.0;
/// The descriptors that every system allows (POSIX, `OPEN_MAX`), and those that the generator needs beside connections.
const DESCRIPTORS_LEAST: u64 = 256;
const DESCRIPTORS_KEPT: u64 = 64;
/// Where the search begins.
const CONNECTIONS_FIRST: u32 = 64;
/// The search ends when the numbers that passed and failed are this close.
const CLOSE_SHARE: f64 = 0.02;

/// Finds the score, up to `most` connections, by doubling, then by bisection.
pub(super) fn find(driver: &mut Driver, served: &Served, most: u32) -> Result<Score> {
    let limit = process::raise_descriptor_limit().unwrap_or(DESCRIPTORS_LEAST);
    let possible = limit.saturating_sub(DESCRIPTORS_KEPT).clamp(1, u64::from(u32::MAX)) as u32;
    let most = possible.min(most);
    let mut tries = Vec::new();
    let mut limited = false;
    let (mut passed, mut failed) = (0, None);
    while !driver.is_interrupted() {
        let connections = match next(passed, failed, most) {
            Some(connections) => connections,
            None => break,
        };
        let (found, limit) = attempt(driver, served, connections)?;
        if let (false, Some(limit)) = (limited, limit) {
            driver.note(format!("{connections} connections: the score may be the generator's: {limit}"));
            limited = true;
        }
        if driver.is_interrupted() {
            break;
        }
        eprintln!(
            "{}: {connections} connections: {} conform, the slowest got {} kbit/s",
            served.name,
            found.conforming,
            figure(found.slowest_bits_per_s / 1000.0)
        );
        if found.passed {
            passed = connections;
        } else {
            failed = Some(connections);
        }
        tries.push(found);
    }
    if failed.is_none() && passed == most {
        let bound = if most == possible { "this process's descriptors (ulimit -n)" } else { "--score" };
        driver.note(format!("the score is bounded by {bound}, {most} connections, not by the server"));
    }
    Ok(Score {
        connections: passed,
        pace_bits_per_s: PACE_BITS_PER_S,
        least_bits_per_s: LEAST_BITS_PER_S,
        tries,
    })
}

/// How many connections to try next; none when it is found.
fn next(passed: u32, failed: Option<u32>, most: u32) -> Option<u32> {
    match failed {
        None if passed == 0 => Some(CONNECTIONS_FIRST.min(most)),
        None if passed >= most => None,
        None => Some(passed.saturating_mul(2).min(most)),
        Some(failed) => {
            let gap = failed - passed;
            let close = (f64::from(failed) * CLOSE_SHARE) as u32;
            (gap > close.max(1)).then_some(passed + gap / 2)
        }
    }
}

/// One try, and the reason if the generator was its limit.
fn attempt(driver: &mut Driver, served: &Served, connections: u32) -> Result<(ScoreTry, Option<String>)> {
    let duration_s = driver.options.duration_s.unwrap_or(TRY_S);
    let users = Users {
        connections_max: connections,
        read_bytes_per_s: Some(PACE_BITS_PER_S / 8),
        ..driver.options.users.clone()
    };
    let level = Level { users: Some(users), ..Level::infinite("score", connections, duration_s) };
    let driven = driver.level(served, &level)?;
    let rates: Vec<f64> = driven.clients.iter().map(bits_per_s).collect();
    let conforming = rates.iter().filter(|rate| **rate >= LEAST_BITS_PER_S as f64).count() as u32;
    let counts = &driven.measures.counts;
    let errors_share = counts.failures() as f64 / counts.asked.max(1) as f64;
    let found = ScoreTry {
        connections,
        conforming,
        slowest_bits_per_s: rates.iter().copied().reduce(f64::min).unwrap_or(0.0),
        errors_share,
        passed: conforming == connections && errors_share < ERRORS_SHARE_MAX,
    };
    Ok((found, driven.measures.generator.limit))
}

/// The bit rate of a client over the time in which it had a request under way.
fn bits_per_s(client: &ClientTotals) -> f64 {
    if client.active_ns == 0 { 0.0 } else { client.body_bytes as f64 * 8e9 / client.active_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the search when everything up to `limit` passes, and the number of tries.
    fn search(limit: u32, most: u32) -> (u32, u32) {
        let (mut passed, mut failed, mut tries) = (0, None, 0);
        while let Some(connections) = next(passed, failed, most) {
            assert!(connections <= most && connections > 0);
            if connections <= limit {
                passed = connections;
            } else {
                failed = Some(connections);
            }
            tries += 1;
        }
        (passed, tries)
    }

    #[test]
    fn the_search_comes_within_two_percent() {
        for limit in [1, 63, 64, 65, 100, 999, 5_000, 19_999] {
            let (found, tries) = search(limit, 20_000);
            assert!(
                found <= limit && f64::from(limit - found) <= (f64::from(limit) * 0.021).max(1.0),
                "{limit}: {found}"
            );
            assert!(tries <= 16, "{limit}: {tries} tries");
        }
        assert_eq!(search(0, 20_000).0, 0);
        assert_eq!(search(u32::MAX, 20_000).0, 20_000);
        assert_eq!(search(u32::MAX, 10), (10, 1));
    }
}
