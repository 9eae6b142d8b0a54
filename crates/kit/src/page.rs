//! The frame of every page: one HTML file that needs nothing else, its style sheet, and the folded warnings.
//!
//! `report`, `sheet` and the page of `flash trace` call it. Pure.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::number;

const STYLE: &str = include_str!("style.css");
/// Opens folded tables for paper where the style alone cannot.
const OPEN_FOR_PRINT: &str =
    "addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>d.open=true))";

/// The frame of a page: its head, and its body up to the plot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    pub title: &'a str,
    /// The line below the heading.
    pub subtitle: &'a str,
    /// The result in one sentence; none when it is empty.
    pub summary: &'a str,
    /// Each on a line of its own, folded; only their number is visible at first.
    pub warnings: &'a [String],
    /// The line at the foot, and how to read the figures.
    pub footer: &'a str,
    /// Stands behind the heading in the name of the window.
    pub kind: &'a str,
    pub style: &'a str,
}

impl Page<'_> {
    /// The whole page around `body`, which begins with the plot.
    pub fn draw(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) (self.kind) }
                    style { (PreEscaped(STYLE)) (PreEscaped(self.style)) }
                }
                body {
                    main {
                        header {
                            h1 { (self.title) }
                            p class="sub" { (self.subtitle) }
                            @if !self.summary.is_empty() { p class="answer" { (number::plain(self.summary)) } }
                        }
                        (warnings(self.warnings))
                        (body)
                        footer { (self.footer) }
                    }
                    script { (PreEscaped(OPEN_FOR_PRINT)) }
                }
            }
        }
    }
}

/// The warnings, folded: how many there are, then one on each line.
pub fn warnings(warnings: &[String]) -> Markup {
    let count = match warnings.len() {
        1 => "1 warning".to_owned(),
        count => format!("{} warnings", number::count(count as u64)),
    };
    html! {
        @if !warnings.is_empty() {
            details class="warnings" {
                summary { (count) " about these figures" }
                ul { @for warning in warnings { li { (number::plain(warning)) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_counted_and_folded() {
        assert_eq!(warnings(&[]).into_string(), "");
        let two = warnings(&["a <b>".to_owned(), "c".to_owned()]).into_string();
        assert!(two.starts_with("<details class=\"warnings\"><summary>2 warnings about"), "{two}");
        assert!(two.contains("<li>a &lt;b&gt;</li><li>c</li>"), "{two}");
        assert!(warnings(&["a".to_owned()]).into_string().contains(">1 warning about"));
    }

    #[test]
    fn the_summary_stands_before_the_plot() {
        let page = Page { title: "t", subtitle: "s", summary: "Flash wins.", footer: "f", ..Page::default() };
        let drawn = page.draw(&html! { svg {} }).into_string();
        let at = |text: &str| drawn.find(text).unwrap_or_else(|| panic!("{text} is missing: {drawn}"));
        assert!(at("Flash wins.") < at("<svg"));
    }
}
