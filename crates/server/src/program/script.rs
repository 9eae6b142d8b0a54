//! The program of `cgi` that a request names, and its variables (RFC 3875 section 4.1).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flash_prompt::file::{FileKind, Want};
use flash_waiting::file;

use crate::config::RoutePaths;

pub(super) type Variable = (Vec<u8>, Vec<u8>);

/// The variables of a request that a program gets besides `HTTP_*`: those of RFC 3875 and those that servers usually add.
/// A worker and the gateway are not trusted with others, because many names change how programs start (`BASH_ENV`,
/// `PERL5OPT`, `LD_PRELOAD`).
const NAMES: [&str; 20] = [
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
];
/// Begins the name of a variable with a field of the request.
const FIELD: &[u8] = b"HTTP_";
/// The field with the client's password, and that by which many libraries choose a proxy.
const AUTHORIZATION: &[u8] = b"AUTHORIZATION";
const PROXY: &[u8] = b"PROXY";

/// A program, and what a request says to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) file: PathBuf,
    pub(super) variables: Vec<Variable>,
}

/// The reason for which there is no program for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoScript {
    NotFound,
    /// It cannot be executed.
    Forbidden,
}

impl Script {
    /// Finds the program in `folder`. With a prefix, `folder` stands for the prefix, and the first file on the path is the
    /// program; the rest of the path is for the program. With an extension, `folder` stands for `/`, the web server knows
    /// which part of the path is the file, and no link leads out of `folder`: who may add files to a site must not choose
    /// programs elsewhere.
    pub(super) fn find(
        folder: &Path,
        paths: &RoutePaths,
        mut variables: Vec<Variable>,
        with_authorization: bool,
    ) -> Result<Self, NoScript> {
        let name = take(&mut variables, b"SCRIPT_NAME");
        let info = take(&mut variables, b"PATH_INFO");
        let (script_name, info, file) = match paths {
            RoutePaths::Prefix(_) => {
                let (file, path_bytes) = first_file(folder, &info).ok_or(NoScript::NotFound)?;
                let (path, rest) = info.split_at(path_bytes);
                ([name.as_slice(), path].concat(), rest.to_vec(), file)
            }
            RoutePaths::Extension(_) => {
                let file = file_beneath(folder, &name)?;
                (name, info, file)
            }
        };
        let permissions = file.metadata().map_err(|_| NoScript::NotFound)?.permissions();
        if permissions.mode() & 0o111 == 0 {
            return Err(NoScript::Forbidden);
        }
        variables.retain(|(name, value)| is_allowed(name, with_authorization) && !value.contains(&0));
        variables.push((b"SCRIPT_FILENAME".to_vec(), file.as_os_str().as_bytes().to_vec()));
        variables.push((b"SCRIPT_NAME".to_vec(), script_name));
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
        if !is_part(part) {
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

/// The file at a path below `folder`, to which no link from elsewhere leads.
fn file_beneath(folder: &Path, path: &[u8]) -> Result<PathBuf, NoScript> {
    let path = path.strip_prefix(b"/").ok_or(NoScript::NotFound)?;
    if !path.split(|byte| *byte == b'/').all(is_part) {
        return Err(NoScript::NotFound);
    }
    let root = file::open_folder(folder).map_err(|_| NoScript::NotFound)?;
    match file::open(root, path, Want::Stat) {
        Ok(found) if found.stat.kind == FileKind::File => Ok(folder.join(OsStr::from_bytes(path))),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(NoScript::Forbidden),
        Ok(_) | Err(_) => Err(NoScript::NotFound),
    }
}

/// Whether a path to a program can have this part. Hidden files are no programs, as they are no files of a site.
fn is_part(part: &[u8]) -> bool {
    !part.is_empty() && !part.starts_with(b".") && !part.contains(&0)
}

/// Removes all variables of this name, and returns the value of the first, or nothing.
fn take(variables: &mut Vec<Variable>, name: &[u8]) -> Vec<u8> {
    let mut taken = variables.extract_if(.., |(other, _)| other == name);
    let first = taken.next().map(|(_, value)| value).unwrap_or_default();
    taken.for_each(drop);
    first
}

/// Whether a program gets the variable of this name. No shell can take one for anything else than a name.
fn is_allowed(name: &[u8], with_authorization: bool) -> bool {
    match name.strip_prefix(FIELD) {
        Some(AUTHORIZATION) => with_authorization,
        Some(field) => {
            let is_plain = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
            !field.is_empty() && field != PROXY && field.iter().all(is_plain)
        }
        None => NAMES.iter().any(|known| known.as_bytes() == name),
    }
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
        let variables =
            [("SCRIPT_NAME", name), ("PATH_INFO", info), ("PATH_INFO", "/2"), ("PATH_TRANSLATED", "/x")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let mut script = Script::find(folder.path(), paths, variables.into(), false)?;
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

    #[test]
    fn with_an_extension_no_link_leads_elsewhere() {
        let folder = programs();
        let link =
            |to: &str, from: &str| std::os::unix::fs::symlink(to, folder.path().join(from)).expect("a link");
        link("/bin/true", "out.cgi");
        link("a/b.cgi", "in.cgi");
        link("/bin", "bin");
        let find = |paths: &RoutePaths, name: &str, info: &str| {
            let variables = [("SCRIPT_NAME", name), ("PATH_INFO", info)];
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            Script::find(folder.path(), paths, variables.into(), false).map(drop)
        };
        let extension = RoutePaths::Extension("cgi".into());
        assert_eq!(find(&extension, "/out.cgi", ""), Err(NoScript::NotFound));
        assert_eq!(find(&extension, "/bin/true", ""), Err(NoScript::NotFound));
        assert_eq!(find(&extension, "/in.cgi", ""), Ok(()));
        // A directory of programs belongs to the operator.
        assert_eq!(find(&RoutePaths::Prefix("/p/".into()), "/p", "/out.cgi"), Ok(()));
    }

    #[test]
    fn a_program_gets_the_variables_of_a_request_only() {
        for name in ["QUERY_STRING", "HTTP_ACCEPT", "HTTP_X_0", "CONTENT_LENGTH"] {
            assert!(is_allowed(name.as_bytes(), false), "{name}");
        }
        let refused = [
            "BASH_ENV",
            "BASH_FUNC_x%%",
            "ENV",
            "IFS",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PATH",
            "PERL5OPT",
            "PERL5LIB",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "RUBYOPT",
            "NODE_OPTIONS",
            "PHPRC",
            "HTTP_PROXY",
            "HTTP_",
            "HTTP_a",
            "HTTP_X=Y",
            "HTTP_X\n",
            "http_x",
            "",
            "=",
            "SCRIPT_FILENAME",
            "HTTP_AUTHORIZATION",
        ];
        for name in refused {
            assert!(!is_allowed(name.as_bytes(), false), "{name}");
        }
        assert!(is_allowed(b"HTTP_AUTHORIZATION", true));
    }
}
