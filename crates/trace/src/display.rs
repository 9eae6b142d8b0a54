//! The words for parts of a kernel trace: times, processes, the file or socket of a call, warnings.
//!
//! `table`, `page`, `diagnosis`, `pools` and `diagnosis_text` call it, so that they use the same words. Names in a kernel trace
//! come from outside: control characters are removed and lengths bounded here. Pure.

use crate::model::{BlockedCall, Ending, Process, ReasonTotal, Target, TargetKind, Trace};
use flash_kit::number::{self, count, plain};

/// The longest path or request that is shown, characters.
pub(crate) const NAME_CHARS_MAX: usize = 44;
/// The functions of a kernel stack that are shown, without those that every wait begins with.
const STACK_SHOWN: usize = 6;
const OF_EVERY_WAIT: [&str; 4] = ["__schedule", "schedule", "schedule_timeout", "io_schedule"];

/// Nanoseconds in the unit in which people say them.
pub(crate) fn time(time_ns: u64) -> String {
    number::time(time_ns as f64 / 1e6)
}

/// One noun or several: "1 call", "2,000 calls".
pub(crate) fn many(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// One of something or several, with an irregular plural.
pub(crate) fn several(number: usize, one: &str, more: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { one } else { more })
}

/// The name and the id of a process; the name is that of its program, as its command line has it.
pub(crate) fn process(trace: &Trace, pid: u32) -> String {
    match trace.processes.iter().find(|process| process.pid == pid).map(program) {
        Some(name) if !name.is_empty() => format!("{name} {pid}"),
        _ => format!("process {pid}"),
    }
}

/// The name of a process's program. One that is executed anew by /proc/self/exe is called "exe" by the kernel.
pub(crate) fn program(process: &Process) -> String {
    let word = process.command.split_whitespace().next().unwrap_or_default();
    let name = word.rsplit('/').next().unwrap_or_default().trim_end_matches(':');
    shortened(if name.is_empty() { &process.name } else { name })
}

/// The name and the id of a thread; of the first one of a process, that of the process.
pub(crate) fn thread(trace: &Trace, tid: u32) -> String {
    match trace.threads.iter().find(|thread| thread.tid == tid) {
        Some(thread) if thread.pid != tid && !thread.name.is_empty() => {
            format!("{} {tid}", shortened(&thread.name))
        }
        Some(thread) if thread.pid != tid => format!("thread {tid}"),
        _ => process(trace, tid),
    }
}

/// The file or socket of a call, if there is one.
pub(crate) fn on_what(call: &BlockedCall) -> Option<String> {
    match (&call.target, &call.path, call.fd) {
        (Some(it), ..) if !it.name.is_empty() => Some(target(it)),
        (_, Some(path), _) => Some(path_end(path)),
        (_, _, Some(fd)) => Some(format!("descriptor {fd}")),
        _ => None,
    }
}

/// A call with its file or socket.
pub(crate) fn call_on_what(call: &BlockedCall) -> String {
    match on_what(call) {
        Some(what) => format!("{} of {what}", call.call),
        None => call.call.clone().into_owned(),
    }
}

/// The name of a target: the end of a path, or the peer of a connection.
pub(crate) fn target(target: &Target) -> String {
    let doubt = if target.is_uncertain { " (?)" } else { "" };
    let name = match target.kind {
        TargetKind::Socket => shortened(peer(&target.name)),
        _ => path_end(&target.name),
    };
    name + doubt
}

/// The peer's part of a connection's name.
pub(crate) fn peer(name: &str) -> &str {
    name.rsplit(" - ").next().unwrap_or(name)
}

/// A path that is too long loses its beginning, a folder at a time: its end is more useful.
pub(crate) fn path_end(path: &str) -> String {
    let path = plain(path);
    if path.chars().count() <= NAME_CHARS_MAX {
        return path;
    }
    let folders = path.match_indices('/').map(|(at, _)| &path[at..]);
    let fits = |end: &&str| end.chars().count() < NAME_CHARS_MAX;
    match folders.filter(fits).map(|end| format!("…{end}")).next() {
        Some(end) if end.len() > "…/".len() => end,
        _ => shortened(&path),
    }
}

pub(crate) fn shortened(text: &str) -> String {
    flash_kit::text::cut(&plain(text), NAME_CHARS_MAX)
}

/// The request that a call was made for, where its path, without a query, is the end of that of the file: the buffer
/// that it was read from may hold another one by then.
pub(crate) fn own_request(call: &BlockedCall) -> Option<String> {
    let line = call.request.as_deref()?;
    let path = line.split_whitespace().nth(1)?.split('?').next()?;
    let file = &call.target.as_ref()?.name;
    (path.len() > 1 && file.ends_with(path)).then(|| request(line))
}

/// A request without the version of the protocol.
pub(crate) fn request(line: &str) -> String {
    let line = line.trim_end();
    shortened(line.rsplit_once(" HTTP/").map_or(line, |(request, _)| request))
}

