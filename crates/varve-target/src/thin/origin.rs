//! What volumes lie over: snapshots outside of the pool, of which the pool knows only who they are. Its owner finds them.

use super::volume::Volume;
use super::{Pool, PoolError};
use varve_block::Device;
use varve_format::thin::{Origin, PART_SIZE, VolumeFlags};

impl Pool {
    /// `device` is the snapshot that volumes lie over `origin` of, as the pool knows it. Its content never changes.
    pub fn attach_origin(&self, origin: &Origin, device: &Device) -> Result<(), PoolError> {
        assert!(!origin.backing.id().is_nil(), "O1: an origin is named");
        let shape = device.shape();
        let volumes = self.volumes.borrow();
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

    /// Lets go of what volumes lie over, which may be in this pool and keep it alive. No volume is used any more.
    pub fn let_go_of_origins(&self) {
        for volume in self.volumes.borrow().values() {
            *volume.origin.borrow_mut() = None;
        }
    }

    /// What volumes lie over that cannot be used before that is attached, each once.
    pub fn missing_origins(&self) -> Vec<Origin> {
        self.origins_of(|volume| volume.origin.borrow().is_none())
    }

    /// What volumes lie over, each once.
    pub fn origins(&self) -> Vec<Origin> {
        self.origins_of(|_| true)
    }

    fn origins_of(&self, is_meant: impl Fn(&Volume) -> bool) -> Vec<Origin> {
        let volumes = self.volumes.borrow();
        let alive = volumes.values().filter(|volume| !volume.has(VolumeFlags::REMOVING));
        let mut origins: Vec<Origin> = Vec::new();
        for origin in alive.filter(|volume| is_meant(volume)).filter_map(|volume| volume.over.get()) {
            if !origins.iter().any(|known| known.backing == origin.backing) {
                origins.push(origin);
            }
        }
        origins
    }

    /// Whether two volumes show the same where neither of them holds anything.
    pub fn have_same_origin(&self, one: u64, two: u64) -> bool {
        let over = |id| self.find(id).ok().and_then(|volume| volume.over.get());
        over(one) == over(two)
    }
}
