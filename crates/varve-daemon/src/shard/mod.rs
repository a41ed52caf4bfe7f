//! What lives on one shard: its volumes with their snapshots, and its listening sockets.
//!
//! Code on a shard is given a [`ShardContext`]; code elsewhere sends work with [`ShardHandle::run`].

mod background;
pub(crate) mod clear;
mod context;
pub(crate) mod events;
pub(crate) mod family;
pub(crate) mod growth;
mod handle;
pub(crate) mod health;
mod losses;
pub(crate) mod metadata;
pub(crate) mod nbd;
pub(crate) mod open_pool;
pub(crate) mod open_store;
pub(crate) mod origins;
mod patient;
pub(crate) mod pool_check;
pub(crate) mod reconcile;
pub(crate) mod reopen;
pub(crate) mod retire;
mod state;
pub(crate) mod states;
#[cfg(test)]
mod testing;
pub(crate) mod thin;
pub(crate) mod traffic;
pub(crate) mod turns;

pub(crate) use context::ShardContext;
pub(crate) use handle::{NoAnswer, ShardHandle, shard_channel};
