//! Completions and manual pages, from the same definition as the parser.

use crate::answer::Answer;
use crate::grammar::Cli;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::path::Path;
use varve_api::{Code, Empty, Failure};

/// The completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "varve", &mut script);
    Answer::new(&Empty {}, String::from_utf8_lossy(&script))
}

/// Writes `varve.1`, `varve-lv.1`, `varve-lv-create.1`, … into `folder`; `date` stands in their foot.
pub(crate) fn pages(folder: &Path, date: Option<&str>) -> Result<Answer, Failure> {
    let unusable = |error| Failure::new(Code::FileUnusable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unusable)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder, date.unwrap_or_default()).map_err(unusable)?;
    Ok(Answer::new(&Empty {}, format!("manual pages written to {}", folder.display())))
}

/// The page of `command`, and those of its verbs.
fn write_pages(command: &Command, folder: &Path, date: &str) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder, date)?;
    }
    let program = concat!("varve ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).date(date).source(program).manual("Varve");
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(folder.join(man.get_filename()), without_double_breaks(&String::from_utf8_lossy(&page)))
}

/// A page with a space where there is a blank line between two breaks, of which readers of manuals warn.
fn without_double_breaks(page: &str) -> String {
    page.replace("\n.br\n\n.br\n", "\n.sp\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        pages(folder.path(), Some("2026-11-30")).map_err(|failure| failure.to_string()).expect("pages");
        for page in
            ["varve.1", "varve-completions.1", "varve-lv-create.1", "varve-snap-rollback.1", "varve-daemon.1"]
        {
            let text = std::fs::read_to_string(folder.path().join(page)).expect(page);
            assert!(text.contains(".SH NAME"), "{page}");
            let head = text.lines().find(|line| line.starts_with(".TH")).expect(page);
            let name = page.trim_end_matches(".1");
            assert!(head.starts_with(&format!(".TH {name} 1 2026-11-30 \"varve ")), "{head}");
            assert!(!text.contains(".br\n\n"), "{page}");
        }
        assert!(!folder.path().join("varve-man.1").exists(), "what help does not show has no page");
    }
}
