//! The doors: NBD and FUSE; a protocol translated to requests, an error to an errno.

pub mod fuse;
pub mod nbd;
