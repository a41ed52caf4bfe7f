//! A pool's metadata as text: for administrators to read, and for repair by hand.
//!
//! The first line says what it is; then one thing a line, words separated by spaces, all numbers decimal and in bytes,
//! but for ids and dates:
//!
//! ```text
//! varve-thin-pool 2
//! pool UUID block N slot N log N size N next N
//! volume ID NAME created N size N [snapshot-of ID] [of ID] [like ID] [read-only] [held] [base] [over ORIGIN N]
//! map OFFSET BYTES PLACE
//! zero OFFSET BYTES                  (written zeros, which lie nowhere)
//! hole OFFSET BYTES                  (nothing, where the volume that this one is like has something)
//! ```
//!
//! The lines behind a volume's are about it. `snapshot-of` says which volume it is a snapshot of, `of` which one it
//! was cloned from, `like` from which of those above the text goes on: what is not said is as there. `over` says what shows
//! where nothing is mapped, and how much of it: `volume ID`, `image ID`, or `snapshot STORE NUMBER CREATED`. So what volumes share is said once. Volumes that are being removed are
//! not in it, nor is content: that is where the text says.
//!
//! Invariants:
//! - POOLTEXT1. A pool's text says the same after it was restored, whatever its nodes look like: runs are joined, and which
//!   volume one is like follows from their ids and sources alone.

use super::super::lifecycle::volume::Volume;
use super::super::maps::diff::{Damage, Difference, differences};
use super::super::maps::runs;
use super::super::maps::runs::Content;
use super::super::{Pool, PoolError};
use super::offline::look_at;
use crate::pdata::Tree;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use varve_block::{Arena, Clock, Device};
use varve_format::pdata::Block;
use varve_format::thin::{Backing, Mapping, Origin, PART_SIZE, Uuid, VolumeFlags};

/// The first line of every such text.
pub const POOL_TEXT_TITLE: &str = "varve-thin-pool 2";

/// What the second line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thin) struct Head {
    pub(in crate::thin) pool: Uuid,
    pub(in crate::thin) block_size: u64,
    pub(in crate::thin) slot_size: u64,
    pub(in crate::thin) log_size: u64,
    pub(in crate::thin) size: u64,
    pub(in crate::thin) next_volume: u64,
}

/// What a volume's line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::thin) struct VolumeLine<'a> {
    pub(in crate::thin) id: u64,
    pub(in crate::thin) name: &'a str,
    pub(in crate::thin) created: u64,
    pub(in crate::thin) bytes: u64,
    pub(in crate::thin) snapshot_of: Option<u64>,
    pub(in crate::thin) source: u64,
    pub(in crate::thin) like: Option<u64>,
    pub(in crate::thin) flags: VolumeFlags,
    pub(in crate::thin) origin: Option<Origin>,
}

/// A line behind the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::thin) enum Line<'a> {
    Volume(VolumeLine<'a>),
    /// Parts of the last volume, and what they are.
    Parts {
        start: u64,
        end: u64,
        content: Content,
    },
}

const FLAGS: [(u32, &str); 3] =
    [(VolumeFlags::READ_ONLY, "read-only"), (VolumeFlags::HELD, "held"), (VolumeFlags::BASE, "base")];

/// The metadata of the pool on `device`, as text. Writes nothing.
pub async fn dump_pool(device: &Device, arena: &Arena, clock: &Clock) -> Result<String, PoolError> {
    let (pool, errors) = look_at(device, arena, clock).await?;
    if let Some(error) = errors.into_iter().next() {
        tracing::error!(error, "a pool is not dumped");
        return Err(PoolError::Corrupt("the pool cannot be opened: varve check says what is damaged"));
    }
    pool.text(Damage::Refuse).await
}

impl Pool {
    /// What the pool's maps say, with or without what cannot be read.
    pub(in crate::thin) async fn text(&self, damage: Damage) -> Result<String, PoolError> {
        let layout = self.layout;
        let mut text = format!(
            "{POOL_TEXT_TITLE}\npool {} block {} slot {} log {} size {} next {}\n",
            self.id,
            layout.block_size,
            layout.slot_blocks * PART_SIZE,
            layout.log_blocks * PART_SIZE,
            self.end_block.get().offset(),
            self.volumes.next_id(),
        );
        let volumes: Vec<Rc<Volume>> = {
            let volumes = self.volumes.all();
            volumes.values().filter(|volume| !volume.has(VolumeFlags::REMOVING)).cloned().collect()
        };
        let likes = likes(&volumes);
        for (volume, like) in volumes.iter().zip(likes) {
            push_volume(&mut text, volume, like.as_ref().map(|like| like.id));
            let (before, parts) = like.map_or((Tree::EMPTY, 0), |like| (like.tree.get(), like.parts()));
            let (before, now) = self.leaves_that_differ(before, volume.tree.get(), damage, None).await?;
            let (before, now) = (self.believed(before, parts), self.believed(now, volume.parts()));
            push_parts(&mut text, &before, &now);
        }
        Ok(text)
    }

