//! Workloads as the commands open them, from small lists and logs.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::workload::{PhaseRate, manifest_head};

/// A folder that is removed at the end of its test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

fn open(spec: &str, options: &Options) -> Result<Workload> {
    Workload::open(&spec.parse().unwrap(), options)
}

fn path(workload: &Workload, path_id: u32) -> String {
    let mut path = Vec::new();
    workload.catalogue().write_path(path_id, &mut path);
    String::from_utf8(path).unwrap()
}

fn specweb99_manifest(directories: u32) -> String {
    let files = "x 1\n".repeat((directories * FILES_PER_DIRECTORY) as usize);
    manifest_head("specweb99", 9) + "\n" + &files
}

#[test]
fn specweb99_by_directories_and_by_manifest() {
    let folder = Folder::new();
    let by_count = open("specweb99", &Options { directories: Some(3), ..Options::default() }).unwrap();
    assert_eq!((by_count.catalogue().len(), by_count.requests_per_connection()), (108, Some(5)));
    assert!(!by_count.catalogue().knows_contents());
    assert_eq!(by_count.describe(), "SPECweb99, 3 directories of 36 files, 15.4 MB");
    assert_eq!(by_count.log_mean_rate_per_s(), None);

    let manifest = Some(folder.file("manifest.txt", &specweb99_manifest(2)));
    let options = Options { manifest, ..Options::default() };
    let by_manifest = open("specweb99", &options).unwrap();
    assert_eq!(by_manifest.catalogue().len(), 72);
    assert_eq!(path(&by_manifest, 36), "/dir00001/class0_1");
    let mut content = Vec::new();
    crate::files::content::fill(9, 36, &mut content);
    assert!(by_manifest.catalogue().content_matches(36, 0, &content));
    content[50] ^= 1;
    assert!(!by_manifest.catalogue().content_matches(36, 0, &content), "the seed is the manifest's");

    let part = Options { directories: Some(1), ..options.clone() };
    assert_eq!(open("uniform", &part).unwrap().catalogue().len(), 36);
    for wrong in [
        Options { directories: Some(3), ..options.clone() },
        Options { directories: Some(0), ..Options::default() },
        Options { directories: Some(DIRECTORIES_MAX + 1), ..Options::default() },
        Options { content_seed: Some(8), ..options.clone() },
        Options { paths: Some("x".into()), ..options.clone() },
        Options { log_loop: true, ..options },
        Options::default(),
    ] {
        assert_eq!(open("specweb99", &wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
    }
}

#[test]
fn lists_of_paths() {
    let folder = Folder::new();
    let paths = Some(folder.file("paths", "/a\n/b 7\n"));
    let options = Options { paths, ..Options::default() };
    let zipf = open("zipf:0.8", &options).unwrap();
    let catalogue = zipf.catalogue();
    assert_eq!((catalogue.len(), catalogue.file_bytes(0), catalogue.file_bytes(1)), (2, None, Some(7)));
    assert_eq!((zipf.requests_per_connection(), catalogue.dataset_bytes()), (None, None));
    assert_eq!(
        zipf.describe(),
        "files by Zipf's law with alpha 0.8, in the order of the list, 2 files of paths"
    );
    let mut row = zipf.demands(&Arrivals::Closed, 1, 1).remove(0);
    let firsts = (0..10_000).filter(|_| row.next_path() == Some(0)).count() as f64 / 1e4;
    // 1 to 2^-0.8.
    assert!((firsts - 0.635).abs() < 0.03, "{firsts}");

    let error = open("specweb99", &options).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("needs a number of directories"), "{error}");
    let seeded = Options { content_seed: Some(1), ..options.clone() };
    assert!(open("uniform", &seeded).unwrap_err().to_string().contains("are not known"));
    let both = Options { directories: Some(1), ..options };
    assert!(open("uniform", &both).unwrap_err().to_string().contains("no manifest of"));
    assert!(open("uniform", &Options::default()).unwrap_err().to_string().contains("no files to draw from"));
    let missing = Options { paths: Some(folder.0.path().join("none")), ..Options::default() };
    assert_eq!(open("uniform", &missing).unwrap_err().exit_code(), 1);
}

#[test]
fn a_single_path_and_its_length() {
    let folder = Folder::new();
    let single = open("single:a b", &Options::default()).unwrap();
    assert_eq!((path(&single, 0).as_str(), single.catalogue().file_bytes(0)), ("/a%20b", None));
    let paths = Some(folder.file("paths", "/x 3\n/y 4\n"));
    let single = open("single:/y", &Options { paths, ..Options::default() }).unwrap();
    assert_eq!((single.catalogue().len(), single.catalogue().file_bytes(0)), (1, Some(4)));
    let options = Options { directories: Some(1), ..Options::default() };
    let single = open("single:/dir00000/class1_2", &options).unwrap();
    assert_eq!(single.catalogue().file_bytes(0), Some(2048));
    assert!(!single.catalogue().knows_contents());
    let options = Options { content_seed: Some(6), ..options };
    let single = open("single:/dir00000/class1_2", &options).unwrap();
    let mut content = Vec::new();
    crate::files::content::fill(6, 10, &mut content);
    assert!(single.catalogue().content_matches(0, 0, &content), "file 10 of the set");
    assert!(!single.catalogue().content_matches(0, 64, &content[..64]));
    assert_eq!(single.demands(&Arrivals::Closed, 1, 2)[1].next_path(), Some(0));
}

/// Three files, of 10, 20 and 5 bytes, asked for at seconds 0, 1, 2, 2 and 3.
fn log_file(folder: &Folder) -> String {
    let line = |second: u32, path: &str, bytes: u32| {
        format!("h - - [10/Oct/2000:10:00:0{second} +0000] \"GET {path} HTTP/1.0\" 200 {bytes}\n")
    };
    let text =
        line(0, "/a", 10) + &line(1, "/b", 20) + &line(2, "/a", 10) + &line(2, "/b", 1) + &line(3, "/c", 5);
    format!("log:{}", folder.file("log", &text).display())
}

fn intended_ms(workload: &Workload, arrivals: &Arrivals) -> Vec<(u64, String)> {
    let mut row = workload.demands(arrivals, 1, 1).remove(0);
    let arrivals = std::iter::from_fn(|| row.take()).take(20);
    arrivals.map(|arrival| (arrival.intended_ns / 1_000_000, path(workload, arrival.path_id))).collect()
}

#[test]
fn a_log_by_itself() {
    let folder = Folder::new();
    let log = open(&log_file(&folder), &Options::default()).unwrap();
    assert_eq!(log.log_mean_rate_per_s(), Some(1.25));
    assert_eq!(log.describe(), "log log: 5 requests in 4 s, 3 files in the catalogue, 35 B");
    let at = |ms, path: &str| (ms, path.to_owned());
    let expected = [at(0, "/a"), at(1000, "/b"), at(2000, "/a"), at(2500, "/b"), at(3000, "/c")];
    assert_eq!(intended_ms(&log, &Arrivals::Log { speed: 1.0 }), expected);

    let cut = Options { dataset_bytes: Some(30), log_loop: true, ..Options::default() };
    let cut = open(&log_file(&folder), &cut).unwrap();
    assert_eq!(cut.catalogue().dataset_bytes(), Some(30));
    let round = intended_ms(&cut, &Arrivals::Log { speed: 1.0 });
    assert_eq!(round[3..5], [at(2500, "/b"), at(3000, "/a")], "the loop of 3 s begins again");
    let phases = vec![PhaseRate { duration_ns: 1_000_000_000, rate_per_s: 6.0 }];
    assert_eq!(intended_ms(&cut, &Arrivals::Fixed { phases }).len(), 6);

    let few = Options { log_lines_max: Some(2), ..Options::default() };
    assert_eq!(open(&log_file(&folder), &few).unwrap().catalogue().len(), 2);
    let directories = Options { directories: Some(1), ..Options::default() };
    assert_eq!(open(&log_file(&folder), &directories).unwrap_err().exit_code(), 2);
}

#[test]
fn a_log_against_a_synthetic_set() {
    let folder = Folder::new();
    let text = manifest_head("log", 4) + "\nt/000/000000 10 /a\nt/000/000001 20 /b\n";
    let options = Options { manifest: Some(folder.file("manifest.txt", &text)), ..Options::default() };
    let log = open(&log_file(&folder), &options).unwrap();
    let paths: Vec<_> =
        intended_ms(&log, &Arrivals::Log { speed: 1.0 }).into_iter().map(|(_, p)| p).collect();
    assert_eq!(paths, ["/t/000/000000", "/t/000/000001", "/t/000/000000", "/t/000/000001"]);
    assert!(log.warnings()[0].contains("1 of 5 requests are for files that"), "{:?}", log.warnings());
    assert!(log.catalogue().knows_contents());
    assert_eq!(log.catalogue().file_bytes(1), Some(20));
    assert!(!log.catalogue().content_matches(1, 0, b"?"));
    // A list without the log's names is looked up by its own.
    let options = Options { paths: Some(folder.file("paths", "/c 5\n")), ..Options::default() };
    let log = open(&log_file(&folder), &options).unwrap();
    assert_eq!(intended_ms(&log, &Arrivals::Log { speed: 1.0 }), [(0, "/c".to_owned())]);
}

#[test]
fn lengths_with_a_heavy_tail_need_their_set() {
    let folder = Folder::new();
    let listed: String = (0..4).map(|number| format!("p/000/{number:06} {}\n", 100 << number)).collect();
    let manifest = folder.file("manifest.txt", &(manifest_head("pareto", 3) + "\n" + &listed));
    let options = Options { manifest: Some(manifest), ..Options::default() };
    let workload = open("pareto", &options).unwrap();
    assert_eq!(workload.mean_of(|bytes| bytes as f64), Some(375.0));
    assert!(workload.catalogue().knows_contents());
    let mut demand = workload.demands(&crate::workload::Arrivals::Closed, 1, 1).remove(0);
    let mut drawn: Vec<u32> = (0..4).filter_map(|_| demand.next_path()).collect();
    drawn.sort_unstable();
    assert_eq!(drawn, [0, 1, 2, 3], "each file once before any comes again");
    let list = Options { paths: Some(folder.file("list", &listed)), ..Options::default() };
    for wrong in [list, Options { directories: Some(1), ..Options::default() }, Options::default()] {
        let error = open("pareto", &wrong).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("flash fileset pareto"), "{error}");
    }
}

