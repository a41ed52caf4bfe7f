//! Requests that hang in a disk while everything else goes on: across checkpoints, while space is freed and used again.

use super::host::{Boot, Host};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::{Device, Durability, Extent, IoError, KIB, ZeroOptions};
use varve_sim::{Client, Holder, Holds, Mix, Random};
use varve_target::snapshot::SnapshotStore;

/// How long a request hangs at most.
const HANG_MAX: Duration = Duration::from_millis(25);

/// What has hung, over all histories.
pub(crate) struct Stalls {
    requests: AtomicU64,
    /// Those during which two checkpoints or more were written.
    across: AtomicU64,
    checkpoints: AtomicU64,
}

impl Stalls {
    pub(crate) const fn new() -> Self {
        Self { requests: AtomicU64::new(0), across: AtomicU64::new(0), checkpoints: AtomicU64::new(0) }
    }

    /// How many requests hung, how many of them across two checkpoints or more, and how many checkpoints those were.
    pub(crate) fn now(&self) -> [u64; 3] {
        [&self.requests, &self.across, &self.checkpoints].map(|number| number.load(Ordering::Relaxed))
    }

    fn count(&self, requests: u64, checkpoints: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        if checkpoints >= 2 {
            self.across.fetch_add(requests, Ordering::Relaxed);
            self.checkpoints.fetch_add(requests * checkpoints, Ordering::Relaxed);
        }
    }
}

/// The disks of one boot, with holders in front of them.
pub(crate) struct Held {
    pub(crate) origin: (Holder, Device),
    pub(crate) store: (Holder, Device),
}

impl Host {
    /// The next boot has disks that can hang, if this is such a history.
    pub(crate) fn attach_holders(&self) {
        let held = self.stalls.map(|_| Held {
            origin: Holder::new(self.origin_disk.device(&self.world)),
            store: Holder::new(self.store_disk.device(&self.world)),
        });
        self.held.replace(held);
    }
}

/// Reads alone, or volatile writes alone.
fn mix(reads: bool) -> Mix {
    let (reads, writes) = if reads { (1, 0) } else { (0, 1) };
    Mix {
        reads,
        writes,
        durable_writes: 0,
        zeros: 0,
        discards: 0,
        flushes: 0,
        length_max: 64 * KIB,
        depth: 1,
        overlaps: 0,
    }
}

impl Boot<'_> {
    /// Sets some requests going, of the origin and of snapshots, and lets the next ones that reach a disk hang there,
    /// these or others, until some checkpoints have been written or a while has passed.
    pub(crate) fn begin_long_requests(&self, random: &mut Random) {
        let (Some(stalls), Some(held)) = (self.host.stalls, &*self.host.held.borrow()) else { return };
        let (origin, store) = (held.origin.0.clone(), held.store.0.clone());
        if origin.held() + store.held() > 0 {
            return;
        }
        let (names, faulty) = (self.names(), self.host.is_faulty());
        for _ in 0..random.between(1, 5) {
            let reads = random.chance(2, 3);
            let which = if reads { Holds::Reads } else { Holds::VolatileWrites };
            let snapshot = (!names.is_empty() && random.chance(3, 4)).then(|| random.pick(&names).clone());
            // Most of what snapshots have is in the store.
            let holder = if snapshot.is_some() && random.chance(4, 5) { &store } else { &origin };
            holder.hold_next(1, which);
            let client = match &snapshot {
                Some(name) => self.client(name),
                None => self.origin_client(),
            };
            let written = snapshot.filter(|_| !reads);
            let guard = written.map(|name| Writing::new(&self.written, name));
            if guard.is_some() && random.chance(1, 2) {
                let keeper = Keeper {
                    stalls,
                    origin: origin.clone(),
                    store: store.clone(),
                    engine: Rc::clone(&self.store),
                    clock: self.host.world.clock(),
                    faulty,
                };
                let pulled = pull_away(client, keeper, random.fork(), guard);
                self.host.world.spawner().spawn(pulled);
                continue;
            }
            self.host.world.spawner().spawn(long_request(client, mix(reads), random.fork(), guard, faulty));
        }
        let (engine, clock) = (Rc::clone(&self.store), self.host.world.clock());
        let keeper = Keeper { stalls, origin, store, engine, clock, faulty };
        let checkpoints = random.between(2, 8);
        self.host.world.spawner().spawn(async move { keeper.release_after(checkpoints).await });
    }
}

