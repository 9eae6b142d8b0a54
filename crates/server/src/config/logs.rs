//! The access logs: one of the server, and others of sites that have their own.
//!
//! `config::resolve` chooses them; the log writer opens them, and a worker names them by their numbers. It looks at files, and must
//! not change them.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flash_engine::{LogForm, LogFormat, LogRules, LogTemplate};

use super::combinations::{path_problem, problem, senseless};
use super::error::{Problem, reason};
use super::log_output::LogOutput;
use super::options::{Overrides, Settings};
use super::table::{Given, Holds};
use super::values::{OFF, PathOrWord};

impl Settings {
    /// The logs in the order of their numbers. The first is that of requests without a site, unless they are not logged.
    pub(crate) fn logs(&self) -> Vec<&LogOutput> {
        let mut logs: Vec<&LogOutput> = Vec::new();
        if self.log_format == LogFormat::Off {
            return logs;
        }
        let of_sites = self.sites.iter().map(|site| &site.log_output);
        for log in [&self.log_output].into_iter().chain(of_sites) {
            if *log != LogOutput::Off && !logs.contains(&log) {
                logs.push(log);
            }
        }
        logs
    }

    /// Whether a log has a path, which can be opened again.
    pub(crate) fn has_log_file(&self) -> bool {
        self.logs().iter().any(|log| matches!(log, LogOutput::File(_) | LogOutput::Syslog(_)))
    }

    /// Which lines a worker writes, how, and to which log.
    pub(crate) fn log_rules(&self) -> LogRules {
        let template = self.log_template.clone().and_then(|text| LogTemplate::try_from(text).ok());
        let logs = self.logs();
        let number =
            |log: &LogOutput| logs.iter().position(|other| *other == log).map(|number| number as u16);
        let of_others = number(&self.log_output);
        let of_sites: Vec<_> = self.sites.iter().map(|site| number(&site.log_output)).collect();
        let is_one = of_sites.iter().all(|number| *number == of_others);
        LogRules {
            form: LogForm::new(self.log_format, template.as_ref()),
            sample: self.log_sample,
            of_sites: if is_one { Vec::new() } else { of_sites },
            of_others,
        }
    }
}

/// The format, and the log of the server, which is that of sites without their own.
pub(super) fn resolve(
    given: &Overrides,
    sites: &[&Overrides],
    problems: &mut Vec<Problem>,
) -> (LogFormat, LogOutput) {
    let has_log = given.log_file.is_some() || sites.iter().any(|site| site.log_file.is_some());
    let template = given.log_template.as_ref().filter(|template| template.value != OFF);
    let by_default = match template {
        Some(_) => LogFormat::Template,
        _ if has_log => LogFormat::Combined,
        _ => LogFormat::Off,
    };
    let format = given.log_format.as_ref().map_or(by_default, |given| given.value);
    check_template(given.log_format.as_ref(), template, problems);
    check_rotation(given, sites, problems);
    let mut output = LogOutput::Off;
    match &given.log_file {
        Some(log) => output.hold(log.value.clone()),
        None if format == LogFormat::Off => {}
        // A format, or a template, is enough.
        None if given.log_format.is_some() || by_default == LogFormat::Template => output = LogOutput::Stdout,
        None => {}
    }
    if format != LogFormat::Off {
        for log in
            [given].into_iter().chain(sites.iter().copied()).filter_map(|given| given.log_file.as_ref())
        {
            check_file(log, problems);
        }
    }
    (format, output.recognized())
}

/// Checks that the template and the format agree.
fn check_template(
    format: Option<&Given<LogFormat>>,
    template: Option<&Given<String>>,
    problems: &mut Vec<Problem>,
) {
    match (format, template) {
        (Some(Given { value: LogFormat::Template, origin }), None) => {
            let help = "add `log_template`, such as '{client} \"{request}\" {status} {first_ms}'";
            let wrong = problem("log_format", origin, "has no form of lines", "log_template is not set");
            problems.push(wrong.helped(help));
        }
        (Some(format), Some(template)) if !matches!(format.value, LogFormat::Template | LogFormat::Off) => {
            let why = "log_format has another form of lines";
            let help = "remove one of the two, or write `log_format = \"template\"`";
            problems.push(senseless("log_template", &template.origin, why).helped(help));
        }
        _ => {}
    }
}

/// Checks that there is a log file to rename.
fn check_rotation(given: &Overrides, sites: &[&Overrides], problems: &mut Vec<Problem>) {
    let is_file =
        |given: &Overrides| given.log_file.as_ref().is_some_and(|log| matches!(log.value, PathOrWord::At(_)));
    if is_file(given) || sites.iter().any(|site| is_file(site)) {
        return;
    }
    for (key, wanted) in
        [("log_rotate_size", &given.log_rotate_size), ("log_rotate_age", &given.log_rotate_age)]
    {
        if let Some(Given { value: 1.., origin }) = wanted {
            problems.push(senseless(
                key,
                origin,
                "no log_file is set, and standard output cannot be renamed",
            ));
        }
    }
}

/// Only an attempt shows whether the file can be opened: it need not exist yet.
fn check_file(log: &Given<PathOrWord>, problems: &mut Vec<Problem>) {
    let Given { value: PathOrWord::At(path), origin } = log else { return };
    if path == Path::new("/dev/stdout") {
        return;
    }
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    let why = match (std::fs::metadata(path), std::fs::metadata(&folder)) {
        (Ok(found), _) if found.is_dir() => "it is a directory".to_owned(),
        (Ok(found), _) if found.file_type().is_fifo() => {
            "it is a pipe; write `-` for standard output".to_owned()
        }
        (Ok(_), _) => return,
        (Err(_), _) if path.starts_with("/dev") => "there is no such device or socket".to_owned(),
        (_, Ok(folder)) if folder.is_dir() => return,
        (_, Ok(_)) => format!("`{}` is not a directory", folder.display()),
        (_, Err(error)) => format!("`{}`: {}", folder.display(), reason(&error)),
    };
    problems.push(path_problem("write the log", "log_file", (path, origin), &why));
}
