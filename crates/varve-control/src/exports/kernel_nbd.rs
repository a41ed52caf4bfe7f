//! The kernel's NBD client: volumes as block devices of this kernel, behind links in `/dev/varve`.

use super::address::{Address, bad};
use super::portal_door::{Kind, NewFile};
use super::server::Ended;
use crate::failures;
use std::path::{Component, Path};
use varve_api::Failure;
use varve_export::Driver;
use varve_volume::world::{FileDoor, Files};

/// Where the links are.
const FOLDER: &str = "/dev/varve";

/// What those that use such a device are to do.
pub(super) const LEAVE_HELP: &str =
    "unmount what is on it, and end what has it open; or add --force: what uses it gets errors";

/// The kernel's NBD client.
pub(crate) static KERNEL_NBD: Kind = Kind {
    address,
    leave_help: LEAVE_HELP,
    can_renew: true,
    ended: Ended {
        reason: "another program disconnected it",
        problem: "another program disconnected its device",
    },
    check: |files, path| files.check_attach(Driver::Nbd, path).map_err(|error| failures::attach(&error)),
    open,
};

fn open(files: &dyn Files, new: &NewFile) -> Result<Box<dyn FileDoor>, Failure> {
    open_by(Driver::Nbd, files, new)
}

/// Opens one by a driver of the kernel.
pub(super) fn open_by(
    driver: Driver,
    files: &dyn Files,
    new: &NewFile,
) -> Result<Box<dyn FileDoor>, Failure> {
    let identity = new.id.simple().to_string();
    let attached = files.attach(driver, &new.portal, &new.arena, &new.path, &identity, &new.budget);
    attached.map_err(|error| failures::attach(&error))
}

/// Reads the link to a block device of this kernel.
pub(super) fn address(text: &str) -> Result<Address, Failure> {
    let path = Path::new(text);
    let below: Vec<Component<'_>> =
        path.strip_prefix(FOLDER).map(|below| below.components().collect()).unwrap_or_default();
    let is_plain = below.iter().all(|part| matches!(part, Component::Normal(_)));
    if below.len() != 2 || !is_plain {
        return Err(bad(text, "a block device of this kernel is /dev/varve/VG/LV or /dev/varve/VG/LV@SNAP"));
    }
    Ok(Address { makes_folder: true, has_permissions: false, ..Address::of_file(path) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::Code;

    #[test]
    fn an_address_is_a_link_below_the_folder_of_all() {
        for text in ["/dev/varve/data/v", "/dev/varve/data/v@s"] {
            let read = address(text).expect(text);
            assert_eq!((read.text.as_str(), read.makes_folder), (text, true));
            assert_eq!(address(&read.text), Ok(read));
        }
        for wrong in [
            "",
            "/dev/varve",
            "/dev/varve/v",
            "/dev/varve/data/v/w",
            "/dev/varve/../sda",
            "/dev/sda",
            "data/v",
        ] {
            let code = address(wrong).map_err(|failure| failure.code);
            assert_eq!(code.err(), Some(Code::BadAddress), "{wrong}");
        }
    }
}
