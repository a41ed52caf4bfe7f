//! What is known of a delegated volume while it is in use.

use super::cache::RemapCache;
use super::changing::Changing;
use super::options::{DelegateOptions, DelegateStatus, InjectedBug};
use super::question::{Connection, Outstanding};
use super::range_map::{Place, Target};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{
    Access, Allocation, Arena, Clock, Completion, Device, Durability, Extent, Gate, Io, MapAnswer, MapGuard,
    MapIntent, MapPiece, Moment, Notify, RangeLock, Shape, Tracker, TrackerGuard,
};
use varve_mapper::wire::{self, Intent, Welcome};

/// A delegated volume in use.
pub(super) struct State {
    pub(super) options: DelegateOptions,
    pub(super) shape: Shape,
    pub(super) clock: Clock,
    pub(super) arena: Arena,
    pub(super) bug: Option<InjectedBug>,
    /// Devices of the hello, then files of the mapper, by number.
    pub(super) targets: RefCell<BTreeMap<u32, Rc<Target>>>,
    pub(super) cache: RefCell<RemapCache>,
    /// The reader epoch: requests that use answers. Each invalidation begins another one.
    pub(super) epoch: RefCell<Tracker>,
    /// Earlier epochs whose requests have not all ended.
    pub(super) drains: RefCell<Vec<Tracker>>,
    pub(super) changing: Changing,
    pub(super) trims: RangeLock,
    /// Held from the question for a write until its answer is copied; closed while the mapper makes its mapping durable (DELEGATE3).
    pub(super) landing: Gate,
    /// Whether the mapper that was connected last keeps a mapping.
    pub(super) is_persistent: Cell<bool>,
    /// Devices to flush.
    pub(super) written: RefCell<Vec<Rc<Target>>>,
    pub(super) connection: RefCell<Option<Connection>>,
    pub(super) outstanding: RefCell<BTreeMap<u64, Outstanding>>,
    pub(super) last_number: Cell<u64>,
    /// Since when the mapper has answered nothing while something is asked.
    pub(super) silent_since: Cell<Option<Moment>>,
    /// Whether a request was given up since it answered last.
    pub(super) has_failed: Cell<bool>,
    /// Answers for writes so far, and those of them that are durable.
    pub(super) answered: Cell<u64>,
    pub(super) flushed: Cell<u64>,
    /// Ranges of which the mapper is notified when they are durable.
    pub(super) notices: RefCell<Vec<(u64, Extent)>>,
    /// The end of the read that asked last, for how much is asked ahead.
    pub(super) ahead: Cell<(u64, u64)>,
    pub(super) changed: Notify,
    /// Requests do not wait for a mapper that is away.
    pub(super) lets_fail: Cell<bool>,
    /// Why the last connection ended.
    pub(super) ended: RefCell<Option<String>>,
    pub(super) counters: Cell<DelegateStatus>,
}

impl State {
    pub(super) fn new(
        options: DelegateOptions,
        clock: &Clock,
        arena: &Arena,
        bug: Option<InjectedBug>,
    ) -> Self {
        let shape = Shape {
            discard: true,
            optimal_size: options.block_size,
            ..Shape::new(options.size, options.block_size)
        };
        let fits = |device: &Device| device.shape().block_size <= options.block_size;
        assert!(options.entries_max > 0, "REMAP3");
        assert!(options.devices.iter().all(|(_, device)| fits(device)), "DELEGATE1: blocks of devices");
        let target = |(number, (_, device)): (usize, &(String, Device))| {
            let number = u32::try_from(number).expect("few devices");
            let is_writable = device.shape().access == Access::ReadWrite;
            let target =
                Target { number, device: device.clone(), is_writable, was_written: Cell::new(false) };
            (number, Rc::new(target))
        };
        let targets = options.devices.iter().enumerate().map(target).collect();
        let cache = RemapCache::new(options.entries_max, clock.clone());
        Self {
            shape,
            clock: clock.clone(),
            arena: arena.clone(),
            bug,
            targets: RefCell::new(targets),
            cache: RefCell::new(cache),
            epoch: RefCell::default(),
            drains: RefCell::default(),
            changing: Changing::default(),
            trims: RangeLock::new(),
            landing: Gate::default(),
            is_persistent: Cell::new(false),
            written: RefCell::default(),
            connection: RefCell::default(),
            outstanding: RefCell::default(),
            last_number: Cell::new(0),
            silent_since: Cell::new(None),
            has_failed: Cell::new(false),
            answered: Cell::new(0),
            flushed: Cell::new(0),
            notices: RefCell::default(),
            ahead: Cell::new((0, 0)),
            changed: Notify::default(),
            lets_fail: Cell::new(false),
            ended: RefCell::default(),
            counters: Cell::default(),
            options,
        }
    }

