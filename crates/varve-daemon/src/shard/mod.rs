//! What lives on one shard: its volumes with their snapshots, and its listening sockets.
//!
//! Code on a shard is given a [`ShardContext`]; code elsewhere sends work with [`ShardHandle::run`].

mod arrays;
mod background;
pub(crate) mod barrier;
pub(crate) mod clear;
mod context;
pub(crate) mod conversions;
pub(crate) mod events;
pub(crate) mod export_target;
pub(crate) mod family;
mod gate;
pub(crate) mod growth;
mod handle;
pub(crate) mod health;
mod host;
pub(crate) mod image_jobs;
pub(crate) mod images;
pub(crate) mod layers;
mod losses;
mod mapper_link;
pub(crate) mod mappers;
pub(crate) mod metadata;
pub(crate) mod movable;
pub(crate) mod moves;
pub(crate) mod nbd;
mod no_answer;
pub(crate) mod open;
pub(crate) mod open_array;
mod open_images;
mod open_mapper;
pub(crate) mod open_pool;
pub(crate) mod open_store;
pub(crate) mod origins;
mod patient;
pub(crate) mod placement;
pub(crate) mod pool_check;
mod pool_error;
pub(crate) mod pool_serving;
pub(crate) mod quota;
pub(crate) mod reconcile;
pub(crate) mod reopen;
pub(crate) mod retire;
pub(crate) mod scrub;
pub(crate) mod snapshot_facts;
pub(crate) mod snapshots;
pub(crate) mod spec;
pub(crate) mod split;
mod state;
#[cfg(test)]
mod testing;
pub(crate) mod thin;
pub(crate) mod thin_volumes;
mod top;
pub(crate) mod traffic;
mod trees;

pub(crate) use context::ShardContext;
pub(crate) use handle::{ShardHandle, shard_channel};
pub(crate) use no_answer::NoAnswer;
