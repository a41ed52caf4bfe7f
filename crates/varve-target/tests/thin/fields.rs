//! Changes of single fields of a pool's metadata on its device, with the right checksums: what a faulty disk may hold, or an
//! attacker may write to it, though no pool would ever write it.
//!
//! It needs nothing but the formats and reads and writes of blocks of 4 KiB ([`Blocks`]), so that whole programs can be
//! tested with it too.

use std::collections::BTreeSet;
use varve_format::Layout;
use varve_format::pdata::Block;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{self, Entries, LEAF_ENTRY, Node};
use varve_format::pdata::space_page;
use varve_format::pdata::space_page::{GROUP_BLOCKS, Place};
use varve_format::thin::{
    ENTRY_LAYOUT, MAPPING_LAYOUT, RECORD_LAYOUT, Record, SHARE_LAYOUT, SUPERBLOCK_LAYOUT, Superblock,
    VOLUME_LAYOUT,
};

const SIZE: usize = 4096;
/// No device has more blocks.
const BLOCKS_MAX: u64 = 1 << 50;

/// The device of an offline pool, in blocks of 4 KiB.
pub(crate) trait Blocks {
    fn read(&self, block: u64) -> Vec<u8>;
    fn write(&mut self, block: u64, bytes: &[u8]);
}

/// What is in a block, as far as its fields and its checksum go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Superblock,
    Record,
    Volumes,
    Shares,
    Mappings,
    Page,
}

/// A metadata block that the last checkpoint, or the log behind it, leads to.
struct Found {
    block: u64,
    /// So many blocks have one checksum.
    blocks: u64,
    kind: Kind,
}

/// Changes one field of one block of the pool's metadata. `bits` gives random numbers. What was changed, in words; none if
/// there is no pool.
pub(crate) fn change_field(blocks: &mut dyn Blocks, bits: &mut dyn FnMut() -> u64) -> Option<String> {
    let found = metadata(blocks)?;
    // Kinds first: there are many more leaves than superblocks.
    let kinds = [
        Kind::Superblock,
        Kind::Record,
        Kind::Volumes,
        Kind::Shares,
        Kind::Mappings,
        Kind::Mappings,
        Kind::Page,
    ];
    let one = loop {
        let kind = kinds[pick(bits, kinds.len())];
        let of_kind: Vec<&Found> = found.iter().filter(|found| found.kind == kind).collect();
        if !of_kind.is_empty() {
            break of_kind[pick(bits, of_kind.len())];
        }
    };
    let mut bytes: Vec<u8> = (0..one.blocks).flat_map(|at| blocks.read(one.block + at)).collect();
    let (offset, size, name) = field(one.kind, &bytes, bits);
    let (old, new) = change(&mut bytes, offset, size, bits);
    if one.kind == Kind::Page && pick(bits, 4) > 0 {
        count_used(&mut bytes);
    }
    seal(one.kind, &mut bytes);
    for (at, block) in (one.block..).zip(bytes.chunks(SIZE)) {
        blocks.write(at, block);
    }
    Some(format!("{:?} in block {}: {name} at {offset}: {old:#x} becomes {new:#x}", one.kind, one.block))
}

fn pick(bits: &mut dyn FnMut() -> u64, length: usize) -> usize {
    usize::try_from(bits() % length as u64).expect("small")
}

/// All metadata that counts.
fn metadata(blocks: &dyn Blocks) -> Option<Vec<Found>> {
    let mut found = Vec::new();
    let mut newest: Option<Superblock> = None;
    let mut address = 0;
    while address <= 128 {
        let at = Block::new(address);
        let length = Superblock::slot_length(&blocks.read(address), at);
        if let Some(length) = length {
            let slot: Vec<u8> = (address..address + length).flat_map(|at| blocks.read(at)).collect();
            if let Ok(superblock) = Superblock::decode(&slot, at) {
                found.push(Found { block: address, blocks: length, kind: Kind::Superblock });
                newest = newest.filter(|newest| newest.number > superblock.number).or(Some(superblock));
            }
        }
        address = if address == 0 { 1 } else { address * 2 };
    }
    let newest = newest?;
    let base = newest.base_block().number();
    for block in newest.ring().number()..base {
        let claims = Record::claims(&blocks.read(block), newest.pool.as_u64_pair().0);
        if let Some((sequence, length)) = claims.filter(|(sequence, _)| *sequence >= newest.sequence)
            && block + length <= base
        {
            assert!(sequence > 0, "records are counted from 1");
            found.push(Found { block, blocks: length, kind: Kind::Record });
        }
    }
    for (group, place) in (0..).zip(&newest.places) {
        let first = base + group * GROUP_BLOCKS;
        match place {
            Place::Never => {}
            Place::First => found.push(Found { block: first, blocks: 1, kind: Kind::Page }),
            Place::Second => found.push(Found { block: first + 1, blocks: 1, kind: Kind::Page }),
        }
    }
    let mut seen = BTreeSet::new();
    nodes(blocks, newest.shares, Kind::Shares, &mut seen, &mut found);
    let table = nodes(blocks, newest.volumes, Kind::Volumes, &mut seen, &mut found);
    for (key, value) in table {
        if key << 64 == 0 {
            let root = Link::unpack(u64::from_le_bytes(value[..8].try_into().expect("8 bytes")));
            nodes(blocks, root, Kind::Mappings, &mut seen, &mut found);
        }
    }
    Some(found)
}

