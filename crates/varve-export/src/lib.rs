//! The doors: NBD and FUSE; a protocol translated to requests, an error to an errno.

mod budget;
pub mod fuse;
pub mod nbd;

pub use budget::{Budget, Reservation};
