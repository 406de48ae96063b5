//! Files depend on each other in one direction: no cycles, except between a parent and its children. So do rooms: the modules at a
//! crate's root, each with all that is in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::graph::{Graph, Sources};

/// Files, or rooms, that use each other, directly or by way of others.
type Circle = BTreeSet<String>;

/// The graph of each crate, with its name.
static CRATES: LazyLock<Vec<(String, Graph)>> = LazyLock::new(|| {
    let mut crates = Vec::new();
    for package in crate::packages() {
        let mut sources = Sources::new();
        read(&package.folder.join("src"), "", &mut sources);
        for root in ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root)) {
            crates.push((package.name.clone(), Graph::of(&sources, root)));
        }
    }
    crates
});

#[test]
fn no_crate_has_files_that_know_each_other_in_a_circle() {
    assert_no_circles("files", Graph::clone);
}

#[test]
fn no_crate_has_rooms_that_know_each_other_in_a_circle() {
    assert_no_circles("rooms", Graph::rooms);
}

fn assert_no_circles(what: &str, of: fn(&Graph) -> Graph) {
    let complaints: String =
        CRATES.iter().map(|(package, graph)| complaints_about(package, what, &of(graph))).collect();
    assert!(complaints.is_empty(), "\n{complaints}");
}

fn read(folder: &Path, prefix: &str, sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_str().expect("a name"));
        if entry.file_type().expect("a type").is_dir() {
            read(&entry.path(), &format!("{name}/"), sources);
        } else if name.ends_with(".rs") {
            sources.insert(name, fs::read_to_string(entry.path()).expect("a text"));
        }
    }
}

fn complaints_about(package: &str, what: &str, graph: &Graph) -> String {
    let mut complaints = String::new();
    for circle in circles(graph) {
        let _ = writeln!(complaints, "{package}: {} {what} know each other in a circle:", circle.len());
        let inside = |file: &String| circle.contains(file);
        for ((from, to), names) in graph.uses.iter().filter(|((from, to), _)| inside(from) && inside(to)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let _ = writeln!(complaints, "    {from} → {to}: {}", names.join(", "));
        }
    }
    complaints
}

/// Every strongly connected set of files, without those that are a parent and its children.
fn circles(graph: &Graph) -> Vec<Circle> {
    let mut found = Vec::new();
    let mut open = vec![graph.modules.keys().cloned().collect::<Circle>()];
    while let Some(files) = open.pop() {
        for connected in strongly_connected(graph, &files) {
            let path = |file: &String| &graph.modules[file];
            let is_parent =
                |parent: &&String| connected.iter().all(|file| path(file).starts_with(path(parent)));
            match connected.iter().find(is_parent).cloned() {
                // Its children may use it, and it them: what counts is whether they use each other in a circle.
                Some(parent) => open.push(connected.into_iter().filter(|file| *file != parent).collect()),
                None => found.push(connected),
            }
        }
    }
    found.sort();
    found
}

/// The strongly connected sets of more than one file among these.
fn strongly_connected(graph: &Graph, files: &Circle) -> Vec<Circle> {
    let reached: BTreeMap<_, _> = files.iter().map(|file| (file, reached_from(graph, file, files))).collect();
    let mut sets: BTreeSet<Circle> = BTreeSet::new();
    for (file, reached_here) in &reached {
        let back = reached_here.iter().filter(|other| reached[*other].contains(*file));
        sets.insert(back.cloned().collect());
    }
    sets.into_iter().filter(|set| set.len() > 1).collect()
}

