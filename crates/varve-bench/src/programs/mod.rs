//! Programs under measurement and those that put load on them: started, driven, timed, and ended.

pub(super) mod answerer;
pub(super) mod client;
pub(super) mod cpu;
pub(super) mod fio;
pub(super) mod http;
pub(super) mod mounted;
pub(super) mod peers;
pub(super) mod place;
pub(super) mod relay;
pub(super) mod server;
pub(super) mod shard;
pub(super) mod varve;
pub(super) mod watch;
