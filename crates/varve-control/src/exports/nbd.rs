//! NBD: names behind sockets of shards.
//!
//! Invariant NBDDOOR1: while a door is at an address, others at that address are names behind its socket, on the socket's shard.

use super::address::{Address, bad, escape_path};
use super::server::{
    Closing, Ended, ExportDoor, ExportServer, HandedSocket, NewDoor, NotClosed, Opened, ReadAddress,
};
use crate::failures;
use crate::host::path_calls::at_path;
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use varve_api::{Code, Failure, Traffic};
use varve_block::LocalFuture;
use varve_block::host::FileAccess;
use varve_export::nbd::DetachedConnection;
use varve_volume::doors::export_target::Target;
use varve_volume::doors::nbd::{DetachedSocket, DoorResources};
use varve_volume::world::{Files, Place};
use varve_volume::{Host, NewExport, ShardHandle};

/// NBD.
pub(crate) struct NbdServer {
    host: Host,
    resources: DoorResources,
    /// By their addresses (NBDDOOR1).
    sockets: RefCell<BTreeMap<String, Weak<Socket>>>,
}

/// A socket that listens as long as there is a door behind it.
struct Socket {
    shard: ShardHandle,
    address: String,
}

/// A name behind a socket.
struct NbdDoor {
    host: Host,
    socket: Rc<Socket>,
    name: RefCell<String>,
}

impl NbdServer {
    /// What `resources` allow.
    pub(crate) fn new(host: Host, resources: DoorResources) -> Self {
        Self { host, resources, sockets: RefCell::default() }
    }

    /// The socket that listens at `address`, if one does (NBDDOOR1).
    fn socket(&self, address: &str) -> Option<Rc<Socket>> {
        let mut sockets = self.sockets.borrow_mut();
        sockets.retain(|_, socket| socket.strong_count() > 0);
        sockets.get(address)?.upgrade()
    }

    fn open_sockets(&self) -> Vec<Rc<Socket>> {
        self.sockets.borrow().values().filter_map(Weak::upgrade).collect()
    }

    /// Adds a name to the socket at an address; a new socket listens on the volume's own shard.
    async fn open_door(&self, new: NewDoor) -> Result<Opened, Failure> {
        let NewDoor { name, aliases, address, access, tls, dirty, target } = new;
        let Address { text, is_exposed, .. } = address;
        let place = place_with(&text, access)?;
        let socket = self
            .socket(&text)
            .unwrap_or_else(|| Rc::new(Socket { shard: target.home.clone(), address: text.clone() }));
        let (resources, is_encrypted) = (self.resources.clone(), tls.is_some());
        let export = NewExport { name: name.clone(), aliases, place, resources, tls, dirty, target };
        let opened = socket.shard.exports(&text).open(export).await.map_err(failures::gone)?;
        if !opened.map_err(|error| failures::listen(&text, &error))? {
            let message = format!("{name} is exported at this socket already");
            return Err(Failure::new(Code::ExportExists, message));
        }
        let warning = (is_exposed && !is_encrypted)
            .then(|| format!("open to other hosts at {text}: anybody who reaches it may use the volume"));
        let known = self.socket(&text);
        assert!(known.is_none_or(|known| Rc::ptr_eq(&known, &socket)), "NBDDOOR1: one socket is at {text}");
        self.sockets.borrow_mut().insert(text, Rc::downgrade(&socket));
        Ok(Opened {
            door: Rc::new(NbdDoor { host: self.host.clone(), socket, name: RefCell::new(name) }),
            warning,
        })
    }

    async fn check_place(&self, address: &Address) -> Result<(), Failure> {
        if self.socket(&address.text).is_some() {
            return Ok(());
        }
        let (place, path) = (place(&address.text)?, address.file.clone().unwrap_or_default());
        let checked = at_path(&self.host, &path, move |files| files.check_listen(&place)).await?;
        checked.map_err(|error| failures::listen(&address.text, &error))
    }
}

