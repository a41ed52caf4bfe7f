//! The file in which the daemon keeps what it remembers between two lives.
//!
//! Invariant STATE1: a file is replaced as a whole (written beside, made durable, renamed, the directory made durable),
//! so a crash leaves the old or the new one.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use varve_api::Failure;
use varve_control::{Remembered, state_unusable};

const FILE: &str = "state.json";

/// Reads what is remembered in `directory`. A damaged file is set aside, because volumes do not need it.
pub(crate) fn load(directory: &Path) -> Result<Remembered, Failure> {
    let path = directory.join(FILE);
    parsed(&path)?.or_else(|reason| {
        let aside = directory.join("state.json.damaged");
        std::fs::rename(&path, &aside).map_err(|error| state_unusable(&path, &error))?;
        tracing::warn!(path = %path.display(), reason, aside = %aside.display(),
            "what was remembered cannot be read and was set aside; find the disks again with varve pv scan PATH…");
        Ok(Remembered::default())
    })
}

/// Refuses what is remembered in `directory` if it cannot be read, by a version that is older than the one that wrote it for one; changes
/// nothing.
pub(crate) fn check(directory: &Path) -> Result<(), Failure> {
    let path = directory.join(FILE);
    let parsed = parsed(&path)?.map_err(std::io::Error::other);
    parsed.map(drop).map_err(|error| state_unusable(&path, &error))
}

/// What the file at `path` says, if it is there, or why that cannot be understood.
fn parsed(path: &Path) -> Result<Result<Remembered, String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Remembered::parse(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Ok(Remembered::default())),
        Err(error) => Err(state_unusable(path, &error)),
    }
}

/// Replaces what is remembered in `directory`.
pub(crate) fn save(directory: &Path, text: &str) -> std::io::Result<()> {
    replace(directory, FILE, text)
}

/// What a file is called while it is written, behind the name that it gets.
pub(crate) const BESIDE: &str = ".new";

/// Replaces the file `name` in `directory`, or makes it.
pub(crate) fn replace(directory: &Path, name: &str, text: &str) -> std::io::Result<()> {
    // A crash leaves the old file or the new one (STATE1).
    let beside = directory.join(format!("{name}{BESIDE}"));
    // Never what a link leads to.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded_and_a_lost_directory_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load(folder.path()), Ok(Remembered::default()));
        let text = r#"{"schema":"varve.state.v1","last_job":7}"#;
        std::fs::write(folder.path().join("state.json.new"), "left by a crash").expect("a writable folder");
        save(folder.path(), text).expect("a writable folder");
        assert_eq!(load(folder.path()), Ok(Remembered::parse(text).expect("a text")));
        assert!(!folder.path().join("state.json.new").exists(), "STATE1");
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_nothing_is_invented() {
        let folder = tempfile::tempdir().expect("a folder");
        for text in ["{", r#"{"schema":"varve.state.v9"}"#] {
            std::fs::write(folder.path().join(FILE), text).expect("a writable folder");
            assert_eq!(load(folder.path()), Ok(Remembered::default()));
            let aside = std::fs::read_to_string(folder.path().join("state.json.damaged"));
            assert_eq!(aside.expect("set aside"), text);
        }
    }
}
