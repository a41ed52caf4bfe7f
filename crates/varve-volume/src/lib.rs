//! Volumes in use: opens a volume given as a tree of nodes, and serves it, with its snapshots, on one shard.
//!
//! What lives on a shard are volumes, pools and the NBD sockets of their exports. A shard runs in any world ([`world`]): no
//! operating system is known here.
//! Code elsewhere reaches what lives there by the typed calls of a [`ShardHandle`], and hears of it by [`events`].

mod calls;
pub mod content;
mod context;
pub mod copies;
pub mod doors;
pub mod events;
pub mod extents;
pub mod failures;
pub mod fault;
mod handle;
mod host;
pub mod injected_bug;
pub mod layers;
pub mod lifecycle;
mod no_answer;
pub mod opened;
mod served;
pub mod spec;
mod state;
#[cfg(test)]
mod testing;
mod trees;
pub mod volume_stack;
pub mod world;

pub use calls::{ArrayCalls, Difference, ExportCalls, NewExport, NewSnapshots, PoolCalls, VolumeCalls};
#[cfg(any(test, feature = "injected-bugs"))]
pub use context::ShardContext;
#[cfg(not(any(test, feature = "injected-bugs")))]
use context::ShardContext;
pub use doors::nbd::{DoorLimits, DoorResources};
pub use events::{EventReceiver, event_channel};
pub use handle::{Answer, ShardHandle, shard_channel};
pub use host::Host;
pub use lifecycle::losses::DoorOf;
pub use no_answer::NoAnswer;
