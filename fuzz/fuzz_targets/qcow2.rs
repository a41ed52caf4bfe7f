//! The tables of a qcow2 image: a header, and behind it entries, counts and snapshots as it describes them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::qcow2::{Entry, Header, decode_snapshots, refcount, set_refcount, table_offset};

fuzz_target!(|data: &[u8]| {
    let (first, rest) = data.split_at(data.len().min(1024));
    let Ok(header) = Header::decode(first) else { return };
    assert!(header.l1_entries_needed() <= u64::from(header.l1_entries), "QHEADER2");
    let _ = decode_snapshots(rest, &header);
    let mut table = rest[..rest.len() / 16 * 16].to_vec();
    for number in 0..table.len() as u64 / header.l2_entry_size() {
        let Ok(entry) = Entry::decode(&table, number, &header) else { continue };
        if !matches!(entry.cluster, varve_format::qcow2::Cluster::Compressed { .. }) {
            entry.encode(&mut table, number, &header);
            assert_eq!(Entry::decode(&table, number, &header), Ok(entry), "an entry comes back");
        }
    }
    for word in table.chunks_exact(8) {
        let word = u64::from_be_bytes(word.try_into().expect("8 bytes"));
        let _ = table_offset(word, &header, "L1 table");
    }
    let width = header.refcount_width;
    for number in 0..width.counts_in(table.len() as u64).min(64) {
        let count = refcount(&table, width, number);
        set_refcount(&mut table, width, number, count);
        assert_eq!(refcount(&table, width, number), count, "a count comes back");
    }
});
