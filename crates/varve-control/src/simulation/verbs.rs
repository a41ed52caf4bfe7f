//! Commands as data: which one comes next, what it changes in the model, and how it is given to the daemon.

use super::array_verbs::ArrayVerb;
use super::daemon::Daemon;
use super::mapper::MAPPERS;
use super::model::{self, Model};
use crate::Control;
use std::rc::Rc;
use varve_api::{
    Code, Convert, ExportCreate, ExportRemove, Failure, GroupCreate, GroupExtend, GroupReduce, Layout,
    PhysicalVolumeMove, PhysicalVolumeResize, PhysicalVolumeScan, PoolCreate, Rename, Resize, SnapshotChange,
    SnapshotCreate, SnapshotHold, SnapshotMode, SnapshotRemove, SnapshotRename, SnapshotRollback,
    VolumeCreate,
};
use varve_block::{KIB, MIB};
use varve_sim::Random;

/// Bytes of a disk; a snapshot store takes 64 MiB of a group.
pub(super) const DISK_SIZE: u64 = 160 * MIB;
pub(super) const EXTENT_SIZE: u64 = 64 * KIB;
pub(super) const VOLUMES_MAX: usize = 5;
const SNAPSHOTS_MAX: usize = 4;
/// How the snapshots begin that keep what was before a rollback.
const BEFORE: &str = "before-rollback-";

/// A command.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    CreateGroup {
        name: String,
        disks: Vec<String>,
    },
    ExtendGroup {
        name: String,
        disk: String,
    },
    /// Is refused: the disk is that of a group.
    TakeUsedDisk {
        name: String,
        disk: String,
    },
    /// Is refused unless nothing is on the disk.
    ReduceGroup {
        name: String,
        disk: String,
    },
    /// A disk of a group is used up to another place; its file is made as long before, if it is shorter.
    ResizeDisk {
        disk: String,
        size: u64,
    },
    /// Goes on while other commands and requests come; a crash does not end it.
    MoveDisk {
        disk: String,
    },
    /// Goes on, too: to extents elsewhere, or of another layout that lists do not show.
    Convert {
        name: String,
        is_pool: bool,
        layout: Layout,
    },
    RenameGroup {
        name: String,
        to: String,
    },
    ExtendPool {
        name: String,
        bytes: u64,
    },
    CreatePool {
        name: String,
        size: u64,
        block_size: u64,
    },
    RemovePool {
        name: String,
    },
    CreateVolume {
        name: String,
        size: u64,
        stripes: u32,
    },
    /// A volume in an image that is made before, in clusters of so many bytes if it is a qcow2 one.
    CreateInImage {
        name: String,
        size: u64,
        path: String,
        cluster_size: Option<u64>,
        /// The number of the volume if its image has a backing image.
        below: Option<u16>,
    },
    /// A volume that a program maps to another one, or to two.
    CreateMapped {
        name: String,
        mapper: String,
        devices: Vec<String>,
    },
    CreateThin {
        name: String,
        size: u64,
        pool: String,
    },
    /// A thin volume that shows a read-only snapshot where nothing was written.
    CreateOver {
        name: String,
        pool: String,
        volume: String,
        snapshot: String,
    },
    Flatten {
        name: String,
    },
    /// What the image of a volume holds is put into the image below it.
    CommitImage {
        name: String,
    },
    Resize {
        name: String,
        size: u64,
        grows: bool,
    },
    RenameVolume {
        name: String,
        to: String,
    },
    RemoveVolume {
        name: String,
    },
    Snapshot {
        names: Vec<(String, String)>,
        read_only: bool,
        independent: bool,
    },
    RemoveSnapshots {
        volume: String,
        names: Vec<String>,
    },
    RenameSnapshot {
        volume: String,
        name: String,
        to: String,
    },
    Hold {
        volume: String,
        name: String,
        held: bool,
    },
    ChangeSnapshot {
        volume: String,
        name: String,
        read_only: bool,
    },
    RollBack {
        volume: String,
        name: String,
        /// Whether a snapshot keeps what was before.
        is_kept: bool,
    },
    Export {
        target: String,
        address: String,
    },
    RemoveExport {
        address: String,
    },
    /// One about arrays.
    Array(ArrayVerb),
    Scan,
    Status,
}

