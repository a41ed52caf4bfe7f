//! What can go wrong with a request, as far as a caller branches on it.

use std::fmt;

/// Why a request failed. The details are logged where the failure is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IoError {
    /// The medium could not read or write it.
    Medium,
    /// There is no space left to allocate.
    NoSpace,
    /// The file system that holds the device, or a disk below it, is full.
    HostFull,
    /// What was read is not what was written.
    Corrupt,
    /// The device may not be written.
    ReadOnly,
    /// Another host has been given the right to write.
    Fenced,
    /// The device is not there any more.
    Gone,
    /// The device cannot do this at all.
    Unsupported,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoError::Medium => "the medium failed",
            IoError::NoSpace => "no space left",
            IoError::HostFull => "the file system that holds it is full",
            IoError::Corrupt => "the data is corrupt",
            IoError::ReadOnly => "the device is read-only",
            IoError::Fenced => "the right to write was lost",
            IoError::Gone => "the device is gone",
            IoError::Unsupported => "the device cannot do this",
        })
    }
}

impl std::error::Error for IoError {}
