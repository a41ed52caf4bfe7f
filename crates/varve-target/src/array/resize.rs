//! An array that becomes larger while it is in use.

use super::{Array, ArrayError, ArraySpec};
use varve_block::{Device, Extent, LockMode, Shape};

impl Array {
    /// The array has `size` bytes from now on, not fewer than before, and its members that are not away lie on `devices`, which are
    /// as much longer; one that has none any more is away. Devices that [`Array::device`] gave before keep their size.
    pub async fn grow(&self, size: u64, devices: Vec<Option<Device>>) -> Result<(), ArrayError> {
        let spec = ArraySpec { size, ..self.spec };
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if size > spec.size_max() {
            return Err(ArrayError::Mismatch("it has no room for the checksums of so many bytes"));
        }
        if size < self.size() || devices.len() != self.members.count() {
            return Err(ArrayError::Mismatch("the size"));
        }
        let needed = spec.metadata_size + spec.layout.on_members(Extent::new(0, size)).length;
        for place in self.members.written() {
            match &devices[place] {
                Some(device) if device.shape().size >= needed => {}
                Some(_) => return Err(ArrayError::Member { place, problem: "it is too small" }),
                None => self.members.leave([place]),
            }
        }
        self.publish(|| {
            let doublings = self.regions.resize(size);
            if doublings > 0 {
                self.lost.verify_anew();
            }
            self.members.resize(devices, doublings, self.regions.count());
            self.shape.set(Shape { size, ..self.shape.get() });
        })
        .await?;
        Ok(())
    }
}