/// A name that is not in use among those that begin with `prefix`.
pub(super) fn new_name(prefix: &str, is_used: impl Fn(&str) -> bool, random: &mut Random) -> String {
    loop {
        let name = format!("{prefix}{}", random.below(100));
        if !is_used(&name) {
            return name;
        }
    }
}

pub(super) fn pick<'a, T>(items: impl Iterator<Item = T> + 'a, random: &mut Random) -> Option<T> {
    let mut items: Vec<T> = items.collect();
    if items.is_empty() { None } else { Some(items.swap_remove(random.index(items.len()))) }
}

impl Verb {
    /// A command that the model allows.
    pub(super) fn pick(model: &Model, random: &mut Random) -> Verb {
        loop {
            let verb = match random.below(27) {
                _ if model.groups.is_empty() => Self::new_group(model, random),
                0 => Self::new_group(model, random),
                1 => Self::of_group(model, random),
                2..=4 if model.volumes.len() < VOLUMES_MAX => Self::new_volume(model, random),
                5 | 6 => Self::of_pool(model, random),
                7..=9 => Self::of_volume(model, random),
                10..=13 => Self::new_snapshots(model, random),
                14..=18 => Self::of_snapshot(model, random),
                19..=21 => Self::of_exports(model, random),
                22 => Some(Verb::Scan),
                23 => Self::new_move(model, random),
                24 => Self::new_conversion(model, random),
                25 => Self::new_resize(model, random),
                _ => Some(Verb::Status),
            };
            if let Some(verb) = verb {
                return verb;
            }
        }
    }

    pub(super) fn new_group(model: &Model, random: &mut Random) -> Option<Verb> {
        if model.groups.len() >= 2 {
            return None;
        }
        let name = new_name("g", |name| model.groups.contains_key(name), random);
        let first = random.below(1 << 40);
        let disks =
            (0..random.between(1, 4)).map(|number| format!("/disks/{name}-{first}-{number}")).collect();
        Some(Verb::CreateGroup { name, disks })
    }

    fn new_move(model: &Model, random: &mut Random) -> Option<Verb> {
        let disk = pick(model.groups.values().flatten(), random)?.clone();
        Some(Verb::MoveDisk { disk })
    }

    fn new_resize(model: &Model, random: &mut Random) -> Option<Verb> {
        let disk = pick(model.groups.values().flatten(), random)?.clone();
        let size = if random.chance(1, 4) { DISK_SIZE } else { random.between(3, 200) * MIB };
        Some(Verb::ResizeDisk { disk, size })
    }

    fn new_conversion(model: &Model, random: &mut Random) -> Option<Verb> {
        if random.chance(1, 2) {
            let name = pick(model.pools.iter(), random)?.clone();
            let layout = *random.pick(&[Layout::Linear, Layout::Mirror]);
            return Some(Verb::Convert { name, is_pool: true, layout });
        }
        let linear = model.volumes.iter().filter(|(_, volume)| volume.layout == Layout::Linear);
        let (name, _) = pick(linear, random)?;
        Some(Verb::Convert { name: name.clone(), is_pool: false, layout: Layout::Linear })
    }

    fn of_group(model: &Model, random: &mut Random) -> Option<Verb> {
        let name = pick(model.groups.keys(), random)?.clone();
        if random.chance(1, 2) {
            let to = new_name("g", |name| model.groups.contains_key(name), random);
            return Some(Verb::RenameGroup { name, to });
        }
        if random.chance(1, 4) {
            let disk = pick(model.groups[&name].iter(), random)?.clone();
            let name = new_name("h", |_| false, random);
            return Some(Verb::TakeUsedDisk { name, disk });
        }
        if random.chance(1, 4) {
            let disk = pick(model.groups[&name].iter(), random)?.clone();
            return Some(Verb::ReduceGroup { name, disk });
        }
        let disk = format!("/disks/{name}-{}", random.below(1 << 40));
        (model.groups[&name].len() < 4).then_some(Verb::ExtendGroup { name, disk })
    }

