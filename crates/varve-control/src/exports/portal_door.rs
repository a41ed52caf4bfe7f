//! Doors on threads of their own: each leads through a portal to its volume, and is opened as its kind has it.

use super::address::Address;
use super::server::{
    Closing, Ended, ExportDoor, ExportServer, NewDoor, NotClosed, Opened, ReadAddress, portal,
};
use crate::failures;
use crate::host::path_calls::{at_path, within};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, Traffic};
use varve_block::host::FileAccess;
use varve_block::{Arena, LocalFuture, Portal, UnixTime};
use varve_export::{Budget, DoorCounters};
use varve_volume::doors::export_target::Target;
use varve_volume::doors::traffic::shown_latencies;
use varve_volume::world::{FileDoor, Files};
use varve_volume::{DoorOf, Host};

/// How long opening and closing may take (DOORKIND2).
const OPEN_MAX: Duration = Duration::from_secs(30);

/// What such doors differ in.
pub(crate) struct Kind {
    /// How an address is read.
    pub(super) address: ReadAddress,
    /// What clients that are in the way of a change are to do.
    pub(super) leave_help: &'static str,
    /// Whether its file can be made anew where it has gone, and its clients stay: a socket, a link.
    pub(super) can_renew: bool,
    /// How one ends by itself.
    pub(super) ended: Ended,
    /// Refuses a path at which none can be opened now.
    pub(super) check: fn(&dyn Files, &Path) -> Result<(), Failure>,
    /// Opens one.
    pub(super) open: OpenFile,
}

/// Opens a file on a thread that may wait.
pub(super) type OpenFile = fn(&dyn Files, &NewFile) -> Result<Box<dyn FileDoor>, Failure>;

/// A file that is to be opened.
pub(super) struct NewFile {
    /// What clients know it as.
    pub(super) name: String,
    /// What tells it from all others.
    pub(super) id: Uuid,
    pub(super) path: PathBuf,
    /// Who may use it.
    pub(super) access: FileAccess,
    pub(super) portal: Portal,
    pub(super) arena: Arena,
    pub(super) budget: Budget,
    pub(super) created: UnixTime,
}

/// Doors of a kind.
pub(crate) struct PortalServer {
    host: Host,
    budget: Budget,
    kind: &'static Kind,
}

/// An open one.
pub(crate) struct PortalDoor {
    host: Host,
    kind: &'static Kind,
    /// None while it is closed.
    file: RefCell<Option<Box<dyn FileDoor>>>,
}

impl PortalServer {
    /// With this memory for requests.
    pub(crate) fn new(host: Host, budget: Budget, kind: &'static Kind) -> Self {
        Self { host, budget, kind }
    }

    async fn open_door(&self, new: NewDoor) -> Result<Opened, Failure> {
        let portal = portal(&new.target, DoorOf::NewFile).await?;
        let id = new
            .target
            .snapshot
            .as_ref()
            .map_or(new.target.volume, |snapshot| Uuid::new_v5(&new.target.volume, snapshot.as_bytes()));
        let new = NewFile {
            name: new.name,
            id,
            path: PathBuf::from(new.address.text),
            access: new.access,
            portal,
            arena: self.host.arena(),
            budget: self.budget.clone(),
            created: UnixTime(self.host.clock().date().0),
        };
        let (place, open) = (new.path.clone(), self.kind.open);
        let file = at_door(&self.host, &place, move |files| open(files, &new)).await??;
        Ok(Opened { door: Rc::new(PortalDoor::new(self.host.clone(), self.kind, file)), warning: None })
    }

    async fn check_path(&self, address: &Address) -> Result<(), Failure> {
        let (path, check) = (PathBuf::from(&address.text), self.kind.check);
        let place = path.clone();
        at_path(&self.host, &path, move |files| check(files, &place)).await?
    }
}

impl ExportServer for PortalServer {
    fn address(&self) -> ReadAddress {
        self.kind.address
    }

    fn leave_help(&self) -> &'static str {
        self.kind.leave_help
    }

    fn check<'a>(&'a self, address: &'a Address) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(self.check_path(address))
    }

    fn open(&self, new: NewDoor) -> LocalFuture<'_, Result<Opened, Failure>> {
        Box::pin(self.open_door(new))
    }
}

