//! `cargo xtask test`: runs every check. One thread compiles and lints; the test programs run concurrently as they are built.

use crate::artifacts::Artifacts;
use crate::closing::Closing;
use crate::facade;
use crate::programs::{Filling, Pool, RUN_ENDS_AFTER};
use crate::servers::{self, Server};
use crate::step;
use crate::tally::{Tally, Tested, left_out};
use anyhow::Result;
use redrive_brokers::{ON_RABBITMQ_VARIABLE, REPORT_VARIABLE, Version, emulated_on_rabbitmq};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

type Environment = Vec<(String, Option<String>)>;

/// Modes of the contract that `--quick` leaves out: more than half of the tests on the emulator.
const SLOW_MODES: [&str; 3] = ["_single_queue::", "_staged::", "_on_shared_connections::"];

/// Runs every check; the tests run on the brokers of `versions`.
pub(crate) fn run(versions: &[Version]) -> Result<ExitCode> {
    let began = Instant::now();
    let mut closing = Closing::default();
    fmt(&mut closing)?;
    let pool = Pool::default();
    let rabbitmq = OnceLock::new();
    let ended = scope(|threads| -> Result<_> {
        // A first installation takes a minute, mostly of waiting: compiles meanwhile.
        let beside = threads.spawn(|| {
            let found = servers::find(versions);
            match &found {
                Ok(servers) => servers.iter().for_each(|server| println!("==> {}", server.describe())),
                Err(error) => println!("<== FAILED: brokers\n{error:#}"),
            }
            let url = found.as_ref().ok().and_then(|servers| Some(servers.last()?.url()));
            rabbitmq.get_or_init(|| url);
            found.map(|servers| run_programs(&pool, versions, servers, &[]))
        });
        build(&pool.filling(), &mut closing)?;
        lint(&mut closing)?;
        let strict = [("RUSTDOCFLAGS".to_owned(), Some("--deny warnings".to_owned()))];
        check(&mut closing, &["doc", "--workspace", "--no-deps", "--all-features"], &strict)?;
        deny(&mut closing)?;
        let documented = test_docs(&mut closing)?;
        facade::package(&mut closing)?;
        facade::check_features(&mut closing)?;
        facade::run_quickstarts(rabbitmq.wait().as_deref(), &mut closing)?;
        Ok((beside.join().expect("running tests panicked"), documented))
    });
    let (tested, documented) = ended?;
    match tested {
        Ok(tested) => {
            let mut tested = tested?;
            documented.iter().for_each(|line| tested.tally.read(line));
            closing.take_tests(tested, versions);
        }
        Err(error) => {
            closing.failures.push(format!("brokers: {error:#}"));
            closing.not_run.push("tests (no broker)".into());
        }
    }
    Ok(closing.print(began.elapsed()))
}

/// Runs what needs no broker process, and the checks that are quick.
pub(crate) fn run_quick() -> Result<ExitCode> {
    let began = Instant::now();
    let mut closing = Closing::default();
    fmt(&mut closing)?;
    lint(&mut closing)?;
    let pool = Pool::default();
    build(&pool.filling(), &mut closing)?;
    let tested = run_programs(&pool, &[], Vec::new(), &SLOW_MODES)?;
    closing
        .not_run
        .push("the contract on the emulator in all modes but the ladder and native delay (--quick)".into());
    closing.not_run.push("cargo doc, cargo deny, doc tests (--quick)".into());
    closing.take_tests(tested, &[]);
    Ok(closing.print(began.elapsed()))
}