    pub(super) fn new_volume(model: &Model, random: &mut Random) -> Option<Verb> {
        let group = pick(model.groups.keys(), random)?;
        let is_used = |name: &str| {
            let full = format!("{group}/{name}");
            model.volumes.contains_key(&full) || model.pools.contains(&full)
        };
        let name = format!("{group}/{}", new_name("v", is_used, random));
        if random.chance(1, 4) {
            return Self::new_mapped(model, group, name, random);
        }
        let pools = model.pools.iter().filter(|pool| pool.starts_with(&format!("{group}/")));
        let pool = pick(pools, random).filter(|_| random.chance(2, 3));
        Some(match pool {
            Some(pool) if random.chance(1, 3) => Self::new_over(model, group, name, pool, random)?,
            Some(pool) => {
                let size = random.between(1, 65) * 4 * KIB;
                Verb::CreateThin { name, size, pool: pool.clone() }
            }
            None if random.chance(1, 3) => {
                let path = format!("/images/{}", random.below(1 << 40));
                let unit = *random.pick(&[4 * KIB, EXTENT_SIZE]);
                let size = random.between(1, 257 * KIB / unit) * unit * random.pick(&[1, 1, 1, 4]);
                let cluster_size = *random.pick(&[None, Some(4 * KIB), Some(16 * KIB), Some(64 * KIB)]);
                // A qcow2 image has a disk of any number of sectors.
                let is_odd = cluster_size.is_some() && random.chance(1, 4);
                let size = size + if is_odd { random.between(1, 8) * 512 } else { 0 };
                let is_over = cluster_size.is_some() && random.chance(1, 2);
                let below = is_over.then_some(model.last_number + 1);
                Verb::CreateInImage { name, size, path, cluster_size, below }
            }
            None => {
                let stripes_max = u64::try_from(model.groups[group].len()).unwrap_or(1);
                let stripes = u32::try_from(random.between(1, stripes_max + 1)).unwrap_or(1);
                let size = random.between(1, 4) * EXTENT_SIZE * u64::from(stripes);
                Verb::CreateVolume { name, size, stripes }
            }
        })
    }

    fn new_over(model: &Model, group: &str, name: String, pool: &str, random: &mut Random) -> Option<Verb> {
        let prefix = format!("{group}/");
        let volumes = model.volumes.iter().filter(|(name, _)| name.starts_with(&prefix));
        let origins = volumes.flat_map(|(name, volume)| {
            let read_only = volume.snapshots.iter().filter(|(_, snapshot)| snapshot.read_only);
            read_only.map(move |(own, _)| (name.clone(), own.clone()))
        });
        let (volume, snapshot) = pick(origins, random)?;
        Some(Verb::CreateOver { name, pool: pool.to_owned(), volume, snapshot })
    }

    fn new_mapped(model: &Model, group: &str, name: String, random: &mut Random) -> Option<Verb> {
        let prefix = format!("{group}/");
        let is_fit = |(name, volume): &(&String, &model::Volume)| {
            let is_used = model.is_granted(name) || model.exports.values().any(|target| target == *name);
            let is_fit = match volume.layout {
                Layout::Linear | Layout::Striped => true,
                Layout::Image => volume.oracle.borrow().size().is_multiple_of(EXTENT_SIZE),
                _ => false,
            };
            name.starts_with(&prefix) && is_fit && volume.snapshots.is_empty() && !is_used
        };
        let size = |volume: &model::Volume| volume.oracle.borrow().size();
        let fit = || model.volumes.iter().filter(is_fit);
        let (first, base) = pick(fit().filter(|(_, volume)| !volume.is_spoilt), random)?;
        let others = fit().filter(|(name, volume)| *name != first && size(volume) >= size(base));
        let second = pick(others, random).filter(|_| random.chance(5, 6));
        let devices = std::iter::once(first).chain(second.map(|(name, _)| name)).cloned().collect();
        let mapper = format!("{MAPPERS}{}", random.below(1 << 40));
        Some(Verb::CreateMapped { name, mapper, devices })
    }

