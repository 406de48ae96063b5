//! Runs as many scenarios as asked for: `redrive-rabbitmq-differential COMMAND VERSION KIND [FROM [COUNT [AT-ONCE]]]`, for example
//! `compare 4.3 quorum 0 2000 64`.
//!
//! | command | does |
//! |---|---|
//! | `compare` | runs each on RabbitMQ and on the emulator |
//! | `self` | runs each on RabbitMQ twice: what differs is no fact |
//! | `versions` | runs each on RabbitMQ 3.10, or whatever VERSION says, and on 4.3: how they differ |
//! | `record` | appends what RabbitMQ does to `recordings/VERSION-KIND.jsonl`: the test `recorded` replays it |
//! | `replay` | compares the emulator with these recordings: no broker, a thousand in a minute |
//! | `shrink` | makes the scenario of a seed that differs as small as it can, and writes it into `regressions/`: `shrink VERSION KIND SEED NAME RULE` |
//! | `keep` | writes a scenario from a file into `regressions/`, with what RabbitMQ does: `keep VERSION KIND FILE NAME RULE` |
//! | `show` | prints one scenario, and what RabbitMQ does |

use anyhow::{Context as _, Result, bail};
use redrive_brokers::Version;
use redrive_rabbitmq_differential::campaign::{
    Emulated, Real, Side, Verdict, campaign, record, replay, show,
};
use redrive_rabbitmq_differential::generate::{Combination, scenario};
use redrive_rabbitmq_differential::nodes;
use redrive_rabbitmq_differential::recordings;
use redrive_rabbitmq_differential::regression::Regression;
use redrive_rabbitmq_differential::scenario::Kind;
use redrive_rabbitmq_differential::shrink::shrink;
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, version, kind, rest @ ..] = arguments.as_slice() else {
        bail!(
            "say: compare|self|versions|record|replay|shrink|keep|show VERSION KIND [FROM [COUNT [AT-ONCE]]]"
        )
    };
    let version: Version = version.parse().map_err(anyhow::Error::msg)?;
    let kind = if kind == "quorum" { Kind::Quorum } else { Kind::Classic };
    let combination = Combination { version, kind };
    let number = |place: usize, default: u64| rest.get(place).map_or(Ok(default), |text| text.parse());
    let from = if command == "keep" { 0 } else { number(0, 0)? };
    let (count, at_once) = if ["shrink", "keep"].contains(&command.as_str()) {
        (1, 24)
    } else {
        (number(1, 1)?, number(2, 24)?)
    };
    let seeds = from..from + count;
    let at_once = usize::try_from(at_once)?;
    let began = Instant::now();
    if command == "replay" {
        let emulated = Emulated { version, runtime: tokio::runtime::Runtime::new()? };
        let mut all = recordings::all(combination)?;
        all.retain(|recording| seeds.contains(&recording.seed));
        let wrong = recordings::differences(&all, &emulated, at_once);
        print(combination, &format!("{} replayed", all.len()), &wrong, began);
        return Ok(());
    }
    let running = nodes::real(version);
    let real = &running.real;
    if command == "show" {
        println!("{:#?}", scenario(combination, from));
        println!("{}", show(&scenario(combination, from), real)?);
        return Ok(());
    }
    if command == "record" {
        let wrong = recordings::add(combination, seeds, real, at_once)?;
        print(combination, "recorded", &wrong, began);
        return Ok(());
    }
    let emulated;
    if command == "keep" {
        let [file, name, rule] = rest else { bail!("say: keep VERSION KIND FILE NAME RULE") };
        return keep(version, file, name, rule, real);
    }
    if command == "shrink" {
        let name = rest.get(1).context("say: shrink VERSION KIND SEED NAME RULE")?;
        let rule = rest.get(2).context("say in one sentence what RabbitMQ does")?;
        return shrink_one(combination, from, name, rule, real);
    }
    let other: &dyn Side = if command == "self" {
        real
    } else {
        emulated = Emulated { version, runtime: tokio::runtime::Runtime::new()? };
        &emulated
    };
    let seeds: Vec<u64> = seeds.collect();
    let report = campaign(combination, &seeds, [real, other], at_once, |seed, verdict| match verdict {
        Ok(Verdict::Equal) => {}
        Ok(Verdict::EqualAtLast) => println!("{combination} {seed}: equal at last"),
        Ok(Verdict::Different(how)) => println!("{combination} {seed}: {how}"),
        Err(error) => println!("{combination} {seed}: could not run: {error:#}"),
    });
    println!(
        "{combination}: {} compared, {} equal at last, {} different, {} failed, {:.1} s",
        report.compared,
        report.at_last.len(),
        report.different.len(),
        report.failed.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Prints what differs, or could not be run.
fn print(combination: Combination, what: &str, wrong: &[(u64, String)], began: Instant) {
    for (seed, how) in wrong {
        println!("## {combination} {seed}: {how}");
    }
    println!("{combination}: {what}, {} wrong, {:.1} s", wrong.len(), began.elapsed().as_secs_f64());
}

/// Writes a scenario that somebody made up into `regressions/`, with what RabbitMQ does.
fn keep(version: Version, file: &str, name: &str, rule: &str, real: &Real) -> Result<()> {
    let scenario =
        serde_json::from_str(&std::fs::read_to_string(file)?).context("the scenario cannot be read")?;
    let recording = record(0, &scenario, real)?;
    let emulated = Emulated { version, runtime: tokio::runtime::Runtime::new()? };
    let how = replay(&recording, &emulated)?;
    println!("{name} on {version}: {}", how.as_deref().unwrap_or("equal"));
    let open = how.is_some();
    Regression { rule: rule.to_owned(), version: version.number().to_owned(), open, recording }
        .write(name)?;
    Ok(())
}

/// Shrinks the scenario of a seed that differs, and writes it into `regressions/`.
fn shrink_one(combination: Combination, seed: u64, name: &str, rule: &str, real: &Real) -> Result<()> {
    let emulated = Emulated { version: combination.version, runtime: tokio::runtime::Runtime::new()? };
    let differs = |scenario: &_| {
        let differs = || Some(replay(&record(seed, scenario, real).ok()?, &emulated).ok()?.is_some());
        // Twice, so that an accident is not taken for a difference.
        differs() == Some(true) && differs() == Some(true)
    };
    let whole = scenario(combination, seed);
    if !differs(&whole) {
        bail!("seed {seed} of {combination} does not differ");
    }
    let recording = record(seed, &shrink(&whole, 24, differs), real)?;
    println!("{}", replay(&recording, &emulated)?.unwrap_or_default());
    let version = combination.version.number().to_owned();
    let open = true;
    let path = Regression { rule: rule.to_owned(), version, open, recording }.write(name)?;
    println!("{}", path.display());
    Ok(())
}