#[test]
fn the_mean_length_of_a_log_is_over_its_requests() {
    let folder = Folder::new();
    let line = |path: &str, bytes: u64| {
        format!("h - - [10/Oct/2000:10:00:00 +0000] \"GET {path} HTTP/1.0\" 200 {bytes}\n")
    };
    let file = folder.file("log", &(line("/a", 100) + &line("/a", 100) + &line("/b", 400)));
    let log = Workload::open(&Spec::Log { file }, &Options::default()).unwrap();
    assert_eq!(log.mean_of(|bytes| bytes as f64), Some(200.0));
    let single = Workload::open(&Spec::Single { path: "/x".to_owned() }, &Options::default()).unwrap();
    assert_eq!(single.mean_of(|bytes| bytes as f64), None);
    let sessions = super::Sessions { requests_mean: 2.0, think_mean_s: 1.0 };
    let arrivals =
        crate::workload::Arrivals::Poisson { phases: vec![PhaseRate { duration_ns: 1, rate_per_s: 1.0 }] };
    let refused = log.partly_open(&arrivals, sessions, 1, 1).map(drop).unwrap_err();
    assert!(refused.exit_code() == 2 && refused.to_string().contains("--session"), "{refused}");
}

#[test]
fn dynamic_requests_have_paths_of_their_own() {
    let (dynamic, dynamic_prefix) = (Some(0.3), "/app/".to_owned());
    let options = Options {
        directories: Some(2),
        content_seed: Some(9),
        dynamic,
        dynamic_prefix,
        ..Options::default()
    };
    let workload = open("specweb99", &options).unwrap();
    assert_eq!(
        workload.describe(),
        "SPECweb99, 2 directories of 36 files, 10.2 MB; 30 % of the requests dynamic, below /app/"
    );
    let catalogue = workload.catalogue();
    assert_eq!((catalogue.len(), catalogue.first_dynamic(), catalogue.path_ids_end()), (72, Some(72), 144));
    assert_eq!(
        (path(&workload, 36), path(&workload, 72 + 36)),
        ("/dir00001/class0_1".to_owned(), "/app/dir00001/class0_1".to_owned())
    );
    assert_eq!((catalogue.file_bytes(36), catalogue.file_bytes(72 + 36)), (Some(102), None));
    assert!(!catalogue.content_matches(36, 0, b"no") && catalogue.content_matches(72 + 36, 0, b"no"));
    assert_eq!(workload.mean_of(|bytes| bytes as f64), None);
    let plain = open("specweb99", &Options { dynamic: None, ..options.clone() }).unwrap();
    assert_eq!((plain.catalogue().first_dynamic(), plain.catalogue().path_ids_end()), (None, 72));
    let folder = Folder::new();
    assert_eq!(open(&log_file(&folder), &options).unwrap_err().exit_code(), 2, "a log");
}

