//! The real world: files and block devices over io_uring, sockets, the clock, the shard.
