//! Completions and manual pages, from the same definition as the parser.

use crate::answer::Answer;
use crate::grammar::Cli;
use clap::CommandFactory;
use std::path::Path;
use varve_api::{Code, Empty, Failure};

/// The completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "varve", &mut script);
    Answer::new(&Empty {}, String::from_utf8_lossy(&script))
}

/// Writes `varve.1`, `varve-lv.1`, `varve-lv-create.1`, … into `folder`.
pub(crate) fn pages(folder: &Path) -> Result<Answer, Failure> {
    let unusable = |error| Failure::new(Code::FileUnusable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unusable)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(unusable)?;
    Ok(Answer::new(&Empty {}, format!("manual pages written to {}", folder.display())))
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
        pages(folder.path()).map_err(|failure| failure.to_string()).expect("pages");
        for page in ["varve.1", "varve-lv-create.1", "varve-snap-rollback.1", "varve-daemon.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).expect(page);
            assert!(text.contains(".SH NAME"), "{page}");
        }
    }
}
