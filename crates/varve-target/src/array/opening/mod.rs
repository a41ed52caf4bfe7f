//! How an array is taken into use: what is found on members, which of them are believed, what is made good.

pub(super) mod as_it_lies;
pub(super) mod election;
pub(super) mod find;
pub(super) mod recover;
