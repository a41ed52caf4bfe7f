//! Creating, cloning, removing and naming volumes; what there is and how much of it is used.
//!
//! Each of these is one change: made in memory in one instant, logged in the same, and committed before it is answered.

use super::super::arguments::{check_origin, check_size};
use super::super::device::Front;
use super::super::info::{VolumeInfo, info};
use super::super::{Pool, PoolError};
use super::trash::Trash;
use super::volume::Volume;
use crate::pdata::{Pages, Tree};
use std::rc::Rc;
use varve_block::Device;
use varve_format::check_name;
use varve_format::pdata::link::Link;
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Change, Origin, PART_SIZE, VolumeFlags, VolumeRows, is_stored_name};

/// A volume to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name, unlike those of all volumes of the pool; snapshots have names of their own.
    pub name: String,
    /// Its size, a multiple of 4 KiB.
    pub bytes: u64,
    /// What shows where nothing was written, if not zeros; see [`Pool::attach_origin`].
    pub origin: Option<Origin>,
}

impl Pool {
    /// Whether a volume, or a snapshot of volume `of`, may be called `name` now.
    pub(in crate::thin) fn check_new_name(&self, of: Option<u64>, name: &str) -> Result<(), PoolError> {
        check_name(name).map_err(|_| PoolError::Name)?;
        self.check_stored_name(of, name)
    }

    /// Whether a pool that is restored may keep a volume under this name now, which may be that of one in the trash.
    pub(in crate::thin) fn check_stored_name(&self, of: Option<u64>, name: &str) -> Result<(), PoolError> {
        match self.volumes.named(of, name) {
            _ if !is_stored_name(name) => Err(PoolError::Name),
            Some(_) => Err(PoolError::Exists),
            None => Ok(()),
        }
    }

    /// Makes `change` and logs it, in this instant.
    pub(in crate::thin) fn make(&self, change: Change) -> Result<(), PoolError> {
        self.is_sound()?;
        self.apply(&mut self.map.pages(), &change)?;
        self.log(change);
        self.assert_consistent();
        Ok(())
    }

    /// Creates an empty volume; its id.
    pub async fn create(&self, new: &NewVolume) -> Result<u64, PoolError> {
        self.check_new_name(None, &new.name)?;
        check_size(new.bytes)?;
        check_origin(new.origin, new.bytes)?;
        let (volume, origin) = (self.volumes.next_id(), new.origin);
        let flags = VolumeFlags::default().with(VolumeFlags::ORIGIN, origin.is_some()).0;
        let (bytes, created) = (new.bytes, self.clock.date().0);
        self.make(Change::Create { volume, bytes, created, flags, origin, name: new.name.clone() })?;
        self.commit().await?;
        Ok(volume)
    }

    /// Creates a snapshot of `source`, or of the volume that this is a snapshot of, with all that it holds at one instant; its id. Writes to the source wait for those
    /// before them to end, no longer.
    pub async fn snapshot(&self, source: u64, name: &str, read_only: bool) -> Result<u64, PoolError> {
        let pending = self.freeze(source).await?;
        let volume = pending.snapshot(name, read_only)?;
        drop(pending);
        self.commit().await?;
        Ok(volume)
    }

