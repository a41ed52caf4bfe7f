//! Volumes in use: opens a volume given as a tree of nodes, and serves it, with its snapshots, on one shard.
//!
//! What lives on a shard are volumes, pools and the NBD sockets of their exports. A shard runs in any world ([`world`]): no
//! operating system is known here.
//! Code elsewhere reaches what lives there by the typed calls of a [`ShardHandle`], and hears of it by [`events`].

mod arrays;
mod background;
pub mod barrier;
mod calls;
pub mod clear;
mod context;
pub mod conversions;
pub mod events;
pub mod export_target;
pub mod extents;
pub mod failures;
pub mod fault;
mod gate;
pub mod growth;
mod handle;
pub mod health;
mod host;
pub mod image_jobs;
pub mod images;
pub mod injected_bug;
mod instant;
pub mod layers;
mod losses;
mod mapper_link;
pub mod mappers;
pub mod metadata;
pub mod movable;
pub mod moves;
pub mod nbd;
mod no_answer;
pub mod open;
pub mod open_array;
mod open_images;
mod open_mapper;
pub mod open_pool;
pub mod open_store;
pub mod origins;
pub mod placement;
pub mod pool_check;
mod pool_error;
pub mod pool_serving;
pub mod progress;
pub mod quota;
pub mod reconcile;
pub mod reopen;
pub mod retire;
mod retry_on_no_space;
pub mod scrub;
pub mod snapshot_facts;
pub mod snapshots;
pub mod spec;
pub mod split;
mod state;
#[cfg(test)]
mod testing;
pub mod thin;
pub mod thin_volumes;
mod top;
pub mod traffic;
mod trees;
mod views;
pub mod volume_stack;
pub mod world;

pub use calls::{ArrayCalls, Difference, ExportCalls, NewExport, NewSnapshots, PoolCalls, VolumeCalls};
#[cfg(any(test, feature = "injected-bugs"))]
pub use context::ShardContext;
#[cfg(not(any(test, feature = "injected-bugs")))]
use context::ShardContext;
pub use events::{EventReceiver, event_channel};
pub use handle::{Answer, ShardHandle, shard_channel};
pub use host::Host;
pub use losses::DoorOf;
pub use nbd::{DoorLimits, DoorResources};
pub use no_answer::NoAnswer;
