//! Which file of a crate uses what another one defines: a graph that must have no circle.
//!
//! A name is followed through re-exports to the file that defines it, so a module that only hands on what its children
//! define depends on none of them. Methods are not followed: who calls one has been given the object.

use super::finding::Finding;
use super::tree::{Source, is_for_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A module's path from the root of its crate.
type ModulePath = Vec<String>;

/// What a module declares, by name.
#[derive(Default)]
struct Module {
    /// The file that its items stand in.
    file: String,
    items: BTreeSet<String>,
    /// Names that it imports or hands on, and the paths they stand for.
    aliases: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths that its own code names; re-exports are not among them.
    uses: BTreeSet<Vec<String>>,
    /// Paths of the types that it implements methods for.
    methods_of: BTreeSet<Vec<String>>,
}

/// The modules of one crate.
#[derive(Default)]
pub(super) struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// Files, each with those that it needs and a name that it uses of each.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

/// The modules of each crate, by its name.
pub(super) fn crates<'a>(sources: &'a [Source<'_>]) -> BTreeMap<&'a str, Crate> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.test_only) {
        let Some((name, path)) = module_of(&source.file.path) else { continue };
        if let Some(syntax) = &source.syntax {
            crates.entry(name).or_default().read(&path, &source.file.path, &syntax.items);
        }
    }
    crates
}

/// A finding for each circle among the files of a crate.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in crates(sources).values() {
        let edges = one.edges();
        for circle in circles(&edges) {
            let inside = |file: &&str| circle.contains(file);
            let told = circle.iter().flat_map(|file| {
                let needed = edges[file].iter().filter(|(needed, _)| inside(needed));
                needed.map(move |(needed, name)| format!("{} needs {name} of {}", short(file), short(needed)))
            });
            let message =
                format!("{} files need each other: {}", circle.len(), told.collect::<Vec<_>>().join("; "));
            findings.push(Finding { path: circle[0].to_owned(), line: 1, rule: "circle", message });
        }
    }
    findings
}

/// The path of a file from the root of its crate.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, inner)| inner)
}

/// Name of the crate and path of the module that a file holds.
fn module_of(path: &str) -> Option<(&str, ModulePath)> {
    let (name, inner) = path.strip_prefix("crates/").unwrap_or(path).split_once("/src/")?;
    let stem = inner.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let is_root = stem == "lib" || stem == "main";
    Some((name, if is_root { Vec::new() } else { stem.split('/').map(str::to_owned).collect() }))
}

impl Crate {
    fn read(&mut self, path: &[String], file: &str, items: &[syn::Item]) {
        let mut reader =
            Reader { found: Module { file: file.to_owned(), ..Module::default() }, inner: Vec::new() };
        for item in items {
            reader.visit_item(item);
        }
        let inner = std::mem::take(&mut reader.inner);
        self.modules.insert(path.to_vec(), reader.found);
        for (name, items) in inner {
            let mut below = path.to_vec();
            below.push(name);
            self.read(&below, file, items);
        }
    }

    /// The file that defines what `path` names, seen from `scope`; `None` outside the crate.
    fn file_of(&self, scope: &ModulePath, path: &[String]) -> Option<&str> {
        self.item_of(scope, path, 0).map(|(file, _)| file)
    }

    /// That file, and what it calls the item.
    fn item_of(&self, scope: &ModulePath, path: &[String], depth: usize) -> Option<(&str, &str)> {
        const DEPTH_MAX: usize = 16;
        if depth > DEPTH_MAX {
            return None;
        }
        let mut at = scope.clone();
        let mut names = path;
        while let [first, rest @ ..] = names {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            names = rest;
        }
        let [first, rest @ ..] = names else { return None };
        let module = self.modules.get(&at)?;
        let mut below = at.clone();
        below.push(first.clone());
        // A function may have the name of a module: what goes on below the name is in the module.
        if self.modules.contains_key(&below) && !rest.is_empty() {
            let mut inner = vec!["self".to_owned()];
            inner.extend(rest.iter().cloned());
            return self.item_of(&below, &inner, depth + 1);
        }
        if let Some(item) = module.items.get(first) {
            return Some((&module.file, item));
        }
        if let Some(alias) = module.aliases.get(first) {
            if alias == path {
                return None;
            }
            let mut whole = alias.clone();
            whole.extend(rest.iter().cloned());
            return self.item_of(&at, &whole, depth + 1);
        }
        module.globs.iter().find_map(|glob| {
            let mut whole = glob.clone();
            whole.extend(names.iter().cloned());
            self.item_of(&at, &whole, depth + 1)
        })
    }

