//! Volumes that programs map: where each program is asked, that a user at this host agreed to it, and how it does.
//!
//! Invariants:
//! - CONTROLMAPPER1. The daemon connects to a socket that a group's text names only after a user at this host has named it for
//!   that group, or has agreed to it; each connection is an event.
//! - CONTROLMAPPER2. A volume that is a device of a mapper is served to no other client. The mapped volume is taken into use
//!   after all of its devices, and goes before them.

use crate::Control;
use crate::commands::layout::layout;
use crate::commands::policy::{bad, milliseconds};
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::known_group::KnownGroup;
use crate::host::known_disk::SILENCE_MAX;
use crate::injected_bug::{InjectedBug, has};
use uuid::Uuid;
use varve_api::{Code, Failure, Layout as ShownLayout, Mapper, VolumeCreate, VolumeState};
use varve_block::Portal;
use varve_format::text::MAPPER_WAIT_MS_DEFAULT;
use varve_vg::model::{self, LogicalVolume};
use varve_vg::names::VolumeName;
use varve_vg::plan::{Layout, PlanError};
use varve_volume::lifecycle::reason::Reason;
use varve_volume::opened::mappers::MapperFacts;
use varve_volume::spec::MapperDevice;
use varve_volume::{DoorOf, ShardHandle};

/// Why a volume waits whose mapper hangs.
pub(crate) const SILENT: &str = "its mapper is connected and does not answer";

/// The layout of a volume as a request asks for it.
pub(crate) fn asked_layout(request: &VolumeCreate, devices: Vec<Uuid>) -> Result<Layout, Failure> {
    if request.mapper.is_none() && request.layout != Some(ShownLayout::Mapper) {
        return layout(request);
    }
    if !request.on.is_empty() {
        let message = "a volume that a program maps lies on no disk of its group: leave out --on";
        return Err(Failure::new(Code::Usage, message));
    }
    mapper_layout(request, devices)
}

/// The layout of a volume that a program maps.
fn mapper_layout(request: &VolumeCreate, devices: Vec<Uuid>) -> Result<Layout, Failure> {
    if request.layout.is_some_and(|layout| layout != ShownLayout::Mapper) {
        return Err(Failure::new(Code::Usage, "--mapper belongs to --type mapper"));
    }
    let address = request.mapper.as_deref().unwrap_or_default();
    let socket = address.strip_prefix("unix:").filter(|path| path.starts_with('/'));
    let Some(socket) = socket else {
        return Err(Failure::new(Code::Usage, format!("{address:?} is not the address of a mapper"))
            .help("--mapper unix:/PATH, the socket at which the program listens"));
    };
    let wait_ms = match &request.mapper_wait {
        Some(text) => milliseconds(text).ok_or_else(|| bad("--mapper-wait", text, "30s"))?,
        None => MAPPER_WAIT_MS_DEFAULT,
    };
    Ok(Layout::Mapper { socket: socket.to_owned(), wait_ms, devices })
}

/// The address of the mapper of a volume, if it has one.
pub(crate) fn mapper_address(volume: &LogicalVolume) -> Option<String> {
    match &volume.layout {
        model::Layout::Mapper { socket, .. } => Some(format!("unix:{socket}")),
        _ => None,
    }
}

/// The mappers that a group's text names.
pub(crate) fn named_mappers(known: &KnownGroup) -> impl Iterator<Item = String> {
    known.group.logical_volumes().iter().filter_map(mapper_address)
}

/// The mapper of a volume as it is shown.
pub(crate) fn shown_mapper(
    known: &KnownGroup,
    volume: &LogicalVolume,
    facts: Option<&MapperFacts>,
) -> Option<Mapper> {
    let model::Layout::Mapper { wait_ms, .. } = volume.layout else { return None };
    let named = |id: &Uuid| {
        let device = known.group.logical_volumes().iter().find(|device| device.id == *id);
        device.map(|device| format!("{}/{}", known.group.name(), device.name))
    };
    let status = facts.map(|facts| facts.status).unwrap_or_default();
    Some(Mapper {
        address: mapper_address(volume)?,
        wait_ms,
        devices: volume.layout.granted().iter().filter_map(named).collect(),
        connected: status.is_connected,
        answers: status.entries as u64,
        unflushed: status.unflushed as u64,
        questions: status.misses,
        refused: status.refused,
        timeouts: status.timeouts,
    })
}

