//! A disk made slower on purpose: bandwidth and latency, to stand for hardware that is not at hand.

use std::cell::Cell;
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Clock, Completion, Device, Extent, Io, MapAnswer, MapFuture, MapIntent, Moment,
    Shape,
};

/// How slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThrottleOptions {
    /// Bytes a second that pass in all, reads and writes together; no limit if zero.
    pub bandwidth: u64,
    /// Added to each read and each change.
    pub latency: Duration,
    /// Added to each flush.
    pub latency_flush: Duration,
}

/// A device that answers no sooner than a disk of the given speed would: requests queue for the bandwidth in the
/// order in which they come, then each waits for its own latency.
pub struct Throttled {
    device: Device,
    clock: Clock,
    options: ThrottleOptions,
    /// When the bandwidth is free again.
    free_at: Cell<Moment>,
}

impl Throttled {
    /// Slows `device` down.
    pub fn new(device: Device, clock: Clock, options: ThrottleOptions) -> Self {
        Self { device, clock, options, free_at: Cell::default() }
    }

    /// When a request that comes now may be answered.
    fn deadline(&self, io: &Io) -> Moment {
        let now = self.clock.now();
        match io {
            Io::Flush => now.after(self.options.latency_flush),
            Io::Zero { .. } | Io::Discard { .. } => now.after(self.options.latency),
            Io::Read { .. } | Io::Write { .. } => {
                let free_at = self.free_at.get().max(now).after(self.passage(io.extent().length));
                self.free_at.set(free_at);
                free_at.after(self.options.latency)
            }
        }
    }

    /// How long so many bytes take to pass.
    fn passage(&self, bytes: u64) -> Duration {
        if self.options.bandwidth == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.options.bandwidth);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl BlockDevice for Throttled {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let deadline = self.deadline(io.io());
        let under_way = self.device.submit(io.into_io());
        Completion::pending(async move {
            let outcome = under_way.await;
            self.clock.sleep_until(deadline).await;
            outcome
        })
    }

    /// A caller that moved the bytes itself would pass unthrottled.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}
