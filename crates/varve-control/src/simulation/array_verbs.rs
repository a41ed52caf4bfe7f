//! Commands about arrays as data: what each changes in the model, and how it is given to the daemon.

use super::Event;
use super::model::Model;
use super::verbs::{EXTENT_SIZE, VOLUMES_MAX, Verb, new_name, pick};
use crate::Control;
use varve_api::{
    ArrayChange, ArrayPolicyWords, ArrayReplace, ArrayScrub, Convert, Failure, Layout, PhysicalVolumeChange,
    PhysicalVolumeReplace, PoolCreate, Split, VolumeCreate,
};
use varve_block::{KIB, MIB};
use varve_sim::Random;

/// Disks of a group in whose histories arrays fail.
pub(super) const ARRAY_DISKS_MAX: u64 = 5;
/// Sizes of volumes are a multiple of this, so that every layout has whole rows of them.
const ROW: u64 = 4 * EXTENT_SIZE;

/// How an array is laid out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Linear,
    Striped,
    Mirror(u32),
    Ddraid(u32),
}

impl Form {
    fn pick(random: &mut Random) -> Self {
        *random.pick(&[Form::Mirror(2), Form::Mirror(3), Form::Ddraid(1), Form::Ddraid(1), Form::Ddraid(2)])
    }

    fn layout(self) -> Layout {
        match self {
            Form::Linear => Layout::Linear,
            Form::Striped => Layout::Striped,
            Form::Mirror(_) => Layout::Mirror,
            Form::Ddraid(_) => Layout::Ddraid,
        }
    }

    fn stripes(self) -> Option<u32> {
        matches!(self, Form::Striped).then_some(2)
    }

    fn copies(self) -> Option<u32> {
        if let Form::Mirror(copies) = self { Some(copies) } else { None }
    }

    fn order(self) -> Option<u32> {
        if let Form::Ddraid(order) = self { Some(order) } else { None }
    }
}

/// A command about arrays.
#[derive(Clone, Debug)]
pub(super) enum ArrayVerb {
    CreateVolume {
        name: String,
        size: u64,
        form: Form,
        checksums: bool,
    },
    CreatePool {
        name: String,
        size: u64,
        form: Form,
        checksums: bool,
    },
    /// The members on a disk, all or those of one volume or pool, are put on others, and are filled while other commands come.
    Replace {
        disk: String,
        only: Option<String>,
    },
    /// Goes on while other commands come, and ends with the daemon.
    Scrub {
        name: String,
    },
    /// Goes on while other commands come.
    Convert {
        name: String,
        is_pool: bool,
        form: Form,
    },
    Split {
        name: String,
        to: String,
    },
    SetSpare {
        disk: String,
        is_spare: bool,
    },
    ChangePolicy {
        name: String,
        seconds: u64,
    },
}

impl Verb {
    /// A command of a history in which arrays fail, that the model allows.
    pub(super) fn pick_of_arrays(model: &Model, random: &mut Random) -> Verb {
        loop {
            let verb = match model.groups.is_empty() {
                true => Some(Self::new_array_group(random)),
                false if model.volumes.is_empty() => ArrayVerb::new_volume(model, random).map(Verb::Array),
                false if random.chance(1, 2) => ArrayVerb::pick(model, random).map(Verb::Array),
                false => Some(Self::pick(model, random)),
            };
            if let Some(verb) = verb.filter(|verb| verb.fits_arrays(model)) {
                return verb;
            }
        }
    }

    fn new_array_group(random: &mut Random) -> Verb {
        let (name, first) = (new_name("g", |_| false, random), random.below(1 << 40));
        let disks = (0..random.between(4, ARRAY_DISKS_MAX + 1))
            .map(|number| format!("/disks/{name}-{first}-{number}"));
        Verb::CreateGroup { disks: disks.collect(), name }
    }

