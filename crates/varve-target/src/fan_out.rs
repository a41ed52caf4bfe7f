//! One request in several pieces: all run at the same time, all run to their end, and the first error is the answer.

use futures_util::future::join_all;
use varve_block::{Buffer, Completion, Device, Io, IoError, Location, MapPiece, Outcome};

/// Submits `pieces` and joins their answers: the buffers of reads, which must be neighbours in memory and in this
/// order, become one again. If some fail, the answer is the error of the first of them in this order, but only
/// once every piece has ended.
pub fn fan_out<'a>(pieces: impl IntoIterator<Item = (&'a Device, Io)>) -> Completion<'a> {
    join_pieces(pieces.into_iter().map(|(device, io)| device.submit(io)).collect())
}

/// Submits `io` to the devices on which it is, cut where they end. `locate` says of a byte on which device it is,
/// where there, and how many bytes from there on lie behind it on the same device. Not for flushes.
pub(crate) fn cut<'a>(mut io: Io, locate: impl Fn(u64) -> (&'a Device, u64, u64)) -> Completion<'a> {
    let (device, offset, run) = locate(io.extent().offset);
    if io.extent().length <= run {
        return device.submit(io.at(offset));
    }
    let mut pieces = Vec::new();
    loop {
        let (device, offset, run) = locate(io.extent().offset);
        if io.extent().length <= run {
            pieces.push((device, io.at(offset)));
            return fan_out(pieces);
        }
        assert!(run > 0, "a device holds something of each piece");
        let (first, rest) = io.split_at(run);
        pieces.push((device, first.at(offset)));
        io = rest;
    }
}

/// Joins the answers to pieces that were submitted.
pub(crate) fn join_pieces(mut children: Vec<Completion<'_>>) -> Completion<'_> {
    if children.len() == 1 {
        return children.remove(0);
    }
    if children.iter().all(|child| matches!(child, Completion::Ready(_))) {
        let outcomes = children.into_iter().map(|child| match child {
            Completion::Ready(outcome) => outcome.expect("a child just submitted was not polled"),
            _ => unreachable!("all children are ready"),
        });
        return Completion::ready(join(outcomes));
    }
    Completion::pending(async move { join(join_all(children).await) })
}

/// Reads what is where `pieces` say into `buffer`, as long as they are together. None of them wants a request.
pub fn read_pieces<'a>(pieces: &'a [MapPiece], buffer: Buffer) -> Completion<'a> {
    join_pieces(submit_reads(pieces, buffer))
}

/// As [`read_pieces`], one completion for each piece.
pub(crate) fn submit_reads(pieces: &[MapPiece], mut buffer: Buffer) -> Vec<Completion<'_>> {
    let mut reads = Vec::with_capacity(pieces.len());
    for piece in pieces {
        assert!(piece.length <= buffer.len() as u64, "MAP1: pieces cover the buffer once");
        let length = usize::try_from(piece.length).expect("MAP1: the piece is no longer than the buffer");
        let rest = buffer.split_off(length);
        reads.push(match &piece.location {
            Location::On { device, offset } => device.read(*offset, buffer),
            Location::Zeros => {
                buffer.fill(0);
                Completion::ready(Ok(buffer))
            }
            Location::Sent => panic!("MAP3: a request must be sent for this piece"),
        });
        buffer = rest;
    }
    assert!(buffer.is_empty(), "MAP1: pieces cover all of the buffer");
    reads
}

/// Flushes every device once, however often it occurs.
pub fn flush_all<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Completion<'a> {
    let mut distinct: Vec<&'a Device> = Vec::new();
    for device in devices {
        if !distinct.iter().any(|known| known.is_same(device)) {
            distinct.push(device);
        }
    }
    fan_out(distinct.into_iter().map(|device| (device, Io::Flush)))
}

fn join(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut whole = Buffer::empty();
    let mut first_error: Option<IoError> = None;
    for outcome in outcomes {
        match outcome {
            Ok(part) if first_error.is_none() => whole.join(part),
            Ok(_) => {}
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(whole), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorTarget, ZeroTarget};
    use futures_util::FutureExt;
    use std::cell::Cell;
    use std::rc::Rc;
    use varve_block::{Arena, BlockDevice, Checked, Durability, Shape};

    /// Counts what reaches its end, one poll late.
    struct Slow {
        ended: Rc<Cell<u32>>,
        outcome: Option<IoError>,
    }

    impl BlockDevice for Slow {
        fn shape(&self) -> Shape {
            Shape::new(1 << 20, 512)
        }
        fn submit(&self, io: Checked) -> Completion<'_> {
            Completion::pending(async move {
                let mut polled = false;
                std::future::poll_fn(|context| {
                    if std::mem::replace(&mut polled, true) {
                        return std::task::Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                })
                .await;
                self.ended.set(self.ended.get() + 1);
                match (self.outcome, io.into_io()) {
                    (Some(error), _) => Err(error),
                    (None, Io::Read { buffer, .. }) => Ok(buffer),
                    (None, _) => Ok(Buffer::empty()),
                }
            })
        }
    }

    fn run(mut completion: Completion<'_>) -> Outcome {
        for _ in 0..10 {
            if let Some(outcome) = (&mut completion).now_or_never() {
                return outcome;
            }
        }
        panic!("not done after ten polls");
    }

    #[test]
    fn the_first_error_wins_and_every_piece_ends() {
        let arena = Arena::heap(1 << 16);
        let ended = Rc::new(Cell::new(0));
        let fails = |error| Device::new(Slow { ended: Rc::clone(&ended), outcome: error });
        let devices = [fails(None), fails(Some(IoError::NoSpace)), fails(Some(IoError::Medium)), fails(None)];
        let io = || Io::Write { offset: 0, data: arena.copy(&[1; 512]), durability: Durability::Volatile };
        let outcome = run(fan_out(devices.iter().map(|device| (device, io()))));
        assert_eq!(outcome.err(), Some(IoError::NoSpace));
        assert_eq!(ended.get(), 4);
    }

    #[test]
    fn a_flush_reaches_each_device_once() {
        let ended = Rc::new(Cell::new(0));
        let one = Device::new(Slow { ended: Rc::clone(&ended), outcome: None });
        let two = Device::new(Slow { ended: Rc::clone(&ended), outcome: None });
        assert!(run(flush_all([&one, &two, &one.clone()])).is_ok());
        assert_eq!(ended.get(), 2);
    }

    #[test]
    fn reads_come_back_as_one_buffer_and_without_waiting_if_all_could() {
        let arena = Arena::heap(1 << 16);
        let zero = Device::new(ZeroTarget::new(8192, 512));
        let error = Device::new(ErrorTarget::new(8192, 512, IoError::Gone));
        let split = || Io::Read { offset: 0, buffer: arena.take(4096) }.split_at(1024);
        let (first, rest) = split();
        let completion = fan_out([(&zero, first), (&zero, rest)]);
        assert!(matches!(completion, Completion::Ready(_)));
        assert_eq!(run(completion).expect("zeros").len(), 4096);
        let (first, rest) = split();
        assert_eq!(run(fan_out([(&zero, first), (&error, rest)])).err(), Some(IoError::Gone));
    }
}
