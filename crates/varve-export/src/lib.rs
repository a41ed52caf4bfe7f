//! The doors: NBD, FUSE and vhost-user-blk; a protocol translated to requests, an error to an errno.

mod budget;
mod counters;
pub mod fuse;
mod in_flight;
pub mod nbd;
mod requests;
pub mod vhost_user;

pub use budget::{Budget, Reservation};
pub use counters::DoorCounters;
