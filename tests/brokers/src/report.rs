//! Lines for the closing report of `cargo xtask test`.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The environment variable with the path of the file that [`report`] appends to.
pub const REPORT_VARIABLE: &str = "REDRIVE_TEST_REPORT";

/// Adds `line` to the closing report: a measured figure, or what was not run and why.
///
/// Without `cargo xtask test` around it, the line goes to standard error.
pub fn report(line: &str) {
    let Some(path) = std::env::var_os(REPORT_VARIABLE) else {
        eprintln!("{line}");
        return;
    };
    // One write of a whole line: test binaries and threads append to the same file.
    let text = format!("{}\n", line.trim_end().replace('\n', " "));
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(error) = written {
        eprintln!("could not append to {}: {error}; the line was: {line}", path.display());
    }
}
