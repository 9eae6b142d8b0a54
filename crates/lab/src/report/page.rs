//! The page: one HTML file that needs nothing else, not even a script.
//!
//! `report::html` calls it. The plot comes first, then the summary; the setup is at the end. Pure.

use flash_kit::number;
use flash_kit::page::Page;
use flash_kit::text::distinct;
use maud::{Markup, html};

use super::view::View;
use super::{details, levels, shapes};
use super::{sentence, summary};
use crate::results::Run;
use flash_kit::section::Section;

pub(super) fn sections(view: &View) -> Vec<Section> {
    let mut sections = vec![
        levels::profile(view),
        summary::section(view),
        levels::levels(view),
        shapes::cdf(view),
        shapes::deciles(view),
        levels::inversion(view),
        levels::sweep(view),
        shapes::timeline(view),
        details::score(view),
        details::ratios(view),
        details::kinds(view),
        details::split(view),
        details::failures(view),
        details::server(view),
        details::generator(view),
    ];
    sections.retain(|section| !section.is_empty());
    // The plot of most use comes first: of a sweep the sizes, of one level its timeline.
    let first = if view.is_sweep() {
        "sweep"
    } else if view.overlay().len() == 1 {
        "timeline"
    } else {
        "profile"
    };
    if let Some(at) = sections.iter().position(|section| section.id == first) {
        sections[..=at].rotate_right(1);
    }
    sections
}

pub(super) fn page(view: &View) -> Markup {
    let sections = sections(view);
    let body = html! {
        @for (index, section) in sections.iter().enumerate() {
            (section.draw())
            @if index == 0 { (contents(&sections)) }
        }
        (setup(view))
    };
    let page = Page {
        title: &summary::title(view),
        subtitle: &subtitle(view),
        summary: &sentence::sentence(view).unwrap_or_default(),
        warnings: &summary::warnings(view),
        footer: "Made by `flash report`. Latency counts from the intended start of a request to its last byte.",
        ..Page::default()
    };
    page.draw(&body)
}

fn subtitle(view: &View) -> String {
    let words = |run: &Run| {
        let day = run.started.get(..10).unwrap_or(&run.started);
        format!("{}, {}", number::plain(&run.workload), number::plain(day))
    };
    distinct(view.runs.iter().map(words)).join("; ")
}

fn contents(sections: &[Section]) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for section in sections.iter().skip(1) { a href=(format!("#{}", section.id)) { (section.title) } }
            a href="#setup" { "Setup" }
        }
    }
}

/// The servers, the machine, the workload and the settings.
fn setup(view: &View) -> Markup {
    let subjects = Section { tables: vec![summary::subjects(view)], ..Section::default() };
    html! {
        section id="setup" {
            h2 { "Setup" }
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
