//! What RabbitMQ did in random scenarios: `recordings/VERSION-KIND.jsonl`, one in a line.

use crate::campaign::Real;
use crate::campaign::{Emulated, Recording, record, replay};
use crate::generate::{Combination, scenario};
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Reads the recordings of a combination; none if it has none.
///
/// # Errors
/// If the file cannot be read.
pub fn all(combination: Combination) -> Result<Vec<Recording>> {
    let path = path(combination);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("{} cannot be read", path.display()))?,
    };
    let read = |line| {
        serde_json::from_str(line).with_context(|| format!("a line of {} cannot be read", path.display()))
    };
    text.lines().map(read).collect()
}

/// Records what RabbitMQ does, but for seeds that are recorded; `at_once` at a time. Returns those that could not be run, and why.
///
/// # Errors
/// If the file cannot be read or written.
pub fn add(
    combination: Combination,
    seeds: Range<u64>,
    real: &Real,
    at_once: usize,
) -> Result<Vec<(u64, String)>> {
    let path = path(combination);
    let known: BTreeSet<u64> = all(combination)?.into_iter().map(|recording| recording.seed).collect();
    std::fs::create_dir_all(path.parent().expect("the path has a folder"))?;
    let file = Mutex::new(OpenOptions::new().create(true).append(true).open(&path)?);
    let add = |seed| -> Result<()> {
        let line = serde_json::to_string(&record(seed, &scenario(combination, seed), real)?)?;
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(File::write_all(&mut file, (line + "\n").as_bytes())?)
    };
    let new: Vec<u64> = seeds.filter(|seed| !known.contains(seed)).collect();
    Ok(each(&new, at_once, |&seed| add(seed).err().map(|error| (seed, format!("{error:#}")))))
}

/// Compares the emulator with recordings, `at_once` at a time. Returns the seeds that differ, and how.
pub fn differences(recordings: &[Recording], emulated: &Emulated, at_once: usize) -> Vec<(u64, String)> {
    each(recordings, at_once, |recording| {
        let how = match replay(recording, emulated) {
            Ok(how) => how?,
            Err(error) => format!("could not run: {error:#}"),
        };
        Some((recording.seed, how))
    })
}

fn each<T: Sync, R: Send>(all: &[T], at_once: usize, work: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    let next = Mutex::new(all.iter());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..at_once {
            threads.spawn(|| {
                loop {
                    let Some(one) = next.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                        return;
                    };
                    let Some(result) = work(one) else { continue };
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn path(combination: Combination) -> PathBuf {
    let name = format!("{combination}.jsonl").replace(' ', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings").join(name)
}
