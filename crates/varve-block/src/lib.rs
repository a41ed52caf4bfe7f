//! What a device is: units, buffers, requests, the checked door, errors, time.
//!
//! There is one thing in Varve: a [`Device`], a run of blocks that can be read, written and made durable.
//! Requests are data ([`Io`]) and travel down; answers ([`Outcome`]) travel back. Everything that is not
//! deterministic (disks, clocks, tasks, sockets) enters through the traits of this crate, so that the same
//! engine runs in the real world (`varve-os`) and in a simulated one (`varve-sim`).
//!
//! Tasks of one thread wait for each other by [`Notify`] (a condition becomes true), [`Tracker`] (all that is counted has
//! ended) and [`Gate`] (no task goes in until it opens).

mod adapters;
mod buffer;
mod clock;
mod device;
mod error;
pub mod host;
mod io;
mod latency;
mod map;
mod shape;
mod stream;
mod tasks;
mod units;
mod zeros;

#[cfg(test)]
mod tests;

pub use adapters::overlay::overlay;
pub use adapters::portal::{Done, Portal, Submit};
pub use adapters::read_only::read_only;
pub use adapters::switch::{Suspended, Switch};
pub use adapters::unaligned::{Shown, accept_unaligned, accept_unaligned_shown};
pub use buffer::{Arena, ArenaUse, Buffer, Bytes, HeapMemory, Memory};
pub use clock::{Clock, ClockSource, LocalFuture, Moment, UnixTime, timeout};
pub use device::{
    BlockDevice, Checked, Completion, Device, Forwarded, Location, MapAnswer, MapFuture, MapGuard, MapIntent,
    MapPiece,
};
pub use error::IoError;
pub use io::{Durability, Io, Outcome, ZeroOptions};
pub use latency::{LATENCY_BUCKETS, Latencies, Latency, SharedLatencies, Timed};
pub use shape::{Access, Allocation, Rejected, Shape, StatusRun};
pub use stream::{ByteStream, Received, Stream, StreamError, Transfer};
pub use tasks::event_limit::EventLimit;
pub use tasks::gate::Gate;
pub use tasks::lock::{LockMode, RangeGuard, RangeLock, RangeWait};
pub use tasks::notify::Notify;
pub use tasks::spawn::{Spawn, Spawner};
pub use tasks::tracker::{Tracker, TrackerGuard};
pub use tasks::yield_now::yield_now;
pub use units::{Extent, GIB, KIB, MIB, align_down, align_up, is_aligned, joined};
pub use zeros::is_zero;
