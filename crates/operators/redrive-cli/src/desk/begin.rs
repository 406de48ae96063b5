//! Runs plans.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use redrive::ops::{
    AuditAction, AuditLog, AuditRecord, ExportLines, ExportedEntry, FinishedRun, JournalHeader, Operator,
    Plan, PlanAction, RunControl, RunOptions, Runner, UncertainEntries, require_reason,
};
use redrive::shelves::{EntryHandle, Leased, Shelved};

use super::absence::Alone;
use super::{Desk, SavedPlan, State, asks, within};
use crate::exit::usage;
use crate::output::{note, plural};

/// A run that has begun, and sends nothing before [`run`](Self::run).
pub(crate) struct Begun<'a> {
    runner: Runner<'a>,
    audit: AuditLog,
    record: AuditRecord,
    asks: PathBuf,
    unwritten: PathBuf,
    /// Where the originals are, and how many; none if a run goes on.
    pub(crate) originals: Option<(PathBuf, usize)>,
}

impl Begun<'_> {
    pub(crate) fn id(&self) -> &str {
        self.runner.id()
    }

    pub(crate) fn control(&self) -> RunControl {
        self.runner.control()
    }

    /// Runs to the end, does what other processes ask of it meanwhile, and writes the audit log.
    ///
    /// # Errors
    ///
    /// If the journal or the audit log cannot be written.
    pub(crate) async fn run(self) -> Result<FinishedRun> {
        let Self { runner, mut audit, record, asks, unwritten, .. } = self;
        let (control, id) = (runner.control(), runner.id().to_owned());
        let asked = asks::pass_on(asks.clone(), control.clone());
        let ended = tokio::select! {
            ended = runner.run() => ended,
            () = asked => unreachable!("it passes on for ever"),
        };
        // Nobody reads it any more.
        let _ = std::fs::remove_file(asks);
        if ended.is_err() {
            let _ = std::fs::File::create_new(unwritten);
        }
        let report = ended.as_ref().map_or_else(|_| control.progress().report, |finished| finished.report);
        let noted = audit.append(&record.run_id(id).counts((&report).into()));
        let finished = ended.with_context(|| {
            format!("the run ended early, with {} of {} done", report.done, plural(report.entries, "message"))
        })?;
        noted.context("the run is over, and could not be noted in the audit log")?;
        Ok(finished)
    }
}

/// Writes the originals of a plan to the disk, and begins its run.
///
/// # Errors
///
/// If a reason is missing, another run works on the shelf, an original cannot be exported, or the journal cannot be written. Nothing is
/// changed before the originals are on the disk.
pub(crate) async fn begin<'a>(
    state: &State,
    desk: &'a Desk,
    saved: &SavedPlan,
    options: RunOptions,
    by: Operator,
    timeout: Duration,
) -> Result<Begun<'a>> {
    let plan = &saved.plan;
    if saved.broker != desk.broker {
        return Err(usage(format!("this plan was made for {}, and not for {}", saved.broker, desk.broker)));
    }
    require_reason(plan.entries().len() as u64, by.reason.as_deref())
        .map_err(|error| usage(format!("{error}: pass --reason")))?;
    let audit = state.audit()?;
    let header = JournalHeader::new(&saved.broker, by, options, plan.clone()).filter(&saved.filter);
    let record = record(&header, &header.by);
    let id = header.run.clone();
    // A run on this machine is named, and asked before the broker is.
    drop(
        state
            .journals()?
            .lock(&desk.broker, plan.queue(), plan.shelf(), &id)
            .context("nothing was changed")?,
    );
    let (originals, leased) = within(timeout, originals(desk, plan))
        .await
        .context("cannot export the originals: nothing was changed")?;
    let path = state.save_originals(&id, originals.iter()).context("nothing was changed")?;
    let kept: HashSet<_> = originals.into_iter().map(|original| original.handle).collect();
    let count = kept.len();
    let begun = Runner::begin(&*desk.shelves, &state.journals()?, header)
        .and_then(|runner| runner.originals(&path, kept))
        .inspect_err(|_| {
            // No run needs them.
            let _ = std::fs::remove_file(&path);
        });
    let mut runner = begun.context("nothing was changed")?;
    if let Some(leased) = leased {
        runner = runner.leased(leased);
    }
    let originals = Some((path, count));
    Ok(Begun { runner, audit, record, asks: state.asks(&id), unwritten: state.unwritten(&id), originals })
}

/// Goes on with a run that was killed or has stopped.
///
/// # Errors
///
/// If the run is one of another broker, has ended for good, still goes on, or its journal cannot be read.
pub(crate) fn resume<'a>(
    state: &State,
    desk: &'a Desk,
    run: &str,
    by: Operator,
    uncertain: UncertainEntries,
) -> Result<Begun<'a>> {
    let folder = state.journals()?;
    let header = folder.read(run)?.header;
    if header.broker != desk.broker {
        return Err(usage(format!("this run is one of {}, and not of {}", header.broker, desk.broker)));
    }
    // What is discarded a second time could not be told from what was restored.
    if state.undone(run).exists() {
        return Err(usage("this discard was undone, in part at least: make another plan".to_owned()));
    }
    let (audit, record) = (state.audit()?, record(&header, &by));
    let asks = state.asks(run);
    let path = state.originals(run);
    let kept = kept(&path)?;
    let runner = Runner::resume(&*desk.shelves, &folder, run, by, uncertain)?.originals(&path, kept)?;
    // What was asked of the process that died, and why it ended.
    let unwritten = state.unwritten(run);
    for file in [&asks, &unwritten] {
        let _ = std::fs::remove_file(file);
    }
    Ok(Begun { runner, audit, record, asks, unwritten, originals: None })
}

