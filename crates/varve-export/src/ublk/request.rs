//! A request of the kernel: what its description says, what it asks of the volume, and how its answer is written.

use super::uapi::{DESCRIPTOR, SECTOR};
use crate::counters::Kind;
use crate::requests::Refusal;
use varve_block::{Buffer, Durability, Extent, Io, IoError, Rejected, ZeroOptions};

const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    operation: u8,
    flags: u32,
    extent: Extent,
}

impl Request {
    /// What a description says.
    pub(super) fn decode(bytes: &[u8; DESCRIPTOR]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *bytes;
        let flags = u32::from_ne_bytes([a, b, c, d]);
        let sectors = u32::from_ne_bytes([e, f, g, h]);
        let start = u64::from_ne_bytes([i, j, k, l, m, n, o, p]);
        let extent = Extent::new(start.saturating_mul(SECTOR), u64::from(sectors) * SECTOR);
        Self { operation: (flags & 0xff) as u8, flags, extent }
    }

    /// Bytes of data that go with it.
    pub(super) fn data_bytes(&self) -> u64 {
        if self.is_read() || self.is_write() { self.extent.length } else { 0 }
    }

    /// Whether its data are the answer.
    pub(super) fn is_read(&self) -> bool {
        self.operation == 0
    }

    /// Whether its data come with it.
    pub(super) fn is_write(&self) -> bool {
        self.operation == 1
    }

    /// What is asked of the volume; none if that is unknown.
    pub(super) fn io(&self, buffer: Buffer) -> Option<(Kind, Io)> {
        let (offset, extent) = (self.extent.offset, self.extent);
        let durability = if self.flags & FUA == 0 { Durability::Volatile } else { Durability::Durable };
        Some(match self.operation {
            0 => (Kind::Read, Io::Read { offset, buffer }),
            1 => (Kind::Write, Io::Write { offset, data: buffer.freeze(), durability }),
            2 => (Kind::Flush, Io::Flush),
            3 => (Kind::Discard, Io::Discard { extent }),
            5 => {
                let unmap = self.flags & NO_UNMAP == 0;
                (
                    Kind::Zero,
                    Io::Zero { extent, options: ZeroOptions { durability, unmap, ..ZeroOptions::default() } },
                )
            }
            _ => return None,
        })
    }

    /// The answer to a request that was done: how many bytes.
    pub(super) fn done(&self) -> i32 {
        i32::try_from(self.data_bytes()).expect("the parameters bound a request's data")
    }
}

/// The answer to a request that was not done. The kernel knows few errors, and makes all others one of input and output.
pub(super) fn error(refusal: Refusal) -> i32 {
    match refusal {
        Refusal::Failed(IoError::NoSpace) => -libc::ENOSPC,
        Refusal::Failed(IoError::Unsupported) => -libc::EOPNOTSUPP,
        Refusal::Rejected(Rejected::ReadOnly | Rejected::OutOfBounds | Rejected::Misaligned)
        | Refusal::Failed(_)
        | Refusal::Shut => -libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::Arena;

    fn described(flags: u32, sectors: u32, start: u64) -> Request {
        let mut bytes = [0xee; DESCRIPTOR];
        bytes[..4].copy_from_slice(&flags.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&start.to_ne_bytes());
        Request::decode(&bytes)
    }

    #[test]
    fn what_the_kernel_asks_is_asked_of_the_volume() {
        let read = described(0x0400, 2, 3);
        assert_eq!((read.data_bytes(), read.done(), read.is_read()), (1024, 1024, true));
        let buffer = Arena::heap(4096).take(1024);
        assert!(matches!(read.io(buffer), Some((Kind::Read, Io::Read { offset: 1536, .. }))));
        assert!(matches!(described(2, 0, 0).io(Buffer::empty()), Some((Kind::Flush, Io::Flush))));
        let discard = described(3, 8, 16);
        assert_eq!((discard.data_bytes(), discard.done()), (0, 0));
        let Some((Kind::Discard, Io::Discard { extent })) = discard.io(Buffer::empty()) else {
            panic!("a discard is one")
        };
        assert_eq!(extent, Extent::new(8192, 4096));
        assert!(described(4, 8, 16).io(Buffer::empty()).is_none(), "write same is not offered");
        assert!(described(15, 8, 16).io(Buffer::empty()).is_none(), "zones are not offered");
    }

    #[test]
    fn what_the_kernel_wants_to_be_durable_is_asked_for_durably() {
        for (flag, wanted) in [(1 << 13, Durability::Durable), (0, Durability::Volatile)] {
            let write = described(1 | flag, 1, 0).io(Buffer::empty());
            let Some((Kind::Write, Io::Write { durability, .. })) = write else { panic!("a write is one") };
            assert_eq!(durability, wanted);
            let zero = described(5 | flag, 1, 0).io(Buffer::empty());
            let Some((Kind::Zero, Io::Zero { options, .. })) = zero else { panic!("zeros are zeros") };
            assert_eq!(options, ZeroOptions { durability: wanted, unmap: true, ..ZeroOptions::default() });
        }
        let Some((_, Io::Zero { options, .. })) = described(5 | 1 << 15, 1, 0).io(Buffer::empty()) else {
            panic!("zeros are zeros")
        };
        assert!(!options.unmap);
    }

    #[test]
    fn the_kernel_hears_of_room_and_else_of_an_error() {
        assert_eq!(error(Refusal::Failed(IoError::NoSpace)), -libc::ENOSPC);
        assert_eq!(error(Refusal::Failed(IoError::Medium)), -libc::EIO);
        assert_eq!(error(Refusal::Rejected(Rejected::OutOfBounds)), -libc::EIO);
    }
}
