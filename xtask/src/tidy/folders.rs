//! How many files lie side by side: a folder of many shows no design.

use super::finding::Finding;
use super::tree::Source;
use std::collections::BTreeMap;

/// Files that a folder may have beside its own folders.
const FILES_MAX: usize = 20;

/// A finding for each folder of source files with too many of them.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.file.path.contains("/src/")) {
        if let Some((folder, _)) = source.file.path.rsplit_once('/') {
            *folders.entry(folder).or_default() += 1;
        }
    }
    let findings = folders.into_iter().filter(|(_, files)| *files > FILES_MAX).map(|(folder, files)| {
        let message = format!("{files} files, at most {FILES_MAX}: which folders are in it?");
        Finding { path: folder.to_owned(), line: 1, rule: "folder", message }
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
}
