//! Texts of messages, cut to the width of a terminal.

use ratatui::text::Span;

use crate::output::printable;

/// Maximum number of lines and characters of one message: the page stays quick, `redrive show` prints the whole.
const LINES: usize = 2_000;
const CHARS: usize = 200_000;

/// Returns lines without line feeds, tabs and characters that steer a terminal.
pub(super) fn lines_of(texts: &[String]) -> Vec<String> {
    let (mut lines, mut chars) = (Vec::new(), 0);
    for line in texts.iter().flat_map(|text| text.split('\n')) {
        if lines.len() == LINES || chars > CHARS {
            lines.push("… `redrive show` prints the rest".to_owned());
            break;
        }
        let line: String = printable(line).replace('\t', "    ").chars().take(CHARS).collect();
        chars += line.len();
        lines.push(line);
    }
    lines
}

/// Breaks lines where they reach the width.
pub(super) fn wrap(lines: &[String], width: u16) -> Vec<String> {
    let width = usize::from(width.max(2));
    let mut wrapped = Vec::new();
    for line in lines {
        let (mut row, mut used) = (String::new(), 0);
        for c in line.chars() {
            let cells = cells(c);
            if used + cells > width {
                wrapped.push(std::mem::take(&mut row));
                used = 0;
            }
            row.push(c);
            used += cells;
        }
        wrapped.push(row);
    }
    wrapped
}

/// Returns how many cells a character fills.
fn cells(c: char) -> usize {
    if c.is_ascii() { 1 } else { Span::raw(c.to_string()).width() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_by_cells_and_steer_nothing() {
        let lines = lines_of(&["a\u{1b}[2Jb\tc\nd".to_owned()]);
        assert_eq!(lines, ["a\\u{1b}[2Jb    c", "d"]);
        assert_eq!(wrap(&["abcde".to_owned(), String::new()], 2), ["ab", "cd", "e", ""]);
        assert_eq!(wrap(&["日本語".to_owned()], 5), ["日本", "語"]);
    }

    #[test]
    fn a_long_message_is_cut() {
        let lines = lines_of(&["x\n".repeat(LINES * 2)]);
        assert_eq!(lines.len(), LINES + 1);
        assert!(lines[LINES].contains("redrive show"));
        let cut = lines_of(&["y".repeat(CHARS * 2)]);
        assert!(cut[0].len() <= CHARS);
    }
}
