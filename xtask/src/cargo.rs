//! The tree that this program works on, and what cargo says of it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the tree in which `cargo xtask` was started. Cargo does not compile the program anew for another checkout with
/// the same build directory, so the path of the compilation is only for a start without cargo.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().expect("xtask is in the root of the tree").to_path_buf()
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
