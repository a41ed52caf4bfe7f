//! How fast an export may be: requests and bytes a second, over all of its connections.
//!
//! Invariants:
//! - LIMITS1. Requests begin in the order in which they came, each when those before it are paid for, or are within a moment.
//! - LIMITS2. A change of the limits holds at once, also for requests that wait.
//! - LIMITS3. A flush does not wait: it moves nothing, and whoever waits for it would hold up everything else.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Clock, Completion, Device, Extent, Io, LocalFuture, MapAnswer, MapFuture,
    MapIntent, Moment, Shape,
};

/// How far requests may be ahead of what is paid for: an export that was idle may do so much at once.
const AHEAD: Duration = Duration::from_millis(100);

/// Limits in a second; none where there is no limit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rates {
    /// Requests that read, write, zero or discard; not 0.
    pub requests: Option<u64>,
    /// Bytes that are read or written; not 0.
    pub bytes: Option<u64>,
}

impl Rates {
    /// How long a request of so many bytes takes at these rates.
    fn time_for(self, bytes: u64) -> Duration {
        let share = |amount: u64, rate: Option<u64>| {
            let rate = u128::from(rate.filter(|_| amount > 0)?);
            let nanos = u128::from(amount) * 1_000_000_000 / rate;
            Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        share(1, self.requests).max(share(bytes, self.bytes)).unwrap_or_default()
    }
}

/// The limits of an export. Cloning shares them, also with other threads.
#[derive(Clone, Default)]
pub struct Limits(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// There are rates, or requests that wait since there were some; without them a request passes without the lock.
    is_limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rates: Rates,
    /// When all requests that began are paid for.
    paid: Moment,
    /// Requests that wait, in the order in which they came, with what wakes them.
    waiting: VecDeque<(u64, Waker)>,
    last: u64,
}

impl Limits {
    /// The rates from now on (LIMITS2). What was done before is forgiven.
    pub fn set(&self, rates: Rates) {
        let mut state = self.state();
        if state.rates != rates {
            (state.rates, state.paid) = (rates, Moment::default());
            let is_limited = rates != Rates::default() || !state.waiting.is_empty();
            self.0.is_limited.store(is_limited, Ordering::Release);
            state.wake_first();
        }
    }

    /// `device` behind these limits.
    pub fn guard(&self, device: Device, clock: Clock) -> Device {
        Device::new(Limited { device, limits: self.clone(), clock })
    }

    /// Whether a request may begin that comes now.
    fn lets_pass(&self, bytes: u64, now: impl FnOnce() -> Moment) -> bool {
        if !self.0.is_limited.load(Ordering::Acquire) {
            return true;
        }
        let mut state = self.state();
        state.waiting.is_empty() && (state.rates == Rates::default() || state.begin(bytes, now()).is_ok())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets a request begin, or says when it may (LIMITS1).
    fn begin(&mut self, bytes: u64, now: Moment) -> Result<(), Moment> {
        let wait = self.paid.since(now).saturating_sub(AHEAD);
        if !wait.is_zero() {
            return Err(now.after(wait));
        }
        self.paid = self.paid.max(now).after(self.rates.time_for(bytes));
        Ok(())
    }

    fn wake_first(&self) {
        self.waiting.front().into_iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// The turn of a request; it completes when the request may begin.
struct Turn<'a> {
    limits: &'a Limits,
    clock: &'a Clock,
    bytes: u64,
    /// Its number among those that wait.
    number: Option<u64>,
    sleep: Option<(Moment, LocalFuture<'static, ()>)>,
}

impl Future for Turn<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let me = &mut *self;
        loop {
            let mut state = me.limits.state();
            let number = *me.number.get_or_insert_with(|| {
                state.last += 1;
                let number = state.last;
                state.waiting.push_back((number, context.waker().clone()));
                number
            });
            if let Some((_, waker)) = state.waiting.iter_mut().find(|(waiting, _)| *waiting == number) {
                waker.clone_from(context.waker());
            }
            if state.waiting.front().is_none_or(|(first, _)| *first != number) {
                return Poll::Pending;
            }
            let Err(at) = state.begin(me.bytes, me.clock.now()) else {
                state.waiting.pop_front();
                state.wake_first();
                me.number = None;
                return Poll::Ready(());
            };
            drop(state);
            if me.sleep.as_ref().is_none_or(|(until, _)| *until != at) {
                me.sleep = Some((at, me.clock.sleep_until(at)));
            }
            let Some((_, sleep)) = &mut me.sleep else { unreachable!("it has just been made") };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            me.sleep = None;
        }
    }
}

impl Drop for Turn<'_> {
    /// A request that is given up holds up no other one.
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.limits.state();
        state.waiting.retain(|(waiting, _)| *waiting != number);
        state.wake_first();
    }
}

