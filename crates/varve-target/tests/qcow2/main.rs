//! qcow2 images: under simulated crashes, beside QEMU's own programs, and with damaged metadata.

mod crashes;
mod files;
mod mutated;
mod qemu;