/// The state of a volume whose mapper does so: a sound one may wait for it.
pub(crate) fn state_with_mapper(
    state: (VolumeState, Option<String>),
    facts: Option<&MapperFacts>,
) -> (VolumeState, Option<String>) {
    match (state.0, facts) {
        (VolumeState::Active, Some(facts)) if !facts.status.is_connected => {
            let why = facts.why_away.as_deref().unwrap_or("it was not reached yet");
            (VolumeState::Waiting, Some(format!("its mapper is away: {why}")))
        }
        (VolumeState::Active, Some(facts))
            if facts.status.silence >= SILENCE_MAX || facts.status.has_failed =>
        {
            (VolumeState::Waiting, Some(SILENT.to_owned()))
        }
        _ => state,
    }
}

/// Why a volume in use waits for its mapper, if it does.
pub(crate) async fn mapper_trouble(shard: &ShardHandle, volume: Uuid) -> Option<String> {
    let facts = shard.volume(volume).mapper_facts().await.ok()??;
    state_with_mapper((VolumeState::Active, None), Some(&facts)).1
}

impl Control {
    /// CONTROLMAPPER1, for a volume that is taken into use.
    pub(crate) fn refuse_unagreed_mapper(&self, group: Uuid, volume: &LogicalVolume) -> Result<(), Failure> {
        let Some(address) = mapper_address(volume) else { return Ok(()) };
        if self.is_agreed(group, &address) {
            return Ok(());
        }
        let message = format!(
            "its group says that a program at {address} maps it, and nobody has agreed that it be connected to"
        );
        Err(Failure::new(Code::ImageNotTrusted, message)
            .help(format!("look at {address}; if it is what you expect: varve pv scan --trust-images")))
    }

    /// The volumes that a request gives to a mapper, if they can be (CONTROLMAPPER2).
    pub(crate) fn asked_devices(&self, group: Uuid, request: &VolumeCreate) -> Result<Vec<Uuid>, Failure> {
        if !request.devices.is_empty() && request.mapper.is_none() {
            return Err(Failure::new(Code::Usage, "--device belongs to --mapper"));
        }
        let find = |text: &String| {
            let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
            let located = self.find_volume(&name)?;
            let is_fit = located.group == group && located.thin.is_none() && name.snapshot.is_none();
            if !is_fit {
                let message = format!(
                    "{name} cannot be a device of a mapper: it is to be a volume of the group, not thin"
                );
                return Err(Failure::new(Code::Usage, message).help(format!("varve lv show {name}")));
            }
            if located.volume.stores().next().is_some() {
                let message = format!(
                    "{name} cannot be a device of a mapper as long as it has snapshots, or their store is given back"
                );
                return Err(Failure::new(Code::VolumeBusy, message)
                    .help(format!("varve snap list {name}, varve job list")));
            }
            self.refuse_if_busy(located.volume.id)?;
            self.refuse_if_exported(located.volume.id, &name, true)?;
            self.refuse_granted(&located)?;
            Ok(located.volume.id)
        };
        request.devices.iter().map(find).collect()
    }

    /// Refuses a volume that is a device of a mapper (CONTROLMAPPER2).
    pub(crate) fn refuse_granted(&self, located: &LocatedVolume) -> Result<(), Failure> {
        let (id, volume) = (located.volume.id, &located.volume.name);
        let granted = self.with_group(located.group, |known| {
            let (group, to) = (known.group.name().to_owned(), known.group.granted_to(id)?.name.clone());
            Some(PlanError::Granted { group, volume: volume.clone(), to })
        })?;
        granted.map_or(Ok(()), |granted| Err(failures::plan(&granted)))
    }

    /// The devices of a mapper, for the shard of its volume.
    pub(crate) async fn devices_of(
        &self,
        group: Uuid,
        volume: &LogicalVolume,
    ) -> Result<Vec<MapperDevice>, Failure> {
        let mut devices = Vec::new();
        for id in volume.layout.granted() {
            let name: VolumeName = self.subject(*id).parse().map_err(|error| failures::bad_name(&error))?;
            let portal = self.portal_of_device(group, &name).await.map_err(|failure| {
                let message = format!("a device of its mapper, {name}, cannot be used: {}", failure.message);
                Failure::new(Code::VolumeUnusable, message).help(format!("varve lv show {name}"))
            })?;
            devices.push(MapperDevice { name: id.to_string(), portal });
        }
        Ok(devices)
    }

    async fn portal_of_device(&self, group: Uuid, name: &VolumeName) -> Result<Portal, Failure> {
        let located = self.find_volume(name)?;
        assert!(located.group == group, "TEXT23: a device is a volume of the group");
        match located.unusable {
            Some(failure) => Err(failure),
            None => self.portal(&located, None, located.volume.read_only, DoorOf::Client).await,
        }
    }

