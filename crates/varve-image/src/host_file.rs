//! A file whose requests are done when they have been submitted: for programs that do one thing at a time.

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use varve_block::{Access, BlockDevice, Buffer, Checked, Completion, Durability, Extent, Io, IoError, Shape};

/// Bytes of a block.
const BLOCK_SIZE: u32 = 512;
/// Bytes of zeros that are written at once.
const ZEROS: usize = 64 << 10;

/// A file as a device; behind its end are zeros. All requests wait for the disk.
pub struct HostFile {
    file: Rc<File>,
    shape: Shape,
}

impl HostFile {
    /// The first `size` bytes of a file, made whole blocks.
    pub fn new(file: Rc<File>, size: u64, access: Access) -> Self {
        let size = size.next_multiple_of(u64::from(BLOCK_SIZE));
        let discard = access == Access::ReadWrite;
        Self { file, shape: Shape { access, discard, ..Shape::new(size, BLOCK_SIZE) } }
    }

    fn carry_out(&self, io: Io) -> io::Result<Buffer> {
        match io {
            Io::Read { offset, buffer } => return self.read(offset, buffer),
            Io::Write { offset, data, durability } => {
                self.file.write_all_at(&data, offset)?;
                self.finish(durability)?;
            }
            Io::Zero { extent, options } => {
                if options.fast
                    || fallocate(&*self.file, FallocateFlags::ZERO_RANGE, extent.offset, extent.length)
                        .is_err()
                {
                    if options.fast {
                        return Err(io::ErrorKind::Unsupported.into());
                    }
                    self.write_zeros(extent)?;
                }
                self.finish(options.durability)?;
            }
            Io::Discard { extent } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // What a file system cannot give back stays.
                let _ = fallocate(&*self.file, flags, extent.offset, extent.length);
            }
            Io::Flush => self.file.sync_data()?,
        }
        Ok(Buffer::empty())
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> io::Result<Buffer> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer[done..].fill(0);
        Ok(buffer)
    }

    fn write_zeros(&self, extent: Extent) -> io::Result<()> {
        let zeros = [0; ZEROS];
        extent.pieces(ZEROS as u64).try_for_each(|(_, piece)| {
            let length = usize::try_from(piece.length).expect("a piece is in memory");
            self.file.write_all_at(&zeros[..length], piece.offset)
        })
    }

    fn finish(&self, durability: Durability) -> io::Result<()> {
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.file.sync_data(),
        }
    }
}

impl BlockDevice for HostFile {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        Completion::ready(self.carry_out(io.into_io()).map_err(|error| error_of(&error)))
    }
}

fn error_of(error: &io::Error) -> IoError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => IoError::NoSpace,
        io::ErrorKind::Unsupported => IoError::Unsupported,
        _ => IoError::Medium,
    }
}