#[test]
fn a_list_is_asked_for_in_turn_with_its_methods() {
    let folder = Folder::new();
    let file = folder.file("list", "/a\nPOST http://localhost:1/b\n/c 7\n");
    let spec = Spec::List { file: file.clone() };
    let workload = Workload::open(&spec, &Options::default()).unwrap();
    let mut demand = workload.demands(&crate::workload::Arrivals::Closed, 1, 1).remove(0);
    let drawn: Vec<u32> = (0..4).filter_map(|_| demand.next_path()).collect();
    assert_eq!(drawn, [0, 1, 2, 0]);
    let catalogue = workload.catalogue();
    assert_eq!([0, 1, 2].map(|id| catalogue.method_number(id)), [0, 1, 0]);
    assert_eq!((catalogue.methods(), catalogue.file_bytes(2)), (&["POST".into()][..], Some(7)));
    assert_eq!(workload.server(), Some("http://localhost:1"));
    let drawn = open("uniform", &Options { paths: Some(file.clone()), ..Options::default() }).unwrap();
    assert_eq!(drawn.catalogue().method_number(1), 1, "in any order");
    let both = Options { paths: Some(file), ..Options::default() };
    assert_eq!(Workload::open(&spec, &both).unwrap_err().exit_code(), 2);
}
