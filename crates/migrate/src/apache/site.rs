//! The directives of a virtual host of Apache, and of the sections in it.

use super::fields;
use super::rewrite;
use crate::directive::{Directive, is_among};
use crate::files::Files;
use crate::model::{Config, Rule, Site};
use crate::notes::{Notes, Position};
use crate::pattern::{self, Paths, is_all, whole, within};
use crate::regex;
use crate::{toml, values};

/// A virtual host.
pub(super) struct Host {
    pub(super) site: Site,
    pub(super) ports: Vec<u16>,
    pub(super) is_tls: bool,
    /// The status with which it sends all requests to HTTPS, if it does.
    pub(super) to_https: Option<u16>,
    pub(super) position: Position,
}

/// Directives that Flash needs not, or has in its own way.
const NOTHING: &str = "
    accessfilename adddescription addicon addiconbyencoding addiconbytype addlanguage authbasicprovider
    authgroupfile authname authtype authuserfile browsermatch defaulticon defaultruntimedir defaulttype
    documentroot enablemmap enablesendfile errorlog errorlogformat expiresactive filesmatch headername
    hostnamelookups indexignore indexoptions keepalive languagepriority listen loadmodule logformat
    loglevel maxkeepaliverequests mutex order pidfile protocols proxypassreverse proxypreservehost
    proxyrequests readmename rewritebase rewriteengine satisfy serveradmin serverroot serversignature
    servertokens setenvif setenvifnocase sslcertificatechainfile sslciphersuite sslcompression
    sslhonorcipherorder sslopensslconfcmd ssloptions sslprotocol sslsessioncache sslsessiontickets
    sslstaplingcache timeout traceenable typesconfig unsetenv usecanonicalname virtualhost
";

/// A site in the making.
pub(super) struct Builder<'b> {
    pub(super) site: Site,
    is_tls: bool,
    pub(super) to_https: Option<u16>,
    notes: &'b mut Notes,
    pub(super) files: &'b Files,
    config: &'b mut Config,
}

/// The site of a virtual host, or of a server without virtual hosts; `common` are the directives of the whole server.
pub(super) fn build(
    section: Option<&Directive>,
    common: &[Directive],
    files: &Files,
    notes: &mut Notes,
    config: &mut Config,
) -> Host {
    let (own, args) = section.map_or_else(Default::default, |section| (section.inner(), &section.args[..]));
    let position = section.or(common.first()).map(|directive| directive.position.clone());
    let position = position.unwrap_or_else(|| Position { file: files.first.clone(), line: 0 });
    let mut builder = Builder { site: Site::default(), is_tls: false, to_https: None, notes, files, config };
    let root = own.iter().chain(common).find(|directive| directive.name == "documentroot");
    builder.site.root = root.map(|root| values::folder(&builder.files.absolute(root.first())));
    // Sections for directories come first, then those for files, then those for paths.
    for pass in 0..3 {
        for directives in [common, own] {
            builder.block(directives, &whole("*"), Some(pass));
        }
    }
    let Builder { site, is_tls, to_https, .. } = builder;
    let mut ports: Vec<u16> =
        args.iter().filter_map(|address| address.rsplit(':').next()?.parse().ok()).collect();
    if ports.is_empty() {
        ports.push(if is_tls { 443 } else { 80 });
    }
    Host { site, ports, is_tls, to_https, position }
}

/// The pass in which a section counts.
fn pass(name: &str) -> u8 {
    match name {
        "files" | "filesmatch" => 1,
        "location" | "locationmatch" => 2,
        _ => 0,
    }
}

