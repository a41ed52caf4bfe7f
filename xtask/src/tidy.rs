//! The rules of the house, each a check: what no machine checks is no rule.
//!
//! What a source file must look like is a pure function of its text ([`source::check`]); which crate may import
//! which stands in `ARCHITECTURE.md` as data and is compared with what cargo says ([`matrix::check`]).

mod decisions;
mod density;
mod fields;
mod finding;
mod folders;
mod imports;
mod invariants;
mod matrix;
mod prose;
mod source;
mod spread;
mod text;
mod tree;

use finding::Finding;
use std::path::Path;
pub(crate) use tree::is_for_tests;

/// Checks the tree and prints what it found.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let (findings, counted) = check(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    for line in &counted {
        println!("{line}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} findings")),
    }
}

/// All findings in order, and lines that report what was counted.
fn check(root: &Path) -> Result<(Vec<Finding>, Vec<String>), String> {
    let tree = tree::Tree::read(root)?;
    let mut findings = Vec::new();
    for file in tree.files() {
        findings.extend(text::check(file));
    }
    let sources = tree.sources();
    for source in &sources {
        findings.extend(source::check(source));
    }
    findings.extend(source::check_fences(&sources));
    findings.extend(invariants::check(&sources));
    findings.extend(imports::check(&sources));
    findings.extend(decisions::check(&tree));
    findings.extend(prose::check(&sources));
    findings.extend(spread::check(&sources));
    findings.extend(folders::check(&sources));
    findings.extend(fields::check(&sources));
    let architecture = tree.text("ARCHITECTURE.md").ok_or("there is no ARCHITECTURE.md")?;
    let metadata = crate::cargo::metadata(root, &["--no-deps", "--offline"])?;
    findings.extend(matrix::check(architecture, &metadata));
    let (thin, report) = density::check(&sources);
    findings.extend(thin);
    let (dialect, words) = prose::check_dialect(&sources, tree.files());
    findings.extend(dialect);
    findings.sort();
    let lines: usize = sources.iter().map(|source| source.file.text.lines().count()).sum();
    let mut counted = vec![format!("tidy: {} source files, {lines} lines", sources.len())];
    counted.extend(report);
    counted.push(words);
    Ok((findings, counted))
}

/// Path and text of every Rust file that is part of the product.
pub(crate) fn product_files(root: &Path) -> Result<Vec<(String, String)>, String> {
    let tree = tree::Tree::read(root)?;
    let product = tree.sources().into_iter().filter(|source| !source.test_only);
    Ok(product.map(|source| (source.file.path.clone(), source.file.text.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let (findings, _) = check(&crate::cargo::root()).expect("the tree can be read");
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{}", told.join("\n"));
    }
}
