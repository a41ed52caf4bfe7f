//! Histories of schedules of snapshots: the clock drives them, jumps and stands still; users make and hold snapshots beside them; the
//! daemon crashes at any step and is away for a while.
//!
//! Invariants:
//! - HISTORY16. A snapshot that a user made is there until the user removes it, whatever it is called; and so is one that the user holds.
//! - HISTORY17. Every snapshot was made by a user, or stands in the text as that of one schedule, or was left by a schedule that was removed: a run
//!   that a crash cut short has made nothing, or all. The newest of a schedule is there of all of its volumes.
//! - HISTORY18. Between two looks a schedule runs once for all that was missed before, and once for each interval that begins meanwhile, at
//!   most; and when it was due, it has run.

use super::daemon::Daemon;
use super::host::Host;
use super::verbs::Verb;
use crate::Control;
use crate::injected_bug::{self, InjectedBug};
use crate::schedules::Schedules;
use crate::schedules::due::is_due;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;
use varve_api::{Failure, Remove, ScheduleCreate, ScheduleRun, SnapshotCreate, SnapshotHold, SnapshotRemove};
use varve_block::{MIB, Moment, UnixTime};
use varve_sim::{CrashAt, CrashKind, Random, caught_share, run_seeds, test_name};
use varve_vg::model::Schedule;

/// Lives of the daemon in a history; the last one is not cut short.
const LIVES: usize = 5;
/// Steps in a life, at most.
const STEPS_MAX: u64 = 10;
/// Longest that a due run, and a removal, take in the time of the world; the shortest interval is longer.
const RUN_MAX: Duration = Duration::from_secs(45);
/// Time between two runs, in seconds.
const INTERVALS: [u64; 3] = [60, 600, 3600];
/// What stays.
const KEPT: [&str; 5] = ["1", "3", "40", "2h,1d", "0"];
const VOLUMES: [&str; 3] = ["g/a", "g/b", "g/t"];
const SCHEDULES_MAX: usize = 3;

/// What there is to be known of snapshots.
#[derive(Default)]
struct Book {
    /// Made by users, and not removed.
    users: BTreeSet<String>,
    /// Held by users.
    held: BTreeSet<String>,
    /// A command of a user was cut short: it is there or not.
    unsure: BTreeSet<String>,
    /// How the snapshots begin that were left by schedules that were removed.
    left: BTreeSet<String>,
}

/// What is shown at one look.
#[derive(Clone)]
struct Seen {
    snapshots: BTreeSet<String>,
    /// Of each schedule, the text and the snapshots of its own that are there.
    schedules: BTreeMap<String, (Schedule, BTreeSet<String>)>,
}

/// What may cause runs since the last look.
#[derive(Default)]
struct Causes {
    /// Since when the daemon is there, or was looked at.
    since: Moment,
    /// How long it was there before.
    awake: Duration,
    /// Starts, clocks that were set, and runs by hand.
    others: u64,
}

struct History {
    host: Rc<Host>,
    random: RefCell<Random>,
    book: RefCell<Book>,
    seen: RefCell<Option<Seen>>,
    causes: RefCell<Causes>,
}

impl History {
    fn new(seed: u64) -> Self {
        let host = Host::new(seed, Duration::from_micros(400));
        let random = RefCell::new(host.world.random());
        let (book, seen, causes) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { host, random, book, seen, causes }
    }

    fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().below(end)
    }

    fn pick<T: Clone>(&self, items: &[T]) -> T {
        self.random.borrow_mut().pick(items).clone()
    }

    fn run(&self) {
        for life in 1..=LIVES {
            let kind = self.pick(&[CrashKind::Power, CrashKind::Power, CrashKind::Process]);
            if life > 1 && life < LIVES {
                let events_max = self.pick(&[30, 300, 3000]);
                let at = CrashAt::Event(1 + self.below(events_max));
                self.host.world.schedule(at, kind);
            }
            let ran = self.host.world.run_until_crash(self.live(life == 1));
            super::log(format_args!("life {life} ends: {ran:?}"));
            if !ran.crashed() {
                self.host.world.crash(kind);
            }
            self.host.files.process_ended();
            let now = self.host.world.clock().now();
            let mut causes = self.causes.borrow_mut();
            let awake = now.since(causes.since);
            causes.awake += awake;
            drop(causes);
            let away = self.pick(&[0, 30, 5000, 90_000]);
            self.host.world.settle(Duration::from_secs(away));
        }
    }

    async fn live(&self, is_first: bool) {
        self.causes.borrow_mut().since = self.host.world.clock().now();
        self.causes.borrow_mut().others += 1;
        let daemon = Daemon::start(&self.host).await;
        if is_first {
            furnish(&daemon).await;
        }
        self.look(&daemon).await;
        for _ in 0..self.below(STEPS_MAX) {
            self.step(&daemon).await;
            self.look(&daemon).await;
        }
    }

    fn date(&self) -> u64 {
        self.host.world.clock().date().0
    }

    /// Waits until what is due has run, and compares what is shown with the book and with the last look.
    async fn look(&self, daemon: &Daemon) {
        self.host.world.clock().sleep(RUN_MAX).await;
        daemon.idle().await;
        let now = self.seen_by(daemon).await;
        let mut book = self.book.borrow_mut();
        let unsure = std::mem::take(&mut book.unsure);
        book.users.extend(unsure.into_iter().filter(|name| now.snapshots.contains(name)));
        let lost: Vec<&String> =
            book.users.union(&book.held).filter(|name| !now.snapshots.contains(*name)).collect();
        assert!(lost.is_empty(), "HISTORY16: {lost:?} are lost of {:?}", now.snapshots);
        let mut known: BTreeSet<&String> = book.users.iter().collect();
        for (name, (schedule, own)) in &now.schedules {
            let mut volumes: BTreeMap<&str, usize> = BTreeMap::new();
            for snapshot in own {
                assert!(known.insert(snapshot), "HISTORY17: {snapshot} is that of {name} alone");
                *volumes.entry(own_name(snapshot)).or_default() += 1;
            }
            let are_whole = volumes.values().all(|count| *count == schedule.volumes.len());
            assert!(are_whole, "HISTORY17: {name} has made all of a set or none: {own:?}");
        }
        let is_left = |name: &str| book.left.iter().any(|prefix| own_name(name).starts_with(prefix));
        let unknown: Vec<&String> =
            now.snapshots.iter().filter(|name| !known.contains(name) && !is_left(name)).collect();
        assert!(unknown.is_empty(), "HISTORY17: nobody made {unknown:?}");
        drop(book);
        self.check_runs(&now);
        self.seen.replace(Some(now));
    }

    /// HISTORY18: what schedules made since the last look.
    fn check_runs(&self, now: &Seen) {
        let (moment, date) = (self.host.world.clock().now(), self.date());
        let causes = self.causes.replace(Causes { since: moment, ..Causes::default() });
        let awake = (causes.awake + moment.since(causes.since)).as_secs();
        let before = self.seen.borrow();
        for (name, (schedule, own)) in &now.schedules {
            let last = schedule.last_run.map(|last| last.0);
            let is_late = is_due(schedule.every_s, last, date.saturating_sub(RUN_MAX.as_secs() - 5));
            assert!(!is_late, "HISTORY18: {name} was due: {last:?}, now it is {date}");
            let had = before.as_ref().and_then(|seen| seen.schedules.get(name));
            let Some((_, had)) = had.filter(|(had, _)| had.id == schedule.id) else { continue };
            let new: BTreeSet<&str> = own.difference(had).map(|name| own_name(name)).collect();
            let most = causes.others + awake / schedule.every_s + 1;
            assert!(new.len() as u64 <= most, "HISTORY18: {name} ran {} times, at most {most}", new.len());
        }
    }

    async fn seen_by(&self, daemon: &Daemon) -> Seen {
        let looked = daemon.handle.call(async |control| {
            let snapshots = control.list_snapshots(None).await?;
            let snapshots: BTreeSet<String> = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
            let mut schedules = BTreeMap::new();
            for (group, schedule) in Schedules::of(&control).all() {
                let own = Schedules::of(&control).own_instants(group, &schedule).await?;
                let own: BTreeSet<String> = own.into_iter().flat_map(|(_, names)| names).collect();
                schedules.insert(schedule.name.clone(), (schedule, own));
            }
            let groups = control.groups.known.borrow();
            let standing = groups.values().map(|known| known.group.snapshot_sets().len()).sum::<usize>();
            assert_eq!(standing, 0, "HISTORY17: no run is half done");
            Ok(Seen { snapshots, schedules })
        });
        looked.await.expect("it runs")
    }

    async fn step(&self, daemon: &Daemon) {
        let seen = self.seen.borrow().clone().expect("it was looked at");
        let schedules: Vec<String> = seen.schedules.keys().cloned().collect();
        let names = (!schedules.is_empty()).then(|| self.pick(&schedules));
        match (self.below(12), names) {
            (0 | 1, _) | (_, None) if schedules.len() < SCHEDULES_MAX => self.create(daemon).await,
            (2, Some(name)) => self.remove(daemon, &name).await,
            (3, Some(name)) => {
                self.causes.borrow_mut().others += 1;
                let request = ScheduleRun::default();
                let ran = call(daemon, async move |control| {
                    Schedules::of(&control).run(&format!("g/{name}"), request).await.map(drop)
                });
                super::log(format_args!("run by hand: {:?}", ran.await));
            }
            (4 | 5, Some(name)) => self.make(daemon, &name).await,
            (6, _) => self.remove_own(daemon).await,
            (7, Some(name)) => self.hold(daemon, &name, &seen).await,
            (8, _) => self.set_clock(),
            _ => {
                let seconds = self.pick(&[1, 50, 70, 700, 2000]);
                self.host.world.clock().sleep(Duration::from_secs(seconds)).await;
            }
        }
    }

    /// Somebody sets the clock.
    fn set_clock(&self) {
        let shift = self.pick(&[-400_000, -4000, -61, -5, 5, 4000, 400_000_i64]);
        let date = self.date().saturating_add_signed(shift);
        super::log(format_args!("the clock is set by {shift} s"));
        self.causes.borrow_mut().others += 1;
        self.host.world.set_date(UnixTime(date));
    }

    async fn create(&self, daemon: &Daemon) {
        let first = self.below(VOLUMES.len() as u64);
        let is_set = self.below(2) == 0;
        let set =
            if is_set { vec![VOLUMES[(first as usize + 1) % VOLUMES.len()].to_owned()] } else { Vec::new() };
        let request = ScheduleCreate {
            volume: VOLUMES[first as usize].to_owned(),
            set,
            name: Some(format!("s{}", self.below(1000))),
            every: format!("{}s", self.pick(&INTERVALS)),
            keep: self.pick(&KEPT).to_owned(),
            dry_run: false,
        };
        super::log(format_args!("{request:?}"));
        let made = call(daemon, async move |control| Schedules::of(&control).create(request).await.map(drop));
        super::log(format_args!("create: {:?}", made.await));
    }

    async fn remove(&self, daemon: &Daemon, name: &str) {
        self.book.borrow_mut().left.insert(format!("{name}-"));
        let full = format!("g/{name}");
        let removed = call(daemon, async move |control| {
            Schedules::of(&control).remove(&full, Remove::default()).await.map(drop)
        });
        super::log(format_args!("remove {name}: {:?}", removed.await));
    }

    /// A user makes a snapshot that is called like those of a schedule.
    async fn make(&self, daemon: &Daemon, schedule: &str) {
        let name = format!("{}@{schedule}-20260101-{:06}", self.pick(&VOLUMES), self.below(240_000));
        if self.seen.borrow().as_ref().is_some_and(|seen| seen.snapshots.contains(&name)) {
            return;
        }
        self.book.borrow_mut().unsure.insert(name.clone());
        let names = vec![name.clone()];
        let request = SnapshotCreate { names, read_only: true, ..Default::default() };
        let made = call(daemon, async move |control| control.create_snapshots(request).await.map(drop)).await;
        let mut book = self.book.borrow_mut();
        book.unsure.remove(&name);
        if made.is_ok() {
            book.users.insert(name);
        }
    }

    /// A user removes a snapshot that a user made.
    async fn remove_own(&self, daemon: &Daemon) {
        let free: Vec<String> =
            self.book.borrow().users.difference(&self.book.borrow().held).cloned().collect();
        if free.is_empty() {
            return;
        }
        let name = self.pick(&free);
        self.book.borrow_mut().users.remove(&name);
        self.book.borrow_mut().unsure.insert(name.clone());
        let request = SnapshotRemove { names: vec![name], dry_run: false };
        let _ = call(daemon, async move |control| control.remove_snapshots(request).await.map(drop)).await;
    }

    /// A user holds a snapshot of a schedule, or releases what is held.
    async fn hold(&self, daemon: &Daemon, schedule: &str, seen: &Seen) {
        let held: Vec<String> = self.book.borrow().held.iter().cloned().collect();
        let own: Vec<String> = seen.schedules[schedule].1.iter().cloned().collect();
        let is_hold = held.is_empty() || self.below(2) == 0;
        let choice = if is_hold { own } else { held };
        if choice.is_empty() {
            return;
        }
        let name = self.pick(&choice);
        self.book.borrow_mut().held.remove(&name);
        let request = SnapshotHold { names: vec![name.clone()], dry_run: false };
        let done =
            call(daemon, async move |control| control.hold_snapshots(request, is_hold).await.map(drop)).await;
        if is_hold && done.is_ok() {
            self.book.borrow_mut().held.insert(name);
        }
    }
}

