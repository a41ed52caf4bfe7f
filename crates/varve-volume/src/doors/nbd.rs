//! A listening NBD socket on its shard: accepts, serves, finds its exports, drains.
//!
//! Invariants:
//! - NBDSOCKET1. An export answers to its own name; an export alone behind its socket answers to the empty name too.
//! - NBDSOCKET4. An export answers to the names that it had, too, until another one of the socket has such a name: so a name leads to one export.
//! - NBDSOCKET3. A socket listens in one place; where it begins to listen anew its connections stay.
//! - NBDSOCKET5. A socket that is detached takes nothing in until it is resumed: what comes waits in the kernel.
//! - NBDSOCKET2. When [`NbdSocket::close`] returns, no connection of the socket has a request in flight.

use crate::doors::traffic::shown_latencies;
use crate::host::Host;
use crate::world::{Listener, Place};
use futures_channel::oneshot;
use futures_util::future::{Either, join_all, select};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use varve_api::Traffic;
use varve_block::{Device, LocalFuture, Tracker};
use varve_export::nbd::{
    Activity, Admission, Budget, Catalog, Counters, DetachedConnection, Detachment, DirtyBitmap, Door,
    Export, Limits, Listed, SessionEnd, Shutdown, TlsServer,
};

/// What the clients of all doors of the daemon share.
#[derive(Clone)]
pub struct DoorResources {
    /// Their memory.
    pub budget: Budget,
    /// How many connections there may be.
    pub admission: Admission,
    /// What one connection may keep, and how long it may take.
    pub limits: Limits,
}

/// What the clients of all doors of the daemon may have together, as it is configured.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Bytes for their requests.
    pub memory: u64,
    /// NBD connections at a time.
    pub connections: usize,
    /// How long one that has begun a message may take to go on.
    pub client_timeout: Duration,
}

impl DoorResources {
    /// What `limits` allow.
    pub fn new(limits: DoorLimits) -> Self {
        Self {
            budget: Budget::new(limits.memory),
            admission: Admission::new(limits.connections),
            limits: Limits { progress: limits.client_timeout, ..Limits::default() },
        }
    }
}

/// What an export leads to.
pub trait ExportTarget {
    /// What it is, as shown to users.
    fn description(&self) -> &'static str;
    /// Whether clients may not write.
    fn is_read_only(&self) -> bool;
    /// A device for one connection; none if there is nothing to lead to now.
    fn device(&self) -> LocalFuture<'_, Option<Device>>;
}

struct Entry {
    /// Names that it had (NBDSOCKET4).
    aliases: Vec<String>,
    target: Rc<dyn ExportTarget>,
    /// What was changed since a state of before, if clients may ask.
    dirty: Option<Arc<DirtyBitmap>>,
    shutdown: Shutdown,
    counters: Rc<Counters>,
}

/// The exports of one socket.
#[derive(Default)]
struct Exports {
    entries: RefCell<BTreeMap<String, Entry>>,
}

/// A listening socket with its exports and connections.
pub struct NbdSocket {
    exports: Rc<Exports>,
    host: Host,
    door: Door,
    /// Ends the listener (NBDSOCKET3).
    listening: RefCell<Shutdown>,
    /// The listener while connections are detached (NBDSOCKET5).
    parked: Parked,
    tasks: Tracker,
}

type Parked = Rc<RefCell<Option<Box<dyn Listener>>>>;

/// What another process goes on with of a socket.
#[derive(Debug)]
pub struct DetachedSocket {
    /// It, listening.
    pub listener: Option<OwnedFd>,
    /// Connections past their handshakes.
    pub connections: Vec<DetachedConnection>,
}

impl NbdSocket {
    /// Listens at `place`. No export yet.
    pub fn open(
        host: &Host,
        place: &Place,
        resources: DoorResources,
        (tls, activity): (Option<TlsServer>, Activity),
    ) -> std::io::Result<Rc<Self>> {
        let listener = host.world.listen(place)?;
        let exports: Rc<Exports> = Rc::default();
        let door = Door {
            catalog: Rc::clone(&exports) as Rc<dyn Catalog>,
            limits: resources.limits,
            budget: resources.budget,
            admission: resources.admission,
            tls,
            activity,
            arena: host.arena(),
            clock: host.clock(),
            shutdown: Shutdown::new(),
            detachment: Detachment::default(),
        };
        let (listening, tasks) = (RefCell::new(Shutdown::new()), Tracker::default());
        let parked = Parked::default();
        let socket = Rc::new(Self { exports, host: host.clone(), door, listening, parked, tasks });
        socket.accept_from(listener);
        Ok(socket)
    }

    /// Listens at `place` anew: its file has gone (NBDSOCKET3).
    pub fn listen_again(&self, place: &Place) -> std::io::Result<()> {
        let listener = self.host.world.listen(place)?;
        let before = self.listening.replace(Shutdown::new());
        assert!(!before.is_pulled(), "NBDSOCKET3: there was one listener");
        before.pull();
        self.accept_from(listener);
        Ok(())
    }

