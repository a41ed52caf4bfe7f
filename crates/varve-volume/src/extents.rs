//! Which bytes of a volume lie where: a walk down its trees, by the map.
//!
//! Invariant EXTENTS1: extents follow each other without a gap, and none is empty. Where a run moves, the place that counts is
//! reported as soon as the volume is led there.

use crate::copies::movable::Moves;
use crate::failures;
use crate::volume_stack::VolumeStack;
use varve_api::Failure;
use varve_block::{Access, Device, Extent, IoError, Location, MapAnswer, MapIntent, MapPiece, yield_now};
use varve_target::snapshot::StoreError;
use varve_vg::model::PvName;

/// How many extents one walk finds.
const EXTENTS_MAX: usize = 4096;
/// How many questions one walk asks about runs that may turn out to be one.
const QUESTIONS_MAX: usize = 16 * EXTENTS_MAX;

/// Where a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lies {
    /// On a disk, from this byte on.
    On(PvName, u64),
    /// Nowhere: it is zeros.
    Nowhere,
    /// Where an array, an image or a program puts it.
    Apart,
}

/// A run of bytes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeExtent {
    /// Its bytes.
    pub extent: Extent,
    /// Where they lie.
    pub lies: Lies,
    /// Whether they are shared with another owner; unknown for what may not be written, or is on no disk.
    pub is_shared: Option<bool>,
}

/// What was found of a volume or snapshot.
pub struct Extents {
    /// Bytes of it.
    pub size: u64,
    /// In order; they may end before what was asked for does.
    pub found: Vec<VolumeExtent>,
}

impl VolumeStack {
    /// Where the beginning of what `wanted` has of the volume, or of one of its snapshots, is.
    pub async fn extents(&self, snapshot: Option<&str>, wanted: Extent) -> Result<Extents, Failure> {
        let device = self.bare(snapshot)?;
        let shape = device.shape();
        let wanted = wanted.intersect(shape.extent()).unwrap_or_default();
        let moves = self.moves();
        let walk = Box::pin(async move {
            let whole = wanted.align_out(shape.block_size.into());
            walk(&moves, &device, whole).await
        });
        let found = self.health().contain(walk).await.unwrap_or(Err(IoError::Medium));
        let mut found = found.map_err(|error| failures::store("the volume", &StoreError::Io(error)))?;
        found.retain_mut(|run| match run.extent.intersect(wanted) {
            Some(part) => {
                if let Lies::On(_, offset) = &mut run.lies {
                    *offset += part.offset - run.extent.offset;
                }
                run.extent = part;
                true
            }
            None => false,
        });
        Ok(Extents { size: shape.size, found })
    }
}

async fn walk(moves: &Moves, device: &Device, wanted: Extent) -> Result<Vec<VolumeExtent>, IoError> {
    let (mut found, mut at): (Vec<VolumeExtent>, u64) = (Vec::new(), wanted.offset);
    for _ in 0..QUESTIONS_MAX {
        if at >= wanted.end() || found.len() >= EXTENTS_MAX {
            break;
        }
        let (lies, length) = down(moves, device, Extent::between(at, wanted.end())).await?;
        let (is_shared, length) = shared(device, Extent::new(at, length), lies).await?;
        assert!(length > 0, "EXTENTS1");
        add(&mut found, VolumeExtent { extent: Extent::new(at, length), lies, is_shared });
        at += length;
        yield_now().await;
    }
    Ok(found)
}

/// Adds a run behind the others, as a part of the last one if it goes on there (EXTENTS1).
fn add(found: &mut Vec<VolumeExtent>, next: VolumeExtent) {
    let goes_on = |last: &VolumeExtent| {
        assert_eq!(last.extent.end(), next.extent.offset, "EXTENTS1");
        let follows = match (last.lies, next.lies) {
            (Lies::On(one, offset), Lies::On(two, behind)) => {
                one == two && offset + last.extent.length == behind
            }
            (one, two) => one == two,
        };
        follows && last.is_shared == next.is_shared
    };
    match found.last_mut() {
        Some(last) if goes_on(last) => last.extent.length += next.extent.length,
        _ => found.push(next),
    }
}

/// Where the first bytes of `asked` lie, and how many lie so. What is led through a disk is there: a run that moves in the place from
/// which it moves.
async fn down(moves: &Moves, top: &Device, asked: Extent) -> Result<(Lies, u64), IoError> {
    let (mut device, mut extent, mut lies, mut guards) = (top.clone(), asked, Lies::Apart, Vec::new());
    loop {
        if let Some(disk) = moves.disk_of(&device) {
            lies = Lies::On(disk, extent.offset);
        }
        let MapAnswer { pieces, guard } = device.map(extent, MapIntent::Inspect).await?;
        guards.push(guard);
        let sent: u64 = pieces.iter().take_while(|piece| piece.is_sent()).map(|piece| piece.length).sum();
        let first = pieces.into_iter().next().expect("MAP1: an answer has a piece");
        match first.location {
            Location::Sent => return Ok((lies, sent)),
            Location::Zeros => return Ok((Lies::Nowhere, first.length)),
            Location::On { device: below, offset } => {
                extent = Extent::new(offset, first.length);
                device = below;
            }
        }
    }
}

/// Whether what is there is shared with another owner: then a write is not led to where a read is.
async fn shared(device: &Device, extent: Extent, lies: Lies) -> Result<(Option<bool>, u64), IoError> {
    if !matches!(lies, Lies::On(..)) || device.shape().access == Access::ReadOnly {
        return Ok((None, extent.length));
    }
    let read = first_of(device.map_to_leaves(extent, MapIntent::Read).await?);
    let extent = Extent::new(extent.offset, read.length);
    let write = first_of(device.map_to_leaves(extent, MapIntent::Overwrite).await?);
    let is_one = match (&read.location, &write.location) {
        (Location::On { device, offset }, Location::On { device: other, offset: other_offset }) => {
            device.is_same(other) && offset == other_offset
        }
        (Location::Sent, Location::Sent) => true,
        _ => false,
    };
    Ok((Some(!is_one), write.length))
}

/// The first piece; the guard is released.
fn first_of(answer: MapAnswer) -> MapPiece {
    answer.pieces.into_iter().next().expect("MAP1: an answer has a piece")
}
