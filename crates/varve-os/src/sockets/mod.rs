//! Connections: listeners, streams, and files that are passed over them.

pub(super) mod file_stream;
pub(super) mod listener;
pub(super) mod stream;
