//! The complete, checked settings that every role works with.
//!
//! Their fields are the rows of `config::options`. `config::resolve` makes them, the supervisor passes them to the processes that it starts as TOML text
//! ([`Settings::to_toml`], [`Settings::from_toml`]), and `flash check --print` prints them. They must not contain defaults or
//! sources: every field is written, every field is required.

use super::error::{ConfigError, ConfigErrorKind, Problem};
use super::file_path::FilePath;
use super::options::{Settings, Site};
use super::route_options::Route;
use super::rule_options::Rule;

impl Settings {
    /// The routes of all sites. The place of a route here is the number of its upstream.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.sites.iter().flat_map(|site| &site.routes)
    }

    /// The folders with files: the roots of the sites, then the aliases. The place of a folder here is its
    /// [`SiteId`](flash_engine::SiteId).
    pub(crate) fn folders(&self) -> impl Iterator<Item = &FilePath> {
        let aliases = self.sites.iter().flat_map(Site::aliases).map(|(_, folder)| folder);
        self.sites.iter().map(|site| &site.root).chain(aliases)
    }

    /// The settings for processes that answer no requests: tens of thousands of rules would take tens of megabytes in each. The
    /// aliases stay.
    pub(crate) fn without_rules(&self) -> Settings {
        let alias = |(path, folder): (&str, &FilePath)| Rule {
            path: path.to_owned(),
            alias: Some(folder.clone()),
            ..Rule::default()
        };
        let mut settings = self.clone();
        for (site, full) in settings.sites.iter_mut().zip(&self.sites) {
            site.rules = full.aliases().map(alias).collect();
        }
        settings
    }

    /// The settings as TOML text, for [`Settings::from_toml`] in another process.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Every number is far below 2^63, every path has a form (see `path`), and TOML can hold all other values.
        let text = toml::to_string(self).expect("settings always have a TOML form");
        format!("{}\n", text.trim_end_matches('\n'))
    }

    /// Reads the output of [`Settings::to_toml`]. It checks only the shape: the values were checked when they were
    /// resolved.
    ///
    /// # Errors
    ///
    /// The text is not TOML, or a field is missing, unknown or of the wrong type: it comes from another version of
    /// Flash.
    pub fn from_toml(text: &str) -> Result<Settings, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let problem = Problem::plain("cannot read the settings from the supervisor", error.message())
                .helped("the supervisor runs another version of Flash; restart the server")
                .of(ConfigErrorKind::Handover);
            ConfigError::of_problems(vec![problem], None)
        })
    }
}

