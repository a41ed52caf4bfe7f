//! The copy of the tree that is built: the files of the tree, with mutants put in.

use super::points::{SWITCH, SourceText};
use super::sample::Drawn;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crate that all others import, and in which it is asked whether a mutant is switched on.
const BLOCK: &str = "crates/varve-block/";
/// Added to that crate. The environment is read once. MUTANT4: with `VARVE_MUTANT_REACHED` each thread appends to that
/// file which mutants it came by, with its name: the harness names threads after their tests.
const QUESTION: &str = r#"
#[doc(hidden)]
#[expect(clippy::disallowed_methods, reason = "this build is for tests of tests")]
pub fn mutant(number: u32) -> bool {
    use std::{cell::RefCell, collections::BTreeSet, fs::OpenOptions, io::Write, sync::OnceLock, thread};
    static CHOSEN: OnceLock<Option<u32>> = OnceLock::new();
    static REACHED: OnceLock<Option<String>> = OnceLock::new();
    thread_local! { static SEEN: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) } }
    if let Some(path) = REACHED.get_or_init(|| std::env::var("VARVE_MUTANT_REACHED").ok())
        && SEEN.try_with(|seen| seen.borrow_mut().insert(number)).unwrap_or(true)
    {
        let line = format!("{number} {}\n", thread::current().name().unwrap_or_default());
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the file can be opened");
        file.write_all(line.as_bytes()).expect("the file can be written");
    }
    let chosen = CHOSEN.get_or_init(|| std::env::var("VARVE_MUTANT").ok()?.parse().ok());
    *chosen == Some(number)
}
"#;

/// The Rust files at or below `wanted` that are part of the product.
pub(super) fn read(root: &Path, wanted: &[String]) -> Result<Vec<SourceText>, String> {
    for file in wanted {
        if !root.join(file).exists() && !root.join(format!("{file}.rs")).exists() {
            return Err(format!("there is no {file}"));
        }
    }
    let is_wanted = |path: &str| {
        wanted.iter().any(|file| {
            path.strip_prefix(file.as_str())
                .is_some_and(|rest| ["", ".rs"].contains(&rest) || rest.starts_with('/'))
        })
    };
    let mut sources = crate::tidy::product_files(root)?;
    sources.retain(|(path, _)| is_wanted(path));
    Ok(sources.into_iter().map(|(path, text)| SourceText { path, text }).collect())
}

/// The text of a file with mutants put in, each behind its number.
pub(super) fn mutate(source: &SourceText, mutants: &BTreeMap<u32, Drawn>) -> String {
    let question = if source.path.starts_with(BLOCK) { "crate::mutant" } else { "varve_block::mutant" };
    let mut text = source.text.clone();
    let here = mutants.iter().filter(|(_, mutant)| mutant.point.path == source.path);
    // From the end, so that what is before stays where it was.
    let mut last_first: Vec<_> = here.collect();
    last_first.sort_by_key(|(_, mutant)| std::cmp::Reverse(mutant.point.range.start));
    for (number, Drawn { point, .. }) in last_first {
        let put_in = point.text.replace(SWITCH, &format!("{question}({number})"));
        text.replace_range(point.range.clone(), &put_in);
    }
    text
}

/// Brings the copy at `copy` to the state of the tree at `root`, with the mutants put in. A file that is as it must be
/// is not touched, so that little is built again.
pub(super) fn write(
    root: &Path,
    copy: &Path,
    sources: &[SourceText],
    mutants: &BTreeMap<u32, Drawn>,
) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    let told = |path: &str, error: std::io::Error| format!("{path}: {error}");
    for path in String::from_utf8_lossy(&listed.stdout).lines().filter(|path| root.join(path).is_file()) {
        let wanted = match sources.iter().find(|source| source.path == path) {
            Some(source) => mutate(source, mutants).into_bytes(),
            None => fs::read(root.join(path)).map_err(|error| told(path, error))?,
        };
        let wanted = if path == format!("{BLOCK}src/lib.rs") {
            [wanted, QUESTION.as_bytes().to_vec()].concat()
        } else {
            wanted
        };
        let at = copy.join(path);
        if fs::read(&at).ok().as_ref() == Some(&wanted) {
            continue;
        }
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder).map_err(|error| told(path, error))?;
        }
        fs::write(&at, wanted).map_err(|error| told(path, error))?;
    }
    Ok(())
}
