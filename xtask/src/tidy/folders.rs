//! How many files lie side by side: a folder of many shows no design.

use super::finding::Finding;
use super::tree::Source;
use std::collections::BTreeMap;

/// Files that a folder may have beside its own folders.
const FILES_MAX: usize = 20;

/// Folders with more, and how many. The list is to shrink.
const MEASURED: [(&str, usize); 3] = [
    ("crates/varve-control/src", 83),
    ("crates/varve-target/src/array", 38),
    ("crates/varve-volume/src", 62),
];

/// A finding for each folder of source files with too many of them, and for each whose exception is larger than it needs.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.file.path.contains("/src/")) {
        if let Some((folder, _)) = source.file.path.rsplit_once('/') {
            *folders.entry(folder).or_default() += 1;
        }
    }
    let findings = folders.into_iter().filter_map(|(folder, files)| {
        let measured = MEASURED.iter().find(|(known, _)| *known == folder);
        let most = measured.map_or(FILES_MAX, |(_, files)| *files);
        let message = if files > most {
            format!("{files} files, at most {most}: which folders are in it?")
        } else if measured.is_some() && files < most {
            format!("{files} files, and the list of `folders` says {most}: lower it, or take it out")
        } else {
            return None;
        };
        Some(Finding { path: folder.to_owned(), line: 1, rule: "folder", message })
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn found(folder: &str, count: usize) -> Vec<String> {
        let paths: Vec<String> = (0..count).map(|number| format!("{folder}/f{number}.rs")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        check(&Tree::of(&files).sources()).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_folder_of_too_many_files_is_found() {
        assert_eq!(found("crates/c/src/one", FILES_MAX), Vec::<String>::new());
        assert_eq!(found("crates/c/src/one", FILES_MAX + 1).len(), 1);
        assert_eq!(found("crates/c/tests", FILES_MAX + 1), Vec::<String>::new());
    }

    #[test]
    fn what_was_measured_may_stay_and_not_grow() {
        let (folder, files) = MEASURED[0];
        assert_eq!(found(folder, files), Vec::<String>::new());
        assert_eq!(found(folder, files + 1).len(), 1);
        assert_eq!(found(folder, files - 1).len(), 1);
    }
}
