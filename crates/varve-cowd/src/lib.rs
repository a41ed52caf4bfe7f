//! A mapper that decides by a qcow2 image where the bytes of a volume lie: `varve-cowd`.
//!
//! The engine moves all data; this process reads and writes the image's tables only. Clusters that are written for the first time get a
//! place at once, and are led to when the volume is flushed: then the engine has made durable what it put there
//! (`open_image.rs`, COWD1). What is compressed, and clusters whose parts lie in several places, are put together in a scratch file.

mod chain;
mod cow;
mod files;
mod open_image;
mod pending;
mod scratch;

pub use cow::{Cow, Settings};
pub use files::OpenFailure;
