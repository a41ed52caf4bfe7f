//! Writes and zeros of which not all is known, and what is copied for them first.

use super::asks::Asked;
use super::notices::Owed;
use super::options::InjectedBug;
use super::question::{Answer, CopyFirst};
use super::range_map::Place;
use super::state::State;
use crate::fan_out::join_pieces;
use std::collections::VecDeque;
use varve_block::{Buffer, Completion, Durability, Extent, Io, IoError, Outcome, ZeroOptions};
use varve_mapper::wire::Intent;

/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

impl State {
    /// Carries out a write, or makes a range zero.
    pub(super) async fn change(&self, io: Io) -> Outcome {
        let durability = match &io {
            Io::Write { durability, .. } => *durability,
            Io::Zero { options, .. } => options.durability,
            _ => unreachable!("a change with data, or to zeros"),
        };
        let mut left = vec![io.extent()];
        if let Io::Zero { extent, options } = &io {
            let units = self.trim_units(*extent);
            if options.fast && units != Some(*extent) {
                return Err(IoError::Unsupported);
            }
            if let Some(units) = units {
                self.trim(units).await?;
                left = extent.without(&[units]);
            }
        }
        self.write(&io, left).await?;
        self.flush_if_durable(durability).await
    }

    /// A change was carried out; a durable one ends when its mapping is durable, too.
    async fn flush_if_durable(&self, durability: Durability) -> Outcome {
        match durability {
            Durability::Volatile => Ok(Buffer::empty()),
            Durability::Durable => self.flush().await,
        }
    }

    /// Writes what `io` has in the extents `left`, asking for what is not known.
    async fn write(&self, io: &Io, mut left: Vec<Extent>) -> Result<(), IoError> {
        let (mut deadline, mut owed) = (self.deadline(), Owed::default());
        let mut landing = None;
        while let Some(first) = left.first().copied() {
            if let Some((length, known)) = self.write_known(io, first, &mut owed) {
                known.await?;
                drop(landing.take());
                left = without(left, Extent::new(first.offset, length));
                self.notify(owed.take_written(&left));
                deadline = self.deadline();
                continue;
            }
            drop(landing.take()); // a flush waits for it, and this request may wait for a flush
            if self.is_full_of_unflushed() {
                self.flush().await?;
            }
            let gap = self.cache.borrow().gap(Intent::Write, first);
            let Asked::Answered(question, answer) = self.ask(gap, Intent::Write, deadline).await? else {
                continue;
            };
            match answer {
                Answer::Kept { notices } => {
                    owed.add(question.number, notices, &left);
                    landing = question.into_landing();
                }
                Answer::Copies { copies, notices, in_use } => {
                    owed.add(question.number, notices, &left);
                    for CopyFirst { extent, to: (target, offset), .. } in &copies {
                        owed.written_at(*extent, (target, *offset));
                        left = without(left, *extent);
                    }
                    self.land_all(question.number, copies, io).await?;
                    drop(in_use);
                    self.notify(owed.take_written(&left));
                    deadline = self.deadline();
                }
                Answer::Error | Answer::Status(_) => return Err(IoError::Medium),
            }
        }
        Ok(())
    }

    /// Submits the first part of `extent` of a change, of which all is known; how long it is.
    fn write_known(&self, io: &Io, extent: Extent, owed: &mut Owed) -> Option<(u64, Completion<'static>)> {
        let (mut pieces, mut at) = (Vec::new(), extent.offset);
        while at < extent.end() {
            let rest = Extent::new(at, extent.end() - at);
            let Some(found) = self.cache.borrow_mut().take(Intent::Write, rest) else { break };
            let Place::Data { target, offset } = found.place else {
                unreachable!("DELEGATE1: a write has a place")
            };
            assert!(target.may_be_written(), "DELEGATE1");
            let part = Extent::new(at, found.run);
            owed.written_at(part, (&target, offset));
            let part = part_of(io, part).at(offset);
            self.mark_written(&target);
            pieces.push(target.device.forward(part, || self.enter()));
            at += found.run;
        }
        (!pieces.is_empty()).then(|| (at - extent.offset, join_pieces(pieces)))
    }

