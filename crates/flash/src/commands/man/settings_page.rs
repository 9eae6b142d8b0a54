//! The man page flash.toml(5): the settings of the config file.
//!
//! Called by `man` alone. The keys of the server come from the table of options, and those of a route from the table in
//! `docs/config.md`, so neither is written twice.

use std::io;

use clap_mangen::roff::Roff;
use flash_server::config::options::{DefaultValue, OPTIONS, Spec};

use super::{MANUAL, SOURCE, date, inlines, term};

/// The name of the page's file.
pub(super) const FILE_NAME: &str = "flash.toml.5";
/// Its section on routes has the table of keys.
const CONFIG: &str = include_str!("../../../../../docs/config.md");
const ROUTES: &str = "\n## Routes\n";

/// The page.
pub(super) fn page() -> io::Result<Vec<u8>> {
    let mut roff = Roff::new();
    roff.control("TH", ["flash.toml", "5", date(), SOURCE, MANUAL]);
    section(&mut roff, "NAME", &["flash.toml - settings of the Flash web server"]);
    let description = [
        "Flash reads the TOML file that `--config` or FLASH_CONFIG names, and no other. A flag or an environment variable \
         overrides a key. Relative paths start at the folder of the file. `flash check --config` `FILE` checks it, and \
         `flash check --print` prints the settings in force as such a file.",
        "The keys of the whole server come first, then each `[[route]]` of the default site, then `[types]`, then each \
         `[[site]]` with its `[[site.route]]`.",
    ];
    section(&mut roff, "DESCRIPTION", &description);
    section(&mut roff, "KEYS OF THE SERVER", &[]);
    for spec in OPTIONS.iter().filter(|spec| spec.is_in_file()) {
        term(&mut roff, spec.key, &format!("{}.{}", spec.help, default(spec)));
    }
    let of_site: Vec<String> =
        OPTIONS.iter().filter(|spec| spec.is_of_site()).map(|spec| format!("`{}`", spec.key)).collect();
    let sites = format!(
        "`[[site]]` answers the hosts of its key `hosts`, a list of names such as \"example.org\" or \"*.example.org\", and \
         must have a `root`. It can have {}. The keys above the first site are those of the default site, which answers \
         all other hosts if the file has a `root`.",
        of_site.join(", ")
    );
    section(&mut roff, "SITES", &[&sites]);
    let routes = "A route passes requests of its site to other servers, or to programs that Flash starts. The first route \
                  that fits a request applies. `[[route]]` belongs to the default site, `[[site.route]]` to the site above it.";
    section(&mut roff, "ROUTES", &[routes]);
    for [keys, value, default] in route_keys() {
        let default = if default.is_empty() { String::new() } else { format!(". Default: {default}") };
        term(&mut roff, &keys.replace('`', ""), &format!("{value}{default}."));
    }
    section(
        &mut roff,
        "TYPES",
        &[
            "`[types]` gives extensions their content types, in addition to the built-in table: `webmanifest = \
           \"application/manifest+json\"`.",
        ],
    );
    section(&mut roff, "SEE ALSO", &["`flash-serve`(1), `flash-check`(1)"]);
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    Ok(text)
}

fn section(roff: &mut Roff, heading: &str, paragraphs: &[&str]) {
    roff.control("SH", [heading]);
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text(inlines(paragraph));
    }
}

fn default(spec: &Spec) -> String {
    match spec.default {
        DefaultValue::Text(text) => format!(" Default: `{text}`."),
        DefaultValue::Depends(text) => format!(" Default: {text}."),
        DefaultValue::None => String::new(),
    }
}

/// The rows of the table of routes: keys, value, default.
fn route_keys() -> impl Iterator<Item = [&'static str; 3]> {
    let table = CONFIG.split_once(ROUTES).map_or("", |(_, rest)| rest);
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `").map(|_| line.trim_matches('|').split(" | "))?.map(str::trim);
        Some([cells.next()?, cells.next()?, cells.next().unwrap_or_default()])
    });
    rows.filter(|row| !row[0].is_empty())
}