impl Site {
    /// The paths and the folders of its aliases.
    pub(crate) fn aliases(&self) -> impl Iterator<Item = (&str, &FilePath)> {
        self.rules.iter().filter_map(|rule| Some((&*rule.path, rule.alias.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use std::collections::BTreeMap;

    use flash_engine::LogFormat;
    use flash_prompt::mechanism::MechanismKind;
    use flash_worker::{HelperKind, SendBy};

    use super::super::Site;
    use super::super::admission::Clients;
    use super::super::choices::{
        Architecture, EncodedSlash, EtagTime, HttpsRedirect, ProxyField, SandboxMode, SchedulePolicy,
    };
    use super::super::endpoint::EndpointSettings;
    use super::super::listen::{Listen, SocketMode};
    use super::super::log_output::LogOutput;
    use super::super::memory::CacheMemory;
    use super::super::run_as::RunAs;
    use super::super::service::{BackendSettings, ControlSocket, Service};
    use super::*;

    fn settings() -> Settings {
        Settings {
            listen: vec!["127.0.0.1:8080".parse().unwrap(), "[::1]:0".parse().unwrap()],
            tls_listen: vec!["unix:/run/https.sock".parse().unwrap(), "systemd:https".parse().unwrap()],
            listen_mode: SocketMode(0o666),
            admin: vec!["127.0.0.1:9180".parse().unwrap()],
            architecture: Architecture::Mt,
            workers: 2,
            processes: 32,
            threads: 64,
            event_mechanism: MechanismKind::Select,
            helpers: HelperKind::Threads,
            helpers_max: 16,
            lowered: vec!["a warning".into()],
            freshness_ms: 1_000,
            stale_ms: 10_000,
            watch: true,
            etag: EtagTime::Changed,
            cache_memory: CacheMemory::Fixed { bytes: 64 << 20, asked_bytes: 1 << 40 },
            cache_list: Some("/var/lib/flash/hot".into()),
            spool_folder: Some("/var/tmp".into()),
            spool_bytes_max: 1 << 30,
            connections_max: 16_384,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 60_000,
            job_deadline_ms: 30_000,
            queue_wait_ms: 5_000,
            shutdown_timeout_ms: 30_000,
            reload_timeout_ms: 0,
            helper_idle_ms: 10_000,
            least_rate_bytes_per_s: 1_024,
            body_least_rate_bytes_per_s: 500,
            body_timeout_ms: 7_200_000,
            listing_entries_max: 10_000,
            sandbox: SandboxMode::Required,
            cap_fowner: true,
            run_as: Some(RunAs { name: "www-data".into(), uid: 33, gid: 33, groups: vec![33, 4] }),
            send: SendBy::Mmap,
            schedule: SchedulePolicy::Srpt,
            srpt_cutoffs: vec![1_000, 50_000],
            srpt_dscp: true,
            cwnd_cap_bytes: 65_536,
            connection_bits_per_s: 1_000_000,
            egress_bits_per_s: 10_000_000,
            client_connections_max: 100,
            client_exempt: vec![Clients::Loopback, Clients::Network("10.0.0.0/8".parse().unwrap())],
            trusted_proxies: vec![Clients::Loopback, Clients::Unix],
            proxy_field: ProxyField::Forwarded,
            proxy_protocol: vec![Clients::Loopback],
            accept_wait_ms: 1_000,
            http2: true,
            log_format: LogFormat::Json,
            log_template: Some("{status}".to_owned()),
            log_sample: 3,
            log_output: LogOutput::File("/var/log/flash.log".into()),
            log_rotate_bytes: 1_000_000,
            log_rotate_ms: 86_400_000,
            log_rotate_keep: 3,
            control: ControlSocket::At("/run/flash.sock".into()),
            charset: Some("utf-8".to_owned()),
            types: BTreeMap::from([("mjs".to_owned(), "text/javascript".to_owned())]),
            service: Service::Files,
            sites: vec![Site {
                log_output: LogOutput::Stdout,
                hosts: Vec::new(),
                root: "/srv/\"www\"\n".into(),
                index: vec!["index.html".to_owned()],
                browse: false,
                precompressed: true,
                compress: true,
                encoded_slash: EncodedSlash::Refuse,
                certificates: vec!["/etc/flash/site.pem".into()],
                certificate_keys: vec!["/etc/flash/site.key".into()],
                ocsp: Vec::new(),
                hsts: Some("max-age=1".to_owned()),
                https_redirect: HttpsRedirect::Permanent,
                routes: Vec::new(),
                rules: Vec::new(),
            }],
            ..Settings::default()
        }
    }

    #[test]
    fn settings_survive_the_way_to_another_process() {
        let mut settings = settings();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
        settings.log_output = LogOutput::Off;
        settings.run_as = None;
        settings.cache_memory = CacheMemory::Auto { bytes_max: 3 << 29 };
        settings.cache_list = None;
        settings.control = ControlSocket::Default;
        settings.types.clear();
        settings.charset = None;
        settings.listens_by_default = true;
        settings.listen.push(Listen::Unix(OsString::from_vec(b"/run/\xfe".to_vec()).into()));
        let socket = OsString::from_vec(b"/run/\xff".to_vec()).into();
        settings.service = Service::Backend(BackendSettings {
            socket,
            users: vec![33],
            delay_ms: 5,
            endpoint: EndpointSettings::sample(),
            names: vec!["/srv/www".into()],
        });
        settings.sites[0].root = OsString::from_vec(b"/srv/\xff\xfe".to_vec()).into();
        assert_eq!(Settings::from_toml(&settings.to_toml()).unwrap(), settings);
    }

    #[test]
    fn settings_of_another_shape_are_refused() {
        let text = settings().to_toml();
        for wrong in [
            String::new(),
            "x".to_owned(),
            text.replace("workers", "worker"),
            text.replace("workers = 2\n", ""),
            text.replace("workers = 2", "workers = -2"),
            format!("more = 1\n{text}"),
        ] {
            let error = Settings::from_toml(&wrong).unwrap_err();
            assert_eq!(error.kind(), ConfigErrorKind::Handover);
            assert!(error.to_string().contains("settings from the supervisor"), "{error}");
        }
    }
}
