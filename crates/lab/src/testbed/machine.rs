//! The machine as results describe it: its kind, never its name or its folders.
//!
//! The commands that keep a run call it once, before the load begins.

use std::fs;
use std::thread;

use flash_kit::processes::kib_of;

use crate::results::Machine;

/// This machine; fields that the system does not report are empty or 0.
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cores = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    Machine {
        cpu: cpu_name(&read("/proc/cpuinfo")),
        cores: cores
            .and_then(|list| cores_in(&list))
            .unwrap_or_else(|| thread::available_parallelism().map_or(0, |cores| cores.get() as u32)),
        memory_bytes: memory_bytes(&read("/proc/meminfo")),
        kernel: format!(
            "{} {} {}",
            read("/proc/sys/kernel/ostype").trim(),
            read("/proc/sys/kernel/osrelease").trim(),
            std::env::consts::ARCH
        ),
        load_average: load_average(&read("/proc/loadavg")),
        program: crate::results::program(),
    }
}

fn cpu_name(cpuinfo: &str) -> String {
    // x86; then what some other architectures have.
    for wanted in ["model name", "Model", "Hardware"] {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        if let Some((_, name)) = lines.find(|(key, _)| key.trim() == wanted) {
            return name.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        }
    }
    String::new()
}

/// How many cores a list such as "0-3,5" has; this thread's own may be fewer.
fn cores_in(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

fn memory_bytes(meminfo: &str) -> u64 {
    kib_of(meminfo, "MemTotal").unwrap_or(0) * 1024
}

fn load_average(loadavg: &str) -> f64 {
    loadavg.split_ascii_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some(R)  CPU @ 2.50GHz\n";
        assert_eq!(cpu_name(cpuinfo), "Some(R) CPU @ 2.50GHz");
        assert_eq!(cpu_name("Hardware\t: BCM2835\n"), "BCM2835");
        assert_eq!(cpu_name("processor : 0\n"), "");
        assert_eq!(memory_bytes("MemFree: 7 kB\nMemTotal:       24641052 kB\n"), 25_232_437_248);
        assert!((load_average("0.25 0.40 0.31 2/210 24841\n") - 0.25).abs() < 1e-9);
        for (list, count) in [("0\n", Some(1)), ("0-1", Some(2)), ("0-3,5,8-9", Some(7))] {
            assert_eq!(cores_in(list), count);
        }
        for nonsense in ["", "x", "3-1", "0-4294967295"] {
            assert_eq!(cores_in(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let machine = machine();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
