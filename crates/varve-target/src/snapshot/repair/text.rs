//! A store's metadata as text, and back: for inspection, and for repair by hand.
//!
//! The first line says what it is; then one thing a line, words separated by spaces, all numbers decimal and in bytes:
//!
//! ```text
//! varve-exception-store 1
//! store UUID generation N chunk N size N next N
//! snapshot ID NAME created N size N [read-only] [held] [base]
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
//! - STORETEXT1. What is restored says the same as the text: nothing in it is dropped, whatever does not fit is an error.
//! - STORETEXT2. Metadata is restored to places that no content has.

use super::super::checkpoint::{chain, pack, slots, write_blocks};
use super::super::contents::{Contents, apply};
use super::super::map::Map;
use super::super::recover::{Loaded, Reading, SIZE_MIN, empty_space, load, newest_superblock};
use super::super::{StoreError, usable_size};
use super::report::report;
use crate::journal::publish;
use crate::pdata::{self, AllocClass, Side};
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;
use varve_block::{Arena, Device, Extent, UnixTime, ZeroOptions, is_aligned};
use varve_format::pdata::BlockRun;
use varve_format::store::{
    CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, Descriptor, Entry, FIRST_ADDRESS, Mapping, NUMBER_MAX, PART_SIZE, Roots,
    STORE_SIZE_MAX, Superblock, Uuid, ZEROS,
};

/// The first line of every text that [`dump_store`] makes.
pub const STORE_TEXT_TITLE: &str = "varve-exception-store 1";

/// What the second line says.
#[derive(Clone, Copy)]
pub(in crate::snapshot) struct Head {
    store: Uuid,
    generation: u64,
    chunk_size: u64,
    store_size: u64,
    next_snapshot: u64,
}

impl Head {
    /// Of a store with this superblock, which holds this by now.
    pub(in crate::snapshot) fn of(superblock: &Superblock, contents: &Contents) -> Self {
        let Superblock { generation, store, chunk_size, store_size, .. } = *superblock;
        Self { store, generation, chunk_size, store_size, next_snapshot: contents.next_snapshot }
    }

    fn text(&self) -> String {
        let Head { store, generation, chunk_size, store_size, next_snapshot } = self;
        format!(
            "{STORE_TEXT_TITLE}\nstore {store} generation {generation} chunk {chunk_size} size {store_size} next {next_snapshot}\n"
        )
    }
}

/// A text that says this.
pub(in crate::snapshot) fn text_of(head: Head, contents: &Contents, mappings: &[Entry]) -> String {
    assert!(
        mappings.iter().all(|entry| matches!(entry, Entry::Preserved { .. } | Entry::Written(_))),
        "STORETEXT1"
    );
    let mut text = head.text();
    push_snapshots(&mut text, contents);
    mappings.iter().for_each(|entry| push_line(&mut text, entry));
    contents.endings().for_each(|entry| push_line(&mut text, &entry));
    text
}

fn push_snapshots(text: &mut String, contents: &Contents) {
    let created = contents.table(&Default::default());
    created
        .iter()
        .filter(|entry| matches!(entry, Entry::Created(_)))
        .for_each(|entry| push_line(text, entry));
}

/// The metadata of the store on `device`, as text. Writes nothing.
pub async fn dump_store(device: &Device, arena: &Arena) -> Result<String, StoreError> {
    let loaded = load(device, arena, Reading::only()).await?;
    let mut text = Head::of(&loaded.superblock, &loaded.contents.borrow()).text();
    push_snapshots(&mut text, &loaded.contents.borrow());
    push_mappings(&mut text, &loaded, false).await?;
    push_mappings(&mut text, &loaded, true).await?;
    loaded.contents.borrow().endings().for_each(|entry| push_line(&mut text, &entry));
    Ok(text)
}

/// One of the maps, neighbours joined.
async fn push_mappings(text: &mut String, loaded: &Loaded, written: bool) -> Result<(), StoreError> {
    let entry = |mapping| match written {
        true => Entry::Written(mapping),
        false => Entry::Preserved { mapping, checksum: 0 },
    };
    let (mut last, mut from): (Option<Mapping>, Option<u128>) = (None, Some(0));
    while let Some(key) = from {
        let some = match written {
            true => loaded.map.written_from(key).await?,
            false => loaded.map.preserved_from(key).await?,
        };
        for mapping in some.0 {
            match &mut last {
                Some(last) if goes_on(last, &mapping) => last.extent.length += mapping.extent.length,
                last => {
                    last.replace(mapping).into_iter().for_each(|before| push_line(text, &entry(before)));
                }
            }
        }
        assert!(some.1.is_none_or(|next| next > key), "STORETEXT1: each entry is told once");
        from = some.1;
    }
    last.into_iter().for_each(|mapping| push_line(text, &entry(mapping)));
    Ok(())
}

