//! The simulated world: a seeded executor, a clock that jumps, and the moment at which everything crashes.
//!
//! Invariants:
//! - W1. Everything that happens is a function of the seed and of what the caller does.
//! - W2. Time moves only from one timer to a later one.
//! - W3. From the moment of a crash until the crash is over, no disk sees a request.
//! - W4. After a crash nothing of the former boot is left: no task, no timer, no request.

use crate::chance::{Chooser, CrashTally};
use crate::random::{Random, mix};
use async_task::{Runnable, Task};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use varve_block::{Arena, Clock, ClockSource, Extent, LocalFuture, Moment, Spawn, Spawner, UnixTime};

/// The date at which every world begins: 2026-01-01 00:00 UTC.
const BEGINNING: UnixTime = UnixTime(1_767_225_600);
/// Polls and timers after which a run is held to be going round in circles.
const STEPS_MAX: u64 = 100_000_000;
/// How long a task that could go on may be kept waiting by chance.
const SLOWNESS_MAX: Duration = Duration::from_millis(1);
/// Disk events that are kept to be shown when something fails.
const RECENT_MAX: usize = 64;
/// Bytes of the world's arena: small, for every world pays for clearing it; what does not fit comes from the heap.
const ARENA_BYTES: usize = 128 << 10;

/// When a crash happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashAt {
    /// Right after that many more disk events, at least one: a change or a flush submitted, or completed.
    Event(u64),
    /// At that virtual time, or at once if it has passed.
    Time(Moment),
}

/// What a crash takes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The power fails: all tasks end, and the disks' caches are lost by the rule of [`crate::SimDisk`].
    Power,
    /// The process is killed: all tasks end; the disks keep their caches, and requests under way happen in part.
    Process,
}

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

/// The world. It ends, with all its tasks, when it is dropped.
pub struct World {
    core: Rc<Core>,
}

/// What disks, clocks and spawners of a world share.
pub(crate) struct Core {
    seed: u64,
    steady: bool,
    now: Cell<Moment>,
    random: RefCell<Random>,
    chooser: RefCell<Chooser>,
    ready: Arc<ReadyQueue>,
    tasks: RefCell<BTreeMap<u64, Task<()>>>,
    timers: RefCell<BTreeMap<TimerKey, Due>>,
    next_id: Cell<u64>,
    steps: Cell<u64>,
    hardware: RefCell<Vec<Rc<dyn Hardware>>>,
    crash: Cell<Option<(CrashAt, CrashKind)>>,
    events: Cell<u64>,
    halted: Cell<Option<CrashKind>>,
    boot: Cell<u64>,
    running: Cell<bool>,
    trace: Cell<u64>,
    recent: RefCell<VecDeque<Event>>,
    tally: Cell<CrashTally>,
    arena: Arena,
}

/// Something that a crash concerns.
pub(crate) trait Hardware {
    /// Loses what a crash of this kind takes away, and forgets all requests under way.
    fn crash(&self, kind: CrashKind, random: &mut Random, chooser: &mut Chooser) -> CrashTally;
    /// The requests under way, for people.
    fn in_flight(&self) -> Vec<String>;
}

/// Moment, tie-breaker, number.
type TimerKey = (Moment, u64, u64);

enum Due {
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

enum Ready {
    Main,
    Task(Runnable),
}

/// What can go on. Wakers must be `Send`, hence the lock, which nobody ever contends for.
#[derive(Default)]
struct ReadyQueue(Mutex<VecDeque<Ready>>);

impl ReadyQueue {
    fn push(&self, ready: Ready) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(ready);
    }
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
    /// Takes the one at `index`; the last one takes its place.
    fn take(&self, index: usize) -> Option<Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).swap_remove_back(index)
    }
    fn first(&self) -> Option<Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct MainWaker {
    ready: Arc<ReadyQueue>,
    queued: AtomicBool,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.push(Ready::Main);
        }
    }
}

impl World {
    /// A world in which `seed` decides who goes first, how long things take and what breaks.
    pub fn new(seed: u64) -> Self {
        Self::build(seed, false)
    }

    /// A world for exact measurements: who became ready first goes first, and time moves only when nobody is ready.
    pub fn steady(seed: u64) -> Self {
        Self::build(seed, true)
    }

    fn build(seed: u64, steady: bool) -> Self {
        let mut random = Random::new(seed);
        let chooser = Chooser::random(random.fork());
        let core = Core {
            seed,
            steady,
            now: Cell::default(),
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
        };
        Self { core: Rc::new(core) }
    }

