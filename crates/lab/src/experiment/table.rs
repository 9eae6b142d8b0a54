//! All findings in one table, by paper and by its numbers of figures and tables: in a document and on the page of several experiments.
//!
//! [`super::judge`] writes the table into a document, [`super::all`] makes the page. Pure.

use maud::{Markup, html};

use super::finding::{Columns, Finding, Verdict};
use super::{EXPERIMENTS, claims_of_all, write};
use crate::results::Run;
use flash_kit::number::{figure, plain};
use flash_kit::page::Page;
use flash_kit::section::{Cell, Column, table};

/// The papers in their order, and Flash's own bounds.
const PAPERS: [(&str, &str); 5] = [
    ("flash-1999", "Flash: An Efficient and Portable Web Server (flash-1999)"),
    (
        "blocking-induced-latency",
        "Understanding and Addressing Blocking-Induced Network Server Latency (blocking-induced-latency)",
    ),
    (
        "latency-and-connection-scheduling",
        "The Origins of Network Server Latency & the Myth of Connection Scheduling (latency-and-connection-scheduling)",
    ),
    ("overload-and-srpt", "Web servers under overload: How scheduling can help (overload-and-srpt)"),
    ("Flash's", "Flash's own bounds"),
];
const HEADS: [&str; 7] = ["number", "verdict", "finding", "here", "ratio", "95 % interval", "bound"];
/// The verdicts, in sentences about one finding and about several.
const VERDICTS: [(&str, &str); 4] = [
    ("holds", "hold"),
    ("does not hold", "do not hold"),
    ("cannot be told", "cannot be told"),
    (NOT_MEASURED, NOT_MEASURED),
];
const NOT_MEASURED: &str = "not measured";
const FOOTER: &str = "Made by `flash experiment all`. Verdicts are computed from 95 % intervals over the valid rounds; a ratio is that of the comparison that decided.";
/// On a narrow screen a row becomes a paragraph, as the findings of one experiment do.
const STYLE: &str = "
.claims td { white-space: normal }
.claims td:nth-child(1), .claims td:nth-child(6) { white-space: nowrap }
.claims td:nth-child(2) { width: 15% }
.claims td:nth-child(3) { width: 30% }
.claims td:nth-child(4) { width: 24% }
.claims .verdict { font-weight: 600 } .claims .note { font-weight: 400 } .claims .yes { color: var(--k2) } .claims .no { color: var(--k1) }
@media (max-width: 760px) {
  .claims, .claims tbody, .claims tr, .claims td { display: block; padding: 0; width: auto !important }
  .claims thead, .claims td:empty { display: none }
  .claims td { border: 0 }
  .claims td:nth-child(1) { color: var(--soft) }
  .claims td:nth-child(4)::before { content: 'Here: ' }
  .claims td:nth-child(5)::before { content: 'Ratio: ' }
  .claims td:nth-child(6)::before { content: '95 % interval: ' }
  .claims td:nth-child(7)::before { content: 'Bound: ' }
  .claims tr { border-bottom: 1px solid var(--faint); padding: 6px 0 }
}";

/// A finding and how its figures were measured, in words.
#[derive(Clone)]
pub(super) struct Judged {
    pub(super) finding: Finding,
    pub(super) how: String,
}

/// The results of an experiment.
pub(super) struct Folder {
    pub(super) name: &'static str,
    pub(super) is_quick: bool,
    pub(super) run: Run,
    pub(super) judged: Vec<Judged>,
}

/// Where the details of a finding are, by its id.
pub(super) type Link<'a> = &'a dyn Fn(&str) -> String;

/// A row: a finding, measured or not.
struct Row {
    finding: Finding,
    is_measured: bool,
}

/// The numbers in the paper, or the section if the claim has no figure there.
fn number(source: &str) -> String {
    let parts: Vec<&str> = source.split(", ").skip(1).collect();
    let is_number = |part: &&str| part.starts_with("Fig") || part.starts_with("Table");
    match parts.iter().position(is_number) {
        Some(first) => parts[first..].join(", "),
        None if parts.is_empty() => source.trim_start_matches(PAPERS[4].0).trim().to_owned(),
        None => format!("section {}", parts.join(", ")),
    }
}

/// Figures before tables before sections, each in their order.
fn place(number: &str) -> (usize, u32) {
    let kind = ["Fig", "Table"].iter().position(|kind| number.starts_with(kind)).unwrap_or(2);
    let digits: String =
        number.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    (kind, digits.parse().unwrap_or(u32::MAX))
}