    fn of_pool(model: &Model, random: &mut Random) -> Option<Verb> {
        let free = model
            .pools
            .iter()
            .filter(|pool| !model.volumes.values().any(|volume| volume.pool.as_ref() == Some(pool)));
        if let Some(pool) = pick(free, random).filter(|_| random.chance(1, 4)) {
            return Some(Verb::RemovePool { name: pool.clone() });
        }
        if model.pools.len() >= 2 {
            let name = pick(model.pools.iter(), random)?.clone();
            return Some(Verb::ExtendPool { name, bytes: random.between(1, 40) * EXTENT_SIZE });
        }
        let group = pick(model.groups.keys(), random)?;
        let is_used = |name: &str| model.pools.contains(&format!("{group}/{name}"));
        let name = format!("{group}/{}", new_name("p", is_used, random));
        let (size, block_size) = (random.between(2, 9) * MIB, *random.pick(&[4 * KIB, 16 * KIB, 64 * KIB]));
        Some(Verb::CreatePool { name, size, block_size })
    }

    fn of_volume(model: &Model, random: &mut Random) -> Option<Verb> {
        let (name, volume) = pick(model.volumes.iter(), random)?;
        let name = name.clone();
        match random.below(4) {
            3 if volume.has_origin && volume.image.is_some() && random.chance(1, 2) => {
                Some(Verb::CommitImage { name })
            }
            3 if volume.has_origin => Some(Verb::Flatten { name }),
            0 => {
                let (group, _) = name.split_once('/')?;
                let is_used = |own: &str| model.volumes.contains_key(&format!("{group}/{own}"));
                let to = new_name("v", is_used, random);
                Some(Verb::RenameVolume { name, to })
            }
            1 if !matches!(volume.layout, Layout::Striped | Layout::Image | Layout::Mapper) => {
                let size = volume.oracle.borrow().size();
                let step = if volume.pool.is_some() { 4 * KIB } else { EXTENT_SIZE };
                let step = random.between(1, 4) * step;
                let grows = size <= step || random.chance(2, 3) || !volume.may_shrink();
                Some(Verb::Resize { name, size: if grows { size + step } else { size - step }, grows })
            }
            2 if volume.snapshots.is_empty() && !model.exports.values().any(|target| *target == name) => {
                Some(Verb::RemoveVolume { name })
            }
            _ => None,
        }
    }

    pub(super) fn new_snapshots(model: &Model, random: &mut Random) -> Option<Verb> {
        let group = pick(model.groups.keys(), random)?;
        let prefix = format!("{group}/");
        let few = |volume: &model::Volume| volume.snapshots.len() < SNAPSHOTS_MAX && !volume.is_spoilt;
        let volumes = model.volumes.iter().filter(|(name, volume)| name.starts_with(&prefix) && few(volume));
        let volumes: Vec<_> = volumes.collect();
        let independent = random.chance(1, 4) && volumes.iter().all(|(_, volume)| volume.pool.is_none());
        let mut names = Vec::new();
        for (name, volume) in volumes {
            if names.is_empty() || random.chance(1, 3) {
                let own = new_name("s", |own| volume.snapshots.contains_key(own), random);
                names.push((name.clone(), own));
            }
        }
        (!names.is_empty()).then(|| Verb::Snapshot { names, read_only: random.chance(1, 2), independent })
    }

    fn of_snapshot(model: &Model, random: &mut Random) -> Option<Verb> {
        let with = model.volumes.iter().filter(|(_, volume)| !volume.snapshots.is_empty());
        let (name, volume) = pick(with, random)?;
        let (own, snapshot) = pick(volume.snapshots.iter(), random)?;
        let (name, own) = (name.clone(), own.clone());
        let is_exported = |name: &str| model.exports.values().any(|target| target == name);
        match random.below(6) {
            5 => Some(Verb::ChangeSnapshot { volume: name, name: own, read_only: !snapshot.read_only }),
            0 => Some(Verb::Hold { volume: name, name: own, held: !snapshot.held }),
            1 => {
                let is_kept = volume.snapshots.len() < SNAPSHOTS_MAX && random.chance(2, 3);
                Some(Verb::RollBack { volume: name, name: own, is_kept })
            }
            4 if !is_exported(&format!("{name}@{own}")) => {
                let to = own.strip_suffix(".b").map_or_else(|| format!("{own}.b"), str::to_owned);
                let is_free = !volume.snapshots.contains_key(&to);
                is_free.then_some(Verb::RenameSnapshot { volume: name, name: own, to })
            }
            _ => {
                let free = |(own, snapshot): &(&String, &model::Snapshot)| {
                    !snapshot.held && !is_exported(&format!("{name}@{own}"))
                };
                let names: Vec<String> =
                    volume.snapshots.iter().filter(free).map(|(own, _)| own.clone()).collect();
                let count = random.between(1, 4).min(names.len() as u64) as usize;
                (count > 0)
                    .then(|| Verb::RemoveSnapshots { volume: name.clone(), names: names[..count].to_vec() })
            }
        }
    }

