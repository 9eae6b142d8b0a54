//! `basic_auth`: the users with their passwords, which Flash reads from a file.

use super::site::Builder;
use crate::directive::Directive;
use crate::model::Rule;
use crate::pattern::Paths;

/// Hashes of bcrypt and Argon2, the forms of Caddy, have only such characters.
fn is_hash(text: &str) -> bool {
    let forms = ["$2a$", "$2b$", "$2y$", "$argon2id$"];
    let fits = |c: char| c.is_ascii_alphanumeric() || "$./+=,".contains(c);
    forms.iter().any(|form| text.starts_with(form)) && text.chars().all(fits)
}

/// The line of a file of users.
fn user(line: &Directive) -> Option<String> {
    let (name, [hash]) = (&line.name, &line.args[..]) else { return None };
    let is_name = !name.is_empty() && !name.contains([':', '{', '#']) && !name.contains(char::is_control);
    (is_name && is_hash(hash)).then(|| format!("{name}:{hash}"))
}

impl Builder<'_> {
    /// Lets only the users in, or closes the paths.
    pub(super) fn basic_auth(&mut self, line: &Directive, args: &[String], paths: &Paths) {
        let kind = args.first().map_or("bcrypt", String::as_str);
        let users: Option<Vec<String>> = line.inner().iter().map(user).collect();
        let users = users.filter(|users| !users.is_empty() && ["bcrypt", "argon2id"].contains(&kind));
        let Some(users) = users else {
            let why = "Flash takes names and the hashes of `caddy hash-password`";
            return self.close_for_want(line, paths, why);
        };
        if args.len() > 1 {
            self.lose(line, "Flash's realm is Restricted");
        }
        for (path, except) in paths {
            let rule = Rule::default().at(path, except);
            let known = self.config.user_files.iter().find(|(_, others)| *others == users);
            let known = known.map(|(file, _)| file.clone());
            let differs = |other: &Rule| other.users.is_some() && other.users != known;
            if self.site.rules.iter().any(|other| differs(other) && other.overlaps(&rule)) {
                let why = "Flash has one file of users for a path, and an earlier line has one";
                self.close_for_want(line, &vec![(path.clone(), except.clone())], why);
                continue;
            }
            let users = known.unwrap_or_else(|| self.add_file(&users));
            self.site.rules.push(Rule { users: Some(users), ..rule });
        }
    }

    /// Adds a file that is to have these users.
    fn add_file(&mut self, users: &[String]) -> String {
        let files = &mut self.config.user_files;
        let number = if files.is_empty() { String::new() } else { format!("-{}", files.len() + 1) };
        let file = format!("/etc/flash/users{number}");
        files.push((file.clone(), users.to_vec()));
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_caddy() {
        assert!(is_hash("$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG"));
        assert!(is_hash("$argon2id$v=19$m=47104,t=1,p=1$zJPvR+sPkh1wPMCTcHqYMw$9wFbIZ0mdYcWlUDL"));
        for text in ["{env.HASH}", "secret", "JDJhJDE0JE", "$2a$14$x\ny"] {
            assert!(!is_hash(text), "{text}");
        }
    }
}
