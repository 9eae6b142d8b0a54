//! The program of `cgi` that a request names, and its variables (RFC 3875 section 4.1).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::config::RoutePaths;

/// A variable of a request, and its value.
pub(super) type Variable = (Vec<u8>, Vec<u8>);

/// A program, and what a request says to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) file: PathBuf,
    pub(super) variables: Vec<Variable>,
}

/// The reason for which there is no program for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoScript {
    /// There is no such file.
    NotFound,
    /// It cannot be executed.
    Forbidden,
}

impl Script {
    /// Finds the program in `folder`. With a prefix, `folder` stands for the prefix, and the first file on the path is the
    /// program; the rest of the path is for the program. With an extension, `folder` stands for `/`, and the web server knows
    /// which part of the path is the file.
    pub(super) fn find(
        folder: &Path,
        paths: &RoutePaths,
        mut variables: Vec<Variable>,
    ) -> Result<Self, NoScript> {
        let name = take(&mut variables, b"SCRIPT_NAME");
        let info = take(&mut variables, b"PATH_INFO");
        take(&mut variables, b"PATH_TRANSLATED");
        let (base, path, rest): (&[u8], &[u8], &[u8]) = match paths {
            RoutePaths::Prefix(_) => (&name, &info, b""),
            RoutePaths::Extension(_) => (b"", &name, &info),
        };
        let (file, path_bytes) = first_file(folder, path).ok_or(NoScript::NotFound)?;
        // With an extension, a file above the one that the path names is another program.
        if path_bytes < path.len() && matches!(paths, RoutePaths::Extension(_)) {
            return Err(NoScript::NotFound);
        }
        let info = [&path[path_bytes..], rest].concat();
        let permissions = file.metadata().map_err(|_| NoScript::NotFound)?.permissions();
        if permissions.mode() & 0o111 == 0 {
            return Err(NoScript::Forbidden);
        }
        variables.retain(|(name, _)| is_name(name) && name != b"SCRIPT_FILENAME");
        variables.push((b"SCRIPT_FILENAME".to_vec(), file.as_os_str().as_bytes().to_vec()));
        variables.push((b"SCRIPT_NAME".to_vec(), [base, &path[..path_bytes]].concat()));
        if !info.is_empty() {
            variables.push((b"PATH_INFO".to_vec(), info));
        }
        Ok(Self { file, variables })
    }
}

/// The first file on a path below `folder`, and the bytes of the path that lead to it.
fn first_file(folder: &Path, path: &[u8]) -> Option<(PathBuf, usize)> {
    let mut file = folder.to_owned();
    let mut path_bytes = 0;
    for part in path.strip_prefix(b"/")?.split(|byte| *byte == b'/') {
        // Hidden files are no programs, as they are no files of a site.
        if part.is_empty() || part.starts_with(b".") || part.contains(&0) {
            return None;
        }
        file.push(OsStr::from_bytes(part));
        path_bytes += 1 + part.len();
        let found = file.metadata().ok()?;
        if found.is_file() {
            return Some((file, path_bytes));
        }
    }
    None
}

/// Removes a variable, and returns its value or nothing.
fn take(variables: &mut Vec<Variable>, name: &[u8]) -> Vec<u8> {
    let place = variables.iter().position(|(other, _)| other == name);
    place.map(|place| variables.swap_remove(place).1).unwrap_or_default()
}

/// Whether a variable can be one of a request, and does not change how programs start.
fn is_name(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_uppercase)
        && name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
        && !name.starts_with(b"LD_")
        && name != b"PATH"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with a program in a folder, and a file that is none.
    fn programs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("a")).expect("a folder");
        for (name, mode) in [("a/b.cgi", 0o755), ("c.cgi", 0o644), ("d.txt", 0o755)] {
            let path = folder.path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
        }
        folder
    }

    /// `SCRIPT_NAME` and `PATH_INFO` as the program gets them.
    fn found(paths: &RoutePaths, name: &str, info: &str) -> Result<(String, String), NoScript> {
        let folder = programs();
        let variables = [("SCRIPT_NAME", name), ("PATH_INFO", info), ("LD_PRELOAD", "/x"), ("PATH", "/x")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let mut script = Script::find(folder.path(), paths, variables.into())?;
        assert!(script.file.starts_with(folder.path()));
        let mut text = |name: &[u8]| String::from_utf8(take(&mut script.variables, name)).expect("text");
        assert_eq!(text(b"SCRIPT_FILENAME"), script.file.to_str().expect("text"));
        let found = (text(b"SCRIPT_NAME"), text(b"PATH_INFO"));
        assert_eq!(script.variables, [], "no other variable is passed on");
        Ok(found)
    }

    #[test]
    fn with_a_prefix_the_first_file_is_the_program() {
        let paths = RoutePaths::Prefix("/cgi-bin/".into());
        let find = |info: &str| found(&paths, "/cgi-bin", info);
        assert_eq!(find("/a/b.cgi"), Ok(("/cgi-bin/a/b.cgi".into(), String::new())));
        assert_eq!(find("/a/b.cgi/x//y"), Ok(("/cgi-bin/a/b.cgi".into(), "/x//y".into())));
        assert_eq!(find("/a/b.cgi/../../x"), Ok(("/cgi-bin/a/b.cgi".into(), "/../../x".into())));
        for missing in ["", "/", "/a", "/a/", "/x", "//a/b.cgi", "/a/../a/b.cgi", "/../x", "/a\0"] {
            assert_eq!(find(missing), Err(NoScript::NotFound), "{missing}");
        }
        assert_eq!(find("/c.cgi"), Err(NoScript::Forbidden));
    }

    #[test]
    fn with_an_extension_the_name_is_the_program() {
        let paths = RoutePaths::Extension("cgi".into());
        assert_eq!(found(&paths, "/a/b.cgi", "/x"), Ok(("/a/b.cgi".into(), "/x".into())));
        assert_eq!(found(&paths, "/d.txt/b.cgi", ""), Err(NoScript::NotFound), "another program");
        assert_eq!(found(&paths, "/x.cgi", ""), Err(NoScript::NotFound));
        assert_eq!(found(&paths, "/c.cgi", ""), Err(NoScript::Forbidden));
    }
}
