//! Superblocks, log records and pages of checksums of an array, damaged and made to look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::array::{
    BLOCK_SIZE, CHECKSUM_PAGE_LAYOUT, ChecksumPage, RECORD_LAYOUT, Record, SLOT_SIZE, SUPERBLOCK_LAYOUT,
    Superblock,
};
use varve_fuzz::{field, seal_whole};

/// Whole blocks that begin with `data`, as many as fit a slot.
fn blocks(data: &[u8]) -> Vec<u8> {
    let (block, slot) = (BLOCK_SIZE as usize, SLOT_SIZE as usize);
    let mut bytes = data[..data.len().min(slot)].to_vec();
    bytes.resize(bytes.len().max(block).next_multiple_of(block), 0);
    bytes
}

fn superblock(data: &[u8]) {
    let mut bytes = blocks(data);
    let address = field(&SUPERBLOCK_LAYOUT, "address").u64(&bytes);
    let _ = (Superblock::claims(&bytes, address), Superblock::decode(&bytes, address));
    seal_whole(&SUPERBLOCK_LAYOUT, &mut bytes);
    if let Ok(superblock) = Superblock::decode(&bytes, address) {
        assert_eq!(superblock.check(), Ok(()));
        assert_eq!(Superblock::claims(&bytes, address), Some(bytes.len()), "it says how long it is");
        let mut again = vec![0; bytes.len()];
        superblock.encode(&mut again);
        assert!(again == bytes, "one superblock has one form");
    }
}

fn record(data: &[u8]) {
    let mut bytes = blocks(data);
    let _ = (Record::claims(&bytes, 0), Record::decode(&bytes));
    seal_whole(&RECORD_LAYOUT, &mut bytes);
    if let Ok(record) = Record::decode(&bytes) {
        assert_eq!(record.blocks() * BLOCK_SIZE, bytes.len() as u64, "it says how long it is");
        let mut again = vec![0; bytes.len()];
        record.encode(&mut again);
        assert!(again == bytes, "one record has one form");
    }
}

fn checksum_page(data: &[u8]) {
    let mut bytes = blocks(&data[..data.len().min(BLOCK_SIZE as usize)]);
    let _ = ChecksumPage::decode(&bytes);
    seal_whole(&CHECKSUM_PAGE_LAYOUT, &mut bytes);
    if let Ok(page) = ChecksumPage::decode(&bytes) {
        let mut again = vec![0; bytes.len()];
        page.encode(&mut again);
        assert!(again == bytes, "one page has one form");
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    match kind % 4 {
        0 | 2 => superblock(data),
        1 => record(data),
        _ => checksum_page(data),
    }
});
