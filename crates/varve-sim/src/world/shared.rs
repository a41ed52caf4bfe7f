//! What disks, clocks and spawners of a world share: time, timers, tasks, chance, and the crash to come.
//!
//! The invariants WORLD1 to WORLD4 of the world are kept here.

use super::crash::{CrashAt, CrashKind};
use super::now::Now;
use super::ready::{Ready, ReadyQueue};
use crate::chance::{Chooser, CrashTally};
use crate::random::{Random, mix};
use async_task::Task;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use varve_block::{Arena, Extent, Moment};

/// Polls and timers after which a run is held to be going round in circles.
const STEPS_MAX: u64 = 100_000_000;
/// How long a task that could go on may be kept waiting by chance.
const SLOWNESS_MAX: Duration = Duration::from_millis(1);
/// Disk events that are kept to be shown when something fails.
const RECENT_MAX: usize = 64;
/// Bytes of the world's arena: small, for every world pays for clearing it; what does not fit comes from the heap.
const ARENA_BYTES: usize = 128 << 10;

/// What disks, clocks and spawners of a world share.
pub(crate) struct Core {
    pub(super) seed: u64,
    pub(super) steady: bool,
    pub(super) now: Now,
    pub(super) random: RefCell<Random>,
    pub(super) chooser: RefCell<Chooser>,
    pub(super) ready: Arc<ReadyQueue>,
    pub(super) tasks: RefCell<BTreeMap<u64, Task<()>>>,
    pub(super) timers: RefCell<BTreeMap<TimerKey, Due>>,
    pub(super) next_id: Cell<u64>,
    pub(super) steps: Cell<u64>,
    hardware: RefCell<AllHardware>,
    pub(super) crash: Cell<Option<(CrashAt, CrashKind)>>,
    pub(super) events: Cell<u64>,
    pub(super) halted: Cell<Option<CrashKind>>,
    pub(super) boot: Cell<u64>,
    pub(super) running: Cell<bool>,
    pub(super) trace: Cell<u64>,
    pub(super) recent: RefCell<VecDeque<Event>>,
    pub(super) tally: Cell<CrashTally>,
    pub(super) arena: Arena,
}

/// Something that a crash concerns.
pub(crate) trait Hardware {
    /// Loses what a crash of this kind takes away, and forgets all requests under way.
    fn crash(&self, kind: CrashKind, random: &mut Random, chooser: &mut Chooser) -> CrashTally;
    /// The requests under way, as text for a report.
    fn in_flight(&self) -> Vec<String>;
}

/// The hardware of a world.
#[derive(Default)]
struct AllHardware {
    /// Of this boot.
    attached: Vec<Rc<dyn Hardware>>,
    /// Of any boot.
    known: Vec<Weak<dyn Hardware>>,
}

/// Moment, tie-breaker, number.
pub(super) type TimerKey = (Moment, u64, u64);

pub(super) enum Due {
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
}

/// One thing that happened to a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) disk: usize,
    pub(crate) stage: Stage,
    pub(crate) verb: &'static str,
    pub(crate) extent: Extent,
    at: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Submitted,
    Completed,
    Failed,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { disk, stage, verb, extent, at } = self;
        write!(f, "{:>12} ns  disk {disk}: {verb} {extent:?} {stage:?}", at.0)
    }
}

impl Core {
    pub(super) fn new(seed: u64, steady: bool) -> Self {
        let mut random = Random::new(seed);
        let chooser = Chooser::random(random.fork());
        Core {
            seed,
            steady,
            now: Now::default(),
            random: RefCell::new(random),
            chooser: RefCell::new(chooser),
            ready: Arc::default(),
            tasks: RefCell::default(),
            timers: RefCell::default(),
            next_id: Cell::default(),
            steps: Cell::default(),
            hardware: RefCell::default(),
            crash: Cell::default(),
            events: Cell::default(),
            halted: Cell::default(),
            boot: Cell::default(),
            running: Cell::default(),
            trace: Cell::new(seed),
            recent: RefCell::default(),
            tally: Cell::default(),
            arena: Arena::heap(ARENA_BYTES),
        }
    }

