//! Plans, journals, originals and the audit log on disk. Only the user can read them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use redrive::Shelf;
use redrive::ops::{AuditLog, ExportedEntry, GroupId, JournalFolder, Plan, own_file};
use serde::{Deserialize, Serialize};

use crate::exit::usage;
use crate::settings::{Global, user_folder};

/// The folder of the state.
pub(crate) struct State(PathBuf);

/// A plan, and what the user asked for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedPlan {
    /// The broker, as contexts and plans call it.
    pub(crate) broker: String,
    /// The filter that selected the entries; empty: all.
    pub(crate) filter: String,
    /// True if the shelf takes nothing back: what is discarded cannot be undone.
    pub(crate) is_final: bool,
    /// Why the plan may lack entries that the filter would have selected.
    pub(crate) not_read: Option<String>,
    pub(crate) plan: Plan,
}

impl State {
    /// Opens the folder, and creates it for its owner only.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub(crate) fn open(global: &Global) -> Result<Self> {
        let path = match &global.state {
            Some(path) => path.clone(),
            None => user_folder("XDG_STATE_HOME", ".local/state")?.join("redrive"),
        };
        Self::at(path)
    }

    pub(super) fn at(path: PathBuf) -> Result<Self> {
        let state = Self(path);
        for folder in ["plans", "runs", "originals"] {
            create(&state.0.join(folder))?;
        }
        Ok(state)
    }

    pub(crate) fn journals(&self) -> Result<JournalFolder> {
        Ok(JournalFolder::open(self.0.join("runs"))?)
    }

    pub(crate) fn audit(&self) -> Result<AuditLog> {
        let path = self.0.join("audit.jsonl");
        AuditLog::open(&path).with_context(|| format!("cannot open the audit log {}", path.display()))
    }

    /// Keeps a plan under its id.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn save_plan(&self, saved: &SavedPlan) -> Result<()> {
        let path = self.0.join("plans").join(format!("{}.json", saved.plan.id()));
        write_durably(&path, &serde_json::to_vec(saved)?)
    }

    /// Reads the plan whose id begins so.
    ///
    /// # Errors
    ///
    /// If there is none or more than one, or it was changed.
    pub(crate) fn plan(&self, beginning: &str) -> Result<SavedPlan> {
        let path = only(&self.0.join("plans"), beginning, "plan")?;
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("the plan {} cannot be used: make another", path.display()))
    }

    /// Returns the id of the run that begins so.
    ///
    /// # Errors
    ///
    /// If there is none or more than one.
    pub(crate) fn run(&self, beginning: &str) -> Result<String> {
        let runs = self.journals()?.runs()?;
        unique(runs.iter().map(String::as_str).filter(|id| id.starts_with(beginning)), beginning, "run")
    }

    /// Writes the originals of a run, and returns when they are on the disk.
    ///
    /// # Errors
    ///
    /// If one of them cannot be written.
    pub(crate) fn save_originals<'a>(
        &self,
        run: &str,
        entries: impl Iterator<Item = &'a ExportedEntry>,
    ) -> Result<PathBuf> {
        let path = self.originals(run);
        let mut lines = Vec::new();
        for entry in entries {
            writeln!(
                lines,
                "{}",
                entry.to_line().with_context(|| format!("cannot export {}", entry.handle))?
            )?;
        }
        write_durably(&path, &lines)?;
        Ok(path)
    }

    /// Returns where the originals of a run are. A plan may be run twice.
    pub(crate) fn originals(&self, run: &str) -> PathBuf {
        self.0.join("originals").join(format!("{run}.jsonl"))
    }

    /// Returns the file with what other processes ask of a run.
    pub(crate) fn asks(&self, run: &str) -> PathBuf {
        self.0.join("runs").join(format!("{run}.asks"))
    }

    /// Returns the empty file that says that the journal of a run could not be written: on a full disk there is room for a name.
    pub(crate) fn unwritten(&self, run: &str) -> PathBuf {
        self.0.join("runs").join(format!("{run}.unwritten"))
    }

    /// Returns the file that notes what of a run was undone.
    pub(crate) fn undone(&self, run: &str) -> PathBuf {
        self.0.join("runs").join(format!("{run}.undone"))
    }

    /// Writes the originals of edited messages, and returns when they are on the disk.
    ///
    /// # Errors
    ///
    /// If one of them cannot be written.
    pub(crate) fn save_edited<'a>(
        &self,
        entries: impl Iterator<Item = &'a ExportedEntry>,
    ) -> Result<PathBuf> {
        let now = std::time::SystemTime::now();
        let millis = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis();
        self.save_originals(&format!("edit-{millis}-{}", std::process::id()), entries)
    }

    /// Remembers which groups are called g1, g2, ….
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(crate) fn list_groups(
        &self,
        broker: &str,
        queue: &str,
        shelf: Shelf,
        ids: impl Iterator<Item = GroupId>,
    ) -> Result<()> {
        let mut listed = self.all_listed_groups()?;
        listed.insert(key(broker, queue, shelf), ids.map(|id| id.to_string()).collect());
        write_durably(&self.groups_file(), &serde_json::to_vec(&listed)?)
    }

    /// Returns the groups that were listed last.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub(crate) fn listed_groups(&self, broker: &str, queue: &str, shelf: Shelf) -> Result<Vec<GroupId>> {
        let listed = self.all_listed_groups()?.remove(&key(broker, queue, shelf)).unwrap_or_default();
        listed.iter().map(|id| Ok(id.parse()?)).collect()
    }

    fn all_listed_groups(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let path = self.groups_file();
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            text => serde_json::from_slice(&text.with_context(|| format!("cannot read {}", path.display()))?)
                .with_context(|| format!("cannot read {}: delete it", path.display())),
        }
    }

    fn groups_file(&self) -> PathBuf {
        self.0.join("groups.json")
    }
}

