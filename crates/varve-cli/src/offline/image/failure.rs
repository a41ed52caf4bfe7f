//! What of an image goes wrong, as a failure of a command.

use std::path::Path;
use varve_api::{Code, Failure};
use varve_block::IoError;
use varve_target::qcow2::OpenError;

/// A failure of what was tried with the image at `path`.
pub(super) fn failed(path: &Path, error: &OpenError) -> Failure {
    let code = match error {
        OpenError::Damaged(_)
        | OpenError::Overlap(_)
        | OpenError::MarkedCorrupt
        | OpenError::CutOff { .. }
        | OpenError::Io(IoError::Corrupt) => Code::DataCorrupt,
        OpenError::Invalid(_) | OpenError::NoSnapshot(_) => Code::Usage,
        _ => Code::FileUnusable,
    };
    let path = path.display().to_string();
    Failure::new(code, format!("{path}: {error}")).help(error.remedy(&path))
}