    /// The next task to run; none if time has to move first.
    pub(super) fn next(&self) -> Option<Ready> {
        let steps = self.steps.get() + 1;
        assert!(steps < STEPS_MAX, "seed {}: {STEPS_MAX} steps and no end", self.seed);
        self.steps.set(steps);
        if self.steady {
            return self.ready.first();
        }
        let count = self.ready.len();
        if count == 0 {
            return None;
        }
        // Now and then a task is slow, and something else happens before it is polled.
        let mut random = self.random.borrow_mut();
        if random.chance(1, 16)
            && self.next_timer().is_some_and(|due| due <= self.now.get().after(SLOWNESS_MAX))
        {
            return None;
        }
        let index = if count == 1 { 0 } else { random.index(count) };
        drop(random);
        self.note(index as u64);
        self.ready.take(index)
    }

    fn next_timer(&self) -> Option<Moment> {
        self.timers.borrow().first_key_value().map(|(key, _)| key.0)
    }

    /// Moves time to the next timer and lets it fire. False if there is none.
    pub(super) fn advance(&self) -> bool {
        let first = self.timers.borrow_mut().pop_first();
        let Some((key, due)) = first else { return false };
        if let Some((CrashAt::Time(crash), _)) = self.crash.get()
            && crash < key.0
        {
            self.timers.borrow_mut().insert(key, due);
            self.now.set(crash);
            return true;
        }
        assert!(self.now.get() <= key.0, "WORLD2: a timer is set for later");
        self.now.set(key.0);
        self.note(key.0.0);
        match due {
            Due::Wake(waker) => waker.wake(),
            Due::Call(call) => call(),
        }
        true
    }

    pub(super) fn crash_time_has_come(&self) -> bool {
        match self.crash.get() {
            Some((CrashAt::Time(moment), kind)) if moment <= self.now.get() => {
                self.halted.set(Some(kind));
                true
            }
            _ => false,
        }
    }

    pub(super) fn report_deadlock(&self) -> ! {
        let in_flight: Vec<_> =
            self.hardware.borrow().attached.iter().flat_map(|hardware| hardware.in_flight()).collect();
        self.show_recent();
        panic!(
            "deadlock: seed {}, {} ns: nothing is ready and no timer runs; {} tasks wait; requests under way: {}",
            self.seed,
            self.now.get().0,
            self.tasks.borrow().len(),
            if in_flight.is_empty() { "none".to_owned() } else { in_flight.join("; ") },
        )
    }

    pub(super) fn show_recent(&self) {
        if crate::quiet::is_quiet() {
            return;
        }
        eprintln!("the last disk events of seed {}:", self.seed);
        for event in self.recent.borrow().iter() {
            eprintln!("  {event}");
        }
    }

    /// Drops every task, timer and waiting future (WORLD4).
    fn end_boot(&self) {
        loop {
            let tasks = self.tasks.take();
            let timers = self.timers.take();
            if tasks.is_empty() && timers.is_empty() && self.ready.len() == 0 {
                break;
            }
            // Dropping the handle of a task cancels it; its future goes when it is run, or dropped, once more.
            drop(tasks);
            drop(timers);
            while let Some(ready) = self.ready.first() {
                drop(ready);
            }
        }
    }

    /// The process ends, but the disks keep their power.
    pub(super) fn end_process(&self) {
        self.end_boot();
        let (mut random, mut chooser) = (self.random.borrow_mut(), self.chooser.borrow_mut());
        for hardware in self.hardware.take().attached {
            hardware.crash(CrashKind::Process, &mut random, &mut chooser);
        }
    }

    /// Forgets all tasks without dropping them: what a panic left half done is not run through destructors that
    /// might panic again.
    pub(super) fn leak(&self) {
        std::mem::forget(self.tasks.take());
        while let Some(ready) = self.ready.first() {
            std::mem::forget(ready);
        }
    }

