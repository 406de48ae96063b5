//! `redrive check`: a line for Nagios.

use anyhow::Result;
use redrive::shelves::Holder;

use super::shelves::{ShelfCount, counts};
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
        for ShelfCount { shelf, count, holder } in counts(global, &desk).await? {
            found.push(Found { name: format!("{} {shelf}", desk.queue), count: count.unwrap_or(0), holder });
        }
    }
    let (code, line) = verdict(&found, command.warn, command.critical);
    print(&line);
    Ok(Exit::Check(code))
}

/// What was counted on one shelf.
struct Found {
    name: String,
    count: u64,
    holder: Option<Holder>,
}

/// Returns the exit code and the line, with performance data. What a run or a look of redrive holds may be any number, and so may what a
/// user may not know of: few messages beside it are not known to be few. Clients that consume a shelf for good keep it small by themselves.
fn verdict(found: &[Found], warn: u64, critical: u64) -> (u8, String) {
    let most = found.iter().map(|found| found.count).max().unwrap_or(0);
    let is_read =
        found.iter().any(|found| found.holder.is_some_and(|holder| !matches!(holder, Holder::Consumers(_))));
    let (code, word) = match most {
        most if most > critical => (2, "CRITICAL"),
        most if most > warn => (1, "WARNING"),
        _ if is_read => (3, "UNKNOWN"),
        _ => (0, "OK"),
    };
    let text = |Found { name, count, holder }: &Found| match holder {
        None => format!("{name}: {count}"),
        Some(holder) => format!("{name}: at least {count} ({holder})"),
    };
    let texts: Vec<_> =
        found.iter().filter(|found| found.count > 0 || found.holder.is_some()).map(text).collect();
    let text = if texts.is_empty() { "no failed messages".to_owned() } else { texts.join(", ") };
    let data = found.iter().map(|Found { name, count, .. }| format!("'{name}'={count};{warn};{critical};0"));
    let data: Vec<_> = data.collect();
    (code, format!("{word} - {text} | {}", data.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, count: u64, holder: Option<Holder>) -> Found {
        Found { name: name.to_owned(), count, holder }
    }

    #[test]
    fn what_others_hold_is_not_known_to_be_little() {
        let beside = |count, holder| verdict(&[found("orders dead-letter", count, Some(holder))], 100, 1000);
        let (code, line) = beside(0, Holder::Lease);
        assert_eq!(code, 3);
        assert!(line.starts_with("UNKNOWN - orders dead-letter: at least 0 (a run or an edit"), "{line}");
        assert_eq!((beside(1, Holder::Look).0, beside(1, Holder::Unknown).0), (3, 3));
        assert_eq!((beside(101, Holder::Lease).0, beside(1001, Holder::Look).0), (1, 2));
        let (code, line) = beside(1, Holder::Consumers(2));
        assert_eq!(code, 0, "they consume for good");
        assert!(line.starts_with("OK - orders dead-letter: at least 1 (2 clients consume"), "{line}");
    }

    #[test]
    fn the_largest_shelf_decides() {
        let found = [found("orders dead-letter", 101, None), found("orders parking", 0, None)];
        assert_eq!(
            verdict(&found, 100, 1000),
            (1, "WARNING - orders dead-letter: 101 | 'orders dead-letter'=101;100;1000;0 'orders parking'=0;100;1000;0".to_owned())
        );
        assert_eq!(verdict(&found, 101, 1000).0, 0, "as many as are allowed");
        assert_eq!(verdict(&found, 1, 100).0, 2);
    }
}
