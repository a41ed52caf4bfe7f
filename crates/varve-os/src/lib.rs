//! The real world: files and block devices over io_uring, sockets, the clock, the shard.
//!
//! [`Shards`] are threads; each has an executor of `!Send` futures, and a driver: one io_uring that carries disks and
//! sockets, or, where that is forbidden, helper threads and `poll` behind the same interface. Code that runs on a
//! shard is given a [`ShardContext`], and from it all that the engine needs: [`varve_block::Device`]s on
//! [`DiskFile`]s, a clock, a spawner, connections, and portals to devices of other shards.

mod busy_poll;
mod clock;
mod disks;
mod doorway;
mod driver;
mod executor;
mod folder;
mod mailbox;
mod memory;
mod portal;
mod shard;
mod shards;
mod sockets;
mod sys;
mod timers;

pub use clock::now as monotonic_now;
pub use disks::disk_file::{DiskFile, DiskKind, disk_identity};
pub use disks::medium::medium_at;
pub use disks::throttle::{ThrottleOptions, Throttled};
pub use driver::reactor::IoChoice;
pub use folder::{check_folder, descriptor_path, sync_folder};
pub use memory::{give_back_large_allocations, map_arena, raise_open_files_limit};
pub use shard::{ShardContext, ShardGone};
pub use shards::{ShardHandle, Shards, ShardsConfig};
pub use sockets::file_stream::{FileStream, ReceivedFiles};
pub use sockets::listener::{
    Listener, SocketFile, bind_unix, check_tcp, check_unix, find_group, listen_at, set_socket_access,
    socket_pair,
};
pub use varve_block::host::{
    CacheMode, ConnectError, DiskCounters, DiskMark, DiskOptions, DiskPlacement, DiskState, FileAccess,
    OpenError, Peer,
};

#[cfg(test)]
mod tests;