    fn accept_from(&self, listener: Box<dyn Listener>) {
        let ends = (self.door.clone(), self.listening.borrow().clone());
        let (host, tasks, parked) = (self.host.clone(), self.tasks.clone(), Rc::clone(&self.parked));
        let is_listening = (self.door.detachment.enter(), self.tasks.enter());
        self.host.spawner().spawn(async move {
            let listener = accept(host, listener, &ends, tasks).await;
            if ends.0.detachment.is_wanted() {
                parked.replace(Some(listener));
            }
            drop(is_listening);
        });
    }

    /// Takes nothing in any more, and waits until connections that can be passed on are out, with all that they began answered
    /// (NBDSOCKET5).
    pub async fn detach(&self) {
        self.door.detachment.detach().await;
    }

    /// What was detached.
    pub fn take_detached(&self) -> DetachedSocket {
        let listener = self.parked.take().and_then(|listener| listener.into_descriptor());
        DetachedSocket { listener, connections: self.door.detachment.take() }
    }

    /// Goes on as before [`NbdSocket::detach`].
    pub async fn resume(&self) {
        self.door.detachment.release();
        if let Some(listener) = self.parked.take() {
            self.accept_from(listener);
        }
        self.adopt(self.door.detachment.take()).await;
    }

    /// Serves connections that were detached; of how many that began.
    pub async fn adopt(&self, connections: Vec<DetachedConnection>) -> usize {
        let begin = |DetachedConnection { socket, state }| {
            let stream = self.host.world.adopt(socket)?;
            let (door, guard) = (self.door.clone(), self.tasks.enter());
            let (begins, begun) = oneshot::channel();
            self.host.spawner().spawn(async move {
                let peer = stream.peer();
                let begun = || begins.send(()).unwrap_or_default();
                note_end(&peer, door.adopt(stream, state, begun).await);
                drop(guard);
            });
            Some(begun)
        };
        let begun: Vec<_> = connections.into_iter().filter_map(begin).collect();
        join_all(begun).await.iter().filter(|begun| begun.is_ok()).count()
    }

    /// Adds an export that had the names `aliases`; `false` if there is one of this name.
    pub fn add(
        &self,
        name: &str,
        aliases: Vec<String>,
        target: Rc<dyn ExportTarget>,
        dirty: Option<Arc<DirtyBitmap>>,
    ) -> bool {
        let entry = Entry { aliases, target, dirty, shutdown: Shutdown::new(), counters: Rc::default() };
        self.exports.add(name, entry)
    }

    /// Gives an export another name; its connections stay.
    pub fn rename(&self, from: &str, to: &str) {
        self.exports.rename(from, to);
    }

    /// Takes an export away and waits until its connections have ended. Whether exports are left.
    pub async fn remove(&self, name: &str) -> bool {
        let entry = self.exports.entries.borrow_mut().remove(name);
        if let Some(entry) = entry {
            entry.shutdown.pull();
            wait_for_connections(&self.host, &entry.counters).await;
        }
        !self.exports.entries.borrow().is_empty()
    }

    /// Stops listening and waits until every connection has ended.
    pub async fn close(&self) {
        self.door.shutdown.pull();
        self.tasks.empty().await; // NBDSOCKET2
    }

    /// The clients of an export, and what it did.
    pub fn counters(&self, name: &str) -> Option<(Vec<String>, Traffic)> {
        let entries = self.exports.entries.borrow();
        let counters = &entries.get(name)?.counters;
        let traffic = Traffic {
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            writes: counters.writes.get(),
            write_bytes: counters.written_bytes.get(),
            flushes: counters.flushes.get(),
            discards: counters.discards.get(),
            errors: counters.errors.get(),
            in_flight: counters.device.in_flight.get(),
            latency: shown_latencies(&counters.device.latencies.borrow()),
        };
        Some((counters.clients(), traffic))
    }
}

/// NBDSOCKET2 for one export: connections notice the signal at once and drain within the door's limits.
async fn wait_for_connections(host: &Host, counters: &Rc<Counters>) {
    let clock = host.clock();
    while counters.connections.get() > 0 {
        clock.sleep(Duration::from_millis(5)).await;
    }
}

fn note_end(peer: &str, ended: Result<(), SessionEnd>) {
    match ended {
        Ok(()) | Err(SessionEnd::Refused(_)) => {}
        Err(end) => tracing::info!(peer, %end, "an NBD connection ended out of order"),
    }
}

