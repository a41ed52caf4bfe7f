//! Slots of the metadata ring, and rings full of them, damaged and made to look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_block::Extent;
use varve_format::slot::{HEADER_SIZE, LAYOUT};
use varve_format::{BLOCK_SIZE, RING_BLOCKS_MIN, RingContent, Slot, SlotHeader, slot_length, version_of};
use varve_fuzz::{field, seal};

const ADDRESS: u64 = 1 << 16;

/// Gives the slot at the front of `bytes` the checksums and the version that its content calls for.
fn make_whole(bytes: &mut [u8]) {
    field(&LAYOUT, "address").put_u64(bytes, ADDRESS);
    let length = field(&LAYOUT, "text_length").u32(bytes) as usize;
    let end = HEADER_SIZE.saturating_add(length);
    let whole = slot_length(length);
    if end <= bytes.len() && whole <= bytes.len() as u64 {
        let body = crc32c::crc32c(&bytes[HEADER_SIZE..whole as usize]);
        field(&LAYOUT, "body_checksum").put_u32(bytes, body);
        if let Ok(text) = std::str::from_utf8(&bytes[HEADER_SIZE..end]) {
            let previous = field(&LAYOUT, "previous").uuid(bytes);
            let previous = (!previous.is_nil()).then_some(previous);
            let (vg, sequence) =
                (field(&LAYOUT, "volume_group").uuid(bytes), field(&LAYOUT, "sequence").u64(bytes));
            let version = version_of(vg, sequence, previous, text);
            field(&LAYOUT, "version").put_uuid(bytes, version);
        }
    }
    seal(&LAYOUT, &mut bytes[..HEADER_SIZE]);
}

fuzz_target!(|data: &[u8]| {
    let ring = Extent::new(ADDRESS, RING_BLOCKS_MIN * BLOCK_SIZE);
    let mut bytes = data[..data.len().min(ring.length as usize)].to_vec();
    bytes.resize(ring.length as usize, 0);
    let _ = Slot::decode(&bytes, ADDRESS);
    make_whole(&mut bytes);
    if let Ok(slot) = Slot::decode(&bytes, ADDRESS) {
        let encoded = slot.encode(ADDRESS);
        assert!(bytes.starts_with(&encoded), "one slot has one form");
    }
    if let Ok(header) = SlotHeader::decode(&bytes, ADDRESS) {
        let content = RingContent::find(&bytes, ring, header.vg, header.pv);
        assert!(content.slots.iter().all(|placed| ring.contains(placed.extent)), "RING1");
    }
});