    /// The seed that the world was made from.
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// The virtual clock.
    pub fn clock(&self) -> Clock {
        Clock::new(Rc::new(VirtualClock(Rc::clone(&self.core))))
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

    /// A hash of everything that happened so far: equal for equal seeds (W1).
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
        let main_waker =
            Arc::new(MainWaker { ready: Arc::clone(&core.ready), queued: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&main_waker));
        waker.wake_by_ref();
        loop {
            if core.halted.get().is_some() || core.crash_time_has_come() {
                return None;
            }
            match core.next() {
                Some(Ready::Main) => {
                    // A waker of an earlier run wakes nobody but an eager poller.
                    main_waker.queued.store(false, Ordering::Relaxed);
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
            // What a panic left half done is not run through destructors that might panic again.
            std::mem::forget(self.core.tasks.take());
            while let Some(ready) = self.core.ready.first() {
                std::mem::forget(ready);
            }
            return;
        }
        self.core.end_boot();
        self.core.hardware.borrow_mut().clear();
    }
}

impl Core {
    /// Who goes on now; nobody if time has to move first.
    fn next(&self) -> Option<Ready> {
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
    fn advance(&self) -> bool {
        let first = self.timers.borrow_mut().pop_first();
        let Some((key, due)) = first else { return false };
        if let Some((CrashAt::Time(crash), _)) = self.crash.get()
            && crash < key.0
        {
            self.timers.borrow_mut().insert(key, due);
            self.now.set(crash);
            return true;
        }
        self.now.set(self.now.get().max(key.0));
        self.note(key.0.0);
        match due {
            Due::Wake(waker) => waker.wake(),
            Due::Call(call) => call(),
        }
        true
    }

    fn crash_time_has_come(&self) -> bool {
        match self.crash.get() {
            Some((CrashAt::Time(moment), kind)) if moment <= self.now.get() => {
                self.halted.set(Some(kind));
                true
            }
            _ => false,
        }
    }

    fn report_deadlock(&self) -> ! {
        let in_flight: Vec<_> =
            self.hardware.borrow().iter().flat_map(|hardware| hardware.in_flight()).collect();
        self.show_recent();
        panic!(
            "deadlock: seed {}, {} ns: nothing is ready and no timer runs; {} tasks wait; requests under way: {}",
            self.seed,
            self.now.get().0,
            self.tasks.borrow().len(),
            if in_flight.is_empty() { "none".to_owned() } else { in_flight.join("; ") },
        )
    }

    fn show_recent(&self) {
        eprintln!("the last disk events of seed {}:", self.seed);
        for event in self.recent.borrow().iter() {
            eprintln!("  {event}");
        }
    }

    /// Drops every task, timer and waiting future (W4).
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

    fn finish_crash(&self) {
        let kind = self.halted.get().expect("a crash is finished once it has begun");
        self.crash.set(None);
        self.end_boot();
        let mut tally = self.tally.get();
        let mut lost = CrashTally::default();
        {
            let mut random = self.random.borrow_mut();
            let mut chooser = self.chooser.borrow_mut();
            chooser.begin();
            for hardware in self.hardware.borrow().iter() {
                lost.merge(hardware.crash(kind, &mut random, &mut chooser));
            }
        }
        tally.add_state(lost);
        self.tally.set(tally);
        crate::chance::count_on_this_thread(lost);
        self.note(lost.sectors_lost);
        // The disks of the next boot are those that are attached anew.
        self.hardware.borrow_mut().clear();
        self.boot.set(self.boot.get() + 1);
        self.halted.set(None);
    }

    /// Registers hardware; returns its number in this boot.
    pub(crate) fn attach(&self, hardware: Rc<dyn Hardware>) -> usize {
        let mut all = self.hardware.borrow_mut();
        if let Some(index) = all.iter().position(|known| Rc::ptr_eq(known, &hardware)) {
            return index;
        }
        all.push(hardware);
        all.len() - 1
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boot.get()
    }

    /// Whether a crash has begun (W3).
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

    fn set_timer(&self, moment: Moment, due: Due) -> TimerKey {
        let tie = if self.steady { 0 } else { self.random.borrow_mut().bits() };
        let key = (moment, tie, self.new_id());
        self.timers.borrow_mut().insert(key, due);
        key
    }

    fn new_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }
}

struct VirtualClock(Rc<Core>);

impl ClockSource for VirtualClock {
    fn now(&self) -> Moment {
        self.0.now.get()
    }
    fn date(&self) -> UnixTime {
        UnixTime(BEGINNING.0 + self.0.now.get().0 / 1_000_000_000)
    }
    fn sleep_until(&self, deadline: Moment) -> LocalFuture<'static, ()> {
        Box::pin(Sleep { core: Rc::clone(&self.0), deadline, timer: None })
    }
}

/// A sleep; its timer goes with it, so that a wait that was given up keeps nobody waiting.
struct Sleep {
    core: Rc<Core>,
    deadline: Moment,
    timer: Option<TimerKey>,
}

impl Sleep {
    fn cancel(&mut self) {
        if let Some(key) = self.timer.take() {
            self.core.timers.borrow_mut().remove(&key);
        }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.cancel();
        if self.core.now.get() >= self.deadline {
            return Poll::Ready(());
        }
        let key = self.core.set_timer(self.deadline, Due::Wake(context.waker().clone()));
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

struct SeededSpawner(Rc<Core>);

impl Spawn for SeededSpawner {
    fn spawn(&self, task: LocalFuture<'static, ()>) {
        let core = &self.0;
        if core.is_halted() {
            return;
        }
        let id = core.new_id();
        let owner = Rc::clone(core);
        let future = async move {
            task.await;
            let finished = owner.tasks.borrow_mut().remove(&id);
            if let Some(task) = finished {
                task.detach();
            }
        };
        let ready = Arc::clone(&core.ready);
        let (runnable, task) =
            async_task::spawn_local(future, move |runnable| ready.push(Ready::Task(runnable)));
        core.tasks.borrow_mut().insert(id, task);
        runnable.schedule();
    }
}