impl ExportServer for NbdServer {
    fn address(&self) -> ReadAddress {
        address
    }

    fn leave_help(&self) -> &'static str {
        "let them unmount and disconnect; or add --force to go on without them"
    }

    fn check<'a>(&'a self, address: &'a Address) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(self.check_place(address))
    }

    fn open(&self, new: NewDoor) -> LocalFuture<'_, Result<Opened, Failure>> {
        Box::pin(self.open_door(new))
    }

    fn detach(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            let sockets = self.open_sockets();
            join_all(sockets.iter().map(|socket| socket.exports().detach())).await;
        })
    }

    fn resume(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            let sockets = self.open_sockets();
            join_all(sockets.iter().map(|socket| socket.exports().resume())).await;
        })
    }

    fn take_detached(&self) -> LocalFuture<'_, Vec<HandedSocket>> {
        Box::pin(async {
            let mut handed = Vec::new();
            for socket in self.open_sockets() {
                let Ok(Some(taken)) = socket.exports().take_detached().await else { continue };
                let DetachedSocket { listener, connections } = taken;
                handed.push(HandedSocket { address: socket.address.clone(), listener, connections });
            }
            handed
        })
    }

    fn adopt<'a>(&'a self, address: &'a str, connections: Vec<DetachedConnection>) -> LocalFuture<'a, usize> {
        Box::pin(async move {
            let Some(socket) = self.socket(address) else { return 0 };
            socket.exports().adopt(connections).await.unwrap_or(0)
        })
    }
}

impl Socket {
    fn exports(&self) -> varve_volume::ExportCalls<'_> {
        self.shard.exports(&self.address)
    }
}

impl NbdDoor {
    fn exports(&self) -> varve_volume::ExportCalls<'_> {
        self.socket.exports()
    }

    fn name(&self) -> String {
        self.name.borrow().clone()
    }
}

impl ExportDoor for NbdDoor {
    fn ended(&self) -> Option<Ended> {
        None
    }

    fn counters(&self) -> LocalFuture<'_, (Vec<String>, Traffic)> {
        let counters = self.exports().counters(self.name());
        Box::pin(async move { counters.await.ok().flatten().unwrap_or_default() })
    }

    fn device(&self) -> Option<String> {
        None
    }

    fn rename(&self, to: String) -> LocalFuture<'_, ()> {
        let renamed = self.exports().rename(self.name.replace(to.clone()), to);
        Box::pin(async move {
            let _ = renamed.await;
        })
    }

    /// Each connection looks for the device when it begins; what serves a volume anew is exchanged below it.
    fn redirect(&self, _: Target) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn set_access<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(path) = address.file.clone() else { return Ok(()) };
            let set = {
                let path = path.clone();
                move |files: &dyn Files| files.set_socket_access(&path, access)
            };
            at_path(&self.host, &path, set)
                .await?
                .map_err(|error| failures::permissions(&address.text, &error))
        })
    }

    fn renew<'a>(
        &'a self,
        address: &'a Address,
        access: FileAccess,
    ) -> LocalFuture<'a, Result<bool, Failure>> {
        Box::pin(async move {
            address.check_folder(&self.host).await?;
            let place = place_with(&address.text, access)?;
            let listens = self.exports().listen_again(place).await.map_err(failures::gone)?;
            listens.map_err(|error| failures::listen(&address.text, &error))?;
            Ok(true)
        })
    }

    fn close(&self, closing: Closing) -> LocalFuture<'_, Result<(), NotClosed>> {
        let closed = match closing {
            Closing::Unused | Closing::Forced => self.exports().close(self.name()),
            Closing::Stop => self.exports().close_all(),
        };
        Box::pin(async move {
            let closed = closed.await.map_err(failures::gone); // DOORS1
            closed.map_err(|failure| NotClosed { failure, is_serving: false })
        })
    }
}

