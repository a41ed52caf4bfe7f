//! Superblocks and entry blocks of an exception store, damaged and made to look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::store::{BLOCK_LAYOUT, BlockKind, EntryBlock, SUPERBLOCK_LAYOUT, Superblock};
use varve_fuzz::{block, field, seal};

fn superblock(data: &[u8]) {
    let mut block = block(&SUPERBLOCK_LAYOUT, data);
    let address = field(&SUPERBLOCK_LAYOUT, "address").u64(&block);
    let _ = Superblock::decode(&block, address);
    seal(&SUPERBLOCK_LAYOUT, &mut block);
    if let Ok(superblock) = Superblock::decode(&block, address) {
        assert_eq!(superblock.check(), Ok(()));
        assert!(superblock.encode(address) == block, "one superblock has one form");
    }
}

fn entries(data: &[u8], kind: BlockKind) {
    let mut block = block(&BLOCK_LAYOUT, data);
    let address = field(&BLOCK_LAYOUT, "address").u64(&block);
    let _ = EntryBlock::decode(&block, kind, address);
    seal(&BLOCK_LAYOUT, &mut block);
    if let Ok(found) = EntryBlock::decode(&block, kind, address) {
        let mut again = vec![0; block.len()];
        found.encode(&mut again);
        assert_eq!(EntryBlock::decode(&again, kind, address), Ok(found), "what is written can be read");
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    match kind % 3 {
        0 => superblock(data),
        1 => entries(data, BlockKind::Log),
        _ => entries(data, BlockKind::Table),
    }
});
