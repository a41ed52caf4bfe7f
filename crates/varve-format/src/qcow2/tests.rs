//! The layouts of qcow2: bytes that QEMU wrote, round trips, and what is refused.

use super::*;
use proptest::prelude::*;

/// A new image: 64 KiB clusters unless it is said otherwise.
fn header(change: impl FnOnce(&mut NewHeader)) -> Vec<u8> {
    let mut new = NewHeader {
        version: 3,
        cluster_bits: 16,
        size: 1 << 20,
        l1_entries: 1,
        l1_offset: 1 << 16,
        refcount_width: RefcountWidth::DEFAULT,
        extended_l2: false,
        backing: None,
    };
    change(&mut new);
    let mut bytes = new.encode().expect("it has room");
    Header::put_refcount_table(&mut bytes, 2 << new.cluster_bits, 1);
    bytes
}

#[test]
fn a_header_that_qemu_wrote_is_read() {
    // The first bytes of `qemu-img create -f qcow2 -b base.img -F raw -o extended_l2=on image 1G`.
    let mut bytes = vec![0; 1 << 16];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(8, &[0, 0, 0, 0, 0, 0, 2, 0x18, 0, 0, 0, 8, 0, 0, 0, 16]);
    put(24, &[0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 3, 0, 0]);
    put(48, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    put(72, &[0, 0, 0, 0, 0, 0, 0, 16]);
    put(96, &[0, 0, 0, 4, 0, 0, 0, 112]);
    put(112, &[0xe2, 0x79, 0x2a, 0xca, 0, 0, 0, 3, b'r', b'a', b'w', 0, 0, 0, 0, 0]);
    put(0x218, b"base.img");
    let header = Header::decode(&bytes).expect("sound");
    assert_eq!((header.version, header.cluster_size(), header.size), (3, 64 << 10, 1 << 30));
    assert_eq!((header.l1_entries, header.l1_offset, header.l2_entries()), (4, 3 << 16, 4096));
    assert_eq!((header.refcount_table_offset, header.refcount_table_clusters), (1 << 16, 1));
    assert_eq!(
        (header.refcount_width.bits(), header.extended_l2, header.subcluster_size()),
        (16, true, 2048)
    );
    let backing = Backing { name: "base.img".to_owned(), format: Some("raw".to_owned()) };
    assert_eq!(header.backing, Some(backing));
}

#[test]
fn a_new_header_is_read_as_it_was_meant() {
    let backing = Backing { name: "../base".to_owned(), format: Some("qcow2".to_owned()) };
    for (version, bits) in [(2, 4), (3, 0), (3, 6)] {
        let bytes = header(|new| {
            new.version = version;
            new.refcount_width = RefcountWidth::of_order(bits);
            new.backing = Some(backing.clone());
        });
        let header = Header::decode(&bytes).expect("sound");
        assert_eq!((header.version, header.refcount_width.order()), (version, bits));
        assert_eq!(header.backing, Some(backing.clone()));
    }
    let long = Backing { name: "x".repeat(600), format: None };
    let small = NewHeader { cluster_bits: 9, l1_offset: 512, backing: Some(long), ..small() };
    assert_eq!(small.encode(), None, "there is no room in a cluster of 512 bytes");
}

fn small() -> NewHeader {
    NewHeader {
        version: 3,
        cluster_bits: 9,
        size: 512,
        l1_entries: 1,
        l1_offset: 512,
        refcount_width: RefcountWidth::DEFAULT,
        extended_l2: false,
        backing: None,
    }
}

#[test]
fn headers_that_break_a_rule_are_refused() {
    let sound = header(|_| ());
    let refused = |at: usize, value: &[u8]| {
        let mut bytes = sound.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        Header::decode(&bytes).expect_err("refused").to_string()
    };
    assert!(refused(23, &[8]).contains("cluster_bits"), "QHEADER1");
    assert!(refused(23, &[22]).contains("cluster_bits"), "QHEADER1");
    assert!(refused(24, &[1]).contains("l1_size"), "QHEADER2");
    assert!(refused(36, &[255; 4]).contains("l1_size"), "QHEADER2");
    assert!(refused(56, &[255; 4]).contains("refcount_table_clusters"), "QHEADER2");
    assert!(refused(47, &[1]).contains("l1_table_offset"), "QHEADER3");
    assert!(refused(40, &[255; 6]).contains("l1_table_offset"), "QHEADER3");
    assert!(refused(48, &[0; 8]).contains("refcount_table_offset"), "QHEADER3");
    assert!(refused(60, &[255; 4]).contains("nb_snapshots"));
    assert!(refused(72, &[128]).contains("bit 63"), "QHEADER4");
    assert!(refused(79, &[4]).contains("external data file"), "QHEADER4");
    assert!(refused(35, &[2]).contains("LUKS"));
    assert!(refused(99, &[7]).contains("refcount_order"));
    assert!(refused(103, &[113]).contains("header_length"));
    assert!(refused(7, &[4]).contains("version 4"));
    assert!(refused(8, &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 255, 255]).contains("backing_file_size"));
    assert_eq!(Header::decode(&sound[..108]), Err(Qcow2Error::Truncated("the header")));
    assert_eq!(Header::decode(b"QFI"), Err(Qcow2Error::Magic));
}

