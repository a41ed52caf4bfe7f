//! A store's metadata as text, and back: for people who look, and for repair by hand.
//!
//! The first line says what it is; then one thing a line, words separated by spaces, all numbers decimal and in bytes:
//!
//! ```text
//! varve-exception-store 1
//! store UUID generation N chunk N size N next N
//! snapshot ID NAME created N size N [read-only] [held]
//! preserved ID OFFSET BYTES PLACE
//! written ID OFFSET BYTES PLACE      (place 0: zeros)
//! removed ID
//! rollback ID BOUNDARY               (begun; snapshots from that id on came later)
//! restored ID OFFSET BYTES           (of that rollback)
//! ```
//!
//! Content is not in it: a restored store must have it at the same places.
//!
//! Invariants:
//! - X1. What is restored says the same as the text: nothing in it is dropped, whatever does not fit is an error.
//! - X2. Metadata is restored to places that no content has.

use super::checkpoint::{pack, write_blocks};
use super::contents::Contents;
use super::recover::{load, newest_superblock, space_between};
use super::{StoreError, usable_size};
use std::fmt::Write;
use varve_block::{Arena, Device, Durability, Extent, UnixTime, ZeroOptions, is_aligned};
use varve_format::store::{
    BlockKind, CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, Descriptor, Entry, EntryBlock, FIRST_ADDRESS, Mapping,
    PART_SIZE, Superblock, Uuid,
};

const TITLE: &str = "varve-exception-store 1";

/// The metadata of the store on `device`, as text. Writes nothing.
pub async fn dump_store(device: &Device, arena: &Arena) -> Result<String, StoreError> {
    let loaded = load(device, arena, false).await?;
    let Superblock { generation, store, chunk_size, store_size, .. } = loaded.superblock;
    let next = loaded.contents.next_snapshot;
    let mut text = format!(
        "{TITLE}\nstore {store} generation {generation} chunk {chunk_size} size {store_size} next {next}\n"
    );
    for entry in loaded.contents.entries() {
        push_line(&mut text, &entry);
    }
    Ok(text)
}

fn push_line(text: &mut String, entry: &Entry) {
    let mapping = |word: &str, Mapping { snapshot, extent, place }: &Mapping| {
        format!("{word} {snapshot} {} {} {place}", extent.offset, extent.length)
    };
    let line = match entry {
        Entry::Preserved { mapping: preserved, .. } => mapping("preserved", preserved),
        Entry::Written(written) => mapping("written", written),
        Entry::Created(Descriptor { id, name, created, size, read_only, held }) => {
            let flags = [(*read_only, " read-only"), (*held, " held")];
            let flags: String = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
            format!("snapshot {id} {name} created {} size {size}{flags}", created.0)
        }
        Entry::Removed(id) => format!("removed {id}"),
        Entry::RollbackBegun { snapshot, boundary } => format!("rollback {snapshot} {boundary}"),
        Entry::Restored { snapshot, extent } => {
            format!("restored {snapshot} {} {}", extent.offset, extent.length)
        }
        Entry::Flags { .. } | Entry::RollbackEnded(_) => unreachable!("the shortest log has none"),
    };
    writeln!(text, "{line}").expect("a string takes everything");
}

/// Writes the metadata that `text` says to `device`, whose content lies where the text says, in place of any that
/// was there. To be used on a copy: what was there is lost.
pub async fn restore_store(device: &Device, arena: &Arena, text: &str) -> Result<(), StoreError> {
    let (head, contents) = parse(text)?;
    let size = usable_size(device.shape().size);
    if head.store_size > size {
        return Err(StoreError::Misfit("the exception store is shorter than it was"));
    }
    let known = newest_superblock(device, arena).await.map_or(0, |superblock| superblock.generation);
    let mut owned = vec![Extent::new(0, FIRST_ADDRESS)];
    owned.extend(contents.map.places());
    owned.sort_unstable();
    let mut space = space_between(&owned, size)?; // X2
    let generation = head.generation.max(known) + 1;
    let packed = pack(contents.entries());
    let mut places = Vec::new();
    for _ in 0..=packed.len() {
        places.push(space.take_back(PART_SIZE).ok_or(StoreError::NoSpace)?.offset);
    }
    let log = places.pop().expect("one more than the blocks");
    let block = |(position, entries): (usize, Vec<Entry>)| EntryBlock {
        kind: BlockKind::Checkpoint,
        store: head.store,
        generation,
        address: places[position],
        sequence: position as u64,
        next: places.get(position + 1).copied().unwrap_or(0),
        entries,
    };
    let blocks: Vec<EntryBlock> = packed.into_iter().enumerate().map(block).collect();
    let superblock = Superblock {
        generation,
        store_size: size,
        checkpoint: blocks.first().map_or(0, |block| block.address),
        checkpoint_blocks: blocks.len() as u64,
        log,
        sequence: 1,
        ..head
    };
    let zeros = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    for extent in [Extent::new(0, FIRST_ADDRESS), Extent::new(log, PART_SIZE)] {
        device.zero(extent, zeros).await?;
    }
    let runs: Vec<Extent> = places.iter().map(|place| Extent::new(*place, PART_SIZE)).collect();
    write_blocks(device, arena, &blocks, &runs).await?;
    device.flush().await?;
    let bytes = arena.copy(&superblock.encode());
    device.write(superblock.address(), bytes, Durability::Durable).await?;
    Ok(())
}