/// What a snapshot is called in its volume.
fn own_name(snapshot: &str) -> &str {
    snapshot.split_once('@').map_or(snapshot, |(_, name)| name)
}

async fn call(
    daemon: &Daemon,
    work: impl AsyncFnOnce(Rc<Control>) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    daemon.handle.call(work).await
}

/// A group with volumes of both kinds.
async fn furnish(daemon: &Daemon) {
    let disks = (0..4).map(|number| format!("/disks/g{number}")).collect();
    let create = |name: &str, size| Verb::CreateVolume { name: name.to_owned(), size, stripes: 1 };
    let pool = "g/p".to_owned();
    for verb in [
        Verb::CreateGroup { name: "g".to_owned(), disks },
        create("g/a", MIB),
        create("g/b", MIB),
        Verb::CreatePool { name: pool.clone(), size: 16 * MIB, block_size: 4096 },
        Verb::CreateThin { name: "g/t".to_owned(), size: MIB, pool },
    ] {
        verb.issue(daemon).await.expect("there is room");
    }
}

#[test]
fn histories_of_schedules_with_crashes() {
    run_seeds(test_name!("histories_of_schedules_with_crashes"), 12, |seed| History::new(seed).run());
}

/// With at least how many percent of the histories the oracle notices a bug.
fn control_of(text: &str, percent_min: u64, bug: InjectedBug) {
    caught_share(&format!("schedules, {text}"), 20, percent_min, |seed| {
        injected_bug::inject(Some(bug));
        let noticed = catch_unwind(AssertUnwindSafe(|| History::new(seed).run()));
        injected_bug::inject(None);
        if let Err(payload) = noticed {
            resume_unwind(payload);
        }
    });
}

#[test]
fn a_schedule_that_takes_snapshots_for_its_own_by_their_names_is_noticed() {
    control_of("what is called like its snapshots is its own", 20, InjectedBug::OwnByName);
}

#[test]
fn a_schedule_that_makes_up_for_each_missed_run_is_noticed() {
    control_of("each missed run is made up for", 20, InjectedBug::CatchUpAll);
}