fn goes_on(before: &Mapping, next: &Mapping) -> bool {
    let place = if before.place == ZEROS { ZEROS } else { before.place + before.extent.length };
    before.snapshot == next.snapshot && before.extent.end() == next.extent.offset && place == next.place
}

fn push_line(text: &mut String, entry: &Entry) {
    let mapping = |word: &str, Mapping { snapshot, extent, place }: &Mapping| {
        format!("{word} {snapshot} {} {} {place}", extent.offset, extent.length)
    };
    let line = match entry {
        Entry::Preserved { mapping: preserved, .. } => mapping("preserved", preserved),
        Entry::Written(written) => mapping("written", written),
        Entry::Created(Descriptor { id, name, created, size, read_only, held, base }) => {
            let flags = [(*read_only, " read-only"), (*held, " held"), (*base, " base")];
            let flags: String = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
            format!("snapshot {id} {name} created {} size {size}{flags}", created.0)
        }
        Entry::Removed(id) => format!("removed {id}"),
        Entry::RollbackBegun { snapshot, boundary } => format!("rollback {snapshot} {boundary}"),
        Entry::Restored { snapshot, extent } => {
            format!("restored {snapshot} {} {}", extent.offset, extent.length)
        }
        Entry::Flags { .. }
        | Entry::Renamed { .. }
        | Entry::Dropped { .. }
        | Entry::RollbackEnded(_)
        | Entry::Bytes { .. } => unreachable!("the text has none"),
    };
    writeln!(text, "{line}").expect("a string takes everything");
}

/// Writes the metadata that `text` says to `device`, whose content is where the text says, in place of any that
/// was there. To be used on a copy: what was there is lost.
pub async fn restore_store(device: &Device, arena: &Arena, text: &str) -> Result<(), StoreError> {
    let (mut head, entries) = parse(text)?;
    let size = usable_size(device.shape().size);
    if head.store_size > size {
        return Err(StoreError::Misfit("the exception store is shorter than it was"));
    }
    let known =
        newest_superblock(device, arena).await.map_or((0, 0), |(known, _)| (known.generation, known.epoch));
    head.generation = head.generation.max(known.0);
    let blocks = empty_space(device, arena, head.store, head.generation, size);
    let map = Map::new(head.store, Rc::clone(&blocks), Roots::default(), head.chunk_size);
    let contents = RefCell::new(Contents::new(head.next_snapshot));
    claim(head.store, &blocks, &entries).await?; // STORETEXT2
    for entry in &entries {
        check(&contents.borrow(), head, entry)?;
        apply(&map, &contents, AllocClass::Reserve, entry).await?;
        if blocks.pages().reclaimable_blocks() > 0 {
            return Err(StoreError::Misfit("the same part is named twice")); // STORETEXT1
        }
    }
    assert_eq!(contents.borrow().next_snapshot, head.next_snapshot, "STORETEXT1");
    let table = pack(contents.borrow().table(&map.bytes()));
    write(device, arena, (head, known.1), (&blocks, &map), table).await
}

/// STORETEXT2: marks as in use where content is.
async fn claim(store: Uuid, blocks: &pdata::Map, entries: &[Entry]) -> Result<(), StoreError> {
    for entry in entries {
        let (Entry::Preserved { mapping, .. } | Entry::Written(mapping)) = entry else { continue };
        let Some(stored) = mapping.stored() else { continue };
        let run = BlockRun::of(stored);
        if !blocks.run(|pages| pages.claim(run)).await.map_err(|error| report(store, error))? {
            return Err(StoreError::Misfit("content lies twice at one place, or where none can be"));
        }
    }
    Ok(())
}

