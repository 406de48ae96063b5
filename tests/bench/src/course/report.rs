//! What was run, on which machine, and what came of it: on the screen, and as a file.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::figures::Course;
use super::{Plan, folder, svg, table};

/// The file that a run leaves.
#[derive(Deserialize, Serialize)]
struct Report {
    machine: Machine,
    rounds: u32,
    courses: Vec<Course>,
}

#[derive(Deserialize, Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    /// How busy it was just now, others included: the load average of the last minute.
    load: f64,
}

pub(super) fn announce(plan: &Plan) {
    let Machine { processor, cores, load } = machine();
    println!("{cores} cores of {processor}; load {load:.2}; {} rounds", plan.rounds);
    if load > 0.5 {
        println!("The machine is busy with something else: trust the ratios, not the rates.");
    }
}

/// Writes the figures and the picture.
pub(super) fn write(plan: &Plan, courses: &[Course]) -> Result<()> {
    let machine = machine();
    let picture = svg::draw(courses, &machine.shown());
    let report = Report { machine, rounds: plan.rounds, courses: courses.to_vec() };
    let figures = serde_json::to_string_pretty(&report)?;
    fs::create_dir_all(folder()).context("cannot create the folder of the results")?;
    for (ending, content) in [("json", figures), ("svg", picture)] {
        let path = folder().join(format!("{}.{ending}", plan.name));
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Shows again what earlier runs wrote.
#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    /// The JSON files, in the order in which they are shown.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where to draw all of them in one picture.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Prints the tables of several runs, and draws them in one picture.
pub(crate) fn show(show: &Show) -> Result<()> {
    let (mut all, mut machine) = (Vec::new(), String::new());
    for file in &show.files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let report: Report =
            serde_json::from_str(&text).with_context(|| format!("{} is no result", file.display()))?;
        machine = report.machine.shown();
        all.extend(report.courses);
    }
    for course in &all {
        println!("{}:\n\n{}\n", course.title(), table::of(course));
    }
    if let Some(path) = &show.svg {
        fs::write(path, svg::draw(&all, &machine))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

impl Machine {
    fn shown(&self) -> String {
        format!("{} cores of {}", self.cores, self.processor)
    }
}

fn machine() -> Machine {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Machine {
        processor: model.unwrap_or(" unknown processor").trim().to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default(),
    }
}