    fn of_exports(model: &Model, random: &mut Random) -> Option<Verb> {
        if let Some(address) = pick(model.exports.keys(), random).filter(|_| random.chance(1, 2)) {
            return Some(Verb::RemoveExport { address: address.clone() });
        }
        let target = pick(model.contents().into_keys(), random)?;
        let address = format!("unix:/sockets/{}", random.below(1 << 40));
        (model.exports.len() < 3).then_some(Verb::Export { target, address })
    }

    /// Whether it goes on after it was answered.
    pub(super) fn starts_a_job(&self) -> bool {
        use Verb::{CommitImage, Flatten, RemoveSnapshots, RollBack};
        matches!(self, RemoveSnapshots { .. } | RollBack { .. } | Flatten { .. } | CommitImage { .. })
    }

    /// Whether it may be refused so although nothing went wrong.
    pub(super) fn may_be_refused(&self, code: Code) -> bool {
        super::REFUSALS.contains(&code)
            || (matches!(self, Verb::Array(_)) && super::ARRAY_REFUSALS.contains(&code))
    }

    /// Whether it must be refused: the disk of a qcow2 image need not be made of whole blocks, and snapshots are; and the raw image
    /// below is then longer than that disk.
    pub(super) fn must_be_refused(&self, model: &Model) -> bool {
        let is_odd = |name: &String| {
            let volume = model.volumes.get(name);
            volume.is_some_and(|volume| !volume.oracle.borrow().size().is_multiple_of(4 * KIB))
        };
        match self {
            Verb::Snapshot { names, .. } => names.iter().any(|(name, _)| is_odd(name)),
            Verb::CommitImage { name } => is_odd(name),
            _ => false,
        }
    }

    /// Whether it is to make what there is already.
    pub(super) fn makes_what_is_in(&self, model: &Model) -> bool {
        match self {
            Verb::CreateGroup { name, .. } | Verb::RenameGroup { to: name, .. } => {
                model.groups.contains_key(name) || model.groups.len() > 2
            }
            _ => false,
        }
    }

