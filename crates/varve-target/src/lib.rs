//! The mapping layer: linear, striped, mirror, ddraid, snapshot, thin, qcow2, zero, error.
//!
//! A target is a device made of other devices. The place of a byte is a pure function of the target's geometry; what
//! moves bytes beside it is short.

pub mod array;
mod constant;
pub mod delegate;
mod fan_out;
mod journal;
mod linear;
pub mod moving;
mod number_map;
mod padded;
pub mod pdata;
pub mod qcow2;
mod ranges;
mod reader_epochs;
pub mod snapshot;
mod space_waiters;
mod striped;
pub mod thin;

pub use constant::{ErrorTarget, ZeroTarget};
pub use fan_out::{fan_out, flush_all, read_pieces};
pub use linear::Linear;
pub use padded::Padded;
pub use striped::Striped;
