//! Volumes taken into use, compared with what groups say, opened anew, and taken out of use.

pub(super) mod background;
pub mod close;
pub mod health;
pub(super) mod losses;
pub mod open;
pub mod placement;
pub mod reason;
pub mod reconcile;
pub mod reopen;
