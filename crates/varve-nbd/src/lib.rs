//! The NBD protocol alone, client and server: codec and state machines, no I/O.
//!
//! Bytes go in, structures and bytes to send come out; the caller moves them, so that doors,
//! remote disks, the simulator and a fuzzer all drive the same code. Source: `doc/proto.md` of the NBD project.
//!
//! - [`server::Handshake`] answers the options of a client until it says which export it wants;
//!   [`server::Terms::check`] then judges its requests.
//! - [`client::Handshake`] asks for an export; [`client::Session`] follows the replies to the requests in flight.
//! - [`transmission`] holds the headers of requests and replies that both sides share.
//!
//! Invariants of the whole crate:
//! - CODEC1. No input makes it panic, and no input makes it keep more than [`wire::OPTION_LENGTH_MAX`] bytes (the
//!   handshakes) or what its owner has in flight (the session).
//! - CODEC2. Lengths and offsets are 64 bits wide and are added with overflow in mind; 32-bit fields are made at the
//!   very end, from values that were shown to fit.
//! - CODEC3. How input is cut into pieces changes nothing.

pub mod client;
mod reader;
pub mod server;
pub mod transmission;
pub mod wire;

pub use transmission::{Framing, Head, Request, Run};
pub use wire::{BlockSizes, Command, ErrorCode, ExportFlags};
