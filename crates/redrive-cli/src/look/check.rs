//! `redrive check`: a line for Nagios.

use anyhow::Result;

use super::shelves::counts;
use crate::args::{Check, Global};
use crate::desk::connect_all;
use crate::exit::{Exit, usage};
use crate::output::print;

pub(crate) async fn run(global: &Global, command: Check) -> Result<Exit> {
    if command.warn > command.critical {
        return Err(usage("--warn is above --critical"));
    }
    let context = global.broker()?;
    let mut found = Vec::new();
    for desk in connect_all(global, &context, &command.queues.queues).await? {
        for (shelf, count) in counts(global, &desk).await? {
            found.push((format!("{} {shelf}", desk.queue), count.unwrap_or(0)));
        }
    }
    let (code, line) = verdict(&found, command.warn, command.critical);
    print(&line);
    Ok(Exit::Check(code))
}

/// Returns the exit code and the line, with performance data.
fn verdict(found: &[(String, u64)], warn: u64, critical: u64) -> (u8, String) {
    let most = found.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let (code, word) = match most {
        most if most > critical => (2, "CRITICAL"),
        most if most > warn => (1, "WARNING"),
        _ => (0, "OK"),
    };
    let texts: Vec<_> = found
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    let text = if texts.is_empty() { "no failed messages".to_owned() } else { texts.join(", ") };
    let data: Vec<_> =
        found.iter().map(|(name, count)| format!("'{name}'={count};{warn};{critical};0")).collect();
    (code, format!("{word} - {text} | {}", data.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn the_largest_shelf_decides() {
        let found = [("orders dead-letter".to_owned(), 101), ("orders parking".to_owned(), 0)];
        assert_eq!(
            verdict(&found, 100, 1000),
            (1, "WARNING - orders dead-letter: 101 | 'orders dead-letter'=101;100;1000;0 'orders parking'=0;100;1000;0".to_owned())
        );
        assert_eq!(verdict(&found, 101, 1000).0, 0, "as many as are allowed");
        assert_eq!(verdict(&found, 1, 100).0, 2);
    }
}
