//! `flash man`: writes the man pages, which clap_mangen makes from the command line's definition.
//!
//! `pages.md` in this folder holds the sections that are not made from the options, `settings_page.rs` makes flash.toml(5).

mod settings_page;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::output;

/// The program and the manual, as the foot and the head of each page name them.
const SOURCE: &str = concat!("flash ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Flash Manual";
const CHANGES: &str = include_str!("../../../../CHANGELOG.md");
const PAGES: &str = include_str!("man/pages.md");

#[derive(Debug, clap::Args)]
#[command(after_help = "To read a page: flash man DIR && man DIR/flash-serve.1")]
pub(crate) struct Man {
    /// Write each page to a file in this directory: flash.1, flash-serve.1, ...
    #[arg(value_hint = clap::ValueHint::DirPath, conflicts_with = "stdout")]
    dir: Option<PathBuf>,

    /// Print all pages to standard output [default: without DIR]
    #[arg(long)]
    stdout: bool,
}

impl Man {
    pub(crate) fn run(self) -> ExitCode {
        let Some(folder) = self.dir else {
            return match pages() {
                Ok(pages) => output::print(pages.into_iter().flat_map(|(_, text)| text).collect::<Vec<u8>>()),
                Err(error) => failed("make the man pages", &error),
            };
        };
        match write(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&format!("write the man pages to `{}`", folder.display()), &error),
        }
    }
}

fn failed(action: &str, error: &io::Error) -> ExitCode {
    eprintln!("error: cannot {action}: {error}");
    ExitCode::FAILURE
}

fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, text) in pages()? {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// The pages with their file names: the program's first, then one for each subcommand, then that of the settings.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = super::Cli::command().disable_help_subcommand(true);
    program.build();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
    let commands: Vec<Command> = std::iter::once(&program).chain(shown).cloned().collect();
    let pages = commands.into_iter().map(page);
    let settings = settings_page::page().map(|text| (settings_page::FILE_NAME.to_owned(), text));
    pages.chain([settings]).collect()
}

fn page(mut command: Command) -> io::Result<(String, Vec<u8>)> {
    let is_program = command.has_subcommands();
    let name = command.get_name().to_owned();
    let usage = command.render_usage().to_string();
    // A man page has one section OPTIONS; each heading of the help would become another section.
    let command = command.mut_args(|arg| arg.help_heading(None::<&str>));
    let man = clap_mangen::Man::new(command).date(date()).source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(&usage).to_writer(&mut text)?;
    let (before, after): (Vec<_>, Vec<_>) =
        sections(&name).partition(|(heading, _)| *heading == "DESCRIPTION");
    for (heading, body) in before {
        section(heading, body).to_writer(&mut text)?;
    }
    text.extend(options(&man)?);
    if is_program {
        man.render_subcommands_section(&mut text)?;
    }
    for (heading, body) in after {
        section(heading, body).to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// The date of the newest section of the change log. The clock would give other pages with each build.
fn date() -> &'static str {
    let heading = CHANGES.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or_default();
    heading.rsplit(' ').next().unwrap_or_default()
}

/// The section of the options. clap_mangen puts line breaks around an empty line, which mandoc reports as useless.
fn options(man: &clap_mangen::Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render_options_section(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(text.replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes())
}

/// The short usage. clap_mangen's usage names every flag, which hides the operands.
fn synopsis(usage: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let call = usage.trim_start_matches("Usage:").trim();
    let end = call.find(['[', '<']).unwrap_or(call.len());
    let (words, operands) = call.split_at(end);
    roff.text([bold(words), roman(operands)]);
    roff
}

/// The sections of `pages.md` for a command: their headings and bodies.
fn sections(command: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let page =
        |command: &str| PAGES.split("\n# ").find_map(|page| page.strip_prefix(command)?.strip_prefix('\n'));
    let page = page(command).or_else(|| page("others")).unwrap_or_default();
    page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'))
}

/// A section in Markdown: paragraphs, terms with their meanings after a colon, and at the end perhaps text that is shown
/// verbatim.
fn section(heading: &str, body: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let (body, code) = match body.split_once("\n\n    ") {
        Some((body, code)) => (body, Some(code)),
        None => (body, None),
    };
    for (number, block) in body.trim().split("\n\n").enumerate() {
        if let Some((name, meaning)) = block.split_once("\n: ") {
            term(&mut roff, name, &joined(meaning));
            continue;
        }
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text(inlines(&joined(block)));
    }
    if let Some(code) = code {
        roff.control("PP", []);
        roff.control("EX", []);
        roff.text([roman(code.trim_end().replace("\n    ", "\n"))]);
        roff.control("EE", []);
    }
    roff
}

fn term(roff: &mut Roff, name: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text(inlines(meaning));
}

/// The lines of a paragraph as one.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text whose parts in backquotes are bold.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) }).collect()
}
