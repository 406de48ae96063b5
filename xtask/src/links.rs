//! Tests of links: every link in the docs leads to an existing file and heading; doc comments link to files of the repository by
//! their full address, because they are read on docs.rs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Full addresses of the repository's files.
const ADDRESSES: [&str; 2] = [
    concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/"),
    concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/"),
];

#[test]
fn links_lead_to_a_file_and_a_heading() -> Result<()> {
    let root = root();
    let mut dead = Vec::new();
    for page in files(&root, "md")? {
        let folder = page.parent().context("a file is in a folder")?;
        for link in links(&fs::read_to_string(&page)?) {
            let is_elsewhere = link.contains("://") || link.contains("::");
            let target =
                if link.starts_with('#') { page.clone() } else { folder.join(without_heading(&link)) };
            if !is_elsewhere && !leads_somewhere(&target, &link) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    // Alert rules and the dashboard link to pages too.
    let sources = ["rs", "md", "yml", "json"].iter().map(|ending| files(&root, ending));
    for source in sources.collect::<Result<Vec<_>>>()?.concat() {
        let text = fs::read_to_string(&source)?;
        for link in ADDRESSES.into_iter().flat_map(|address| addressed(&text, address)) {
            if !leads_somewhere(&root.join(without_heading(&link)), &link) {
                dead.push(format!("{}: {link}", source.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    Ok(())
}

#[test]
fn rustdoc_names_pages_by_their_address() -> Result<()> {
    let mut dead = Vec::new();
    for source in files(&root().join("crates"), "rs")? {
        for line in fs::read_to_string(&source)?.lines().map(str::trim_start) {
            let is_doc = line.starts_with("///") || line.starts_with("//!");
            let rest =
                ADDRESSES.into_iter().fold(line.to_owned(), |line, address| line.replace(address, "…"));
            if is_doc
                && ["`docs/", "(docs/", " docs/", "](../", "](./"].iter().any(|path| rest.contains(path))
            {
                dead.push(format!("{}: {line}", source.display()));
            }
        }
    }
    assert!(dead.is_empty(), "these are dead on docs.rs; write {}…:\n{}", ADDRESSES[0], dead.join("\n"));
    Ok(())
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository").to_owned()
}

/// Returns all files of the repository with this extension, except those that git ignores.
pub(crate) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            found.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|it| it == ending) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the targets of `[text](target)`, outside code.
fn links(page: &str) -> Vec<String> {
    let outside_of_code = page.split("```").step_by(2);
    let after = outside_of_code.flat_map(|text| text.split("](").skip(1));
    after.filter_map(|text| text.split_once(')')).map(|(link, _)| link.to_owned()).collect()
}

fn addressed(text: &str, address: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || ")>`\"".contains(c);
    text.split(address).skip(1).map(|rest| rest.split(ends).next().unwrap_or_default().to_owned()).collect()
}

fn without_heading(link: &str) -> &str {
    link.split('#').next().unwrap_or_default()
}

fn leads_somewhere(target: &Path, link: &str) -> bool {
    let Some((_, heading)) = link.split_once('#') else { return target.exists() };
    fs::read_to_string(target).is_ok_and(|page| headings(&page).iter().any(|it| it == heading))
}

/// Returns the anchors of headings: lower case, without punctuation, `-` for a space. Duplicate headings have the same anchor.
fn headings(page: &str) -> Vec<String> {
    let outside_of_code = page.split("```").step_by(2);
    let titles = outside_of_code.flat_map(str::lines).filter(|line| line.starts_with('#'));
    let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    titles
        .map(|title| title.trim_start_matches('#').trim().to_lowercase())
        .map(|title| title.chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect())
        .collect()
}