/// Writes everything but the content.
async fn write(
    device: &Device,
    arena: &Arena,
    (head, epoch): (Head, u32),
    (blocks, map): (&pdata::Map, &Map),
    entries: Vec<Vec<Entry>>,
) -> Result<(), StoreError> {
    let log = blocks.run(|pages| pages.take_on(Side::Near, 1)).await.map_err(|error| map.report(error))?;
    let frozen = blocks.freeze(|pages| pages.take_for_commit(entries.len() as u64)).await;
    let (commit, runs) = frozen.map_err(|error| map.report(error))?;
    let (log, runs): (Extent, Vec<Extent>) = (log.extent(), runs.into_iter().map(BlockRun::extent).collect());
    let table = chain(head.store, (commit.generation(), epoch), &entries, &runs);
    let zeros = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    for extent in [Extent::new(0, FIRST_ADDRESS), log] {
        device.zero(extent, zeros).await?;
    }
    blocks.write(&commit).await.map_err(|error| map.report(error))?;
    write_blocks(device, arena, &table, &runs).await?;
    let superblock = Superblock {
        generation: commit.generation(),
        store: head.store,
        chunk_size: head.chunk_size,
        store_size: commit.end_block().offset(),
        table: table.first().map_or(0, |block| block.address),
        table_blocks: table.len() as u64,
        log: log.offset,
        sequence: 1,
        next_snapshot: head.next_snapshot,
        roots: map.roots(),
        nodes: commit.nodes(),
        free_blocks: commit.free_blocks(),
        epoch,
        places: commit.places().to_vec(),
    };
    superblock.check().map_err(StoreError::Format)?;
    let [first, other] = slots(&superblock, arena);
    publish(device, first, other).await?;
    Ok(())
}

/// The head and what follows it.
fn parse(text: &str) -> Result<(Head, Vec<Entry>), StoreError> {
    let mut lines = text.lines();
    if lines.next() != Some(STORE_TEXT_TITLE) {
        return Err(StoreError::Misfit("this is not the text of an exception store"));
    }
    let head = parse_head(lines.next().unwrap_or_default()).ok_or(StoreError::Misfit(
        "the second line of the text must be: store UUID generation N chunk N size N next N",
    ))?;
    let mut entries = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let entry = parse_line(line).ok_or(StoreError::Misfit("a line of the text has an unknown form"))?;
        entry.check().map_err(StoreError::Format)?;
        entries.push(entry);
    }
    Ok((head, entries))
}

/// Whether an entry can follow those before it.
fn check(contents: &Contents, head: Head, entry: &Entry) -> Result<(), StoreError> {
    if let Entry::Created(descriptor) = entry
        && (descriptor.id >= head.next_snapshot || !is_aligned(descriptor.size, PART_SIZE))
    {
        return Err(StoreError::Misfit("a snapshot has an id that none has had yet, or an odd size"));
    }
    if let Entry::Preserved { mapping, .. } = entry
        && !contents.holds(mapping.snapshot, mapping.extent)
    {
        return Err(StoreError::Misfit(
            "content is preserved for a snapshot that does not exist, or beyond its end",
        ));
    }
    if let Entry::RollbackBegun { boundary, .. } = entry
        && *boundary > head.next_snapshot
    {
        return Err(StoreError::Misfit("the boundary of a rollback is an id that none has had yet"));
    }
    Ok(())
}

fn parse_head(line: &str) -> Option<Head> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["store", store, "generation", generation, "chunk", chunk, "size", size, "next", next] = words[..]
    else {
        return None;
    };
    let head = Head {
        store: Uuid::parse_str(store).ok().filter(|store| !store.is_nil())?,
        generation: generation.parse().ok().filter(|generation| *generation < NUMBER_MAX)?,
        chunk_size: chunk.parse().ok()?,
        store_size: size.parse().ok()?,
        next_snapshot: next.parse().ok().filter(|next| (1..=1 << 32).contains(next))?,
    };
    let chunk =
        (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&head.chunk_size) && head.chunk_size.is_power_of_two();
    let size =
        (SIZE_MIN..=STORE_SIZE_MAX).contains(&head.store_size) && is_aligned(head.store_size, PART_SIZE);
    (chunk && size).then_some(head)
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
            // Each at most once, in this order.
            let mut known = ["read-only", "held", "base"].iter();
            flags.iter().all(|flag| known.any(|known| known == flag)).then_some(())?;
            Some(Entry::Created(Descriptor {
                id: id.parse().ok()?,
                name: name.to_owned(),
                created: UnixTime(created.parse().ok()?),
                size: size.parse().ok()?,
                read_only: flags.contains(&"read-only"),
                held: flags.contains(&"held"),
                base: flags.contains(&"base"),
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
