//! The options of the server on the command line.
//!
//! `serve` and `check` flatten [`ServeOptions`], which makes one flag for each row of `config::options::OPTIONS` and fills an
//! [`Overrides`] with the given values. It must not know any single option: a new option is a new row of that table.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use flash_server::config::options::{OPTIONS, Spec};
use flash_server::config::{DefaultValue, Kind, Origin, Overrides, Refusal, Sources};

/// The settings of the server from the command line.
#[derive(Clone, Debug)]
pub(crate) struct ServeOptions(Overrides);

impl ServeOptions {
    /// The sources of this process; prints warnings about them on standard error.
    pub(crate) fn sources(self) -> Result<Sources, ExitCode> {
        let sources = Sources::of_process(self.0).map_err(|error| {
            error.print();
            ExitCode::FAILURE
        })?;
        for warning in sources.warnings() {
            eprintln!("warning: {warning}");
        }
        Ok(sources)
    }

    /// The sources of this process for a server that was started in this directory, and has printed the warnings.
    pub(crate) fn sources_in(self, cwd: PathBuf) -> Sources {
        Sources::of_process_in(cwd, self.0)
    }
}

impl clap::Args for ServeOptions {
    fn augment_args(command: Command) -> Command {
        let all = OPTIONS.iter().flat_map(|spec| {
            args(spec).into_iter().map(move |arg| arg.hide_short_help(spec.details.group.is_rare()))
        });
        command.args(all).arg(port())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ServeOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = ServeOptions(Overrides::default());
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for spec in OPTIONS {
            let items = given(spec, matches);
            if items.is_empty() {
                continue;
            }
            let items: Vec<&OsStr> = items.iter().map(OsString::as_os_str).collect();
            // The parser of each value has checked it; the remaining errors concern all values together.
            spec.set(&mut self.0, &items, Origin::Flag)
                .map_err(|refusals| together(spec, &items, &refusals))?;
        }
        Ok(())
    }
}

/// The values given for an option; empty if it was not given.
fn given(spec: &Spec, matches: &ArgMatches) -> Vec<OsString> {
    if !matches!(spec.kind, Kind::Switch | Kind::AutoSwitch) {
        return matches.get_many::<OsString>(spec.key).into_iter().flatten().cloned().collect();
    }
    let word = |id: &str, word: &str| matches.get_flag(id).then(|| word.into());
    let yes = match spec.kind {
        Kind::AutoSwitch => matches.get_one::<OsString>(&spec.flag()).cloned(),
        _ => word(&spec.flag(), "true"),
    };
    yes.into_iter().chain(word(&negated(spec), "false")).collect()
}

/// Not an option of Flash, but the first that many people try.
fn port() -> Arg {
    let refuse = |port: &str| -> Result<String, String> {
        let number = if port.parse::<u16>().is_ok() { port } else { "8080" };
        Err(format!(
            "an address has its port: write --listen 0.0.0.0:{number} (all addresses of this machine)"
        ))
    };
    let arg = Arg::new("port").long("port").short('p').hide(true);
    arg.num_args(0..=1).default_missing_value("").value_parser(refuse)
}

fn together(spec: &Spec, items: &[&OsStr], refusals: &[Refusal]) -> clap::Error {
    let lines = refusals.iter().map(|refusal| {
        let item = items.get(refusal.item).copied().unwrap_or_default().to_string_lossy();
        format!("invalid value '{item}' for '--{}': {}", spec.flag(), refusal.why)
    });
    clap::Error::raw(ErrorKind::ValueValidation, lines.collect::<Vec<_>>().join("; "))
}

/// The flags of an option: one, or two for a switch.
fn args(spec: &'static Spec) -> Vec<Arg> {
    let heading = spec.details.group.heading();
    if matches!(spec.kind, Kind::Switch | Kind::AutoSwitch) {
        let [yes, no] = [spec.flag(), negated(spec)];
        let set = match spec.kind {
            Kind::AutoSwitch => auto_switch(spec, &yes, &no),
            _ => switch(&yes, &no),
        };
        return vec![
            set.help(help(spec)).help_heading(heading),
            switch(&no, &yes).help(format!("Turn --{yes} off")).help_heading(heading),
        ];
    }
    let arg = Arg::new(spec.key)
        .value_name(spec.details.value_name)
        .value_parser(parser(spec))
        .value_hint(hint(spec))
        .hide_possible_values(true)
        .action(if spec.kind.is_list() { ArgAction::Append } else { ArgAction::Set })
        .help(help(spec));
    vec![if spec.is_operand() { arg } else { arg.long(spec.flag()).help_heading(heading) }]
}

/// Its effect, and its default at the end, as clap shows the defaults of the other commands.
fn help(spec: &Spec) -> String {
    let default = match spec.default {
        DefaultValue::Text("true") => " [default: on]".to_owned(),
        DefaultValue::Text("false") => " [default: off]".to_owned(),
        DefaultValue::Text(text) | DefaultValue::Depends(text) => format!(" [default: {text}]"),
        DefaultValue::None => String::new(),
    };
    format!("{}{default}", spec.help)
}

/// One half of a switch; the last of the two on the command line wins.
fn switch(name: &str, opposite: &str) -> Arg {
    Arg::new(name.to_owned())
        .long(name.to_owned())
        .action(ArgAction::SetTrue)
        .overrides_with_all([name.to_owned(), opposite.to_owned()])
}

/// The first half of an auto switch, which means yes without a word. A word follows `=`, so that the operand is not
/// taken for it.
fn auto_switch(spec: &'static Spec, name: &str, opposite: &str) -> Arg {
    switch(name, opposite)
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("on")
        .value_name(spec.details.value_name)
        .value_parser(Word(spec))
        .hide_possible_values(true)
}

fn negated(spec: &Spec) -> String {
    format!("no-{}", spec.flag())
}

/// Checks each value alone, so that clap can name the wrong one, and keeps its text.
fn parser(spec: &'static Spec) -> ValueParser {
    match spec.kind {
        Kind::OneOf(_) => Word(spec).into(),
        _ => checked(spec).into(),
    }
}

fn checked(spec: &'static Spec) -> impl TypedValueParser<Value = OsString> {
    let check = move |text: OsString| match spec.set(&mut Overrides::default(), &[&text], Origin::Flag) {
        Ok(()) => Ok(text),
        Err(refusals) => Err(why(refusals)),
    };
    OsStringValueParser::new().try_map(check)
}

/// One of several words, which shells complete. The option's own error rejects other words.
#[derive(Clone)]
struct Word(&'static Spec);

impl TypedValueParser for Word {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        checked(self.0).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.kind.words().iter().map(PossibleValue::new)))
    }
}

fn why(refusals: Vec<Refusal>) -> String {
    let whys = refusals.into_iter().map(|refusal| match refusal.help {
        Some(help) => format!("{}; {help}", refusal.why),
        None => refusal.why,
    });
    whys.collect::<Vec<_>>().join("; ")
}

fn hint(spec: &Spec) -> ValueHint {
    match spec.kind {
        Kind::Path if spec.is_operand() => ValueHint::DirPath,
        Kind::Path | Kind::PathOr(_) => ValueHint::FilePath,
        _ => ValueHint::Other,
    }
}
