//! Volumes and pools out of use: after a panic, or because a person says so; and taken into use again.
//!
//! Invariants:
//! - OUTOFUSE1. What failed stays out of use, over restarts too, until a person activates it. The group's text says so; where that
//!   cannot be committed the daemon remembers it.
//! - OUTOFUSE2. A volume that is taken into use again is so on the shard of its doors, which lead to it then.

use super::known_group::{KnownGroup, has_devices};
use crate::Control;
use crate::failures;
use crate::find::volume_name;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{
    Activate, Changed, Code, Deactivate, Failure, Group as ShownGroup, LogicalVolume as ShownVolume, Plan,
    Pool as ShownPool, VolumeState,
};
use varve_block::IoError;
use varve_vg::Change;
use varve_vg::model::LogicalVolume;
use varve_volume::spec::Accepts;

/// The reason that a group's text gives for a volume that a person took out of use.
const DEACTIVATED: &str = "deactivated";
/// Most characters of a reason (TEXT15).
const REASON_MAX: usize = 500;

impl Control {
    /// OUTOFUSE1: something in a volume or pool panicked; its shard has released it.
    pub(crate) async fn note_failed(&self, volume: Uuid, reason: &str) {
        let reason = &one_line(reason);
        let subject = self.subject(volume);
        self.fault(format!("{subject} failed: {reason}"));
        self.warn(&subject, &format!("failed and is out of use: {reason}"));
        let Ok((group, entry)) = self.entry_of(volume) else { return };
        let failure = failures::failed(&subject, entry.is_pool(), reason);
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.note_closed(volume, failure);
        }
        self.memory.remembered.borrow_mut().out_of_use.insert(volume, reason.to_owned());
        self.save_or_warn().await;
        let words = format!("{subject} failed");
        let (name, reason) = (entry.name, Some(reason.to_owned()));
        let me = self.weak();
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            let change = Change::SetInactive { volume: name, reason };
            match control.commits(group).await.make(group, change, &words).await {
                Ok(()) => control.forget_out_of_use(volume).await,
                Err(failure) => {
                    tracing::warn!(%volume, %failure, "that it failed is remembered in the state directory only");
                }
            }
        });
    }

    /// OUTOFUSE1: work on a volume has ended with a panic; its shard will say with which.
    pub(crate) fn expect_failure(&self, volume: Uuid) {
        let mut remembered = self.memory.remembered.borrow_mut();
        remembered.out_of_use.entry(volume).or_insert_with(|| "a panic".to_owned());
    }

    async fn forget_out_of_use(&self, volume: Uuid) {
        let known = self.memory.remembered.borrow_mut().out_of_use.remove(&volume);
        if known.is_some() {
            self.save_or_warn().await;
        }
    }

    /// Why a volume or pool is not to be taken into use, if so (OUTOFUSE1).
    pub(crate) fn out_of_use(&self, group: &str, entry: &LogicalVolume) -> Option<Failure> {
        let remembered = self.memory.remembered.borrow().out_of_use.get(&entry.id).cloned();
        let reason = remembered.or_else(|| entry.inactive.clone())?;
        let name = format!("{group}/{}", entry.name);
        if reason != DEACTIVATED {
            return Some(failures::failed(&name, entry.is_pool(), &reason));
        }
        let noun = if entry.is_pool() { "pool" } else { "lv" };
        Some(
            Failure::new(Code::VolumeInactive, format!("{name} is not active"))
                .help(format!("varve {noun} activate {name}")),
        )
    }

    /// Takes a volume into use again.
    pub async fn activate_volume(
        &self,
        text: &str,
        request: Activate,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let (group, entry) = self.volume_entry(text)?;
        match self.activate_entries(group, vec![entry], accepted(&request), request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_volume(text).await.map(Changed::Done),
        }
    }

    /// Takes a pool and its volumes into use again.
    pub async fn activate_pool(&self, text: &str, request: Activate) -> Result<Changed<ShownPool>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_pool(&volume_name(text)?)?;
        match self
            .activate_entries(located.group, vec![located.volume], accepted(&request), request.dry_run)
            .await?
        {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_pool(text).await.map(Changed::Done),
        }
    }

    /// Takes everything in a group into use again.
    pub async fn activate_whole_group(
        &self,
        name: &str,
        request: Activate,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_of(name).await?;
        let group = self.find_group(name)?;
        let entries = self.with_group(group, |known| known.group.logical_volumes().to_vec())?;
        match self.activate_entries(group, entries, accepted(&request), request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_group(name).await.map(Changed::Done),
        }
    }

    /// Takes a volume out of use until it is activated.
    pub async fn deactivate_volume(
        &self,
        text: &str,
        request: Deactivate,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let (group, entry) = self.volume_entry(text)?;
        match self.deactivate_entries(group, vec![entry], request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_volume(text).await.map(Changed::Done),
        }
    }

    /// Takes a pool and its volumes out of use until it is activated.
    pub async fn deactivate_pool(
        &self,
        text: &str,
        request: Deactivate,
    ) -> Result<Changed<ShownPool>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_pool(&volume_name(text)?)?;
        match self.deactivate_entries(located.group, vec![located.volume], request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_pool(text).await.map(Changed::Done),
        }
    }

    /// Takes everything in a group out of use until it is activated.
    pub async fn deactivate_whole_group(
        &self,
        name: &str,
        request: Deactivate,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let _lock = self.lock_of(name).await?;
        let group = self.find_group(name)?;
        let entries = self.with_group(group, |known| known.group.logical_volumes().to_vec())?;
        match self.deactivate_entries(group, entries, request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_group(name).await.map(Changed::Done),
        }
    }

    /// A volume that has space of its own.
    fn volume_entry(&self, text: &str) -> Result<(Uuid, LogicalVolume), Failure> {
        let name = volume_name(text)?;
        let located = self.find_any_volume(&name)?;
        let Some(thin) = &located.thin else { return Ok((located.group, located.volume)) };
        let pool = self.subject(thin.pool);
        Err(Failure::new(Code::Usage, format!("{name} is used as long as its pool is"))
            .help(format!("varve pool activate {pool}, varve pool deactivate {pool}")))
    }

    /// Takes volumes and pools into use, of whose arrays a person has accepted something.
    pub(crate) async fn activate_entries(
        &self,
        group: Uuid,
        entries: Vec<LogicalVolume>,
        accepts: Accepts,
        dry_run: bool,
    ) -> Result<Option<Plan>, Failure> {
        let idle: Vec<LogicalVolume> = self.with_group(group, |known| {
            let is_idle =
                |entry: &LogicalVolume| known.homes.get(&entry.id).is_none_or(|home| home.unusable.is_some());
            entries.into_iter().filter(is_idle).collect()
        })?;
        if dry_run {
            let loss = |entry: &LogicalVolume| match self.unusable(entry.id).filter(|_| accepts.missing) {
                Some(failure) => {
                    let why = failure.message;
                    format!(" although it is refused ({why}); what only its missing members have is lost")
                }
                None => String::new(),
            };
            let step = |entry: &LogicalVolume| {
                format!("would take {} into use{}", self.subject(entry.id), loss(entry))
            };
            return Ok(Some(Plan::of_steps(idle.iter().map(step).collect())));
        }
        for entry in &idle {
            if entry.inactive.is_some() {
                let words = format!("{} activated", self.subject(entry.id));
                let change = Change::SetInactive { volume: entry.name.clone(), reason: None };
                self.commits(group).await.make(group, change, &words).await?;
            }
            self.forget_out_of_use(entry.id).await;
        }
        self.arrays.accepted.borrow_mut().extend(idle.iter().map(|entry| (entry.id, accepts)));
        self.converge(group).await;
        self.arrays.accepted.borrow_mut().retain(|id, _| idle.iter().all(|entry| entry.id != *id));
        match idle.iter().find_map(|entry| self.unusable(entry.id)) {
            Some(failure) => Err(failure),
            None => Ok(None),
        }
    }

    async fn deactivate_entries(
        &self,
        group: Uuid,
        entries: Vec<LogicalVolume>,
        dry_run: bool,
    ) -> Result<Option<Plan>, Failure> {
        let mut active: Vec<LogicalVolume> =
            entries.into_iter().filter(|entry| entry.inactive.is_none()).collect();
        active.sort_by_key(|entry| !has_devices(entry)); // CONTROLMAPPER2
        self.refuse_if_needed(group, &active).await?;
        if dry_run {
            let step = |entry: &LogicalVolume| format!("would take {} out of use", self.subject(entry.id));
            return Ok(Some(Plan::of_steps(active.iter().map(step).collect())));
        }
        for entry in &active {
            let words = format!("{} deactivated", self.subject(entry.id));
            let change = Change::SetInactive { volume: entry.name.clone(), reason: Some(DEACTIVATED.into()) };
            self.commits(group).await.make(group, change, &words).await?;
        }
        let mut ended = Ok(());
        for entry in &active {
            if let Some(home) = self.home_of(entry.id) {
                ended = ended.and(self.deactivate(group, entry.id, &home).await);
            }
        }
        self.converge(group).await; // What is out of use is known with the reason.
        ended.map(|()| None)
    }

    /// Refuses to take out of use what is exported, busy, or below something else that is in use.
    async fn refuse_if_needed(&self, group: Uuid, entries: &[LogicalVolume]) -> Result<(), Failure> {
        let ids: BTreeSet<Uuid> = entries.iter().map(|entry| entry.id).collect();
        let names = self.with_group(group, |known| {
            let thin = ids.iter().flat_map(|id| known.thin.of(*id)).map(|thin| thin.id);
            let all = ids.iter().copied().chain(thin);
            all.collect::<Vec<Uuid>>()
        })?;
        for id in names {
            self.refuse_if_busy(id)?;
            if let Ok(name) = self.subject(id).parse() {
                self.refuse_if_exported(id, &name, true)?;
            }
        }
        let mapped = self.with_group(group, |known| {
            let mut granted = entries.iter().filter_map(|entry| known.group.granted_to(entry.id));
            granted.find(|to| !ids.contains(&to.id) && to.inactive.is_none()).map(|to| to.id)
        })?;
        if let Some(mapped) = mapped.map(|mapped| self.subject(mapped)) {
            let message = format!("{mapped} is backed by it, as its mapper says");
            return Err(
                Failure::new(Code::VolumeBusy, message).help(format!("varve lv deactivate {mapped} first"))
            );
        }
        let over = self.pools_over(group, entries).await?;
        match over.iter().find(|(pool, _)| !ids.contains(pool)) {
            None => Ok(()),
            Some((pool, volume)) => Err(Failure::new(Code::VolumeBusy, format!("{volume} is backed by it"))
                .help(format!("varve pool deactivate {} first", self.subject(*pool)))),
        }
    }

    /// Pools in use of which a volume is backed by one of `entries` or a snapshot of it, and the name of the first such volume.
    pub(crate) async fn pools_over(
        &self,
        group: Uuid,
        entries: &[LogicalVolume],
    ) -> Result<Vec<(Uuid, String)>, Failure> {
        let stores = entries.iter().flat_map(|entry| entry.stores().map(|store| store.id));
        let below: BTreeSet<Uuid> = entries.iter().map(|entry| entry.id).chain(stores).collect();
        let mut over = Vec::new();
        for (pool, home) in self.with_group(group, KnownGroup::pools_in_use)? {
            let above = home.pool(pool).all_above().await;
            let above = above.map_err(failures::gone)?;
            if let Some(above) = above.iter().find(|above| below.contains(&above.origin.backing.id())) {
                over.push((pool, above.name.clone()));
            }
        }
        Ok(over)
    }
}

