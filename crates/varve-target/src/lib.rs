//! The mapping layer: linear, striped, snapshot, zero, error.
