//! The NBD protocol alone, client and server: codec and state machines, no I/O.
