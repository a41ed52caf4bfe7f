//! Disks that this daemon would serve to itself are refused: files of its own exports, and what lies on them.
//!
//! Invariant OWNEXPORT1: no disk lies on a file that this daemon exports.

use super::Control;
use std::path::{Path, PathBuf};
use varve_api::{Code, Door, Failure};

impl Control {
    /// OWNEXPORT1.
    pub(super) async fn refuse_own_export(&self, path: &Path) -> Result<(), Failure> {
        let own: Vec<PathBuf> = {
            let exports = self.exports.borrow();
            let files = exports.values().filter(|export| export.remembered.door == Door::Fuse);
            files.map(|export| PathBuf::from(&export.remembered.address)).collect()
        };
        if own.is_empty() {
            return Ok(());
        }
        let asked = path.to_owned();
        let found = self.at_path(path, move |files| files.own_export_below(&asked, &own)).await?;
        let Some(file) = found else { return Ok(()) };
        let (path, file) = (path.display(), file.display());
        let message = format!("{path} lies on {file}, which this daemon exports: it would be its own disk");
        Err(Failure::new(Code::DiskIsOwnExport, message)
            .help("use a disk that this daemon does not serve, or another daemon for the inner group"))
    }
}
