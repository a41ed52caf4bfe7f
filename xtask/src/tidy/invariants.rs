//! Invariants are numbered at the head of a file. Each has a label of its own in the workspace, and an assertion or a test
//! cites it.

use super::finding::Finding;
use super::tree::{Source, is_for_tests};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Checks that no label is defined twice, and that what runs cites each: the message of an assertion, the error that refuses
/// what was read, or a test.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut cited = Cited::default();
    sources.iter().for_each(|source| cited.read(source));
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for source in sources {
        for (line, name) in declared(&source.file.text) {
            let path = source.file.path.clone();
            let mut found =
                |message| findings.push(Finding { path: path.clone(), line, rule: "invariant", message });
            if let Some(other) = known.insert(name, &source.file.path) {
                found(format!("{name} is defined in {other}, too"));
            }
            if !cited.labels.contains(name) {
                found(format!("no assertion and no test cites {name}"));
            }
        }
    }
    findings
}

/// The numbers in the head of a file, with their lines: `//! - B1. …` or `//! Invariant B1: …`.
fn declared(text: &str) -> Vec<(usize, &str)> {
    let head = (1..).zip(text.lines()).take_while(|(_, line)| line.starts_with("//!"));
    head.filter_map(|(number, line)| Some((number, declared_in(line)?))).collect()
}

fn declared_in(line: &str) -> Option<&str> {
    let listed = line.strip_prefix("//! - ").and_then(|rest| rest.split_once('.'));
    let single = line.strip_prefix("//! Invariant ").and_then(|rest| rest.split_once([':', ' ']));
    let (name, _) = listed.or(single)?;
    is_label(name).then_some(name)
}

/// One to ten capitals and one or two digits.
pub(super) fn is_label(name: &str) -> bool {
    let digits = name.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    let letters = name.len() - digits.len();
    (1..=10).contains(&letters)
        && (1..=2).contains(&digits.len())
        && digits.chars().all(|digit| digit.is_ascii_digit())
}

/// The labels in `text`, but for those that a line defines.
fn labels(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let own = declared_in(line);
        let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(move |word| is_label(word) && Some(*word) != own)
    })
}

/// The labels that something cites which runs.
#[derive(Default)]
struct Cited {
    labels: BTreeSet<String>,
    /// The file that is being read.
    lines: Vec<String>,
}

impl Cited {
    fn read(&mut self, source: &Source<'_>) {
        if source.test_only {
            self.note(&source.file.text);
        } else if let Some(syntax) = &source.syntax {
            self.lines = source.file.text.lines().map(str::to_owned).collect();
            self.visit_file(syntax);
        }
    }

    fn note(&mut self, text: &str) {
        self.labels.extend(labels(text).map(str::to_owned));
    }

    fn note_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.note_strings(group.stream()),
                TokenTree::Literal(literal) => self.note(&literal.to_string()),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Cited {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_for_tests(&module.attrs) {
            let span = module.span();
            let text = self.lines[span.start().line - 1..span.end().line].join("\n");
            self.note(&text);
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.note(&literal.value());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.note_strings(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let findings = check(&Tree::of(files).sources());
        findings.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn an_invariant_that_neither_an_assertion_nor_a_test_cites_is_found() {
        let head = "//! Knows.\n//!\n//! - A1. One.\n//! - A2. Two.\n//! - A3. Three.\n//! - A4. Four.\n//! - A5. Five.\n";
        let code =
            "/// A2 and A5.\nfn a() { assert!(true, \"A1\"); b.expect(\"A3: it is there\"); } // A2, A12\n";
        let tests = "#[cfg(test)]\nmod tests {\n    // A4\n}\n";
        let told =
            found(&[("a/one.rs", &format!("{head}{code}{tests}")), ("b/tests/x.rs", "//! A5 here.\n")]);
        assert_eq!(told, [(4, "no assertion and no test cites A2".to_owned())]);
    }

    #[test]
    fn a_label_that_two_files_define_is_found() {
        let one = "//! Knows.\n//!\n//! Invariant LANE1: one holds.\nfn a() { assert!(true, \"LANE1\"); }\n";
        let told = found(&[("a/one.rs", one), ("b/two.rs", one)]);
        assert_eq!(told, [(3, "LANE1 is defined in a/one.rs, too".to_owned())]);
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