fn address(text: &str) -> Result<Address, Failure> {
    let place = place(text)?;
    let (file, uri) = match &place {
        Place::Unix(path, _) => {
            let query = format!("?socket={}", escape_path(&path.display().to_string()));
            (Some(path.clone()), ["nbd+unix:///".to_owned(), query])
        }
        Place::Tcp(address) => (None, [format!("nbd://{address}/"), String::new()]),
    };
    let text = place.to_string();
    let is_exposed = matches!(&place, Place::Tcp(address) if !address.ip().is_loopback());
    let (path, uri, is_shared, makes_folder) = (None, Some(uri), true, false);
    let has_permissions = file.is_some();
    Ok(Address { text, file, path, uri, is_shared, makes_folder, is_exposed, has_permissions })
}

/// Where a socket listens, and whom it lets in if it is a file.
fn place_with(text: &str, access: FileAccess) -> Result<Place, Failure> {
    Ok(match place(text)? {
        Place::Unix(path, _) => Place::Unix(path, access),
        tcp @ Place::Tcp(_) => tcp,
    })
}

fn place(text: &str) -> Result<Place, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        failures::socket_path(Path::new(path))?;
        return Ok(Place::Unix(PathBuf::from(path), FileAccess::OWNER));
    }
    let Some(place) = text.strip_prefix("tcp:") else {
        return Err(bad(text, "it begins neither with unix: nor with tcp:"));
    };
    // A port alone means this machine only.
    let (host, port) = place.rsplit_once(':').unwrap_or(("", place));
    let host = if host.is_empty() { "127.0.0.1" } else { host.trim_matches(['[', ']']) };
    let port: std::num::NonZeroU16 =
        port.parse().map_err(|_| bad(text, "the port is a number from 1 to 65535"))?;
    let port = port.get();
    let resolved = (host, port).to_socket_addrs().map_err(|error| bad(text, &error.to_string()))?;
    let resolved: Vec<SocketAddr> = resolved.collect();
    let address = resolved.iter().find(|address| address.is_ipv4()).or(resolved.first());
    address.map(|address| Place::Tcp(*address)).ok_or_else(|| bad(text, "the host has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_vg::names::VolumeName;

    #[test]
    fn addresses_are_read_and_written_in_one_way() {
        for (text, written) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("tcp:127.0.0.1:10809", "tcp:127.0.0.1:10809"),
            ("tcp:10809", "tcp:127.0.0.1:10809"),
            ("tcp::10809", "tcp:127.0.0.1:10809"),
            ("tcp:[::1]:10809", "tcp:[::1]:10809"),
        ] {
            let read = address(text).expect(text);
            assert_eq!((read.text.as_str(), read.is_exposed), (written, false));
            assert_eq!(address(written), Ok(read));
        }
        for exposed in ["tcp:0.0.0.0:10809", "tcp:[::]:10809", "tcp:192.0.2.1:10809"] {
            assert!(address(exposed).expect(exposed).is_exposed, "{exposed}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for wrong in [
            "",
            "/run/a.sock",
            "unix:",
            "unix:a.sock",
            "tcp:localhost",
            "tcp:h:99999",
            "tcp:localhost:0",
            &long,
        ] {
            let code = address(wrong).map_err(|failure| failure.code);
            assert_eq!(code.err(), Some(Code::BadAddress), "{wrong}");
        }
    }

    #[test]
    fn uris_are_escaped_as_clients_expect() {
        let name: VolumeName = "data/home@mo.1".parse().expect("a name");
        let read = address("unix:/tmp/a b.sock").expect("an address");
        let wanted = "nbd+unix:///data%2Fhome%40mo.1?socket=/tmp/a%20b.sock";
        assert_eq!(read.uri(&name, false).as_deref(), Some(wanted));
        let read = address("tcp:10809").expect("an address");
        assert_eq!(read.uri(&name, false).as_deref(), Some("nbd://127.0.0.1:10809/data%2Fhome%40mo.1"));
        assert_eq!(read.uri(&name, true).as_deref(), Some("nbds://127.0.0.1:10809/data%2Fhome%40mo.1"));
    }
}
