//! `redrive edit`: changes one message in an editor, and sends it back or keeps it on its shelf; or many by a program.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use redrive::ops::{EditText, SensitiveEdits, diff};
use redrive::shelves::EntryHandle;
use tempfile::NamedTempFile;

use super::ask::confirmed;
use super::edit_many::edited_stays;
use crate::args::{Edit, Global, Which};
use crate::desk::edit::{Then, refused};
use crate::desk::{self, State, operator};
use crate::exit::{EndSignals, Exit, usage};
use crate::look::select::select;
use crate::output::{note, print, printable};

pub(crate) async fn run(global: &Global, mut command: Edit) -> Result<Exit> {
    let context = global.broker()?;
    if !command.dry_run {
        global.may_act(&context)?;
    }
    if let Some(program) = &command.jq {
        return super::edit_many::run(global, &context, &command, program).await;
    }
    let Which { filter, group, selecting, .. } = &command.which;
    if filter.is_empty() && group.is_none() && selecting.is_none() {
        return Err(usage(
            "which message? Its handle as `browse` prints it, a filter that only one matches, or a filter and --jq to edit many",
        ));
    }
    // A handle says its shelf.
    if let [text] = &filter[..]
        && let Ok(handle) = text.parse::<EntryHandle>()
    {
        command.which.shelf = handle.shelf().into();
    }
    if !command.yes && !std::io::stdin().is_terminal() {
        return Err(usage("cannot ask for confirmation without a terminal. Pass --yes to store the edit"));
    }
    let selected = select(global, &context, &command.which).await?;
    let entry = &selected.only()?.entry;
    entry.check_owner(&selected.desk.queue).context("nothing was changed")?;
    let (handle, original) = (&entry.handle, &entry.message);

    if command.keep {
        edited_stays(&selected.desk, handle.shelf())?;
    }

    let before = EditText::of(original)?;
    let text = in_editor(before.as_str())?;
    let sensitive = if command.sensitive { SensitiveEdits::Allow } else { SensitiveEdits::Refuse };
    let edited = EditText::parse(&as_written(&text, before.as_str()), original)
        .context("the edit cannot be read: nothing was changed");
    let edit = edited.and_then(|edited| {
        let edit = redrive::ops::Edit::between(original, edited, sensitive);
        edit.map_err(|error| refused(handle, error)).context("nothing was changed")
    });
    let edit = match edit {
        Ok(Some(edit)) => edit,
        Ok(None) => bail!("the text was not edited: nothing was changed"),
        Err(error) => return Err(kept(&text, error)),
    };
    print(&printable(&diff(original, edit.message())));
    let action = if command.keep { "keep this edit on the shelf" } else { "send this edit back" };
    if !command.yes && !confirmed(action)? {
        bail!("cancelled: nothing was changed");
    }

    let then = if command.keep { Then::Keep } else { Then::SendBack };
    let by = operator(command.reason.as_deref());
    let state = State::open(global)?;
    let stored = desk::edit::store(&state, &selected.desk, entry, edit, then, by).await;
    let stored = stored.map_err(|error| kept(&text, error))?;
    note!("the original is in {}", stored.original.display());
    if let Some(handle) = stored.handle {
        note!("its handle is {handle} now");
    }
    print(if command.keep { "edited, and on the shelf" } else { "edited, and sent back" });
    Ok(Exit::Ok)
}

/// Lets the user edit a text, in a file that only the user can read.
///
/// # Errors
///
/// If there is no editor, or it fails.
fn in_editor(text: &str) -> Result<String> {
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let editor = editor.unwrap_or_else(|| OsString::from("vi"));
    let file = written(text).context("cannot write the text to edit")?;
    // Ctrl-C is the editor's as long as it runs: the file would stay otherwise.
    let _signals = EndSignals::claim();
    // A shell takes editors with arguments, as `code --wait`.
    let ran = Command::new("sh").arg("-c").arg(r#"eval "$0" '"$1"'"#).arg(&editor).arg(file.path()).status();
    let ran = ran.with_context(|| format!("cannot run the editor `{}`", editor.display()))?;
    if !ran.success() {
        bail!("the editor `{}` ended with {ran}: nothing was changed", editor.display());
    }
    match std::fs::read_to_string(file.path()) {
        Ok(text) => Ok(text),
        Err(error) => {
            let error =
                anyhow::Error::from(error).context("cannot read the edited text: nothing was changed");
            Err(kept_as(file, error))
        }
    }
}

/// Writes a text to a new file that only the user can read.
fn written(text: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("redrive-").suffix(".txt").tempfile()?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    Ok(file)
}

/// Returns the text without what the editor alone has changed: a byte order mark, and line ends as Windows has them.
fn as_written<'a>(edited: &'a str, written: &str) -> Cow<'a, str> {
    let text = if written.starts_with(BOM) { edited } else { edited.strip_prefix(BOM).unwrap_or(edited) };
    if text.contains("\r\n") && !written.contains("\r\n") {
        return Cow::Owned(text.replace("\r\n", "\n"));
    }
    Cow::Borrowed(text)
}

/// Keeps the text of an edit that is not made, and says where: somebody may have worked on it for long. It is written only now: the file
/// of the editor would stay if the process ended at the question.
fn kept(text: &str, error: anyhow::Error) -> anyhow::Error {
    match written(text) {
        Ok(file) => kept_as(file, error),
        Err(_) => error,
    }
}

fn kept_as(file: NamedTempFile, error: anyhow::Error) -> anyhow::Error {
    match file.keep() {
        Ok((_, path)) => error.context(format!("the edited text is kept in {}", path.display())),
        Err(_) => error,
    }
}

const BOM: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_editor_changed_is_no_edit() {
        assert_eq!(as_written("\u{feff}a\r\nb\r\n", "a\nb\n"), "a\nb\n");
        assert_eq!(as_written("a\r\nc\n", "a\r\nb\n"), "a\r\nc\n", "the message has such line ends itself");
        assert_eq!(as_written("\u{feff}a\n", "\u{feff}b\n"), "\u{feff}a\n");
        assert_eq!(as_written("a\rb\n", "a\n"), "a\rb\n");
    }
}