impl Builder<'_> {
    pub(super) fn lose(&mut self, directive: &Directive, why: &str) {
        self.notes.lost(directive, why);
    }

    fn block(&mut self, directives: &[Directive], paths: &Paths, only: Option<u8>) {
        let is_now = |directive: &&Directive| only.is_none_or(|only| pass(&directive.name) == only);
        for directive in directives.iter().filter(is_now) {
            if directive.block.is_some() {
                self.section(directive, paths);
            } else {
                self.directive(directive, paths);
            }
        }
        if only.is_none_or(|only| only == 0) {
            self.access(directives, paths);
            rewrite::add(self, directives, paths);
        }
    }

    fn section(&mut self, section: &Directive, outer: &Paths) {
        let text = section.args.last().map_or("", String::as_str);
        let is_expression = section.name.ends_with("match") || section.first() == "~";
        let paths = match section.name.as_str() {
            "directory" if !is_expression => self.folder(text),
            "location" if !is_expression => pattern_of(text),
            "files" if !is_expression => pattern_of(&format!("*/{text}")).map(|paths| paths[..1].to_vec()),
            "filesmatch" | "files" | "locationmatch" | "location" => {
                let of_name = section.name.starts_with("files");
                let text = text
                    .strip_prefix('^')
                    .filter(|_| of_name)
                    .map_or(text.to_owned(), |rest| format!("/{rest}"));
                let shapes = regex::shapes(&text, false);
                shapes.ok().map(|shapes| shapes.into_iter().map(|shape| (shape.path, shape.except)).collect())
            }
            "requireall" | "requireany" | "virtualhost" => return,
            "requirenone" => {
                self.site.close(outer);
                return self.lose(section, "Flash has no such condition, so everybody gets 403 here");
            }
            "limit" | "limitexcept" | "proxy" => return,
            _ => {
                return self.lose(section, "Flash has no such section");
            }
        };
        match paths {
            Some(paths) if paths.is_empty() => {}
            // Hidden files are never served.
            Some(paths)
                if paths.iter().all(|(path, _)| path.contains("/.") && !path.starts_with("/.well-known")) => {
            }
            Some(paths) if section.inner().iter().any(|inner| inner.name == "sethandler") => {
                let own = within(&paths, outer);
                self.handler(section, &own);
            }
            Some(paths) => {
                let own = within(&paths, outer);
                self.block(section.inner(), &own, None);
            }
            None if text.starts_with("^\\.") || text.starts_with("\\.ht") => {}
            None => self.lose(section, "Flash's forms of paths have only `*`"),
        }
    }

    /// The paths of a directory; empty if none of its files is in the site.
    fn folder(&mut self, text: &str) -> Option<Paths> {
        let root = self.site.root.clone()?;
        let folder = values::folder(&self.files.absolute(text));
        if text.contains(['*', '?', '[']) {
            return None;
        }
        if folder == "/" {
            return Some(Vec::new());
        }
        if values::beneath(&root, &folder).is_some() {
            return Some(whole("*"));
        }
        Some(values::beneath(&folder, &root).map_or_else(Vec::new, |path| whole(format!("{path}/*"))))
    }

    fn directive(&mut self, directive: &Directive, paths: &Paths) {
        let first = directive.first();
        match directive.name.as_str() {
            "servername" | "serveralias" => self.names(directive),
            "directoryindex" if is_all(paths) => {
                self.site.index = directive
                    .args
                    .iter()
                    .filter(|name| !name.contains('/') && *name != "disabled")
                    .cloned()
                    .collect();
            }
            "directoryindex" => self.lose(directive, "Flash's `index` is for whole sites"),
            "options" => self.options(directive, paths),
            "header" => self.header(directive, paths),
            "expiresdefault" => match fields::expires(&directive.args.concat()) {
                Some(value) => self.set(paths, "Cache-Control", &value),
                None => self.lose(directive, "Flash has no such time for Cache-Control"),
            },
            "setoutputfilter" | "addoutputfilterbytype" if is_compressor(first) && is_all(paths) => {
                self.site.compress = true;
            }
            "setoutputfilter" | "addoutputfilterbytype" if is_compressor(first) => {
                self.lose(directive, "Flash's `compress` is for whole sites");
            }
            "expiresbytype" => self.expires_by_type(directive, paths),
            "errordocument" => self.error_page(directive, paths),
            "fallbackresource" if first == "disabled" => {}
            "fallbackresource" if values::is_file(first) => {
                self.site.add(paths, &Rule { fallback: Some(first.to_owned()), ..Rule::default() });
            }
            "fallbackresource" => {
                self.lose(directive, "is not the path of a file that Flash can serve");
            }
            "alias" => self.alias(directive),
            "allowoverride" if !first.eq_ignore_ascii_case("none") => {
                self.lose(
                    directive,
                    "Flash reads no .htaccess: carry each over by itself, as a file of Apache",
                );
            }
            "allowoverride" => {}
            "redirect" | "redirectpermanent" | "redirecttemp" | "redirectmatch" => {
                rewrite::redirect(self, directive, paths);
            }
            "proxypass" => self.proxy(directive, paths),
            "sslengine" => self.is_tls |= first.eq_ignore_ascii_case("on"),
            "sslcertificatefile" => self.site.certificates.push(self.files.absolute(first)),
            "sslcertificatekeyfile" => self.site.keys.push(self.files.absolute(first)),
            "require" | "allow" | "deny" | "rewritecond" | "rewriterule" => {}
            name if is_among(name, NOTHING) => {}
            _ => self.global(directive),
        }
    }

    /// The directives that Flash has once for all sites.
    fn global(&mut self, directive: &Directive) {
        let first = directive.first();
        let (key, value) = match directive.name.as_str() {
            "user" if !first.contains('$') => ("user", toml::text(first)),
            "group" => return,
            "keepalivetimeout" => match first.parse::<u64>() {
                Ok(seconds @ 1..=86_400) => ("idle_timeout", values::duration(seconds)),
                _ => return self.lose(directive, "Flash keeps connections open for some seconds"),
            },
            "adddefaultcharset" if first.eq_ignore_ascii_case("off") => return,
            "adddefaultcharset" => ("charset", toml::text(&first.to_ascii_lowercase())),
            "customlog" if !first.starts_with('|') => ("log_file", toml::text(&self.files.absolute(first))),
            "addtype" if directive.args.len() > 1 => return self.types(directive),
            "remoteipinternalproxy" | "remoteiptrustedproxy" => match values::network(first) {
                Some(network) => ("trusted_proxies", toml::list(&[network])),
                None => return self.lose(directive, "Flash takes networks"),
            },
            "remoteipheader" if first.eq_ignore_ascii_case("x-forwarded-for") => return,
            "addoutputfilterbytype" | "setoutputfilter" => {
                return self.lose(directive, "Flash does not change contents");
            }
            "sslverifyclient" if first != "none" => {
                self.site.close(&whole("*"));
                return self
                    .lose(directive, "Flash checks no certificates of clients, so everybody gets 403 here");
            }
            _ => return self.lose(directive, "Flash has nothing like it"),
        };
        if self.config.settings.get(key).is_some_and(|earlier| *earlier != value) {
            self.lose(directive, &format!("Flash has one `{key}` for all sites, which an earlier line sets"));
        } else {
            self.config.settings.insert(key, value);
        }
    }

    fn types(&mut self, directive: &Directive) {
        let kind = directive.first();
        let is_type = kind.split_once('/').is_some_and(|(main, sub)| !main.is_empty() && !sub.is_empty());
        for extension in &directive.args[1..] {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            let fits = (1..=32).contains(&extension.len())
                && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_type && fits && kind.bytes().all(|byte| byte.is_ascii_graphic()) {
                self.config.types.entry(extension).or_insert_with(|| kind.to_owned());
            } else {
                self.lose(directive, "Flash takes no such type or extension");
            }
        }
    }

    fn names(&mut self, directive: &Directive) {
        for name in &directive.args {
            let bare = name.split_once("://").map_or(name.as_str(), |(_, rest)| rest);
            let bare = bare.split(':').next().unwrap_or_default();
            match values::host(bare) {
                Some(host) if !self.site.hosts.contains(&host) => self.site.hosts.push(host),
                Some(_) => {}
                None => self.lose(directive, &format!("{name}: Flash has names, and `*.` in front of them")),
            }
        }
    }

    fn options(&mut self, directive: &Directive, paths: &Paths) {
        for word in &directive.args {
            match (word.to_ascii_lowercase().as_str(), is_all(paths)) {
                ("indexes" | "+indexes", true) => self.site.browse = true,
                ("-indexes" | "none", true) => self.site.browse = false,
                ("indexes" | "+indexes" | "-indexes", false) => {
                    self.lose(directive, "Flash's `browse` is for whole sites");
                }
                ("execcgi" | "+execcgi" | "includes" | "+includes", _) => {
                    self.lose(directive, "Flash runs programs on routes (docs/applications.md)");
                }
                _ => {}
            }
        }
    }

    fn error_page(&mut self, directive: &Directive, paths: &Paths) {
        let status = directive.first().parse::<u16>().ok().filter(|status| (400..600).contains(status));
        let page = directive.args.get(1).filter(|page| directive.args.len() == 2 && values::is_file(page));
        let (Some(status), Some(page)) = (status, page) else {
            return self.lose(directive, "Flash shows files of the site for errors");
        };
        let (statuses, error_page) = (vec![status], Some(page.clone()));
        self.site.add(paths, &Rule { statuses, error_page, ..Rule::default() });
    }

    fn alias(&mut self, directive: &Directive) {
        let [from, to] = &directive.args[..] else {
            return self.lose(directive, "needs a path and a folder");
        };
        let root = self.site.root.clone().unwrap_or_default();
        let to = self.files.absolute(to);
        match values::beneath(&to, &root) {
            Some(path) if from.starts_with('/') && !from.contains('*') => {
                let (from, path) = (from.trim_end_matches('/'), path.trim_end_matches('/'));
                if from == path {
                    return;
                }
                let rule = Rule { rewrite: Some(format!("{path}/$1")), ..Rule::new(format!("{from}/*")) };
                if values::is_location(rule.rewrite.as_deref().unwrap_or_default())
                    && pattern::is_form(&rule.path)
                {
                    self.site.rules.push(rule);
                }
            }
            None if from.starts_with('/')
                && !from.trim_end_matches('/').is_empty()
                && pattern::is_form(from) =>
            {
                let rule = Rule::new(format!("{}/*", from.trim_end_matches('/')));
                self.site.rules.push(Rule { alias: Some(values::folder(&to)), ..rule });
            }
            _ => self.lose(directive, "Flash has aliases for folders"),
        }
    }
}

fn pattern_of(path: &str) -> Option<Paths> {
    let is_plain = pattern::is_form(path) && !path.contains(['?', '[']);
    let form = if path.ends_with('/') { format!("{path}*") } else { path.to_owned() };
    let below = (!path.ends_with(['/', '*'])).then(|| (format!("{path}/*"), Vec::new()));
    is_plain.then(|| std::iter::once((form, Vec::new())).chain(below).collect())
}

/// Whether a filter compresses answers.
fn is_compressor(filter: &str) -> bool {
    filter.to_ascii_uppercase().split(';').any(|name| matches!(name, "DEFLATE" | "BROTLI_COMPRESS"))
}
