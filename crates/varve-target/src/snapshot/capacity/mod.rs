//! How much room a store has, and what waits for room.

pub(super) mod full;
pub(super) mod gate;
pub(super) mod reservations;
pub(super) mod space;
