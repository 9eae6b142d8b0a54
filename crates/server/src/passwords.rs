//! Passwords as a file of users stores them, in the forms of htpasswd(1), crypt(5) and Argon2 (RFC 9106). Comparing one takes a tenth
//! of a second by design, so only helpers do it. The configuration checks the forms.

use std::fmt::Write as _;

use argon2::{Argon2, Params, PasswordHash, PasswordVerifier};
use sha_crypt::{Sha512Params, sha512_crypt_b64};
use subtle::ConstantTimeEq;

/// The highest costs, each about a second of a core.
const BCRYPT_COST_MAX: u32 = 14;
const SHA512_ROUNDS_MAX: usize = 1_000_000;
const ARGON2_MIB_MAX: u32 = 64;
const ARGON2_WORK_MAX: u32 = 512 * 1024;
/// The rounds of SHA-512 that are not written (crypt(5)).
const SHA512_ROUNDS: usize = 5_000;

/// The parts of a password stored by SHA-512: `$6$rounds=5000$SALT$HASH`.
struct Sha512<'s> {
    rounds: usize,
    salt: &'s str,
    hash: &'s str,
}

impl<'s> Sha512<'s> {
    fn read(stored: &'s str) -> Option<Self> {
        let rest = stored.strip_prefix("$6$")?;
        let (rounds, rest) = match rest.strip_prefix("rounds=") {
            Some(rest) => {
                rest.split_once('$').and_then(|(rounds, rest)| Some((rounds.parse().ok()?, rest)))?
            }
            None => (SHA512_ROUNDS, rest),
        };
        let (salt, hash) = rest.split_once('$')?;
        (hash.len() == 86 && !hash.contains('$')).then_some(Self { rounds, salt, hash })
    }
}

fn is_bcrypt(stored: &str) -> bool {
    ["$2y$", "$2b$", "$2a$"].iter().any(|form| stored.starts_with(form))
}

/// Whether a stored password can be compared.
///
/// # Errors
/// Why not, and what to do.
pub(crate) fn check(stored: &str) -> Result<(), String> {
    if is_bcrypt(stored) {
        let cost: Option<u32> = stored[4..].split_once('$').and_then(|(cost, _)| cost.parse().ok());
        return match cost {
            Some(cost) if cost > BCRYPT_COST_MAX => {
                Err(format!("a cost of {cost} is above {BCRYPT_COST_MAX}"))
            }
            _ if bcrypt::verify("", stored_cheaply(stored).as_str()).is_ok() => Ok(()),
            _ => Err("it is no complete hash of bcrypt".to_owned()),
        };
    }
    if stored.starts_with("$6$") {
        let Some(parts) = Sha512::read(stored) else {
            return Err("it is no complete hash of SHA-512".to_owned());
        };
        return match Sha512Params::new(parts.rounds) {
            Ok(_) if parts.rounds <= SHA512_ROUNDS_MAX => Ok(()),
            _ => Err(format!("its rounds must be from 1000 to {SHA512_ROUNDS_MAX}")),
        };
    }
    if stored.starts_with("$argon2") {
        let hash = PasswordHash::new(stored).ok().filter(|hash| hash.hash.is_some());
        let Some(params) = hash.as_ref().and_then(|hash| Params::try_from(hash).ok()) else {
            return Err("it is no complete hash of Argon2".to_owned());
        };
        if params.m_cost() > ARGON2_MIB_MAX * 1024
            || params.m_cost().saturating_mul(params.t_cost()) > ARGON2_WORK_MAX
        {
            return Err(format!(
                "Argon2 may use at most {ARGON2_MIB_MAX} MiB, and {} MiB times its passes",
                ARGON2_WORK_MAX / 1024
            ));
        }
        return Ok(());
    }
    let mut why = "its form is none of bcrypt, SHA-512 ($6$) and Argon2".to_owned();
    if stored.starts_with("$apr1$") || stored.starts_with("{SHA}") || !stored.contains('$') {
        let _ = write!(why, "; make it anew with `htpasswd -B`");
    }
    Err(why)
}

/// The same hash of bcrypt with the lowest cost, to see whether its form is right.
fn stored_cheaply(stored: &str) -> String {
    let rest = stored[4..].split_once('$').map_or("", |(_, rest)| rest);
    format!("{}04${rest}", &stored[..4])
}

