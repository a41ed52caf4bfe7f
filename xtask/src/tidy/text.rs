//! Rules for every text file, whatever its language.

use super::finding::Finding;
use super::tree::TextFile;

/// Folders of people; a path into one works on one machine only. Written in two parts, or this file would be found.
const HOMES: [&str; 3] = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
/// Work that was put off belongs into the list of issues.
const PUT_OFF: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
/// A script stops at what it did not foresee; one that counts failures takes its strictness from the library.
const STRICT: [&str; 2] = ["set -euo pipefail", ". \"$(dirname \"$0\")/lib.sh\""];
/// Characters after which a path begins.
const BEFORE_A_PATH: &str = " \t\"'`(=<[,:";

/// Checks one file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line: usize, rule, message: String| {
        findings.push(Finding { path: file.path.clone(), line, rule, message });
    };
    for (number, line) in (1..).zip(file.text.split('\n')) {
        if let Some(home) = HOMES.iter().find(|home| begins_a_path(line, home)) {
            report(number, "home-path", format!("a path below {home} works on one machine only"));
        }
        if let Some(word) = PUT_OFF.iter().find(|word| contains_word(line, word)) {
            report(number, "put-off", format!("{word}: do it now, or open an issue"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            report(number, "line-end", "blanks at the end of the line".to_owned());
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        report(file.text.lines().count(), "line-end", "the last line has no end".to_owned());
    }
    if file.text.starts_with("#!") {
        check_script(&file.text, &mut report);
    }
    findings
}

fn check_script(text: &str, report: &mut impl FnMut(usize, &'static str, String)) {
    if !text.starts_with("#!/usr/bin/env bash\n") {
        report(1, "script", "scripts start with #!/usr/bin/env bash".to_owned());
    } else if !text.lines().any(|line| STRICT.contains(&line)) {
        report(1, "script", format!("scripts say: {}", STRICT[0]));
    }
}

fn begins_a_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| match line[..at].chars().next_back() {
        None => true,
        Some(before) => BEFORE_A_PATH.contains(before),
    })
}

fn contains_word(line: &str, word: &str) -> bool {
    let borders = |character: Option<char>| !character.is_some_and(|it| it.is_alphanumeric() || it == '_');
    line.match_indices(word).any(|(at, _)| {
        borders(line[..at].chars().next_back()) && borders(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn paths_into_homes_are_found_and_names_like_them_are_not() {
        let home = HOMES[0];
        assert_eq!(rules("a.rs", &format!("\nlet at = \"{home}me/x\";\n")), [(2, "home-path")]);
        assert_eq!(rules("a.rs", &format!("export data{home}x\n")), []);
    }

    #[test]
    fn put_off_work_is_found_as_a_word() {
        let word = PUT_OFF[0];
        assert_eq!(rules("a.md", &format!("fine\n// {word}: later\n")), [(2, "put-off")]);
        assert_eq!(rules("a.md", &format!("{word}S are not words\n")), []);
    }

    #[test]
    fn line_ends_are_plain() {
        assert_eq!(
            rules("a.md", "one \ntwo\t\nthree\r\nfour"),
            [(1, "line-end"), (2, "line-end"), (3, "line-end"), (4, "line-end")]
        );
        assert_eq!(rules("a.md", "one\n"), []);
    }

    #[test]
    fn scripts_stop_at_the_first_error() {
        assert_eq!(rules("scripts/x", "#!/bin/sh\n"), [(1, "script")]);
        assert_eq!(rules("scripts/x", "#!/usr/bin/env bash\necho\n"), [(1, "script")]);
        assert_eq!(rules("scripts/x", "#!/usr/bin/env bash\nset -euo pipefail\n"), []);
    }
}