fn reached_from(graph: &Graph, start: &str, files: &Circle) -> Circle {
    let (mut reached, mut open) = (Circle::new(), vec![start.to_owned()]);
    while let Some(file) = open.pop() {
        for (from, to) in graph.uses.keys() {
            if *from == file && files.contains(to) && reached.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let sources = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        Graph::of(&sources, "lib.rs")
    }

    /// The circles, each as its files in one word.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles(&graph(files))
            .into_iter()
            .map(|circle| circle.into_iter().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn files_that_use_each_other_are_a_circle_however_they_say_it() {
        let uses_a = [
            "use crate::a::A;",
            "use super::a::{self};",
            "use super::{a as other};",
            "fn b() -> crate::a::A {}",
            "fn b() { println!(\"{}\", crate::a::A) }",
            "mod inner { use super::super::a::A; }",
            "#[error(\"{}\", crate::a::A)] struct B;",
            "use crate::*; fn b() { super::a::go() }",
            "fn b() { use crate::A; }",
        ];
        for text in uses_a {
            let files = [
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a.rs", "pub struct A; use crate::b::B;"),
                ("b.rs", text),
            ];
            assert_eq!(found(&files), ["a.rs b.rs"], "{text}");
        }
        let around = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&around), ["a.rs b.rs c.rs"]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        let uses_nothing = [
            "pub(in crate::a) struct B;",
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] mod tests;",
            "#[cfg(all(test, unix))] use crate::a::A;",
            "use a::A; use ::a::B;",
            "use crate::Bytes;",
        ];
        for text in uses_nothing {
            let files = [
                ("lib.rs", "mod a; mod b; pub use bytes::Bytes;"),
                ("a.rs", "use crate::b::B;"),
                ("b.rs", text),
            ];
            assert_eq!(found(&files), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_parent_and_its_children_are_no_circle_and_children_among_themselves_are() {
        let parent = ("m/mod.rs", "mod x; mod y; use x::X; use y::Y; pub struct M;");
        let with_parent =
            [("lib.rs", "mod m;"), parent, ("m/x.rs", "use super::M;"), ("m/y.rs", "use super::{M, X};")];
        assert_eq!(found(&with_parent), [""; 0]);
        let without =
            [("lib.rs", "mod m;"), parent, ("m/x.rs", "use super::Y;"), ("m/y.rs", "use super::{M, X};")];
        assert_eq!(found(&without), ["m/x.rs m/y.rs"]);
        let by_the_file = [
            ("lib.rs", "mod m;"),
            ("m.rs", "mod x; use x::X; pub struct M;"),
            ("m/x.rs", "use super::M; pub struct X;"),
        ];
        assert_eq!(found(&by_the_file), [""; 0]);
    }

    #[test]
    fn a_circle_by_way_of_a_parent_is_one() {
        let files = [
            ("lib.rs", "mod m; mod z;"),
            ("m/mod.rs", "mod x; pub use x::X; pub struct M(crate::z::Z);"),
            ("m/x.rs", "pub struct X(super::M);"),
            ("z.rs", "use crate::m::X; pub struct Z;"),
        ];
        assert_eq!(found(&files), ["m/mod.rs m/x.rs z.rs"]);
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_name() {
        let files = [
            ("lib.rs", "mod m; mod z;"),
            ("m/mod.rs", "mod x; mod w; pub use self::x::X as Y; pub use w::*; fn m(_: crate::z::Z) {}"),
            ("m/x.rs", "pub struct X;"),
            ("m/w.rs", "pub struct W;"),
            ("z.rs", "use crate::m::{Y, W}; pub struct Z;"),
        ];
        let graph = graph(&files);
        let of_z: Vec<_> =
            graph.uses.keys().filter(|(from, _)| from == "z.rs").map(|(_, to)| to.as_str()).collect();
        assert_eq!(of_z, ["m/w.rs", "m/x.rs"]);
        assert_eq!(circles(&graph), [] as [Circle; 0]);
    }

    #[test]
    fn a_circle_is_reported_with_its_arrows() {
        let circle =
            graph(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]);
        let all = "p: 2 files know each other in a circle:\n    a.rs → b.rs: crate::b::B\n    b.rs → a.rs: crate::a::A\n";
        assert_eq!(complaints_about("p", "files", &circle), all);
        assert_eq!(complaints_about("p", "files", &graph(&[("lib.rs", "mod a;"), ("a.rs", "")])), "");
    }

    #[test]
    fn rooms_are_a_circle_though_their_files_are_none() {
        let uses_a =
            ["use crate::a::x::X;", "use crate::X;", "use crate::a::X;", "fn z() -> super::super::X {}"];
        for text in uses_a {
            let files = [
                ("lib.rs", "mod a; mod b; mod c; pub use a::X;"),
                ("a/mod.rs", "mod x; mod y; pub use x::X;"),
                ("a/x.rs", "pub struct X;"),
                ("a/y.rs", "use crate::b::W;"),
                ("b/mod.rs", "mod w; mod z; pub use w::W;"),
                ("b/w.rs", "pub struct W;"),
                ("b/z.rs", text),
                ("c.rs", "use crate::X; use crate::b::W;"),
            ];
            let graph = graph(&files);
            assert_eq!(circles(&graph), [] as [Circle; 0], "{text}");
            let complaints = complaints_about("p", "rooms", &graph.rooms());
            assert!(
                complaints.starts_with("p: 2 rooms know each other in a circle:\n"),
                "{text}: {complaints}"
            );
            assert!(
                complaints.contains("    a → b: crate::b::W (a/y.rs)\n    b → a: "),
                "{text}: {complaints}"
            );
        }
    }

    #[test]
    fn the_root_is_no_room() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::B; pub struct Root;"),
            ("a.rs", "use crate::{B, Root};"),
            ("b.rs", "use crate::Root; pub struct B;"),
        ];
        assert_eq!(complaints_about("p", "rooms", &graph(&files).rooms()), "");
    }
}
