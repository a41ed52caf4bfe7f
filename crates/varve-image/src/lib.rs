//! Disk images in files: which files an image consists of, and how they are opened together.
//!
//! [`open_chain`] opens an image and all its backing images; the caller says how a path becomes a device. [`HostFile`] is such a
//! device, for programs that do one thing at a time.

mod chain;
mod host_file;

pub use chain::{ChainError, Format, Layer, OpenFile, Selected, backing_of, open_chain};
pub use host_file::HostFile;