    /// Holds back changes to `source` and waits until none is under way. What is cloned before this is dropped holds
    /// one and the same instant; a commit makes it durable.
    pub async fn freeze(&self, source: u64) -> Result<FrozenVolume<'_>, PoolError> {
        Ok(self.claim(source).await?.freeze().await)
    }

    /// Waits for operations on `source` as a whole. Changes to it go on meanwhile.
    pub async fn claim(&self, source: u64) -> Result<ClaimedVolume<'_>, PoolError> {
        let managing = self.volumes.manage(source).await;
        Ok(ClaimedVolume { pool: self, volume: self.volumes.find(source)?, managing })
    }

    /// Frees everything that `volume` holds, at once, whatever its size.
    pub async fn empty(&self, volume: u64) -> Result<(), PoolError> {
        {
            let _managing = self.volumes.manage(volume).await;
            let target = self.volumes.find(volume)?;
            if target.has(VolumeFlags::ORIGIN) {
                return Err(PoolError::Misfit("the volume has an origin"));
            }
            let closed = target.gate.close();
            target.gate.drained().await;
            assert!(target.gate.is_empty(), "THIN7: no change is under way");
            self.make(Change::Empty { volume, rest: self.volumes.next_id() })?;
            drop(closed);
        }
        self.commit().await
    }

    /// Removes a volume: it is gone at once, and its space comes back in the background ([`Pool::remove_some`]).
    pub async fn remove(&self, id: u64) -> Result<(), PoolError> {
        {
            let _managing = self.volumes.manage(id).await;
            self.take_out(id).await?;
        }
        self.commit().await
    }

    /// The same without the commit. The caller manages it.
    pub(in crate::thin) async fn take_out(&self, id: u64) -> Result<(), PoolError> {
        self.is_sound()?; // Else it is not known whether what has gone has gone durably.
        let volume = self.volumes.find(id)?;
        if volume.has(VolumeFlags::HELD) || volume.has(VolumeFlags::BASE) {
            return Err(PoolError::Held);
        }
        let closed = volume.gate.close();
        volume.gate.drained().await;
        assert!(volume.gate.is_empty(), "THIN7: no change is under way");
        self.make(Change::Remove { volume: id })?;
        assert!(self.volumes.find(id).is_err(), "it is found no more");
        drop(closed);
        Ok(())
    }

    /// Gives a volume another size; what is behind the new end is freed.
    pub async fn resize(&self, id: u64, bytes: u64) -> Result<(), PoolError> {
        let _managing = self.volumes.manage(id).await;
        let volume = self.volumes.find(id)?;
        check_size(bytes)?;
        let closed = volume.gate.close();
        volume.gate.drained().await;
        assert!(volume.gate.is_empty(), "THIN7: no change is under way");
        self.set_size(&volume, bytes).await?;
        drop(closed);
        self.commit().await
    }

    /// Gives a volume that takes no changes another size.
    pub(in crate::thin) async fn set_size(&self, volume: &Volume, bytes: u64) -> Result<(), PoolError> {
        if bytes < volume.origin_parts() * PART_SIZE {
            // THIN6: first, so that no crash leaves a part that shows the origin again.
            self.make(Change::ShowLess { volume: volume.id, bytes })?;
        }
        let (mut at, parts) = (bytes / PART_SIZE, volume.parts());
        // Before the size: nothing is behind the end of a volume, whichever of these changes a crash leaves.
        while at < parts {
            self.keep_metadata_room().await?;
            let _guard = self.readers.enter();
            let next = self.unmap_some(volume, at, parts).await?;
            assert!(next > at, "THIN6: each step goes on");
            at = next;
        }
        self.make(Change::Resize { volume: volume.id, bytes })
    }

    /// Sets whether a volume may not be written, and whether it may not be removed. Devices of before keep their shape.
    pub async fn set_flags(&self, id: u64, read_only: bool, held: bool) -> Result<(), PoolError> {
        let _managing = self.volumes.manage(id).await;
        let flags = self.volumes.find(id)?.flags.get();
        let flags = flags.with(VolumeFlags::READ_ONLY, read_only).with(VolumeFlags::HELD, held);
        self.make(Change::SetFlags { volume: id, flags: flags.0 })?;
        self.commit().await
    }

    /// Notes whether others are backed by a volume. As long as they are, it is not removed.
    pub async fn set_base(&self, id: u64, base: bool) -> Result<(), PoolError> {
        let _managing = self.volumes.manage(id).await;
        let flags = self.volumes.find(id)?.flags.get().with(VolumeFlags::BASE, base);
        self.make(Change::SetFlags { volume: id, flags: flags.0 })?;
        self.commit().await
    }

    /// Gives a volume another name. One that is in the trash comes back by it.
    pub async fn rename(&self, id: u64, name: &str) -> Result<(), PoolError> {
        let _managing = self.volumes.manage(id).await;
        self.check_new_name(self.volumes.find(id)?.snapshot_of, name)?;
        self.make(Change::Rename { volume: id, name: name.to_owned() })?;
        self.commit().await
    }

    /// Its trash.
    pub const fn trash(&self) -> Trash<'_> {
        Trash { pool: self }
    }

    /// A volume as a device, of its present size.
    pub fn volume(self: &Rc<Self>, id: u64) -> Result<Device, PoolError> {
        let volume = self.volumes.find(id)?;
        if volume.shown().is_err() {
            return Err(PoolError::OriginMissing);
        }
        Ok(Device::new(Front::new(Rc::clone(self), volume)))
    }

    /// A volume, also one that is being removed.
    pub fn info(&self, id: u64) -> Option<VolumeInfo> {
        self.volumes.get(id).map(|volume| info(&volume))
    }

    /// Bytes of a volume that is being removed that are reclaimed; none if it is gone.
    pub fn removed_bytes(&self, id: u64) -> Option<u64> {
        self.volumes.get(id).map(|volume| volume.removed_bytes())
    }

    /// All volumes, those included that are being removed, in the order of their creation.
    pub fn list(&self) -> Vec<VolumeInfo> {
        self.volumes.all().values().map(|volume| info(volume)).collect()
    }

    /// The volume called `name` that is no snapshot.
    pub fn named(&self, name: &str) -> Option<VolumeInfo> {
        self.info(self.volumes.named(None, name)?)
    }

    /// The snapshot of volume `of` called `name`.
    pub fn snapshot_named(&self, of: u64, name: &str) -> Option<VolumeInfo> {
        self.info(self.volumes.named(Some(of), name)?)
    }

    /// The snapshots of volume `of`, in the order of their creation.
    pub fn snapshots_of(&self, of: u64) -> Vec<VolumeInfo> {
        self.snapshot_numbers(of).into_iter().filter_map(|number| self.info(number)).collect()
    }

    /// As [`Pool::snapshots_of`], their numbers alone: little for each, where there are many.
    pub fn snapshot_numbers(&self, of: u64) -> Vec<u64> {
        self.volumes.snapshot_numbers(of)
    }

    /// Number of snapshots of volume `of`.
    pub fn count_snapshots(&self, of: u64) -> usize {
        self.volumes.count_snapshots(of)
    }

    /// `device` is the external origin that the pool knows as `origin`. Its content never changes.
    pub fn attach_origin(&self, origin: &Origin, device: &Device) -> Result<(), PoolError> {
        self.volumes.attach_origin(origin, device)
    }

    /// Releases the external origins of volumes, which may be in this pool and keep it alive. No volume is used any more.
    pub fn drop_origins(&self) {
        self.volumes.drop_origins();
    }

    /// External origins that are not attached, each once: their volumes cannot be used before.
    pub fn missing_origins(&self) -> Vec<Origin> {
        self.volumes.origins_of(|volume| volume.origin.borrow().is_none())
    }

    /// The external origins of volumes, each once.
    pub fn origins(&self) -> Vec<Origin> {
        self.volumes.origins_of(|_| true)
    }

    /// Whether two volumes show the same where neither of them holds anything.
    pub fn have_same_origin(&self, one: u64, two: u64) -> bool {
        let over = |id| self.volumes.find(id).ok().and_then(|volume| volume.over.get());
        over(one) == over(two)
    }

    /// The pool's device has become larger.
    pub fn grown(&self, device: Device) -> Result<(), PoolError> {
        let end_block = Block::end_of(device.shape().size);
        if end_block < self.end_block.get() {
            return Err(PoolError::Misfit("a pool does not shrink"));
        }
        *self.device.borrow_mut() = device;
        self.grow_to(end_block);
        if self.end_block.get() < end_block {
            return Err(PoolError::Misfit("the superblock has no room for a pool of that size"));
        }
        Ok(())
    }

    /// The most bytes that this pool can have: its superblocks name a place for every group of blocks, and their own
    /// size is fixed when the pool is made.
    pub fn size_max(&self) -> u64 {
        let places = (self.layout.slot_blocks * PART_SIZE - 256) * 4;
        places * varve_format::pdata::space_page::GROUP_BLOCKS * PART_SIZE
    }

    /// Uses the device up to `end_block`, or as far as the superblock can describe.
    pub(in crate::thin) fn grow_to(&self, end_block: Block) {
        let end_block = end_block.min(Block::end_of(self.size_max()));
        if end_block > self.end_block.get() {
            self.map.grow(self.device(), end_block);
            self.map.set_floor(super::super::recover::floor_blocks(end_block)); // THIN8: it grows with the pool
            self.end_block.set(end_block);
            assert_eq!(self.map.pages().end_block(), end_block, "THIN8: pool and space map are of one size");
            self.waiters.room_came();
        }
    }

    /// Makes a change that is not about single parts.
    pub(in crate::thin) fn apply(&self, pages: &mut Pages, change: &Change) -> Result<(), PoolError> {
        match change {
            Change::Create { volume, bytes, created, flags, origin, name } => {
                let flags = VolumeFlags(*flags);
                if flags.has(VolumeFlags::ORIGIN) != origin.is_some() {
                    return Err(PoolError::Corrupt("a volume has an origin that its flags do not know"));
                }
                let (bytes, created, origin) = (*bytes, *created, *origin);
                self.volumes.enter(VolumeRows { bytes, created, flags, origin, ..empty_rows(*volume, name) });
            }
            Change::Clone { volume, source, created, flags, name } => {
                let source = self.volumes.known(*source)?;
                let (root, mapped) = (self.share(pages, &source), source.mapped.get());
                let inherited = source.flags.get().0 & VolumeFlags::ORIGIN;
                let rows = VolumeRows {
                    root,
                    since: source.last_clone.get(),
                    bytes: source.bytes.get(),
                    mapped,
                    flags: VolumeFlags(*flags | inherited),
                    origin: source.over.get(),
                    source: source.id,
                    created: *created,
                    snapshot_of: Some(source.owner()),
                    ..empty_rows(*volume, name)
                };
                let clone = self.volumes.enter(rows);
                clone.origin.borrow_mut().clone_from(&source.origin.borrow());
            }
            Change::RollBack { volume, source, rest } => {
                let (volume, source) = (self.volumes.known(*volume)?, self.volumes.known(*source)?);
                let tree = Tree { root: self.share(pages, &source) };
                self.put_aside(&volume, *rest);
                volume.set_tree(tree);
                volume.last_clone.set(source.last_clone.get());
                volume.mapped.set(source.mapped.get());
                volume.bytes.set(source.bytes.get());
                volume.source.set(*rest); // REVERT2 of `rollback.rs`
                volume.set_origin_of(&source);
            }
            Change::Empty { volume, rest } => {
                let volume = self.volumes.known(*volume)?;
                self.put_aside(&volume, *rest);
                volume.set_tree(Tree::EMPTY);
                volume.mapped.set(0);
            }
            Change::Remove { volume } => {
                let volume = self.volumes.known(*volume)?;
                let flags = volume.flags.get().with(VolumeFlags::REMOVING, true);
                volume.flags.set(flags.with(VolumeFlags::HELD | VolumeFlags::BASE, false));
                *volume.origin.borrow_mut() = None; // it is not read any more
                self.volumes.set_name(&volume, "");
                volume.dirty.set(true);
            }
            Change::Forget { volume } => {
                if self.volumes.known(*volume)?.tree.get() != Tree::EMPTY {
                    return Err(PoolError::Corrupt("a volume is forgotten that holds something"));
                }
                self.volumes.forget(*volume);
                self.accounting.borrow_mut().remove(volume);
            }
            other => self.apply_property(other)?,
        }
        Ok(())
    }

    fn apply_property(&self, change: &Change) -> Result<(), PoolError> {
        let volume = match change {
            Change::Resize { volume, bytes } => {
                let volume = self.volumes.known(*volume)?;
                volume.bytes.set(*bytes);
                volume.show_at_most(*bytes); // THIN6: what was cut off does not come back when it grows
                volume
            }
            Change::ShowLess { volume, bytes } => {
                let volume = self.volumes.known(*volume)?;
                volume.show_at_most(*bytes);
                volume
            }
            Change::SetFlags { volume, flags } => {
                let (volume, flags) = (self.volumes.known(*volume)?, VolumeFlags(*flags));
                if flags.has(VolumeFlags::ORIGIN) && volume.over.get().is_none() {
                    return Err(PoolError::Corrupt("a volume has the flag of an origin and no origin"));
                }
                if !flags.has(VolumeFlags::ORIGIN) {
                    volume.detach();
                }
                volume.flags.set(flags);
                volume
            }
            Change::Rename { volume, name } => {
                let volume = self.volumes.known(*volume)?;
                self.volumes.set_name(&volume, name);
                volume
            }
            _ => return Err(PoolError::Corrupt("a change of parts where there should be none")),
        };
        volume.dirty.set(true);
        Ok(())
    }

    /// THIN7: one more volume holds what `source` holds now; the root.
    pub(in crate::thin) fn share(&self, pages: &mut Pages, source: &Volume) -> Link {
        source.last_clone.set(pages.fence());
        source.dirty.set(true);
        let root = source.tree.get().root;
        assert!(
            source.last_clone.get() < pages.generation(),
            "THIN7: what is made from now on is nobody else's"
        );
        if !root.is_none() {
            self.ref_counts.increment(BlockRun::one(root.block()));
        }
        root
    }

    /// What `volume` holds is `rest`'s from now on, which is being removed.
    fn put_aside(&self, volume: &Volume, rest: u64) {
        assert_ne!(volume.id, rest, "the rest is another volume");
        let flags = VolumeFlags(VolumeFlags::REMOVING);
        let (name, origin) = (String::new(), None);
        let rows = VolumeRows { flags, origin, name, volume: rest, ..volume.rows() };
        self.volumes.enter(rows);
    }
}

