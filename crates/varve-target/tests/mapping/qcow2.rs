//! qcow2 images: under simulated crashes, beside QEMU's own programs and the crate imago, and with damaged metadata.

mod bitmaps;
mod crashes;
mod cut_off;
mod files;
mod flatten;
mod full;
mod imago_oracle;
mod memory;
mod mutated;
mod odd_sizes;
mod push;
mod qemu;
mod reads;
