//! What a device is like, which requests fit it, and what a run of its bytes holds.

use crate::io::Io;
use crate::units::Extent;

/// Whether a device may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It may.
    ReadWrite,
    /// It may not.
    ReadOnly,
}

/// What a device is like. Constant for its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes; a multiple of `block_size`.
    pub size: u64,
    /// Smallest unit of a request in bytes, a power of two; 1 if any byte can be addressed.
    pub block_size: u32,
    /// Unit in bytes below which a write costs more; a power of two, at least `block_size`.
    pub optimal_size: u32,
    /// Whether it may be written.
    pub access: Access,
    /// Whether discard does anything.
    pub discard: bool,
    /// Whether zeros can be written without moving data.
    pub fast_zero: bool,
}

impl Shape {
    /// A writable device of `size` bytes and blocks of `block_size` that can do nothing special.
    pub const fn new(size: u64, block_size: u32) -> Self {
        assert!(block_size.is_power_of_two() && size.is_multiple_of(block_size as u64));
        Self {
            size,
            block_size,
            optimal_size: block_size,
            access: Access::ReadWrite,
            discard: false,
            fast_zero: false,
        }
    }

    /// All of the device.
    pub const fn extent(&self) -> Extent {
        Extent::new(0, self.size)
    }

    /// Whether `io` keeps the contract; doors ask before they submit what a client sent.
    pub fn check(&self, io: &Io) -> Result<(), Rejected> {
        let extent = io.extent();
        if extent.end() > self.size {
            return Err(Rejected::OutOfBounds);
        }
        if !extent.is_aligned(u64::from(self.block_size)) {
            return Err(Rejected::Misaligned);
        }
        if io.is_change() && self.access == Access::ReadOnly {
            return Err(Rejected::ReadOnly);
        }
        Ok(())
    }
}

/// Why a request does not fit a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It reaches beyond the end.
    OutOfBounds,
    /// It is not made of whole blocks.
    Misaligned,
    /// It would change a read-only device.
    ReadOnly,
}

/// What a run of bytes holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Data.
    Data,
    /// Zeros, with space allocated.
    Zero,
    /// Zeros, without space.
    Hole,
}

/// A run of bytes and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusRun {
    /// Bytes.
    pub length: u64,
    /// What they hold.
    pub allocation: Allocation,
}