    /// The crash that has begun takes its course.
    pub(super) fn finish_crash(&self) {
        let kind = self.halted.get().expect("a crash is finished once it has begun");
        self.crash.set(None);
        self.end_boot();
        let mut tally = self.tally.get();
        let mut lost = CrashTally::default();
        {
            let mut random = self.random.borrow_mut();
            let mut chooser = self.chooser.borrow_mut();
            chooser.begin();
            for hardware in &self.hardware.borrow().attached {
                lost.merge(hardware.crash(kind, &mut random, &mut chooser));
            }
        }
        if kind == CrashKind::Power {
            lost.merge(self.cut_power_of_others());
        }
        tally.add_state(lost);
        self.tally.set(tally);
        crate::chance::count_on_this_thread(lost);
        self.note(lost.sectors_lost);
        // The disks of the next boot are those that are attached anew.
        self.hardware.borrow_mut().attached.clear();
        self.boot.set(self.boot.get() + 1);
        self.halted.set(None);
    }

    /// Disks of earlier boots that were not attached in this one lose their power too. They choose what they lose by themselves: a disk
    /// that has nothing to lose changes nothing of the history.
    fn cut_power_of_others(&self) -> CrashTally {
        let mut hardware = self.hardware.borrow_mut();
        let AllHardware { attached, known } = &mut *hardware;
        let mut random = Random::new(self.seed ^ mix(self.boot.get()));
        let mut chooser = Chooser::random(random.fork());
        known.retain(|hardware| hardware.strong_count() > 0);
        let mut lost = CrashTally::default();
        for hardware in known.iter().filter_map(Weak::upgrade) {
            if !attached.iter().any(|other| Rc::ptr_eq(other, &hardware)) {
                lost.merge(hardware.crash(CrashKind::Power, &mut random, &mut chooser));
            }
        }
        lost
    }

    /// Registers hardware; returns its number in this boot.
    pub(crate) fn attach(&self, hardware: Rc<dyn Hardware>) -> usize {
        let mut all = self.hardware.borrow_mut();
        let AllHardware { attached, known } = &mut *all;
        if let Some(index) = attached.iter().position(|other| Rc::ptr_eq(other, &hardware)) {
            return index;
        }
        if !known.iter().any(|other| std::ptr::addr_eq(other.as_ptr(), Rc::as_ptr(&hardware))) {
            known.push(Rc::downgrade(&hardware));
        }
        attached.push(hardware);
        attached.len() - 1
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boot.get()
    }

    /// Whether a crash has begun (WORLD3).
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.get().is_some()
    }

    pub(crate) fn now(&self) -> Moment {
        self.now.get()
    }

    pub(crate) fn is_steady(&self) -> bool {
        self.steady
    }

    pub(crate) fn with_random<T>(&self, ask: impl FnOnce(&mut Random) -> T) -> T {
        ask(&mut self.random.borrow_mut())
    }

    /// Mixes `value` into the trace.
    fn note(&self, value: u64) {
        self.trace.set(mix(self.trace.get() ^ value));
    }

    /// Takes note of something that happened to a disk. If `counts`, a crash may come right after it.
    pub(crate) fn event(&self, disk: usize, stage: Stage, verb: &'static str, extent: Extent, counts: bool) {
        let event = Event { disk, stage, verb, extent, at: self.now.get() };
        let mut recent = self.recent.borrow_mut();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(event);
        drop(recent);
        self.note(extent.offset ^ extent.length.rotate_left(20) ^ (disk as u64).rotate_left(50));
        self.note(u64::from(verb.as_bytes()[0]) | (stage as u64) << 8);
        if !counts {
            return;
        }
        let events = self.events.get() + 1;
        self.events.set(events);
        if let Some((CrashAt::Event(last), kind)) = self.crash.get()
            && events >= last
        {
            self.halted.set(Some(kind));
        }
    }

    /// Calls `call` at `moment`, unless a crash comes first.
    pub(crate) fn call_at(&self, moment: Moment, call: impl FnOnce() + 'static) {
        self.set_timer(moment, Due::Call(Box::new(call)));
    }

    pub(super) fn set_timer(&self, moment: Moment, due: Due) -> TimerKey {
        let moment = moment.max(self.now.get());
        let tie = if self.steady { 0 } else { self.random.borrow_mut().bits() };
        let key = (moment, tie, self.new_id());
        self.timers.borrow_mut().insert(key, due);
        key
    }

    pub(super) fn new_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }
}