    /// The files in which methods of a type stand, by the type's own file and name; traits do not count.
    pub(super) fn files_of_methods(&self) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
        let mut files: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for (scope, module) in &self.modules {
            for path in &module.methods_of {
                if let Some(item) = self.item_of(scope, path, 0) {
                    files.entry(item).or_default().insert(&module.file);
                }
            }
        }
        files
    }

    /// Files, each with those that it needs.
    fn edges(&self) -> Edges<'_> {
        let mut edges = Edges::new();
        for (scope, module) in &self.modules {
            let needed = edges.entry(&module.file).or_default();
            for path in &module.uses {
                if let Some(file) = self.file_of(scope, path).filter(|file| *file != module.file) {
                    needed.entry(file).or_insert_with(|| path.join("::"));
                }
            }
        }
        edges
    }
}

/// Reads the items of one module, not those of the modules inside.
struct Reader<'ast> {
    found: Module,
    inner: Vec<(String, &'ast [syn::Item])>,
}

impl Reader<'_> {
    fn import(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                let mut whole = prefix.clone();
                let alias = if name == "self" { prefix.last().cloned() } else { Some(name.clone()) };
                if name != "self" {
                    whole.push(name);
                }
                if let Some(alias) = alias {
                    self.found.aliases.insert(alias, whole);
                }
            }
            syn::UseTree::Rename(rename) => {
                let mut whole = prefix.clone();
                whole.push(rename.ident.to_string());
                self.found.aliases.insert(rename.rename.to_string(), whole);
            }
            syn::UseTree::Glob(_) => self.found.globs.push(prefix.clone()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(prefix, tree)),
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'ast> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(it) => Some(&it.ident),
            syn::Item::Enum(it) => Some(&it.ident),
            syn::Item::Fn(it) => Some(&it.sig.ident),
            syn::Item::Macro(it) => it.ident.as_ref(),
            syn::Item::Static(it) => Some(&it.ident),
            syn::Item::Struct(it) => Some(&it.ident),
            syn::Item::Trait(it) => Some(&it.ident),
            syn::Item::Type(it) => Some(&it.ident),
            _ => None,
        };
        if let Some(name) = name {
            self.found.items.insert(name.to_string());
        }
        match item {
            syn::Item::Use(it) => self.import(&mut Vec::new(), &it.tree),
            syn::Item::Mod(it) => {
                if let Some((_, items)) = &it.content {
                    self.inner.push((it.ident.to_string(), items.as_slice()));
                }
            }
            syn::Item::Impl(it) if it.trait_.is_none() => {
                if let syn::Type::Path(of) = &*it.self_ty {
                    self.found.methods_of.insert(names(&of.path));
                }
                visit::visit_item(self, item);
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.uses.insert(names(path));
        visit::visit_path(self, path);
    }

    /// What `pub(in PATH)` names is not used.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        paths_in(call.tokens.clone(), &mut self.found.uses);
        visit::visit_macro(self, call);
    }
}

/// Adds what may be a path in the tokens of a macro: names that `::` joins. What follows a dot is a field or a method.
fn paths_in(tokens: TokenStream, found: &mut BTreeSet<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut before = String::new();
    for token in tokens {
        let text = token.to_string();
        match token {
            TokenTree::Ident(name) => {
                let is_joined = before == "::";
                if !is_joined {
                    found.insert(std::mem::take(&mut path));
                }
                if is_joined && !path.is_empty() || !is_joined && before != "." {
                    path.push(name.to_string());
                }
                before.clear();
            }
            TokenTree::Punct(_) => {
                before = if before == ":" && text == ":" { "::".to_owned() } else { text };
            }
            TokenTree::Group(group) => {
                paths_in(group.stream(), found);
                before.clear();
            }
            TokenTree::Literal(_) => before.clear(),
        }
    }
    found.insert(path);
    found.remove(&Vec::new());
}

fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Groups of files that need each other, each in order.
fn circles<'a>(edges: &Edges<'a>) -> Vec<Vec<&'a str>> {
    let ahead: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|&file| (file, reached(edges, file))).collect();
    let mut found: Vec<Vec<&str>> = Vec::new();
    for (&file, needed) in &ahead {
        if needed.contains(file) && !found.iter().flatten().any(|&member| member == file) {
            found.push(needed.iter().copied().filter(|other| ahead[other].contains(file)).collect());
        }
    }
    found
}

/// All files that a file needs, directly or not; itself only if it is in a circle.
fn reached<'a>(edges: &Edges<'a>, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![start];
    while let Some(file) = open.pop() {
        for &needed in edges.get(file).into_iter().flat_map(|needed| needed.keys()) {
            if reached.insert(needed) {
                open.push(needed);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files).sources()).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn files_that_need_each_other_are_named_with_what_they_need() {
        let told = messages(&[
            ("crates/c/src/lib.rs", "mod one; mod two; pub use one::One;"),
            ("crates/c/src/one.rs", "use crate::two; pub struct One(two::Two);"),
            ("crates/c/src/two.rs", "pub struct Two; fn make() -> Option<crate::One> { None }"),
        ]);
        assert_eq!(
            told,
            ["2 files need each other: one.rs needs two::Two of two.rs; two.rs needs crate::One of one.rs"]
        );
    }

    #[test]
    fn a_module_that_hands_on_what_its_children_define_does_not_need_them() {
        let told = messages(&[
            ("crates/c/src/lib.rs", "mod one;"),
            ("crates/c/src/one.rs", "mod two; pub use two::{Two as Other, Second}; pub struct One;"),
            (
                "crates/c/src/one/two.rs",
                "use super::*; pub struct Two(One); pub struct Second(super::Other);",
            ),
        ]);
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn a_function_with_the_name_of_a_module_does_not_hide_what_is_in_it() {
        let told = messages(&[
            ("crates/c/src/lib.rs", "mod one; mod two; fn two() {}"),
            ("crates/c/src/one.rs", "pub fn first() { crate::two::second(); }"),
            ("crates/c/src/two.rs", "pub fn second() { crate::one::first(); }"),
        ]);
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn paths_in_macros_are_uses_and_fields_and_methods_are_not() {
        let needs = |inside: &str| {
            messages(&[
                ("crates/c/src/lib.rs", "mod one; mod two;"),
                ("crates/c/src/one.rs", &format!("use crate::two::second; fn first() {{ {inside} }}")),
                ("crates/c/src/two.rs", "pub fn second() { crate::one::first(); }"),
            ])
            .len()
        };
        assert_eq!(needs("assert!(second() && [crate::other(1)], \"none\");"), 1);
        assert_eq!(needs("assert!(x.y[crate::two::second(1)]);"), 1);
        assert_eq!(needs("assert!(self.second && that.second(), \"{}\", crate::second);"), 0);
    }

    #[test]
    fn a_crate_outside_the_folder_of_crates_is_read() {
        let told = messages(&[
            ("xtask/src/main.rs", "mod one; mod two;"),
            ("xtask/src/one.rs", "pub struct One(crate::two::Two);"),
            ("xtask/src/two.rs", "pub struct Two(crate::one::One);"),
        ]);
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn what_is_compiled_for_tests_and_other_crates_do_not_count() {
        let told = messages(&[
            ("crates/c/src/lib.rs", "mod one; pub struct Root;"),
            (
                "crates/c/src/one.rs",
                "pub struct One(std::rc::Rc<u8>); #[cfg(test)] fn test(it: crate::two::Two) {}",
            ),
            ("crates/c/src/two.rs", "pub struct Two(crate::one::One);"),
            ("crates/d/src/one.rs", "pub struct One(crate::two::Two);"),
        ]);
        assert_eq!(told, Vec::<String>::new());
    }
}
