//! The external origins of volumes: of these the pool knows only the identity. Its owner finds them.

use super::super::PoolError;
use super::volume::Volume;
use super::volumes::Volumes;
use varve_block::Device;
use varve_format::thin::{Origin, PART_SIZE, VolumeFlags};

impl Volumes {
    /// See [`Pool::attach_origin`](super::super::Pool::attach_origin).
    pub(in crate::thin) fn attach_origin(&self, origin: &Origin, device: &Device) -> Result<(), PoolError> {
        assert!(!origin.backing.id().is_nil(), "ORIGIN1: an origin is named");
        let shape = device.shape();
        let volumes = self.all();
        let above = volumes.values().filter(|volume| {
            let is_above = volume.over.get().is_some_and(|over| over.backing == origin.backing);
            is_above && !volume.has(VolumeFlags::REMOVING) && volume.origin.borrow().is_none()
        });
        for volume in above {
            let shown = volume.over.get().map_or(0, |over| over.bytes);
            if shape.size < shown || shape.block_size > PART_SIZE as u32 {
                return Err(PoolError::Misfit("the origin is not what it was"));
            }
            *volume.origin.borrow_mut() = Some(device.clone());
        }
        Ok(())
    }

    /// No volume has its origin any more.
    pub(in crate::thin) fn drop_origins(&self) {
        self.all().values().for_each(|volume| *volume.origin.borrow_mut() = None);
    }

    /// The external origins of the volumes that are meant, each once.
    pub(in crate::thin) fn origins_of(&self, is_meant: impl Fn(&Volume) -> bool) -> Vec<Origin> {
        let volumes = self.all();
        let alive = volumes.values().filter(|volume| !volume.has(VolumeFlags::REMOVING));
        let mut origins: Vec<Origin> = Vec::new();
        for origin in alive.filter(|volume| is_meant(volume)).filter_map(|volume| volume.over.get()) {
            if !origins.iter().any(|known| known.backing == origin.backing) {
                origins.push(origin);
            }
        }
        origins
    }
}