fn accepted(request: &Activate) -> Accepts {
    Accepts { missing: request.accept_missing, ..Accepts::default() }
}

/// How a volume or pool stands that cannot be used, or can, and why; `failure` is what its last change failed with.
pub(crate) fn state_of(
    unusable: Option<&Failure>,
    failure: Option<IoError>,
) -> (VolumeState, Option<String>) {
    let state = match (unusable.map(|failure| failure.code), failure) {
        (None, None) => VolumeState::Active,
        (None, Some(error)) => {
            let reason =
                format!("it takes no changes since one failed ({error}): varve pv scan opens it anew");
            return (VolumeState::Failing, Some(reason));
        }
        (Some(Code::VolumeFailed), _) => VolumeState::Failed,
        (Some(Code::VolumeInactive), _) => VolumeState::Inactive,
        (Some(Code::VolumeBusy), _) => VolumeState::Clearing,
        (Some(_), _) => VolumeState::Unusable,
    };
    (state, unusable.map(|failure| failure.message.clone()))
}

/// Whether a person has taken a volume or pool out of use.
pub(crate) fn is_deactivated(entry: &LogicalVolume) -> bool {
    entry.inactive.as_deref() == Some(DEACTIVATED)
}

/// The text takes a reason of one line and of so many characters (TEXT15).
fn one_line(reason: &str) -> String {
    let plain = reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(REASON_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_into_the_text_of_a_group() {
        assert_eq!(one_line("a panic:\n\tleft == right"), "a panic:  left == right");
        assert_eq!(one_line(&"ü".repeat(1000)).chars().count(), REASON_MAX);
    }
}