    /// Whether it is one of these histories: one group of several disks, with whole rows of all layouts, no images and no mappers.
    fn fits_arrays(&self, model: &Model) -> bool {
        match self {
            Verb::CreateGroup { .. } => model.groups.is_empty(),
            Verb::ReduceGroup { name, .. } => model.groups[name].len() > 4,
            Verb::CreateInImage { .. } | Verb::CreateMapped { .. } => false,
            Verb::CreateVolume { .. } | Verb::CreatePool { .. } => false,
            Verb::Convert { .. } => false,
            Verb::Resize { name, size, .. } => {
                model.volumes[name].pool.is_some() || (size.is_multiple_of(ROW) && *size > 0)
            }
            _ => true,
        }
    }
}

impl ArrayVerb {
    fn pick(model: &Model, random: &mut Random) -> Option<Self> {
        let disk = |random: &mut Random| pick(model.groups.values().flatten(), random).cloned();
        match random.below(14) {
            0..=2 if model.volumes.len() < VOLUMES_MAX => Self::new_volume(model, random),
            3 if model.pools.len() < 2 => {
                let group = pick(model.groups.keys(), random)?;
                let is_used = |name: &str| model.pools.contains(&format!("{group}/{name}"));
                let name = format!("{group}/{}", new_name("p", is_used, random));
                let (form, checksums) = (Form::pick(random), random.chance(1, 3));
                Some(Self::CreatePool { name, size: random.between(2, 6) * MIB, form, checksums })
            }
            4..=6 => {
                let only = pick(Self::subjects(model), random).filter(|_| random.chance(1, 2));
                Some(Self::Replace { disk: disk(random)?, only })
            }
            7 | 8 => Some(Self::Scrub { name: pick(Self::subjects(model), random)? }),
            9 | 10 => {
                let name = pick(Self::subjects(model), random)?;
                let form = *random.pick(&[
                    Form::Linear,
                    Form::Striped,
                    Form::Mirror(2),
                    Form::Mirror(3),
                    Form::Ddraid(1),
                ]);
                Some(Self::Convert { is_pool: model.pools.contains(&name), name, form })
            }
            11 if model.volumes.len() < VOLUMES_MAX => {
                let is_mirror = |(_, volume): &(&String, &super::model::Volume)| {
                    volume.pool.is_none()
                        && volume.snapshots.is_empty()
                        && (volume.is_converted || volume.layout == Layout::Mirror)
                };
                let (name, _) = pick(model.volumes.iter().filter(is_mirror), random)?;
                let (group, _) = name.split_once('/')?;
                let is_used = |own: &str| model.is_used(&format!("{group}/{own}"));
                Some(Self::Split { name: name.clone(), to: new_name("v", is_used, random) })
            }
            12 => Some(Self::SetSpare { disk: disk(random)?, is_spare: random.chance(2, 3) }),
            _ => {
                let (name, seconds) = (pick(Self::subjects(model), random)?, random.between(1, 4));
                Some(Self::ChangePolicy { name, seconds })
            }
        }
    }

    /// Volumes that are not thin, and pools.
    fn subjects(model: &Model) -> impl Iterator<Item = String> {
        let thick = model.volumes.iter().filter(|(_, volume)| volume.pool.is_none());
        thick.map(|(name, _)| name).chain(&model.pools).cloned()
    }

    fn new_volume(model: &Model, random: &mut Random) -> Option<Self> {
        let group = pick(model.groups.keys(), random)?;
        let is_used = |name: &str| model.is_used(&format!("{group}/{name}"));
        let name = format!("{group}/{}", new_name("v", is_used, random));
        let form = if random.chance(1, 8) { Form::Linear } else { Form::pick(random) };
        let checksums = !matches!(form, Form::Linear) && random.chance(1, 3);
        Some(Self::CreateVolume { name, size: random.between(1, 4) * ROW, form, checksums })
    }

