//! Entries of L1 and L2 tables: where a cluster is, if anywhere.
//!
//! Invariants of a decoded entry:
//! - QENTRY1. Offsets of tables and data start at a cluster, and reserved bits are zero.
//! - QENTRY2. No subcluster is both allocated and zero, and without a place for data none is allocated.

use super::error::{Qcow2Error, require};
use super::header::Header;
use super::{OFFSET_MASK, SECTOR, u32_at, u64_at};

/// Set in an entry if what it leads to has exactly one reference.
pub const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// The offset in an L1 entry, or one of the refcount table, if it leads anywhere.
pub fn table_offset(entry: u64, header: &Header, structure: &'static str) -> Result<Option<u64>, Qcow2Error> {
    let offset = entry & OFFSET_MASK;
    let aligned = offset.is_multiple_of(header.cluster_size()) && entry & !COPIED & !OFFSET_MASK == 0;
    require(aligned, structure, "entry", entry, "not the offset of a cluster")?;
    Ok((offset > 0).then_some(offset))
}

/// Which subclusters of a cluster are there: bit `i` of the first is set if number `i` is allocated, of the second if it is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subclusters {
    /// Those with data.
    pub allocated: u32,
    /// Those that are zero.
    pub zero: u32,
}

/// Where the data of a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cluster {
    /// Nowhere.
    Absent,
    /// In a cluster of the file.
    At {
        /// Its first byte.
        offset: u64,
        /// Nothing else refers to it: it may be overwritten.
        copied: bool,
    },
    /// Compressed, in the file.
    Compressed {
        /// Its first byte.
        offset: u64,
        /// Bytes, of which the last may belong to something else.
        length: u64,
    },
}

/// An L2 entry. Without extended entries a cluster is one subcluster, bit 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where data is.
    pub cluster: Cluster,
    /// What of it is valid.
    pub subclusters: Subclusters,
}

impl Entry {
    /// Nothing is there.
    pub const ABSENT: Entry =
        Entry { cluster: Cluster::Absent, subclusters: Subclusters { allocated: 0, zero: 0 } };

    /// All subclusters of a cluster.
    pub fn all(header: &Header) -> u32 {
        if header.extended_l2 { u32::MAX } else { 1 }
    }

    /// Reads the entry number `index` of `table`, a part of an L2 table.
    pub fn decode(table: &[u8], index: u64, header: &Header) -> Result<Entry, Qcow2Error> {
        let at = usize::try_from(index * header.l2_entry_size()).expect("a table is in memory");
        let word = u64_at(table, at);
        let bitmap = if header.extended_l2 { u64_at(table, at + 8) } else { 0 };
        let check = |holds, expected| require(holds, "L2 table", "entry", word, expected);
        if word & COMPRESSED != 0 {
            check(bitmap == 0 && word & COPIED == 0, "compressed, with bits that only data has")?;
            let shift = 62 - (header.cluster_bits - 8);
            let offset = word & ((1 << shift) - 1);
            let sectors = ((word & !(COMPRESSED | COPIED)) >> shift) + 1;
            let length = sectors * SECTOR - offset % SECTOR;
            check(offset >= header.cluster_size(), "compressed, in the header")?;
            let subclusters = Subclusters { allocated: Self::all(header), zero: 0 };
            return Ok(Entry { cluster: Cluster::Compressed { offset, length }, subclusters });
        }
        let offset = word & OFFSET_MASK;
        let flags = word & !OFFSET_MASK & !COPIED;
        let zero_flag = flags == ZERO && !header.extended_l2 && header.version > 2;
        check(flags == 0 || zero_flag, "with reserved bits")?;
        check(offset.is_multiple_of(header.cluster_size()), "not the offset of a cluster")?;
        let copied = word & COPIED != 0;
        check(offset > 0 || !copied, "one reference to nothing")?;
        let cluster = if offset == 0 { Cluster::Absent } else { Cluster::At { offset, copied } };
        let subclusters = if header.extended_l2 {
            let (high, low) = (u32_at(table, at + 8), u32_at(table, at + 12));
            check(low & high == 0 && (offset > 0 || low == 0), "with a bitmap that contradicts itself")?;
            Subclusters { allocated: low, zero: high }
        } else {
            Subclusters { allocated: u32::from(offset > 0 && !zero_flag), zero: u32::from(zero_flag) }
        };
        Ok(Entry { cluster, subclusters })
    }

    /// Writes the entry number `index` of `table`. A compressed one is never written.
    pub fn encode(self, table: &mut [u8], index: u64, header: &Header) {
        let Subclusters { allocated, zero } = self.subclusters;
        assert!(allocated & zero == 0, "QENTRY2: {self:?}");
        let mut word = match self.cluster {
            Cluster::Absent => 0,
            Cluster::At { offset, copied } => {
                assert!(offset.is_multiple_of(header.cluster_size()) && offset > 0, "QENTRY1: {self:?}");
                offset | if copied { COPIED } else { 0 }
            }
            Cluster::Compressed { .. } => panic!("QENTRY1: compressed clusters are only read"),
        };
        assert!(word > 0 || allocated == 0, "QENTRY2: {self:?}");
        if !header.extended_l2 && zero != 0 {
            assert!(header.version > 2, "QENTRY2: version 2 has no zero clusters");
            word |= ZERO;
        }
        let at = usize::try_from(index * header.l2_entry_size()).expect("a table is in memory");
        table[at..at + 8].copy_from_slice(&word.to_be_bytes());
        if header.extended_l2 {
            let bitmap = u64::from(zero) << 32 | u64::from(allocated);
            table[at + 8..at + 16].copy_from_slice(&bitmap.to_be_bytes());
        }
    }
}