/// Lets requests that hang go on after a while.
struct Keeper {
    stalls: &'static Stalls,
    origin: Holder,
    store: Holder,
    engine: Rc<SnapshotStore>,
    clock: varve_block::Clock,
    faulty: bool,
}

impl Keeper {
    /// After so many checkpoints, or [`HANG_MAX`].
    async fn release_after(&self, checkpoints: u64) {
        let (begun, until) = (self.engine.generation(), self.clock.now().after(HANG_MAX));
        while self.engine.generation() < begun + checkpoints && self.clock.now() < until {
            self.clock.sleep(Duration::from_micros(150)).await;
        }
        let requests = u64::from(self.origin.held() + self.store.held());
        self.stalls.count(requests, self.engine.generation() - begun);
        self.origin.release();
        self.store.release();
    }
}

/// Requests of one client, one after the other: the first may be the one that hangs.
async fn long_request(client: Client, mix: Mix, mut random: Random, _guard: Option<Writing>, faulty: bool) {
    for _ in 0..random.between(1, 4) {
        tolerate(client.step(&mix, &mut random).await, faulty);
    }
}

fn tolerate(result: Result<(), IoError>, faulty: bool) {
    match result {
        Ok(()) | Err(IoError::NoSpace | IoError::ReadOnly | IoError::Gone) => {}
        Err(IoError::Medium | IoError::HostFull | IoError::Corrupt) if faulty => {}
        Err(error) => panic!("no faults: {error}"),
    }
}

/// Reads what was just written to a snapshot, hangs, and meanwhile makes zeros of it, so that its space becomes free.
async fn pull_away(client: Client, keeper: Keeper, mut random: Random, _guard: Option<Writing>) {
    let tolerate = |result| tolerate(result, keeper.faulty);
    let extent = Extent::new(random.below(12) * 4 * KIB, random.between(1, 5) * 4 * KIB);
    tolerate(client.write(extent, Durability::Volatile).await);
    tolerate(client.flush().await);
    keeper.store.hold_next(1, Holds::Reads);
    let (pause, checkpoints) = (random.below(200), random.between(4, 12));
    let pull = async {
        keeper.clock.sleep(Duration::from_micros(pause)).await;
        tolerate(client.zero(extent, ZeroOptions::default()).await);
        tolerate(client.flush().await);
        // Others take what is free, again and again.
        for other in (0..random.between(4, 16)).map(|_| Extent::new(random.below(16) * 4 * KIB, 4 * KIB)) {
            if other.intersect(extent).is_none() {
                tolerate(client.write(other, Durability::Volatile).await);
                tolerate(client.flush().await);
                tolerate(client.zero(other, ZeroOptions::default()).await);
            }
        }
    };
    let (read, (), ()) = futures_util::join!(client.read(extent), pull, keeper.release_after(checkpoints));
    tolerate(read);
}

/// The snapshots that such clients write to, as often as there are clients that do.
pub(crate) type WrittenNames = Rc<RefCell<Vec<String>>>;

/// A snapshot that is being written to, until this is dropped.
struct Writing(WrittenNames, String);

impl Writing {
    fn new(names: &WrittenNames, name: String) -> Self {
        names.borrow_mut().push(name.clone());
        Writing(Rc::clone(names), name)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut names = self.0.borrow_mut();
        let place = names.iter().position(|name| *name == self.1);
        names.swap_remove(place.expect("it was entered"));
    }
}
