//! The figures as a picture: bars, one panel for each course.

use std::fmt::Write as _;

use super::figures::{Course, Entry};

const PANEL: Size = Size { width: 460, title: 34, row: 22, gap: 24 };
const LABEL: f64 = 160.0;
const VALUE: f64 = 70.0;
const COLUMNS: usize = 2;

struct Size {
    width: usize,
    title: usize,
    row: usize,
    gap: usize,
}

/// Draws the median rates of all courses, two panels side by side.
pub(super) fn draw(courses: &[Course], machine: &str) -> String {
    let rows: Vec<&[Course]> = courses.chunks(COLUMNS).collect();
    let heights: Vec<usize> =
        rows.iter().map(|row| row.iter().map(height).max().unwrap_or_default()).collect();
    let width = COLUMNS * PANEL.width + PANEL.gap;
    let total = heights.iter().sum::<usize>() + PANEL.gap;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {total}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#333}} .panel{{font-weight:bold}} .ours{{fill:#b7410e}} .other{{fill:#9fb3c8}} .limit{{fill:#dfe6ec}}\
         @media (prefers-color-scheme:dark){{text{{fill:#ccc}} .other{{fill:#5c7289}} .limit{{fill:#38424c}}}}</style>\n"
    );
    let mut top = 0;
    for (row, height) in rows.iter().zip(&heights) {
        for (column, course) in row.iter().enumerate() {
            panel(&mut svg, course, column * (PANEL.width + PANEL.gap / 2), top);
        }
        top += height;
    }
    let note = escaped(&format!("messages per second, median; {machine}"));
    line(
        &mut svg,
        &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\">{note}</text>",
            width - 8,
            total - 8
        ),
    );
    svg.push_str("</svg>\n");
    svg
}

fn height(course: &Course) -> usize {
    PANEL.title + shown(course).len() * PANEL.row + PANEL.gap
}

fn panel(svg: &mut String, course: &Course, left: usize, top: usize) {
    let title = escaped(&course.title());
    line(svg, &format!("<text class=\"panel\" x=\"{}\" y=\"{}\">{title}</text>", left + 8, top + 22));
    let entries = shown(course);
    let longest = entries.iter().map(|(_, rate)| *rate).fold(f64::MIN_POSITIVE, f64::max);
    let room = PANEL.width as f64 - LABEL - VALUE;
    for (place, (entry, rate)) in entries.iter().enumerate() {
        let middle = top + PANEL.title + place * PANEL.row + 14;
        let bar = left as f64 + LABEL;
        let length = (rate / longest * room).max(1.0);
        let name = escaped(&entry.variant);
        line(svg, &format!("<text x=\"{:.0}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>", bar - 8.0));
        line(
            svg,
            &format!(
                "<rect class=\"{}\" x=\"{bar:.0}\" y=\"{}\" width=\"{length:.0}\" height=\"{}\"/>",
                class(&entry.variant),
                middle - 12,
                PANEL.row - 6,
            ),
        );
        line(svg, &format!("<text x=\"{:.0}\" y=\"{middle}\">{rate:.0}</text>", bar + length + 6.0));
    }
}

/// Those with figures that count, the fastest first.
fn shown(course: &Course) -> Vec<(&Entry, f64)> {
    let counts = |entry: &&Entry| entry.failure.is_none();
    let mut entries: Vec<_> = course
        .entries
        .iter()
        .filter(counts)
        .filter_map(|entry| Some((entry, entry.median_rate()?)))
        .collect();
    entries.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    entries
}

fn class(variant: &str) -> &'static str {
    match variant {
        "redrive" => "ours",
        // What nobody should run.
        "lapin-no-acks" | "lapin-pipelined" => "limit",
        _ => "other",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn line(svg: &mut String, text: &str) {
    writeln!(svg, "{text}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::super::figures::Sample;
    use super::*;
    use crate::task::{QueueType, Work};

    #[test]
    fn every_contestant_that_did_its_work_has_a_bar_and_the_longest_is_the_fastest() {
        let entry = |variant: &str, messages_per_second, failure: Option<&str>| Entry {
            variant: variant.to_owned(),
            count: 1,
            samples: vec![Sample { messages_per_second, client_us: 1.0, broker_us: None }],
            failure: failure.map(str::to_owned),
        };
        let entries = vec![
            entry("a<b", 50.0, None),
            entry("redrive", 100.0, None),
            entry("cheat", 900.0, Some("left some")),
        ];
        let course = Course {
            work: Work::Consume,
            broker: "4.3.6".to_owned(),
            queue_type: QueueType::Quorum,
            prefetch: 200,
            entries,
        };
        let svg = draw(&[course], "2 cores");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("cheat"));
        let (ours, other) = (svg.find("class=\"ours\"").unwrap(), svg.find("class=\"other\"").unwrap());
        assert!(ours < other, "the fastest comes first");
    }
}
