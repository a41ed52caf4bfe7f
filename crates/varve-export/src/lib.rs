//! The doors: NBD, also to this kernel's client, ublk, FUSE and vhost-user-blk; a protocol translated to requests, an error to an errno.

mod answers;
mod attach;
mod bell;
mod block_devices;
mod budget;
mod counters;
mod device_door;
pub mod fuse;
mod in_flight;
pub mod kernel_nbd;
pub mod nbd;
mod requests;
pub mod ublk;
pub mod vhost_user;

pub use attach::{AttachError, AttachOptions, Driver};
pub use bell::Spawn;
pub use budget::{Budget, Reservation};
pub use counters::DoorCounters;
pub use device_door::DeviceDoor;
