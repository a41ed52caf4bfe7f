//! A listening NBD socket on its shard: accepts, serves, finds its exports, drains.
//!
//! Invariants:
//! - N1. An export answers to its own name; an export alone behind its socket answers to the empty name too.
//! - N2. When [`NbdSocket::close`] returns, no connection of the socket has a request in flight.

use super::{ShardContext, family};
use crate::config::Config;
use crate::shard::ShardHandle;
use crate::world::{Listener, Place};
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::Traffic;
use varve_block::{Device, LocalFuture, Tracker};
use varve_export::nbd::{
    Admission, Budget, Catalog, Counters, Door, Export, Limits, Listed, SessionEnd, Shutdown,
};

/// What the clients of all doors of the daemon share.
#[derive(Clone)]
pub(crate) struct DoorResources {
    /// Their memory.
    pub(crate) budget: Budget,
    /// How many connections there may be.
    pub(crate) admission: Admission,
    /// What one connection may keep, and how long it may take.
    pub(crate) limits: Limits,
}

impl DoorResources {
    /// What the configuration allows.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            budget: Budget::new(config.memory as u64),
            admission: Admission::new(config.connections),
            limits: Limits { progress: config.client_timeout, ..Limits::default() },
        }
    }
}

/// What an export leads to.
#[derive(Clone)]
pub(crate) struct Target {
    /// The volume.
    pub(crate) volume: Uuid,
    /// One of its snapshots, or the volume itself.
    pub(crate) snapshot: Option<String>,
    /// The shard on which the volume lives.
    pub(crate) home: ShardHandle,
    /// Whether clients may not write.
    pub(crate) read_only: bool,
}

struct Entry {
    target: Target,
    shutdown: Shutdown,
    counters: Rc<Counters>,
}

/// The exports of one socket.
struct Exports {
    context: ShardContext,
    entries: RefCell<BTreeMap<String, Entry>>,
}

/// A listening socket with its exports and connections.
pub(crate) struct NbdSocket {
    exports: Rc<Exports>,
    door: Door,
    tasks: Tracker,
}

impl NbdSocket {
    /// Listens at `place`. No export yet.
    pub(crate) fn open(
        context: &ShardContext,
        place: &Place,
        resources: DoorResources,
    ) -> std::io::Result<Rc<Self>> {
        let (listener, context) = (context.listen(place)?, &context.apart());
        let exports = Rc::new(Exports { context: context.clone(), entries: RefCell::default() });
        let door = Door {
            catalog: Rc::clone(&exports) as Rc<dyn Catalog>,
            limits: resources.limits,
            budget: resources.budget,
            admission: resources.admission,
            activity: context.state().activity.clone(),
            arena: context.arena(),
            clock: context.clock(),
            shutdown: Shutdown::new(),
        };
        let socket = Rc::new(Self { exports, door, tasks: Tracker::default() });
        context.spawner().spawn(accept(context.clone(), listener, socket.door.clone(), socket.tasks.clone()));
        Ok(socket)
    }

    /// Adds an export; `false` if there is one of this name.
    pub(crate) fn add(&self, name: &str, target: Target) -> bool {
        let mut entries = self.exports.entries.borrow_mut();
        if entries.contains_key(name) {
            return false;
        }
        entries.insert(name.to_owned(), Entry { target, shutdown: Shutdown::new(), counters: Rc::default() });
        true
    }

    /// Gives an export another name; its connections stay.
    pub(crate) fn rename(&self, from: &str, to: &str) {
        let mut entries = self.exports.entries.borrow_mut();
        if let Some(entry) = entries.remove(from) {
            entries.insert(to.to_owned(), entry);
        }
    }

    /// Takes an export away and waits until its connections have ended. Whether exports are left.
    pub(crate) async fn remove(&self, name: &str) -> bool {
        let entry = self.exports.entries.borrow_mut().remove(name);
        if let Some(entry) = entry {
            entry.shutdown.pull();
            wait_for_connections(&self.exports.context, &entry.counters).await;
        }
        !self.exports.entries.borrow().is_empty()
    }

