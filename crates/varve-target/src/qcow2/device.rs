//! An image as a device.

use super::Image;
use super::read::Place;
use super::tables::mapping::Mapping;
use std::rc::Rc;
use varve_block::{
    Access, Allocation, BlockDevice, Buffer, Checked, Completion, Extent, Io, IoError, KIB, MapAnswer,
    MapFuture, MapGuard, MapIntent, MapPiece, Shape,
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

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        match intent {
            MapIntent::Inspect | MapIntent::Read => Box::pin(self.image.lead_reader(extent)),
            MapIntent::Overwrite => Box::pin(self.image.lead_writer(extent)),
        }
    }
}

impl Image {
    /// Where the first bytes of `extent` are read.
    async fn lead_reader(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        let reading = self.readers.enter();
        let here = self.lookup(extent.offset, extent.length).await?;
        let (place, length) = self.place_of(extent.offset, here);
        let piece = match (place, &self.backing) {
            (Place::File(there), _) => {
                let piece = MapPiece::on(self.file.device(), there, length).holding(Allocation::Data);
                return Ok(MapAnswer::new(piece, MapGuard::holding(reading))); // QWRITE2
            }
            (Place::Below, Some(backing)) => MapPiece::on(backing, extent.offset, length),
            (Place::Zeros, _) => MapPiece::hole(length),
            (Place::Apart(_) | Place::Below, _) => MapPiece::sent(length).holding(Allocation::Data),
        };
        Ok(MapAnswer::new(piece, MapGuard::none()))
    }

    /// Where the first bytes of `extent` are overwritten in place (QWRITE2).
    async fn lead_writer(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        self.check_writable()?;
        if self.taker().is_some() {
            return Ok(MapAnswer::sent(extent.length));
        }
        let reading = self.readers.enter();
        let here = self.lookup(extent.offset, extent.length).await?;
        match (here.mapping, self.place_of(extent.offset, here)) {
            (Mapping::Data { copied: true, .. }, (Place::File(there), length)) => {
                self.refuse_metadata(Extent::new(there, length)).await?;
                let piece = MapPiece::on(self.file.device(), there, length);
                Ok(MapAnswer::new(piece, MapGuard::holding(reading)))
            }
            (_, (_, length)) => Ok(MapAnswer::sent(length)),
        }
    }
}

fn answer<'a>(future: impl Future<Output = Result<(), IoError>> + 'a) -> Completion<'a> {
    Completion::pending(async move { future.await.map(|()| Buffer::empty()) })
}
