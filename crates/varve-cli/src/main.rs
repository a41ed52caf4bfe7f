//! Words for people: the varve command.
fn main() {}