fn empty_rows(volume: u64, name: &str) -> VolumeRows {
    VolumeRows {
        volume,
        root: Link::NONE,
        since: 0,
        bytes: 0,
        mapped: 0,
        flags: VolumeFlags::default(),
        source: 0,
        created: 0,
        snapshot_of: None,
        origin: None,
        name: name.to_owned(),
    }
}

/// A volume on which no other operation as a whole is under way.
pub struct ClaimedVolume<'a> {
    pool: &'a Pool,
    volume: Rc<Volume>,
    managing: varve_block::RangeGuard,
}

impl<'a> ClaimedVolume<'a> {
    /// Holds back changes and waits until none is under way, and for nothing else.
    pub async fn freeze(self) -> FrozenVolume<'a> {
        let closed = self.volume.gate.close();
        self.volume.gate.drained().await;
        assert!(self.volume.gate.is_empty(), "THIN7: no write is under way");
        FrozenVolume { pool: self.pool, volume: self.volume, _closed: closed, _managing: self.managing }
    }
}

/// A volume to which no change is under way; goes on when dropped.
pub struct FrozenVolume<'a> {
    pool: &'a Pool,
    volume: Rc<Volume>,
    _closed: varve_block::TrackerGuard,
    _managing: varve_block::RangeGuard,
}

impl FrozenVolume<'_> {
    pub(in crate::thin) fn source(&self) -> &Volume {
        &self.volume
    }

    /// Clones the volume as it is; the clone's id. It is durable after the next [`Pool::commit`].
    pub fn snapshot(&self, name: &str, read_only: bool) -> Result<u64, PoolError> {
        let pool = self.pool;
        assert!(self.volume.gate.is_empty(), "THIN7: no write is under way");
        pool.check_new_name(Some(self.volume.owner()), name)?;
        let id = pool.volumes.next_id();
        let flags = VolumeFlags::default().with(VolumeFlags::READ_ONLY, read_only).0;
        let (source, created) = (self.volume.id, pool.clock.date().0);
        pool.make(Change::Clone { volume: id, source, created, flags, name: name.to_owned() })?;
        Ok(id)
    }
}
