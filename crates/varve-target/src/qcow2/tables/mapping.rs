//! Where the bytes of an image lie: pure functions of L2 entries.

use varve_format::qcow2::{Cluster, Entry, Header, Qcow2Error};

/// Where a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// In the file.
    Data {
        /// The first byte there.
        offset: u64,
        /// Nothing else refers to it: it may be overwritten.
        copied: bool,
    },
    /// Nowhere: it is zeros.
    Zero,
    /// Nowhere: it is what the backing file holds there, or zeros.
    Unallocated,
    /// In a cluster that is compressed, in the file.
    Compressed {
        /// The first byte of the compressed cluster.
        offset: u64,
        /// Its bytes, of which the last may belong to something else.
        length: u64,
    },
}

/// A mapping, and for how many bytes it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Where the first byte is.
    pub mapping: Mapping,
    /// So many bytes lie there one after the other; not more than was asked.
    pub length: u64,
}

/// Where the bytes from `within` on of the cluster with the entry `first` of `slice`, a part of an L2 table, lie: as many as
/// follow each other, up to `length_max` and the end of the slice.
pub(in crate::qcow2) fn locate(
    slice: &[u8],
    header: &Header,
    first: u64,
    within: u64,
    length_max: u64,
) -> Result<Mapped, Qcow2Error> {
    assert!(within < header.cluster_size() && length_max > 0, "a byte of the first cluster");
    let entries = slice.len() as u64 / header.l2_entry_size();
    let (mut run, mut start): (u64, Option<Mapping>) = (0, None);
    let (mut number, mut at) = (first, within);
    while run < length_max && number < entries {
        let entry = match (Entry::decode(slice, number, header), start) {
            (Ok(entry), _) => entry,
            (Err(error), None) => return Err(error),
            (Err(_), Some(_)) => break,
        };
        let here = mapping_at(&entry, header, at);
        match start {
            None => start = Some(here),
            Some(start) if continues(start, run, here) => {}
            Some(_) => break,
        }
        let unit = match here {
            Mapping::Compressed { .. } => header.cluster_size(),
            _ => header.subcluster_size(),
        };
        let step = unit - at % unit;
        run += step;
        at += step;
        if at == header.cluster_size() {
            (number, at) = (number + 1, 0);
        }
    }
    let mapping = start.expect("there is a first entry");
    Ok(Mapped { mapping, length: run.min(length_max) })
}

fn mapping_at(entry: &Entry, header: &Header, at: u64) -> Mapping {
    assert!(at < header.cluster_size(), "{at} lies in a cluster");
    let bit = 1_u32 << (at / header.subcluster_size());
    let is = |set: u32| set & bit != 0;
    match entry.cluster {
        Cluster::Compressed { offset, length } => Mapping::Compressed { offset, length },
        _ if is(entry.subclusters.zero) => Mapping::Zero,
        Cluster::At { offset, copied } if is(entry.subclusters.allocated) => {
            Mapping::Data { offset: offset + at, copied }
        }
        _ => Mapping::Unallocated,
    }
}

/// Whether `here` is `run` bytes behind `start`.
fn continues(start: Mapping, run: u64, here: Mapping) -> bool {
    match (start, here) {
        (Mapping::Data { offset, copied }, Mapping::Data { offset: here, copied: also }) => {
            offset + run == here && copied == also
        }
        (Mapping::Zero, Mapping::Zero) | (Mapping::Unallocated, Mapping::Unallocated) => true,
        _ => false,
    }
}

/// The bits of the subclusters that the bytes from `start` to `end` of a cluster touch.
pub(in crate::qcow2) fn subclusters(header: &Header, start: u64, end: u64) -> u32 {
    assert!(start < end && end <= header.cluster_size(), "{start} to {end} of a cluster");
    let (first, last) = (start / header.subcluster_size(), (end - 1) / header.subcluster_size());
    u32::try_from((1_u64 << (last + 1)) - (1_u64 << first)).expect("a cluster has at most 32 subclusters")
}
