//! Comments are sentences in the words of the field: none is a label alone, and the words of a dialect become fewer.

use super::finding::Finding;
use super::invariants::is_label;
use super::tree::{Source, TextFile};

/// Words that say less than the field's own: for *lies* "is at" or "is backed by", for *counts* "is valid", for *told* "reported", for
/// *nobody* whoever it is. How often each stands in comments and pages; the numbers are to fall.
const DIALECT: [(&str, usize); 4] = [("lies", 57), ("counts", 121), ("told", 16), ("nobody", 8)];
/// By so much a number may be too high, so that not every change has to touch it.
const SLACK: usize = 20;

/// A finding for each comment of the product that is a label alone.
pub(super) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.test_only) {
        let lines: Vec<Option<&str>> = source.file.text.lines().map(comment).collect();
        for (index, line) in lines.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| lines[before]);
            let after = lines.get(index + 1).copied().flatten();
            if line.is_some_and(is_label_alone) && before.is_none() && after.is_none() {
                let message = "a comment is a sentence, with the label behind it".to_owned();
                let (path, line) = (source.file.path.clone(), index + 1);
                findings.push(Finding { path, line, rule: "prose", message });
            }
        }
    }
    findings
}

/// A finding for each word of the dialect that stands more often than it did, or much less often; and what was counted.
pub(super) fn check_dialect(sources: &[Source<'_>], files: &[TextFile]) -> (Vec<Finding>, String) {
    let product = sources.iter().filter(|source| !source.test_only);
    let comments = product.flat_map(|source| source.file.text.lines().filter_map(comment));
    let pages = files.iter().filter(|file| file.path.ends_with(".md") && !is_history(&file.path));
    let lines: Vec<&str> = comments.chain(pages.flat_map(|page| page.text.lines())).collect();
    let mut findings = Vec::new();
    let mut report = Vec::new();
    for (word, most) in DIALECT {
        let count: usize = lines.iter().map(|line| words(line).filter(|found| *found == word).count()).sum();
        report.push(format!("{word} {count}"));
        let message = if count > most {
            format!(
                "`{word}` stands {count} times in comments and pages, at most {most}: what is the field's word?"
            )
        } else if count + SLACK < most {
            format!("`{word}` stands {count} times in comments and pages, and its list says {most}: lower it")
        } else {
            continue;
        };
        findings.push(Finding {
            path: "xtask/src/tidy/prose.rs".to_owned(),
            line: 1,
            rule: "prose",
            message,
        });
    }
    (findings, format!("tidy: words of the dialect: {}", report.join(", ")))
}

/// What was written once and is not changed.
fn is_history(path: &str) -> bool {
    path == "CHANGELOG.md" || path.starts_with("docs/decisions/")
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// One label or several, with where they are from: `ONE1, TWO2 and THREE3 of `file.rs`.`
fn is_label_alone(text: &str) -> bool {
    let text = text.trim_end_matches('.');
    let labels = match text.split_once(" of `") {
        Some((labels, file)) if file.find('`') == Some(file.len() - 1) => labels,
        Some(_) => return false,
        None => text,
    };
    !labels.is_empty()
        && labels.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and").all(is_label)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("crates/c/src/lib.rs", text)]).sources()).iter().map(|found| found.line).collect()
    }

    #[test]
    fn a_comment_that_is_a_label_alone_is_found() {
        assert_eq!(
            lines("/// ONE1.\nfn one() {}\n// ONE1, TWO2 and THREE3 of `x/y.rs`.\nfn two() {}\n"),
            [1, 3]
        );
        assert_eq!(
            lines("/// Says why (ONE1).\nfn one() {}\n/// It is so:\n/// ONE1.\nfn two() {} // ONE1\n"),
            Vec::<usize>::new()
        );
    }

    #[test]
    fn words_of_the_dialect_are_counted_in_comments_and_pages() {
        let word = DIALECT[0].0;
        let text = format!("/// It {word} here, and {word}.\nfn {word}() {{}}\n");
        let tree = Tree::of(&[("crates/c/src/lib.rs", &text), ("docs/a.md", word), ("CHANGELOG.md", word)]);
        let (_, report) = check_dialect(&tree.sources(), tree.files());
        assert!(report.contains(&format!("{word} 3,")), "{report}");
    }
}
