//! What users ask of the trash.

use super::Trash;
use crate::find::{LocatedVolume, volume_name};
use crate::group::change::shown;
use crate::group::known_group::KnownGroup;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Empty, Failure, GroupTrash, Plan, Removed, TrashEmpty, TrashItem, TrashRestore,
    TrashRestored,
};
use varve_vg::Change;
use varve_vg::model::{Trashed, areas};
use varve_vg::names::VolumeName;
use varve_vg::plan::TrashStep;
use varve_vg::size::parse_seconds;
use varve_volume::content::thin::{InTrash, ThinVolume};

impl Trash<'_> {
    /// What is in the trash of all groups, or of one, the oldest first.
    pub fn list(&self, group: Option<&str>) -> Result<Vec<TrashItem>, Failure> {
        let only = group.map(|name| self.control.find_group(name)).transpose()?;
        let now = self.control.now();
        let groups = self.control.groups.known.borrow();
        let wanted = groups.iter().filter(|(id, _)| only.is_none_or(|only| only == **id));
        let own = |known: &KnownGroup| -> Vec<TrashItem> {
            let own = known.group.trash().iter().map(|entry| item(known, entry, now));
            own.chain(known.thin.trash().map(|(thin, trash)| thin_item(known, thin, trash, now))).collect()
        };
        let mut items: Vec<TrashItem> = wanted.flat_map(|(_, known)| own(known)).collect();
        items.sort_by_key(|item| item.removed); // Of one second in the order in which they are given up.
        Ok(items)
    }

    /// Brings a volume or pool back.
    pub async fn restore(
        &self,
        text: &str,
        request: TrashRestore,
    ) -> Result<Changed<TrashRestored>, Failure> {
        let _lock = self.control.lock_of(text).await?;
        let name = volume_name(text)?;
        let (group, entry) = self.find(&name)?;
        let to = request.name.clone().unwrap_or_else(|| entry.name().to_owned());
        self.refuse_taken(group, &name, &to)?;
        let restored = VolumeName { volume: to.clone(), ..name.clone() };
        let done = TrashRestored { name: restored.to_string(), id: entry.id().to_string() };
        let entry = match entry {
            Entry::Own(entry) => entry,
            Entry::Thin(thin) => {
                let planned = self.restore_thin(group, &thin, (&name, &restored), request.dry_run).await?;
                return Ok(planned.map_or(Changed::Done(done), Changed::Planned));
            }
        };
        let commits = self.control.commits(group).await;
        let step = TrashStep::Restore { id: entry.volume.id, name: to.clone() };
        let planned = commits.plan(group, Change::Trash(step), &format!("trash restore {name}"))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.control.converge(group).await;
        Ok(Changed::Done(done))
    }

    /// Gives up what is in the trash of a group, or one thing of it.
    pub async fn empty(&self, text: &str, request: TrashEmpty) -> Result<Changed<Empty>, Failure> {
        let _lock = self.control.lock_of(text).await?;
        let (group, entries) = match text.contains('/') {
            true => {
                let (group, entry) = self.find(&volume_name(text)?)?;
                (group, vec![entry])
            }
            false => {
                let group = self.control.find_group(text)?;
                (group, self.control.with_group(group, |known| entries(known).collect())?)
            }
        };
        let (ids, thin) = apart(entries);
        let name = self.control.with_group(group, |known| known.group.name().to_owned())?;
        let plan = Plan::of_steps(thin.iter().map(|thin| Self::step_without(&name, thin)).collect());
        if !ids.is_empty() {
            let commits = self.control.commits(group).await;
            let change = Change::Trash(TrashStep::Empty { ids });
            let planned = commits.plan(group, change, &format!("trash empty {text}"))?;
            if request.dry_run {
                return Ok(Changed::Planned(shown(&planned).and(plan)));
            }
            commits.commit(group, planned, Vec::new()).await?;
        }
        if request.dry_run {
            return Ok(Changed::Planned(plan));
        }
        self.give_up_thin(group, &thin).await?;
        Ok(Changed::Done(Empty {}))
    }

    /// Whether a volume or pool that is removed goes to the trash. What takes no space of its group leaves nothing that could be kept, and of a
    /// new one of which nothing was served yet nothing is lost. A thin volume over an origin goes at once: else the origin could not go either.
    pub(crate) fn takes(&self, located: &LocatedVolume) -> bool {
        let is_new = located.uncleared == Some(0);
        let keep = self.control.with_group(located.group, |known| known.group.trash_keep_s()).unwrap_or(0);
        let is_kept = match &located.thin {
            Some(thin) => thin.origin.is_none(),
            None => located.volume.layout.takes_space(),
        };
        keep > 0 && !is_new && is_kept
    }

    /// Puts a volume or pool into the trash, with its snapshots. The caller has the lock of the group, and has seen that nothing uses it.
    pub(crate) async fn put(
        &self,
        located: &LocatedVolume,
        words: &str,
        dry_run: bool,
    ) -> Result<Changed<Removed>, Failure> {
        let commits = self.control.commits(located.group).await;
        let step = TrashStep::Put { name: located.volume.name.clone() };
        let planned = commits.plan(located.group, Change::Trash(step), words)?;
        if dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        let until = planned.after.trash().iter().find(|entry| entry.volume.id == located.volume.id);
        let until = until.map(|entry| entry.until.0);
        match self.control.commit_removal(commits, planned, located).await? {
            Changed::Done(_) => Ok(Changed::Done(Removed { until })),
            Changed::Planned(plan) => Ok(Changed::Planned(plan)),
        }
    }

    /// Gives up what is too old. The caller has the lock of the group.
    pub(crate) async fn empty_old(&self, group: Uuid, ids: &[Uuid]) {
        let Ok(meant) = self.control.with_group(group, |known| -> Vec<Entry> {
            entries(known).filter(|entry| ids.contains(&entry.id())).collect()
        }) else {
            return;
        };
        let (ids, thin) = apart(meant);
        let words = "what was in the trash for its time is given up";
        let mut emptied = self.give_up_thin(group, &thin).await;
        if !ids.is_empty() {
            let change = Change::Trash(TrashStep::Empty { ids });
            emptied = emptied.and(self.control.commits(group).await.make(group, change, words).await);
        }
        if let Err(failure) = emptied {
            tracing::warn!(%group, %failure, "the trash cannot be emptied: it is tried again");
        }
    }

    /// Declares how long what is removed stays.
    pub(crate) async fn keep(&self, group: Uuid, text: &str, dry_run: bool) -> Result<Option<Plan>, Failure> {
        let commits = self.control.commits(group).await;
        let (change, name) = (keep_change(text)?, commits.group(group)?.name().to_owned());
        let planned = commits.plan(group, change, &format!("trash of group {name} kept for {text}"))?;
        if dry_run {
            return Ok(Some(shown(&planned)));
        }
        commits.commit(group, planned, Vec::new()).await?;
        Ok(None)
    }

    /// What `VG/NAME` or `VG/ID` names in the trash.
    fn find(&self, name: &VolumeName) -> Result<(Uuid, Entry), Failure> {
        let group = self.control.find_group(&name.group)?;
        let id = Uuid::parse_str(&name.volume).ok();
        let found: Vec<Entry> = self.control.with_group(group, |known| {
            let is_meant = |entry: &Entry| entry.name() == name.volume || Some(entry.id()) == id;
            entries(known).filter(is_meant).collect()
        })?;
        match found.as_slice() {
            [entry] => Ok((group, entry.clone())),
            [] => {
                let message = format!("there is no {name} in the trash");
                Err(Failure::new(Code::TrashNotFound, message)
                    .help(format!("varve trash list {}", name.group)))
            }
            [entry, ..] => {
                let message = format!("{} of the name {name} are in the trash", found.len());
                let help = format!("name it by its identity, such as {}/{}", name.group, entry.id());
                Err(Failure::new(Code::TrashAmbiguous, message).help(help))
            }
        }
    }

    /// Refuses to bring something back under a name that another volume or pool has by now.
    fn refuse_taken(&self, group: Uuid, name: &VolumeName, to: &str) -> Result<(), Failure> {
        let is_taken = self
            .control
            .with_group(group, |known| known.group.lv(to).is_some() || known.thin.named(to).is_some())?;
        if !is_taken {
            return Ok(());
        }
        let message = format!("the name {}/{to} is taken by now", name.group);
        Err(Failure::new(Code::VolumeExists, message).help(format!("varve trash restore {name} --as NEW")))
    }
}