struct Limited {
    device: Device,
    limits: Limits,
    clock: Clock,
}

impl BlockDevice for Limited {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        let bytes = match &io {
            Io::Flush => return self.device.submit(io), // LIMITS3
            Io::Read { .. } | Io::Write { .. } => io.extent().length,
            Io::Zero { .. } | Io::Discard { .. } => 0,
        };
        if self.limits.lets_pass(bytes, || self.clock.now()) {
            return self.device.submit(io);
        }
        Completion::pending(async move {
            Turn { limits: &self.limits, clock: &self.clock, bytes, number: None, sleep: None }.await;
            self.device.submit(io).await
        })
    }

    /// A caller that moved the bytes itself would not be limited.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use varve_block::{Durability, KIB, MIB};
    use varve_sim::{SimDisk, World};

    const REQUESTS: Rates = Rates { requests: Some(100), bytes: None };

    fn guarded(world: &World, disk: &SimDisk, limits: &Limits) -> Device {
        limits.guard(disk.device(world), world.clock())
    }

    /// Writes `count` blocks of `length` bytes, all at once; the time until they are done, in milliseconds.
    async fn write(world: &World, device: &Device, count: u64, length: u64) -> u128 {
        let begun = world.clock().now();
        let bytes = vec![7; usize::try_from(length).expect("few bytes")];
        let one = |number| {
            let data = world.arena().copy(&bytes);
            device.write(number * length, data, Durability::Volatile)
        };
        for written in join_all((0..count).map(one)).await {
            written.expect("no faults");
        }
        world.clock().now().since(begun).as_millis()
    }

    #[test]
    fn all_connections_of_an_export_share_its_requests_a_second() {
        let (world, disk, limits) = (World::new(1), SimDisk::new(4 * MIB), Limits::default());
        world.run(async {
            let (one, other) = (guarded(&world, &disk, &limits), guarded(&world, &disk, &limits));
            let free = write(&world, &one, 200, 4096).await;
            assert!(free < 100, "without limits: {free} ms");
            limits.set(REQUESTS);
            let (first, second) =
                futures_util::join!(write(&world, &one, 100, 4096), write(&world, &other, 100, 4096));
            let (first, second) = (first - 890, second - 1_890);
            assert!(first < 20 && second < 20, "LIMITS1: 11 of 200 requests begin at once, {first} {second}");
        });
    }

    #[test]
    fn bytes_have_a_limit_of_their_own_and_the_slower_one_counts() {
        let (world, disk, limits) = (World::new(2), SimDisk::new(16 * MIB), Limits::default());
        world.run(async {
            let device = guarded(&world, &disk, &limits);
            limits.set(Rates { requests: Some(100), bytes: Some(MIB) });
            let large = write(&world, &device, 32, 64 * KIB).await;
            assert!((1_800..2_000).contains(&large), "2 MiB at 1 MiB a second: {large} ms");
            let small = write(&world, &device, 200, 512).await;
            assert!((1_900..2_200).contains(&small), "200 requests at 100 a second: {small} ms");
            limits.set(Rates { requests: None, bytes: Some(KIB) });
            write(&world, &device, 1, MIB).await;
            let begun = world.clock().now();
            device.flush().await.expect("no faults");
            assert!(world.clock().now().since(begun) < Duration::from_secs(1), "LIMITS3");
        });
    }

    #[test]
    fn a_change_counts_for_requests_that_wait_and_one_that_is_given_up_holds_up_none() {
        let (world, disk, limits) = (World::new(3), SimDisk::new(16 * MIB), Limits::default());
        world.run(async {
            let device = guarded(&world, &disk, &limits);
            limits.set(Rates { requests: Some(1), bytes: None });
            write(&world, &device, 1, 4096).await;
            {
                let given_up = device.write(0, world.arena().copy(&[1; 512]), Durability::Volatile);
                assert!(given_up.now_or_never().is_none(), "it waits, and is dropped");
            }
            let lift = async {
                world.clock().sleep(Duration::from_secs(3)).await;
                limits.set(Rates::default());
            };
            let (took, ()) = futures_util::join!(write(&world, &device, 100, 4096), lift);
            assert!((3_000..3_200).contains(&took), "LIMITS2: {took} ms");
            assert!(limits.state().waiting.is_empty());
        });
    }
}
