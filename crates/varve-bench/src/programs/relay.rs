//! A load of one processor that has nothing to do with Varve: two threads that compute in turn and pass a byte to each
//! other, as a client and a server do that wait for one another.

use crate::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long each computes before it passes the byte on: about as long as a list of a thousand snapshots takes.
pub(crate) const TURN: Duration = Duration::from_micros(1500);

/// Does `work` while the two threads run.
pub(crate) fn beside_relay<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let (one, two) = UnixStream::pair()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| relay(one, true, &stop));
        scope.spawn(|| relay(two, false, &stop));
        let outcome = work();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Computes and passes the byte on until `stop` is set. The end of one closes the stream, and ends the other.
fn relay(mut stream: UnixStream, mut has_byte: bool, stop: &AtomicBool) {
    let mut byte = [0];
    while !stop.load(Ordering::Relaxed) {
        if !has_byte && stream.read_exact(&mut byte).is_err() {
            return;
        }
        let watch = Watch::start();
        while watch.elapsed() < TURN {
            std::hint::spin_loop();
        }
        if stream.write_all(&byte).is_err() {
            return;
        }
        has_byte = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_threads_end_with_the_work() {
        assert_eq!(beside_relay(|| Ok(1)), Ok(1));
        assert_eq!(beside_relay(|| Err::<(), _>(Failed::from("failed"))), Err("failed".into()));
    }
}
