//! The exports that the control knows, and the kinds of doors that there are.

use super::fuse::FUSE;
use super::kernel_nbd::KERNEL_NBD;
use super::known_export::KnownExport;
use super::known_tls::KnownTls;
use super::nbd::NbdServer;
use super::portal_door::PortalServer;
use super::server::{ExportDoor, ExportServer};
use super::ublk::UBLK;
use super::vhost_user::VHOST_USER;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_api::Door;
use varve_volume::Host;
use varve_volume::doors::limits::Limits;
use varve_volume::doors::nbd::DoorResources;

/// By their ids.
pub(crate) struct Exports {
    pub(crate) known: RefCell<BTreeMap<String, KnownExport>>,
    /// What doors of an export share, one after the other.
    pub(super) limits: RefCell<BTreeMap<String, Limits>>,
    /// Credentials, by the addresses where they are used.
    pub(super) tls: RefCell<BTreeMap<String, KnownTls>>,
    nbd: NbdServer,
    fuse: PortalServer,
    vhost_user: PortalServer,
    kernel_nbd: PortalServer,
    ublk: PortalServer,
}

impl Exports {
    /// None yet; what their doors may have together.
    pub(crate) fn new(host: &Host, resources: DoorResources) -> Self {
        let on_threads = |kind| PortalServer::new(host.clone(), resources.budget.clone(), kind);
        Self {
            known: RefCell::default(),
            limits: RefCell::default(),
            tls: RefCell::default(),
            fuse: on_threads(&FUSE),
            vhost_user: on_threads(&VHOST_USER),
            kernel_nbd: on_threads(&KERNEL_NBD),
            ublk: on_threads(&UBLK),
            nbd: NbdServer::new(host.clone(), resources),
        }
    }

    /// What serves exports through this kind of door (DOORKIND1 of `server.rs`).
    pub(crate) fn server(&self, door: Door) -> &dyn ExportServer {
        match door {
            Door::Nbd => &self.nbd,
            Door::Fuse => &self.fuse,
            Door::VhostUser => &self.vhost_user,
            Door::KernelNbd => &self.kernel_nbd,
            Door::Ublk => &self.ublk,
        }
    }

    /// What serves exports through doors of any kind.
    pub(super) fn servers(&self) -> [&dyn ExportServer; 5] {
        [&self.nbd, &self.fuse, &self.vhost_user, &self.kernel_nbd, &self.ublk]
    }

    /// There is no such export any more.
    pub(super) fn forget(&self, id: &str) {
        let gone = self.known.borrow_mut().remove(id);
        if let Some(gone) = gone {
            self.forget_tls(&gone.remembered.address);
        }
        self.limits.borrow_mut().remove(id);
    }

    /// The credentials of an address are in use no more, if no export is there.
    pub(super) fn forget_tls(&self, address: &str) {
        if !self.known.borrow().values().any(|known| known.remembered.address == address) {
            self.tls.borrow_mut().remove(address);
        }
    }

    /// What is wrong with the TLS credentials at an address, and the remedy; `now` in seconds since 1970.
    pub(crate) fn tls_problem(&self, address: &str, now: u64) -> Option<(String, String)> {
        self.tls.borrow().get(address)?.problem(now)
    }

    /// The door of an export that is open.
    pub(crate) fn door(&self, id: &str) -> Option<Rc<dyn ExportDoor>> {
        self.known.borrow().get(id)?.door()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Files below `folder` that name a kind of door, but for those of tests.
    fn naming_a_kind(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            let is_for_tests = path.ends_with("simulation") || path.ends_with("src/tests");
            if path.is_dir() && !is_for_tests {
                naming_a_kind(&path, found);
            } else if path.is_file() && !path.ends_with("src/tests.rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let kinds = ["Door::Nbd", "Door::Fuse", "Door::Ublk", "Door::VhostUser", "Door::KernelNbd"];
                found.extend(kinds.iter().any(|kind| text.contains(kind)).then_some(path));
            }
        }
    }

    #[test]
    fn kinds_of_doors_are_told_apart_in_one_place() {
        let mut found = Vec::new();
        naming_a_kind(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        let own = found.iter().map(|path| path.file_name().and_then(|name| name.to_str()));
        assert_eq!(own.collect::<Vec<_>>(), [Some("known_exports.rs")], "DOORKIND1");
    }
}
