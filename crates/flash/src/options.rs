//! The options of the server on the command line.
//!
//! For: `serve` and `check` flatten [`ServeOptions`], which makes one flag of each row of
//! `config::options::OPTIONS` and fills an [`Overrides`] with what was given. May not know a single
//! option by itself: a new one is a new row of that table.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use flash_server::config::options::{DefaultValue, OPTIONS, Spec};
use flash_server::config::{Kind, Origin, Overrides, Refusal, Sources};

/// What the command line says about the server.
#[derive(Clone, Debug)]
pub(crate) struct ServeOptions(Overrides);

impl ServeOptions {
    /// The sources of this process; warns on standard error of what is odd about them.
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
}

impl clap::Args for ServeOptions {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().flat_map(args))
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
            // Each value was checked by its parser; what is left is wrong with them together.
            spec.set(&mut self.0, &items, Origin::Flag)
                .map_err(|refusals| together(spec, &items, &refusals))?;
        }
        Ok(())
    }
}

/// The values given for an option, none if it was not given.
fn given(spec: &Spec, matches: &ArgMatches) -> Vec<OsString> {
    if spec.kind != Kind::Switch {
        return matches.get_many::<OsString>(spec.key).into_iter().flatten().cloned().collect();
    }
    let words = [(spec.flag(), "true"), (negated(spec), "false")];
    words.into_iter().filter(|(id, _)| matches.get_flag(id)).map(|(_, word)| word.into()).collect()
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
    let heading = spec.group.heading();
    if spec.kind == Kind::Switch {
        let [yes, no] = [spec.flag(), negated(spec)];
        return vec![
            switch(&yes, &no).help(help(spec)).help_heading(heading),
            switch(&no, &yes).help(format!("Turn --{yes} off")).help_heading(heading),
        ];
    }
    let arg = Arg::new(spec.key)
        .value_name(spec.value_name)
        .value_parser(parser(spec))
        .value_hint(hint(spec))
        .hide_possible_values(true)
        .action(if spec.kind.is_list() { ArgAction::Append } else { ArgAction::Set })
        .help(help(spec));
    vec![if spec.is_operand() { arg } else { arg.long(spec.flag()).help_heading(heading) }]
}

/// What it does, and on a line of its own, what holds without it.
fn help(spec: &Spec) -> String {
    let default = match spec.default {
        DefaultValue::Text("true") => "[default: on] ".to_owned(),
        DefaultValue::Text("false") => "[default: off] ".to_owned(),
        DefaultValue::Text(text) | DefaultValue::Depends(text) => format!("[default: {text}] "),
        DefaultValue::None => String::new(),
    };
    format!("{}\n{default}[env: {}]", spec.help, spec.variable())
}

/// One half of a switch; of the two, the last on the command line counts.
fn switch(name: &str, opposite: &str) -> Arg {
    Arg::new(name.to_owned())
        .long(name.to_owned())
        .action(ArgAction::SetTrue)
        .overrides_with_all([name.to_owned(), opposite.to_owned()])
}

fn negated(spec: &Spec) -> String {
    format!("no-{}", spec.flag())
}

/// Checks a value by itself, so that clap can say which one is wrong, and keeps its text.
fn parser(spec: &'static Spec) -> ValueParser {
    match spec.kind {
        Kind::OneOf(words) => Word { spec, words }.into(),
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

/// One of some words, which shells complete; what else is given is refused in the option's own words.
#[derive(Clone)]
struct Word {
    spec: &'static Spec,
    words: &'static [&'static str],
}

impl TypedValueParser for Word {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        checked(self.spec).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
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
        Kind::Path => ValueHint::FilePath,
        _ => ValueHint::Other,
    }
}
