//! The disks and paths of the host, and what the daemon remembers of them.

pub(super) mod archive;
pub(super) mod disks;
pub(super) mod identity;
pub(super) mod known_disk;
pub(super) mod known_disks;
pub(super) mod life;
pub(super) mod limited;
pub(super) mod lost;
pub(super) mod lost_disks;
pub(super) mod memory;
pub(super) mod path_calls;
pub(super) mod remembered;
pub(super) mod resize;
pub(super) mod spares;
pub(super) mod stalled;
