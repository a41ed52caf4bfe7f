//! The composition root: configuration, shards, activation, exports, jobs, HTTP.
