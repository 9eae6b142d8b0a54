//! Settings that are valid, and yet perhaps not meant. The supervisor prints these warnings.

use super::routes::RoutePaths;
use super::settings::{Settings, Site};

impl Settings {
    /// Warnings for the operator at startup, one per line.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let memory = self.cache_memory.warning().into_iter();
        memory.chain(self.optimizations.warnings()).chain(exposed_programs(&self.sites)).collect()
    }
}

/// A warning for each site that serves the directory of another site's route for an extension, without such a route.
fn exposed_programs(sites: &[Site]) -> Vec<String> {
    let mut warnings = Vec::new();
    for site in sites {
        for extension in site.routes.iter().filter_map(|route| extension(&route.paths)) {
            let others = sites.iter().filter(|other| shares_files(site, other) && !runs(other, extension));
            warnings.extend(others.map(|other| {
                format!(
                    "{} sends the source of .{extension} files in {}, which {} passes to an application; give it the same \
                     route, or another root",
                    name(other),
                    site.root.display(),
                    name(site),
                )
            }));
        }
    }
    warnings
}

fn extension(paths: &RoutePaths) -> Option<&str> {
    match paths {
        RoutePaths::Extension(extension) => Some(extension),
        RoutePaths::Prefix(_) => None,
    }
}

fn shares_files(one: &Site, other: &Site) -> bool {
    one.root.starts_with(&other.root) || other.root.starts_with(&one.root)
}

/// Whether a site sends no file with this extension.
fn runs(site: &Site, wanted: &str) -> bool {
    site.routes.iter().any(|route| match &route.paths {
        RoutePaths::Extension(extension) => extension == wanted,
        RoutePaths::Prefix(prefix) => prefix == "/",
    })
}

fn name(site: &Site) -> String {
    site.hosts.first().map_or_else(|| "the default site".to_owned(), |host| format!("site {host}"))
}
