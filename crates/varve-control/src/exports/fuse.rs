//! FUSE: devices that are mounted as files.

use super::address::{Address, bad};
use super::portal_door::{Kind, NewFile};
use super::server::Ended;
use crate::failures;
use std::path::Path;
use varve_api::Failure;
use varve_export::fuse::FuseOptions;
use varve_volume::world::{FileDoor, Files};

/// FUSE.
pub(crate) static FUSE: Kind = Kind {
    address,
    leave_help: "unmount what is on it and detach loop devices (losetup -d); or add --force to go on without them",
    can_renew: false,
    ended: Ended { reason: "somebody unmounted it", problem: "its file was unmounted" },
    check: |files, path| files.check_mount(path).map_err(|error| failures::fuse(&error)),
    open,
};

fn open(files: &dyn Files, new: &NewFile) -> Result<Box<dyn FileDoor>, Failure> {
    let options = FuseOptions {
        name: new.name.clone(),
        created: new.created,
        budget: new.budget.clone(),
        mode: u16::try_from(new.access.mode).expect("nine bits fit"),
        group: new.access.group,
        ..FuseOptions::default()
    };
    let mounted = files.mount(&new.portal, &new.arena, &new.path, &options);
    mounted.map_err(|error| failures::fuse(&error))
}

fn address(text: &str) -> Result<Address, Failure> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(bad(text, "the path of a file is absolute"));
    }
    Ok(Address::of_file(path))
}
