//! Entry blocks and their entries: golden bytes, round trips, damage, contradictions, noise.

use super::*;
use crate::store::{Descriptor, Mapping, NUMBER_MAX, ORIGIN_SIZE_MAX, STORE_SIZE_MAX, ZEROS};
use proptest::prelude::*;
use varve_block::{Extent, UnixTime};

fn sample() -> EntryBlock {
    let mapping = |offset, length, place| Mapping { snapshot: 5, extent: Extent::new(offset, length), place };
    EntryBlock {
        kind: BlockKind::Log,
        store: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        generation: 3,
        epoch: 0x0e,
        address: 0x10_0000,
        sequence: 0x0102,
        next: 0x11_0000,
        entries: vec![
            Entry::Preserved { mapping: mapping(0x2_0000, 0x1_0000, 0x10_1000), checksum: 0xa1b2_c3d4 },
            Entry::Written(mapping(0x1000, 0x1000, ZEROS)),
            Entry::Created(Descriptor {
                id: 6,
                name: "nightly.7".into(),
                created: UnixTime(0x1234_5678),
                size: 1 << 30,
                read_only: true,
                held: false,
                base: false,
            }),
            Entry::Flags { snapshot: 6, read_only: false, held: true, base: false },
            Entry::Removed(5),
            Entry::RollbackBegun { snapshot: 6, boundary: 9 },
            Entry::Restored { snapshot: 6, extent: Extent::new(0x3000, 0x2000) },
            Entry::RollbackEnded(6),
            Entry::Bytes { snapshot: 6, preserved: 0x1000, written: 0x2000 },
            Entry::Dropped { snapshot: 6, extent: Extent::new(0x4000, 0x1000) },
            Entry::Renamed { snapshot: 6, name: "weekly".into() },
        ],
    }
}

fn bytes(block: &EntryBlock) -> Vec<u8> {
    let mut bytes = vec![0xee; SIZE];
    block.encode(&mut bytes);
    bytes
}

#[test]
fn golden_bytes() {
    let mut expected = vec![0; SIZE];
    expected[..8].copy_from_slice(b"VARVE\xffSL");
    expected[8] = 5;
    expected[12..14].copy_from_slice(&[88, 1]);
    expected[18] = 0x10;
    expected[24] = 3;
    expected[32..48].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    expected[48..50].copy_from_slice(&[2, 1]);
    expected[58] = 0x11;
    let entries = &mut expected[64..];
    // Preserved.
    entries[..8].copy_from_slice(&[1, 0, 40, 0, 0xd4, 0xc3, 0xb2, 0xa1]);
    entries[8] = 5;
    entries[18] = 2;
    entries[26] = 1;
    entries[33..35].copy_from_slice(&[0x10, 0x10]);
    // Written, zeros.
    entries[40..44].copy_from_slice(&[2, 0, 40, 0]);
    entries[48] = 5;
    entries[57] = 0x10;
    entries[65] = 0x10;
    // Created: 40 bytes and a name of 9, padded to 16.
    entries[80..84].copy_from_slice(&[3, 0, 56, 0]);
    entries[88] = 6;
    entries[96..100].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]);
    entries[107] = 0x40;
    entries[112] = 1;
    entries[116] = 9;
    entries[120..129].copy_from_slice(b"nightly.7");
    // Flags, removed, rollback begun, restored, rollback ended.
    entries[136..140].copy_from_slice(&[5, 0, 24, 0]);
    entries[144] = 6;
    entries[152] = 2;
    entries[160..164].copy_from_slice(&[4, 0, 16, 0]);
    entries[168] = 5;
    entries[176..180].copy_from_slice(&[6, 0, 24, 0]);
    entries[184] = 6;
    entries[192] = 9;
    entries[200..204].copy_from_slice(&[9, 0, 32, 0]);
    entries[208] = 6;
    entries[217] = 0x30;
    entries[225] = 0x20;
    entries[232..236].copy_from_slice(&[7, 0, 16, 0]);
    entries[240] = 6;
    // Bytes.
    entries[248..252].copy_from_slice(&[8, 0, 32, 0]);
    entries[256] = 6;
    (entries[265], entries[273]) = (0x10, 0x20);
    // Dropped.
    entries[280..284].copy_from_slice(&[10, 0, 32, 0]);
    entries[288] = 6;
    (entries[297], entries[305]) = (0x40, 0x10);
    // Renamed.
    entries[312..316].copy_from_slice(&[11, 0, 32, 0]);
    (entries[320], entries[328]) = (6, 6);
    entries[336..342].copy_from_slice(b"weekly");
    expected[4088] = 0x0e;
    expected[4092..].copy_from_slice(&GOLDEN_CHECKSUM);
    assert!(bytes(&sample()) == expected, "the layout has changed");
}
const GOLDEN_CHECKSUM: [u8; 4] = [0xc8, 0x9d, 0x2a, 0x83];

