//! Which crate may import which: `ARCHITECTURE.md` has it as data, cargo says what is.

use super::finding::Finding;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names by name.
type Table = BTreeMap<String, BTreeSet<String>>;
const PAGE: &str = "ARCHITECTURE.md";

/// Compares the page's tables with the answer of `cargo metadata`.
pub(super) fn check(page: &str, metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |message: String| {
        findings.push(Finding { path: PAGE.to_owned(), line: 1, rule: "imports", message });
    };
    let (Some(allowed), Some(in_tests), Some(foreign)) =
        (table(page, "imports"), table(page, "imports-in-tests"), table(page, "third-party"))
    else {
        report("a table is missing: imports, imports-in-tests, third-party".to_owned());
        return findings;
    };
    let crates = crates(metadata);
    let ours: BTreeSet<&String> = crates.keys().collect();
    for name in allowed.keys().filter(|name| !ours.contains(name)) {
        report(format!("{name} is in the table and not in the tree"));
    }
    let none = BTreeSet::new();
    for (name, imports) in &crates {
        let Some(may) = allowed.get(name) else {
            report(format!("{name} is not in the table"));
            continue;
        };
        let tests_may = in_tests.get(name).unwrap_or(&none);
        for import in imports.normal.iter().filter(|import| ours.contains(import) && !may.contains(*import)) {
            report(format!("{name} may not import {import}"));
        }
        let beyond = |import: &&String| {
            ours.contains(import) && !may.contains(*import) && !tests_may.contains(*import)
        };
        for import in imports.tests.iter().filter(beyond) {
            report(format!("the tests of {name} may not import {import}"));
        }
        if let Some(listed) = foreign.get(name) {
            let used: BTreeSet<String> =
                imports.normal.iter().filter(|import| !ours.contains(import)).cloned().collect();
            for other in used.symmetric_difference(listed) {
                report(format!(
                    "{name} and {other}: a third-party crate here is a decision record and a line in the table"
                ));
            }
        }
    }
    findings
}

/// The fenced block of this name: lines `crate = name name…`; names of ours lack `varve-` there.
fn table(page: &str, name: &str) -> Option<Table> {
    let fence = format!("```{name}\n");
    let start = page.find(&fence)? + fence.len();
    let text = &page[start..start + page[start..].find("```")?];
    let full = |word: &str| if word == "xtask" { word.to_owned() } else { format!("varve-{word}") };
    let foreign = name == "third-party";
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let row = |(owner, rest): (&str, &str)| {
        let names = rest.split_whitespace().map(|word| if foreign { word.to_owned() } else { full(word) });
        (full(owner.trim()), names.collect())
    };
    Some(lines.map(row).collect())
}

/// What one crate imports.
#[derive(Default)]
struct Imports {
    normal: BTreeSet<String>,
    tests: BTreeSet<String>,
}

fn crates(metadata: &Value) -> BTreeMap<String, Imports> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages
        .iter()
        .map(|package| {
            let mut imports = Imports::default();
            for dependency in package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default() {
                let name = text(&dependency["name"]);
                match dependency["kind"].as_str() {
                    Some("dev") => imports.tests.insert(name),
                    _ => imports.normal.insert(name),
                };
            }
            (text(&package["name"]), imports)
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLES: &str = "\
```imports
block =
format = block
```
```imports-in-tests
format = sim
```
```third-party
format = crc32c serde
```
";

    fn messages(page: &str, metadata: &Value) -> Vec<String> {
        check(page, metadata).into_iter().map(|finding| finding.message).collect()
    }

    fn package(name: &str, normal: &[&str], tests: &[&str]) -> Value {
        let normal = normal.iter().map(|name| json!({"name": name, "kind": null}));
        let tests = tests.iter().map(|name| json!({"name": name, "kind": "dev"}));
        json!({"name": name, "dependencies": normal.chain(tests).collect::<Vec<_>>()})
    }

    #[test]
    fn a_tree_that_follows_the_tables_is_fine() {
        let metadata = json!({"packages": [
            package("varve-block", &["tracing"], &[]),
            package("varve-format", &["varve-block", "crc32c", "serde"], &["varve-block", "proptest"]),
        ]});
        assert_eq!(messages(TABLES, &metadata), Vec::<String>::new());
    }

    #[test]
    fn every_departure_is_told() {
        let metadata = json!({"packages": [
            package("varve-format", &["varve-target", "serde", "rand"], &["varve-sim", "varve-vg"]),
            package("varve-sim", &[], &[]),
            package("varve-target", &[], &[]),
            package("varve-vg", &[], &[]),
        ]});
        let told = messages(TABLES, &metadata).join("\n");
        for expected in [
            "varve-block is in the table and not in the tree",
            "varve-format may not import varve-target",
            "the tests of varve-format may not import varve-vg",
            "varve-format and rand:",
            "varve-format and crc32c:",
            "varve-sim is not in the table",
        ] {
            assert!(told.contains(expected), "{expected}: {told}");
        }
        assert!(!told.contains("varve-format may not import varve-sim"), "{told}");
    }

    #[test]
    fn a_page_without_tables_is_told() {
        assert_eq!(messages("", &json!({})).len(), 1);
    }
}