fn key(broker: &str, queue: &str, shelf: Shelf) -> String {
    [broker, queue, &shelf.to_string()].join("\n")
}

fn create(path: &Path) -> Result<()> {
    own_file::create_folder(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Writes a file so that after a crash the whole of it is there, or nothing. The file is a new one, which only the user can read: a
/// link at its place is replaced, and never followed.
fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        // Removed again if anything fails: a full disk stays full otherwise.
        let mut file = tempfile::Builder::new().prefix(".redrive-").suffix(".new").tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        own_file::sync_name(path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn only(folder: &Path, beginning: &str, what: &str) -> Result<PathBuf> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            ids.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    let id = unique(ids.iter().map(String::as_str).filter(|id| id.starts_with(beginning)), beginning, what)?;
    Ok(folder.join(format!("{id}.json")))
}

/// How many ids an error lists.
const LISTED: usize = 10;

fn unique<'a>(found: impl Iterator<Item = &'a str>, beginning: &str, what: &str) -> Result<String> {
    let mut found: Vec<_> = found.collect();
    match found[..] {
        [] => Err(usage(format!("no {what} begins with `{beginning}`"))),
        [only] => Ok(only.to_owned()),
        _ => {
            found.sort_unstable();
            let more = found.len().saturating_sub(LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            found.truncate(LISTED);
            let listed = found.join(", ");
            Err(usage(format!(
                "more than one {what} begins with `{beginning}`: {listed}{more}. Write more of its id"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let state = State::at(folder.path().to_owned()).unwrap();
        (folder, state)
    }

    #[test]
    fn short_names_belong_to_one_shelf_of_one_broker() {
        let (_folder, state) = state();
        let id = redrive::ops::Template::new("Expired", "", "late").id();
        state.list_groups("prod", "orders", Shelf::DeadLetter, [id].into_iter()).unwrap();
        let listed = |broker, queue, shelf| state.listed_groups(broker, queue, shelf).unwrap();
        assert_eq!(listed("prod", "orders", Shelf::DeadLetter), [id]);
        assert!(listed("test", "orders", Shelf::DeadLetter).is_empty());
        assert!(listed("prod", "orders2", Shelf::DeadLetter).is_empty());
        assert!(listed("prod", "orders", Shelf::Parking).is_empty());
    }

    #[test]
    fn a_beginning_must_name_one() {
        let ids = ["2026-a", "2026-b", "2027-a"];
        let find = |beginning: &str| {
            unique(ids.into_iter().filter(|id| id.starts_with(beginning)), beginning, "plan")
        };
        assert_eq!(find("2027").unwrap(), "2027-a");
        let ambiguous = find("2026").unwrap_err().to_string();
        assert!(ambiguous.contains("more than one plan begins with `2026`: 2026-a, 2026-b."), "{ambiguous}");
        let many: Vec<_> = (10..30).map(|number| format!("p{number}")).collect();
        let many = unique(many.iter().map(String::as_str), "p", "plan").unwrap_err().to_string();
        assert!(many.contains("p18, p19 and 10 more"), "{many}");
        assert!(find("3").unwrap_err().to_string().contains("no plan begins"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_at_the_place_of_a_file_is_replaced_and_not_followed() {
        let (folder, state) = state();
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        for link in [state.groups_file(), state.groups_file().with_extension("new")] {
            std::os::unix::fs::symlink(&target, link).unwrap();
        }
        write_durably(&state.groups_file(), b"{}").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(fs::read_to_string(state.groups_file()).unwrap(), "{}");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let (folder, state) = state();
        state.list_groups("b", "q", Shelf::DeadLetter, std::iter::empty()).unwrap();
        let file = state.groups_file();
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(folder.path().join("originals")).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
