//! What tasks of one thread wait for, and what they keep from each other.

pub(super) mod event_limit;
pub(super) mod gate;
pub(super) mod lock;
pub(super) mod notify;
pub(super) mod spawn;
pub(super) mod tracker;
pub(super) mod yield_now;