/// The reasons why calls blocked, the longest first.
pub(crate) fn reasons(reasons: &[ReasonTotal]) -> String {
    match reasons {
        [only] => only.reason.text().to_owned(),
        _ => {
            let each =
                reasons.iter().map(|total| format!("{} {}", total.reason.text(), time(total.blocked_ns)));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The innermost functions of a kernel stack.
pub(crate) fn stack(call: &BlockedCall) -> String {
    let telling = call.stack.iter().skip_while(|name| OF_EVERY_WAIT.contains(&name.as_str()));
    let shown: Vec<String> = telling.take(STACK_SHOWN).map(|name| plain(name)).collect();
    shown.join(" < ")
}

/// The limits of the figures: lost events, dropped threads and the like.
pub(crate) fn warnings(trace: &Trace) -> Vec<String> {
    let (missing, requests) = (&trace.missing, &trace.requests);
    let counted = [
        (missing.events_lost, "", "event", " lost: counts and times are too low"),
        (missing.calls_broken, "only the beginning or the end of ", "call", " was seen"),
        (
            missing.blocked_dropped,
            "",
            "blocked call",
            " are in the totals but not in the lists, which keep the longest",
        ),
        (missing.targets_dropped, "", "file, socket or pipe", " are not in the list of files"),
        (missing.threads_dropped, "", "thread", " were not followed"),
        (
            missing.packets_lost,
            "",
            "packet",
            " lost that began a request or an answer: some requests are missing",
        ),
        (missing.requests_dropped, "", "request", " were not followed"),
        (requests.answers_missed, "no answer was seen to ", "request", ""),
        (requests.unattributed, "the thread that served ", "request", " is not known"),
    ];
    let counted = counted.into_iter().filter(|(number, ..)| *number > 0);
    let mut warnings: Vec<String> = counted
        .map(|(number, before, noun, after)| format!("{before}{}{after}", many(number, noun)))
        .collect();
    if trace.ending == Ending::TargetEnded {
        warnings.push("the traced process has ended".to_owned());
    }
    warnings.extend(trace.missing.notes.iter().map(|note| plain(note)));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_name_of_its_program() {
        let called = |name: &str, command: &str| {
            program(&Process { name: name.to_owned(), command: command.to_owned(), ..Process::default() })
        };
        assert_eq!(called("exe", "flash role worker"), "flash");
        assert_eq!(called("nginx", "nginx: worker process"), "nginx");
        assert_eq!(called("h2o", "/usr/bin/h2o -c h2o.conf"), "h2o");
        assert_eq!(called("kthread", ""), "kthread");
    }

    #[test]
    fn a_long_path_keeps_its_end() {
        assert_eq!(path_end("/srv/set/dir1/class0_3"), "/srv/set/dir1/class0_3");
        let long = format!("/{}/dir1/class0_3", "x".repeat(80));
        assert_eq!(path_end(&long), "…/dir1/class0_3");
        assert_eq!(path_end(&"y".repeat(80)).chars().count(), NAME_CHARS_MAX);
        assert_eq!(path_end(&format!("/{}/", "z".repeat(80))).chars().count(), NAME_CHARS_MAX);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let socket = Target {
            kind: TargetKind::Socket,
            name: "127.0.0.1:80 - 127.0.0.1:4\u{1b}[2J".to_owned(),
            ..Target::default()
        };
        assert_eq!(target(&socket), "127.0.0.1:4\u{fffd}[2J");
        assert_eq!(request("GET /a\u{1b} HTTP/1.1\r\n"), "GET /a\u{fffd}");
        assert_eq!(request("GET /b"), "GET /b");
    }

    #[test]
    fn a_request_is_named_only_where_it_fits_the_file() {
        let file = |name: &str| Some(Target { name: name.to_owned(), ..Target::default() });
        let call = |request: &str| BlockedCall {
            request: Some(request.to_owned()),
            target: file("/srv/dir1/a"),
            ..BlockedCall::default()
        };
        assert_eq!(own_request(&call("GET /dir1/a HTTP/1.1")).as_deref(), Some("GET /dir1/a"));
        assert_eq!(own_request(&call("GET /dir1/a?x=1 HTTP/1.1")).as_deref(), Some("GET /dir1/a?x=1"));
        assert_eq!(own_request(&call("GET /dir2/b HTTP/1.1")), None);
        assert_eq!(own_request(&call("GET / HTTP/1.1")), None);
        assert_eq!(own_request(&BlockedCall { target: None, ..call("GET /dir1/a") }), None);
    }

    #[test]
    fn missing_data_is_reported() {
        let mut trace = Trace::default();
        assert_eq!(warnings(&trace), Vec::<String>::new());
        trace.missing.events_lost = 1234;
        trace.missing.packets_lost = 1;
        trace.ending = Ending::TargetEnded;
        trace.missing.notes.push("no symbols".to_owned());
        assert_eq!(
            warnings(&trace),
            [
                "1,234 events lost: counts and times are too low",
                "1 packet lost that began a request or an answer: some requests are missing",
                "the traced process has ended",
                "no symbols"
            ]
        );
    }
}