/// Something in the trash: in the text of the group, or in a pool.
#[derive(Clone)]
enum Entry {
    Own(Box<Trashed>),
    Thin(ThinVolume),
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Entry::Own(entry) => &entry.volume.name,
            Entry::Thin(thin) => &thin.name,
        }
    }

    const fn id(&self) -> Uuid {
        match self {
            Entry::Own(entry) => entry.volume.id,
            Entry::Thin(thin) => thin.id,
        }
    }
}

/// All that is in the trash of a group.
fn entries(known: &KnownGroup) -> impl Iterator<Item = Entry> {
    let own = known.group.trash().iter().map(|entry| Entry::Own(Box::new(entry.clone())));
    own.chain(known.thin.trash().map(|(thin, _)| Entry::Thin(thin.clone())))
}

/// What the text of the group holds, and what pools hold.
fn apart(entries: Vec<Entry>) -> (Vec<Uuid>, Vec<ThinVolume>) {
    let (mut own, mut thin) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Own(entry) => own.push(entry.volume.id),
            Entry::Thin(volume) => thin.push(volume),
        }
    }
    (own, thin)
}

/// The change that `--trash TIME` asks for.
fn keep_change(text: &str) -> Result<Change, Failure> {
    let refused = || {
        let message = format!("{text:?} is not how long what is removed stays in the trash");
        Failure::new(Code::Usage, message).help("--trash 24h, 7d or 0; at most 366d")
    };
    let seconds = match text {
        "0" => 0,
        _ => parse_seconds(text).ok_or_else(refused)?,
    };
    Ok(Change::Trash(TrashStep::Keep { seconds }))
}

