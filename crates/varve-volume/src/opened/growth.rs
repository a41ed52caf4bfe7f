//! What fills grows before it is full: a snapshot store or a pool asks the group for more, its policy says what becomes
//! of writes when there is none, and its owner hears of what happens.
//!
//! Invariants:
//! - GROWTH1. At most one request for growth of a vessel is under way; a caller that comes meanwhile shares its result.
//! - GROWTH2. What is declared for a full vessel is done only when it cannot grow, and has nothing to give up; until then changes wait.
//! - GROWTH3. What is kept only while there is room is given up when a vessel that cannot grow is nearly full.

use crate::events::VolumeEvent;
use crate::host::Host;
use futures_channel::oneshot;
use futures_util::future::{Either, LocalBoxFuture, ready, select};
use futures_util::lock::Mutex;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_block::Notify;
use varve_vg::model::{StorePolicy, WhenFull};
use varve_vg::size::format_size;

/// How long a vessel waits before it asks for growth again after there was none, with changes waiting and without.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20)];
/// How long changes that waited get to try again before it is asked whether they still wait.
const TURN: Duration = Duration::from_millis(1);
/// How long it listens for the next thing when there is nothing to ask for.
const IDLE: Duration = Duration::from_secs(3600);
/// The least time that a change waits while its vessel is being extended.
const GROWTH_MIN: Duration = Duration::from_secs(60);
/// How full a vessel is, in percent, that gives up what it keeps only while there is room.
const NEARLY_FULL: u64 = 95;
/// How long it waits for the space of what it has given up.
const COMES_BACK: Duration = Duration::from_millis(20);
/// Percentages of use at which a warning is sent for a vessel that cannot grow.
pub const LEVELS: [u64; 3] = [80, 90, 95];

/// What fills: a snapshot store or a pool.
pub(crate) trait Vessel {
    /// Bytes of all of it.
    fn size(&self) -> u64;
    /// How much is taken, in percent.
    fn percent(&self) -> u64;
    /// Whether changes wait for space.
    fn is_paused(&self) -> bool;
    /// What becomes of changes without space from now on, and how long they wait if they wait.
    fn declare(&self, when_full: WhenFull, timeout: Duration);
    /// Completes when at least so much is taken, in percent.
    fn filled(&self, percent: u64) -> LocalBoxFuture<'_, ()>;
    /// Whether it keeps something only while there is room, or the room of what it gave up has not come back yet.
    fn can_give_up(&self) -> bool {
        false
    }
    /// Gives up some of that. Whether room comes back.
    fn give_up(&self) -> LocalBoxFuture<'_, bool> {
        Box::pin(ready(false))
    }
    /// What messages call it and what waits for it.
    fn words(&self) -> Words;
}

/// The words that messages use for a vessel.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    /// What is full.
    pub(crate) vessel: &'static str,
    /// What waits.
    pub(crate) changes: &'static str,
}

/// The growth of one vessel. It works as long as [`Growth::watch`] runs.
pub(crate) struct Growth<V> {
    vessel: Rc<V>,
    /// The entry of the group that declares the policy.
    volume: Uuid,
    /// What is to grow: a store of the volume, or itself.
    store: Uuid,
    host: Host,
    policy: Cell<StorePolicy>,
    growing: Mutex<()>,
    /// Changes without space fail at once from now on, whatever is declared: an export ends, or the daemon.
    is_ending: Cell<bool>,
    /// The group had no space for it when it last asked.
    is_stuck: Cell<bool>,
    /// Whether something has changed since [`Growth::watch`] looked.
    is_changed: Cell<bool>,
    changed: Notify,
    /// Whether it was reported that changes wait.
    pause_told: Cell<bool>,
    timeout_told: Cell<bool>,
    timed_out: Cell<u64>,
}

impl<V: Vessel> Growth<V> {
    /// Of `vessel`, which the group knows as `store` of `volume`.
    pub(crate) fn new(
        vessel: Rc<V>,
        volume: Uuid,
        store: Uuid,
        host: &Host,
        policy: StorePolicy,
    ) -> Rc<Self> {
        let growth = Rc::new(Self {
            vessel,
            volume,
            store,
            host: host.clone(),
            policy: Cell::new(policy),
            growing: Mutex::new(()),
            is_ending: Cell::new(false),
            is_stuck: Cell::new(false),
            is_changed: Cell::new(false),
            changed: Notify::default(),
            pause_told: Cell::new(false),
            timeout_told: Cell::new(false),
            timed_out: Cell::new(0),
        });
        growth.apply_policy();
        growth
    }

    /// How many changes waited in vain.
    pub(crate) fn timed_out(&self) -> u64 {
        self.timed_out.get()
    }

    /// Whether it is made larger when it runs low, as far as is known.
    pub(crate) fn can_grow(&self) -> bool {
        self.policy.get().extend_at_percent.is_some() && !self.is_stuck.get()
    }

    /// Something else is declared from now on.
    pub(crate) fn set_policy(&self, policy: StorePolicy) {
        self.policy.set(policy);
        self.group_has_space();
    }

    /// The group has more free space than before.
    pub(crate) fn group_has_space(&self) {
        self.is_stuck.set(false);
        self.kept_changed();
    }

    /// It has more or less to give up than before.
    pub(crate) fn kept_changed(&self) {
        self.apply_policy();
        self.look_again();
    }

