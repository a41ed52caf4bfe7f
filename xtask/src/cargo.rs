//! The tree that this program was built from, and what cargo says of it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the tree, wherever the command was started.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the root of the tree").to_path_buf()
}

/// What `cargo metadata` says of the workspace, as JSON.
pub(crate) fn metadata(root: &Path, arguments: &[&str]) -> Result<serde_json::Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