/// Returns the record of a run that `by` does. One who resumes it does so for the reason for which it was begun.
fn record(header: &JournalHeader, by: &Operator) -> AuditRecord {
    let plan = &header.plan;
    let action = match plan.action() {
        PlanAction::Park => AuditAction::Park,
        PlanAction::Discard => AuditAction::Discard,
        _ => AuditAction::Redrive,
    };
    let mut record =
        AuditRecord::new(&by.who, &by.host, SystemTime::now(), action, plan.queue(), plan.shelf())
            .plan_digest(plan.digest());
    if !header.filter.is_empty() {
        record = record.filter(&header.filter);
    }
    match by.reason.as_ref().or(header.by.reason.as_ref()) {
        Some(reason) => record.reason(reason),
        None => record,
    }
}

/// Reads the entries of the plan as they are on the shelf now, under the lease of the run. Those that are gone, or that another client
/// holds, are not among them, and the run does not touch them.
async fn originals(desk: &Desk, plan: &Plan) -> Result<(Vec<ExportedEntry>, Option<Leased>)> {
    let wanted: HashSet<_> = plan.entries().iter().map(|entry| &entry.handle).collect();
    let (mut found, now) = (Vec::new(), SystemTime::now());
    let alone = Alone::on(desk, plan.shelf()).await?;
    let each = |entry: Shelved| {
        if wanted.contains(&entry.handle) {
            found.push(ExportedEntry::new(&desk.queue, &entry, now));
        }
    };
    let holder = alone.look(each).await?;
    let missing = wanted.len() - found.len();
    if let Some(holder) = holder.filter(|_| missing > 0) {
        note!("{} of the plan are not found: {holder}", plural(missing, "message"));
    }
    Ok((found, alone.into_leased()))
}

/// Reads whose originals a run has.
fn kept(path: &Path) -> Result<HashSet<EntryHandle>> {
    let file = File::open(path).with_context(|| {
        format!("the originals {} are needed to go on: make another plan for what is left", path.display())
    })?;
    let handle = |entry: Result<ExportedEntry, _>| entry.map(|entry| entry.handle);
    let kept: Result<_, _> = ExportLines::new(BufReader::new(file)).map(handle).collect();
    kept.with_context(|| format!("cannot read the originals {}", path.display()))
}

/// Returns who acts, for the journal and the audit log.
pub(crate) fn operator(reason: Option<&str>) -> Operator {
    let host =
        hostname::get().map_or_else(|_| "unknown".to_owned(), |host| host.to_string_lossy().into_owned());
    let operator = Operator::new(who(|name| std::env::var(name).ok()), host, SystemTime::now());
    match reason {
        Some(reason) => operator.reason(reason),
        None => operator,
    }
}

/// Returns the name of who acts. A container or a cron job has often no name of a user: the id of the user says at least as much.
fn who(variable: impl Fn(&str) -> Option<String>) -> String {
    let names = ["REDRIVE_OPERATOR", "USER", "LOGNAME"].into_iter();
    names.filter_map(variable).find(|who| !who.is_empty()).unwrap_or_else(user_id)
}

#[cfg(unix)]
fn user_id() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

#[cfg(not(unix))]
fn user_id() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use redrive::Shelf;
    use redrive::ops::PlanOptions;

    use super::*;

    #[test]
    fn who_resumes_a_run_repeats_why_it_was_begun_and_its_filter() {
        let plan = Plan::new(
            PlanAction::Park,
            Shelf::DeadLetter,
            &[],
            &PlanOptions::new("orders"),
            SystemTime::now(),
        );
        let operator = |who: &str| Operator::new(who, "ops-1", SystemTime::now());
        let ada = operator("ada").reason("the stock is back");
        let header = JournalHeader::new("prod", ada, RunOptions::new(), plan).filter("error~stock");
        let stored = serde_json::to_string(&header).unwrap();
        let header = serde_json::from_str(&stored).unwrap();
        let line = record(&header, &operator("bob")).to_line();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            [&line["who"], &line["reason"], &line["filter"]],
            ["bob", "the stock is back", "error~stock"]
        );
    }

    #[test]
    fn without_a_name_the_operator_is_the_id_of_the_user() {
        let of = |set: &[(&str, &str)]| {
            who(|name| set.iter().find(|(there, _)| *there == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[("USER", "ada"), ("REDRIVE_OPERATOR", "bob")]), "bob");
        assert_eq!(of(&[("REDRIVE_OPERATOR", ""), ("LOGNAME", "ada")]), "ada");
        #[cfg(unix)]
        assert_eq!(of(&[]), format!("uid {}", rustix::process::getuid().as_raw()));
    }
}
