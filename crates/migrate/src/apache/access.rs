//! `Require`, and the older `Allow` and `Deny`: which clients are admitted.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::{EVERYBODY, Rule};
use crate::pattern::{self, Paths};
use crate::values;

impl Builder<'_> {
    /// The clients that the directives of a section admit.
    pub(super) fn access(&mut self, directives: &[Directive], paths: &Paths) {
        let (mut allow, mut deny, mut is_closed, mut is_open) = (Vec::new(), Vec::new(), false, false);
        let (file, mut users) = (directives.iter().find(|it| it.name == "authuserfile"), None);
        let within = directives.iter().filter(|it| ["requireall", "requireany"].contains(&it.name.as_str()));
        let within: Vec<&Directive> = within.flat_map(|section| section.inner()).collect();
        for directive in directives.iter().chain(within) {
            let words: Vec<String> = directive.args.iter().map(|word| word.to_ascii_lowercase()).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match (directive.name.as_str(), &words[..]) {
                ("require", ["all", "denied"]) | ("deny", ["from", "all"]) => is_closed = true,
                ("require", ["all", "granted"]) | ("allow", ["from", "all"]) => is_open = true,
                ("require", ["local"]) => allow.push("loopback".to_owned()),
                ("require", ["ip", networks @ ..]) | ("allow", ["from", networks @ ..]) => {
                    self.networks(directive, networks, &mut allow);
                }
                ("require", ["not", "ip", networks @ ..]) | ("deny", ["from", networks @ ..]) => {
                    self.networks(directive, networks, &mut deny);
                }
                ("require", ["valid-user"]) if file.is_some() => {
                    users = file.and_then(|file| self.users(file));
                    is_closed |= users.is_none();
                }
                ("require", ["method", ..]) => self.lose(directive, "Flash does not choose by methods"),
                ("require", _) => {
                    is_closed = true;
                    self.lose(
                        directive,
                        "users and names of clients are not carried over (docs/config.md, `users`), so everybody gets 403 here",
                    );
                }
                _ => {}
            }
        }
        if let Some(file) = file.filter(|_| users.is_some() && !allow.is_empty()) {
            self.lose(file, "Flash asks clients of these networks for a password too");
        }
        if is_closed && allow.is_empty() {
            self.site.close(paths);
        } else if !allow.is_empty() || !deny.is_empty() || users.is_some() {
            self.site.add(paths, &Rule { allow, deny, users, ..Rule::default() });
        } else if is_open {
            // It opens a part of what is closed above.
            for (path, _) in paths.iter().filter(|(path, _)| path != "*") {
                let closed = self
                    .site
                    .rules
                    .iter_mut()
                    .filter(|rule| rule.deny == EVERYBODY && pattern::overlap(&rule.path, path));
                closed.filter(|rule| rule.path != *path).for_each(|rule| rule.except.push(path.clone()));
            }
        }
    }

    /// The file of users of `AuthUserFile`, if Flash can use it.
    fn users(&mut self, directive: &Directive) -> Option<String> {
        let file = self.files.absolute(directive.first());
        match values::users(&file) {
            Ok(note) => {
                note.into_iter().for_each(|note| self.lose(directive, note));
                Some(file)
            }
            Err(why) => {
                self.lose(directive, &format!("{why}, so everybody gets 403 here"));
                None
            }
        }
    }

    pub(super) fn networks(&mut self, directive: &Directive, texts: &[&str], networks: &mut Vec<String>) {
        for text in texts {
            match values::network(text) {
                Some(network) => networks.push(network),
                None => {
                    self.lose(directive, &format!("{text}: Flash takes networks"));
                    // Nobody is in this network, so that nobody is admitted by mistake.
                    networks.push("255.255.255.255".to_owned());
                }
            }
        }
    }
}
