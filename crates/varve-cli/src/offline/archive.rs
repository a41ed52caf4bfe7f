//! The archive of groups in a daemon's state directory: which of its texts can be written to disks that have lost theirs.

use super::disks::{absolute, with_disks};
use crate::answer::print_aside;
use crate::places;
use std::path::{Path, PathBuf};
use varve_api::Failure;
use varve_block::Access;
use varve_daemon::{ArchivedFile, archived};
use varve_vg::Group;
use varve_vg::rebuild::{RebuildError, lost_disks};

/// A text in the archive that the disks can be restored from.
pub(super) struct Archived {
    file: PathBuf,
    group: String,
    sequence: u64,
    /// The disks that were named, and those of the group that were not.
    disks: Vec<String>,
}

impl Archived {
    /// The remedy.
    pub(super) fn help(&self) -> String {
        let Self { file, group, sequence, disks } = self;
        format!(
            "varve restore {} {} writes group {group} as of change {sequence}",
            file.display(),
            disks.join(" ")
        )
    }
}

/// The text in the archive below `state`, the daemon's usual one if not given, that can be restored to the disks at `paths` of which
/// none holds a newer one; the latest if there are several.
pub(super) fn restores(paths: &[PathBuf], state: Option<&Path>) -> Result<Option<Archived>, Failure> {
    let Ok(state) = places::daemon_state(state.map(Path::to_owned)) else { return Ok(None) };
    let texts = archived(&state).unwrap_or_else(|error| {
        print_aside(&format!("warning: {}: the archive of groups cannot be read: {error}", state.display()));
        Vec::new()
    });
    if texts.is_empty() {
        return Ok(None);
    }
    let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    with_disks(paths, Access::ReadOnly, async move |context, disks| {
        let mut found: Option<Archived> = None;
        for ArchivedFile { path: file, text } in texts {
            let Ok(group) = Group::from_text(&text) else { continue };
            let missing =
                match lost_disks(group.description(), disks.clone(), absolute, &context.arena()).await {
                    Ok(_) => Vec::new(),
                    Err(RebuildError::Missing { path, .. }) => vec![path],
                    Err(_) => continue,
                };
            let disks = named.iter().cloned().chain(missing).collect();
            let (group, sequence) = (group.name().to_owned(), group.entry().sequence);
            found = Some(Archived { file, group, sequence, disks });
        }
        found
    })
}