    /// The model after it.
    pub(super) fn apply(&self, before: &Model) -> Model {
        let mut after = before.clone();
        match self.clone() {
            Verb::CreateGroup { name, disks } => {
                after.groups.insert(name, disks.into_iter().collect());
            }
            Verb::ExtendGroup { name, disk } => {
                after.groups.entry(name).or_default().insert(disk);
            }
            Verb::ResizeDisk { disk, size } => drop(after.sizes.insert(disk, size)),
            Verb::RenameGroup { name, to } => after.rename(&format!("{name}/"), &format!("{to}/")),
            Verb::CreatePool { name, .. } => drop(after.pools.insert(name)),
            Verb::RemovePool { name } => drop(after.pools.remove(&name)),
            Verb::CreateVolume { name, size, stripes } => {
                let layout = if stripes > 1 { Layout::Striped } else { Layout::Linear };
                after.add(&name, size, layout, None);
            }
            Verb::CreateInImage { name, size, path, below, .. } => {
                after.add_in_image(&name, size, path, below.is_some());
            }
            Verb::CreateMapped { name, mapper, devices } => after.add_mapped(&name, mapper, devices),
            Verb::CreateThin { name, size, pool } => after.add(&name, size, Layout::Thin, Some(pool)),
            Verb::CreateOver { name, pool, volume, snapshot } => {
                after.add_over(&name, pool, &before.volumes[&volume].snapshots[&snapshot]);
            }
            Verb::Flatten { name } => {
                after.volumes.get_mut(&name).expect("it is there").has_origin = false;
            }
            Verb::CommitImage { name } => after.volumes.get_mut(&name).expect("it is there").lie_below(),
            Verb::ReduceGroup { name, disk } => {
                after.groups.entry(name).or_default().remove(&disk);
            }
            Verb::Resize { name, size, grows } => {
                after.change(&name, |oracle, _| if grows { oracle.grow(size) } else { oracle.cut(size) });
            }
            Verb::RenameVolume { name, to } => {
                let group = name.split('/').next().unwrap_or_default();
                after.rename(&name, &format!("{group}/{to}"));
            }
            Verb::RemoveVolume { name } => after.remove(&name),
            Verb::Snapshot { names, read_only, .. } => {
                names.iter().for_each(|(volume, own)| after.add_snapshot(volume, own, read_only));
            }
            Verb::RemoveSnapshots { volume, names } => {
                let volume = after.volumes.get_mut(&volume).expect("it is there");
                volume.snapshots.retain(|own, _| !names.contains(own));
            }
            Verb::Hold { volume, name, held } => {
                after.snapshot(&volume, &name).held = held;
            }
            Verb::ChangeSnapshot { volume, name, read_only } => {
                after.snapshot(&volume, &name).read_only = read_only;
            }
            Verb::RenameSnapshot { volume, name, to } => {
                let snapshots = &mut after.volumes.get_mut(&volume).expect("it is there").snapshots;
                let known = snapshots.remove(&name);
                snapshots.extend(known.map(|known| (to, known)));
            }
            Verb::RollBack { volume, name, is_kept } => after.roll_back(&volume, &name, is_kept),
            Verb::Export { target, address } => {
                after.exports.insert(address, target);
            }
            Verb::RemoveExport { address } => {
                after.exports.remove(&address);
            }
            Verb::Array(verb) => verb.apply(&mut after),
            _ => {} // Nothing that is seen through doors and lists.
        }
        after
    }

    /// Gives the command; the job that it has started, if it has.
    pub(super) async fn issue(self, daemon: &Daemon) -> Result<Option<String>, Failure> {
        use Verb::{
            ChangeSnapshot, CommitImage, CreateInImage, CreateMapped, CreateOver, CreateThin, CreateVolume,
            Export, Flatten, Hold, RemoveExport, RemoveSnapshots, RemoveVolume, RenameSnapshot, RenameVolume,
            Resize, RollBack, Snapshot,
        };
        if let CreateInImage { size, path, cluster_size, below, .. } = &self {
            daemon.host.make_image(path, *size, *cluster_size, *below).await;
        }
        if let Verb::ResizeDisk { disk, size } = &self {
            daemon.host.lengthen(disk, *size);
        }
        let call = async move |control: Rc<Control>| match self {
            Snapshot { .. }
            | RemoveSnapshots { .. }
            | Hold { .. }
            | ChangeSnapshot { .. }
            | RenameSnapshot { .. }
            | RollBack { .. }
            | CommitImage { .. }
            | Flatten { .. } => self.change_snapshot(&control).await,
            CreateVolume { .. }
            | CreateInImage { .. }
            | CreateMapped { .. }
            | CreateThin { .. }
            | CreateOver { .. }
            | Resize { .. }
            | RenameVolume { .. }
            | RemoveVolume { .. }
            | Export { .. }
            | RemoveExport { .. } => self.change_volume(&control).await.map(|()| None),
            _ => self.change_group(&control).await.map(|()| None),
        };
        daemon.handle.call(call).await
    }

