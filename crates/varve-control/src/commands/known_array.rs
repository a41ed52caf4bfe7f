//! An array of a volume or pool, and what its members are worth.

use crate::group::known_group::KnownGroup;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_target::array::{ArrayStatus, MemberState, MemberStatus};
use varve_vg::model::{Layout, LogicalVolume, PvName, Space};
use varve_volume::ShardHandle;

/// An array of a volume or pool.
#[derive(Clone)]
pub(crate) struct KnownArray {
    pub(crate) id: Uuid,
    /// The volume or pool.
    pub(crate) volume: LogicalVolume,
    /// The store that it is, if it is one.
    pub(crate) store: Option<Uuid>,
    /// Where the volume is served.
    pub(crate) home: Option<ShardHandle>,
    /// Why it is not served, if so.
    pub(crate) unusable: Option<Failure>,
    /// How it does, if it is open.
    pub(crate) status: Option<ArrayStatus>,
}

impl KnownArray {
    /// What of the volume it is, for a sentence: its bytes, or a snapshot store.
    pub(crate) fn of_what(&self) -> &'static str {
        if self.store.is_some() { "a snapshot store of " } else { "" }
    }

    pub(crate) fn space(&self) -> Space<'_> {
        let store = self.store.and_then(|id| self.volume.stores().find(|store| store.id == id));
        store.map_or(self.volume.space(), |store| store.space())
    }

    /// The disk that has its log, if its members do not.
    pub(crate) fn log_disk(&self) -> Option<PvName> {
        self.space().layout.log().map(|log| log.area.pv)
    }

    /// The place of the member on `disk`.
    pub(crate) fn place_on(&self, disk: PvName) -> Option<usize> {
        let (space, members) = (self.space(), self.space().layout.members().len());
        (0..members).find(|place| space.areas_of_member(*place).any(|area| area.pv == disk))
    }

    /// The disks with the member in `place`.
    pub(crate) fn disks_of(&self, place: usize) -> BTreeSet<PvName> {
        self.space().areas_of_member(place).map(|area| area.pv).collect()
    }

    /// What its member on `disk` is worth, if it has one there; none if it is not open.
    pub(crate) fn state_on(&self, disk: PvName) -> Option<Option<MemberState>> {
        let place = self.place_on(disk)?;
        Some(self.status.as_ref().and_then(|status| Some(status.members.get(place)?.state)))
    }

    /// Whether the array is open and does without the member in `place`.
    pub(crate) fn is_away(&self, place: usize) -> bool {
        let member = self.status.as_ref().and_then(|status| status.members.get(place));
        member.is_some_and(|member| member.state == MemberState::Away)
    }

    /// DETACH1, of the member in `place` of `name`.
    pub(crate) fn refuse_loss(&self, name: &str, place: usize) -> Result<(), Failure> {
        let unusable = || {
            let message = format!("{name} is not in use: what its members are worth is not known");
            let noun = if self.volume.is_pool() { "pool" } else { "lv" };
            Failure::new(Code::VolumeUnusable, message).help(format!("varve {noun} activate {name}"))
        };
        if let Some(failure) = &self.unusable {
            return Err(failure.clone());
        }
        let status = self.status.as_ref().ok_or_else(unusable)?;
        let layout = self.space().layout;
        let needed = layout.members().len() - layout.tolerates();
        let has_all =
            |(other, member): &(usize, &MemberStatus)| *other != place && member.state == MemberState::InSync;
        let others = status.members.iter().enumerate().filter(has_all).count();
        let is_away = status.members.get(place).is_none_or(|member| member.state == MemberState::Away);
        if !status.lost_regions.is_empty() {
            let count = status.lost_regions.len();
            let message = format!(
                "{}{name} needs this member: the power failed, and {count} regions can be read only when it returns",
                self.of_what()
            );
            return Err(Failure::new(Code::VolumeBusy, message).help(format!(
                "bring its disk back: varve pv scan PATH; or give up what was being written there: \
                 varve array rebuild {name} --accept-stale all"
            )));
        }
        let problem = if others < needed {
            "the other members do not have all of its data"
        } else if status.unsynced > 0 && !is_away {
            "its members are being made equal since a crash"
        } else {
            return Ok(());
        };
        let what = self.of_what();
        Err(Failure::new(Code::VolumeBusy, format!("{what}{name} needs this member: {problem}"))
            .help(format!("varve array show {name}; try again when the others are in sync")))
    }
}

/// The arrays of a volume or pool, and of its stores.
pub(crate) fn known_arrays(known: &KnownGroup, volume: &LogicalVolume) -> Vec<KnownArray> {
    let home = known.homes.get(&volume.id);
    let stores = volume.stores().map(|store| (store.id, Some(store.id), &store.layout));
    let all = std::iter::once((volume.id, None, &volume.layout)).chain(stores);
    let array = |(id, store, _): (Uuid, Option<Uuid>, &Layout)| KnownArray {
        id,
        volume: volume.clone(),
        store,
        home: home.map(|home| home.shard.clone()),
        unusable: home.and_then(|home| home.unusable.clone()),
        status: None,
    };
    all.filter(|(.., layout)| !layout.members().is_empty()).map(array).collect()
}
