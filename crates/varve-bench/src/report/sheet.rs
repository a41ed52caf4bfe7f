//! The results and the file that holds them: whatever is measured is in the file before the next thing is measured.

use crate::results::Results;
use std::path::{Path, PathBuf};

/// Results that are kept in a file.
pub(crate) struct Sheet {
    results: Results,
    path: PathBuf,
}

impl Sheet {
    /// What `path` holds; nothing yet if there is no such file.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        Ok(Self { results: Results::load(path)?, path: path.to_owned() })
    }

    /// Makes one change and stores it.
    pub(crate) fn keep(&mut self, change: impl FnOnce(&mut Results)) -> Result<(), String> {
        change(&mut self.results);
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
    use crate::results::SnapshotPart;

    #[test]
    fn what_was_kept_is_there_without_a_last_word() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("results.json");
        let mut sheet = Sheet::load(&path).expect("no file, no results");
        for world in ["memory", "slow disk"] {
            let part = SnapshotPart { world: world.to_owned(), ..SnapshotPart::default() };
            sheet.keep(|results| results.put_snapshots(&part)).expect("stored");
            let known = Results::load(&path).expect("the file").snapshots.len();
            assert_eq!(known, sheet.results().snapshots.len(), "nothing waits to be stored");
        }
        assert_eq!(sheet.results().snapshots.len(), 2);
        std::mem::forget(sheet);
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("a directory").count(),
            1,
            "nothing is left over"
        );
    }
}
