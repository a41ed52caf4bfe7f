//! What a kind of door is to the control: how its addresses are read, how a door is opened, redirected and closed.
//!
//! Invariants:
//! - DOORKIND1. Which kinds of doors there are is known to the table of `known_exports.rs`; what a kind does, to its own file.
//! - DOORKIND2. What a door does with a kernel or at a path ends in bounded time: if there is no answer, the door fails, never its volume.
//! - DOORS1. When a door is closed it serves no client, and nothing that came through it is in flight.

use super::address::Address;
use crate::failures;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use varve_api::{Code, Failure, Traffic};
use varve_block::host::FileAccess;
use varve_block::{LocalFuture, Portal};
use varve_export::nbd::{DetachedConnection, DirtyBitmap, TlsServer};
use varve_volume::DoorOf;
use varve_volume::doors::export_target::Target;

/// Reads what stands behind the option of a door. Host names are looked up, which may wait: it runs on a thread that may.
pub(crate) type ReadAddress = fn(&str) -> Result<Address, Failure>;

/// A kind of door, with what its doors share.
pub(crate) trait ExportServer {
    /// How an address is read.
    fn address(&self) -> ReadAddress;
    /// What clients that are in the way of a change are to do.
    fn leave_help(&self) -> &'static str;
    /// Refuses an address at which no door could be opened now; changes nothing.
    fn check<'a>(&'a self, address: &'a Address) -> LocalFuture<'a, Result<(), Failure>>;
    /// Opens a door.
    fn open(&self, new: NewDoor) -> LocalFuture<'_, Result<Opened, Failure>>;
    /// Has clients wait whom another process can serve on, and answers when nothing of theirs is in flight. Those of other kinds are served
    /// until their doors are closed.
    fn detach(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// Goes on with the clients that were detached, or still are to be.
    fn resume(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// What was detached, for another process.
    fn take_detached(&self) -> LocalFuture<'_, Vec<HandedSocket>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    /// Goes on with clients that another process has detached, and says with how many; those whose doors are not open are disconnected.
    fn adopt<'a>(&'a self, _: &'a str, _: Vec<DetachedConnection>) -> LocalFuture<'a, usize> {
        Box::pin(std::future::ready(0))
    }
}

/// A listening socket that passes from one process to another, with its connections.
#[derive(Debug)]
pub struct HandedSocket {
    /// The address of its exports, as it is remembered.
    pub address: String,
    /// It.
    pub listener: Option<OwnedFd>,
    /// Connections past their handshakes.
    pub connections: Vec<DetachedConnection>,
}

/// A door that is to be opened.
pub(crate) struct NewDoor {
    /// The volume or snapshot as clients know it.
    pub(crate) name: String,
    /// As clients knew it before.
    pub(crate) aliases: Vec<String>,
    /// Where it is reached.
    pub(crate) address: Address,
    /// Who may use its file, if it has one.
    pub(crate) access: FileAccess,
    /// What its clients have to begin TLS with, if they have to.
    pub(crate) tls: Option<TlsServer>,
    /// What was changed since a state of before, if its clients may ask.
    pub(crate) dirty: Option<Arc<DirtyBitmap>>,
    /// Where it leads.
    pub(crate) target: Target,
}

/// A door that was opened.
pub(crate) struct Opened {
    /// It.
    pub(crate) door: Rc<dyn ExportDoor>,
    /// What a user is to be warned of.
    pub(crate) warning: Option<String>,
}

/// An open door. It lives beside the control; its clients are served wherever its kind serves them.
pub(crate) trait ExportDoor {
    /// How it has ended, if it has without being closed.
    fn ended(&self) -> Option<Ended>;
    /// What a client of it has to know.
    fn notice(&self) -> Option<String> {
        None
    }
    /// Its clients, as far as this host knows them, and what went through it.
    fn counters(&self) -> LocalFuture<'_, (Vec<String>, Traffic)>;
    /// The block device of this kernel that it is, if it is one.
    fn device(&self) -> Option<String>;
    /// What it leads to is called otherwise; its clients stay.
    fn rename(&self, to: String) -> LocalFuture<'_, ()>;
    /// What it leads to is served anew, or has another size; its clients stay.
    fn redirect(&self, target: Target) -> LocalFuture<'_, ()>;
    /// Others may use its file; its clients stay. If it fails the file lets those of before.
    fn set_access<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<(), Failure>>;
    /// Clients do not find it at its address any more. Whether they do again; else it has to be closed and opened.
    fn renew<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<bool, Failure>>;
    /// Closes it (DOORS1).
    fn close(&self, closing: Closing) -> LocalFuture<'_, Result<(), NotClosed>>;
}

/// How a door ended by itself, in the words of the two places that show it.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// In the list of exports.
    pub(crate) reason: &'static str,
    /// In the status.
    pub(crate) problem: &'static str,
}

/// Why a door is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It is to go when nothing needs it; a client that cannot be disconnected keeps it.
    Unused,
    /// It is to go, and its clients get errors.
    Forced,
    /// The daemon ends.
    Stop,
}

/// Why a door was not closed.
pub(crate) struct NotClosed {
    /// For users.
    pub(crate) failure: Failure,
    /// Whether it serves on.
    pub(crate) is_serving: bool,
}

/// The way from any thread to a volume or snapshot.
pub(crate) async fn portal(target: &Target, of: DoorOf) -> Result<Portal, Failure> {
    let portal = target.home.volume(target.volume).portal(target.clone(), of);
    let portal = portal.await.map_err(failures::gone)?;
    let inactive =
        || Failure::new(Code::VolumeUnusable, "the volume is not active").help("varve status says why");
    portal.ok_or_else(inactive)
}
