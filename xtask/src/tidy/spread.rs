//! In how many files the methods of a type stand: where any file may touch any field, nobody owns them.

use super::finding::Finding;
use super::imports;
use super::tree::Source;

/// Files in which the methods of a type may stand.
const FILES_MAX: usize = 6;

/// Types whose methods stand in more files, by the files that define them, and in how many. The list is to shrink.
const MEASURED: [(&str, &str, usize); 8] = [
    ("crates/varve-control/src/group/known_group.rs", "KnownGroup", 9),
    ("crates/varve-control/src/lib.rs", "Control", 62),
    ("crates/varve-target/src/array/mod.rs", "Array", 15),
    ("crates/varve-target/src/delegate/state.rs", "State", 8),
    ("crates/varve-target/src/qcow2/mod.rs", "Image", 14),
    ("crates/varve-target/src/snapshot/mod.rs", "SnapshotStore", 17),
    ("crates/varve-target/src/thin/mod.rs", "Pool", 21),
    ("crates/varve-vg/src/plan.rs", "Draft", 15),
];

/// A finding for each type whose methods stand in too many files, and for each whose exception is larger than it needs.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let crates = imports::crates(sources);
    let mut findings = Vec::new();
    let mut found = |path: &str, message| {
        findings.push(Finding { path: path.to_owned(), line: 1, rule: "spread", message });
    };
    for one in crates.values() {
        for ((own, name), files) in one.files_of_methods() {
            let measured = MEASURED.iter().find(|(file, known, _)| (*file, *known) == (own, name));
            let (count, files_max) = (files.len(), measured.map_or(FILES_MAX, |(.., files)| *files));
            let stand = format!("methods of {name} stand in {count} files");
            if count > files_max {
                found(own, format!("{stand}, at most {files_max}: what holds some of its fields?"));
            } else if measured.is_some() && count < files_max {
                found(own, format!("{stand}, and the list of `spread` says {files_max}: lower it"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const OWN: &str = "crates/c/src/lib.rs";

    /// Findings of a crate in which the methods of the type that `own` defines, its root, stand in so many files.
    fn found(own: &str, name: &str, count: usize) -> Vec<String> {
        let folder = own.trim_end_matches("lib.rs");
        let path = |number: usize| format!("{folder}f{number}.rs");
        let modules: String = (1..count).map(|number| format!("mod f{number}; ")).collect();
        let mut files = vec![(own.to_owned(), format!("{modules} pub struct {name}; impl {name} {{}}"))];
        files.extend((1..count).map(|number| {
            (path(number), format!("use super::{name} as It; impl It {{}} impl Clone for It {{}}"))
        }));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let findings = check(&Tree::of(&files).sources());
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_type_whose_methods_stand_in_too_many_files_is_found() {
        assert_eq!(found(OWN, "Wide", FILES_MAX), Vec::<String>::new());
        let told = found(OWN, "Wide", FILES_MAX + 1);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("methods of Wide stand in 7 files"), "{told:?}");
    }

    #[test]
    fn what_was_measured_may_stay_and_not_grow() {
        let (own, name, files) = *MEASURED.iter().find(|one| one.0.ends_with("lib.rs")).expect("one of them");
        assert_eq!(found(own, name, files), Vec::<String>::new());
        assert_eq!(found(own, name, files + 1).len(), 1);
        assert_eq!(found(OWN, name, files).len(), 1, "it is another one");
        let told = found(own, name, files - 1);
        assert!(told.len() == 1 && told[0].ends_with("lower it"), "what was won is not lost again: {told:?}");
    }
}
