//! An image as a device.

use super::Image;
use super::mapping::Mapping;
use std::rc::Rc;
use varve_block::{
    Access, Allocation, BlockDevice, Buffer, Checked, Completion, Extent, Io, IoError, KIB, Shape,
    StatusFuture, StatusRun,
};
use varve_format::qcow2::SECTOR;

/// Bytes of the device's blocks: sectors.
const BLOCK_SIZE: u32 = 512;

/// An image as a device. Cloning shares the image.
#[derive(Clone)]
pub struct ImageDevice {
    image: Rc<Image>,
    shape: Shape,
}

impl ImageDevice {
    /// The disk that `image` holds.
    pub fn new(image: Rc<Image>) -> Self {
        assert!(image.size().is_multiple_of(SECTOR), "a disk has whole sectors");
        let optimal = image.header.subcluster_size().clamp(SECTOR, 64 * KIB);
        let shape = Shape {
            optimal_size: u32::try_from(optimal).unwrap_or(BLOCK_SIZE),
            access: image.access(),
            discard: image.access() == Access::ReadWrite,
            fast_zero: image.access() == Access::ReadWrite && image.header.version > 2,
            ..Shape::new(image.size(), BLOCK_SIZE)
        };
        Self { image, shape }
    }
}

impl BlockDevice for ImageDevice {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let image = &self.image;
        match io.into_io() {
            Io::Read { offset, buffer } => match image.read_known(offset, buffer) {
                Ok(completion) => completion,
                Err(buffer) => Completion::pending(image.read(offset, buffer)),
            },
            Io::Write { offset, data, durability } => answer(image.write(offset, data, durability)),
            Io::Zero { extent, options } => answer(image.zero(extent, options)),
            Io::Discard { extent } => answer(image.discard(extent)),
            Io::Flush if image.access() == Access::ReadOnly => Completion::done(),
            Io::Flush => answer(image.commit()),
        }
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        Box::pin(async move {
            let here = self.image.lookup(extent.offset, extent.length).await?;
            let run = |allocation| Ok(vec![StatusRun { length: here.length, allocation }]);
            match (here.mapping, &self.image.backing) {
                (Mapping::Data { .. } | Mapping::Compressed { .. }, _) => run(Allocation::Data),
                (Mapping::Unallocated, Some(backing)) => {
                    let asked = Extent::new(extent.offset, here.length);
                    match asked.intersect(backing.shape().extent()) {
                        Some(there) => backing.status(there).await,
                        None => run(Allocation::Hole),
                    }
                }
                (Mapping::Zero | Mapping::Unallocated, _) => run(Allocation::Hole),
            }
        })
    }
}

fn answer<'a>(future: impl Future<Output = Result<(), IoError>> + 'a) -> Completion<'a> {
    Completion::pending(async move { future.await.map(|()| Buffer::empty()) })
}
