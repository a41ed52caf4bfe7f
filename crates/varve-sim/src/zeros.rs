//! A device below which zeros are left out: for what is about the metadata above it and not about content.

use varve_block::{
    BlockDevice, Buffer, Checked, Completion, Device, Durability, Extent, Io, MapAnswer, MapFuture,
    MapIntent, Shape,
};

/// Writes that begin with eight zero bytes, unless they are to be durable, are done at once and leave nothing; all else goes
/// to the device below. Metadata is never taken for them: it begins with a word that is not zero.
pub struct LeaveOutZeros(pub Device);

impl BlockDevice for LeaveOutZeros {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Write { data, durability: Durability::Volatile, .. } if data.starts_with(&[0; 8]) => {
                Completion::ready(Ok(Buffer::empty()))
            }
            io => self.0.submit(io),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.0, extent, intent).ready()
    }
}
