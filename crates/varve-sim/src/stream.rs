//! Connections of the simulated world: bytes in order both ways, cut and delayed by chance.
//!
//! Invariants:
//! - SIMSTREAM1. What was sent arrives in order and once, in pieces of any size; what was sent before the end arrives before it.
//! - SIMSTREAM2. After the end, whatever caused it, every send fails, and every receive does once it has what arrived before.

use crate::random::Random;
use crate::world::World;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{Buffer, ByteStream, Bytes, Clock, Received, Stream, StreamError, Transfer};

/// Bytes that a direction holds at most.
const CAPACITY: usize = 128 << 10;

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
    wakers: Vec<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    clock: Clock,
    random: RefCell<Random>,
}

/// Both ends of a new connection, for this boot of `world`.
pub fn stream_pair(world: &World) -> (Stream, Stream) {
    let (one, two) = (Rc::<RefCell<Pipe>>::default(), Rc::<RefCell<Pipe>>::default());
    let end = |incoming: &Rc<_>, outgoing: &Rc<_>| -> Stream {
        let (incoming, outgoing) = (Rc::clone(incoming), Rc::clone(outgoing));
        Rc::new(End { incoming, outgoing, clock: world.clock(), random: RefCell::new(world.random()) })
    };
    (end(&one, &two), end(&two, &one))
}

impl End {
    /// How much of `available` bytes is moved now: mostly all, sometimes next to nothing.
    fn piece(&self, available: usize) -> usize {
        let mut random = self.random.borrow_mut();
        match random.below(8) {
            0 => available.min(1 + random.index(64)),
            1 => available.min(1 + random.index(5000)),
            _ => available,
        }
    }

    async fn delay(&self) {
        let micros = {
            let mut random = self.random.borrow_mut();
            if random.chance(1, 3) { random.below(300) } else { 0 }
        };
        if micros > 0 {
            self.clock.sleep(Duration::from_micros(micros)).await;
        }
    }

    async fn receive_all(&self, mut buffer: Buffer, mut filled: usize, wanted: usize) -> Received {
        assert!(filled < wanted && wanted <= buffer.len(), "the contract of a stream");
        let result = poll_fn(|context| {
            let mut pipe = self.incoming.borrow_mut();
            while filled < wanted && !pipe.bytes.is_empty() {
                let count = self.piece(pipe.bytes.len().min(buffer.len() - filled));
                for (target, byte) in buffer[filled..filled + count].iter_mut().zip(pipe.bytes.drain(..count))
                {
                    *target = byte;
                }
                filled += count;
                pipe.wake();
            }
            match (filled >= wanted, pipe.closed) {
                (true, _) => Poll::Ready(Ok(filled)),
                (false, true) => Poll::Ready(Err(StreamError::Closed)),
                (false, false) => {
                    pipe.wakers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        (result, buffer)
    }

    async fn send_all(&self, parts: Vec<Bytes>) -> Result<(), StreamError> {
        for part in parts {
            let mut sent = 0;
            self.delay().await;
            poll_fn(|context| {
                let mut pipe = self.outgoing.borrow_mut();
                while sent < part.len() {
                    if pipe.closed {
                        return Poll::Ready(Err(StreamError::Broken));
                    }
                    let room = CAPACITY - pipe.bytes.len();
                    if room == 0 {
                        pipe.wakers.push(context.waker().clone());
                        return Poll::Pending;
                    }
                    let count = self.piece(room.min(part.len() - sent));
                    pipe.bytes.extend(&part[sent..sent + count]);
                    sent += count;
                    pipe.wake();
                }
                Poll::Ready(Ok(()))
            })
            .await?;
        }
        Ok(())
    }
}

impl ByteStream for End {
    fn receive(&self, buffer: Buffer, filled: usize, wanted: usize) -> Transfer<'_, Received> {
        Transfer::Pending(Box::pin(self.receive_all(buffer, filled, wanted)))
    }
    fn send(&self, parts: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        Transfer::Pending(Box::pin(self.send_all(parts)))
    }
    fn close(&self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = pipe.borrow_mut();
            pipe.closed = true;
            pipe.wake();
        }
    }
    fn peer(&self) -> String {
        "the other end of a simulated connection".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join;

    #[test]
    fn bytes_arrive_in_order_and_once_and_before_the_end() {
        for seed in 0..50 {
            let world = World::new(seed);
            let (one, two) = stream_pair(&world);
            let (arena, content) = (world.arena(), (0..300_000u32).map(|n| n as u8).collect::<Vec<_>>());
            let send = async {
                for part in content.chunks(7001) {
                    one.send(vec![arena.copy(part)]).await.expect("SIMSTREAM1: it is open");
                }
                one.close();
                assert_eq!(one.send(vec![arena.copy(&[1])]).await, Err(StreamError::Broken), "SIMSTREAM2");
            };
            let receive = async {
                let mut all = Vec::new();
                loop {
                    let (result, buffer) = two.receive(arena.take(5000), 0, 1).await;
                    let Ok(filled) = result else { return all };
                    all.extend_from_slice(&buffer[..filled]);
                }
            };
            let ((), received) = world.run(join(send, receive));
            assert!(received == content, "SIMSTREAM1, seed {seed}");
        }
    }
}
