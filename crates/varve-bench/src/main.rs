//! The tables of the seed documents rerun, beside the peers.
fn main() {}
