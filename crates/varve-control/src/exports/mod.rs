//! Exports: their addresses, the doors that serve them, and what is remembered of them.

mod access;
pub(super) mod address;
pub(super) mod doors;
pub(super) mod fuse;
pub(super) mod handover;
pub(super) mod kernel_nbd;
pub(super) mod known_export;
pub(super) mod known_exports;
pub(super) mod known_tls;
mod limits;
pub(super) mod nbd;
pub(super) mod portal_door;
pub(super) mod served;
pub(super) mod server;
mod since;
mod tls;
pub(super) mod ublk;
pub(super) mod vhost_user;