/// Takes connections in until the door is shut, connections are detached, or the listener is replaced; gives the listener back.
async fn accept(
    host: Host,
    listener: Box<dyn Listener>,
    (door, listening): &(Door, Shutdown),
    tasks: Tracker,
) -> Box<dyn Listener> {
    loop {
        let end = select(Box::pin(door.shutdown.wait()), Box::pin(listening.wait()));
        let next = select(listener.accept(), select(end, Box::pin(door.detachment.wait())));
        let accepted = match next.await {
            Either::Right(_) => None,
            Either::Left((accepted, _)) => Some(accepted),
        };
        match accepted {
            None => return listener,
            Some(Ok(stream)) => {
                let (door, guard) = (door.clone(), tasks.enter());
                host.spawner().spawn(async move {
                    let peer = stream.peer();
                    note_end(&peer, door.serve(stream).await);
                    drop(guard);
                });
            }
            Some(Err(error)) => {
                if host.world.is_draining() || door.shutdown.is_pulled() {
                    return listener;
                }
                tracing::warn!(%error, "an NBD connection could not be accepted");
                host.clock().sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl Exports {
    fn add(&self, name: &str, entry: Entry) -> bool {
        let mut entries = self.entries.borrow_mut();
        if entries.contains_key(name) {
            return false;
        }
        entries.values_mut().for_each(|other| other.aliases.retain(|alias| alias != name)); // NBDSOCKET4
        entries.insert(name.to_owned(), entry);
        true
    }

    fn rename(&self, from: &str, to: &str) {
        let Some(mut entry) = self.entries.borrow_mut().remove(from) else { return };
        entry.aliases.retain(|alias| alias != to);
        entry.aliases.push(from.to_owned());
        let is_added = self.add(to, entry);
        assert!(is_added, "NBDSOCKET1: names of volumes are unique");
    }

    /// The export's own name behind `name` (NBDSOCKET1, NBDSOCKET4).
    fn resolve(&self, name: &str) -> Option<String> {
        let entries = self.entries.borrow();
        if entries.contains_key(name) {
            return Some(name.to_owned());
        }
        match (name, entries.len()) {
            ("", 1) => entries.keys().next().cloned(),
            _ => entries
                .iter()
                .find(|(_, entry)| entry.aliases.iter().any(|alias| alias == name))
                .map(|(own, _)| own.clone()),
        }
    }
}

impl Catalog for Exports {
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move {
            let name = self.resolve(name)?;
            let target = self.entries.borrow().get(&name).map(|entry| Rc::clone(&entry.target))?;
            let device = target.device().await?;
            // The export may have gone while its device was looked for.
            let entries = self.entries.borrow();
            let entry = entries.get(&name)?;
            Some(Export {
                device,
                description: target.description().to_owned(),
                read_only: target.is_read_only(),
                multi_conn: true,
                dirty: entry.dirty.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl ExportTarget for Nothing {
        fn description(&self) -> &'static str {
            "nothing"
        }

        fn is_read_only(&self) -> bool {
            true
        }

        fn device(&self) -> LocalFuture<'_, Option<Device>> {
            Box::pin(std::future::ready(None))
        }
    }

    fn entry(aliases: &[&str]) -> Entry {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let (target, shutdown, counters) = (Rc::new(Nothing), Shutdown::new(), Rc::default());
        Entry { aliases, target, dirty: None, shutdown, counters }
    }

    #[test]
    fn an_export_answers_to_the_names_that_it_had_until_another_one_takes_them() {
        let exports = Exports::default();
        let leads = |name: &str| exports.resolve(name).unwrap_or_default();
        assert!(exports.add("data/c", entry(&["data/a", "data/b"])) && !exports.add("data/c", entry(&[])));
        assert!(exports.add("data/x", entry(&[])));
        assert_eq!([leads("data/a"), leads("data/b"), leads("data/c")], ["data/c"; 3], "NBDSOCKET4");
        exports.rename("data/x", "data/a");
        assert_eq!([leads("data/x"), leads("data/a")], ["data/a"; 2], "NBDSOCKET4");
        exports.rename("data/a", "data/x");
        assert_eq!([leads("data/x"), leads("data/a")], ["data/x"; 2], "NBDSOCKET4: the last that had it");
        assert_eq!([leads("data/b"), leads("data/c")], ["data/c"; 2], "NBDSOCKET4");
        assert!(exports.add("data/b", entry(&[])));
        assert_eq!([leads("data/b"), leads("data/c")], ["data/b", "data/c"], "NBDSOCKET4");
    }

    #[test]
    fn an_export_answers_to_its_name_and_one_that_is_alone_to_the_empty_one() {
        let exports = Exports::default();
        let add = |name: &str| assert!(exports.add(name, entry(&[])));
        assert_eq!(exports.resolve(""), None, "NBDSOCKET1: nothing is there");
        add("data/a");
        assert_eq!(exports.resolve("data/a").as_deref(), Some("data/a"), "NBDSOCKET1");
        assert_eq!(exports.resolve("").as_deref(), Some("data/a"), "NBDSOCKET1: it is alone");
        assert_eq!(exports.resolve("data/b"), None, "NBDSOCKET1");
        add("data/b");
        assert_eq!(exports.resolve(""), None, "NBDSOCKET1: which one is not said");
        assert_eq!(exports.resolve("data/b").as_deref(), Some("data/b"), "NBDSOCKET1");
    }
}
