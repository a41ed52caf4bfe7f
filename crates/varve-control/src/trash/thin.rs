//! Thin volumes in the trash: their pools keep them, and give them up before a write fails for want of space.
//!
//! Invariant TRASHTHIN1: a thin volume goes into the trash and out of it by one commit of its pool. The text of the group says nothing of it.

use super::Trash;
use crate::find::LocatedVolume;
use crate::schedules::Schedules;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::{Changed, Failure, Plan, Removed};
use varve_format::text::TRASH_MAX;
use varve_target::thin::Trashed;
use varve_vg::names::VolumeName;
use varve_vg::plan::every_text;
use varve_vg::size::format_size;
use varve_volume::content::thin::{InTrash, ThinVolume};

impl Trash<'_> {
    /// Puts a thin volume into the trash, with its snapshots. The caller has the lock of the group, and has seen that nothing uses it.
    pub(crate) async fn put_thin(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        dry_run: bool,
    ) -> Result<Changed<Removed>, Failure> {
        let thin = located.thin.as_ref().expect("the caller found a thin volume");
        let (group, pool, number) = (located.group, thin.pool, thin.number);
        let keep = self.control.with_group(group, |known| known.group.trash_keep_s())?;
        let too_many = self.too_many(group, pool)?;
        if dry_run {
            let (size, time) = (format_size(thin.bytes), every_text(keep));
            let emptied = too_many
                .iter()
                .map(|oldest| format!("would empty the trash of {}/{}", name.group, oldest.name));
            let put = format!("would move {name} ({size}) to the trash, where it stays for {time}");
            return Ok(Changed::Planned(Plan::of_steps(emptied.chain([put]).collect())));
        }
        self.give_up_thin(group, &too_many).await?;
        let removed = self.control.now();
        let trashed = Trashed { removed, until: removed.saturating_add(keep) };
        self.control.forget_flattening(|place| place == (pool, number)).await;
        let put = located.home.pool(pool).put_into_trash(number, trashed);
        let put = self.control.answered(pool, put.await);
        self.control.look_at_thin(group, pool, number).await?;
        put?;
        self.control.event(&name.to_string(), "thin volume moved to the trash");
        Ok(Changed::Done(Removed { until: Some(trashed.until) }))
    }

    /// What of a pool's trash goes before there is room for one more.
    fn too_many(&self, group: Uuid, pool: Uuid) -> Result<Vec<ThinVolume>, Failure> {
        let mut all: Vec<(ThinVolume, InTrash)> = self.control.with_group(group, |known| {
            let own = known.thin.trash().filter(|(thin, _)| thin.pool == pool);
            own.map(|(thin, trash)| (thin.clone(), trash)).collect()
        })?;
        all.sort_by_key(|(thin, trash)| (trash.time, thin.number));
        let more = (all.len() + 1).saturating_sub(TRASH_MAX);
        Ok(all.into_iter().take(more).map(|(thin, _)| thin).collect())
    }

    /// Brings a thin volume back. Its name is free.
    pub(super) async fn restore_thin(
        &self,
        group: Uuid,
        thin: &ThinVolume,
        (name, to): (&VolumeName, &VolumeName),
        dry_run: bool,
    ) -> Result<Option<Plan>, Failure> {
        let promised = thin.trash.map_or(thin.bytes, |trash| trash.promised);
        self.control.refuse_over_commit(group, thin.pool, promised).await?;
        if dry_run {
            let size = format_size(thin.bytes);
            return Ok(Some(Plan::of_steps(vec![match thin.name == to.volume {
                true => format!("would bring {to} ({size}) back from the trash"),
                false => {
                    format!("would bring {}/{} ({size}) back from the trash as {to}", name.group, thin.name)
                }
            }])));
        }
        let home = self.control.home_of_pool(thin.pool)?;
        let restored = home.pool(thin.pool).restore(thin.number, to.volume.clone());
        let restored = self.control.answered(thin.pool, restored.await);
        self.control.look_at_thin(group, thin.pool, thin.number).await?;
        restored?;
        self.control.event(&to.to_string(), "brought back from the trash");
        Ok(None)
    }

    /// Gives up thin volumes of the trash.
    pub(super) async fn give_up_thin(&self, group: Uuid, volumes: &[ThinVolume]) -> Result<(), Failure> {
        let mut pools = BTreeMap::<Uuid, Vec<u64>>::new();
        volumes.iter().for_each(|thin| pools.entry(thin.pool).or_default().push(thin.number));
        for (pool, numbers) in pools {
            let home = self.control.home_of_pool(pool)?;
            let given_up = home.pool(pool).give_up(numbers);
            let given_up = self.control.answered(pool, given_up.await);
            self.control.look_at_pool(group, pool).await?;
            given_up?;
        }
        for thin in volumes {
            Schedules::of(self.control).forget_volume(group, thin.id).await;
        }
        if !volumes.is_empty() {
            self.control.reconcile_origins(group).await;
        }
        Ok(())
    }

    /// What goes with a pool that is removed for good.
    pub(crate) fn plan_without(&self, group: Uuid, pool: Uuid) -> Result<Plan, Failure> {
        self.control.with_group(group, |known| {
            let own = known.thin.trash().filter(|(thin, _)| thin.pool == pool);
            Plan::of_steps(own.map(|(thin, _)| Self::step_without(known.group.name(), thin)).collect())
        })
    }

    /// What a plan says of a thin volume that is given up.
    pub(super) fn step_without(group: &str, thin: &ThinVolume) -> String {
        let mapped = format_size(thin.trash.map_or(0, |trash| trash.mapped));
        format!("would empty the trash of {group}/{} ({mapped} of its pool)", thin.name)
    }

    /// A pool has given up a thin volume of its trash, for want of space.
    pub(crate) async fn note_dropped(&self, pool: Uuid, number: u64, name: &str) {
        let Ok((group, _)) = self.control.entry_of(pool) else { return };
        let full = self.control.with_group(group, |known| format!("{}/{name}", known.group.name()));
        self.control.warn(&full.unwrap_or_default(), "given up in the trash: its pool was nearly full");
        let looked = self.control.look_at_thin(group, pool, number).await;
        if let Err(failure) = looked {
            tracing::warn!(%pool, %failure, "a pool does not tell what is in its trash");
        }
        self.control.reconcile_origins(group).await;
    }
}
