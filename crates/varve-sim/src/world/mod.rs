//! The simulated world: a seeded executor, a clock that jumps, and the moment at which everything crashes.
//!
//! Invariants:
//! - WORLD1. Everything that happens is a function of the seed and of what the caller does.
//! - WORLD2. Time moves only from one timer to a later one.
//! - WORLD3. From the moment of a crash until the crash is over, no disk sees a request.
//! - WORLD4. After a crash nothing of the former boot is left: no task, no timer, no request.
//! - WORLD5. A power cut concerns every disk that was ever attached, also one that the boot which it ended had not attached yet.

mod clock;
mod crash;
mod now;
mod ready;
mod shared;

pub use crash::{CrashAt, CrashKind};
pub(crate) use shared::{Core, Hardware, Stage};

use crate::chance::{Chooser, CrashTally};
use crate::random::Random;
use clock::{SeededSpawner, VirtualClock};
use ready::{MainWaker, Ready};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use varve_block::{Arena, Clock, Spawner, UnixTime};

/// How a run ended.
#[derive(Debug)]
#[must_use]
pub enum Ran<T> {
    /// The future was done before any crash.
    Finished(T),
    /// A crash came first.
    Crashed,
}

impl<T> Ran<T> {
    /// Whether the crash came.
    pub fn crashed(&self) -> bool {
        matches!(self, Ran::Crashed)
    }
}

/// The world. It ends when it is dropped, as a killed process does: see [`CrashKind::Process`].
pub struct World {
    core: Rc<Core>,
}

impl World {
    /// A world in which `seed` decides which task runs first, how long things take and what breaks.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, false)
    }

    /// A world for exact measurements: tasks run in the order in which they became ready, and time moves only when none is.
    pub fn steady(seed: u64) -> Self {
        Self::build(seed, true)
    }

    fn build(seed: u64, steady: bool) -> Self {
        Self { core: Rc::new(Core::new(seed, steady)) }
    }

    /// The seed that the world was made from.
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// The virtual clock.
    pub fn clock(&self) -> Clock {
        Clock::new(Rc::new(VirtualClock(Rc::clone(&self.core))))
    }

    /// Sets the date that the clock says, forwards or back; timers go on as before.
    pub fn set_date(&self, date: UnixTime) {
        self.core.now.set_date(date);
    }

    /// The right to start tasks.
    pub fn spawner(&self) -> Spawner {
        Spawner::new(Rc::new(SeededSpawner(Rc::clone(&self.core))))
    }

    /// Memory for requests.
    pub fn arena(&self) -> Arena {
        self.core.arena.clone()
    }

    /// A generator of its own for a workload.
    pub fn random(&self) -> Random {
        self.core.random.borrow_mut().fork()
    }

    /// A hash of everything that happened so far: equal for equal seeds (WORLD1).
    pub fn trace_hash(&self) -> u64 {
        self.core.trace.get()
    }

    /// Number of disk events so far; see [`CrashAt::Event`].
    pub fn events(&self) -> u64 {
        self.core.events.get()
    }

    /// The crash states that this world has gone through.
    pub fn tally(&self) -> CrashTally {
        self.core.tally.get()
    }

    /// Lets the power fail at `at`, in place of any crash scheduled before.
    pub fn schedule_crash(&self, at: CrashAt) {
        self.schedule(at, CrashKind::Power);
    }

    /// Schedules a crash of `kind`, in place of any scheduled before.
    pub fn schedule(&self, at: CrashAt, kind: CrashKind) {
        let at = match at {
            CrashAt::Event(0) => panic!("a crash comes after an event"),
            CrashAt::Event(count) => CrashAt::Event(self.core.events.get().saturating_add(count)),
            time @ CrashAt::Time(_) => time,
        };
        self.core.crash.set(Some((at, kind)));
    }

    /// Takes back a scheduled crash.
    pub fn disarm(&self) {
        self.core.crash.set(None);
    }

    /// Crashes now, between two runs.
    pub fn crash(&self, kind: CrashKind) {
        assert!(!self.core.running.get(), "a crash inside a run is scheduled");
        self.core.halted.set(Some(kind));
        self.core.finish_crash();
    }

    pub(crate) fn set_chooser(&self, chooser: Chooser) {
        self.core.chooser.replace(chooser);
    }

    pub(crate) fn take_chooser(&self) -> Chooser {
        self.core.chooser.replace(Chooser::random(Random::new(self.core.seed)))
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Runs `future` to its end, and tasks beside it. Panics if nothing can ever happen again, and if a scheduled
    /// crash comes.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        match self.drive(Box::pin(future)) {
            Some(value) => value,
            None => panic!("a scheduled crash came in a run that does not expect one"),
        }
    }

    /// Runs `future` until it ends or the scheduled crash comes. At the crash `future` and all tasks are dropped,
    /// and the disks lose what the crash takes; then the world can be used again: the next run is the next boot,
    /// for which devices are made anew. A crash that did not come before the end is taken back.
    pub fn run_until_crash<T>(&self, future: impl Future<Output = T>) -> Ran<T> {
        match self.drive(Box::pin(future)) {
            Some(value) => {
                self.disarm();
                Ran::Finished(value)
            }
            None => {
                self.core.finish_crash();
                Ran::Crashed
            }
        }
    }

    /// Lets tasks and requests go on for `duration` of virtual time.
    pub fn settle(&self, duration: Duration) {
        let clock = self.clock();
        self.run(async move { clock.sleep(duration).await });
    }

    /// `None` if a crash came; the future is dropped then, or when it is done.
    fn drive<T>(&self, mut main: Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
        let core = &self.core;
        assert!(!core.running.replace(true), "runs are not nested");
        let _running = Running(core);
        let main_waker = Arc::new(MainWaker::new(Arc::clone(&core.ready)));
        let waker = Waker::from(Arc::clone(&main_waker));
        waker.wake_by_ref();
        loop {
            if core.halted.get().is_some() || core.crash_time_has_come() {
                return None;
            }
            match core.next() {
                Some(Ready::Main) => {
                    main_waker.taken();
                    let polled = main.as_mut().poll(&mut Context::from_waker(&waker));
                    if let (Poll::Ready(value), None) = (polled, core.halted.get()) {
                        return Some(value);
                    }
                }
                Some(Ready::Task(runnable)) => {
                    runnable.run();
                }
                None if core.advance() => {}
                None => core.report_deadlock(),
            }
        }
    }
}

struct Running<'a>(&'a Core);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.core.show_recent();
            self.core.leak();
            return;
        }
        self.core.end_process();
    }
}