    /// Stops listening and waits until every connection has ended.
    pub(crate) async fn close(&self) {
        self.door.shutdown.pull();
        self.tasks.empty().await; // N2
    }

    /// Open connections of an export, and what it did.
    pub(crate) fn counters(&self, name: &str) -> Option<(u64, Traffic)> {
        let entries = self.exports.entries.borrow();
        let counters = &entries.get(name)?.counters;
        let traffic = Traffic {
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            writes: counters.writes.get(),
            write_bytes: counters.written_bytes.get(),
            flushes: 0,
            discards: 0,
            errors: counters.errors.get(),
        };
        Some((counters.connections.get(), traffic))
    }
}

/// N2 for one export: connections notice the signal at once and drain within the door's limits.
async fn wait_for_connections(context: &ShardContext, counters: &Rc<Counters>) {
    let clock = context.clock();
    while counters.connections.get() > 0 {
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Takes connections in until the door is shut.
async fn accept(context: ShardContext, listener: Box<dyn Listener>, door: Door, tasks: Tracker) {
    let _guard = tasks.enter();
    loop {
        let next = select(listener.accept(), Box::pin(door.shutdown.wait()));
        match next.await {
            Either::Right(_) => return,
            Either::Left((Ok(stream), _)) => {
                let (door, guard) = (door.clone(), tasks.enter());
                context.spawner().spawn(async move {
                    let peer = stream.peer();
                    match door.serve(stream).await {
                        Ok(()) | Err(SessionEnd::Refused(_)) => {}
                        Err(end) => tracing::info!(peer, %end, "an NBD connection ended out of order"),
                    }
                    drop(guard);
                });
            }
            Either::Left((Err(error), _)) => {
                if context.is_draining() || door.shutdown.is_pulled() {
                    return;
                }
                tracing::warn!(%error, "an NBD connection could not be accepted");
                context.clock().sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl Exports {
    /// The export's own name behind `name` (N1).
    fn resolve(&self, name: &str) -> Option<String> {
        let entries = self.entries.borrow();
        if entries.contains_key(name) {
            return Some(name.to_owned());
        }
        match (name, entries.len()) {
            ("", 1) => entries.keys().next().cloned(),
            _ => None,
        }
    }
}

impl Catalog for Exports {
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move {
            let name = self.resolve(name)?;
            let target = self.entries.borrow().get(&name).map(|entry| entry.target.clone())?;
            let device = reach(&self.context, &target).await?;
            // The export may have gone while its device was looked for.
            let entries = self.entries.borrow();
            let entry = entries.get(&name)?;
            let description = match target.snapshot {
                Some(_) => "a snapshot",
                None => "a volume",
            };
            Some(Export {
                device,
                description: description.to_owned(),
                read_only: target.read_only,
                multi_conn: true,
                shutdown: entry.shutdown.clone(),
                counters: Rc::clone(&entry.counters),
                name,
            })
        })
    }

    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        let entries = self.entries.borrow();
        let listed =
            entries.keys().map(|name| Listed { name: name.clone(), description: String::new() }).collect();
        Box::pin(std::future::ready(listed))
    }
}

/// A device for this shard onto a volume that lives on this one or another.
async fn reach(context: &ShardContext, target: &Target) -> Option<Device> {
    if target.home.index() == context.index() {
        return family::device(context, target.volume, target.snapshot.as_deref());
    }
    let (volume, snapshot) = (target.volume, target.snapshot.clone());
    let portal = target.home.run(async move |there: ShardContext| {
        family::device(&there, volume, snapshot.as_deref()).map(|device| there.portal(&device))
    });
    let portal = portal.await.ok().flatten()?;
    Some(context.import(&portal))
}