impl PortalDoor {
    /// A door at a file that is open.
    pub(crate) fn new(host: Host, kind: &'static Kind, file: Box<dyn FileDoor>) -> Self {
        Self { host, kind, file: RefCell::new(Some(file)) }
    }

    async fn close_file(&self, closing: Closing) -> Result<(), NotClosed> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let place = file.path().to_owned();
        if closing == Closing::Stop {
            let _ = at_door(&self.host, &place, move |_| file.leave()).await;
            return Ok(());
        }
        if closing == Closing::Forced {
            let _ = at_door(&self.host, &place, move |_| file.detach()).await;
            return Ok(());
        }
        match at_door(&self.host, &place, move |_| (file.close(), file)).await {
            Ok((Ok(()), _)) => Ok(()),
            Ok((Err(error), file)) => {
                self.file.replace(Some(file));
                Err(NotClosed { failure: failures::file_door(&error), is_serving: true })
            }
            // It is closed as soon as its path answers.
            Err(failure) => Err(NotClosed { failure, is_serving: false }),
        }
    }
}

impl ExportDoor for PortalDoor {
    fn ended(&self) -> Option<Ended> {
        match &*self.file.borrow() {
            Some(file) if file.is_serving() => None,
            _ => Some(self.kind.ended),
        }
    }

    fn notice(&self) -> Option<String> {
        self.file.borrow().as_ref()?.notice()
    }

    fn counters(&self) -> LocalFuture<'_, (Vec<String>, Traffic)> {
        let counters = self.file.borrow().as_ref().map(|file| {
            let (clients, more) = match file.is_serving() {
                true => (file.clients(), file.more_clients()),
                false => (Vec::new(), None),
            };
            (clients, more, traffic(file.counters()), file.path().to_owned())
        });
        Box::pin(async move {
            let Some((mut clients, more, traffic, path)) = counters else { return Default::default() };
            if let Some(find) = more {
                let unknown = |_| vec!["unknown: the host does not answer".to_owned()];
                clients.extend(at_path(&self.host, &path, move |_| find()).await.unwrap_or_else(unknown));
            }
            (clients, traffic)
        })
    }

    fn device(&self) -> Option<String> {
        Some(self.file.borrow().as_ref()?.device()?.display().to_string())
    }

    fn rename(&self, _: String) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn redirect(&self, target: Target) -> LocalFuture<'_, ()> {
        Box::pin(async move {
            let Ok(portal) = portal(&target, DoorOf::SameFile).await else { return };
            if let Some(file) = &*self.file.borrow() {
                file.replace(portal);
            }
        })
    }

    fn set_access<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        let set = self.file.borrow().as_ref().map_or(Ok(()), |file| file.set_access(access));
        Box::pin(std::future::ready(set.map_err(|error| failures::permissions(&address.text, &error))))
    }

    fn renew<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            if !self.kind.can_renew {
                return Ok(false);
            }
            address.check_folder(&self.host).await?;
            let Some(renewed) = self.file.borrow().as_ref().map(|file| file.renew(access)) else {
                return Ok(false);
            };
            renewed.map_err(|error| failures::listen(&address.text, &error))?;
            Ok(true)
        })
    }

    fn close(&self, closing: Closing) -> LocalFuture<'_, Result<(), NotClosed>> {
        Box::pin(self.close_file(closing))
    }
}

/// Opens or closes at `path`, on a thread that nothing else waits for: what is at the path may not answer (DOORKIND2). A file
/// that comes back too late is closed.
async fn at_door<T: Send + 'static>(
    host: &Host,
    path: &Path,
    work: impl FnOnce(&dyn Files) -> T + Send + 'static,
) -> Result<T, Failure> {
    match within(host, OPEN_MAX, host.files_at(path, work)).await {
        Some(done) => done,
        None => Err(Failure::new(Code::DoorFailed, format!("{}: it does not answer", path.display()))
            .help("look at the file system of that path: it hangs; then try again")),
    }
}

fn traffic(counters: DoorCounters) -> Traffic {
    Traffic {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes + counters.zeros,
        write_bytes: counters.write_bytes + counters.zero_bytes,
        flushes: counters.flushes,
        discards: counters.discards,
        errors: counters.errors,
        in_flight: counters.in_flight,
        latency: shown_latencies(&counters.latencies),
    }
}
