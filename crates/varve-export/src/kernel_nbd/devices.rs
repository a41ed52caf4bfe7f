//! NBD devices of this host, as its files show them: which are free, and which one is ours.
//!
//! Invariant NBDDEV1: no device is taken that something uses or is about to leave: it has no size, no server, no holder, and nothing in
//! flight.

use crate::block_devices::BlockDevices;
use std::fs;
use std::path::PathBuf;

/// Devices that are looked through for a free one.
const INDEX_MAX: u32 = 1 << 12;

/// NBD devices of a host.
#[derive(Clone, Debug)]
pub(super) struct Devices(pub(super) BlockDevices);

/// The name of a device.
pub(super) fn name(index: u32) -> String {
    format!("nbd{index}")
}

impl Devices {
    /// The device file of `index`.
    pub(super) fn node(&self, index: u32) -> PathBuf {
        self.0.node(&name(index))
    }

    fn about(&self, index: u32) -> PathBuf {
        self.0.about(&name(index))
    }

    fn text(&self, index: u32, file: &str) -> Option<String> {
        self.0.text(&name(index), file)
    }

    /// Bytes of a device; zero if it has no server.
    pub(super) fn size(&self, index: u32) -> u64 {
        self.0.size(&name(index))
    }

    /// Whose it is.
    pub(super) fn identity(&self, index: u32) -> Option<String> {
        self.text(index, "backend")
    }

    /// Whether it has a server, or had one that may come back.
    pub(super) fn is_connected(&self, index: u32) -> bool {
        self.about(index).join("pid").exists()
    }

    /// The device of `identity`.
    pub(super) fn find(&self, identity: &str) -> Option<u32> {
        let names = fs::read_dir(&self.0.sys).ok()?.filter_map(Result::ok).map(|entry| entry.file_name());
        let indexes = names.filter_map(|name| name.to_str()?.strip_prefix("nbd")?.parse().ok());
        let mut own = indexes
            .filter(|index| self.is_connected(*index) && self.identity(*index).as_deref() == Some(identity));
        own.next()
    }

    /// Whether nothing has it (NBDDEV1).
    pub(super) fn is_free(&self, index: u32) -> bool {
        let in_flight = self.text(index, "inflight").unwrap_or_default();
        self.size(index) == 0
            && !self.is_connected(index)
            && self.0.holders(&name(index)).is_empty()
            && in_flight.split_whitespace().all(|number| number == "0")
    }

    /// Devices that nothing has, or that do not exist yet, from `after` on.
    pub(super) fn free(&self, after: u32) -> Option<u32> {
        (after..INDEX_MAX).find(|index| !self.about(*index).exists() || self.is_free(*index))
    }

    /// Bounds the work of one trim: a device takes as long for one request as its client gives up after. Where the kernel does
    /// not let it be bounded, trims are as long as it likes.
    pub(super) fn bound_trims(&self, index: u32, bytes: u64) {
        let _ = fs::write(self.about(index).join("queue/discard_max_bytes"), bytes.to_string());
    }
}

#[cfg(test)]
mod tests;
