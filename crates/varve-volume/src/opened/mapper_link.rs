//! Connections to mappers: what is sent is queued, and what comes is taken in as it comes.
//!
//! Invariants:
//! - MAPPERLINK1. A mapper that does not read what it is sent costs a bounded amount of memory, and then its connection.
//! - MAPPERLINK2. While more than a bounded amount of what a mapper sent was not looked at, nothing more is taken in.

use crate::doors::gate::Gate;
use crate::events::VolumeEvent;
use crate::host::Host;
use crate::world::{FileLink, LinkEnd};
use futures_util::future::{AbortHandle, abortable, select};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::host::Peer;
use varve_block::{LocalFuture, Notify};
use varve_target::delegate::{Connector, Link, LinkError, Received};

/// Most bytes that wait to be sent.
const OUTPUT_MAX: usize = 16 << 20;
/// Most receives that wait to be looked at.
const INPUT_MAX: usize = 16;

/// Connects to the mapper of one volume. Cloning shares it.
#[derive(Clone)]
pub(crate) struct MapperConnector(Rc<State>);

struct State {
    host: Host,
    volume: Uuid,
    gate: Gate,
    socket: PathBuf,
    /// The program at the other end of the last connection.
    peer: Cell<Option<Peer>>,
    /// Why there is no connection, if one was refused.
    refusal: Rc<RefCell<Option<String>>>,
    /// What was reported last of a mapper that is away.
    told: RefCell<Option<String>>,
}

impl MapperConnector {
    pub(crate) fn new(host: &Host, volume: Uuid, gate: &Gate, socket: &str) -> Self {
        Self(Rc::new(State {
            host: host.clone(),
            volume,
            gate: gate.clone(),
            socket: PathBuf::from(socket),
            peer: Cell::new(None),
            refusal: Rc::default(),
            told: RefCell::default(),
        }))
    }

    /// Where it stands why there is no connection, if one was refused.
    pub(crate) fn refusals(&self) -> Rc<RefCell<Option<String>>> {
        Rc::clone(&self.0.refusal)
    }

    /// Why there is no connection, if one was refused.
    fn refusal(&self) -> Option<String> {
        self.0.refusal.borrow().clone()
    }

    /// Tells of a connection.
    pub(crate) fn tell_connected(&self) {
        self.0.refusal.take();
        self.0.told.take();
        let who = self.0.peer.get().map(|peer| format!(" (process {}, user {})", peer.process, peer.user));
        let message = format!("connected to its mapper at {}{}", self.address(), who.unwrap_or_default());
        self.0.host.tell(VolumeEvent::News { volume: self.0.volume, message });
    }

    /// Tells of the end of one.
    pub(crate) fn tell_away(&self, why: Option<&str>) {
        let why = self.refusal().or_else(|| why.map(str::to_owned)).unwrap_or_default();
        self.tell_once(format!("its mapper at {} is away: {why}", self.address()));
    }

    /// There is no connection.
    fn refuse(&self, why: String) {
        self.tell_once(format!("its mapper at {} is away: {why}", self.address()));
        self.0.refusal.replace(Some(why));
    }

    fn tell_once(&self, message: String) {
        if self.0.told.borrow().as_ref() != Some(&message) {
            self.0.told.replace(Some(message.clone()));
            self.0.host.tell(VolumeEvent::Warning { volume: self.0.volume, message });
        }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.0.socket.display())
    }
}

impl Connector for MapperConnector {
    fn connect(&self) -> LocalFuture<'_, Result<Box<dyn Link>, LinkError>> {
        Box::pin(async {
            let connected = self.0.host.world.connect(&self.0.socket).await;
            let link = connected.map_err(|error| {
                self.refuse(error.to_string());
                LinkError
            })?;
            self.0.refusal.take();
            self.0.peer.set(Some(link.peer()));
            Ok(Box::new(MapperLink::new(self, link)) as Box<dyn Link>)
        })
    }
}

/// A connection, and what is on its way.
struct MapperLink {
    state: Rc<LinkState>,
    /// Sends and receives.
    task: AbortHandle,
}

struct LinkState {
    output: RefCell<VecDeque<Vec<u8>>>,
    /// Bytes in `output`.
    output_bytes: Cell<usize>,
    input: RefCell<VecDeque<Received>>,
    has_ended: Cell<bool>,
    changed: Notify,
}

