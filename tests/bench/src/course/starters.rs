//! Who takes part in a course.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::Plan;
use super::heat::Program;
use crate::contestant;
use crate::task::Work;

/// The contestants that can do this work, as far as they are asked for.
pub(super) fn all(plan: &Plan, work: Work) -> Result<Vec<(String, Program)>> {
    let own = std::env::current_exe().context("this program does not find itself")?;
    let bench = |path: &Path, variant| Program {
        path: path.to_owned(),
        arguments: vec!["contestant".to_owned()],
        variant,
    };
    let ours = |variant: &&str| ((*variant).to_owned(), bench(&own, None));
    let mut all: Vec<(String, Program)> = contestant::variants(work).iter().map(ours).collect();
    if let Some(earlier) = &plan.earlier {
        all.push(("redrive-earlier".to_owned(), bench(earlier, Some("redrive"))));
    }
    if let Some(folder) = &plan.rivals {
        all.extend(rivals(folder, work));
    }
    all.retain(|(variant, _)| plan.variant.is_empty() || plan.variant.contains(variant));
    if all.is_empty() {
        bail!("none of {:?} does `{}`", plan.variant, work.name());
    }
    Ok(all)
}

/// What `cargo xtask bench --rivals` installed; one that could not be installed it has named.
fn rivals(folder: &Path, work: Work) -> Vec<(String, Program)> {
    if !matches!(work, Work::Consume | Work::Large) {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut add = |variants: &[&str], path: &Path, arguments: Vec<String>, needed: &Path| {
        if needed.exists() {
            let program = Program { path: path.to_owned(), arguments, variant: None };
            all.extend(variants.iter().map(|&variant| (variant.to_owned(), program.clone())));
        }
    };
    let rust = folder.join("rust/release/redrive-bench-rivals");
    add(&["amqprs", "amqprs-coalesced", "apalis-amqp", "omniqueue"], &rust, Vec::new(), &rust);
    let rascal = folder.join("rascal");
    let script = rascal.join("main.js").display().to_string();
    add(&["rascal"], Path::new("node"), vec![script], &rascal.join("node_modules"));
    let python = folder.join("aio-pika/bin/python3");
    let script = folder.join("aio-pika/main.py");
    add(&["aio-pika"], &python, vec![script.display().to_string()], &script);
    all
}
