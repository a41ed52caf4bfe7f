//! Mappings that are not of an array, a pool or a store: layouts, moves, conversions, delegates and images.

mod conversions;
mod delegate;
mod delegate_ahead;
mod delegate_durable;
mod delegate_failed_copy;
mod delegate_held;
mod delegate_hostile;
mod layouts;
mod map_crashes;
mod moves;
mod qcow2;
mod scripted_mapper;
