//! Turns regular expressions of paths into forms with `*`, if these mean the same.
//!
//! `^/old/(.*)$` is `/old/*`, `\.(js|css)$` is `*.js` and `*.css`, and `^/u/([^/]+)$` is `/u/*` without `/u/` and `/u/*/*`. An
//! expression with more (`\d+`, `(?!x)`) has no form.

use std::collections::BTreeMap;

use crate::pattern;

/// The most forms of one expression.
const SHAPES_MAX: usize = 128;
/// How deep groups may be nested.
const DEPTH_MAX: usize = 8;

/// Some of the paths of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) path: String,
    pub(crate) except: Vec<String>,
    /// The text of each group, in which `$1` stands for the first `*` of the path; the whole path is group 0 if it is known.
    pub(crate) groups: BTreeMap<String, String>,
}

impl Shape {
    /// All paths of this form.
    pub(crate) fn of(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// All paths that begin with a slash.
    pub(crate) fn all() -> Self {
        Self { groups: [("0".to_owned(), "/$1".to_owned())].into(), ..Self::of("/*") }
    }

    /// The same paths in forms that begin with a slash, so that a target can have their first part after its host.
    pub(crate) fn rooted(&self) -> Vec<Self> {
        let Some(rest) = self.path.strip_prefix('*') else { return vec![self.clone()] };
        let with_slash = |text: &String| text.replacen("$1", "/$1", usize::from(text.starts_with("$1")));
        let groups = self.groups.iter().map(|(name, text)| (name.clone(), with_slash(text))).collect();
        let others = Self { path: format!("/*{rest}"), except: self.except.clone(), groups };
        if !rest.starts_with('/') {
            return vec![others];
        }
        // The first part can be empty.
        let fewer = |text: &String| {
            (2..=9).fold(text.replace("$1", ""), |text, number| {
                text.replace(&format!("${number}"), &format!("${}", number - 1))
            })
        };
        let groups = self.groups.iter().map(|(name, text)| (name.clone(), fewer(text))).collect();
        vec![Self { path: rest.to_owned(), except: self.except.clone(), groups }, others]
    }
}

#[derive(Clone, Debug)]
enum Node {
    Text(char),
    /// Any characters: at least one if `is_some`, without slashes if `is_name`.
    Any {
        is_some: bool,
        is_name: bool,
    },
    /// One of several; a captured one has names.
    Group {
        names: Vec<String>,
        alternatives: Vec<Vec<Node>>,
        is_optional: bool,
    },
    Start,
    End,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(char),
    Star { is_some: bool, is_name: bool },
}

/// A form in the making: its pieces, and where the groups begin and end in them.
#[derive(Clone, Debug, Default)]
struct Draft {
    pieces: Vec<Piece>,
    groups: Vec<(String, std::ops::Range<usize>)>,
    has_end: bool,
}

/// The forms of an expression.
///
/// # Errors
/// The part of the expression that no form has.
pub(crate) fn shapes(expression: &str, ignores_case: bool) -> Result<Vec<Shape>, String> {
    let text: Vec<char> =
        if ignores_case { lower(expression).chars().collect() } else { expression.chars().collect() };
    let mut parser = Parser { text, at: 0, groups: 0 };
    let alternatives = parser.alternatives(0)?;
    if parser.at < parser.text.len() {
        return Err("a `)` without `(`".to_owned());
    }
    let mut drafts = Vec::new();
    for nodes in &alternatives {
        let is_anchored = matches!(nodes.first(), Some(Node::Start));
        let mut draft = Draft::default();
        if !is_anchored && !nodes.first().is_some_and(begins_with_any) {
            draft.pieces.push(Piece::Star { is_some: false, is_name: false });
        }
        drafts.extend(expand(&nodes[usize::from(is_anchored)..], vec![draft])?);
    }
    drafts.into_iter().map(finish).collect()
}

fn begins_with_any(node: &Node) -> bool {
    match node {
        Node::Any { is_name, .. } => !is_name,
        Node::Group { alternatives, is_optional: false, .. } => {
            alternatives.iter().all(|nodes| nodes.first().is_some_and(begins_with_any))
        }
        _ => false,
    }
}

/// The expression in lower case, except for its escapes.
fn lower(expression: &str) -> String {
    let mut is_escaped = false;
    let each = expression.chars().map(|c| {
        let kept = is_escaped;
        is_escaped = c == '\\' && !kept;
        if kept { c } else { c.to_ascii_lowercase() }
    });
    each.collect()
}

fn finish(mut draft: Draft) -> Result<Shape, String> {
    if !draft.has_end && !matches!(draft.pieces.last(), Some(Piece::Star { is_name: false, .. })) {
        draft.pieces.push(Piece::Star { is_some: false, is_name: false });
    }
    let written = |pieces: &[Piece], special: Option<(usize, &str)>| -> String {
        let each = pieces.iter().enumerate().map(|(at, piece)| match (piece, special) {
            (_, Some((position, text))) if position == at => text.to_owned(),
            (Piece::Text(c), _) => c.to_string(),
            (Piece::Star { .. }, _) => "*".to_owned(),
        });
        each.collect()
    };
    let path = written(&draft.pieces, None);
    if !pattern::is_form(&path) {
        return Err(format!("`{path}` is no form of paths"));
    }
    let mut except = Vec::new();
    for (at, piece) in draft.pieces.iter().enumerate() {
        let Piece::Star { is_some, is_name } = piece else { continue };
        for (is_there, text) in [(*is_some, ""), (*is_name, "*/*")] {
            let form = written(&draft.pieces, Some((at, text)));
            if is_there && pattern::is_form(&form) && !except.contains(&form) && form != path {
                except.push(form);
            }
        }
    }
    let replay = |range: &std::ops::Range<usize>| -> String {
        let mut stars =
            draft.pieces[..range.start].iter().filter(|it| matches!(it, Piece::Star { .. })).count();
        let each = draft.pieces[range.clone()].iter().map(|piece| match piece {
            Piece::Text(c) => c.to_string(),
            Piece::Star { .. } => {
                stars += 1;
                format!("${stars}")
            }
        });
        each.collect()
    };
    let mut groups: BTreeMap<String, String> =
        draft.groups.iter().map(|(name, range)| (name.clone(), replay(range))).collect();
    groups.insert("0".to_owned(), replay(&(0..draft.pieces.len())));
    Ok(Shape { path, except, groups })
}

fn expand(nodes: &[Node], mut drafts: Vec<Draft>) -> Result<Vec<Draft>, String> {
    for node in nodes {
        if drafts.iter().any(|draft| draft.has_end) {
            return Err("text after `$`".to_owned());
        }
        match node {
            Node::Text(c) => drafts.iter_mut().for_each(|draft| draft.pieces.push(Piece::Text(*c))),
            Node::Any { is_some, is_name } => {
                let (is_some, is_name) = (*is_some, *is_name);
                drafts.iter_mut().for_each(|draft| draft.pieces.push(Piece::Star { is_some, is_name }));
            }
            Node::Start => return Err("`^` behind the start".to_owned()),
            Node::End => drafts.iter_mut().for_each(|draft| draft.has_end = true),
            Node::Group { names, alternatives, is_optional } => {
                let mut next = if *is_optional { drafts.clone() } else { Vec::new() };
                for alternative in alternatives {
                    for draft in &drafts {
                        let start = draft.pieces.len();
                        for mut draft in expand(alternative, vec![draft.clone()])? {
                            let range = start..draft.pieces.len();
                            draft.groups.extend(names.iter().map(|name| (name.clone(), range.clone())));
                            next.push(draft);
                        }
                    }
                }
                drafts = next;
            }
        }
        if drafts.len() > SHAPES_MAX || drafts.iter().any(|draft| draft.pieces.len() > pattern::BYTES_MAX) {
            return Err("too many alternatives".to_owned());
        }
    }
    Ok(drafts)
}

struct Parser {
    text: Vec<char>,
    at: usize,
    groups: usize,
}

impl Parser {
    fn next_if(&mut self, wanted: char) -> bool {
        let is_next = self.text.get(self.at) == Some(&wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let is_next = self.text[self.at..].iter().copied().take(wanted.len()).eq(wanted.chars());
        self.at += if is_next { wanted.len() } else { 0 };
        is_next
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Vec<Node>>, String> {
        if depth > DEPTH_MAX {
            return Err("too many groups within each other".to_owned());
        }
        let mut all = vec![Vec::new()];
        while let Some(c) = self.text.get(self.at).copied() {
            if c == ')' {
                break;
            }
            self.at += 1;
            if c == '|' {
                all.push(Vec::new());
                continue;
            }
            let is_first = depth == 0 && all.last().is_some_and(Vec::is_empty);
            let node = self.node(c, (depth, is_first))?;
            let node = self.quantified(node)?;
            if let (Some(nodes), Some(node)) = (all.last_mut(), node) {
                nodes.push(node);
            }
        }
        Ok(all)
    }

    fn node(&mut self, c: char, (depth, is_first): (usize, bool)) -> Result<Option<Node>, String> {
        let node = match c {
            '^' => Node::Start,
            '$' => Node::End,
            '\\' => match self.text.get(self.at).copied() {
                Some(c) if !c.is_ascii_alphanumeric() => {
                    self.at += 1;
                    Node::Text(c)
                }
                Some(c) => return Err(format!("`\\{c}`")),
                None => return Err("`\\` at the end".to_owned()),
            },
            '.' => match self.repeated() {
                Some(is_some) => Node::Any { is_some, is_name: false },
                // Every path has a character before this one: its first slash.
                None if is_first => return Ok(None),
                None => return Err("`.` for one character".to_owned()),
            },
            '[' => self.class()?,
            '(' => self.group(depth)?,
            '*' | '+' | '?' | '{' | '}' | ']' => return Err(format!("`{c}` here")),
            c => Node::Text(c),
        };
        match node {
            Node::Text(c @ ('*' | '$')) => Err(format!("`{c}` in a path")),
            node => Ok(Some(node)),
        }
    }

    /// A repetition, if one comes: of at least one, or of any number.
    fn repeated(&mut self) -> Option<bool> {
        let is_some = self.next_if('+');
        if !is_some && !self.next_if('*') {
            return None;
        }
        // Reluctant or possessive: a form does not know the difference.
        let _ = self.next_if('?') || self.next_if('+');
        Some(is_some)
    }

    fn quantified(&mut self, node: Option<Node>) -> Result<Option<Node>, String> {
        let is_optional = self.next_if('?');
        let is_more = self.text.get(self.at).is_some_and(|c| "*+?{".contains(*c));
        match node {
            Some(Node::Any { .. } | Node::Start | Node::End) | None if is_optional => {
                Err("`?` here".to_owned())
            }
            _ if is_more => Err("a repetition".to_owned()),
            Some(Node::Group { names, alternatives, .. }) => {
                Ok(Some(Node::Group { names, alternatives, is_optional }))
            }
            Some(node) if is_optional => {
                Ok(Some(Node::Group { names: Vec::new(), alternatives: vec![vec![node]], is_optional }))
            }
            node => Ok(node),
        }
    }

    /// A set of characters: all but the slash, repeated, or a few.
    fn class(&mut self) -> Result<Node, String> {
        let end = self.text[self.at..].iter().skip(1).position(|c| *c == ']').map(|at| at + 1);
        let end = end.ok_or("a `[` without `]`")?;
        let inner: Vec<char> = self.text[self.at..self.at + end].to_vec();
        self.at += end + 1;
        let text: String = inner.iter().collect();
        if ["^/", "^\\/"].contains(&text.as_str()) {
            let is_some = self.repeated().ok_or("`[^/]` for one character")?;
            return Ok(Node::Any { is_some, is_name: true });
        }
        let plain: Vec<char> = text.replace('\\', "").chars().collect();
        if inner[0] == '^'
            || text.contains('-')
            || plain.len() > 4
            || plain.iter().any(|c| "*$[".contains(*c))
        {
            return Err(format!("`[{text}]`"));
        }
        let alternatives = plain.into_iter().map(|c| vec![Node::Text(c)]).collect();
        Ok(Node::Group { names: Vec::new(), alternatives, is_optional: false })
    }

    fn group(&mut self, depth: usize) -> Result<Node, String> {
        let mut names = Vec::new();
        if self.takes("?<") || self.takes("?P<") {
            let end = self.text[self.at..].iter().position(|c| *c == '>').ok_or("a group without a name")?;
            let name: String = self.text[self.at..self.at + end].iter().collect();
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err("a look around".to_owned());
            }
            self.at += end + 1;
            names.push(name);
        }
        if !names.is_empty() || !self.takes("?:") {
            if self.text.get(self.at) == Some(&'?') {
                return Err("a look around".to_owned());
            }
            self.groups += 1;
            names.push(self.groups.to_string());
        }
        let alternatives = self.alternatives(depth + 1)?;
        if !self.next_if(')') {
            return Err("a `(` without `)`".to_owned());
        }
        Ok(Node::Group { names, alternatives, is_optional: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(expression: &str) -> Vec<String> {
        let shapes = shapes(expression, false).unwrap_or_else(|why| panic!("{expression}: {why}"));
        shapes.into_iter().map(|shape| shape.path).collect()
    }

    #[test]
    fn expressions_have_forms() {
        assert_eq!(paths(r"\.(js|css)$"), ["*.js", "*.css"]);
        assert_eq!(paths(r"^/old/(.*)$"), ["/old/*"]);
        assert_eq!(paths(r"^/old"), ["/old*"]);
        assert_eq!(paths(r"\.jpe?g$"), ["*.jpg", "*.jpeg"]);
        assert_eq!(paths(r"^/(a|b(c|d))/x$"), ["/a/x", "/bc/x", "/bd/x"]);
        assert_eq!(paths(r"^/a$|^/b$"), ["/a", "/b"]);
        assert_eq!(paths(".php$"), ["*php"]);
        assert_eq!(paths(r"\.(?:git|svn)"), ["*.git*", "*.svn*"]);
        assert_eq!(paths("^"), ["*"]);
        assert_eq!(paths(r"^/x(\.html)?$"), ["/x", "/x.html"]);
        assert_eq!(shapes(r"\.JPG$", true).unwrap()[0].path, "*.jpg");
    }

    #[test]
    fn groups_are_stars_or_texts() {
        let shape = |expression: &str| shapes(expression, false).unwrap().remove(0);
        assert_eq!(shape("^/a/(.*)/b/(.+)$").groups["2"], "$2");
        assert_eq!(shape("^/(x|y)/(?<rest>.*)").groups["1"], "x");
        assert_eq!(shape("^/(x|y)/(?<rest>.*)").groups["rest"], "$1");
        assert_eq!(
            shape("(.*)/index.html$".replace('.', r"\.").replace(r"\.*", ".*").as_str()).groups["1"],
            "$1"
        );
        assert_eq!(shape("/b/(.*)$").groups["1"], "$2", "the first star stands for the start");
        assert_eq!(shape("^/(.*)$").groups["0"], "/$1");
    }

    #[test]
    fn forms_can_begin_with_a_slash() {
        let rooted = |expression: &str| shapes(expression, false).unwrap()[0].rooted();
        let all = rooted("^(.*)$");
        assert_eq!((all[0].path.as_str(), all[0].groups["1"].as_str()), ("/*", "/$1"));
        let index = rooted(r"^(.*)/index\.(.*)$");
        assert_eq!(
            (index[0].path.as_str(), index[0].groups["1"].as_str(), index[0].groups["2"].as_str()),
            ("/index.*", "", "$1")
        );
        assert_eq!(
            (index[1].path.as_str(), index[1].groups["1"].as_str(), index[1].groups["2"].as_str()),
            ("/*/index.*", "/$1", "$2")
        );
    }

    #[test]
    fn names_and_some_characters_are_excepted() {
        let shape = |expression: &str| shapes(expression, false).unwrap().remove(0);
        assert_eq!(shape("^/u/([^/]+)$").except, ["/u/", "/u/*/*"]);
        assert_eq!(shape("^/old/(.+)$").except, ["/old/"]);
        assert!(shape("^(.+)$").except.is_empty());
    }

    #[test]
    fn other_expressions_have_none() {
        for expression in [
            r"\d+", "[0-9]", "a{2}", "(?!x)", "a+", "(a)*", "a$b", "(^|/)x", "(", "[", "a)", "\\", "^x",
            ".x.y", r"\*", "?", "(?i)a", "[^/]",
        ] {
            assert!(shapes(expression, false).is_err(), "{expression}");
        }
        let many = "(a|b|c|d)".repeat(8);
        assert!(shapes(&many, false).is_err());
        assert!(shapes(&"(".repeat(10_000), false).is_err());
    }
}
