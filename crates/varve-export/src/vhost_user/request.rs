//! Requests of a guest, read out of the memory of their chains and checked.
//!
//! Invariant VREQ1: a request that no driver sends fails, with a status where there is room for one; what it would have touched is not.

use super::config::{REQUEST_BYTES_MAX, SECTOR, covered_max};
use super::memory::Memory;
use super::ring::{Broken, Chain, Segment};
use varve_block::Extent;

/// Bytes of a header.
const HEADER: u64 = 16;
/// Bytes of the name of a disk.
pub(super) const SERIAL: usize = 20;
/// In the flags of a request to zero: the room may be given back.
const UNMAP: u32 = 1;

/// How a request ended, as virtio says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Done = 0,
    Failed = 1,
    Unsupported = 2,
}

/// What a guest asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Read {
        extent: Extent,
        into: Vec<Segment>,
    },
    Write {
        extent: Extent,
        from: Vec<Segment>,
    },
    Flush,
    Identify {
        into: Vec<Segment>,
    },
    Discard(Extent),
    Zero {
        extent: Extent,
        unmap: bool,
    },
    /// Nothing that can be done.
    Refused(Status),
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) action: Action,
    /// Where its status goes.
    pub(super) status_at: u64,
}

/// Reads a request out of its chain.
pub(super) fn parse(memory: &Memory, chain: Chain) -> Result<Request, Broken> {
    let Chain { mut readable, mut writable } = chain;
    let mut header = [0; HEADER as usize];
    gather(memory, &cut_front(&mut readable, HEADER).ok_or(Broken::Frame)?, &mut header)?;
    let status_at = cut_last(&mut writable).ok_or(Broken::Frame)?;
    let [a, b, c, d, _, _, _, _, rest @ ..] = header;
    let (kind, sector) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(rest));
    let action = match kind {
        0 => transfer(sector, &writable).map(|extent| Action::Read { extent, into: writable }),
        1 => transfer(sector, &readable).map(|extent| Action::Write { extent, from: readable }),
        4 => Ok(Action::Flush),
        8 => Ok(Action::Identify { into: writable }),
        11 => covered(memory, &readable, true)?.map(|(extent, _)| Action::Discard(extent)),
        13 => covered(memory, &readable, false)?
            .map(|(extent, flags)| Action::Zero { extent, unmap: flags & UNMAP != 0 }),
        _ => Err(Status::Unsupported),
    };
    Ok(Request { action: action.unwrap_or_else(Action::Refused), status_at })
}

/// Bytes of segments.
pub(super) fn length(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

/// What a read or write covers.
fn transfer(sector: u64, segments: &[Segment]) -> Result<Extent, Status> {
    let length = length(segments);
    if length == 0 || !length.is_multiple_of(SECTOR) || length > REQUEST_BYTES_MAX {
        return Err(Status::Failed);
    }
    extent(sector, length)
}

fn extent(sector: u64, length: u64) -> Result<Extent, Status> {
    let offset = sector.checked_mul(SECTOR).filter(|offset| offset.checked_add(length).is_some());
    Ok(Extent::new(offset.ok_or(Status::Failed)?, length))
}

/// What a discard or a request to zero covers, and its flags. One run a request, as the configuration says.
fn covered(
    memory: &Memory,
    segments: &[Segment],
    is_discard: bool,
) -> Result<Result<(Extent, u32), Status>, Broken> {
    let mut run = [0; 16];
    if length(segments) != 16 {
        return Ok(Err(Status::Unsupported));
    }
    gather(memory, segments, &mut run)?;
    let [a, b, c, d, e, f, g, h, c0, c1, c2, c3, f0, f1, f2, f3] = run;
    let sector = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let bytes = u64::from(u32::from_le_bytes([c0, c1, c2, c3])) * SECTOR;
    let flags = u32::from_le_bytes([f0, f1, f2, f3]);
    let known = if is_discard { 0 } else { UNMAP };
    if flags & !known != 0 {
        return Ok(Err(Status::Unsupported));
    }
    if bytes == 0 || bytes > covered_max(is_discard) {
        return Ok(Err(Status::Failed));
    }
    Ok(extent(sector, bytes).map(|extent| (extent, flags)))
}

/// Cuts `bytes` off the front; none if there are fewer.
fn cut_front(segments: &mut Vec<Segment>, bytes: u64) -> Option<Vec<Segment>> {
    let (mut cut, mut left) = (Vec::new(), bytes);
    while left > 0 {
        let first = segments.first_mut()?;
        let now = u32::try_from(left).unwrap_or(u32::MAX).min(first.length);
        cut.push(Segment { at: first.at, length: now });
        left -= u64::from(now);
        first.at = first.at.wrapping_add(now.into());
        first.length -= now;
        if first.length == 0 {
            segments.remove(0);
        }
    }
    Some(cut)
}

/// Cuts the last byte off; where it is.
fn cut_last(segments: &mut Vec<Segment>) -> Option<u64> {
    while segments.last().is_some_and(|last| last.length == 0) {
        segments.pop();
    }
    let last = segments.last_mut()?;
    last.length -= 1;
    let at = last.at.wrapping_add(last.length.into());
    if last.length == 0 {
        segments.pop();
    }
    Some(at)
}

/// Copies what segments hold; `into` is as long as they are.
pub(super) fn gather(memory: &Memory, segments: &[Segment], into: &mut [u8]) -> Result<(), Broken> {
    let mut done = 0;
    for segment in segments {
        let end = done + segment.length as usize;
        memory.read(segment.at, &mut into[done..end])?;
        done = end;
    }
    Ok(())
}

/// Copies `from` into segments, as far as they go.
pub(super) fn scatter(memory: &Memory, segments: &[Segment], mut from: &[u8]) -> Result<(), Broken> {
    for segment in segments {
        let (now, later) = from.split_at(from.len().min(segment.length as usize));
        memory.write(segment.at, now)?;
        from = later;
    }
    Ok(())
}
