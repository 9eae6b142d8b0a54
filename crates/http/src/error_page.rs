//! The short bodies of error pages, in HTML and JSON, and the escapes of both formats.
//!
//! Called by the engine for errors, and by `server` for listings and logs (the escapes). Bodies are a few
//! hundred bytes long. They must not contain anything that the client has sent.

use std::borrow::Cow;

use crate::response::Status;

/// The content type of an error page that is no JSON.
pub const HTML: &str = "text/html; charset=utf-8";

/// The content type and body of an error page. `detail` is a sentence, or empty.
pub fn error_body(status: Status, detail: &str, json: bool) -> (&'static str, Vec<u8>) {
    let (code, title) = (status.0, status.reason());
    if json {
        let detail = escape_json(detail);
        let body = format!("{{\"status\":{code},\"title\":\"{title}\",\"detail\":\"{detail}\"}}\n");
        return ("application/json", body.into_bytes());
    }
    let detail = match detail {
        "" => String::new(),
        _ => format!("<p>{}</p>\n", escape_html(detail)),
    };
    let body = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{code} {title}</title>\n\
         <style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}}</style>\n\
         <h1>{code} {title}</h1>\n{detail}</html>\n"
    );
    (HTML, body.into_bytes())
}

/// Escapes text for HTML elements and quoted attributes.
pub fn escape_html(text: &str) -> Cow<'_, str> {
    escape(text, |character| {
        Some(Cow::Borrowed(match character {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            _ => return None,
        }))
    })
}

/// Escapes text for a JSON string (RFC 8259 section 7). DEL and the C1 controls are escaped too, so that a
/// log shown in a terminal cannot control the terminal.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    escape(text, |character| {
        Some(Cow::Borrowed(match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            _ if character.is_control() => {
                return Some(Cow::Owned(format!("\\u{:04x}", u32::from(character))));
            }
            _ => return None,
        }))
    })
}

/// Replaces the characters for which `replacement` returns a text. Borrows the input if there are none.
fn escape(text: &str, replacement: impl Fn(char) -> Option<Cow<'static, str>>) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (at, character) in text.char_indices() {
        if let Some(replacement) = replacement(character) {
            out.push_str(&text[copied..at]);
            out.push_str(&replacement);
            copied = at + character.len_utf8();
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn html_names_the_status_and_escapes_the_detail() {
        let (content_type, body) = error_body(Status::NOT_FOUND, "No <b> & \"c\"", false);
        let body = String::from_utf8(body).unwrap();
        assert_eq!(content_type, "text/html; charset=utf-8");
        assert!(body.starts_with("<!doctype html>"));
        assert!(body.contains("<title>404 Not Found</title>"));
        assert!(body.contains("<p>No &lt;b&gt; &amp; &quot;c&quot;</p>"));
        assert!(body.contains("color-scheme\" content=\"light dark\""));
        assert!(body.len() < 600, "{} bytes", body.len());
    }

    #[test]
    fn json_is_one_object() {
        let (content_type, body) = error_body(Status::BAD_REQUEST, "a \"b\"\\\n", true);
        assert_eq!(content_type, "application/json");
        let expected = r#"{"status":400,"title":"Bad Request","detail":"a \"b\"\\\n"}"#;
        assert_eq!(String::from_utf8(body).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn an_empty_detail_makes_no_paragraph() {
        let (_, body) = error_body(Status::INTERNAL, "", false);
        assert!(!String::from_utf8(body).unwrap().contains("<p>"));
    }

    #[test]
    fn text_without_special_characters_is_borrowed() {
        assert!(matches!(escape_html("plain \u{e9}"), Cow::Borrowed(_)));
        assert!(matches!(escape_json("plain \u{e9}"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes() {
        assert_eq!(escape_html("\u{e9}<'>&x"), "\u{e9}&lt;&#39;&gt;&amp;x");
        assert_eq!(
            escape_json("\u{e9}\t\u{0}\u{1b}\u{7f}\u{9b}\"end"),
            "\u{e9}\\t\\u0000\\u001b\\u007f\\u009b\\\"end"
        );
    }

    proptest! {
        #[test]
        fn no_dangerous_character_is_left(text in any::<String>()) {
            let html = escape_html(&text);
            prop_assert!(!html.contains(['<', '>', '"', '\'']));
            let json = escape_json(&text);
            prop_assert!(!json.chars().any(char::is_control));
            // Every quote must follow an odd number of backslashes.
            let mut backslashes = 0;
            for character in json.chars() {
                prop_assert!(character != '"' || backslashes % 2 == 1);
                backslashes = if character == '\\' { backslashes + 1 } else { 0 };
            }
            prop_assert_eq!(backslashes % 2, 0);
        }
    }
}