    pub(super) fn has(&self, bug: InjectedBug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut DelegateStatus)) {
        let mut counters = self.counters.get();
        add(&mut counters);
        self.counters.set(counters);
    }

    pub(super) fn welcome(&self) -> Option<Welcome> {
        self.connection.borrow().as_ref().map(|connection| connection.welcome)
    }

    /// Counts a request that uses an answer in the current reader epoch.
    pub(super) fn enter(&self) -> TrackerGuard {
        self.epoch.borrow().enter()
    }

    /// Forgets answers; what is returned waits until no request uses one that was given before (DELEGATE4).
    pub(super) fn invalidate(
        &self,
        extent: Extent,
        access: wire::Access,
    ) -> impl Future<Output = ()> + use<> {
        self.cache.borrow_mut().remove(extent, access);
        self.changing.invalidate(extent);
        self.drain()
    }

    /// What is returned waits until no request uses an answer that was given before.
    pub(super) fn drain(&self) -> impl Future<Output = ()> + use<> {
        let epoch = self.epoch.take();
        let mut drains = self.drains.borrow_mut();
        drains.retain(|tracker| !tracker.is_empty());
        drains.push(epoch);
        let drains = drains.clone();
        async move {
            for tracker in drains {
                tracker.empty().await;
            }
        }
    }

    /// Where the first bytes of `extent` lie, if that is known. An answer for one request alone is kept for a request.
    pub(super) fn lead(&self, extent: Extent, intent: MapIntent) -> MapAnswer {
        let wanted = if intent == MapIntent::Overwrite { Intent::Write } else { Intent::Read };
        let cache = self.cache.borrow();
        let Some(found) = cache.look(wanted, extent) else {
            return MapAnswer::sent(cache.gap(wanted, extent).length);
        };
        assert!(found.run > 0 && found.run <= extent.length, "MAP1: {extent:?}");
        let piece = match found.place {
            _ if found.is_once => MapPiece::sent(found.run).holding(Allocation::Data),
            Place::Zero => MapPiece::hole(found.run),
            Place::Data { target, offset } => {
                if intent == MapIntent::Overwrite {
                    assert!(target.may_be_written(), "DELEGATE1");
                    self.mark_written(&target);
                }
                MapPiece::on(&target.device, offset, found.run).holding(Allocation::Data)
            }
        };
        MapAnswer::new(piece, MapGuard::holding(self.enter()))
    }

    /// The request where all of it is on one device of which that is known, and nothing else is to be done.
    pub(super) fn hit(&self, io: Io) -> Result<Completion<'static>, Io> {
        let intent = match &io {
            Io::Read { .. } => Intent::Read,
            Io::Write { durability: Durability::Volatile, .. } => Intent::Write,
            _ => return Err(io),
        };
        let cache = self.cache.borrow();
        let Some((target, offset)) = cache.whole(intent, io.extent()) else { return Err(io) };
        if intent == Intent::Write {
            assert!(target.may_be_written(), "DELEGATE1");
            self.mark_written(target);
        }
        Ok(target.device.forward(io.at(offset), || self.enter()))
    }
}
