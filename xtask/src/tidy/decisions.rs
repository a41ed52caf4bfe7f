//! The decision records: each is listed once, with its title, and a record that replaces another is named by that one.

use super::finding::Finding;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const FOLDER: &str = "docs/decisions/";
const LIST: &str = "docs/decisions/README.md";
/// Where those are listed that are replaced as a whole.
const REPLACED: &str = "Replaced";

/// What the head of a record says.
struct Record<'a> {
    path: &'a str,
    title: &'a str,
    is_replaced: bool,
    replaced_by: BTreeSet<&'a str>,
    replaces: BTreeSet<&'a str>,
}

/// Records by their numbers.
type Records<'a> = BTreeMap<&'a str, Record<'a>>;

/// Compares the records with each other, and with their list.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut records = BTreeMap::new();
    for file in tree.files() {
        let Some(number) = file.path.strip_prefix(FOLDER).and_then(number_at) else { continue };
        if let Some(record) = read(number, &file.path, &file.text) {
            records.insert(number, record);
        } else {
            let message =
                format!("it begins with `# {number}: TITLE` and `Date: DAY. State: …`, as the template does");
            findings.push(finding(&file.path, message));
        }
    }
    check_replacements(&records, &mut findings);
    check_list(&records, tree.text(LIST).unwrap_or_default(), &mut findings);
    findings
}

/// A record says which it replaces, and that one says so, too.
fn check_replacements(records: &Records<'_>, findings: &mut Vec<Finding>) {
    for (number, record) in records {
        for other in &record.replaces {
            if records.get(other).is_none_or(|other| !other.replaced_by.contains(number)) {
                let message = format!("it replaces {other}, which does not say `replaced by {number}`");
                findings.push(finding(record.path, message));
            }
        }
        for other in &record.replaced_by {
            if records.get(other).is_none_or(|other| !other.replaces.contains(number)) {
                let message = format!("{other} replaces it, and does not say `Replaces {number}`");
                findings.push(finding(record.path, message));
            }
        }
    }
}

fn check_list(records: &Records<'_>, list: &str, findings: &mut Vec<Finding>) {
    let mut listed: Vec<(&str, &str, &str)> = Vec::new();
    let mut section = "";
    for line in list.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        if let Some(number) = line.strip_prefix("- [").and_then(number_at) {
            listed.push((number, section, line));
        }
    }
    for (number, record) in records {
        let wanted = format!("- [{number}]({}): {}", &record.path[FOLDER.len()..], record.title);
        let is_right =
            |section: &str, line: &str| line == wanted && (section == REPLACED) == record.is_replaced;
        let lines: Vec<_> = listed.iter().filter(|(other, ..)| other == number).collect();
        if !matches!(lines.as_slice(), [(_, section, line)] if is_right(section, line)) {
            let below = if record.is_replaced { REPLACED } else { "its subject" };
            findings.push(finding(LIST, format!("once, below {below}: {wanted}")));
        }
    }
    for (number, ..) in listed.iter().filter(|(number, ..)| !records.contains_key(number)) {
        findings.push(finding(LIST, format!("there is no record {number}")));
    }
}

fn finding(path: &str, message: String) -> Finding {
    Finding { path: path.to_owned(), line: 1, rule: "decision", message }
}

/// The four digits that `text` begins with.
fn number_at(text: &str) -> Option<&str> {
    let number = text.get(..4)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

fn read<'a>(number: &str, path: &'a str, text: &'a str) -> Option<Record<'a>> {
    let mut lines = text.lines();
    let title = lines.next()?.strip_prefix("# ")?.strip_prefix(number)?.strip_prefix(": ")?;
    let (_, state) = lines.nth(1)?.strip_prefix("Date: ")?.split_once(" State: ")?;
    let is_replaced = state.starts_with("replaced by ");
    if !is_replaced && !state.starts_with("accepted") {
        return None;
    }
    Some(Record {
        path,
        title,
        is_replaced,
        replaced_by: numbers_after(state, "replaced by "),
        replaces: numbers_after(state, "Replaces "),
    })
}

/// The numbers of records in the sentence that `word` begins or ends.
fn numbers_after<'a>(text: &'a str, word: &str) -> BTreeSet<&'a str> {
    let Some((_, rest)) = text.split_once(word) else { return BTreeSet::new() };
    let sentence = rest.split(". ").next().unwrap_or(rest);
    sentence.split_whitespace().filter_map(number_at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# 0001: Old\n\nDate: 2026-01-01. State: replaced by 0002.\n";
    const NEW: &str = "# 0002: New\n\nDate: 2026-01-02. State: accepted. Replaces 0001. Adds to 0003.\n";
    const LISTED: &str = "## Laws\n- [0002](0002-new.md): New\n## Replaced\n- [0001](0001-old.md): Old\n";

    fn messages(old: &str, new: &str, list: &str) -> Vec<String> {
        let path = |name: &str| format!("{FOLDER}{name}");
        let tree = Tree::of(&[
            (path("0001-old.md").as_str(), old),
            (path("0002-new.md").as_str(), new),
            (path("README.md").as_str(), list),
        ]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn records_that_agree_with_each_other_and_their_list_are_fine() {
        assert_eq!(messages(OLD, NEW, LISTED), Vec::<String>::new());
        let part = OLD.replace("replaced by", "accepted; in part replaced by");
        let list = "## Laws\n- [0001](0001-old.md): Old\n- [0002](0002-new.md): New\n";
        assert_eq!(messages(&part, &NEW.replace("0001.", "the end of 0001."), list), Vec::<String>::new());
    }

    #[test]
    fn a_replacement_is_said_by_both() {
        let told = messages(&OLD.replace("replaced by 0002", "accepted"), NEW, LISTED);
        assert!(told.iter().any(|line| line.contains("it replaces 0001, which does not say")), "{told:?}");
        let told = messages(OLD, &NEW.replace("Replaces 0001. ", ""), LISTED);
        assert_eq!(told, ["0002 replaces it, and does not say `Replaces 0001`"]);
    }

    #[test]
    fn a_list_that_lacks_a_record_or_has_one_that_is_not_there_is_told() {
        for (wrong, right) in [
            (LISTED.replace("): New", "): Newer"), "- [0002](0002-new.md): New"),
            (LISTED.replace("## Replaced\n", ""), "once, below Replaced: - [0001](0001-old.md): Old"),
            (format!("{LISTED}- [0003](0003-none.md): None\n"), "there is no record 0003"),
            (format!("{LISTED}- [0001](0001-old.md): Old\n"), "[0001]"),
        ] {
            let told = messages(OLD, NEW, &wrong);
            assert!(told.len() == 1 && told[0].contains(right), "{told:?}");
        }
        assert_eq!(
            messages("# Old\n", NEW, LISTED).len(),
            3,
            "no head; what is listed and replaced is missing"
        );
    }
}
