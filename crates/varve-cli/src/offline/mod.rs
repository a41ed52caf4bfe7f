//! Tools for disks that no daemon holds: they open devices exclusively and themselves.

use crate::answer::Answer;
use crate::verbs::not_built;
use std::path::PathBuf;
use varve_api::Failure;

/// `varve check`.
pub(crate) fn check(_paths: &[PathBuf]) -> Result<Answer, Failure> {
    Err(not_built("check"))
}

/// `varve dump`.
pub(crate) fn dump(_paths: &[PathBuf]) -> Result<Answer, Failure> {
    Err(not_built("dump"))
}
