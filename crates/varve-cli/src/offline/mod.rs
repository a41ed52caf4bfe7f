//! Tools for disks that no daemon holds: they open devices themselves, locked.

mod archive;
mod arrays;
mod check;
mod damage;
mod disks;
mod dump;
mod image;
mod new_store;
mod pools;
mod renew;
mod renewal;
mod repair;
mod restore;
mod stores;

pub(crate) use check::check;
pub(crate) use dump::dump;
pub(crate) use image::image;
pub(crate) use repair::repair;
pub(crate) use restore::restore;

use crate::confirm;
use crate::grammar::Destroy;
use varve_api::{Failure, Plan};

/// Asks before `what` carries out `plan`, unless --yes is given.
fn consent(what: &str, plan: &Plan, destroy: Destroy, json: bool) -> Result<(), Failure> {
    if destroy.yes {
        return Ok(());
    }
    if json || !confirm::can_ask() {
        return Err(confirm::declined(what));
    }
    confirm::ask(what, plan)
}