/// The nodes below `root`, and all entries of their leaves.
fn nodes(
    blocks: &dyn Blocks,
    root: Link,
    kind: Kind,
    seen: &mut BTreeSet<u64>,
    found: &mut Vec<Found>,
) -> Vec<(node::Key, node::Value)> {
    let (mut ahead, mut leaves) = (vec![root.block()], Vec::new());
    while let Some(block) = ahead.pop() {
        let number = block.number();
        if number == 0 || number >= BLOCKS_MAX || !seen.insert(number) {
            continue;
        }
        let Ok(node) = Node::decode(&blocks.read(number), block) else { continue };
        found.push(Found { block: number, blocks: 1, kind });
        match node.entries {
            Entries::Branch(children) => ahead.extend(children.iter().map(|child| child.1.block())),
            Entries::Leaf(entries) => leaves.extend(entries),
        }
    }
    leaves
}

/// A field of a block: where it is, how long, and what it is called.
fn field(kind: Kind, bytes: &[u8], bits: &mut dyn FnMut() -> u64) -> (usize, usize, String) {
    let in_head = pick(bits, 4) == 0;
    match kind {
        Kind::Superblock => of(&SUPERBLOCK_LAYOUT, 0, bits),
        Kind::Page if in_head => of(&space_page::LAYOUT, 0, bits),
        Kind::Page => {
            // The space behind a small pool is never looked at.
            (64 + pick(bits, 256), 1, "bits".to_owned())
        }
        Kind::Record if in_head => of(&RECORD_LAYOUT, 0, bits),
        Kind::Record => {
            let (mut at, mut starts) = (64, Vec::new());
            while at + ENTRY_LAYOUT.size <= bytes.len() && bytes[at] != 0 {
                starts.push(at);
                at += ENTRY_LAYOUT.size + usize::from(bytes[at + 1]).next_multiple_of(8);
            }
            match starts.len() {
                0 => of(&RECORD_LAYOUT, 0, bits),
                count => of(&ENTRY_LAYOUT, starts[pick(bits, count)], bits),
            }
        }
        Kind::Volumes | Kind::Shares | Kind::Mappings => {
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            let (level, count) = (number(32), number(36) as usize);
            if in_head || count == 0 {
                return of(&node::LAYOUT, 0, bits);
            }
            let entry = pick(bits, count);
            if level > 0 {
                return of(&node::BRANCH_ENTRY, 64 + entry * node::BRANCH_ENTRY.size, bits);
            }
            let start = 64 + entry * LEAF_ENTRY.size;
            match kind {
                Kind::Mappings => of(&MAPPING_LAYOUT, start, bits),
                Kind::Shares => of(&SHARE_LAYOUT, start, bits),
                _ => of_volume(start, &bytes[start..start + 16], bits),
            }
        }
    }
}

/// A field of a structure that begins at `start`; not its magic, and no checksum: that is made right again.
fn of(layout: &Layout, start: usize, bits: &mut dyn FnMut() -> u64) -> (usize, usize, String) {
    let may_change = |name: &str| !["magic", "checksum", "version"].contains(&name);
    let fields: Vec<_> = layout.fields.iter().filter(|field| may_change(field.name)).collect();
    let field = fields[pick(bits, fields.len())];
    let size = field.size.min(8);
    let within = if field.size > 16 { pick(bits, field.size - size) } else { 0 };
    (start + field.offset + within, size, field.name.to_owned())
}

/// A field of the entry of a volume that begins at `start`, by the number of the entry in its key.
fn of_volume(start: usize, key: &[u8], bits: &mut dyn FnMut() -> u64) -> (usize, usize, String) {
    let number = usize::from(key[0]);
    let fields = VOLUME_LAYOUT.fields.iter();
    let own = fields.filter(|field| field.offset / 16 == number && number < 7 && field.size < 16);
    let own: Vec<_> = own.collect();
    if own.is_empty() || pick(bits, 6) == 0 {
        return of(&LEAF_ENTRY, start, bits);
    }
    let field = own[pick(bits, own.len())];
    (start + 16 + field.offset % 16, field.size, field.name.to_owned())
}

/// Changes a number; what it was and is.
fn change(bytes: &mut [u8], offset: usize, size: usize, bits: &mut dyn FnMut() -> u64) -> (u64, u64) {
    assert!((1..=8).contains(&size), "a number of at most 8 bytes");
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let most = u64::MAX >> (64 - size * 8);
    let old = number(bytes, offset, size);
    let small = 1 + bits() % 8;
    let new = match pick(bits, 12) {
        0..=2 => old.wrapping_add(1),
        3..=5 => old.wrapping_sub(1),
        6 => 0,
        7 => most,
        8 => old ^ 1 << pick(bits, size * 8),
        9 => bits() % 2048,
        10 => old.wrapping_add(small),
        _ => number(bytes, 64 + 8 * pick(bits, 100), size),
    } & most;
    bytes[offset..offset + size].copy_from_slice(&new.to_le_bytes()[..size]);
    (old, new)
}

/// The number of blocks in use of a page is what its bits say.
fn count_used(page: &mut [u8]) {
    let used: u32 = page[64..].iter().map(|byte| byte.count_ones()).sum();
    page[40..44].copy_from_slice(&used.to_le_bytes());
}

fn seal(kind: Kind, bytes: &mut [u8]) {
    let at = if kind == Kind::Superblock { 12 } else { 4 };
    bytes[at..at + 4].fill(0);
    let checksum = crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    };
    !bytes.iter().fold(!0, step)
}
