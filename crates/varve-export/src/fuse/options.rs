//! How a volume is offered as a file.

use crate::budget::Budget;
use varve_block::{MIB, UnixTime};

/// Who may open the file, besides what its mode allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Audience {
    /// The user that runs this program, and no other one, not even root.
    #[default]
    Owner,
    /// That user and root: what `losetup` needs when the daemon is not root.
    OwnerAndRoot,
    /// Everybody whom the file's mode allows.
    Everybody,
}

/// How the file is offered.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Shown as the source in the list of mounts.
    pub name: String,
    /// Who may open the file. More than the owner needs root, or `user_allow_other` in `/etc/fuse.conf`.
    pub audience: Audience,
    /// Permissions of the file; the bits for writing are taken away from a read-only volume.
    pub mode: u16,
    /// Group of the file, if not that of this process.
    pub group: Option<u32>,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Bytes of requests that may be on their way at the same time.
    pub bytes_in_flight_max: u64,
    /// Memory that the clients of all doors share.
    pub budget: Budget,
    /// Date of the file.
    pub created: UnixTime,
}

impl Default for FuseOptions {
    fn default() -> Self {
        Self {
            name: "varve".to_owned(),
            audience: Audience::Owner,
            mode: 0o600,
            group: None,
            threads: 2,
            bytes_in_flight_max: 64 * MIB,
            budget: Budget::new(256 * MIB),
            created: UnixTime(0),
        }
    }
}