#[test]
fn an_unknown_feature_is_refused_by_the_name_that_the_image_gives() {
    let mut bytes = header(|_| ());
    bytes[78] = 1;
    bytes[112..120].copy_from_slice(&[0x68, 0x03, 0xf8, 0x57, 0, 0, 0, 48]);
    bytes[120..122].copy_from_slice(&[0, 8]);
    bytes[122..130].copy_from_slice(b"sideways");
    let error = Header::decode(&bytes).expect_err("refused").to_string();
    assert!(error.contains("`sideways` (bit 8)"), "QHEADER4: {error}");
}

#[test]
fn entries_that_break_a_rule_are_refused() {
    let plain = Header::decode(&header(|_| ())).expect("sound");
    let extended = Header::decode(&header(|new| new.extended_l2 = true)).expect("sound");
    let decode = |words: [u64; 2], header: &Header| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Entry::decode(&bytes, 0, header)
    };
    for (words, header) in [
        ([0x200, 0], &plain),
        ([0x1_0002, 0], &plain),
        ([COPIED, 0], &plain),
        ([0x1_0001, 0], &extended),
        ([1 << 62, 0], &plain),
    ] {
        assert!(decode(words, header).is_err(), "QENTRY1: {words:x?}");
    }
    for words in [[0x1_0000, 1 << 32 | 1], [0, 1], [1 << 62 | 0x2_0000, 1]] {
        assert!(decode(words, &extended).is_err(), "QENTRY2: {words:x?}");
    }
    let zero = decode([0x1_0001, 0], &plain).expect("zero, with a place");
    assert_eq!(zero.subclusters, Subclusters { allocated: 0, zero: 1 });
    // 3 sectors from byte 0x20100 on: the first of them has 256 bytes less.
    let compressed = decode([1 << 62 | 2 << 54 | 0x2_0100, 0], &plain).expect("compressed");
    assert_eq!(compressed.cluster, Cluster::Compressed { offset: 0x2_0100, length: 3 * 512 - 256 });
}

proptest! {
    #[test]
    fn entries_come_back(
        extended in any::<bool>(),
        place in 0_u64..9,
        copied in any::<bool>(),
        (allocated, zero) in any::<(u32, u32)>(),
    ) {
        let header = Header::decode(&header(|new| new.extended_l2 = extended)).expect("sound");
        let all = Entry::all(&header);
        let zero = zero & all;
        let allocated = match (extended, place) {
            (_, 0) => 0,
            (true, _) => allocated & !zero,
            (false, _) => u32::from(zero == 0),
        };
        let offset = place << 16;
        let cluster = if place == 0 { Cluster::Absent } else { Cluster::At { offset, copied } };
        let entry = Entry { cluster, subclusters: Subclusters { allocated, zero } };
        let mut table = vec![0; 64];
        entry.encode(&mut table, 2, &header);
        prop_assert_eq!(Entry::decode(&table, 2, &header), Ok(entry), "QENTRY1, QENTRY2");
        prop_assert_eq!(Entry::decode(&table, 1, &header), Ok(Entry::ABSENT));
    }

    #[test]
    fn counts_of_all_widths_come_back(order in 0_u32..7, values in prop::collection::vec(any::<u64>(), 8)) {
        let width = RefcountWidth::of_order(order);
        let mut block = vec![0; 64];
        let values: Vec<u64> = values.iter().map(|value| value & width.count_max()).collect();
        for (at, value) in (0..).zip(&values) {
            set_refcount(&mut block, width, at, *value);
        }
        for (at, value) in (0..).zip(&values) {
            prop_assert_eq!(refcount(&block, width, at), *value);
        }
        prop_assert_eq!(width.counts_in(64) * u64::from(width.bits()), 512);
    }

    #[test]
    fn bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 512), at in 0_usize..120, value: u8) {
        bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        let _ = Header::decode(&bytes);
        let mut changed = header(|_| ());
        changed[at] = value;
        if let Ok(header) = Header::decode(&changed) {
            let _ = decode_snapshots(&bytes, &header);
            prop_assert!(header.l1_entries_needed() <= header.l1_entries.into(), "QHEADER2");
        }
    }
}
