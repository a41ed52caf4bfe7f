//! Automation: tidy, golden files, release.
fn main() {}
