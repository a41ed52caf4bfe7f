//! The delegated-mapping protocol: a program decides where the bytes of a volume lie, and the engine moves them.
//!
//! The engine connects to the program, the *mapper*, on a Unix socket, and asks where a range of the volume is, for reading or for
//! writing. The mapper answers with extents: a device, an offset there and a length, or zeros, or an error. The
//! engine keeps the answers and does the I/O itself: data never crosses the socket. `docs/mapper.md` has the protocol byte by byte.
//!
//! [`wire`] has the messages and their bytes and does no I/O; [`serve`] answers an engine on a socket by calling a [`Mapper`]. [`Engine`] is one
//! to try mappers with.

pub mod wire;

mod decoder;
mod engine;
mod serve;

pub use decoder::Decoder;
pub use engine::Engine;
pub use serve::{Mapper, ServeError, Session, serve};
