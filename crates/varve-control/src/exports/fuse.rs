//! FUSE: devices that are mounted as files.

use super::address::{Address, bad};
use super::server::{
    Closing, Ended, ExportDoor, ExportServer, NewDoor, NotClosed, Opened, ReadAddress, portal,
};
use crate::failures;
use crate::host::path_calls::{at_path, within};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use varve_api::{Code, Failure, Traffic};
use varve_block::{LocalFuture, UnixTime};
use varve_export::fuse::{FuseCounters, FuseOptions};
use varve_export::nbd::Budget;
use varve_volume::doors::export_target::Target;
use varve_volume::world::{FileDoor, Files};
use varve_volume::{DoorOf, Host};

/// How long a mount may take (DOORKIND2).
const MOUNT_MAX: Duration = Duration::from_secs(30);

/// FUSE.
pub(crate) struct FuseServer {
    host: Host,
    budget: Budget,
}

/// A mounted file.
pub(crate) struct FuseDoor {
    host: Host,
    /// None while it is closed.
    file: RefCell<Option<Box<dyn FileDoor>>>,
}

impl FuseServer {
    /// With this memory for requests.
    pub(crate) fn new(host: Host, budget: Budget) -> Self {
        Self { host, budget }
    }

    async fn open_door(&self, new: NewDoor) -> Result<Opened, Failure> {
        let portal = portal(&new.target, DoorOf::NewFile).await?;
        let (arena, place) = (self.host.arena(), PathBuf::from(new.address.text));
        let options = FuseOptions {
            name: new.name,
            created: UnixTime(self.host.clock().date().0),
            budget: self.budget.clone(),
            ..FuseOptions::default()
        };
        let path = place.clone();
        let mount = move |files: &dyn Files| files.mount(&portal, &arena, &path, &options);
        let mounted = at_mount(&self.host, &place, mount).await?;
        let file = mounted.map_err(|error| failures::fuse(&error))?;
        Ok(Opened { door: Rc::new(FuseDoor::new(self.host.clone(), file)), warning: None })
    }

    async fn check_mount(&self, address: &Address) -> Result<(), Failure> {
        let path = PathBuf::from(&address.text);
        let place = path.clone();
        let checked = at_path(&self.host, &path, move |files| files.check_mount(&place)).await?;
        checked.map_err(|error| failures::fuse(&error))
    }
}

impl ExportServer for FuseServer {
    fn address(&self) -> ReadAddress {
        address
    }

    fn leave_help(&self) -> &'static str {
        "unmount what is on it and detach loop devices (losetup -d); or add --force to go on without them"
    }

    fn check<'a>(&'a self, address: &'a Address) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(self.check_mount(address))
    }

    fn open(&self, new: NewDoor) -> LocalFuture<'_, Result<Opened, Failure>> {
        Box::pin(self.open_door(new))
    }
}

impl FuseDoor {
    /// A door at a file that is mounted.
    pub(crate) fn new(host: Host, file: Box<dyn FileDoor>) -> Self {
        Self { host, file: RefCell::new(Some(file)) }
    }

    async fn close_file(&self, closing: Closing) -> Result<(), NotClosed> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let place = file.path().to_owned();
        if closing != Closing::Unused {
            let _ = at_mount(&self.host, &place, move |_| file.detach()).await;
            return Ok(());
        }
        match at_mount(&self.host, &place, move |_| (file.close(), file)).await {
            Ok((Ok(()), _)) => Ok(()),
            Ok((Err(error), file)) => {
                self.file.replace(Some(file));
                Err(NotClosed { failure: failures::fuse(&error), is_serving: true })
            }
            // It is closed as soon as its path answers.
            Err(failure) => Err(NotClosed { failure, is_serving: false }),
        }
    }
}

impl ExportDoor for FuseDoor {
    fn ended(&self) -> Option<Ended> {
        match &*self.file.borrow() {
            Some(file) if file.is_serving() => None,
            _ => Some(Ended { reason: "somebody unmounted it", problem: "its file was unmounted" }),
        }
    }

    fn counters(&self) -> LocalFuture<'_, (Vec<String>, Traffic)> {
        let counters = self.file.borrow().as_ref().map(|file| {
            let clients = if file.is_serving() { file.clients() } else { Vec::new() };
            (clients, traffic(file.counters()))
        });
        Box::pin(std::future::ready(counters.unwrap_or_default()))
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

    /// A mount that has gone cannot be had again.
    fn renew<'a>(&'a self, _: &'a Address) -> LocalFuture<'a, Result<bool, Failure>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn close(&self, closing: Closing) -> LocalFuture<'_, Result<(), NotClosed>> {
        Box::pin(self.close_file(closing))
    }
}

fn address(text: &str) -> Result<Address, Failure> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(bad(text, "the path of a file is absolute"));
    }
    let (written, file) = (path.display().to_string(), Some(path.to_owned()));
    Ok(Address { text: written, path: file.clone(), file, uri: None, is_shared: false })
}

/// Mounts or unmounts at `path`, on a thread that nothing else waits for: what lies at the path may not answer (DOORKIND2). A file
/// that comes back too late is detached.
async fn at_mount<T: Send + 'static>(
    host: &Host,
    path: &Path,
    work: impl FnOnce(&dyn Files) -> T + Send + 'static,
) -> Result<T, Failure> {
    match within(host, MOUNT_MAX, host.files_at(path, work)).await {
        Some(done) => done,
        None => Err(Failure::new(Code::DoorFailed, format!("{}: it does not answer", path.display()))
            .help("look at the file system of that path: it hangs; then try again")),
    }
}

fn traffic(counters: FuseCounters) -> Traffic {
    Traffic {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes + counters.zeros,
        write_bytes: counters.write_bytes + counters.zero_bytes,
        flushes: counters.flushes,
        discards: 0,
        errors: counters.errors,
    }
}
