//! The tables of an image: where its clusters lie, how often each is used, and what of them is in memory.

pub(super) mod cache;
pub(super) mod counts;
pub(super) mod mapping;
pub(super) mod rebuild;
pub(super) mod refcounts;
pub(super) mod root;