    /// Runs in order that lie where data can lie, as far as a volume of so many parts reaches. Only those of a damaged pool
    /// are others.
    fn believed(&self, runs: Vec<Mapping>, parts: u64) -> Vec<Mapping> {
        let mut last = 0;
        let mut keep = |run: &Mapping| {
            let keep = run.start >= last && run.blocks().is_none_or(|blocks| self.may_hold_data(blocks));
            last = if keep { run.end() } else { last };
            keep
        };
        let inside = runs.into_iter().filter_map(|run| runs::clip(run, 0, parts));
        inside.filter(|run| keep(run)).collect()
    }
}

/// POOLTEXT1: for each volume the one above from which its lines go on. Clones of one volume lie beside each other in time, so
/// the last one is the best guess; then the volume that it was cloned from.
fn likes(volumes: &[Rc<Volume>]) -> Vec<Option<Rc<Volume>>> {
    let mut last_of: BTreeMap<u64, Rc<Volume>> = BTreeMap::new();
    let mut likes = Vec::with_capacity(volumes.len());
    for volume in volumes {
        let source = if volume.source.get() == 0 { volume.id } else { volume.source.get() };
        likes.push(last_of.get(&source).cloned());
        last_of.insert(source, Rc::clone(volume));
        last_of.entry(volume.id).or_insert_with(|| Rc::clone(volume));
    }
    assert_eq!(likes.len(), volumes.len(), "POOLTEXT1");
    likes
}

fn push_volume(text: &mut String, volume: &Volume, like: Option<u64>) {
    let (id, created, bytes) = (volume.id, volume.created, volume.bytes.get());
    assert!(like != Some(id), "POOLTEXT1: a volume is like one above it");
    let _ = write!(text, "volume {id} {} created {created} size {bytes}", volume.name.borrow());
    if let Some(of) = volume.snapshot_of {
        let _ = write!(text, " snapshot-of {of}");
    }
    if volume.source.get() != 0 {
        let _ = write!(text, " of {}", volume.source.get());
    }
    if let Some(like) = like {
        let _ = write!(text, " like {like}");
    }
    for (_, word) in FLAGS.iter().filter(|(flag, _)| volume.has(*flag)) {
        let _ = write!(text, " {word}");
    }
    if let Some(Origin { backing, bytes }) = volume.over.get() {
        let _ = match backing {
            Backing::Volume { id } => write!(text, " over volume {id} {bytes}"),
            Backing::Image { id } => write!(text, " over image {id} {bytes}"),
            Backing::Snapshot { store, number, created } => {
                write!(text, " over snapshot {store} {number} {created} {bytes}")
            }
        };
    }
    text.push('\n');
}

/// POOLTEXT1: where `now` says something else than `before`, neighbours joined.
fn push_parts(text: &mut String, before: &[Mapping], now: &[Mapping]) {
    assert!(now.is_sorted_by_key(|run| run.start), "RUNS1: runs are in order");
    let mut last: Option<Difference> = None;
    for piece in differences(before, now) {
        last = match last {
            Some(last) if follows(last, piece) => Some(Difference { end: piece.end, ..last }),
            other => {
                push_run(text, other);
                Some(piece)
            }
        };
    }
    push_run(text, last);
}

fn follows(last: Difference, next: Difference) -> bool {
    assert!(last.start < last.end, "a run has parts");
    let goes_on = match (last.content, next.content) {
        (Content::Data(place), Content::Data(next)) => place + (last.end - last.start) == next,
        (content, next) => content == next,
    };
    last.end == next.start && goes_on
}

fn push_run(text: &mut String, run: Option<Difference>) {
    let Some(Difference { start, end, content }) = run else { return };
    assert!(start < end, "a run has parts");
    let (offset, bytes) = (start * PART_SIZE, (end - start) * PART_SIZE);
    let _ = match content {
        Content::Zeros => writeln!(text, "zero {offset} {bytes}"),
        Content::Data(place) => writeln!(text, "map {offset} {bytes} {}", place.offset()),
        Content::Hole => writeln!(text, "hole {offset} {bytes}"),
    };
}

/// The second line.
pub(in crate::thin) fn parse_head(line: &str) -> Option<Head> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["pool", pool, "block", block, "slot", slot, "log", log, "size", size, "next", next] = words[..]
    else {
        return None;
    };
    Some(Head {
        pool: Uuid::parse_str(pool).ok().filter(|pool| !pool.is_nil())?,
        block_size: block.parse().ok()?,
        slot_size: slot.parse().ok()?,
        log_size: log.parse().ok()?,
        size: size.parse().ok()?,
        next_volume: next.parse().ok().filter(|next| *next > 0)?,
    })
}