/// Something in the trash, as it is shown.
fn item(known: &KnownGroup, entry: &Trashed, now: u64) -> TrashItem {
    let volume = &entry.volume;
    let extents: u64 = areas(volume).map(|area| area.count).sum();
    TrashItem {
        name: format!("{}/{}", known.group.name(), volume.name),
        id: volume.id.to_string(),
        group: known.group.name().to_owned(),
        is_pool: volume.is_pool(),
        pool: None,
        has_snapshots: volume.stores().next().is_some(),
        size: volume.size(known.group.extent_size()),
        gives_back: known.group.bytes(extents),
        removed: entry.removed.0,
        until: entry.until.0,
        left: entry.until.0.saturating_sub(now),
    }
}

fn thin_item(known: &KnownGroup, thin: &ThinVolume, trash: InTrash, now: u64) -> TrashItem {
    let pool = known.group.logical_volumes().iter().find(|entry| entry.id == thin.pool);
    let group = known.group.name();
    TrashItem {
        name: format!("{group}/{}", thin.name),
        id: thin.id.to_string(),
        group: group.to_owned(),
        is_pool: false,
        pool: pool.map(|pool| format!("{group}/{}", pool.name)),
        has_snapshots: trash.snapshots > 0,
        size: thin.bytes,
        gives_back: trash.mapped,
        removed: trash.time.removed,
        until: trash.time.until,
        left: trash.time.until.saturating_sub(now),
    }
}

/// What the trash of a group holds.
pub(crate) fn shown_trash(known: &KnownGroup) -> GroupTrash {
    GroupTrash {
        count: (known.group.trash().len() + known.thin.trash().count()) as u64,
        bytes: known.group.trash_bytes(),
        keep: known.group.trash_keep_s(),
    }
}
