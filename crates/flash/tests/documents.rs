//! The commands of the documents: `flash` takes every one of them.
//!
//! Each command line in Markdown, in a code block or between backquotes, is run with `--help` behind its options. The
//! command then does nothing, but it refuses an unknown subcommand, option or value.
//!
//! Each block of output says where it is from, in the line above it:
//!
//! - `<!-- printed by: COMMAND -->`: the output of that command, perhaps after a line `$ COMMAND`;
//! - `<!-- from: FILE -->`: each line occurs in that file of the repository, mostly a kept measurement;
//! - `<!-- output: STEP -->`: a step of `bench/walkthrough.py`, which writes the block; each line occurs in what it kept;
//! - `<!-- checked by: TEST -->`: the test of that name makes it or checks it (`tests/documented.rs`);
//! - `<!-- example: ORIGIN -->`: nothing checks it. It is for text that no program prints, and for the few long runs that are not
//!   kept yet; ORIGIN says which.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use skip::skip;

#[path = "../../../tests/skip.rs"]
mod skip;

/// The Markdown files of the project.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders =
        ["", "docs", "docs/experiments", "bench", "modules"].map(|name| root.join(name)).to_vec();
    folders.extend(fs::read_dir(root.join("modules")).unwrap().map(|entry| entry.unwrap().path()));
    let entries =
        folders.iter().filter(|path| path.is_dir()).flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "md"));
    files.sort();
    files
}

/// The command lines of a document. A line that ends with a backslash continues; two spaces begin a remark.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    let text = text.split("\\\n").map(str::trim).collect::<Vec<_>>().join(" ");
    for paragraph in text.split("\n\n").flat_map(|text| text.split_inclusive("```")) {
        for line in paragraph.lines().filter(|line| is_code || line.starts_with("    ")) {
            let line = line.trim_start();
            let line = ["# ", "$ ", "sudo "]
                .iter()
                .fold(line, |rest, prompt| rest.strip_prefix(prompt).unwrap_or(rest));
            found.push(line.to_owned());
        }
        if !is_code {
            // A span may go on in the next line of its paragraph.
            let spans = paragraph.split('`').skip(1).step_by(2);
            found.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        is_code ^= paragraph.ends_with("```");
    }
    found.retain(|line| {
        line.strip_prefix("flash ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    found
}

/// The words of a command line up to a remark, a pipe or the words of another command. `a|b` is one of both: the first.
/// `PID` and the output of a command are a number.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut last) = (None, ' ');
    for c in line.replace("$(", "(").chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            ('(', None) => quote = Some(')'),
            (')', Some(')')) => {
                quote = None;
                words.last_mut().unwrap().push('1');
            }
            (_, Some(open)) if c == open => quote = None,
            (_, Some(')')) => {}
            (' ', None) if last == ' ' => break,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
        last = c;
    }
    let is_own = |word: &String| !["|", ">", "#", "--", "&", "&&"].contains(&word.as_str());
    let first =
        |word: String| word.split('|').next().unwrap_or_default().trim_end_matches("...").replace("PID", "1");
    words.into_iter().skip(1).take_while(is_own).map(first).filter(|word| !word.is_empty()).collect()
}

#[test]
fn flash_takes_every_command_of_the_documents() {
    let mut complaints = String::new();
    let mut count = 0;
    for path in documents() {
        for line in commands(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
            let output = command.args(words(&line)).arg("--help").output().unwrap();
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                let name = path.file_name().unwrap_or_default().display();
                complaints += &format!("{name}: {line}\n  {}\n", why.lines().next().unwrap_or_default());
            }
        }
    }
    assert!(count > 50, "the commands were not found: {count}");
    assert!(complaints.is_empty(), "flash refuses these commands:\n{complaints}");
}

/// The commands that print a block of a document, with the block.
fn printed(text: &str) -> Vec<(&str, String)> {
    let marks = text.split("<!-- printed by: ").skip(1).map(|rest| {
        let (command, rest) = rest.split_once(" -->\n```").expect("a code block below the command");
        let block = rest.split_once('\n').and_then(|(_, rest)| rest.split_once("```")).expect("its end").0;
        (command, block.strip_prefix(&format!("$ {command}\n")).unwrap_or(block).to_owned())
    });
    marks.collect()
}

#[test]
fn the_documents_show_what_flash_prints() {
    let mut count = 0;
    for path in documents() {
        for (command, block) in printed(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let output = Command::new(env!("CARGO_BIN_EXE_flash")).args(words(command)).output().unwrap();
            let name = path.file_name().unwrap_or_default().display();
            assert_eq!(String::from_utf8_lossy(&output.stdout), block, "{name}: {command}");
        }
    }
    assert!(count > 1, "the blocks were not found: {count}");
}

/// A code block with its line number, the line above it and its language.
struct Block<'a> {
    line: usize,
    above: &'a str,
    language: &'a str,
    text: Vec<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_code, mut above) = (false, "");
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), is_code) {
            (Some(language), false) => {
                found.push(Block { line: index + 1, above, language, text: Vec::new() });
                is_code = true;
            }
            (Some(_), true) => is_code = false,
            (None, true) => found.last_mut().expect("an open block").text.push(line),
            (None, false) => above = line,
        }
    }
    found
}