/// A line behind the second.
pub(in crate::thin) fn parse_line(line: &str) -> Option<Line<'_>> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    if kind == "volume" {
        return parse_volume(words).map(Line::Volume);
    }
    let (start, count) = (parts(words.next()?)?, parts(words.next()?)?);
    let end = start.checked_add(count).filter(|end| count > 0 && *end <= 1 << 48)?;
    let content = match kind {
        "map" => Content::Data(Block::new(parts(words.next()?).filter(|place| *place > 0)?)),
        "zero" => Content::Zeros,
        "hole" => Content::Hole,
        _ => return None,
    };
    words.next().is_none().then_some(Line::Parts { start, end, content })
}

/// A number of bytes, in parts.
fn parts(word: &str) -> Option<u64> {
    let bytes: u64 = word.parse().ok()?;
    bytes.is_multiple_of(PART_SIZE).then_some(bytes / PART_SIZE)
}

fn parse_volume<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<VolumeLine<'a>> {
    let (id, name) = (words.next()?.parse().ok()?, words.next()?);
    let mut named =
        |what: &str| words.next().filter(|word| *word == what).and_then(|_| words.next()?.parse().ok());
    let (created, bytes) = (named("created")?, named("size")?);
    let mut line = VolumeLine {
        id,
        name,
        created,
        bytes,
        snapshot_of: None,
        source: 0,
        like: None,
        flags: VolumeFlags::default(),
        origin: None,
    };
    while let Some(word) = words.next() {
        match word {
            "snapshot-of" => line.snapshot_of = Some(words.next()?.parse().ok()?),
            "of" => line.source = words.next()?.parse().ok()?,
            "like" => line.like = Some(words.next()?.parse().ok()?),
            "over" => {
                line.origin = Some(parse_origin(&mut words)?);
                line.flags = line.flags.with(VolumeFlags::ORIGIN, true);
            }
            _ => {
                let flag = FLAGS.iter().find(|(_, known)| *known == word)?.0;
                line.flags = line.flags.with(flag, true);
            }
        }
    }
    (line.snapshot_of != Some(line.id)).then_some(line)
}

fn parse_origin<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Origin> {
    let (kind, id) = (words.next()?, Uuid::parse_str(words.next()?).ok().filter(|id| !id.is_nil())?);
    let mut number = || words.next()?.parse().ok();
    let backing = match kind {
        "volume" => Backing::Volume { id },
        "image" => Backing::Image { id },
        "snapshot" => Backing::Snapshot { store: id, number: number()?, created: number()? },
        _ => return None,
    };
    Some(Origin { backing, bytes: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written_and_nothing_else_is() {
        let line = "volume 7 a created 9 size 8192 snapshot-of 1 of 1 like 3 read-only held base \
            over snapshot 00000000-0000-0000-0000-000000000005 2 3 4096";
        let Some(Line::Volume(volume)) = parse_line(line) else { panic!("it is one") };
        assert_eq!((volume.id, volume.name, volume.created, volume.bytes), (7, "a", 9, 8192));
        assert_eq!(volume.snapshot_of, Some(1));
        assert_eq!((volume.source, volume.like, volume.flags.0), (1, Some(3), 29));
        let id = Uuid::from_u128(5);
        let over = |backing| Some(Origin { backing, bytes: 4096 });
        assert_eq!(volume.origin, over(Backing::Snapshot { store: id, number: 2, created: 3 }));
        for (kind, backing) in [("volume", Backing::Volume { id }), ("image", Backing::Image { id })] {
            let line = format!("volume 7 a created 9 size 8192 over {kind} {id} 4096");
            let Some(Line::Volume(volume)) = parse_line(&line) else { panic!("it is one") };
            assert_eq!((volume.snapshot_of, volume.origin), (None, over(backing)));
        }
        let parts = |start, end, content| Some(Line::Parts { start, end, content });
        assert_eq!(parse_line("map 4096 8192 40960"), parts(1, 3, Content::Data(Block::new(10))));
        assert_eq!(parse_line("zero 0 4096"), parts(0, 1, Content::Zeros));
        assert_eq!(parse_line("hole 0 4096"), parts(0, 1, Content::Hole));
        for wrong in [
            "",
            "map 1 4096 4096",
            "map 0 0 4096",
            "map 0 4096 0",
            "map 0 4096",
            "map 0 4096 4096 1",
            "zero 18446744073709547520 4096",
            "volume 1 a created x size 0",
            "volume 1 a created 1 size 1 of",
            "volume 1 a created 1 size 1 red",
            "volume 1 a created 1 size 1 snapshot-of 1",
            "volume 1 a created 1 size 1 over snapshot 5 2 3 4096",
            "volume 1 a created 1 size 1 over 00000000-0000-0000-0000-000000000005 2 3 4096",
            "volume 1 a created 1 size 1 over image 00000000-0000-0000-0000-000000000005",
            "volumes 1",
            "hole -1 4096",
        ] {
            assert_eq!(parse_line(wrong), None, "{wrong}");
        }
    }
}
