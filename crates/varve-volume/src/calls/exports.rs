//! Calls that concern the NBD exports at one address.
//!
//! Invariant EXPORTCALL1: a socket whose last export is gone is closed.

use crate::context::ShardContext;
use crate::doors::export_target::{ReachedFrom, Target};
use crate::doors::nbd::{DetachedSocket, DoorResources, NbdSocket};
use crate::handle::{Answer, ShardHandle};
use crate::world::Place;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use varve_api::Traffic;
use varve_export::nbd::{DetachedConnection, DirtyBitmap, TlsServer};

/// Calls that concern the exports at one address.
#[derive(Clone)]
pub struct ExportCalls<'a> {
    pub(super) shard: &'a ShardHandle,
    pub(super) address: String,
}

/// An export that is to be opened.
pub struct NewExport {
    /// The name to which it answers.
    pub name: String,
    /// Names that it had.
    pub aliases: Vec<String>,
    /// Where its socket listens.
    pub place: Place,
    /// What its clients share with those of others.
    pub resources: DoorResources,
    /// What the clients of its socket have to begin TLS with, if they have to.
    pub tls: Option<TlsServer>,
    /// What was changed since a state of before, if clients may ask.
    pub dirty: Option<Arc<DirtyBitmap>>,
    /// Where it leads.
    pub target: Target,
}

impl ExportCalls<'_> {
    /// Opens an export, and the socket if it is the first there; whether the name was free.
    pub fn open(&self, export: NewExport) -> Answer<io::Result<bool>> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            let NewExport { name, aliases, place, resources, tls, dirty, target } = export;
            let socket = match here.state().socket(&address) {
                Some(socket) => socket,
                None => {
                    let activity = here.state().activity.clone();
                    let socket = NbdSocket::open(here.host(), &place, resources, (tls, activity))?;
                    here.state().sockets.borrow_mut().insert(address, Rc::clone(&socket));
                    socket
                }
            };
            let target = ReachedFrom { context: here.apart(), target };
            Ok(socket.add(&name, aliases, Rc::new(target), dirty))
        })
    }

    /// Has the socket listen at `place` anew, if it is open: its file has gone.
    pub fn listen_again(&self, place: Place) -> Answer<io::Result<()>> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| match here.state().socket(&address) {
            Some(socket) => socket.listen_again(&place),
            None => Ok(()),
        })
    }

    /// Closes the export `name`; when this answers, no request of it is under way.
    pub fn close(&self, name: String) -> Answer<()> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            let Some(socket) = here.state().socket(&address) else { return };
            if !socket.remove(&name).await {
                here.state().sockets.borrow_mut().remove(&address); // EXPORTCALL1
                socket.close().await;
            }
        })
    }

    /// Closes the socket with all its exports.
    pub fn close_all(&self) -> Answer<()> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            let socket = here.state().sockets.borrow_mut().remove(&address);
            if let Some(socket) = socket {
                socket.close().await;
            }
        })
    }

    /// Takes nothing in at the socket any more; answers when the connections that can be passed on are out, and nothing of them is in
    /// flight.
    pub fn detach(&self) -> Answer<()> {
        self.at_socket(async |socket: Rc<NbdSocket>| socket.detach().await)
    }

    /// What was detached, for another process.
    pub fn take_detached(&self) -> Answer<Option<DetachedSocket>> {
        self.at_socket(async |socket: Rc<NbdSocket>| Some(socket.take_detached()))
    }

    /// Goes on as before [`ExportCalls::detach`].
    pub fn resume(&self) -> Answer<()> {
        self.at_socket(async |socket: Rc<NbdSocket>| socket.resume().await)
    }

    /// Serves connections that were detached, and says of how many that began; without the socket they are closed.
    pub fn adopt(&self, connections: Vec<DetachedConnection>) -> Answer<usize> {
        self.at_socket(async move |socket: Rc<NbdSocket>| socket.adopt(connections).await)
    }

    fn at_socket<T: Default + Send + 'static>(
        &self,
        work: impl AsyncFnOnce(Rc<NbdSocket>) -> T + Send + 'static,
    ) -> Answer<T> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            let socket = here.state().socket(&address);
            match socket {
                Some(socket) => work(socket).await,
                None => T::default(),
            }
        })
    }

    /// Lets an export answer to another name, and to the one before.
    pub fn rename(&self, from: String, to: String) -> Answer<()> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            if let Some(socket) = here.state().socket(&address) {
                socket.rename(&from, &to);
            }
        })
    }

    /// The clients of the export `name`, and what was done through them.
    pub fn counters(&self, name: String) -> Answer<Option<(Vec<String>, Traffic)>> {
        let address = self.address.clone();
        self.shard.run(async move |here: ShardContext| {
            here.state().socket(&address).and_then(|socket| socket.counters(&name))
        })
    }
}