pub(crate) fn is_right(stored: &[u8], given: &[u8]) -> bool {
    let Ok(stored) = std::str::from_utf8(stored) else { return false };
    // Whoever sends it, it costs no more than the file may.
    if check(stored).is_err() {
        return false;
    }
    if is_bcrypt(stored) {
        return bcrypt::verify(given, stored).unwrap_or(false);
    }
    if let Some(Sha512 { rounds, salt, hash }) = Sha512::read(stored) {
        let made = Sha512Params::new(rounds)
            .ok()
            .and_then(|params| sha512_crypt_b64(given, salt.as_bytes(), &params).ok());
        return made.is_some_and(|made| bool::from(made.as_bytes().ct_eq(hash.as_bytes())));
    }
    PasswordHash::new(stored).is_ok_and(|hash| Argon2::default().verify_password(given, &hash).is_ok())
}

/// The names and stored passwords of a file of users: a line `name:password` for each.
///
/// # Errors
/// The first line that is wrong, and why.
pub(crate) fn read(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut users: Vec<(String, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}");
        // htpasswd allows a comment behind a second colon.
        let (name, rest) = line.split_once(':').ok_or_else(|| wrong("must be NAME:PASSWORD"))?;
        let stored = rest.split(':').next().unwrap_or_default();
        if name.is_empty() || users.iter().any(|(other, _)| other == name) {
            return Err(wrong(if name.is_empty() { "there is no name" } else { "the name occurs twice" }));
        }
        check(stored).map_err(|why| wrong(&format!("the password of {name}: {why}")))?;
        users.push((name.to_owned(), stored.to_owned()));
    }
    if users.is_empty() { Err("it has no user".to_owned()) } else { Ok(users) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `secret`, stored by htpasswd -B, openssl passwd -6 (with and without rounds) and argon2-cffi.
    const STORED: [&str; 4] = [
        "$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.",
        "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
        "$6$rounds=2000$abcdefgh$js.Oqma4t2Fwxd5k1k7HZc8PJANjCww6bXOf6rha5ucSTdmrEHzoB1xTT6hSCKIARQkqP2BCwtC1eCAzLkvzb1",
        "$argon2id$v=19$m=1024,t=1,p=1$v64e2/X+3xw/4ff0g9LClg$/MUjbvsEGNTVJsG9CIlB/9PKH52mozCmlIAtRgY2Zt8",
    ];

    #[test]
    fn the_right_password_is_right() {
        for stored in STORED {
            assert_eq!(check(stored), Ok(()), "{stored}");
            assert!(is_right(stored.as_bytes(), b"secret"), "{stored}");
            for wrong in ["", "Secret", "secret "] {
                assert!(!is_right(stored.as_bytes(), wrong.as_bytes()), "{stored} {wrong}");
            }
        }
    }

    #[test]
    fn other_forms_say_what_to_do() {
        for (stored, part) in [
            ("$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", "htpasswd -B"),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "htpasswd -B"),
            ("rqXexS6ZhobKA", "htpasswd -B"),
            ("$2y$31$jpDlgbS0P9bA/sYdTMZ8vurBFkzxfn.Y1hRMn3n8Zgb0CiALJgmqC", "a cost of 31 is above 14"),
            ("$2y$05$short", "no complete hash of bcrypt"),
            ("$6$salt$short", "no complete hash of SHA-512"),
            ("$6$rounds=99999999$salt$", "no complete hash of SHA-512"),
            ("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ", "no complete hash of Argon2"),
            ("$y$j9T$abc", "none of bcrypt"),
        ] {
            assert!(check(stored).is_err_and(|why| why.contains(part)), "{stored}: {:?}", check(stored));
            assert!(!is_right(stored.as_bytes(), b""), "{stored}");
        }
    }

    #[test]
    fn a_file_has_a_user_a_line() {
        let [one, two, ..] = STORED;
        let text = format!("# people\n\nann:{one}:Ann\nböb:{two} \n");
        assert_eq!(
            read(&text).map(|users| users.into_iter().map(|(name, _)| name).collect()),
            Ok(vec!["ann".to_owned(), "böb".to_owned()])
        );
        for (text, part) in [
            ("", "it has no user"),
            ("ann", "line 1: must be NAME:PASSWORD"),
            (&format!("a:{one}\na:{two}"), "line 2: the name occurs twice"),
            (&format!(":{one}"), "line 1: there is no name"),
            ("ann:secret", "line 1: the password of ann: its form is none"),
        ] {
            assert!(read(text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}
