//! Which file of a crate uses which other file, read from its sources.
//!
//! An edge leads to the file that defines what is named: a re-export is followed. Code that only tests compile is left out. What
//! is used without being named (a method of a value) is not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

/// The sources of a crate, by their path below its `src`.
pub(crate) type Sources = BTreeMap<String, String>;
/// What a file uses of another one, as it names it.
pub(crate) type Names = BTreeSet<String>;

/// The files of a crate, or its rooms, and who uses whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// The path of the module that a file or room holds; empty for the root.
    pub(crate) modules: BTreeMap<String, Vec<String>>,
    pub(crate) uses: BTreeMap<(String, String), Names>,
}

/// The modules of a crate, as far as their code is compiled without tests.
struct Modules<'a> {
    sources: &'a Sources,
    all: Vec<Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    path: Vec<String>,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    /// What `use` makes known here, by its name here.
    imports: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    items: HashSet<String>,
    /// Every path that is written here, those of `use` included.
    paths: BTreeSet<Vec<String>>,
}

/// The root of a crate.
const ROOT: usize = 0;

impl Graph {
    /// Reads a crate from its root (`lib.rs` or `main.rs`) on.
    pub(crate) fn of(sources: &Sources, root: &str) -> Self {
        let mut modules = Modules { sources, all: Vec::new() };
        modules.read(root, &[], None, "");
        let mut graph = Self::default();
        for (index, module) in modules.all.iter().enumerate() {
            // A module inside of a file is part of it.
            graph.modules.entry(module.file.clone()).or_insert_with(|| module.path.clone());
            for path in &module.paths {
                let target = modules.resolve(index, path, &mut HashSet::new());
                let Some(target) = target.map(|target| &modules.all[target].file) else { continue };
                if *target != module.file {
                    let names = graph.uses.entry((module.file.clone(), target.clone())).or_default();
                    // What begins with an imported name is told by its `use`.
                    if names.is_empty() || !module.imports.contains_key(&path[0]) {
                        names.insert(path.join("::"));
                    }
                }
            }
        }
        graph
    }

    /// Contracts the files to rooms, the modules at the root. The root itself is none: it holds all of them.
    pub(crate) fn rooms(&self) -> Self {
        let mut rooms = Self::default();
        let room = |file: &String| self.modules[file].first().cloned();
        for room in self.modules.keys().filter_map(room) {
            rooms.modules.insert(room.clone(), vec![room]);
        }
        for ((from, to), names) in &self.uses {
            let (Some(user), Some(used)) = (room(from), room(to)) else { continue };
            if user != used {
                let arrow = rooms.uses.entry((user, used)).or_default();
                arrow.extend(names.iter().map(|name| format!("{name} ({from})")));
            }
        }
        rooms
    }
}

impl Modules<'_> {
    /// Reads the module in this file; its children are in `folder`.
    fn read(&mut self, file: &str, path: &[String], parent: Option<usize>, folder: &str) -> usize {
        let text = self.sources.get(file).unwrap_or_else(|| panic!("there is no file `{file}`"));
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("`{file}`: {error}"));
        self.enter(file, path, parent, folder, &parsed.items)
    }

    fn enter(
        &mut self,
        file: &str,
        path: &[String],
        parent: Option<usize>,
        folder: &str,
        items: &[Item],
    ) -> usize {
        let index = self.all.len();
        self.all.push(Module { file: file.to_owned(), path: path.to_vec(), parent, ..Module::default() });
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Some(name) = name_of(item) {
                self.all[index].items.insert(name);
            }
            let Item::Mod(module) = item else {
                self.all[index].visit_item(item);
                continue;
            };
            let name = module.ident.to_string();
            let path = [path, std::slice::from_ref(&name)].concat();
            let below = format!("{folder}{name}/");
            let child = match &module.content {
                Some((_, items)) => self.enter(file, &path, Some(index), &below, items),
                None => {
                    let files = [format!("{folder}{name}.rs"), format!("{below}mod.rs")];
                    let Some(file) = files.into_iter().find(|file| self.sources.contains_key(file)) else {
                        panic!("`{file}` declares `{name}`, which has no file");
                    };
                    self.read(&file, &path, Some(index), &below)
                }
            };
            self.all[index].children.insert(name, child);
        }
        index
    }

    /// The module that defines what a path names, if that is in this crate. `seen`: the imports that are being followed.
    fn resolve(&self, module: usize, path: &[String], seen: &mut HashSet<(usize, String)>) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let here = &self.all[module];
        match first.as_str() {
            "crate" => self.walk(ROOT, rest, seen),
            "self" => self.walk(module, rest, seen),
            "super" => self.walk(here.parent?, rest, seen),
            name if here.children.contains_key(name) || here.imports.contains_key(name) => {
                self.walk(module, path, seen)
            }
            _ => None,
        }
    }

    fn walk(&self, module: usize, path: &[String], seen: &mut HashSet<(usize, String)>) -> Option<usize> {
        let Some((name, rest)) = path.split_first() else { return Some(module) };
        let here = &self.all[module];
        if name == "super" {
            return self.walk(here.parent?, rest, seen);
        }
        if let Some(&child) = here.children.get(name) {
            return self.walk(child, rest, seen);
        }
        if here.items.contains(name) {
            return Some(module);
        }
        if let Some(import) = here.imports.get(name)
            && seen.insert((module, name.clone()))
        {
            return self.resolve(module, &[import, rest].concat(), seen);
        }
        for glob in &here.globs {
            if seen.insert((module, glob.join("::")))
                && let Some(target) = self.resolve(module, glob, seen)
                && self.all[target].knows(name)
            {
                return self.walk(target, path, seen);
            }
        }
        // What a macro makes.
        Some(module)
    }
}

impl Module {
    fn knows(&self, name: &str) -> bool {
        self.items.contains(name) || self.children.contains_key(name) || self.imports.contains_key(name)
    }

    fn import(&mut self, mut path: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(path, &tree.tree);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(path.clone(), tree)),
            UseTree::Glob(_) => {
                self.globs.push(path.clone());
                self.paths.insert(path);
            }
            UseTree::Name(name) if name.ident == "self" => {
                let Some(last) = path.last().cloned() else { return };
                self.bind(last, path);
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.bind(name.ident.to_string(), path);
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                self.bind(rename.rename.to_string(), path);
            }
        }
    }

    fn bind(&mut self, name: String, path: Vec<String>) {
        // `use bytes;` names a crate, not itself.
        if path.len() > 1 {
            self.imports.insert(name, path.clone());
            self.paths.insert(path);
        }
    }

    /// The paths among tokens that nobody parses: arguments of macros and attributes.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                _ => {
                    self.end(&mut path);
                    colons = 0;
                }
            }
            if let TokenTree::Group(group) = token {
                self.scan(group.stream());
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.scan(called.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone());
        }
    }

    /// `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let said = list.tokens.to_string();
            said == "test" || said.replace(' ', "").starts_with("all(test,")
        }
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