    async fn change_group(self, control: &Control) -> Result<(), Failure> {
        match self {
            Verb::CreateGroup { name, disks: paths } => {
                for path in &paths {
                    control.create_disks(new_disk(path)).await?;
                }
                let extent_size = Some(EXTENT_SIZE.to_string());
                control.create_group(GroupCreate { name, paths, extent_size, ..Default::default() }).await?;
            }
            Verb::ExtendGroup { name, disk } => {
                control.create_disks(new_disk(&disk)).await?;
                control.extend_group(&name, GroupExtend { paths: vec![disk], ..Default::default() }).await?;
            }
            Verb::TakeUsedDisk { name, disk } => {
                let request = GroupCreate { name, paths: vec![disk], ..Default::default() };
                control.create_group(request).await?;
            }
            Verb::ReduceGroup { name, disk } => {
                control.reduce_group(&name, GroupReduce { path: Some(disk), ..Default::default() }).await?;
            }
            Verb::ResizeDisk { disk, size } => {
                let size = Some(size.to_string());
                control.resize_disk(PhysicalVolumeResize { disk, size, ..Default::default() }).await?;
            }
            Verb::MoveDisk { disk: from } => {
                control.move_disk(PhysicalVolumeMove { from, ..Default::default() }).await?;
            }
            Verb::Convert { name, is_pool, layout } => {
                let copies = (layout == Layout::Mirror).then_some(2);
                let request = Convert { layout: Some(layout), copies, ..Default::default() };
                match is_pool {
                    true => control.convert_pool(&name, request).await?,
                    false => control.convert_volume(&name, request).await?,
                };
            }
            Verb::ExtendPool { name, bytes } => {
                control
                    .extend_pool(&name, Resize { size: format!("+{bytes}"), ..Default::default() })
                    .await?;
            }
            Verb::RenameGroup { name, to } => {
                control.rename_group(&name, Rename { to, ..Default::default() }).await?;
            }
            Verb::CreatePool { name, size, block_size } => {
                let (size, block_size) = (size.to_string(), Some(block_size.to_string()));
                control.create_pool(PoolCreate { name, size, block_size, ..Default::default() }).await?;
            }
            Verb::RemovePool { name } => {
                control.remove_pool(&name, model::removal(&name)).await?;
            }
            Verb::Array(verb) => verb.issue(control).await?,
            Verb::Scan => {
                control.scan_disks(PhysicalVolumeScan::default()).await?;
            }
            Verb::Status => {
                control.status_with_problems().await?;
            }
            other => unreachable!("{other:?} is for others"),
        }
        Ok(())
    }

    async fn change_volume(self, control: &Control) -> Result<(), Failure> {
        match self {
            Verb::CreateVolume { name, size, stripes } => {
                let layout = (stripes > 1).then_some(Layout::Striped);
                let (size, stripes) = (size.to_string(), (stripes > 1).then_some(stripes));
                let request = VolumeCreate { name, size, layout, stripes, ..Default::default() };
                control.create_volume(request).await?;
            }
            Verb::CreateInImage { name, path, cluster_size, .. } => {
                let format = cluster_size.map(|_| "qcow2".to_owned());
                let request = VolumeCreate { name, image: Some(path), format, ..Default::default() };
                control.create_volume(request).await?;
            }
            Verb::CreateMapped { name, mapper, devices } => {
                let size = control.show_volume(&devices[0]).await?.size.to_string();
                let mapper = Some(format!("unix:{mapper}"));
                let request = VolumeCreate { name, size, mapper, devices, ..Default::default() };
                control.create_volume(request).await?;
            }
            Verb::CreateThin { name, size, pool } => {
                let (size, pool) = (size.to_string(), Some(pool));
                control.create_volume(VolumeCreate { name, size, pool, ..Default::default() }).await?;
            }
            Verb::CreateOver { name, pool, volume, snapshot } => {
                let (pool, origin) = (Some(pool), Some(format!("{volume}@{snapshot}")));
                control.create_volume(VolumeCreate { name, pool, origin, ..Default::default() }).await?;
            }
            Verb::Resize { name, size, grows } => {
                let request = Resize { size: size.to_string(), ..Default::default() };
                match grows {
                    true => control.extend_volume(&name, request).await?,
                    false => control.reduce_volume(&name, request).await?,
                };
            }
            Verb::RenameVolume { name, to } => {
                control.rename_volume(&name, Rename { to, ..Default::default() }).await?;
            }
            Verb::RemoveVolume { name } => {
                control.remove_volume(&name, model::removal(&name)).await?;
            }
            Verb::Export { target: volume, address } => {
                let door = Some(varve_api::Door::Nbd);
                control.create_export(ExportCreate { volume, address, door, ..Default::default() }).await?;
            }
            Verb::RemoveExport { address } => {
                control.remove_export(&address, ExportRemove::default()).await?;
            }
            other => unreachable!("{other:?} is for others"),
        }
        Ok(())
    }