    /// Copies ranges, and writes what `io` has of them (DELEGATE2). The mapper is notified of those that failed.
    async fn land_all(&self, number: u64, copies: Vec<CopyFirst>, io: &Io) -> Result<(), IoError> {
        let mut copies = VecDeque::from(copies);
        while let Some(copy) = copies.pop_front() {
            if self.has(InjectedBug::ShareEarly) {
                self.keep_at_once(&copy.kept, copy.extent);
            }
            if let Err(error) = self.land(&copy, io).await {
                let failed = std::iter::once(&copy).chain(&copies);
                self.fail_copies(number, failed.map(|copy| copy.extent));
                return Err(error);
            }
            let CopyFirst { extent, kept, changing, .. } = copy;
            if changing.end() {
                self.keep_copied(&kept, extent);
            } else {
                self.cache.borrow_mut().remove(extent, kept.access); // where it lay before is known no more
            }
        }
        Ok(())
    }

    async fn land(&self, copy: &CopyFirst, io: &Io) -> Result<(), IoError> {
        assert!(!self.landing.is_empty(), "DELEGATE3: a flush waits for it");
        let own = copy.extent.intersect(io.extent());
        let (to, offset) = &copy.to;
        assert!(to.may_be_written(), "DELEGATE1");
        self.mark_written(to);
        let holes: Vec<Extent> = own.into_iter().collect();
        for extent in copy.extent.without(&holes) {
            for (_, piece) in extent.pieces(PIECE) {
                self.copy_piece(copy, piece).await?;
            }
        }
        if let Some(own) = own {
            let at = offset + (own.offset - copy.extent.offset);
            to.device.submit(part_of(io, own).at(at)).await?;
        }
        Ok(())
    }

    async fn copy_piece(&self, copy: &CopyFirst, piece: Extent) -> Result<(), IoError> {
        assert!(copy.extent.contains(piece), "DELEGATE2: {piece:?} of {:?}", copy.extent);
        let inside = piece.offset - copy.extent.offset;
        let (to, offset) = &copy.to;
        let at = offset + inside;
        let Some((from, source)) = &copy.from else {
            return to.device.zero(Extent::new(at, piece.length), ZeroOptions::default()).await.map(drop);
        };
        let length = usize::try_from(piece.length).expect("a piece is small");
        let data = from.device.read(source + inside, self.arena.take(length)).await?;
        to.device.write(at, data.freeze(), Durability::Volatile).await.map(drop)
    }

    /// These ranges are written: the mapper hears of it when they are durable (DELEGATE8).
    fn notify(&self, written: Vec<(u64, Extent)>) {
        if !written.is_empty() {
            self.notices.borrow_mut().extend(written);
            self.changed.notify_all();
        }
    }

    /// REMAP2 would keep more than is allowed.
    fn is_full_of_unflushed(&self) -> bool {
        let cache = self.cache.borrow();
        cache.len() >= self.options.entries_max && 2 * cache.unflushed() > self.options.entries_max
    }
}

/// What `io` does in `extent`.
fn part_of(io: &Io, extent: Extent) -> Io {
    assert!(io.extent().contains(extent), "{extent:?} of {:?}", io.extent());
    let start = extent.offset - io.extent().offset;
    match io {
        Io::Write { data, .. } => {
            let index = |bytes: u64| usize::try_from(bytes).expect("a request in memory");
            let data = data.slice(index(start), index(extent.length));
            Io::Write { offset: extent.offset, data, durability: Durability::Volatile }
        }
        Io::Zero { options, .. } => {
            let options = ZeroOptions { durability: Durability::Volatile, ..*options };
            Io::Zero { extent, options }
        }
        _ => unreachable!("a change with data, or to zeros"),
    }
}

fn without(extents: Vec<Extent>, hole: Extent) -> Vec<Extent> {
    extents.into_iter().flat_map(|extent| extent.without(&[hole])).collect()
}
