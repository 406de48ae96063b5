//! Tests of claims in the docs: figures that stand in two places, numbers of things, and names of what there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::links::{files, root};

/// Pages about the past name what is gone.
const OF_THE_PAST: [&str; 2] = ["CHANGELOG.md", "docs/decisions"];

#[test]
fn the_readme_has_the_figures_of_the_tables() -> Result<()> {
    let tables = fs::read_to_string(root().join("docs/benchmarks.md"))?;
    let readme = fs::read_to_string(root().join("README.md"))?;
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let range = |table: &str, columns: &[&str], version: &str| -> Result<String> {
        let ratios = ratios(&tables, table, columns, version)?;
        let (least, most) = (ratios.first().context("no row")?, ratios.last().context("no row")?);
        Ok(format!("{least} to {most}"))
    };
    let loops = ["÷ `lapin-coalesced`", "÷ `lapin-prefix`"];
    let copies = ["÷ `lapin-batches` (one header)"];
    let consume = |version| range("consume: redrive", &loops, version);
    let retry = |version| range("retry: redrive", &copies, version);
    for figures in [
        format!("runs at {} of the faster of two loops", consume("4.3")?),
        format!("RabbitMQ 4.3, and at {} on 3.10", consume("3.10")?),
        format!("retrying at {} of such a loop on 4.3, and at {} on 3.10", retry("4.3")?, retry("3.10")?),
    ] {
        assert!(readme.contains(&figures), "the tables say: {figures}");
    }
    Ok(())
}

/// Returns the lowest ratio in these columns, the one against the faster, of each row of a version; sorted.
fn ratios(page: &str, table: &str, columns: &[&str], version: &str) -> Result<Vec<String>> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {table} |")));
    let head = cells(lines.next().context("no such table")?);
    let at =
        columns.iter().map(|column| head.iter().position(|cell| cell == column).context("no such column"));
    let at: Vec<usize> = at.collect::<Result<_>>()?;
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    let of_version = rows.filter(|row| row[0].starts_with(&format!("{version} ")));
    // As many digits each: texts sort as numbers do.
    let lowest = of_version.filter_map(|row| at.iter().map(|at| row[*at].to_owned()).min());
    Ok(lowest.collect::<BTreeSet<_>>().into_iter().collect())
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn every_alert_is_counted_listed_and_explained() -> Result<()> {
    let rules = fs::read_to_string(root().join("deploy/prometheus/rules.yml"))?;
    let page = fs::read_to_string(root().join("docs/observability.md"))?;
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty(), "the rules are written in another way");
    let counted = format!(": {} alerts, ", alerts.len());
    assert!(page.contains(&counted), "there are {} alerts", alerts.len());
    for alert in alerts {
        assert!(page.contains(&format!("\n| [{alert}](#")), "{alert} is in no row of the table");
        assert!(page.contains(&format!("\n#### {alert}\n")), "{alert} has no section");
    }
    Ok(())
}

#[test]
fn every_header_is_documented() -> Result<()> {
    let page = fs::read_to_string(root().join("docs/headers.md"))?;
    let mut missing = Vec::new();
    for library in [
        "engine/redrive-core",
        "engine/redrive-transport",
        "transports/redrive-rabbitmq",
        "transports/redrive-servicebus",
    ] {
        for source in files(&root().join(format!("crates/{library}/src")), "rs")? {
            let text = fs::read_to_string(&source)?;
            let constants =
                text.lines().filter_map(|line| line.split_once(": &str = \"redrive-")?.1.split_once('"'));
            // `redrive-reports.` and the like begin names of queues.
            let headers = constants.map(|(name, _)| name).filter(|name| !name.ends_with('.'));
            let names = headers.map(|name| format!("`redrive-{name}"));
            missing.extend(names.filter(|name| name.len() > "`redrive-".len() && !page.contains(name)));
        }
    }
    assert!(missing.is_empty(), "docs/headers.md lacks {missing:?}");
    Ok(())
}

#[test]
fn commands_name_what_there_is() -> Result<()> {
    let (sources, programs) = (sources()?, test_programs()?);
    let words: BTreeSet<_> = sources.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut wrong = Vec::new();
    for (page, text) in pages()? {
        let mut check = |mark: &str, is_there: &dyn Fn(&str) -> bool| {
            let name = |rest: &str| {
                rest.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).next().map(str::to_owned)
            };
            let names = text.split(mark).skip(1).filter_map(name).filter(|name| !name.is_empty());
            wrong.extend(names.filter(|name| !is_there(name)).map(|name| format!("{page}: {mark}{name}")));
        };
        let package = |name: &str| sources.contains(&format!("name = \"{name}\""));
        check("--test ", &|name| programs.contains(name) || name == "NAME");
        check("cargo test -p ", &package);
        check("--package ", &package);
        check("REDRIVE_", &|name| words.contains(format!("REDRIVE_{name}").as_str()));
        // `Type::item`: a method, a field, a variant or a constant.
        check("Options::", &|name| words.contains(name));
        check("`Consumer::", &|name| words.contains(name));
        check("`Health::", &|name| words.contains(name));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Returns the pages about the present, with their names.
fn pages() -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for page in files(&root(), "md")? {
        let name = page.strip_prefix(root())?.display().to_string();
        if !OF_THE_PAST.iter().any(|past| name.starts_with(past)) {
            pages.push((name, fs::read_to_string(&page)?));
        }
    }
    Ok(pages)
}

/// Returns all code, and the manifests.
fn sources() -> Result<String> {
    let mut all = String::new();
    for ending in ["rs", "toml", "py", "mjs", "yml"] {
        for source in files(&root(), ending)? {
            all += &fs::read_to_string(source)?;
        }
    }
    Ok(all)
}

fn test_programs() -> Result<BTreeSet<String>> {
    let mut programs = BTreeSet::new();
    for manifest in files(&root(), "toml")? {
        let tests = manifest.parent().unwrap_or(Path::new("")).join("tests");
        for program in fs::read_dir(tests).into_iter().flatten() {
            let path = program?.path();
            programs.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(programs)
}
