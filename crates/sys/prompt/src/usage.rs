//! Counters of the kernel for the calling thread.

/// How often the calling thread has given up its core to wait, since its start: voluntary context switches
/// (getrusage(2), `RUSAGE_THREAD`). Preemption does not count. The system call takes 0.2 µs.
#[must_use]
pub fn voluntary_switches() -> u64 {
    // SAFETY: all zeros is a valid value of this struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage writes one struct, which outlives the call. It fails only for a bad address or an
    // unknown target, and then leaves the zeros.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_that_waits_costs_one_switch_and_other_threads_cost_none() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let before = voluntary_switches();
        assert!(ours.read(&mut [0]).is_err(), "there is no input");
        assert!(voluntary_switches() > before);
        drop(theirs);
        let others = std::thread::spawn(|| {
            let before = voluntary_switches();
            (0..500).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
            voluntary_switches() - before
        });
        let here = voluntary_switches();
        while !others.is_finished() {
            std::hint::spin_loop();
        }
        let spun = voluntary_switches();
        assert!(others.join().expect("ended") >= 250);
        // A page fault can wait for the memory of the process, which other tests change.
        assert!(spun - here < 100, "the thread only spun, but switched {} times", spun - here);
    }
}
