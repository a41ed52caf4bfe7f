//! Invariants are numbered at the head of a file, and something cites each number.

use super::Finding;
use super::tree::Source;

/// Checks that every invariant which a file's head numbers is cited in that file, or in one below or beside it.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let declared = declared(&source.file.text);
        let neighbours = neighbourhood(&source.file.path);
        let near: Vec<&str> = sources
            .iter()
            .filter(|other| other.file.path.starts_with(neighbours))
            .map(|other| other.file.text.as_str())
            .collect();
        for (line, name) in declared {
            if !near.iter().any(|text| is_cited(text, name)) {
                let message = format!("no assert, test or comment cites {name}");
                let path = source.file.path.clone();
                findings.push(Finding { path, line, rule: "invariant", message });
            }
        }
    }
    findings
}

/// The numbers in the head of a file, with their lines: `//! - B1. …` or `//! Invariant B1: …`.
fn declared(text: &str) -> Vec<(usize, &str)> {
    let head = (1..).zip(text.lines()).take_while(|(_, line)| line.starts_with("//!"));
    head.filter_map(|(number, line)| {
        let listed = line.strip_prefix("//! - ").and_then(|rest| rest.split_once('.'));
        let single = line.strip_prefix("//! Invariant ").and_then(|rest| rest.split_once([':', ' ']));
        let (name, _) = listed.or(single)?;
        is_number(name).then_some((number, name))
    })
    .collect()
}

/// One to three capitals and one or two digits.
fn is_number(name: &str) -> bool {
    let digits = name.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    let letters = name.len() - digits.len();
    (1..=3).contains(&letters)
        && (1..=2).contains(&digits.len())
        && digits.chars().all(|digit| digit.is_ascii_digit())
}

/// The folder in which a file's invariants may be cited: its own, with all below.
fn neighbourhood(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

/// Whether the number stands anywhere but in a numbered list.
fn is_cited(text: &str, name: &str) -> bool {
    let borders =
        |character: Option<char>| !character.is_some_and(|it| it.is_ascii_alphanumeric() || it == '_');
    text.lines().filter(|line| declared(line).iter().all(|(_, declared)| *declared != name)).any(|line| {
        line.match_indices(name).any(|(at, _)| {
            borders(line[..at].chars().next_back()) && borders(line[at + name.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn an_invariant_that_nothing_cites_is_found() {
        let head = "//! Knows.\n//!\n//! - A1. One holds.\n//! - A2. Two holds.\n//! - A3. Three.\n";
        let tree = Tree::of(&[
            ("a/one.rs", &format!("{head}// A1\nfn a() {{}} // A12 is another\n")),
            ("a/one/tests.rs", "//! Tests.\nconst X: &str = \"A3: holds\";\n"),
            ("b/one.rs", "//! A2 is cited too far away.\n"),
        ]);
        let findings = check(&tree.sources());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].line, findings[0].rule), (4, "invariant"));
    }

    #[test]
    fn numbers_are_told_from_words() {
        assert_eq!(
            declared("//! - B1. x\n//! Invariant W1: y\n//! - Note. z\n//! - NBD2. w\n"),
            [(1, "B1"), (2, "W1"), (4, "NBD2")]
        );
        assert_eq!(declared("use a;\n//! - B1. x\n"), []);
    }
}
