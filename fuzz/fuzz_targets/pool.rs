//! Superblocks, records and map entries of a thin pool, damaged and made to look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::pdata::Block;
use varve_format::thin::{
    BACKUP_LAYOUT, BackupHeader, MAPPING_LAYOUT, Mapping, RECORD_LAYOUT, Record, SHARE_LAYOUT,
    SUPERBLOCK_LAYOUT, Share, Superblock, VolumeRows,
};
use varve_fuzz::{block, field, seal_whole};

fn superblock(data: &[u8]) {
    let mut slot = block(&SUPERBLOCK_LAYOUT, data);
    let address = Block::new(field(&SUPERBLOCK_LAYOUT, "address").u64(&slot));
    let _ = Superblock::decode(&slot, address);
    seal_whole(&SUPERBLOCK_LAYOUT, &mut slot);
    if let Ok(superblock) = Superblock::decode(&slot, address) {
        assert_eq!(superblock.check(), Ok(()));
        let mut again = vec![0; slot.len()];
        superblock.encode(&mut again, address);
        assert_eq!(Superblock::decode(&again, address), Ok(superblock), "what is written can be read");
    }
}

fn record(data: &[u8]) {
    let mut bytes = block(&RECORD_LAYOUT, data);
    let _ = Record::decode(&bytes);
    seal_whole(&RECORD_LAYOUT, &mut bytes);
    if let Ok(record) = Record::decode(&bytes) {
        let mut again = vec![0; bytes.len()];
        record.encode(&mut again);
        assert!(again == bytes, "one record has one form");
    }
}

/// A header with an index behind it.
fn kept(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(data.len().max(BACKUP_LAYOUT.size).next_multiple_of(BACKUP_LAYOUT.size), 0);
    let _ = BackupHeader::decode(&bytes);
    seal_whole(&BACKUP_LAYOUT, &mut bytes);
    if let Ok(kept) = BackupHeader::decode(&bytes) {
        assert!(kept.encode() == bytes, "what was kept has one form");
    }
}

/// Keys and values of 16 bytes each, as a map hands them out.
fn entries(data: &[u8]) {
    let rows: Vec<(u128, [u8; 16])> = data
        .chunks_exact(32)
        .map(|row| {
            let (key, value) = row.split_at(16);
            let key = u128::from_be_bytes(key.try_into().expect("16 bytes"));
            (key, value.try_into().expect("16 bytes"))
        })
        .collect();
    for (key, value) in &rows {
        let _ = Mapping::decode(*key, value);
        let _ = Share::decode(*key, value);
    }
    if let Some((key, _)) = rows.first() {
        let volume = u64::try_from(key >> 64).expect("half of a key");
        if let Ok(volume) = VolumeRows::decode(volume, &rows) {
            assert!(volume.encode() == rows, "a volume has one form");
        }
    }
    assert_eq!((MAPPING_LAYOUT.size, SHARE_LAYOUT.size), (32, 32), "an entry of a leaf");
}

fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    match kind % 4 {
        0 => superblock(data),
        1 => record(data),
        3 => kept(data),
        _ => entries(data),
    }
});
