//! Records processes and analyses their events while they run: [`record`].
//!
//! It uses one thread, the caller's: it sleeps until a ring fills or a thread waits for a disk, takes the events that are
//! there, and passes them on in the order of time. It waits for files of /proc, never for a traced process.

use std::collections::HashSet;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flash_waiting::perf;
use flash_waiting::program::{Signal, signal};
use flash_waiting::suspended::{Parent, SuspendedProgram};

use crate::analysis::Analysis;
use crate::attach::{Attached, RINGS_BYTES_MAX, ring_bytes};
use crate::event::Event;
use crate::model::{Ending, Trace};
use crate::roles;
use crate::roll_call::RollCall;
use crate::tap::Tap;
use crate::world::{Machine, in_call, is_hidden};
use flash_kit::Stop;
use flash_kit::interrupt;
use flash_kit::number::binary_size;
use flash_kit::{Error, Result};

/// How often rings are read at least.
const INTERVAL: Duration = Duration::from_millis(20);
/// Younger events wait for the next turn: another core can still write an older one.
const SETTLING_NS: u64 = 300_000;
/// After a wake-up it waits so long, so that what woke it is old enough.
const SETTLING: Duration = Duration::from_micros(400);
const DURATION_MAX_S: f64 = 3600.0;
const BUFFER_BYTES_MIN: u64 = 4096;
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// How long a command that was started here has to end after TERM.
const COMMAND_END_MAX: Duration = Duration::from_secs(5);

/// The processes to record.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A process that runs, and all that descends from it.
    Process(u32),
    /// A command that is started for it: the program and its arguments.
    Command(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct RecordOptions {
    pub subject: Subject,
    /// How long, in seconds; none is until the command ends.
    pub duration_s: Option<f64>,
    /// The buffer of each core between the kernel and this process, in bytes; rounded up to a power of two.
    pub buffer_bytes: u64,
}

/// The buffer of a core, when nothing else is asked for.
pub const BUFFER: &str = "8MiB";

/// Records, and says what it means. A signal ends it early, with what there is.
///
/// Errors: usage, for options that make no sense; run, without the right to trace (the message says what is
/// needed), without the process, or for a command that can't be started.
pub(crate) fn record(options: &RecordOptions) -> Result<Trace> {
    check(options)?;
    let buffer_bytes = options.buffer_bytes as usize;
    // Before any thread is started.
    let stop = interrupt::watch()?;
    let machine = Machine::new();
    let started = match &options.subject {
        Subject::Process(pid) => Started { pid: *pid, held: None },
        Subject::Command(words) => Started::held(words)?,
    };
    let is_held = started.held.is_some();
    let attached = Attached::new(started.pid, buffer_bytes, is_held)?;
    let threads = &attached.threads;
    let mut tap = Tap::open(started.pid);
    for pid in threads.iter().map(|thread| thread.pid).collect::<HashSet<u32>>() {
        tap.look(pid);
    }
    // One that is held has yet to begin. The trace of others begins when all of it records, soon after they were
    // looked at.
    let in_calls: Vec<_> =
        threads.iter().map(|thread| if is_held { None } else { in_call(thread.pid, thread.tid) }).collect();
    if !is_held {
        attached.enable()?;
    }
    let start_ns = perf::now_ns();
    let started_unix_ms =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut analysis = Analysis::new(start_ns);
    for (thread, in_call) in threads.iter().zip(in_calls) {
        analysis.add_thread(thread.pid, thread.tid, &thread.name, in_call);
    }
    let running = started.go()?;
    let until_ns = options.duration_s.map(|seconds| start_ns + (seconds * 1e9) as u64);
    let mut recorder =
        Recorder { attached, tap, analysis, machine, until_ns, bytes: vec![], waiting: vec![], events: 0 };
    let ending = recorder.run(&stop)?;
    let end_ns = until_ns.map_or_else(perf::now_ns, |until_ns| until_ns.min(perf::now_ns()));
    let lost = recorder.attached.lost();
    let analysis = std::mem::take(&mut recorder.analysis);
    let mut trace = analysis.finish(end_ns, ending, lost, &mut recorder.machine);
    trace.command_line = flash_kit::command_line();
    trace.kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    trace.started_unix_ms = started_unix_ms;
    trace.events = recorder.events;
    roles::settle(&mut trace);
    note(&mut trace, &mut recorder, options);
    // Nothing is recorded of its end.
    drop(recorder);
    if let Some((child, _parent)) = running {
        end(child);
    }
    Ok(trace)
}

fn check(options: &RecordOptions) -> Result<()> {
    if let Some(seconds) = options.duration_s
        && !(seconds > 0.0 && seconds <= DURATION_MAX_S)
    {
        let text = format!("a duration of {seconds} s: it must be above 0 and at most {DURATION_MAX_S} s");
        return Err(Error::usage(text));
    }
    if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&options.buffer_bytes) {
        return Err(Error::usage(format!(
            "a buffer of {}: it must be of {} to {}",
            binary_size(options.buffer_bytes),
            binary_size(BUFFER_BYTES_MIN),
            binary_size(BUFFER_BYTES_MAX)
        )));
    }
    match &options.subject {
        Subject::Process(pid) if *pid == std::process::id() => Err(Error::usage("flash cannot trace itself")),
        Subject::Command(words) if words.is_empty() => Err(Error::usage("name a command after --")),
        _ => Ok(()),
    }
}

