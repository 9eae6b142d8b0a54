//! Whole logs: small ones by hand, and logs of nginx and Apache.

use std::fs;
use std::io::Write;

use tempfile::NamedTempFile;

use super::*;

/// A log file that is removed at the end of its test.
struct LogFile(NamedTempFile);

impl LogFile {
    fn new(bytes: &[u8]) -> Self {
        let file = NamedTempFile::new().unwrap();
        fs::write(&file, bytes).unwrap();
        Self(file)
    }

    fn read(&self) -> AccessLog {
        AccessLog::read(self.0.path(), None).unwrap()
    }
}

/// A line at this many seconds after 10:00:00.
fn line(second: u32, path: &str, status: u16, bytes: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "127.0.0.1 - - [10/Oct/2000:10:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" {status} {bytes}\n"
    )
}

fn requests(log: &AccessLog) -> Vec<(u32, &str)> {
    let start_s = log.requests[0].at_s;
    let of = |request: &Timed| (request.at_s - start_s, &*log.files[request.path_id as usize].path);
    log.requests.iter().map(of).collect()
}

fn files(log: &AccessLog) -> Vec<(&str, Option<u64>)> {
    log.files().iter().map(|file| (&*file.path, file.file_bytes)).collect()
}

#[test]
fn lengths_are_the_largest_seen_and_times_are_sorted() {
    let text = line(5, "/b", 206, "10")
        + &line(5, "/a", 200, "7")
        + &line(3, "/c", 304, "-")
        + &line(9, "/b", 200, "30")
        + &line(4, "/a", 304, "0")
        + &line(5, "/b", 206, "20");
    let log = LogFile::new(text.as_bytes()).read();
    let expected = [(0, "/c"), (1, "/a"), (2, "/b"), (2, "/a"), (2, "/b"), (6, "/b")];
    assert_eq!(requests(&log), expected);
    assert_eq!(files(&log), [("/c", None), ("/a", Some(7)), ("/b", Some(30))]);
    assert_eq!(log.warnings().len(), 1);
    assert!(log.warnings()[0].ends_with("3 of 6 requests stand after a later one; sorted"));
}

#[test]
fn what_is_malformed_or_left_out_is_counted_and_shown() {
    let mut text = line(0, "/a", 200, "1") + "what is this\n\n" + &line(0, "/b", 404, "1");
    text += &line(1, "/a", 200, "1").replace("GET", "POST");
    text += &line(1, "*", 200, "1");
    text += &line(1, "/a", 200, "1")[..40];
    let log = LogFile::new(text.as_bytes()).read();
    assert_eq!(requests(&log), [(0, "/a")]);
    let [malformed, left_out] = log.warnings() else { panic!("{:?}", log.warnings()) };
    assert!(
        malformed
            .contains("2 of 7 lines are malformed (line 2: no [time]: what is this; line 7: no [time]: 127"),
        "{malformed}"
    );
    assert!(
        left_out.ends_with(
            "3 of 7 lines are left out: 1 not GET, 1 with a status other than 200, 206 and 304, 1 without a path"
        ),
        "{left_out}"
    );
}

#[test]
fn only_the_first_malformed_lines_are_shown() {
    let text = line(0, "/a", 200, "1") + &"?\n".repeat(9);
    let log = LogFile::new(text.as_bytes()).read();
    let warning = &log.warnings()[0];
    assert!(
        warning.contains("9 of 10 lines") && warning.ends_with("line 6: no [time]: ?; ...)"),
        "{warning}"
    );
}

#[test]
fn nothing_to_replay_is_an_error_that_says_why() {
    let none = LogFile::new(b"<html>\n");
    let error = AccessLog::read(none.0.path(), None).unwrap_err();
    assert!(error.exit_code() == 1 && error.to_string().contains("line 1: no [time]: <html>"), "{error}");
    assert_eq!(AccessLog::read(LogFile::new(b"").0.path(), None).unwrap_err().exit_code(), 1);
    let missing = AccessLog::read(Path::new("/nonexistent/log"), None).unwrap_err();
    assert!(missing.exit_code() == 1 && missing.to_string().starts_with("cannot open"), "{missing}");
    assert_eq!(AccessLog::read(Path::new("/"), None).unwrap_err().exit_code(), 1);
}

#[test]
fn reads_no_more_lines_than_asked() {
    let text: String = (0..9).map(|second| line(second, "/a", 200, "1")).collect();
    assert_eq!(AccessLog::read(LogFile::new(text.as_bytes()).0.path(), Some(4)).unwrap().len(), 4);
}

fn record(at_s: u32, object: u32, size: u32, status: u8) -> Vec<u8> {
    let words = [at_s, 3, object, size].into_iter().flat_map(u32::to_be_bytes);
    words.chain([0, 0x40 | status, 1, 0x63]).collect()
}

#[test]
fn world_cup_records() {
    let mut bytes =
        [record(894_000_000, 7, 500, 2), record(894_000_002, 8, 9, 19), record(894_000_002, 7, 0, 13)]
            .concat();
    bytes.extend(&record(894_000_003, 7, 1, 2)[..7]);
    let log = LogFile::new(&bytes).read();
    assert_eq!(requests(&log), [(0, "/wc98/7"), (2, "/wc98/7")]);
    assert_eq!(files(&log), [("/wc98/7", Some(500))]);
    let [malformed, left_out] = log.warnings() else { panic!("{:?}", log.warnings()) };
    assert!(malformed.contains("1 of 4 records are malformed (record 4: cut short"), "{malformed}");
    assert!(left_out.contains("1 of 4 records are left out: 1 with a status"), "{left_out}");
}

