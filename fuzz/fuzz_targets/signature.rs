//! The ends of a foreign disk: zeros, with patches at any place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::{HEAD_LENGTH, TAIL_LENGTH, find_signature};

/// `patches` are runs of: 3 bytes of place, 1 byte of length, that many bytes.
fn patched(length: usize, mut patches: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; length];
    while let [one, two, three, count, rest @ ..] = patches {
        let place = usize::from(*one) | usize::from(*two) << 8 | usize::from(*three) << 16;
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*count)));
        if let Some(target) = disk.get_mut(place..place + bytes.len()) {
            target.copy_from_slice(bytes);
        }
        patches = rest;
    }
    disk
}

fuzz_target!(|data: &[u8]| {
    let [choice, size @ ..] = data else { return };
    let Some((size, patches)) = size.split_first_chunk::<8>() else { return };
    let size = u64::from_le_bytes(*size);
    // A third of the disks is smaller than its two ends together.
    let size = if choice % 3 == 0 { size % (3 << 20) } else { size };
    let (head, tail) = match choice & 4 {
        0 => (patches, &[][..]),
        _ => patches.split_at(patches.len() / 2),
    };
    let head = patched(size.min(HEAD_LENGTH) as usize, head);
    let tail = patched(size.min(TAIL_LENGTH) as usize, tail);
    if let Some(signature) = find_signature(&head, &tail, size) {
        assert!(signature.offset < size, "a signature lies on the disk");
    }
});
