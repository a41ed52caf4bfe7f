//! How many fields a type has: one with many is several, and any of its methods may touch all of them.

use super::finding::Finding;
use super::tree::{Source, is_for_tests};
use syn::visit::{self, Visit};

/// Fields that a type may have. What is only read or written as a whole (requests, answers, options of the command line) may have
/// more: see [`is_record`].
const FIELDS_MAX: usize = 12;

/// Types with more, by the files that define them, and how many. The list is to shrink.
const MEASURED: [(&str, &str, usize); 18] = [
    ("crates/varve-control/src/lib.rs", "Control", 16),
    ("crates/varve-daemon/src/config.rs", "Config", 14),
    ("crates/varve-export/src/nbd/connection.rs", "Connection", 23),
    ("crates/varve-export/src/nbd/receive_buffer.rs", "ReceiveBuffer", 14),
    ("crates/varve-os/src/disks/disk_file.rs", "DiskFile", 26),
    ("crates/varve-sim/src/disk/fault.rs", "FaultPlan", 13),
    ("crates/varve-sim/src/world/shared.rs", "Core", 20),
    ("crates/varve-target/src/array/mod.rs", "Array", 25),
    ("crates/varve-target/src/array/status.rs", "ArrayStatus", 14),
    ("crates/varve-target/src/delegate/state.rs", "State", 27),
    ("crates/varve-target/src/pdata/pages.rs", "Pages", 13),
    ("crates/varve-target/src/pdata/space.rs", "Space", 26),
    ("crates/varve-target/src/qcow2/mod.rs", "Image", 26),
    ("crates/varve-target/src/snapshot/mod.rs", "SnapshotStore", 25),
    ("crates/varve-target/src/thin/mod.rs", "Pool", 20),
    ("crates/varve-target/src/thin/lifecycle/volume.rs", "Volume", 17),
    ("crates/varve-volume/src/opened/growth.rs", "Growth", 13),
    ("crates/varve-volume/src/opened/open_pool.rs", "PoolFacts", 16),
];
/// Derived traits of a type whose fields are a format: how many there are is for who reads it to say.
const RECORDS: [&str; 4] = ["Serialize", "Deserialize", "Args", "Parser"];
/// Where all types are such formats.
const FORMATS: &str = "crates/varve-format/";

/// A finding for each type with too many fields, and for each whose exception is larger than it needs.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.test_only && !source.file.path.starts_with(FORMATS))
    {
        let Some(syntax) = &source.syntax else { continue };
        let mut reader = Reader { path: &source.file.path, findings: &mut findings };
        reader.visit_file(syntax);
    }
    findings
}

struct Reader<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let (name, count) = (item.ident.to_string(), item.fields.len());
        let measured = MEASURED.iter().find(|(file, known, _)| (*file, *known) == (self.path, &name));
        let fields_max = measured.map_or(FIELDS_MAX, |(.., fields)| *fields);
        let message = if count > fields_max && !is_record(&item.attrs) && !is_for_tests(&item.attrs) {
            format!("{name} has {count} fields, at most {fields_max}: which of them belong together?")
        } else if measured.is_some() && count < fields_max {
            format!("{name} has {count} fields, and the list of `fields` says {fields_max}: lower it")
        } else {
            return;
        };
        let line = item.ident.span().start().line;
        self.findings.push(Finding { path: self.path.to_owned(), line, rule: "fields", message });
    }
}

/// Whether one of [`RECORDS`] is derived.
fn is_record(attributes: &[syn::Attribute]) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    let mut found = false;
    for derive in derives {
        let _ = derive.parse_nested_meta(|derived| {
            found |= derived
                .path
                .segments
                .last()
                .is_some_and(|last| RECORDS.iter().any(|name| last.ident == name));
            Ok(())
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn found(path: &str, head: &str, name: &str, count: usize) -> Vec<String> {
        let fields: String = (0..count).map(|number| format!("f{number}: u8, ")).collect();
        let text = format!("{head} struct {name} {{ {fields} }}");
        let findings = check(&Tree::of(&[(path, &text)]).sources());
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_type_with_too_many_fields_is_found_and_what_is_a_format_is_not() {
        let path = "crates/c/src/lib.rs";
        assert_eq!(found(path, "", "Wide", FIELDS_MAX), Vec::<String>::new());
        let told = found(path, "", "Wide", FIELDS_MAX + 1);
        assert!(told.len() == 1 && told[0].starts_with("Wide has 13 fields, at most 12"), "{told:?}");
        assert_eq!(found(path, "#[derive(Debug, serde::Serialize)]", "Wide", 40), Vec::<String>::new());
        assert_eq!(found("crates/varve-format/src/x.rs", "", "Wide", 40), Vec::<String>::new());
        assert_eq!(found(path, "#[derive(Debug)]", "Wide", 40).len(), 1);
    }

    #[test]
    fn what_was_measured_may_stay_and_not_grow() {
        let (path, name, fields) = MEASURED[0];
        assert_eq!(found(path, "", name, fields), Vec::<String>::new());
        assert_eq!(found(path, "", name, fields + 1).len(), 1);
        assert_eq!(found("crates/c/src/lib.rs", "", name, fields).len(), 1, "it is another one");
        let told = found(path, "", name, fields - 1);
        assert!(told.len() == 1 && told[0].ends_with("lower it"), "{told:?}");
    }
}