/// The rows of each paper; with those findings of all experiments that were not measured.
fn papers(judged: &[Judged]) -> Vec<(&'static str, Vec<Row>)> {
    let order: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    let known = |id: &str| judged.iter().any(|judged| judged.finding.id == id);
    let measured = judged.iter().map(|judged| Row { finding: judged.finding.clone(), is_measured: true });
    let others = claims_of_all().into_iter().filter(|finding| !known(&finding.id));
    let others = others.map(|finding| Row { finding, is_measured: false });
    let mut rows: Vec<Row> = measured.chain(others).collect();
    // The sort keeps the order of the findings of an experiment.
    rows.sort_by_key(|row| {
        let name = row.finding.id.split('/').next().unwrap_or_default();
        (place(&number(&row.finding.source)), order.iter().position(|known| *known == name))
    });
    let mut papers: Vec<(&str, Vec<Row>)> = PAPERS.map(|(_, title)| (title, Vec::new())).into();
    for row in rows {
        let paper = PAPERS.iter().position(|(name, _)| row.finding.source.starts_with(name));
        papers[paper.unwrap_or(PAPERS.len() - 1)].1.push(row);
    }
    papers.retain(|(_, rows)| !rows.is_empty());
    papers
}

impl Row {
    fn verdict(&self) -> String {
        if self.is_measured { self.finding.text() } else { NOT_MEASURED.to_owned() }
    }

    /// The cells behind the finding.
    fn columns(&self) -> [&str; 4] {
        let Columns { figures, value, interval, bound } = &self.finding.columns;
        if self.is_measured { [figures, value, interval, bound] } else { ["", "", "", bound] }
    }

    fn markdown(&self, link: Link<'_>) -> String {
        let Finding { id, source, paper, .. } = &self.finding;
        let finding = format!("[{paper}]({})", link(id));
        let mut cells = vec![number(source), self.verdict(), finding];
        cells.extend(self.columns().map(str::to_owned));
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    }

    fn html(&self, link: Link<'_>) -> Markup {
        let Finding { id, source, paper, .. } = &self.finding;
        let class = match self.finding.verdict {
            Verdict::Holds if self.is_measured => "verdict yes",
            Verdict::DoesNotHold if self.is_measured => "verdict no",
            _ => "verdict",
        };
        html! {
            tr {
                td { (number(source)) }
                td class=(class) {
                    @if self.is_measured { (self.finding.verdict.text()) } @else { (NOT_MEASURED) }
                    @if let Some(why) = self.finding.why.as_ref().filter(|_| self.is_measured) {
                        div class="note" { (plain(why)) }
                    }
                }
                td { @if self.is_measured { a href=(link(id)) { (plain(paper)) } } @else { (plain(paper)) } }
                @for cell in self.columns() { td { (plain(cell)) } }
            }
        }
    }
}

