//! Documents that are rendered from code: a test of the crate that knows writes them when it is told to.

use std::path::Path;
use std::process::Command;

/// Told to a test, this makes it write its document instead of comparing.
const SWITCH: &str = "UPDATE_DOCS";

/// Runs the tests that render, and lets them write.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let status = Command::new("cargo")
        .args(["test", "--quiet", "-p", "varve-format", "the_page"])
        .env(SWITCH, "1")
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("rendering failed".to_owned()) }
}
