//! `cargo xtask test`: every check there is, in the order of what fails fastest.

use crate::closing::Closing;
use crate::servers::{self, Server};
use crate::step::{self, Step};
use crate::tally::Tally;
use anyhow::Result;
use redrive_brokers::{REPORT_VARIABLE, Version};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// In the path of the contract's clauses on real brokers. They mostly wait, and disturb nobody: more of them run at once
/// than there are cores. Other tests kill brokers and count on their share of the machine.
const CONTRACT: &str = "::contract::";
const CONTRACT_THREADS: &str = "8";

/// Runs everything; the tests on the brokers of `versions`.
pub(crate) fn run(versions: &[Version]) -> Result<ExitCode> {
    let began = Instant::now();
    // A first installation takes a minute of mostly waiting: let the compiler work meanwhile.
    let chosen = versions.to_vec();
    let brokers = std::thread::spawn(move || (servers::find(&chosen), Instant::now()));

    let mut closing = Closing::default();
    check(&mut closing, &["fmt", "--all", "--check"], &[])?;
    check(
        &mut closing,
        &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
        &[],
    )?;
    let strict = [("RUSTDOCFLAGS".to_owned(), Some("--deny warnings".to_owned()))];
    check(&mut closing, &["doc", "--workspace", "--no-deps", "--all-features"], &strict)?;
    deny(&mut closing)?;

    println!("==> brokers");
    let (found, at) = brokers.join().expect("looking for brokers panicked");
    match found {
        Ok(servers) => {
            for server in &servers {
                println!("    {}", server.describe());
            }
            println!("<== ok: brokers (ready {:.1} s after the start)", (at - began).as_secs_f64());
            test(&mut closing, versions, &servers)?;
        }
        Err(error) => {
            println!("{error:#}");
            println!("<== FAILED: brokers");
            closing.failures.push(format!("brokers: {error:#}"));
            closing.not_run.push("cargo test (no broker)".into());
        }
    }
    Ok(closing.print(began.elapsed()))
}

fn check(closing: &mut Closing, arguments: &[&str], environment: &[(String, Option<String>)]) -> Result<()> {
    let step = step::cargo(arguments, environment, |_| {})?;
    if !step.passed {
        closing.failures.push(step.name.clone());
    }
    closing.steps.push(step);
    Ok(())
}

fn deny(closing: &mut Closing) -> Result<()> {
    if !has_cargo_deny() {
        closing.not_run.push("cargo deny (not installed; `cargo install cargo-deny`)".into());
        return Ok(());
    }
    check(closing, &["deny", "check", "bans", "licenses", "sources"], &[])?;
    // Advisories live in a repository of their own, which not every machine can reach.
    let mut unreachable = false;
    let no_database = |line: &str| unreachable |= line.contains("failed to fetch advisory database");
    let step = step::cargo(&["deny", "check", "advisories"], &[], no_database)?;
    if unreachable {
        closing
            .not_run
            .push("cargo deny check advisories (the advisory database cannot be fetched from here)".into());
        return Ok(());
    }
    if !step.passed {
        closing.failures.push(step.name.clone());
    }
    closing.steps.push(step);
    Ok(())
}

fn test(closing: &mut Closing, versions: &[Version], servers: &[Server]) -> Result<()> {
    let report = std::env::temp_dir().join(format!("redrive-report-{}", std::process::id()));
    std::fs::write(&report, "")?;
    let mut environment = vec![(REPORT_VARIABLE.to_owned(), Some(report.display().to_string()))];
    let mut arguments = vec!["test", "--workspace", "--all-features", "--no-fail-fast"];
    let mut of_contract = [&arguments[..], &["--test", "conformance"]].concat();
    arguments.extend(["--", "--skip", CONTRACT]);
    of_contract.extend(["--", CONTRACT, "--test-threads", CONTRACT_THREADS]);
    let left_out: Vec<Version> =
        Version::ALL.into_iter().filter(|version| !versions.contains(version)).collect();
    for version in &left_out {
        arguments.extend(["--skip", version.mark()]);
        of_contract.extend(["--skip", version.mark()]);
        // A test that forgot its mark must not run there unnoticed.
        environment.push((version.url_variable().to_owned(), None));
    }
    for server in servers {
        environment.push((server.version.url_variable().to_owned(), Some(server.url())));
    }

    let mut tally = Tally::default();
    let step: Step = step::cargo(&arguments, &environment, |line| tally.read(line))?;
    let before = tally.total();
    let contract = step::cargo(&of_contract, &environment, |line| tally.read(line))?;
    tally.was_a_part(before);
    let reported = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;

    closing.take_tests(&tally, if step.passed { &contract } else { &step }, servers, &left_out);
    closing.reported.extend(reported.lines().map(str::to_owned));
    closing.steps.extend([step, contract]);
    Ok(())
}

fn has_cargo_deny() -> bool {
    let quiet =
        Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}