/// How many findings the rows of a table have, by verdict.
fn counted(table: &str) -> String {
    let verdicts: Vec<&str> = table.lines().filter_map(|line| line.split(" | ").nth(1)).collect();
    let of = |(one, many): (&str, &str)| match verdicts
        .iter()
        .filter(|verdict| verdict.starts_with(one))
        .count()
    {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let parts: Vec<String> = VERDICTS.into_iter().filter_map(of).collect();
    parts.join(", ")
}

/// The table of a document, a part for each paper. Rows of findings that were not judged now are those of `old`, the table before.
pub(super) fn markdown(judged: &[Judged], old: &str, link: Link<'_>) -> String {
    let mut text = String::new();
    for (title, rows) in papers(judged) {
        text += &format!("\n### {title}\n\n| {} |\n|{}\n", HEADS.join(" | "), "---|".repeat(HEADS.len()));
        for row in rows {
            let target = format!("]({})", link(&row.finding.id));
            let is_its = |line: &&str| line.contains(&target) && !line.contains(NOT_MEASURED);
            let before = old.lines().find(|line| !row.is_measured && is_its(line));
            text += &before.map_or_else(|| row.markdown(link), |line| format!("{line}\n"));
        }
    }
    format!("\nFindings: {}.\n{text}", counted(&text))
}

/// The page of several experiments.
pub(super) fn page(folders: &[Folder], warnings: &[String], link: Link<'_>) -> String {
    let all: Vec<Judged> = folders.iter().flat_map(|folder| folder.judged.clone()).collect();
    let findings: Vec<Finding> = all.iter().map(|judged| judged.finding.clone()).collect();
    let papers = papers(&all);
    let short = |title: &str| PAPERS.iter().find(|(_, known)| *known == title).map_or("", |(short, _)| short);
    let body = html! {
        nav { @for (title, _) in &papers { a href=(format!("#{}", short(title))) { (title) } } }
        @for (title, rows) in &papers {
            section id=(short(title)) {
                h2 { (title) }
                div class="scroll" {
                    table class="claims" {
                        thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                        tbody { @for row in rows { (row.html(link)) } }
                    }
                }
            }
        }
        section id="experiments" { h2 { "Experiments" } div class="tables" { (experiments(folders)) } }
    };
    let page = Page {
        title: "The papers' findings on this machine",
        subtitle: &machine(folders),
        summary: &write::summary(&findings),
        warnings,
        footer: FOOTER,
        style: STYLE,
        ..Page::default()
    };
    page.draw(&body).into_string()
}

fn machine(folders: &[Folder]) -> String {
    folders.last().map(|folder| folder.run.machine.text()).unwrap_or_default()
}

fn experiments(folders: &[Folder]) -> Markup {
    let columns: [Column<'_, &Folder>; 5] = [
        ("experiment", &|folder| Cell::text(folder.name)),
        ("measured", &|folder| Cell::text(&folder.run.started)),
        ("rounds", &|folder| {
            let rounds = folder.run.settings.get("rounds").map(String::as_str).unwrap_or_default();
            Cell::text(&format!("{rounds}{}", if folder.is_quick { ", quick" } else { "" }))
        }),
        ("load average before", &|folder| Cell::text(&figure(folder.run.machine.load_average))),
        ("program", &|folder| Cell::text(&folder.run.machine.program)),
    ];
    table("The runs behind the findings", &columns, folders).draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(id: &str) -> String {
        format!("{id}.html")
    }

    fn of(id: &str, source: &str) -> Judged {
        let mut finding = Finding::new(id, source, "It is fast", Vec::new());
        finding.verdict = Verdict::Holds;
        finding.columns.value = "2.00".to_owned();
        Judged { finding, how: String::new() }
    }

    #[test]
    fn every_claim_of_a_paper_has_its_number_or_section() {
        for finding in claims_of_all() {
            let number = number(&finding.source);
            let is_own = finding.source.starts_with("Flash's");
            let is_numbered = ["Fig", "Table", "section "].iter().any(|kind| number.starts_with(kind));
            assert!(is_numbered || is_own && !number.is_empty(), "{}: {}", finding.id, finding.source);
            let is_known = PAPERS.iter().any(|(name, _)| finding.source.starts_with(name));
            assert!(is_known, "{}: {}", finding.id, finding.source);
        }
    }

    #[test]
    fn figures_stand_before_tables_and_sections() {
        let numbers =
            ["p, 4, Fig 10", "p, Fig 9", "p, 4.1", "p, 1, Tables 1, 2", "p, 6.2, Figs 9, 10"].map(number);
        assert_eq!(numbers, ["Fig 10", "Fig 9", "section 4.1", "Tables 1, 2", "Figs 9, 10"]);
        assert_eq!(number("Flash's own bound"), "own bound");
        assert_eq!(number("overload-and-srpt, Appendix A, Fig 10"), "Fig 10");
        let mut places = numbers.map(|number| place(&number));
        places.sort_unstable();
        assert_eq!(places, [(0, 9), (0, 9), (0, 10), (1, 1), (2, 4)]);
    }

    #[test]
    fn rows_that_were_not_judged_now_stay() {
        let first = markdown(&[of("overload/mean", "overload-and-srpt, 4.2, Fig 9")], "", &link);
        assert!(first.contains("| Fig 9 | holds | [It is fast](overload/mean.html) |  | 2.00 |"), "{first}");
        assert!(first.contains("Findings: 1 holds, ") && first.contains(" not measured.\n"), "{first}");
        let is_missing =
            |line: &&str| line.contains("(hot-cold/promise.html)") && line.contains(NOT_MEASURED);
        assert!(first.lines().any(|line| is_missing(&line)), "{first}");
        let next = markdown(&[of("hot-cold/promise", "Flash's promise")], &first, &link);
        assert!(next.contains("(overload/mean.html) |  | 2.00 |"), "{next}");
        assert!(!next.lines().any(|line| is_missing(&line)) && next.contains("Findings: 2 hold, "), "{next}");
        assert_eq!(markdown(&[], &next, &link), next, "the same table");
    }
}