    /// The model after it.
    pub(super) fn apply(self, after: &mut Model) {
        match self {
            Self::CreateVolume { name, size, form, .. } => after.add(&name, size, form.layout(), None),
            Self::CreatePool { name, .. } => drop(after.pools.insert(name)),
            Self::Convert { name, is_pool: false, .. } => {
                after.volumes.get_mut(&name).expect("it is there").is_converted = true;
            }
            Self::Split { name, to } => {
                let (group, _) = name.split_once('/').expect("VG/LV");
                after.add_copy(&name, &format!("{group}/{to}"));
                after.volumes.get_mut(&name).expect("it is there").is_converted = true; // It may be linear now.
            }
            _ => {} // Nothing that is seen through doors and lists.
        }
    }

    /// What it is, if it is counted.
    pub(super) fn event(&self) -> Option<Event> {
        match self {
            Self::Replace { .. } => Some(Event::Replaced),
            Self::Scrub { .. } => Some(Event::Scrubbed),
            Self::Convert { .. } => Some(Event::Converted),
            Self::Split { .. } => Some(Event::Split),
            Self::SetSpare { .. } => Some(Event::Spares),
            Self::CreateVolume { .. } | Self::CreatePool { .. } | Self::ChangePolicy { .. } => None,
        }
    }

    /// Gives the command.
    pub(super) async fn issue(self, control: &Control) -> Result<(), Failure> {
        let slow_after =
            |seconds: u64| ArrayPolicyWords { slow_after: Some(format!("{seconds}s")), ..Default::default() };
        match self {
            Self::CreateVolume { name, size, form, checksums } => {
                let array_policy =
                    if form.layout() == Layout::Linear { Default::default() } else { slow_after(2) };
                let (layout, copies, order) = (Some(form.layout()), form.copies(), form.order());
                let size = size.to_string();
                let request = VolumeCreate {
                    name,
                    size,
                    layout,
                    copies,
                    order,
                    checksums,
                    array_policy,
                    ..Default::default()
                };
                control.create_volume(request).await.map(drop)
            }
            Self::CreatePool { name, size, form, checksums } => {
                let (layout, copies, order, array_policy) =
                    (Some(form.layout()), form.copies(), form.order(), slow_after(2));
                let (size, block_size) = (size.to_string(), Some((16 * KIB).to_string()));
                let request = PoolCreate {
                    name,
                    size,
                    block_size,
                    layout,
                    copies,
                    order,
                    checksums,
                    array_policy,
                    ..Default::default()
                };
                control.create_pool(request).await.map(drop)
            }
            Self::Replace { disk: from, only: None } => {
                control.replace_disk(PhysicalVolumeReplace { from, ..Default::default() }).await.map(drop)
            }
            Self::Replace { disk, only: Some(name) } => {
                control.replace_members(&name, ArrayReplace { disk, ..Default::default() }).await.map(drop)
            }
            Self::Scrub { name } => control.scrub_array(&name, ArrayScrub::default()).await.map(drop),
            Self::Convert { name, is_pool, form } => {
                let (layout, stripes, copies, order) =
                    (Some(form.layout()), form.stripes(), form.copies(), form.order());
                let request = Convert { layout, stripes, copies, order, ..Default::default() };
                match is_pool {
                    true => control.convert_pool(&name, request).await.map(drop),
                    false => control.convert_volume(&name, request).await.map(drop),
                }
            }
            Self::Split { name, to } => {
                control.split_volume(&name, Split { to, ..Default::default() }).await.map(drop)
            }
            Self::SetSpare { disk, is_spare } => {
                let request = PhysicalVolumeChange { disk, spare: Some(is_spare), ..Default::default() };
                control.change_disk(request).await.map(drop)
            }
            Self::ChangePolicy { name, seconds } => {
                let request = ArrayChange { policy: slow_after(seconds), ..Default::default() };
                control.change_arrays(&name, request).await.map(drop)
            }
        }
    }
}
