//! The files of the tree that rules apply to, read once.

use std::fs;
use std::path::Path;

/// Folders that are made, not written.
const MADE: [&str; 8] =
    [".git", "target", "demo", "bench-out", "corpus", "artifacts", "coverage", "node_modules"];
/// Endings of text files.
const TEXTS: [&str; 7] = ["rs", "md", "toml", "sh", "yml", "yaml", "service"];
/// Text files without an ending, by folder or name.
const SCRIPT_FOLDERS: [&str; 4] = ["scripts/", ".ci/", "tests/system/", "tests/vm/"];

/// A text file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TextFile {
    /// Path from the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// A Rust file that was understood.
pub(super) struct Source<'a> {
    pub(super) file: &'a TextFile,
    /// `None` if it is not Rust; the compiler says why.
    pub(super) syntax: Option<syn::File>,
    /// Whether all of it is compiled for tests only.
    pub(super) test_only: bool,
}

/// All text files, in order of their paths.
pub(super) struct Tree {
    files: Vec<TextFile>,
}

impl Tree {
    /// Reads everything below `root` that is written by people.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        walk(root, "", &mut files).map_err(|error| format!("cannot read {}: {error}", root.display()))?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| TextFile { path: path.to_owned(), text: text.to_owned() };
        Self { files: files.iter().map(file).collect() }
    }

    pub(super) fn files(&self) -> &[TextFile] {
        &self.files
    }

    /// The content of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// The Rust files.
    pub(super) fn sources(&self) -> Vec<Source<'_>> {
        let rust: Vec<(&TextFile, Option<syn::File>)> = self
            .files
            .iter()
            .filter(|file| has_ending(&file.path, &["rs"]))
            .map(|file| (file, syn::parse_file(&file.text).ok()))
            .collect();
        let test_modules: Vec<String> =
            rust.iter().flat_map(|(file, syntax)| test_modules(&file.path, syntax.as_ref())).collect();
        rust.into_iter()
            .map(|(file, syntax)| {
                let declared = test_modules.iter().any(|stem| is_module(&file.path, stem));
                let test_only = declared || in_test_folder(&file.path);
                Source { file, syntax, test_only }
            })
            .collect()
    }
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !MADE.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && is_text(&path) {
            files.push(TextFile { text: fs::read_to_string(entry.path())?, path });
        }
    }
    Ok(())
}

fn has_ending(path: &str, endings: &[&str]) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending))
}

fn is_text(path: &str) -> bool {
    has_ending(path, &TEXTS)
        || path == "Makefile"
        || SCRIPT_FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !path.rsplit('/').any(|name| name.contains('.') && !name.starts_with('.'))
}

/// `tests.rs`, or anything below a folder `tests` or `examples`: what is not part of the product.
fn in_test_folder(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.starts_with("tests/")
        || path.contains("/examples/")
}

/// Paths without ending of the modules that `#[cfg(test)] mod name;` in the file at `path` declares.
fn test_modules(path: &str, syntax: Option<&syn::File>) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let folder = match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder.to_owned(),
        _ => stem.to_owned(),
    };
    let items = syntax.map(|syntax| syntax.items.as_slice()).unwrap_or_default();
    let declared = items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_for_tests(&module.attrs) => {
            Some(format!("{folder}/{}", module.ident))
        }
        _ => None,
    });
    declared.collect()
}

/// Whether an item with these attributes is compiled for tests only.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let named_test = path.segments.last().is_some_and(|segment| segment.ident == "test");
        let configured = path.is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"));
        named_test || configured
    })
}

fn is_module(path: &str, stem: &str) -> bool {
    path.strip_prefix(stem).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_declared_for_tests_are_test_code() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "#[cfg(test)]\nmod fixture;\nmod real;"),
            ("a/src/fixture.rs", ""),
            ("a/src/fixture/more.rs", ""),
            ("a/src/fixtures.rs", ""),
            ("a/src/real.rs", ""),
            ("a/src/real/tests.rs", ""),
            ("a/tests/whole.rs", ""),
            ("a/examples/shown.rs", ""),
        ]);
        let test_only: Vec<bool> = tree.sources().iter().map(|source| source.test_only).collect();
        assert_eq!(test_only, [false, true, true, false, false, true, true, true]);
    }

    #[test]
    fn what_is_made_is_not_read() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for path in
            ["target/x.rs", "a/x.rs", "a/corpus/x.rs", "scripts/run", "scripts/out.json", "picture.svg"]
        {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
            fs::write(path, "").expect("write");
        }
        let tree = Tree::read(folder.path()).expect("read");
        let paths: Vec<&str> = tree.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/x.rs", "scripts/run"]);
    }
}