/// The head and what follows it.
fn parse(text: &str) -> Result<(Superblock, Contents), StoreError> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(StoreError::Misfit("this is not the text of an exception store"));
    }
    let head = parse_head(lines.next().unwrap_or_default()).ok_or(StoreError::Misfit(
        "the second line of the text must be: store UUID generation N chunk N size N next N",
    ))?;
    let mut contents = Contents::new(head.chunk_size, head.next_snapshot);
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let entry = parse_line(line).ok_or(StoreError::Misfit("a line of the text has an unknown form"))?;
        entry.check().map_err(StoreError::Format)?;
        if let Entry::Created(descriptor) = &entry
            && (descriptor.id >= head.next_snapshot || !is_aligned(descriptor.size, PART_SIZE))
        {
            return Err(StoreError::Misfit("a snapshot has an id that none has had yet, or an odd size"));
        }
        if let Entry::Preserved { mapping, .. } = &entry
            && !contents.holds(mapping.snapshot, mapping.extent)
        {
            return Err(StoreError::Misfit(
                "content is preserved for a snapshot that does not exist, or beyond its end",
            ));
        }
        if let Entry::RollbackBegun { boundary, .. } = &entry
            && *boundary > head.next_snapshot
        {
            return Err(StoreError::Misfit("the boundary of a rollback is an id that none has had yet"));
        }
        if !contents.apply(&entry)?.is_empty() {
            return Err(StoreError::Misfit("the same part is named twice")); // X1
        }
    }
    assert_eq!(contents.next_snapshot, head.next_snapshot, "X1");
    Ok((head, contents))
}

fn parse_head(line: &str) -> Option<Superblock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["store", store, "generation", generation, "chunk", chunk, "size", size, "next", next] = words[..]
    else {
        return None;
    };
    let (chunk_size, store_size) = (chunk.parse().ok()?, size.parse().ok()?);
    let superblock = Superblock {
        generation: generation.parse().ok().filter(|generation| *generation < u64::MAX)?,
        store: Uuid::parse_str(store).ok()?,
        chunk_size,
        store_size,
        checkpoint: 0,
        checkpoint_blocks: 0,
        log: FIRST_ADDRESS,
        sequence: 1,
        next_snapshot: next.parse().ok()?,
    };
    let sound = (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&chunk_size) && superblock.check().is_ok();
    sound.then_some(superblock)
}

fn parse_line(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [kind @ ("preserved" | "written"), snapshot, offset, bytes, place] => {
            let extent = Extent::checked(offset.parse().ok()?, bytes.parse().ok()?)?;
            let mapping = Mapping { snapshot: snapshot.parse().ok()?, extent, place: place.parse().ok()? };
            Some(match kind {
                "preserved" => Entry::Preserved { mapping, checksum: 0 },
                _ => Entry::Written(mapping),
            })
        }
        ["snapshot", id, name, "created", created, "size", size, ref flags @ ..] => {
            let known = [&[][..], &["read-only"], &["held"], &["read-only", "held"]];
            known.contains(&flags).then_some(())?;
            Some(Entry::Created(Descriptor {
                id: id.parse().ok()?,
                name: name.to_owned(),
                created: UnixTime(created.parse().ok()?),
                size: size.parse().ok()?,
                read_only: flags.contains(&"read-only"),
                held: flags.contains(&"held"),
            }))
        }
        ["removed", id] => Some(Entry::Removed(id.parse().ok()?)),
        ["rollback", id, boundary] => {
            Some(Entry::RollbackBegun { snapshot: id.parse().ok()?, boundary: boundary.parse().ok()? })
        }
        ["restored", id, offset, bytes] => {
            let extent = Extent::checked(offset.parse().ok()?, bytes.parse().ok()?)?;
            Some(Entry::Restored { snapshot: id.parse().ok()?, extent })
        }
        _ => None,
    }
}
