//! vhost-user-blk: virtio disks of virtual machines, behind sockets.

use super::address::Address;
use super::portal_door::{Kind, NewFile};
use super::server::Ended;
use crate::failures;
use std::path::Path;
use varve_api::Failure;
use varve_block::host::FileAccess;
use varve_volume::world::{FileDoor, Files, Place};

/// vhost-user-blk.
pub(crate) static VHOST_USER: Kind = Kind {
    address: |text| {
        failures::socket_path(Path::new(text))?;
        Ok(Address::of_file(Path::new(text)))
    },
    leave_help: "shut the virtual machine down, or take the disk out of it; or add --force to go on without it",
    can_renew: true,
    ended: Ended { reason: "its threads ended", problem: "its threads ended" },
    check: |files, path| {
        let checked = files.check_listen(&Place::Unix(path.to_owned(), FileAccess::OWNER));
        checked.map_err(|error| failures::listen(&path.display().to_string(), &error))
    },
    open,
};

fn open(files: &dyn Files, new: &NewFile) -> Result<Box<dyn FileDoor>, Failure> {
    let serial = new.id.simple().to_string();
    let place = (new.path.as_path(), new.access);
    let served = files.serve_machine(&new.portal, &new.arena, place, &serial, &new.budget);
    served.map_err(|error| failures::listen(&new.path.display().to_string(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::Code;

    #[test]
    fn an_address_is_the_absolute_path_of_a_socket() {
        let read = (VHOST_USER.address)("/run/a b.sock").expect("a path");
        assert_eq!(read.text, "/run/a b.sock");
        assert_eq!((VHOST_USER.address)(&read.text), Ok(read));
        for wrong in ["", "a.sock", "unix:/run/a.sock", &format!("/{}", "x".repeat(107))] {
            let code = (VHOST_USER.address)(wrong).map_err(|failure| failure.code);
            assert_eq!(code.err(), Some(Code::BadAddress), "{wrong}");
        }
    }
}