impl Drop for MapperLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MapperLink {
    fn new(connector: &MapperConnector, link: Box<dyn FileLink>) -> Self {
        let state = Rc::new(LinkState {
            output: RefCell::default(),
            output_bytes: Cell::new(0),
            input: RefCell::default(),
            has_ended: Cell::new(false),
            changed: Notify::default(),
        });
        let (task, handle) = abortable({
            let (state, connector) = (Rc::clone(&state), connector.clone());
            async move {
                let (sent, received) = (state.send_all(&*link), state.receive_all(&*link, &connector.0));
                let end = select(pin!(sent), pin!(received)).await.factor_first().0;
                if !matches!(end, LinkEnd::Lost) {
                    connector.refuse(end.to_string());
                }
                state.has_ended.set(true);
                state.changed.notify_all();
            }
        });
        connector.0.host.spawner().spawn(async move {
            let _ = task.await;
        });
        Self { state, task: handle }
    }
}

impl LinkState {
    async fn send_all(&self, link: &dyn FileLink) -> LinkEnd {
        loop {
            let bytes = self.changed.next(|| self.output.borrow_mut().pop_front()).await;
            assert!(self.output_bytes.get() <= OUTPUT_MAX, "MAPPERLINK1");
            self.output_bytes.set(self.output_bytes.get() - bytes.len());
            if let Err(end) = link.send(bytes).await {
                return end;
            }
        }
    }

    async fn receive_all(&self, link: &dyn FileLink, volume: &State) -> LinkEnd {
        loop {
            self.changed.until(|| self.input.borrow().len() < INPUT_MAX).await;
            let (bytes, disks) = match link.receive().await {
                Ok(received) => received,
                Err(end) => return end,
            };
            // Behind a closed gate nothing reaches the files that a mapper passes (MAPPERS2 of `mappers.rs`).
            let devices = disks.iter().map(|disk| volume.gate.guard(volume.host.disk(disk))).collect();
            assert!(self.input.borrow().len() < INPUT_MAX, "MAPPERLINK2");
            self.input.borrow_mut().push_back(Received { bytes, devices });
            self.changed.notify_all();
        }
    }
}

impl Link for MapperLink {
    fn send(&self, bytes: Vec<u8>) {
        let state = &self.state;
        let waiting = state.output_bytes.get() + bytes.len();
        if waiting > OUTPUT_MAX {
            state.has_ended.set(true); // MAPPERLINK1
        } else {
            state.output_bytes.set(waiting);
            state.output.borrow_mut().push_back(bytes);
        }
        state.changed.notify_all();
    }

    fn receive(&self) -> LocalFuture<'_, Result<Received, LinkError>> {
        let state = &self.state;
        Box::pin(async {
            let next = || match state.input.borrow_mut().pop_front() {
                Some(received) => Some(Ok(received)),
                None => state.has_ended.get().then_some(Err(LinkError)),
            };
            let received = state.changed.next(next).await;
            state.changed.notify_all();
            received
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDisk, on_a_shard};
    use crate::world::{DiskRef, WithFiles};
    use std::sync::Arc;
    use varve_block::{Durability, IoError};

    /// A program that passes a file, and says nothing more.
    struct Passes(Cell<bool>);

    impl FileLink for Passes {
        fn peer(&self) -> Peer {
            Peer { process: 1, user: 0 }
        }

        fn send(&self, _: Vec<u8>) -> LocalFuture<'_, Result<(), LinkEnd>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn receive(&self) -> LocalFuture<'_, Result<WithFiles, LinkEnd>> {
            match self.0.replace(true) {
                true => Box::pin(std::future::pending()),
                false => {
                    let disk: DiskRef = Arc::new(TestDisk);
                    Box::pin(std::future::ready(Ok((vec![0], vec![disk]))))
                }
            }
        }
    }

    #[test]
    fn behind_a_closed_gate_a_file_that_a_mapper_passed_is_not_reached() {
        on_a_shard(async |context| {
            let gate = Gate::default();
            let connector = MapperConnector::new(&context, Uuid::nil(), &gate, "/mapper");
            let link = MapperLink::new(&connector, Box::new(Passes(Cell::new(false))));
            let received = link.receive().await.unwrap_or_else(|_| panic!("it passes a file"));
            let write = async || {
                let data = context.arena().copy(&[7; 512]);
                received.devices[0].write(0, data, Durability::Volatile).await.map(drop)
            };
            assert_eq!(write().await, Ok(()), "the gate is open");
            gate.close();
            assert_eq!(write().await, Err(IoError::Gone), "MAPPERS2");
        });
    }
}