/// Runs the programs of the pool until all have ended, twice as many at once as there are processors: they mostly wait. Beside the
/// build, which leaves no processor idle, half as many: brokers that are starved lose their leaders.
fn run_programs(pool: &Pool, versions: &[Version], servers: Vec<Server>, skipped: &[&str]) -> Result<Tested> {
    let began = Instant::now();
    let deadline = began + RUN_ENDS_AFTER;
    let report = std::env::temp_dir().join(format!("redrive-report-{}", std::process::id()));
    std::fs::write(&report, "")?;
    let mut environment: Environment = vec![(REPORT_VARIABLE.to_owned(), Some(report.display().to_string()))];
    let mut arguments: Vec<_> =
        skipped.iter().flat_map(|name| ["--skip".to_owned(), (*name).to_owned()]).collect();
    let on_rabbitmq = !versions.is_empty() && emulated_on_rabbitmq();
    if !on_rabbitmq {
        environment.push((ON_RABBITMQ_VARIABLE.to_owned(), None));
    }
    for version in left_out(versions) {
        arguments.extend(["--skip".to_owned(), version.mark().to_owned()]);
        if on_rabbitmq {
            arguments.extend(["--skip".to_owned(), format!("as_{}", version.mark().trim_start_matches('v'))]);
        }
        // A test that lacks its mark must not run there unnoticed.
        environment.push((version.url_variable().to_owned(), None));
    }
    for server in &servers {
        environment.push((server.version.url_variable().to_owned(), Some(server.url())));
    }
    let tally = Mutex::new(Tally::default());
    let processors = available_parallelism()?.get();
    let work = |worker: usize| -> Result<()> {
        while let Some(program) = pool.next(worker < processors) {
            println!("==> {}", program.name);
            let ended = program.run(&arguments, &environment, deadline)?;
            // Of a program that passed, only these lines matter.
            println!("{}{}", if ended.passed { "" } else { &ended.output }, ended.summary);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.read_program(&ended.output, ended.passed);
            tally.unended.extend(ended.unended.iter().map(|test| format!("{}: {test}", program.name)));
        }
        Ok(())
    };
    let work = &work;
    scope(|threads| {
        let workers: Vec<_> = (0..2 * processors).map(|worker| threads.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("running a program panicked"))
    })?;
    let reported = std::fs::read_to_string(&report)?.lines().map(str::to_owned).collect();
    std::fs::remove_file(&report)?;
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Tested { tally, servers, reported, took: began.elapsed() })
}

/// Builds all test programs, and adds each to the pool when it is ready.
fn build(pool: &Filling<'_>, closing: &mut Closing) -> Result<()> {
    let arguments =
        ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let mut artifacts = Artifacts::of_workspace()?;
    let step = step::cargo(&arguments, &[], |line| {
        artifacts.read(line).into_iter().for_each(|program| pool.add(program));
    })?;
    closing.take(step);
    Ok(())
}

/// Tests the examples in the docs, and returns their output.
fn test_docs(closing: &mut Closing) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let step =
        step::cargo(&["test", "--doc", "--workspace", "--all-features", "--no-fail-fast"], &[], |line| {
            lines.push(line.to_owned());
        })?;
    closing.steps.push(step);
    Ok(lines)
}

fn fmt(closing: &mut Closing) -> Result<()> {
    check(closing, &["fmt", "--all", "--check"], &[])
}

fn lint(closing: &mut Closing) -> Result<()> {
    check(
        closing,
        &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
        &[],
    )
}

fn check(closing: &mut Closing, arguments: &[&str], environment: &[(String, Option<String>)]) -> Result<()> {
    let step = step::cargo(arguments, environment, |_| {})?;
    closing.take(step);
    Ok(())
}

fn deny(closing: &mut Closing) -> Result<()> {
    if !has_cargo_deny() {
        let what = "advisories (cargo deny is not installed: `cargo install cargo-deny`); a test compares licences, sources and bans";
        closing.not_run.push(what.into());
        return Ok(());
    }
    check(closing, &["deny", "check", "bans", "licenses", "sources"], &[])?;
    // Advisories are in a separate repository, which some machines cannot reach.
    let mut unreachable = false;
    let no_database = |line: &str| unreachable |= line.contains("failed to fetch advisory database");
    let step = step::cargo(&["deny", "check", "advisories"], &[], no_database)?;
    if unreachable {
        closing
            .not_run
            .push("cargo deny check advisories (the advisory database cannot be fetched from here)".into());
        return Ok(());
    }
    closing.take(step);
    Ok(())
}

fn has_cargo_deny() -> bool {
    let quiet =
        Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
