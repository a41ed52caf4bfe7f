//! The kernel's user-space block devices: volumes as block devices of this kernel, behind links in `/dev/varve`.

use super::kernel_nbd::{LEAVE_HELP, address, open_by};
use super::portal_door::Kind;
use super::server::Ended;
use crate::failures;
use varve_export::Driver;

/// The kernel's user-space block devices.
pub(crate) static UBLK: Kind = Kind {
    address,
    leave_help: LEAVE_HELP,
    can_renew: true,
    ended: Ended {
        reason: "another program stopped it",
        problem: "another program stopped its device, or the kernel did",
    },
    check: |files, path| files.check_attach(Driver::Ublk, path).map_err(|error| failures::attach(&error)),
    open: |files, new| open_by(Driver::Ublk, files, new),
};