#[test]
fn gzipped_and_cut() {
    let text: String = (0..3000).map(|n| line(n / 60, &format!("/{n}"), 200, "1")).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let log = LogFile::new(&packed).read();
    assert!(log.len() == 3000 && log.warnings().is_empty());
    // Two members, as gzip(1) allows.
    assert_eq!(LogFile::new(&[packed.clone(), packed.clone()].concat()).read().len(), 6000);
    let cut = LogFile::new(&packed[..packed.len() / 2]).read();
    assert!(cut.len() > 100 && cut.len() < 3000);
    assert!(cut.warnings()[0].contains("cannot be read beyond line"), "{:?}", cut.warnings());
}

#[test]
fn truncation_keeps_the_first_requests_that_fit() {
    let text: String = [(0, "/a", "40"), (1, "/b", "50"), (2, "/a", "60"), (3, "/c", "5"), (4, "/a", "1")]
        .map(|(second, path, bytes)| line(second, path, 200, bytes))
        .concat();
    let file = LogFile::new(text.as_bytes());
    // The files have 60, 50 and 5 bytes.
    for (dataset_bytes, requests, files) in
        [(u64::MAX, 5, 3), (115, 5, 3), (114, 3, 2), (110, 3, 2), (109, 1, 1), (60, 1, 1)]
    {
        let mut log = file.read();
        log.truncate(dataset_bytes).unwrap();
        assert_eq!((log.len(), log.files().len()), (requests, files), "{dataset_bytes}");
    }
    let error = file.read().truncate(59).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("/a of 60"), "{error}");
}

#[test]
fn maps_to_a_list_by_path() {
    let text = line(0, "/a", 200, "1") + &line(1, "/b", 200, "1") + &line(2, "/c", 200, "1");
    let file = LogFile::new(text.as_bytes());
    let mut log = file.read();
    log.map(["/x", "/c", "/a", "/c"].into_iter(), Path::new("list")).unwrap();
    let ids: Vec<_> = log.requests.iter().map(|request| request.path_id).collect();
    assert_eq!(ids, [2, 1]);
    let warning = log.warnings().last().unwrap();
    assert!(warning.starts_with("1 of 3 requests are for files that list lacks, /b first"), "{warning}");
    assert_eq!(file.read().map(["/x"].into_iter(), Path::new("list")).unwrap_err().exit_code(), 2);
}

#[test]
fn a_replay_spreads_the_requests_of_a_second() {
    let seconds = [0, 0, 0, 0, 2, 3, 3];
    let text: String = seconds.iter().map(|&second| line(second, "/a", 200, "1")).collect();
    let replay = Replay::new(&LogFile::new(text.as_bytes()).read());
    let times_ms: Vec<_> = (0..7).map(|index| replay.at_ns(index).unwrap() / 1_000_000).collect();
    assert_eq!(times_ms, [0, 250, 500, 750, 2000, 3000, 3500]);
    assert_eq!((replay.at_ns(7), replay.path_id(7)), (None, None));
    assert_eq!(replay.duration_ns(), 4 * 1_000_000_000);
    assert!((replay.mean_rate_per_s() - 1.75).abs() < 1e-12);
    let rates = [0.3, 1.0, 2.0, 2.5, 9.0].map(|duration_s| replay.rate_per_s(duration_s));
    for (rate, by_hand) in rates.iter().zip([2.0 / 0.3, 4.0, 2.0, 2.0, 1.75]) {
        assert!((rate - by_hand).abs() < 1e-6, "{rates:?}");
    }
}

/// Lines that nginx and Apache wrote for the same requests, some of them odd.
#[test]
fn logs_of_real_servers() {
    let nginx = LogFile::new(include_bytes!("nginx-combined.txt")).read();
    let apache = LogFile::new(include_bytes!("apache-common.txt")).read();
    // Apache had no index configured: it answered 404 where nginx sent three bytes.
    let of_both = [
        ("/a.bin", Some(5000)),
        ("/with%20space.txt", Some(2)),
        ("/%C3%A9.txt", Some(2)),
        ("/empty", Some(0)),
        ("/sub/big", Some(300_000)),
        ("/a.bin?q=%22x%22&y=%5C", Some(5000)),
        ("/index.html", Some(3)),
    ];
    assert_eq!(files(&apache), of_both);
    let of_nginx = [&of_both[..1], &[("/", Some(3))], &of_both[1..]].concat();
    assert_eq!(files(&nginx), of_nginx);
    assert_eq!((nginx.len(), apache.len()), (13, 12));
    let warning = "22 lines are left out: 5 not GET, 4 with a status other than 200, 206 and 304";
    assert!(nginx.warnings()[0].contains(warning), "{:?}", nginx.warnings());
    let warning = "22 lines are left out: 5 not GET, 5 with a status other than 200, 206 and 304";
    assert!(apache.warnings()[0].contains(warning), "{:?}", apache.warnings());
    assert_eq!((nginx.warnings().len(), apache.warnings().len()), (1, 1));
}
