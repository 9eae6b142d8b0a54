//! Reads the keys of a route with a program: `app`, `cgi`, `processes`, `memory_max`, `authorization` and `user`.

use std::ffi::OsStr;
use std::ops::Range;

use toml::de::DeTable;

use super::super::drafts::ProgramDraft;
use super::super::programs::{Program, Runs, WORDS_MAX};
use super::super::routes::Route;
use super::super::values::{FromText, Kind, UserName};
use super::keys::{AUTHORIZATION, Number, USER, owners, values_of};
use super::{Reader, Value, refused, scalar};

/// Requests that a worker gives each process of an `app` at once, and programs that it runs at once by `cgi`.
const CONNECTIONS_OF_APP: u64 = 1;
const CONNECTIONS_OF_CGI: u64 = 16;

/// The numbers of a program.
const NUMBERS: [Number<Program>; 2] = [
    Number {
        key: "processes",
        kind: Kind::Count { least: 1, most: 64 },
        default: 4,
        field: |program| &mut program.processes,
    },
    Number {
        key: "memory_max",
        kind: Kind::MemorySize { least_bytes: 4 << 20, most_bytes: 1 << 40 },
        default: 1 << 30,
        field: |program| &mut program.memory_bytes_max,
    },
];

/// The numbers of a program that is given by the key `by`: their keys, kinds and values.
pub(in super::super) fn program_numbers(by: &str, program: &Program) -> Vec<(&'static str, Kind, u64)> {
    values_of(&NUMBERS, by, program)
}

impl Reader {
    /// The program of a route, of which `value` is the `app` or the `cgi`. Changes the defaults of the route to those of
    /// such routes.
    pub(super) fn program(
        &mut self,
        (key, value): (&str, &Value<'_>),
        table: &DeTable<'_>,
        route: &mut Route,
    ) -> Option<ProgramDraft> {
        let is_app = key == "app";
        let runs = if is_app { self.command(value).map(Runs::App) } else { self.directory(value) };
        route.connections_max = if is_app { CONNECTIONS_OF_APP } else { CONNECTIONS_OF_CGI };
        let mut program = Program {
            processes: 1,
            memory_bytes_max: 0,
            authorization: false,
            run_as: None,
            runs: Runs::App(Vec::new()),
        };
        let mut user = None;
        let numbers = || NUMBERS.iter().filter(|number| owners(number.key).contains(&key));
        numbers().for_each(|number| *(number.field)(&mut program) = number.default);
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if let Some(number) = numbers().find(|number| number.key == name) {
                self.number(number, &mut program, value);
            } else if name == USER {
                user = self.user(value);
            } else if name == AUTHORIZATION && !is_app {
                program.authorization = self.switch(name, value).unwrap_or_default();
            }
        }
        program.runs = runs?;
        Some(ProgramDraft { program, span: value.span(), user })
    }

    fn user(&mut self, value: &Value<'_>) -> Option<(UserName, Range<usize>)> {
        let text = scalar(Kind::User, value).map_err(|form| self.problems.push(form.titled(USER))).ok()?;
        match UserName::from_text(OsStr::new(&text), Kind::User) {
            Ok(user) => Some((user, value.span())),
            Err(refusal) => {
                self.problems.push(refused(USER, value.span(), refusal));
                None
            }
        }
    }

    /// The words of a command: a text is one word.
    fn command(&mut self, value: &Value<'_>) -> Option<Vec<String>> {
        const FORM: &str = "must be a program, or a list of a program and its arguments, in quotes";
        let words = match (value.get_ref().as_str(), value.get_ref().as_array()) {
            (Some(word), _) => Some(vec![word.to_owned()]),
            (None, Some(words)) => {
                words.iter().map(|word| word.get_ref().as_str().map(ToOwned::to_owned)).collect()
            }
            (None, None) => None,
        };
        let Some(words) = words.filter(|words| words.first().is_some_and(|word| !word.is_empty())) else {
            self.wrong("app", value.span(), FORM);
            return None;
        };
        if words.len() > WORDS_MAX || words.iter().any(|word| word.contains('\0')) {
            let why = format!("must have at most {WORDS_MAX} words, without NUL bytes");
            self.wrong("app", value.span(), why);
            return None;
        }
        if value.get_ref().as_str().is_some_and(|word| word.contains(' ')) {
            let list: Vec<_> = words[0].split(' ').filter(|word| !word.is_empty()).collect();
            let problem = super::wrong("app", value.span(), "is one word, the program");
            self.problems.push(problem.helped(format!("with arguments, write `{list:?}`")));
            return None;
        }
        Some(words)
    }

    fn directory(&mut self, value: &Value<'_>) -> Option<Runs> {
        match scalar(Kind::Path, value) {
            Ok(text) if text.is_empty() || text.contains('\0') => {
                self.wrong("cgi", value.span(), "must be the directory of the programs");
                None
            }
            Ok(text) => Some(Runs::Cgi(text.into())),
            Err(form) => {
                self.problems.push(form.titled("cgi"));
                None
            }
        }
    }
}
