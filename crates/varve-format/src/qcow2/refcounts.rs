//! Reference counts of clusters: 1 to 64 bits each, in blocks of one cluster.

/// Bytes of the longest refcount table, as QEMU's.
pub(super) const REFCOUNT_TABLE_MAX: u64 = 8 << 20;

/// Bits of a reference count: a power of two from 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefcountWidth(u32);

impl RefcountWidth {
    /// What QEMU uses if nothing else is said.
    pub const DEFAULT: RefcountWidth = RefcountWidth(4);

    pub(super) fn of_order(order: u32) -> Self {
        Self(order)
    }

    /// A width of `bits`; none if it is no power of two up to 64.
    pub fn of_bits(bits: u32) -> Option<Self> {
        (bits.is_power_of_two() && bits <= 64).then(|| Self(bits.trailing_zeros()))
    }

    /// Two to the power of this are its bits.
    pub fn order(self) -> u32 {
        self.0
    }

    /// Bits.
    pub fn bits(self) -> u32 {
        1 << self.0
    }

    /// The highest count.
    pub fn count_max(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Entries of a refcount table for a file of so many bytes, as far as QEMU allows that many.
    pub fn table_entries(self, file_size: u64, cluster_size: u64) -> u64 {
        let blocks = (file_size / cluster_size).div_ceil(self.counts_in(cluster_size));
        blocks.min(REFCOUNT_TABLE_MAX / 8)
    }

    /// Counts in a block of so many bytes.
    pub fn counts_in(self, bytes: u64) -> u64 {
        (bytes * 8) >> self.0
    }
}

/// The count number `index` in `block`.
pub fn refcount(block: &[u8], width: RefcountWidth, index: u64) -> u64 {
    let (at, shift) = place(width, index);
    if width.bits() < 8 {
        return u64::from(block[at] >> shift) & width.count_max();
    }
    block[at..at + width.bits() as usize / 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Sets the count number `index` in `block`.
pub fn set_refcount(block: &mut [u8], width: RefcountWidth, index: u64, count: u64) {
    assert!(count <= width.count_max(), "a count of {count} has no room in {} bits", width.bits());
    let (at, shift) = place(width, index);
    if width.bits() < 8 {
        let mask = (width.count_max() << shift).to_le_bytes()[0];
        block[at] = block[at] & !mask | (count << shift).to_le_bytes()[0];
        return;
    }
    let length = width.bits() as usize / 8;
    block[at..at + length].copy_from_slice(&count.to_be_bytes()[8 - length..]);
}

/// The byte in which a count begins, and how many bits it is shifted there.
fn place(width: RefcountWidth, index: u64) -> (usize, u64) {
    let bit = index << width.order();
    (usize::try_from(bit / 8).expect("a block is in memory"), bit % 8)
}
