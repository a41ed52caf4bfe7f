//! The kinds of load that are put on a server, and the goal set for each.

use serde::{Deserialize, Serialize};

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Writes; else reads.
    pub(crate) write: bool,
    /// At random places; else one after the other.
    pub(crate) random: bool,
    /// Size of a request in KiB.
    pub(crate) block_kib: u32,
    /// Requests in flight on each connection.
    pub(crate) depth: u32,
    /// Connections.
    pub(crate) connections: u32,
}

impl Work {
    /// Requests at random places.
    pub(crate) const fn random(write: bool, block_kib: u32, depth: u32, connections: u32) -> Self {
        Self { write, random: true, block_kib, depth, connections }
    }

    /// Requests one after the other.
    pub(crate) const fn sequential(write: bool, block_kib: u32, depth: u32, connections: u32) -> Self {
        Self { write, random: false, block_kib, depth, connections }
    }

    /// All loads of the first table, in its order.
    pub(crate) fn all() -> Vec<Self> {
        let both = [false, true];
        let mut all = Vec::new();
        for (depth, connections) in [(1, 1), (32, 1), (8, 4)] {
            all.extend(both.map(|write| Self::random(write, 4, depth, connections)));
        }
        for connections in [1, 4] {
            for block_kib in [64, 1024] {
                all.extend(both.map(|write| Self::sequential(write, block_kib, 8, connections)));
            }
        }
        all
    }

    /// `read` or `write`.
    pub(crate) fn verb(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }

    /// `read 4 KiB QD32`, `write 1 MiB QD8, 4 connections`.
    pub(crate) fn name(&self) -> String {
        let block = if self.block_kib >= 1024 {
            format!("{} MiB", self.block_kib / 1024)
        } else {
            format!("{} KiB", self.block_kib)
        };
        let order = if self.random { "random" } else { "sequential" };
        let connections =
            if self.connections > 1 { format!(" x {}", self.connections) } else { String::new() };
        format!("{order} {} {block} QD{}{connections}", self.verb(), self.depth)
    }

    /// The throughput that is wanted, as a ratio to the best like peer.
    pub(crate) fn goal(&self) -> f64 {
        if self.random { 1.2 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_load_once_under_its_own_name() {
        let names: std::collections::BTreeSet<_> = Work::all().iter().map(Work::name).collect();
        assert_eq!(names.len(), 14);
        assert!(names.contains("random read 4 KiB QD32"));
        assert!(names.contains("sequential write 1 MiB QD8 x 4"));
    }
}