    async fn change_snapshot(self, control: &Control) -> Result<Option<String>, Failure> {
        Ok(match self {
            Verb::Snapshot { names, read_only, independent } => {
                let names = names.iter().map(|(volume, own)| format!("{volume}@{own}")).collect();
                let mode = independent.then_some(SnapshotMode::Independent);
                let request = SnapshotCreate { names, read_only, mode, ..Default::default() };
                control.create_snapshots(request).await?;
                None
            }
            Verb::RemoveSnapshots { volume, names } => {
                let names = names.iter().map(|own| format!("{volume}@{own}")).collect();
                let removed = control.remove_snapshots(SnapshotRemove { names, ..Default::default() });
                done(removed.await?)
            }
            Verb::Hold { volume, name, held } => {
                let names = vec![format!("{volume}@{name}")];
                control.hold_snapshots(SnapshotHold { names, ..Default::default() }, held).await?;
                None
            }
            Verb::ChangeSnapshot { volume, name, read_only } => {
                let names = vec![format!("{volume}@{name}")];
                control.change_snapshots(SnapshotChange { names, read_only, ..Default::default() }).await?;
                None
            }
            Verb::RenameSnapshot { volume, name, to } => {
                let name = format!("{volume}@{name}");
                control.rename_snapshot(SnapshotRename { name, to, ..Default::default() }).await?;
                None
            }
            Verb::Flatten { name } => {
                done(control.flatten_volume(&name, varve_api::Flatten::default()).await?)
            }
            Verb::CommitImage { name } => {
                done(control.commit_volume(&name, varve_api::Commit::default()).await?)
            }
            Verb::RollBack { volume, name, is_kept } => {
                let (name, no_snapshot) = (format!("{volume}@{name}"), !is_kept);
                let request = SnapshotRollback { name, no_snapshot, ..Default::default() };
                done(control.rollback_snapshot(request).await?)
            }
            other => unreachable!("{other:?} is for others"),
        })
    }
}

fn new_disk(path: &str) -> varve_api::PhysicalVolumeCreate {
    let (paths, size) = (vec![path.to_owned()], Some(DISK_SIZE.to_string()));
    varve_api::PhysicalVolumeCreate { paths, size, ..Default::default() }
}

/// The number of a job that was started.
fn done(changed: varve_api::Changed<varve_api::Job>) -> Option<String> {
    match changed {
        varve_api::Changed::Done(job) => Some(job.id),
        varve_api::Changed::Planned(_) => None,
    }
}

impl Model {
    /// A volume has the content of a snapshot, and its own size.
    fn roll_back(&mut self, volume: &str, name: &str, is_kept: bool) {
        if is_kept {
            let number = |own: &String| own.strip_prefix(BEFORE)?.parse::<u64>().ok();
            let last = self.volumes[volume].snapshots.keys().filter_map(number).max().unwrap_or(0);
            self.add_snapshot(volume, &format!("{BEFORE}{}", last + 1), true);
        }
        self.change(volume, |oracle, volume| {
            let size = oracle.size();
            let mut becomes = volume.snapshots[name].oracle.borrow().fork();
            becomes.cut(size.min(becomes.size()));
            becomes.grow(size);
            oracle.restore(&becomes);
        });
    }

    /// Everything whose name is `from`, or begins with it if it ends with a slash, is called otherwise.
    fn rename(&mut self, from: &str, to: &str) {
        let is_group = from.ends_with('/');
        let renamed = |name: &String| match name.strip_prefix(from) {
            Some(rest) if is_group || rest.is_empty() || rest.starts_with('@') => format!("{to}{rest}"),
            _ => name.clone(),
        };
        self.volumes = std::mem::take(&mut self.volumes)
            .into_iter()
            .map(|(name, volume)| {
                let pool = volume.pool.as_ref().map(renamed);
                let devices = volume.devices.iter().map(renamed).collect();
                (renamed(&name), model::Volume { pool, devices, ..volume })
            })
            .collect();
        self.pools = self.pools.iter().map(renamed).collect();
        self.exports =
            self.exports.iter().map(|(address, target)| (address.clone(), renamed(target))).collect();
        if is_group {
            let trimmed = |name: &str| name.trim_end_matches('/').to_owned();
            let disks = self.groups.remove(&trimmed(from)).unwrap_or_default();
            self.groups.insert(trimmed(to), disks);
        }
    }
}
