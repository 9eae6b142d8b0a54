//! Tests of the settings of access logs.

use super::*;

#[test]
fn a_log_file_makes_the_format_combined() {
    let folder = Folder::new();
    let log = |text: &str| {
        let settings = folder.load(text);
        (settings.log_format, settings.log_output)
    };
    let file = LogOutput::File(folder.path().join("l").into());
    assert_eq!(log(DEFAULTS), (LogFormat::Off, LogOutput::Off));
    assert_eq!(log("log_file = \"l\""), (LogFormat::Combined, file.clone()));
    assert_eq!(log("log_file = \"-\""), (LogFormat::Combined, LogOutput::Stdout));
    assert_eq!(log("log_format = \"json\""), (LogFormat::Json, LogOutput::Stdout));
    assert_eq!(log("log_template = \"{status}\""), (LogFormat::Template, LogOutput::Stdout));
    assert_eq!(log("log_file = \"l\"\nlog_format = \"off\""), (LogFormat::Off, file));
}

#[test]
fn a_site_can_have_a_log_of_its_own() {
    let folder = Folder::new();
    let site = |name: &str, log: &str| format!("[[site]]\nhosts = [\"{name}\"]\nroot = \"www\"\n{log}\n");
    let numbers = |text: &str| {
        let settings = folder.load(text);
        let config = settings.to_config_file().unwrap();
        let again = folder.load(&config);
        assert_eq!(again.log_rules(), settings.log_rules(), "{config}");
        let rules = settings.log_rules();
        (settings.logs().len(), rules.of_others, rules.of_sites)
    };
    let sites = site("a", "") + &site("b", "log_file = \"b\"") + &site("c", "log_file = \"b\"");
    let top = |log: &str| format!("root = \"www\"\n{log}\n{sites}");
    // Without a log of the server, only these sites are logged.
    assert_eq!(numbers(&top("")), (1, None, vec![None, None, Some(0), Some(0)]));
    assert_eq!(numbers(&top("log_file = \"l\"")), (2, Some(0), vec![Some(0), Some(0), Some(1), Some(1)]));
    assert_eq!(
        numbers(&top("log_format = \"json\"")),
        (2, Some(0), vec![Some(0), Some(0), Some(1), Some(1)])
    );
    assert_eq!(numbers(&top("log_file = \"b\"")), (1, Some(0), vec![]));
    assert_eq!(numbers(&top("log_format = \"off\"")), (0, None, vec![]));
}
