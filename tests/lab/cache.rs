//! `flash cache simulate` as its users meet it: a log and a workload in, a table, JSON and a page out.

use std::fs;

use serde_json::Value;

use crate::harness::{Folder, flash};

/// Five requests for two files, in two formats, and a line that is none.
const LOG: &str = r#"127.0.0.1 - - [10/Oct/2000:10:00:01 +0000] "GET /a?x=1 HTTP/1.1" 200 700000
no request
{"time":"2000-10-10T10:00:02Z","peer":"::1","host":"a","request":"GET /a HTTP/1.1","status":304,"bytes":0,"whole":true}
{"time":"2000-10-10T10:00:03Z","peer":"::1","host":"a","request":"GET /b HTTP/1.1","status":200,"bytes":100,"whole":true}
127.0.0.1 - - [10/Oct/2000:10:00:04 +0000] "GET /a HTTP/1.1" 206 1000
127.0.0.1 - - [10/Oct/2000:10:00:05 +0000] "POST /a HTTP/1.1" 200 900000
"#;

#[test]
fn a_log_gives_a_table_with_an_answer() {
    let folder = Folder::new();
    let log = folder.write("access.log", LOG);
    let ended = flash([
        "cache",
        "simulate",
        "--log",
        &log,
        "--memory",
        "1MiB,600KiB",
        "--policies",
        "flash,lru,flash",
        "--warm-up",
        "0",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("1 of 6 lines are malformed (line 2: no [time]: no request)"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("1 of 6 lines are left out: 1 not GET"), "{}", ended.stderr);
    let rows: Vec<Vec<&str>> = ended
        .stdout
        .lines()
        .skip_while(|line| !line.contains("policy"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    // Two blocks of /a and one of /b are read once in 1 MiB, and /a is 2 of 4 misses there. In 600 KiB only one block fits.
    assert_eq!(rows[3], ["1", "MiB", "lru", "50.0", "%", "500", "750", "33.3", "%"], "{}", ended.stdout);
    assert_eq!(rows[4][0], "flash");
    assert_eq!(rows[1][..3], ["600", "KiB", "lru"]);
    let answer = ended.stdout.lines().rev().take(2).collect::<Vec<_>>();
    let answer = format!("{} {}", answer[1], answer[0].trim());
    assert_eq!(
        answer,
        "1 MiB with the policy flash holds 50.0 % of the requests (750 disk reads for each 1,000); twice the \
         memory would save no disk reads."
    );
}

#[test]
fn a_workload_gives_json_and_a_page() {
    let folder = Folder::new();
    let out = folder.text("out");
    let words = ["cache", "simulate", "--workload", "specweb99", "--directories", "4", "--requests", "2000"];
    let ended = flash(words.iter().chain(&["--json", "--out", &out]).copied());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 7 * 6, "seven sizes of memory, six policies");
    assert_eq!((found["requests"].as_u64(), found["warm_up_requests"].as_u64()), (Some(2_000), Some(1_000)));
    let of_largest: Vec<_> =
        results[36..].iter().map(|result| result["disk_reads"].as_u64().unwrap()).collect();
    // All fits: the first read of each file is all that any policy needs.
    assert!(of_largest.iter().all(|reads| *reads == of_largest[0]), "{of_largest:?}");
    let lru = |at: usize| results[6 * at]["misses"].as_u64().unwrap();
    assert!(lru(0) > lru(3) && lru(3) > lru(6), "{found:#}");
    assert!(found["answer"].as_str().unwrap().contains("with the policy flash holds"));
    let page = fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("s3-fifo") && !page.contains("NaN"));
    assert_eq!(fs::read_to_string(folder.path("out/report.json")).unwrap(), ended.stdout);
    // A seed repeats a simulation.
    assert_eq!(flash(words.iter().chain(&["--json"]).copied()).stdout, ended.stdout);
}

#[test]
fn bad_usage_is_told_from_what_could_not_run() {
    let folder = Folder::new();
    let empty = folder.write("empty", "");
    let list = folder.write("list", "/a\n");
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 2, "--log <FILE>|--workload <WORKLOAD>"),
        (&["--log", "a", "--workload", "uniform"], 2, "cannot be used with"),
        (&["--log", "a", "--requests", "5"], 2, "cannot be used with"),
        (&["--workload", "specweb99", "--policies", "fifo"], 2, "write one of lru, s3-fifo"),
        (&["--workload", "specweb99", "--memory", "0"], 2, "memory must be more than 0"),
        (&["--workload", "uniform", "--paths", &list], 2, "the length of /a is not known"),
        (&["--log", "/nonexistent/log"], 1, "cannot open /nonexistent/log"),
        (&["--log", &empty], 1, "has no GET with status 200, 206 or 304"),
    ];
    for (words, code, part) in cases {
        let ended = flash(["cache", "simulate"].iter().chain(words).copied());
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {}", ended.stderr);
    }
}