    /// Changes that wait for space fail, now and until they may wait again.
    pub(crate) fn let_fail(&self, fail: bool) {
        self.is_ending.set(fail);
        self.apply_policy();
    }

    /// Does what is declared for being full, once it cannot grow (GROWTH2).
    fn apply_policy(&self) {
        if self.is_ending.get() {
            return self.vessel.declare(WhenFull::Error, Duration::ZERO);
        }
        let policy = self.policy.get();
        let timeout = Duration::from_millis(policy.pause_timeout_ms);
        if self.can_grow() || self.vessel.can_give_up() {
            self.vessel.declare(WhenFull::Pause, timeout.max(GROWTH_MIN));
        } else {
            self.vessel.declare(policy.when_full, timeout);
        }
    }

    /// Has it made larger than `seen` bytes, if it may grow. Whether it is.
    pub(crate) async fn grow(&self, seen: u64) -> bool {
        if self.policy.get().extend_at_percent.is_none() {
            return self.vessel.size() > seen;
        }
        let _turn = self.growing.lock().await;
        if self.vessel.size() > seen {
            return true; // GROWTH1: another caller has asked
        }
        let (volume, store) = (self.volume, self.store);
        let (answer, answered) = oneshot::channel();
        self.host.tell(VolumeEvent::NeedsSpace { volume, store, answer });
        let grown = match answered.await {
            Ok(Ok(())) => self.vessel.size() > seen,
            Ok(Err(failure)) => {
                if !self.is_stuck.get() {
                    let what = self.vessel.words().vessel;
                    tracing::warn!(%volume, %failure, "{what} could not be extended");
                }
                false
            }
            Err(_) => false,
        };
        self.is_stuck.set(!grown);
        self.apply_policy();
        grown
    }

    /// GROWTH3, of what is so full. Whether room comes back.
    async fn gives_up(&self, percent: u64) -> bool {
        let is_wanted = !self.can_grow() && (percent >= NEARLY_FULL || self.vessel.is_paused());
        let gives_up = is_wanted && self.vessel.give_up().await;
        self.apply_policy(); // What there was to give up may have come back.
        gives_up
    }

    /// Something that [`Growth::watch`] looks at has changed.
    fn look_again(&self) {
        self.is_changed.set(true);
        self.changed.notify_all();
    }

    /// Has it grow when it runs low or changes wait, and tells when it cannot.
    pub(crate) async fn watch(self: Rc<Self>) {
        let (mut told, mut comes_back, clock) = (0, false, self.host.clock());
        loop {
            let (size, percent, policy) = (self.vessel.size(), self.vessel.percent(), self.policy.get());
            let due = policy.extend_at_percent.is_some_and(|at| percent >= at || self.vessel.is_paused());
            if due && !comes_back && self.grow(size).await {
                clock.sleep(TURN).await;
                continue;
            }
            told = self.tell_level(size, percent, told);
            comes_back = self.gives_up(percent).await;
            if comes_back {
                clock.sleep(COMES_BACK).await;
                continue;
            }
            if self.vessel.is_paused() && !self.pause_told.replace(true) {
                let changes = self.vessel.words().changes;
                self.tell_low(format!("{changes} wait for space"));
            }
            let next = LEVELS.into_iter().chain(policy.extend_at_percent).filter(|level| *level > percent);
            let filled = self.vessel.filled(next.min().unwrap_or(u64::MAX));
            let retry = match (due, self.vessel.is_paused()) {
                (true, true) => RETRY[0],
                (true, false) => RETRY[1],
                (false, _) => IDLE,
            };
            let changed = select(filled, Box::pin(self.changed.until(|| self.is_changed.take())));
            let _: Either<_, _> = select(changed, clock.sleep(retry)).await;
        }
    }

    /// Reports a level that was reached and cannot be left by growing. Returns the level that was reported last.
    fn tell_level(&self, size: u64, percent: u64, told: u64) -> u64 {
        /// A level counts as left when so much less is taken.
        const MARGIN: u64 = 3;
        let reached = LEVELS.into_iter().filter(|level| *level <= percent).max().unwrap_or(0);
        if reached <= told {
            return if percent + MARGIN < told { reached } else { told };
        }
        let vessel = self.vessel.words().vessel;
        self.tell_low(format!("{percent} % of {vessel} of {} are taken", format_size(size)));
        reached
    }

    /// Sends a warning that it is low on space and does not grow.
    fn tell_low(&self, message: String) {
        let extends = self.policy.get().extend_at_percent.is_some();
        self.host.tell(VolumeEvent::LowOnSpace { volume: self.volume, message, extends });
    }

    /// A change waits for space, the first one.
    pub(crate) fn paused(&self) {
        self.look_again();
    }

    /// No change waits any more.
    pub(crate) fn resumed(&self) {
        self.timeout_told.set(false);
        if self.pause_told.take() {
            self.tell("writes that waited for space go on".to_owned());
        }
    }

    /// A change waited in vain.
    pub(crate) fn waited_in_vain(&self) {
        self.timed_out.set(self.timed_out.get() + 1);
        if self.timeout_told.replace(true) {
            return; // many fail together
        }
        let changes = self.vessel.words().changes;
        self.tell(format!("{changes} waited in vain and failed"));
    }

    /// Sends a warning about the volume.
    pub(crate) fn tell(&self, message: String) {
        self.host.tell(VolumeEvent::Warning { volume: self.volume, message });
    }
}