impl Block<'_> {
    /// Blocks without a language are commands, or else output.
    fn is_output(&self) -> bool {
        let first = self.text.first().copied().unwrap_or_default();
        let program = first.split(' ').next().unwrap_or_default();
        match self.language {
            "text" | "console" => true,
            "" => !PROGRAMS.contains(&program) && !program.contains('/') && !program.starts_with("FLASH_"),
            _ => false,
        }
    }

    /// The files in one of which each line of it must occur; an error if nothing says where it is from.
    fn sources(&self, root: &Path) -> Result<Vec<PathBuf>, ()> {
        let mark = self.above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let kept = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().path();
        match mark.and_then(|mark| mark.split_once(": ")).ok_or(())? {
            ("from", file) => Ok(vec![root.join(file)]),
            ("output", _) => {
                let mut files: Vec<PathBuf> =
                    fs::read_dir(root.join("bench/results")).unwrap().map(kept).collect();
                files.retain(|file| file.to_string_lossy().contains("walkthrough"));
                Ok(files)
            }
            ("printed by" | "checked by" | "example", _) => Ok(Vec::new()),
            _ => Err(()),
        }
    }
}

/// The Rust files below a folder, with their text.
fn programs(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            programs(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_checked_block_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    ["crates", "tests"].iter().for_each(|folder| programs(&root.join(folder), &mut sources));
    let mut count = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let marks = text.split("<!-- checked by: ").skip(1).map(|rest| rest.split(" -->").next().unwrap());
        for test in marks {
            count += 1;
            let checks = |source: &&String| {
                let body = source.split(&format!("#[test]\nfn {test}() {{\n")).nth(1);
                body.is_some_and(|body| {
                    let body = body.split("\n}\n").next().unwrap_or_default();
                    body.contains(&format!("{name}\"")) && body.contains(&format!("\"{test}\""))
                })
            };
            assert!(sources.iter().any(|source| checks(&source)), "{name}: no test {test} checks its block");
        }
    }
    assert!(count > 5, "the blocks were not found: {count}");
}

/// A block that begins with one of these programs is commands.
const PROGRAMS: [&str; 10] =
    ["apt-get", "cargo", "flash", "install", "ln", "make", "nginx", "sudo", "systemctl", "xdg-open"];

#[test]
fn every_block_of_output_says_where_it_is_from() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut complaints = String::new();
    let mut count = 0;
    // The blocks of ARCHITECTURE.md are drawings.
    for path in documents().iter().filter(|path| !path.ends_with("ARCHITECTURE.md")) {
        let text = fs::read_to_string(path).unwrap();
        for block in blocks(&text).iter().filter(|block| block.is_output()) {
            count += 1;
            let mut complain = |what: &str| {
                complaints += &format!("{}:{}: {what}\n", path.file_name().unwrap().display(), block.line);
            };
            let Ok(sources) = block.sources(&root) else {
                complain("a block of output, and the line above does not say where it is from");
                continue;
            };
            let kept: Vec<String> = sources.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
            let lines = block.text.iter().map(|line| line.trim()).filter(|line| *line != "...");
            for line in lines.filter(|_| !kept.is_empty()) {
                if !kept.iter().any(|text| text.contains(line)) {
                    complain(&format!("this line does not occur in its source: {line}"));
                }
            }
        }
    }
    assert!(count > 20, "the blocks were not found: {count}");
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn the_man_pages_have_no_warnings() {
    let run = |program: &str, args: &[&str]| Command::new(program).args(args).output();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(run(env!("CARGO_BIN_EXE_flash"), &["man", path]).unwrap().status.success());
    let mut count = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let page = entry.unwrap().path();
        let Ok(lint) = run("mandoc", &["-T", "lint", "-W", "warning", page.to_str().unwrap()]) else {
            return skip("needs mandoc");
        };
        count += 1;
        let complaints = String::from_utf8_lossy(&lint.stdout);
        assert!(lint.status.success(), "{}: {complaints}", page.display());
    }
    assert!(count > 10, "the pages were not found: {count}");
}

#[test]
fn long_help_explains_more_than_short_help() {
    let lines = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flash")).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        output.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    for command in ["serve", "load", "compare"] {
        let (short, long) = (lines(&[command, "-h"]), lines(&[command, "--help"]));
        assert!(short * 3 < long * 2, "{command}: -h has {short} lines, --help {long}");
    }
}

#[test]
fn commands_are_found() {
    let text = "Run `flash\nload URL`.\n\n```\n# flash stats --json   a remark\nflash 12: no\nsudo flash load \\\n  URL --require 'p99<5ms'\n```\n\
                `flash man DIR`\n\n    flash check | less\n    flash doctor $(pgrep -o x) --json\n";
    let found: Vec<String> = commands(text).iter().map(|line| words(line).join(" ")).collect();
    assert_eq!(
        found,
        ["load URL", "stats --json", "load URL --require p99<5ms", "man DIR", "check", "doctor 1 --json"]
    );
}
