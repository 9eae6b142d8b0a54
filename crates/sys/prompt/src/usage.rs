//! What the kernel has counted for the calling thread.

/// How often the calling thread has given its core up to wait for something, since its start: voluntary
/// context switches (getrusage(2), `RUSAGE_THREAD`). Preemption is not among them. A system call of 0.2 µs.
#[must_use]
pub fn voluntary_switches() -> u64 {
    // SAFETY: all zeros is a valid value of this struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage writes one struct, which outlives the call. It fails for a bad address or an unknown
    // target only, and leaves the zeros then.
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
    fn a_call_that_waits_costs_one_and_what_others_do_costs_none() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let before = voluntary_switches();
        assert!(ours.read(&mut [0]).is_err(), "nothing to be read");
        assert!(voluntary_switches() > before);
        drop(theirs);
        let others = std::thread::spawn(|| {
            let before = voluntary_switches();
            (0..50).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
            voluntary_switches() - before
        });
        let here = voluntary_switches();
        while !others.is_finished() {
            std::hint::spin_loop();
        }
        let spun = voluntary_switches();
        assert!(others.join().expect("ended") >= 50);
        // A page fault may wait for the memory of the process, which other tests change.
        assert!(spun - here < 10, "it only spun: {}", spun - here);
    }
}
