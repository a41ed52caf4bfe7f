//! The commands in `docs/`: runs every console block, and holds what it prints against what the page shows.
//!
//! A page's blocks run in order, in one shell, in an empty folder with `varve` on the path; `$VARVE` is this tree. In a block a line that
//! begins with `$ ` is a command, a line that begins with `> ` continues it, and everything else is its output.
//! Numbers and ids differ from run to run: they are masked before two outputs are compared.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPEN: &str = "```console";
const CLOSE: &str = "```";
const MARK: &str = "\u{1}end-of-output";

/// A command of a page and what the page says that it prints.
struct Step {
    command: String,
    shown: String,
}

/// Checks the pages in `docs/`, or the named ones, and rewrites them with `--write`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let write = words.contains(&"--write");
    let named: Vec<PathBuf> =
        words.iter().filter(|word| !word.starts_with("--")).map(|word| root.join(word)).collect();
    let varve = programs(root).join("varve");
    if !varve.exists() {
        return Err(format!("there is no {}: cargo build --release", varve.display()));
    }
    let pages = if named.is_empty() { pages(&root.join("docs"))? } else { named };
    let mut stale = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        let steps = steps(&text);
        if steps.is_empty() {
            continue;
        }
        let outputs = play(root, &steps)?;
        let same = steps.iter().zip(&outputs).all(|(step, output)| mask(&step.shown) == mask(output));
        if write && !same {
            fs::write(&page, rewrite(&text, &outputs)).map_err(|error| error.to_string())?;
        }
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if same || write {
            println!("ok {name}: {} commands", steps.len());
            continue;
        }
        println!("FAIL {name}: the commands print something else");
        for (step, output) in
            steps.iter().zip(&outputs).filter(|(step, output)| mask(&step.shown) != mask(output))
        {
            println!("  $ {}\n  page: {:?}\n  now:  {:?}", step.command, step.shown, output);
        }
        stale.push(name);
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(format!("stale: {}; cargo xtask docs --write", stale.join(", ")))
    }
}

fn pages(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut pages: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    Ok(pages)
}

/// The commands of all console blocks of a page.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            OPEN => inside = true,
            CLOSE => inside = false,
            _ if !inside => {}
            _ if line.starts_with("$ ") => {
                steps.push(Step { command: line[2..].to_owned(), shown: String::new() });
            }
            _ => {
                let Some(step) = steps.last_mut() else { continue };
                match line.strip_prefix("> ") {
                    Some(more) if step.shown.is_empty() => step.command = format!("{}\n{more}", step.command),
                    _ => writeln!(step.shown, "{line}").expect("a string can be written to"),
                }
            }
        }
    }
    steps
}

/// Where the programs are that pages show.
fn programs(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release")
}

/// Runs the commands in one shell and returns what each prints.
fn play(root: &Path, steps: &[Step]) -> Result<Vec<String>, String> {
    let folder = std::env::temp_dir().join(format!("varve-docs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let path = std::env::var_os("PATH").unwrap_or_default().to_string_lossy().into_owned();
    let mut script = String::from("exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n");
    for step in steps {
        writeln!(script, "{}\nprintf '%s\\n' \"$MARK\"", step.command).expect("a string can be written to");
    }
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", programs(root).display()))
        .env("VARVE_SOCKET", folder.join("varve.sock"))
        .env("MARK", MARK)
        .env("VARVE", root)
        .env("COLUMNS", "110")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| format!("cannot run bash: {error}"))?;
    let _ = fs::remove_dir_all(&folder);
    let text = String::from_utf8_lossy(&output.stdout).replace(&folder.display().to_string(), "~");
    let mut outputs: Vec<String> =
        text.split(&format!("{MARK}\n")).map(|part| part.trim_end().to_owned()).collect();
    outputs.pop();
    if outputs.len() != steps.len() {
        return Err(format!(
            "the shell stopped after {} of {} commands:\n{text}",
            outputs.len(),
            steps.len()
        ));
    }
    Ok(outputs.into_iter().map(|output| if output.is_empty() { output } else { output + "\n" }).collect())
}

/// The page with `outputs` in place of what it shows.
fn rewrite(text: &str, outputs: &[String]) -> String {
    let mut page = String::new();
    let mut outputs = outputs.iter();
    let mut pending = "";
    let (mut inside, mut in_command) = (false, false);
    for line in text.lines() {
        let is_command = inside && (line.starts_with("$ ") || in_command && line.starts_with("> "));
        if inside && (line == CLOSE || line.starts_with("$ ")) {
            page.push_str(std::mem::take(&mut pending));
        }
        if !inside || is_command || line == CLOSE {
            page.push_str(line);
            page.push('\n');
        }
        if inside && line.starts_with("$ ") {
            pending = outputs.next().map_or("", String::as_str);
        }
        in_command = is_command;
        inside = if line == OPEN { true } else { inside && line != CLOSE };
    }
    page
}

/// `output` without what differs from run to run: digits (and the letters among them in ids), and runs of blanks
/// and rules, whose width follows the numbers.
fn mask(output: &str) -> String {
    let is_id = |word: &str| {
        let core = word.trim_matches(|c: char| "\"':,;()".contains(c));
        core.len() >= 8 && core.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
    };
    let words = output.split_whitespace().filter(|word| !word.chars().all(|c| "-─━=".contains(c)));
    let masked = words.map(|word| {
        if is_id(word) {
            return "ID".to_owned();
        }
        let mut masked = String::new();
        for c in word.chars() {
            match c {
                '0'..='9' | '.' if masked.ends_with('#') => {}
                '0'..='9' => masked.push('#'),
                _ => masked.push(c),
            }
        }
        masked
    });
    masked.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Text.\n\n```console\n$ echo one \\\n>   two\none two\n$ true\n```\n\nMore.\n";

    #[test]
    fn commands_run_and_what_they_print_replaces_what_was_there() {
        let found = steps(PAGE);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].shown, "one two\n");
        let outputs = play(Path::new("/nowhere"), &found).expect("bash runs");
        assert_eq!(outputs, ["one two\n", ""]);
        assert_eq!(rewrite(PAGE, &outputs), PAGE);
        assert!(rewrite(PAGE, &["new\n".to_owned(), "x\n".to_owned()]).contains("two\nnew\n$ true\nx\n```"));
    }

    #[test]
    fn numbers_and_ids_are_no_difference_and_words_are() {
        assert_eq!(mask("took 1.5 ms, id 0a1b2c3d-99"), mask("took 22 ms, id ffffffff-00"));
        assert_eq!(
            mask("id = \"0a1b2c3d-99\", group 0a1b2c3d:"),
            mask("id = \"ffffffff-00\", group ffffffff:")
        );
        assert_ne!(mask("1 GiB free"), mask("1 GiB used"));
    }
}
