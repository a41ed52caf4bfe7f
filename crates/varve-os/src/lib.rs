//! The real world: files and block devices over io_uring, sockets, the clock, the shard.
//!
//! [`Shards`] are threads; each has an executor of `!Send` futures, and a driver: one io_uring that carries disks and
//! sockets, or, where that is forbidden, helper threads and `poll` behind the same interface. Code that runs on a
//! shard is given a [`ShardContext`], and from it all that the engine needs: [`varve_block::Device`]s on
//! [`DiskFile`]s, a clock, a spawner, connections, and portals to devices of other shards.

mod attempt;
mod busy_poll;
mod clock;
mod disk;
mod disk_file;
mod doorway;
mod executor;
mod file_stream;
mod flight;
mod flushes;
mod folder;
mod helpers;
mod lane;
mod listener;
mod mailbox;
mod medium;
mod memory;
mod operation;
mod pool;
mod portal;
mod reactor;
mod ring;
mod shard;
mod shards;
mod stream;
mod syncs;
mod sys;
#[cfg(test)]
mod tap;
mod throttle;
mod timers;

pub use disk_file::{DiskFile, DiskKind};
pub use file_stream::{FileStream, ReceivedFiles};
pub use folder::{check_folder, sync_folder};
pub use listener::{Listener, bind_unix, check_tcp, check_unix, socket_pair};
pub use medium::medium_at;
pub use memory::{give_back_large_allocations, map_arena, raise_open_files_limit};
pub use reactor::IoChoice;
pub use shard::{ShardContext, ShardGone};
pub use shards::{ShardHandle, Shards, ShardsConfig};
pub use throttle::{ThrottleOptions, Throttled};
pub use varve_block::host::{
    CacheMode, ConnectError, DiskCounters, DiskMark, DiskOptions, DiskPlacement, DiskState, OpenError, Peer,
};

#[cfg(test)]
mod tests;
