//! A listing as HTML for people: readable without scripts, in light and dark, on paper, on small screens and to screen readers.

use std::fmt::Write as _;

use flash_engine::{ListingKey, ListingOrder};
use flash_http::date::iso_date;
use flash_http::error_page::escape_html;

use super::readme::{README_BYTES_MAX, Readme};
use super::text::{breakable, size_text, text};
use super::{Entry, Listing};

const STYLE: &str = include_str!("page.css");
const STYLE_HASH: &str = "sha256-E5cJuN53uf5jddEkdonsPCIcC8056SNP+5cc/2EKSOY=";
/// Shows the filter, which is hidden without it.
const SCRIPT: &str = include_str!("filter.js");
const SCRIPT_HASH: &str = "sha256-dftxPotokTOsXFCyCuw+kbeVNPdJcFKmgkxwwY4neek=";

/// The filter is of use from this many entries on.
const FILTERED_FROM: usize = 10;

/// A path has links to this many directories, besides the first: their total length grows with the square of their number.
const CRUMBS_MAX: usize = 32;

/// The columns, and the order of the first click on each: people look for the largest and the newest.
const COLUMNS: [(ListingKey, &str, bool); 3] = [
    (ListingKey::Name, "Name", false),
    (ListingKey::Size, "Size", true),
    (ListingKey::Time, "Modified (UTC)", true),
];

pub(super) fn page(listing: &Listing) -> String {
    let mut page = String::with_capacity(8192 + listing.entries.len() * 220);
    begin(&mut page, listing);
    table(&mut page, listing);
    let count = count_text(listing);
    // Formatting into a String cannot fail.
    let _ = writeln!(page, "<p id=\"count\" role=\"status\">{count}</p>");
    if let Some(readme) = &listing.readme {
        section(&mut page, readme);
    }
    page.push_str("</main>\n");
    if has_filter(listing) {
        let _ = writeln!(page, "<script>{SCRIPT}</script>");
    }
    page.push_str("</body></html>\n");
    page
}

fn has_filter(listing: &Listing) -> bool {
    listing.entries.len() >= FILTERED_FROM
}

/// Appends the page up to its table. The policy lets nothing run that a name or a README could smuggle in.
fn begin(page: &mut String, listing: &Listing) {
    let path = text(&listing.path);
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src 'self'; \
         style-src '{STYLE_HASH}'; script-src '{SCRIPT_HASH}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>Index of {}</title>\n<style>{STYLE}</style></head>\n<body>\n<header>\
         <nav aria-label=\"Path\"><h1><small>Index of</small> {}</h1></nav>\n",
        escape_html(&path),
        crumbs(&path),
    );
    if has_filter(listing) {
        page.push_str(
            "<p hidden><label for=\"filter\">Filter</label> \
             <input id=\"filter\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\"></p>\n",
        );
    }
    page.push_str("</header>\n<main>\n");
}

/// A path with a link to each directory above. The links are relative, because a proxy can have taken a prefix off the path.
fn crumbs(path: &str) -> String {
    let names: Vec<&str> = path.split_inclusive('/').collect();
    let last = names.len().saturating_sub(1);
    let mut crumbs = String::new();
    for (place, name) in names.iter().enumerate() {
        let (above, name) = (last - place, breakable(&escape_html(name)));
        let _ = match (above, place) {
            (0, _) => write!(crumbs, "<bdi aria-current=\"page\">{name}</bdi>"),
            (_, 0) => write!(crumbs, "<a href=\"{}\" aria-label=\"Top\">{name}</a>", "../".repeat(above)),
            (1..=CRUMBS_MAX, _) => {
                write!(crumbs, "<a href=\"{}\"><bdi>{name}</bdi></a>", "../".repeat(above))
            }
            _ => write!(crumbs, "<bdi>{name}</bdi>"),
        };
        if above > 0 {
            crumbs.push_str("<wbr>");
        }
    }
    crumbs
}

fn table(page: &mut String, listing: &Listing) {
    page.push_str("<table>\n<thead><tr>");
    for (key, title, descends_first) in COLUMNS {
        let is_current = listing.order.key == key;
        let descending = if is_current { !listing.order.descending } else { descends_first };
        let sorted = match (is_current, listing.order.descending) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        let word = ListingOrder { key, descending }.word();
        let _ = write!(page, "<th scope=\"col\"{sorted}><a href=\"?sort={word}\">{title}</a></th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    if listing.path != b"/" {
        page.push_str(
            "<tr id=\"up\"><th scope=\"row\"><a href=\"../\" aria-label=\"Parent directory\">../</a></th>\
             <td></td><td></td></tr>\n",
        );
    }
    listing.entries.iter().for_each(|entry| row(page, entry));
    page.push_str("</tbody></table>\n");
}

fn row(page: &mut String, entry: &Entry) {
    let name = breakable(&escape_html(&text(&entry.name)));
    let modified = entry.modified_s.map(date_text).unwrap_or_default();
    let _ =
        write!(page, "<tr><th scope=\"row\"><a href=\"{}\">{name}{}</a></th>", entry.href(), entry.slash());
    let _ = match entry.size_bytes {
        Some(bytes) if bytes >= 1024 => {
            write!(page, "<td title=\"{bytes} bytes\">{}</td>", size_text(bytes))
        }
        Some(bytes) => write!(page, "<td>{}</td>", size_text(bytes)),
        None => write!(page, "<td></td>"),
    };
    let _ = writeln!(page, "<td>{modified}</td></tr>");
}

fn count_text(listing: &Listing) -> String {
    match (listing.more, listing.entries.len()) {
        (true, count) => format!("The first {count} entries that were found; there are more."),
        (false, 0) => "Empty.".to_owned(),
        (false, 1) => "1 entry".to_owned(),
        (false, count) => format!("{count} entries"),
    }
}

fn section(page: &mut String, readme: &Readme) {
    let Readme { name, text, more } = readme;
    let _ = writeln!(
        page,
        "<section aria-labelledby=\"readme\"><h2 id=\"readme\"><a href=\"./{name}\">{name}</a></h2>"
    );
    if !text.is_empty() {
        // A browser skips the first line break.
        let _ = writeln!(page, "<pre>\n{}</pre>", escape_html(text));
    }
    if *more {
        let _ = writeln!(page, "<p class=\"more\">The first {} KiB of the file.</p>", README_BYTES_MAX >> 10);
    }
    page.push_str("</section>\n");
}

/// The date, and the time of day to the minute, for which small screens have no room.
fn date_text(unix_s: i64) -> String {
    let iso = iso_date(unix_s);
    let (date, time) = (String::from_utf8_lossy(&iso[..10]), String::from_utf8_lossy(&iso[11..16]));
    format!("{date} <span>{time}</span>")
}
