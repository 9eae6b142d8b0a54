//! The man page flash.toml(5): the settings of the config file.
//!
//! Called by `man` alone. The keys come from the tables of options.

use std::io;

use clap_mangen::roff::Roff;
use flash_server::config::options::OPTIONS;
use flash_server::config::route_options::ROUTE_OPTIONS;
use flash_server::config::rule_options::RULE_OPTIONS;
use flash_server::config::{DefaultValue, Spec, Table};

use super::{MANUAL, SOURCE, date, inlines, term};

/// The name of the page's file.
pub(super) const FILE_NAME: &str = "flash.toml.5";

/// The page.
pub(super) fn page() -> io::Result<Vec<u8>> {
    let mut roff = Roff::new();
    roff.control("TH", ["flash.toml", "5", date(), SOURCE, MANUAL]);
    section(&mut roff, "NAME", &["flash.toml - settings of the Flash web server"]);
    let description = [
        "Flash reads the TOML file that `--config` or FLASH_CONFIG names, and no other. A flag or an environment variable \
         overrides a key. Relative paths start at the folder of the file. `flash check --config` `FILE` checks it, and \
         `flash check --print` prints the settings in force as such a file.",
        "The keys of the whole server come first, then each `[[rule]]` and `[[route]]` of the default site, then `[types]`, then \
         each `[[site]]` with its `[[site.rule]]` and `[[site.route]]`.",
    ];
    section(&mut roff, "DESCRIPTION", &description);
    section(&mut roff, "KEYS OF THE SERVER", &[]);
    for spec in OPTIONS.iter().filter(|spec| spec.is_in_file()) {
        term(&mut roff, spec.key, &format!("{}.", meaning(spec)));
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
    for spec in ROUTE_OPTIONS {
        let owners: Vec<String> = spec.details.iter().map(|key| format!("`{key}`")).collect();
        let only =
            if owners.is_empty() { String::new() } else { format!(". Only with {}", owners.join(" or ")) };
        term(&mut roff, spec.key, &format!("{}{only}.", meaning(spec)));
    }
    let rules = "A rule admits only some clients to some paths of its site, redirects their requests, or changes the fields \
                 of their answers. A client must be admitted by every rule that fits the path. The first rule with \
                 `redirect` that fits redirects the request. Every rule that fits changes the fields, in the order of the \
                 file. `[[rule]]` belongs to the default site, `[[site.rule]]` to the site above it.";
    section(&mut roff, "RULES", &[rules]);
    for spec in RULE_OPTIONS {
        term(&mut roff, spec.key, &format!("{}.", meaning(spec)));
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

/// The help, the value and the default of an option.
fn meaning<G: Table>(spec: &Spec<G>) -> String {
    let default = match spec.default {
        DefaultValue::Text(text) => format!("; default: `{text}`"),
        DefaultValue::Depends(text) => format!("; default: {text}"),
        DefaultValue::None => String::new(),
    };
    format!("{}. Value: {}{default}", spec.help, spec.kind.summary())
}
