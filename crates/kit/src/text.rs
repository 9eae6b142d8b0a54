//! Text for a terminal of 100 columns: tables and wrapped lines.
//!
//! Reports, `flash trace` and `flash doctor` print with it. Pure.

/// The width of a line, characters.
pub const COLUMNS_MAX: usize = 100;
/// The width of a cell, characters.
const CELL_CHARS_MAX: usize = 64;

/// Columns of words are not cut to less, while two spaces stand between columns.
const WORDS_CHARS_AIRY: usize = 20;
/// With one space they are not cut to less than this.
const WORDS_CHARS_MIN: usize = 8;

/// Rows below their heads; columns of words to the left, figures to the right. A head may have lines, such as
/// "p99\nms". Where a line would be longer than [`COLUMNS_MAX`], columns of words give way.
pub fn columns(heads: &[&str], mut rows: Vec<Vec<String>>, words: &[usize]) -> String {
    let head_lines = heads.iter().map(|head| head.lines().count()).max().unwrap_or(1);
    for back in 1..=head_lines {
        // Heads of fewer lines stand at the foot.
        let line = |head: &&str| head.lines().rev().nth(back - 1).unwrap_or_default().to_owned();
        rows.insert(0, heads.iter().map(line).collect());
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).min(CELL_CHARS_MAX)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let airy = fitted(&widths, words, 2, WORDS_CHARS_AIRY);
    let (gap, widths) = match line_chars(&airy, 2) > COLUMNS_MAX {
        true => (1, fitted(&widths, words, 1, WORDS_CHARS_MIN)),
        false => (2, airy),
    };
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = cut(cell, width);
            line += &" ".repeat(gap);
            line +=
                &if words.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The widths with columns of words cut, the widest first, until a line fits or none has more than `least`.
fn fitted(widths: &[usize], words: &[usize], gap: usize, least: usize) -> Vec<usize> {
    let mut widths = widths.to_vec();
    while line_chars(&widths, gap) > COLUMNS_MAX {
        let wide = words.iter().copied().filter(|&at| widths.get(at).is_some_and(|&width| width > least));
        let Some(widest) = wide.max_by_key(|&at| widths[at]) else { break };
        widths[widest] -= 1;
    }
    widths
}

/// The length of a line of cells of these widths, with a gap before each.
fn line_chars(widths: &[usize], gap: usize) -> usize {
    widths.iter().map(|width| width + gap).sum()
}

/// A text cut to at most this many characters, with an ellipsis where it was cut.
pub fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// A line, broken between words where it is too long; the rest is indented.
pub fn wrapped(line: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for word in line.split(' ') {
        let more = word.chars().count();
        if chars > 0 && chars + 1 + more > COLUMNS_MAX {
            text += "\n  ";
            chars = 2;
        } else if chars > 0 {
            text.push(' ');
            chars += 1;
        }
        text += word;
        chars += more;
    }
    text + "\n"
}

/// Text from outside as it may be printed: control characters and bytes that are not UTF-8 are replaced.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Each once, in the order of their first places.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The first lines, and how many more there are.
pub fn shortened(mut lines: Vec<String>, lines_max: usize) -> Vec<String> {
    let more = lines.len().saturating_sub(lines_max);
    lines.truncate(lines_max);
    if more > 0 {
        lines.push(format!("{more} more of this kind"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(heads: &[&str], rows: &[&[&str]], words: &[usize]) -> String {
        columns(
            heads,
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect(),
            words,
        )
    }

    #[test]
    fn words_stand_left_and_figures_right_below_heads_of_lines() {
        let text = table(
            &["server", "p99\nms", "failed"],
            &[&["flash", "1.20", "0 %"], &["h2o", "123", "0 %"]],
            &[0],
        );
        let wanted = [
            "           p99",
            "  server    ms  failed",
            "  flash   1.20     0 %",
            "  h2o      123     0 %",
            "",
        ];
        assert_eq!(text, wanted.join("\n"));
    }

    #[test]
    fn a_line_is_not_longer_than_the_terminal() {
        let (name, path) = ("n".repeat(60), "p".repeat(90));
        let text = table(&["name", "path", "figure"], &[&[&name, &path, "12,345,678"]], &[0, 1]);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert!(text.ends_with("…  12,345,678\n"), "figures are not cut: {text}");
        let short = table(&["name"], &[&["abc"]], &[0]);
        assert_eq!(short, "  name\n  abc\n");
    }

    #[test]
    fn long_text_is_cut_with_an_ellipsis() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("äöü", 3), "äöü");
    }
}
