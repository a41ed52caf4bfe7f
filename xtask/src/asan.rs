//! The tests of the crates with unsafe code, built with the address sanitizer.
//!
//! The sanitizer is not stable: `RUSTC_BOOTSTRAP` lets the pinned compiler take the flag, for this build alone. Its
//! runtime library comes with the compiler.

use std::path::Path;
use std::process::Command;

/// The crates with unsafe code, and the doors, whose requests pass through them.
const PACKAGES: [&str; 3] = ["varve-block", "varve-os", "varve-export"];

/// Builds and runs the tests; `words` go to `cargo test`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut command = Command::new("cargo");
    command.arg("test").args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    // With a target named, build scripts and macros are built without the flag.
    command.args(["--lib", "--tests", "--target", &host()?]).args(words).current_dir(root);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("CARGO_TARGET_DIR", target.join("asan"));
    let status = command.status().map_err(|error| format!("cannot run cargo test: {error}"))?;
    if status.success() { Ok(()) } else { Err("asan: see above".to_owned()) }
}

/// The machine for which the compiler compiles if it is not told.
fn host() -> Result<String, String> {
    let output =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_name_of_several_parts() {
        assert!(host().is_ok_and(|name| name.split('-').count() >= 3));
    }
}
