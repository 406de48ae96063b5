//! The figures as a table.

use comfy_table::{CellAlignment, Table, presets};

use super::figures::{Course, Entry};

/// The figures of one course; `redrive ÷` is how many times as fast redrive was, in the same rounds.
pub(super) fn of(course: &Course) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["contestant", "messages/s", "min–max", "redrive ÷ it", "client µs", "broker µs"]);
    for entry in &course.entries {
        table.add_row(row(course, entry));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(course: &Course, entry: &Entry) -> [String; 6] {
    if let Some(failure) = &entry.failure {
        let none = String::new;
        return [entry.variant.clone(), format!("FAILED: {failure}"), none(), none(), none(), none()];
    }
    let shown = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
    };
    let least = entry.rates().min_by(f64::total_cmp);
    let most = entry.rates().max_by(f64::total_cmp);
    [
        entry.variant.clone(),
        shown(entry.median_rate(), 0),
        format!("{}–{}", shown(least, 0), shown(most, 0)),
        shown(course.ratio("redrive", &entry.variant), 2),
        shown(entry.client_us(), 1),
        shown(entry.broker_us(), 1),
    ]
}
