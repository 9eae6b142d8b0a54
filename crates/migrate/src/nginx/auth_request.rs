//! `auth_request`: a server that decides about requests, and gives them fields of its answer.

use super::location::Kind;
use super::route;
use super::site::Builder;
use crate::directive::Directive;
use crate::values;

/// The beginning of the variables that hold fields of an answer.
const FIELD_OF_ANSWER: &str = "$upstream_http_";

/// The variable of an `auth_request_set`, and the name of the field that it holds, in lower case.
pub(super) fn variable(directive: &Directive) -> Option<(String, String)> {
    let [variable, value] = &directive.args[..] else { return None };
    let field = value.strip_prefix(FIELD_OF_ANSWER)?.replace('_', "-");
    Some((variable.clone(), field))
}

/// Whether a field of a request, or a parameter of FastCGI, has the name of this field.
pub(super) fn is_named(name: &str, field: &str) -> bool {
    let name = name.strip_prefix("HTTP_").unwrap_or(name).replace('_', "-");
    name.eq_ignore_ascii_case(field) && values::is_given(field)
}

/// Adds the server that a directive asks, and returns the path by which Flash asks it.
///
/// # Errors
/// Why Flash cannot ask it.
pub(super) fn server(builder: &mut Builder<'_, '_>, directive: &Directive) -> Result<String, String> {
    let uri = directive.first();
    let is_asked = |kind: Kind, text: &str| kind != Kind::Regex && text == uri;
    let location = builder.locations.iter().find(|location| is_asked(location.kind, &location.text));
    let scope = location.map(|location| &location.scope).ok_or("there is no location with this path")?;
    let pass = scope.pass.as_ref().filter(|pass| pass.protocol == "proxy");
    let pass = pass.ok_or("Flash asks servers of HTTP alone")?;
    let (mut route, path) = route::to_servers(builder, scope, pass)?;
    let path = if path.is_empty() { uri } else { path };
    values::asked_path(path)?;
    route.paths = ("prefix", path.to_owned());
    if builder.site.add_authorizer(route)? {
        builder.context.lost(directive, &values::closed_for_server(path));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_one_name_in_all_spellings() {
        for name in ["X-User", "x-user", "HTTP_X_USER"] {
            assert!(is_named(name, "x-user"), "{name}");
        }
        assert!(!is_named("REMOTE_USER", "x-user") && !is_named("X-Forwarded-For", "x-forwarded-for"));
    }
}
