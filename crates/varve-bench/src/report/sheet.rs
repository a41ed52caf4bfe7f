//! The results and the file that holds them: whatever is measured is in the file before the next thing is measured.

use crate::failed::Outcome;
use crate::results::{Part, Results};
use std::path::{Path, PathBuf};

/// Results that are kept in a file.
pub(crate) struct Sheet {
    results: Results,
    path: PathBuf,
}

impl Sheet {
    /// What `path` holds; nothing yet if there is no such file.
    pub(crate) fn load(path: &Path) -> Outcome<Self> {
        Ok(Self { results: Results::load(path)?, path: path.to_owned() })
    }

    /// Puts `part` where an older one was, and stores all.
    pub(crate) fn keep(&mut self, part: &Part) -> Outcome<()> {
        eprintln!("{}, {}: {} figures", part.table, part.world, part.records.len());
        self.results.put(part.clone());
        self.results.store(&self.path)
    }

    /// What is known by now.
    pub(crate) fn results(&self) -> &Results {
        &self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_without_a_last_word() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("results.json");
        let mut sheet = Sheet::load(&path).expect("no file, no results");
        for world in ["memory", "slow disk"] {
            sheet.keep(&Part::exact("nbd", world, "")).expect("stored");
            let known = Results::load(&path).expect("the file").parts.len();
            assert_eq!(known, sheet.results().parts.len(), "nothing waits to be stored");
        }
        assert_eq!(sheet.results().parts.len(), 2);
        std::mem::forget(sheet);
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("a directory").count(),
            1,
            "nothing is left over"
        );
    }
}
