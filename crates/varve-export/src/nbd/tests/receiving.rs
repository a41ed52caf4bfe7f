//! How many bytes a connection receives at a time.

use super::super::receive_buffer::{BUSY_BYTES, LANDING_BYTES, ReceiveBuffer, ReceiveMemory, Taken};
use crate::budget::Budget;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use varve_block::{Arena, Buffer, ByteStream, Bytes, Received, Stream, StreamError, Transfer};
use varve_nbd::{Command, Framing, Request};

/// A client that has sent so many bytes of headers, and nothing else until it sends more.
#[derive(Default)]
struct Burst {
    there: RefCell<VecDeque<u8>>,
    /// Bytes for which each receive had room.
    asked: RefCell<Vec<usize>>,
    sent: Cell<u64>,
}

impl Burst {
    fn send(&self, requests: u64) {
        for _ in 0..requests {
            let flush =
                Request { flags: 0, command: Command::Flush, cookie: self.sent.get(), offset: 0, length: 0 };
            self.there.borrow_mut().extend(flush.encode(Framing::Simple).expect("a flush").iter());
            self.sent.set(self.sent.get() + 1);
        }
    }
}

impl ByteStream for Burst {
    fn receive(&self, mut buffer: Buffer, filled: usize, wanted: usize) -> Transfer<'_, Received> {
        self.asked.borrow_mut().push(buffer.len());
        let mut there = self.there.borrow_mut();
        let count = there.len().min(buffer.len() - filled);
        if filled + count < wanted {
            return Transfer::Pending(Box::pin(async move {
                let _held = buffer;
                std::future::pending().await
            }));
        }
        for (to, from) in buffer[filled..].iter_mut().zip(there.drain(..count)) {
            *to = from;
        }
        Transfer::ready((Ok(filled + count), buffer))
    }
    fn send(&self, _: Vec<Bytes>) -> Transfer<'_, Result<(), StreamError>> {
        Transfer::ready(Ok(()))
    }
    fn close(&self) {}
    fn peer(&self) -> String {
        "a burst".to_owned()
    }
}

/// Takes all requests that were received, of which the first has this cookie; the cookie of the next one.
fn take_all(buffer: &mut ReceiveBuffer<'_>, first: u64) -> u64 {
    let mut next = first;
    while let Some(request) = buffer.peek().expect("sound") {
        assert!(matches!(buffer.take(&request), Taken::Whole(None)), "a flush is a header");
        assert_eq!(request.cookie, next, "none is lost");
        next += 1;
    }
    next
}

#[test]
fn a_burst_that_came_while_requests_were_answered_is_received_at_once_and_waiting_takes_the_short_buffer() {
    let (arena, budget) = (Arena::heap(4 << 20), Budget::new(4 << 20));
    let burst = Rc::new(Burst::default());
    let stream: Stream = Rc::clone(&burst) as Stream;
    let memory = ReceiveMemory::new(&arena, &budget);
    let mut buffer = ReceiveBuffer::new(&stream, Framing::Simple, memory, &[]);
    burst.send(1000); // More than the short buffer has: it is followed by a long one.
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(buffer.poll_receive(true, &mut context), Poll::Ready(()));
    let next = take_all(&mut buffer, 0);
    assert_eq!(buffer.poll_receive(false, &mut context), Poll::Ready(()));
    assert_eq!(take_all(&mut buffer, next), 1000);
    assert_eq!(*burst.asked.borrow(), [LANDING_BYTES, BUSY_BYTES]);
    burst.send(2000);
    assert_eq!(buffer.poll_receive(true, &mut context), Poll::Ready(()));
    assert_eq!(take_all(&mut buffer, 1000), 3000);
    assert_eq!(buffer.poll_receive(true, &mut context), Poll::Pending);
    assert_eq!(
        burst.asked.borrow()[2..],
        [BUSY_BYTES, BUSY_BYTES, LANDING_BYTES],
        "all of it at once, then it waits: RECEIVE4"
    );
    assert_eq!((budget.used(), arena.usage().in_use), (0, LANDING_BYTES as u64), "RECEIVE4");
}