#[test]
fn every_single_bit_of_damage_is_refused() {
    let mut block = bytes(&sample());
    for bit in 0..block.len() * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(EntryBlock::decode(&block, BlockKind::Log, 0x10_0000).is_err(), "BLOCK1: bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_block_of_another_place_or_chain_is_refused() {
    let block = bytes(&sample());
    let elsewhere = EntryBlock::decode(&block, BlockKind::Log, 0x20_0000);
    assert_eq!(elsewhere, Err(StoreFormatError::Misplaced(0x10_0000)));
    let found = EntryBlock::decode(&block, BlockKind::Log, 0x10_0000).expect("it is there");
    let (generation, sequence) = (sample().generation, sample().sequence);
    assert_eq!((found.generation, found.sequence), (generation, sequence), "BLOCK2: what a reader compares");
    let other = EntryBlock::decode(&block, BlockKind::Table, 0x10_0000);
    assert_eq!(other, Err(StoreFormatError::Absent));
}

#[test]
fn contradictions_are_refused_with_a_sound_checksum() {
    // (byte in the block, its new value)
    let cases: &[(usize, u8)] = &[
        (8, 6),           // a newer version
        (8, 4),           // an older version
        (12, 16),         // entries cut off
        (13, 2),          // and more than there are
        (64, 99),         // an unknown kind
        (66, 48),         // a wrong length
        (72, 0),          // ENTRY3: snapshot 0
        (76, 1),          // ENTRY3: an id of more than 32 bits
        (81, 1),          // ENTRY1: offset not whole
        (64 + 26, 0),     // ENTRY1: nothing
        (64 + 33, 1),     // ENTRY2: place not whole
        (64 + 40 + 4, 1), // ENTRY4: a checksum where none is
        (31, 0x80),       // BLOCK5: a generation that cannot be counted on
        (55, 0x80),       // BLOCK5: a record's number that cannot be either
        (64 + 104, 1),    // ENTRY6: a snapshot's size, not whole
        (64 + 112, 8),    // ENTRY4: an unknown flag
        (64 + 116, 200),  // a name that is too long
        (64 + 120, b'/'), // a name that is none
        (64 + 130, 1),    // ENTRY4: padding
        (64 + 156, 1),    // ENTRY4: reserved
        (64 + 192, 6),    // ENTRY5: a boundary that is not newer
        (64 + 197, 1),    // ENTRY5: a boundary beyond all ids
        (64 + 224, 1),    // ENTRY1: restored, not whole
        (64 + 225, 0),    // ENTRY1: restored, nothing
        (64 + 296, 1),    // ENTRY1: dropped, not whole
        (64 + 305, 0),    // ENTRY1: dropped, nothing
        (4000, 1),        // BLOCK4: something behind the entries
    ];
    for (at, value) in cases {
        let mut block = bytes(&sample());
        assert_ne!(block[*at], *value, "byte {at} is no case");
        block[*at] = *value;
        CHECKSUM.seal(&mut block);
        assert!(EntryBlock::decode(&block, BlockKind::Log, 0x10_0000).is_err(), "byte {at} = {value}");
    }
    let mut last = bytes(&sample());
    NEXT.put_u64(&mut last, 0);
    CHECKSUM.seal(&mut last);
    assert!(EntryBlock::decode(&last, BlockKind::Log, 0x10_0000).is_err(), "BLOCK3: a log has no end");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let mapping = (1_u64..1 << 32, 0_u64..1 << 40, 1_u64..256, 2_u64..1 << 40).prop_map(
        |(snapshot, offset, length, place)| Mapping {
            snapshot,
            extent: Extent::new(offset * PART_SIZE, length * PART_SIZE),
            place: place * PART_SIZE,
        },
    );
    let descriptor = (1_u64..1 << 32, "[a-z0-9][a-z0-9.+-]{0,126}", any::<(u64, u64, bool, bool, bool)>())
        .prop_map(|(id, name, (created, size, read_only, held, base))| Descriptor {
            id,
            name,
            created: UnixTime(created),
            size: size % ORIGIN_SIZE_MAX / PART_SIZE * PART_SIZE,
            read_only,
            held,
            base,
        });
    prop_oneof![
        (mapping.clone(), any::<u32>())
            .prop_map(|(mapping, checksum)| Entry::Preserved { mapping, checksum }),
        mapping.prop_map(Entry::Written),
        descriptor.prop_map(Entry::Created),
        (1_u64..1 << 32).prop_map(Entry::Removed),
        (1_u64..1 << 32, any::<[bool; 3]>()).prop_map(|(snapshot, [read_only, held, base])| Entry::Flags {
            snapshot,
            read_only,
            held,
            base
        }),
        (1_u64..1 << 32, "[a-z][a-z0-9]{0,127}")
            .prop_map(|(snapshot, name)| Entry::Renamed { snapshot, name }),
        (1_u64..(1 << 32) - 1).prop_map(|snapshot| Entry::RollbackBegun { snapshot, boundary: snapshot + 1 }),
        (1_u64..1 << 32, 0_u64..1 << 40, 1_u64..1 << 40).prop_map(|(snapshot, first, count)| {
            Entry::Restored { snapshot, extent: Extent::new(first * PART_SIZE, count * PART_SIZE) }
        }),
        (1_u64..1 << 32, 0_u64..1 << 40, 1_u64..1 << 40).prop_map(|(snapshot, first, count)| {
            Entry::Dropped { snapshot, extent: Extent::new(first * PART_SIZE, count * PART_SIZE) }
        }),
        (1_u64..1 << 32).prop_map(Entry::RollbackEnded),
        (1_u64..1 << 32, any::<(u64, u64)>()).prop_map(|(snapshot, (preserved, written))| Entry::Bytes {
            snapshot,
            preserved: preserved % STORE_SIZE_MAX,
            written: written % STORE_SIZE_MAX,
        }),
    ]
}

proptest! {
    #[test]
    fn blocks_survive_the_round_trip(
        log: bool, store: u128, generation in 0..=NUMBER_MAX, sequence in 0..=NUMBER_MAX, epoch: u32, ends in (2_u64..1 << 50, 2_u64..1 << 50),
        entries in prop::collection::vec(any_entry(), 0..24),
    ) {
        let block = EntryBlock {
            kind: if log { BlockKind::Log } else { BlockKind::Table },
            store: Uuid::from_u128(store),
            generation, epoch, sequence, entries,
            address: ends.0 * PART_SIZE,
            next: if !log && ends.1 % 2 == 0 { 0 } else { ends.1 * PART_SIZE },
        };
        prop_assert_eq!(EntryBlock::decode(&bytes(&block), block.kind, block.address), Ok(block));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(mut block in prop::collection::vec(any::<u8>(), SIZE), length in 0_u32..4100) {
        MAGIC.put(&mut block, MAGIC_LOG);
        VERSION.put_u32(&mut block, STORE_VERSION);
        ADDRESS.put_u64(&mut block, 8192);
        ENTRY_BYTES.put_u32(&mut block, length);
        block[64] = length as u8 % 8;
        block[65] = 0;
        block[66] = 40;
        block[67] = 0;
        let end = (64 + length as usize).min(4088);
        block[end..4088].fill(0);
        CHECKSUM.seal(&mut block);
        let _ = EntryBlock::decode(&block, BlockKind::Log, 8192);
    }
}
