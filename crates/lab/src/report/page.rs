//! The page: one HTML file that needs nothing else, not even a script.
//!
//! `report::html` calls it. Styles stand in `style.css`. Pure.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::part::Part;
use super::summary;
use super::view::View;
use super::{levels, number, rest, shapes};

pub(crate) const STYLE: &str = include_str!("style.css");
/// Opens folded tables for paper where the style alone cannot.
pub(crate) const OPEN_FOR_PRINT: &str =
    "addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>d.open=true))";

/// The parts that have something to say, in their order.
pub(super) fn parts(view: &View) -> Vec<Part> {
    let parts = vec![
        summary::part(view),
        levels::profile(view),
        shapes::cdf(view),
        shapes::deciles(view),
        levels::inversion(view),
        levels::sweep(view),
        shapes::timeline(view),
        rest::score(view),
        rest::ratios(view),
        rest::split(view),
        rest::failures(view),
        rest::server(view),
        rest::generator(view),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// The whole page.
pub(super) fn page(view: &View) -> Markup {
    let title = summary::title(view);
    let parts = parts(view);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · latency under load" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { (title) }
                        p class="sub" { (subtitle(view)) }
                    }
                    (warnings(view))
                    (findings(view))
                    @for part in &parts {
                        (part.draw())
                        @if part.id == "summary" { (contents(&parts)) (measured(view)) }
                    }
                    @if parts.is_empty() { (measured(view)) }
                    footer { "Made by `flash report`. Latency counts from when a request was meant to start to its last byte." }
                }
                script { (PreEscaped(OPEN_FOR_PRINT)) }
            }
        }
    }
}

fn subtitle(view: &View) -> String {
    let mut words: Vec<String> = Vec::new();
    for run in view.runs {
        let one = format!(
            "{}, {}",
            number::plain(&run.workload),
            number::plain(run.started.get(..10).unwrap_or(&run.started))
        );
        if !words.contains(&one) {
            words.push(one);
        }
    }
    words.join("; ")
}

fn warnings(view: &View) -> Markup {
    let warnings = summary::warnings(view);
    html! {
        @if !warnings.is_empty() {
            aside class="warnings" role="note" {
                h2 { "Before you believe the figures" }
                ul { @for warning in &warnings { li { (warning) } } }
            }
        }
    }
}

fn findings(view: &View) -> Markup {
    let findings = summary::findings(view);
    html! {
        @if !findings.is_empty() {
            ul class="findings" { @for finding in &findings { li { (finding) } } }
        }
    }
}

fn contents(parts: &[Part]) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for part in parts.iter().skip(1) { a href=(format!("#{}", part.id)) { (part.title) } }
        }
    }
}

/// What was measured, on what, how.
fn measured(view: &View) -> Markup {
    let subjects = Part { tables: vec![summary::subjects(view)], ..Part::default() };
    html! {
        section id="measured" {
            h2 { "What was measured" }
            @for table in &subjects.tables { (table.draw()) }
            @for (index, run) in view.runs.iter().enumerate() {
                @if view.runs.len() > 1 { h3 { "Run " (index + 1) } }
                dl {
                    @for (name, words) in summary::facts(run) {
                        dt { (name) }
                        dd { @if name == "command" { code { (words) } } @else { (words) } }
                    }
                }
                @if !run.notes.is_empty() {
                    ul class="notes" { @for note in &run.notes { li { (number::plain(note)) } } }
                }
            }
        }
    }
}
