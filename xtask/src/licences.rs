//! Licences and origins of every dependency, compared with what `deny.toml` allows.
//!
//! `cargo deny` does the same and more, and runs in `make lint` where it is installed; this runs everywhere, from
//! the same file. `docs/decisions/0004-licences.md` says why both.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What `deny.toml` allows.
struct Policy {
    licences: BTreeSet<String>,
    sources: BTreeSet<String>,
}

/// Checks everything that the lock file names.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let (breaches, report) = check(root)?;
    println!("{report}");
    breaches.iter().for_each(|breach| println!("{breach}"));
    if breaches.is_empty() { Ok(()) } else { Err(format!("licences: {} breaches", breaches.len())) }
}

fn check(root: &Path) -> Result<(Vec<String>, String), String> {
    let text =
        std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let policy = Policy::parse(&text)?;
    let metadata = crate::cargo::metadata(root, &["--locked"])?;
    Ok(judge(&policy, &metadata))
}

impl Policy {
    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
        let strings = |section: &str, key: &str| -> Result<BTreeSet<String>, String> {
            let values =
                table.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
            let values = values.ok_or_else(|| format!("deny.toml: {section}.{key} is missing"))?;
            Ok(values.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
        };
        Ok(Self { licences: strings("licenses", "allow")?, sources: strings("sources", "allow-registry")? })
    }

    fn allows_source(&self, source: &str) -> bool {
        source.strip_prefix("registry+").is_some_and(|registry| self.sources.contains(registry))
    }
}

/// Breaches, and a line that says what was looked at.
fn judge(policy: &Policy, metadata: &Value) -> (Vec<String>, String) {
    let mut breaches = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        versions.entry(name).or_default().insert(package["version"].as_str().unwrap_or_default());
        match package["license"].as_str() {
            Some(licence) if is_allowed(licence, &policy.licences) => {}
            Some(licence) => breaches.push(format!("{name}: licence {licence} is not allowed")),
            None => breaches.push(format!("{name}: no licence is named")),
        }
        if let Some(source) = package["source"].as_str()
            && !policy.allows_source(source)
        {
            breaches.push(format!("{name}: comes from {source}"));
        }
    }
    let twice: Vec<&str> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| *name).collect();
    let report = format!("licences: {} packages; in several versions: {}", packages.len(), twice.join(" "));
    (breaches, report)
}

/// Evaluates an SPDX expression; `/` is the old form of `OR`. `AND` binds closer than `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    either(&mut words, allowed) && words.is_empty()
}

fn either(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> bool {
    let mut fine = both(words, allowed);
    while words.last() == Some(&"OR") {
        words.pop();
        fine |= both(words, allowed);
    }
    fine
}

fn both(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> bool {
    let mut fine = one(words, allowed);
    while words.last() == Some(&"AND") {
        words.pop();
        fine &= one(words, allowed);
    }
    fine
}

fn one(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.pop() else { return false };
    if word == "(" {
        let fine = either(words, allowed);
        return words.pop() == Some(")") && fine;
    }
    if words.last() != Some(&"WITH") {
        return allowed.contains(word);
    }
    words.pop();
    let exception = words.pop().unwrap_or_default();
    allowed.contains(&format!("{word} WITH {exception}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into()
    }

    #[test]
    fn expressions_are_understood() {
        for fine in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND MIT OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(fine, &allowed()), "{fine}");
        }
        for wrong in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "", "MIT WITH Classpath", "MIT OR"] {
            let expected = wrong == "MIT OR";
            assert_eq!(is_allowed(wrong, &allowed()), expected, "{wrong}");
        }
    }

    #[test]
    fn foreign_licences_and_origins_are_told() {
        let policy =
            Policy::parse("[licenses]\nallow = ['MIT']\n[sources]\nallow-registry = ['https://r']\n")
                .expect("a policy");
        let package = |name: &str, licence: Option<&str>, source: Option<&str>| json!({"name": name, "version": "1.0.0", "license": licence, "source": source});
        let metadata = json!({"packages": [
            package("fine", Some("MIT"), Some("registry+https://r")),
            package("ours", Some("MIT"), None),
            package("gpl", Some("GPL-3.0"), Some("registry+https://r")),
            package("mute", None, Some("registry+https://r")),
            package("far", Some("MIT"), Some("git+https://elsewhere")),
        ]});
        let (breaches, report) = judge(&policy, &metadata);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(report.starts_with("licences: 5 packages"), "{report}");
        assert!(Policy::parse("[licenses]\nallow = []\n").is_err());
    }

    #[test]
    fn our_dependencies_are_allowed() {
        let (breaches, _) = check(&crate::cargo::root()).expect("the tree can be read");
        assert_eq!(breaches, Vec::<String>::new());
    }
}