/// Adds notes that the numbers do not show.
fn note(trace: &mut Trace, recorder: &mut Recorder, options: &RecordOptions) {
    let missing = &mut trace.missing;
    missing.threads_dropped += recorder.attached.threads_dropped;
    missing.packets_lost = recorder.tap.lost();
    missing.notes.extend(recorder.tap.note());
    let mut note = |text: &str| missing.notes.push(text.to_owned());
    if trace.processes.iter().any(|process| is_hidden(process.pid)) {
        note(
            "reading /proc/PID/fd is not permitted: files, connections and requests are unknown; this needs root or \
             CAP_SYS_PTRACE",
        );
    }
    let held_up = trace.threads.iter().any(|thread| thread.held_up.times > 0);
    if held_up && trace.requests.seen == 0 && recorder.tap.has_listeners() {
        note(
            "no request was seen on the network (TLS, HTTP/2, a UNIX socket?): delays are reported by connection",
        );
    }
    if recorder.machine.hides_symbols() {
        note("the kernel hides its symbols (kptr_restrict): reasons are guessed from calls");
    }
    let (wanted, got) = (options.buffer_bytes, recorder.attached.ring_bytes as u64);
    if got < wanted {
        let is_shared = got == ring_bytes(wanted as usize, recorder.attached.rings.len()) as u64;
        let why = if is_shared {
            format!("all cores share {} at most", binary_size(RINGS_BYTES_MAX as u64))
        } else {
            "the kernel refused more (perf_event_mlock_kb)".to_owned()
        };
        note(&format!(
            "the buffer per core has {} instead of {}: {why}",
            binary_size(got),
            binary_size(wanted)
        ));
    }
    if recorder.attached.decoder.broken > 0 {
        note(&format!("{} records could not be decoded", recorder.attached.decoder.broken));
    }
}

/// The process to record, and whether it is held before its first instruction.
struct Started {
    pid: u32,
    held: Option<(SuspendedProgram, String)>,
}

impl Started {
    fn held(words: &[String]) -> Result<Self> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Error::usage("name a command after --"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let held = SuspendedProgram::new(command)
            .map_err(|why| Error::run(format!("cannot start {program}: {why}")))?;
        Ok(Self { pid: held.pid(), held: Some((held, program.clone())) })
    }

    /// One that was held begins, and its events with it.
    fn go(self) -> Result<Option<(Child, Parent)>> {
        let Some((held, program)) = self.held else { return Ok(None) };
        held.go().map(Some).map_err(|why| Error::run(format!("cannot start {program}: {why}")))
    }
}

/// A command that outlives its trace is asked to end, as it was started for the trace. It is never killed.
fn end(mut child: Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    let pid = child.id();
    let _ = signal(pid, Signal::TERM);
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while waited < COMMAND_END_MAX {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(step);
        waited += step;
    }
    eprintln!("warning: process {pid} was sent TERM when the trace was over, and still runs");
}

struct Recorder {
    attached: Attached,
    tap: Tap,
    analysis: Analysis,
    machine: Machine,
    /// When it ends, if that is known.
    until_ns: Option<u64>,
    bytes: Vec<u8>,
    /// Events that are not handed over yet, by time.
    waiting: Vec<Event>,
    events: u64,
}

impl Recorder {
    fn run(&mut self, stop: &Stop) -> Result<Ending> {
        let mut roll_call = RollCall::new();
        loop {
            let left_ns = self.until_ns.map_or(u64::MAX, |until_ns| until_ns.saturating_sub(perf::now_ns()));
            let timeout = if self.waiting.is_empty() { INTERVAL } else { SETTLING };
            let rings = self.attached.rings.iter().map(|(_, ring)| ring);
            perf::wait(rings, timeout.min(Duration::from_nanos(left_ns)))
                .map_err(|why| Error::run(format!("cannot wait for events: {why}")))?;
            let ending = if self.until_ns.is_some_and(|until_ns| perf::now_ns() >= until_ns) {
                Some(Ending::Duration)
            } else {
                stop.is_set().then_some(Ending::Interrupted)
            };
            let settled_ns = self.take(if ending.is_some() { 0 } else { SETTLING_NS });
            self.analysis.look(&mut self.machine);
            if let Some(ending) = ending {
                return Ok(ending);
            }
            roll_call.go_on(&mut self.analysis, &mut self.tap, settled_ns);
            if self.waiting.is_empty() && !self.analysis.has_running_threads() {
                return Ok(Ending::TargetEnded);
            }
        }
    }

    /// Hands over what there is and is at least `settling_ns` old, and not of after the end: gives from when on
    /// there may be more.
    fn take(&mut self, settling_ns: u64) -> u64 {
        // Older events were written before the rings are read.
        let settled_ns = perf::now_ns().saturating_sub(settling_ns);
        for (core, ring) in &mut self.attached.rings {
            self.bytes.clear();
            ring.take(&mut self.bytes);
            self.attached.decoder.decode(*core, &self.bytes, &mut self.waiting);
        }
        self.tap.take(&mut self.waiting);
        self.waiting.sort_by_key(|event| event.time_ns);
        let ready = self.waiting.partition_point(|event| event.time_ns <= settled_ns);
        self.events += ready as u64;
        for event in self.waiting.drain(..ready) {
            if self.until_ns.is_none_or(|until_ns| event.time_ns <= until_ns) {
                self.analysis.feed(event, &self.machine);
            }
        }
        settled_ns
    }
}