    /// CONTROLMAPPER2: a volume goes when a device of its mapper has gone. It is taken into use again after that.
    pub(crate) async fn cut_off_mapped(&self, group: Uuid, id: Uuid) {
        let device = self.with_group(group, |known| idle_device(known, id)).ok().flatten();
        let (Some(device), Some(home)) = (device, self.home_of(id)) else { return };
        if has(InjectedBug::KeepDevice) {
            return;
        }
        let message = format!("{}, a device of its mapper, is out of use", self.subject(device));
        let reason = Failure::new(Code::VolumeUnusable, message).help("varve pv scan");
        self.take_out_of_use(group, id, reason);
        if let Ok(Err(_failed)) = home.volume(id).close(Reason::Fenced).await {
            self.expect_failure(id);
        }
        self.close_lost_doors(group, id).await;
    }

    /// CONTROLMAPPER1: a user at this host has named the mapper of a new volume, if it has one.
    pub(crate) async fn agree_to_mapper(&self, group: Uuid, volume: &LogicalVolume) -> Result<(), Failure> {
        match mapper_address(volume) {
            Some(address) => self.agree_to_image(group, &address).await,
            None => Ok(()),
        }
    }
}

/// A device of a volume that is not in use.
fn idle_device(known: &KnownGroup, volume: Uuid) -> Option<Uuid> {
    let is_idle = |id: &&Uuid| known.homes.get(*id).is_none_or(|home| home.unusable.is_some());
    let entry = known.group.logical_volumes().iter().find(|entry| entry.id == volume)?;
    entry.layout.granted().iter().find(is_idle).copied()
}

/// Refuses to resize a volume whose mapper is away or does not answer: it has to be notified.
pub(crate) async fn refuse_absent_mapper(name: &str, located: &LocatedVolume) -> Result<(), Failure> {
    let calls = located.home.volume(located.volume.id);
    let Some(facts) = calls.mapper_facts().await.map_err(failures::gone)? else { return Ok(()) };
    let (why, help) = match facts.status.is_connected {
        false => ("is away", "start it"),
        true if calls.mapper_answers().await.map_err(failures::gone)? == Some(false) => {
            ("does not answer", "look at it: it hangs")
        }
        true => return Ok(()),
    };
    let message = format!("the mapper of {name} {why}, and has to be notified of the new size");
    Err(Failure::new(Code::VolumeBusy, message).help(format!("{help}, then try again; varve lv show {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn asked(mapper: &str, wait: Option<&str>, layout: Option<ShownLayout>) -> Result<Layout, Failure> {
        let (mapper, mapper_wait) = (Some(mapper.to_owned()), wait.map(str::to_owned));
        mapper_layout(&VolumeCreate { mapper, mapper_wait, layout, ..VolumeCreate::default() }, Vec::new())
    }

    #[test]
    fn the_address_of_a_mapper_is_an_absolute_path_of_a_socket() {
        let layout =
            |wait_ms| Ok(Layout::Mapper { socket: "/run/m".to_owned(), wait_ms, devices: Vec::new() });
        assert_eq!(asked("unix:/run/m", None, None), layout(30_000));
        assert_eq!(asked("unix:/run/m", Some("500ms"), Some(ShownLayout::Mapper)), layout(500));
        for (address, wait) in
            [("/run/m", None), ("unix:m", None), ("tcp:x:1", None), ("unix:/m", Some("soon"))]
        {
            let refused = asked(address, wait, None).map_err(|failure| failure.code);
            assert_eq!(refused, Err(Code::Usage), "{address} {wait:?}");
        }
        assert!(asked("unix:/run/m", None, Some(ShownLayout::Linear)).is_err());
    }

    #[test]
    fn a_sound_volume_waits_while_its_mapper_is_away() {
        let quiet = |is_connected, seconds| MapperFacts {
            status: varve_target::delegate::DelegateStatus {
                is_connected,
                silence: Duration::from_secs(seconds),
                ..Default::default()
            },
            why_away: Some("gone".to_owned()),
        };
        let facts = |is_connected| quiet(is_connected, 0);
        let state = |before, facts: Option<&MapperFacts>| state_with_mapper((before, None), facts).0;
        assert_eq!(state(VolumeState::Active, Some(&facts(false))), VolumeState::Waiting);
        assert_eq!(state(VolumeState::Active, Some(&facts(true))), VolumeState::Active);
        assert_eq!(state(VolumeState::Active, Some(&quiet(true, 2))), VolumeState::Active);
        assert_eq!(state(VolumeState::Active, Some(&quiet(true, 3))), VolumeState::Waiting, "it hangs");
        assert_eq!(state(VolumeState::Active, None), VolumeState::Active);
        assert_eq!(state(VolumeState::Failed, Some(&facts(false))), VolumeState::Failed);
    }
}
