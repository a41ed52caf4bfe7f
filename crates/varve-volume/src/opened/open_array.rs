//! Takes arrays into use with what is on them, and makes new ones.
//!
//! Invariants:
//! - OPENARRAY1. The gate of what is on an array stands below it, too: behind a closed gate nothing of the array, its metadata included,
//!   reaches a disk.
//! - OPENARRAY2. What is on an array is opened when regions can be read that come back by themselves: a pool whose own are among them
//!   could not be opened, and its array would be closed before the member that has them is caught up.
//! - OPENARRAY3. What an array gains reads the same on all its members where their disks can be cleared at once: what others wrote there
//!   before would be reported by a scrub as members that do not match.

use super::arrays::{MemberDisks, OpenArray};
use super::children::Opened;
use super::open_mapper;
use crate::copies::clear::clear_fast;
use crate::doors::gate::Gate;
use crate::events::VolumeEvent;
use crate::failures;
use crate::host::Host;
use crate::injected_bug::{self, InjectedBug};
use crate::spec::Disks;
use futures_util::future::{Either, join_all, select};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent, IoError, ZeroOptions};
use varve_target::array::{
    Array, ArrayError, ArrayOptions, InjectedBug as ArrayBug, LogDiskStatus, Member, MemberState,
    MemberStatus, Rates,
};
use varve_vg::activate::{array_members, array_spec, build, log_disk, members};
use varve_vg::model::PvName;
use varve_vg::table::{ArrayMember, ArrayTarget, ImageTarget, Table};

/// How long what is on an array waits to be opened for regions that come back. Then it is tried, and the next attempt goes on from there.
const RETURNING_MAX: Duration = Duration::from_secs(30);

impl Opened {
    /// The device of `table`, where the bytes of `of` lie, behind the gate. An array is opened, or has grown if it is open already.
    pub(crate) async fn device_of(&self, of: Uuid, table: &Table, disks: &Disks) -> Result<Device, Failure> {
        let inside = self.inside((of, None), table, disks).await?;
        Ok(self.gate.guard(self.host.moves.tree(of, inside, &self.host.arena())))
    }

    /// The inside of a new tree of the space `of` at `table`, where nothing is yet. An array is made, and is in use under `key`.
    pub(crate) async fn new_inside(
        &self,
        (of, key): (Uuid, Uuid),
        table: &Table,
        disks: &Disks,
    ) -> Result<Device, Failure> {
        if let Some(target) = table.array() {
            // The log of an array that had this id, and these extents, before would be taken for that of the new one.
            for device in devices(&self.gate, target, &on_host(&self.host, disks)).into_iter().flatten() {
                let log = Extent::new(0, target.metadata_size);
                let zeroed = device.zero(log, ZeroOptions::default()).await;
                zeroed.map_err(|error| failures::io("a disk of the new layout", error))?;
            }
            create(&self.host, target, &on_host(&self.host, disks)).await?;
        }
        self.inside((of, Some(key)), table, disks).await
    }

    /// The inside of a tree of the space `of`; an array is in use under `key`, or its id.
    pub(crate) async fn inside(
        &self,
        (of, key): (Uuid, Option<Uuid>),
        table: &Table,
        disks: &Disks,
    ) -> Result<Device, Failure> {
        let disks = self.host.moves.disks_of(of, disks, |file| self.host.disk(file));
        let mut opened = BTreeMap::new();
        if let Some(target) = table.image() {
            opened.extend(self.image_of(target, table.size())?);
        }
        if let Some(target) = table.array() {
            opened.insert(target.id, self.array_of(key.unwrap_or(target.id), target, &disks).await?);
        }
        if let Some(target) = table.mapper() {
            opened.insert(target.id, open_mapper::open(self, target, table.size()));
        }
        build(table, &disks, &opened).map_err(|error| failures::io("the volume's disks", error))
    }

    /// The device of the image, if it is open and has the size that its volume is to have.
    fn image_of(&self, target: &ImageTarget, size: u64) -> Result<Option<(Uuid, Device)>, Failure> {
        let Some(device) = self.image_device() else { return Ok(None) };
        let now = device.shape().size;
        if now != size {
            let message = format!("the image {} holds a disk of {now} bytes, and not of {size}", target.path);
            return Err(Failure::new(Code::VolumeUnusable, message).help("varve lv show VG/LV"));
        }
        Ok(Some((target.id, device)))
    }

    /// The device of `target`: its array is opened, or has grown if it is open already.
    async fn array_of(
        &self,
        key: Uuid,
        target: &ArrayTarget,
        disks: &BTreeMap<PvName, Device>,
    ) -> Result<Device, Failure> {
        match self.arrays.get(key) {
            Some(open) => self.grow_array(&open, target, disks).await,
            None => self.open_array(key, target, disks).await,
        }
    }

    async fn grow_array(
        &self,
        open: &OpenArray,
        target: &ArrayTarget,
        disks: &BTreeMap<PvName, Device>,
    ) -> Result<Device, Failure> {
        let (array, wanted) = (&open.array, options(&self.host, target));
        let devices = devices(&self.gate, target, disks);
        array.set_policy(wanted.slow_after, wanted.rates);
        array.set_release_delay(wanted.release_delay);
        clear_members(&devices, target, array.device().shape().size).await;
        let grown = array.grow(target.size(), devices.clone()).await;
        grown.map_err(|error| failures::array(&error))?;
        open.disks.replace(disks_of(target));
        let mut members = array_members(target, devices);
        let withdrawn = members.iter_mut().filter(|member| open.is_withdrawn(member.id));
        withdrawn.for_each(|member| member.device = None);
        take_back(array, members).await;
        let log = log_of(&self.gate, target, disks);
        if log.as_ref().is_none_or(|log| !open.is_withdrawn(log.id)) {
            follow_log(array, log).await;
        }
        Ok(array.device())
    }

    async fn open_array(
        &self,
        key: Uuid,
        target: &ArrayTarget,
        disks: &BTreeMap<PvName, Device>,
    ) -> Result<Device, Failure> {
        let failed = |error: ArrayError| failures::array(&error);
        let members = array_members(target, devices(&self.gate, target, disks));
        let (log_disk, accepts) = (log_of(&self.gate, target, disks), self.accepts.get());
        let options =
            ArrayOptions { accept_missing: accepts.missing, log_disk, ..options(&self.host, target) };
        let array = Array::open(array_spec(target), members, options).await.map_err(failed)?;
        if accepts.stale {
            array.accept_loss(|_| true).await.map_err(failed)?;
        }
        let (disks, worked) = (Rc::new(RefCell::new(disks_of(target))), Rc::clone(&array));
        let tasks = vec![
            self.spawn(async move { worked.background().await }),
            self.spawn(watch(self.host.clone(), self.id, Rc::clone(&disks), Rc::clone(&array))),
        ];
        self.arrays.insert(key, OpenArray::new(Rc::clone(&array), disks, tasks));
        await_returning(&self.host, &array).await;
        Ok(array.device())
    }

    /// The members of an array in use that lie on `disk` and are away catch up.
    pub(crate) async fn take_back(&self, target: &ArrayTarget, disks: &Disks, disk: PvName) {
        let Some(open) = self.arrays.get(target.id) else { return };
        let disks = self.host.moves.disks_of(target.id, disks, |file| self.host.disk(file));
        if target.log.iter().flat_map(|log| &log.runs).any(|run| run.pv == disk) {
            let log = log_of(&self.gate, target, &disks);
            log.iter().for_each(|log| open.readmit(log.id));
            follow_log(&open.array, log).await;
        }
        let is_there = |disks: Vec<PvName>| disks.contains(&disk);
        let devices = devices(&self.gate, target, &disks).into_iter().zip(disks_of(target));
        let devices = devices.map(|(device, disks)| device.filter(|_| is_there(disks))).collect();
        let members = array_members(target, devices);
        let named = members.iter().filter(|member| member.device.is_some());
        named.for_each(|member| open.readmit(member.id));
        take_back(&open.array, members).await;
    }
}

/// Makes something new where `table` says; it is not in use yet.
pub(crate) async fn make<T>(
    host: &Host,
    table: &Table,
    disks: &Disks,
    make: impl AsyncFnOnce(&Device) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error| failures::io("the volume's disks", error);
    let Some(target) = table.array() else {
        return make(&build(table, &on_host(host, disks), &BTreeMap::new()).map_err(failed)?).await;
    };
    create(host, target, &on_host(host, disks)).await?;
    let devices = devices(&Gate::default(), target, &on_host(host, disks));
    clear_members(&devices, target, 0).await;
    let members = array_members(target, devices);
    let array = Array::open(array_spec(target), members, options(host, target)).await;
    let array = array.map_err(|error| failures::array(&error))?;
    let made = make(&array.device()).await;
    array.close().await.map_err(failed)?;
    made
}

/// OPENARRAY3, of what is behind the first `from` bytes. A member that fails at it fails at what follows, too.
async fn clear_members(devices: &[Option<Device>], target: &ArrayTarget, from: u64) {
    let end = |bytes| target.metadata_size + target.layout.on_members(Extent::new(0, bytes)).length;
    if from < target.size() {
        let gained = Extent::between(end(from), end(target.size()));
        join_all(devices.iter().flatten().map(|device| clear_fast(device, gained))).await;
    }
}

/// Where `extent` of what is at `table` is: of an array on each of its members.
pub fn places(
    table: &Table,
    disks: &BTreeMap<PvName, Device>,
    extent: Extent,
) -> Result<Vec<(Device, Extent)>, Failure> {
    let failed = |error| failures::io("the volume's disks", error);
    let Some(target) = table.array() else {
        return Ok(vec![(build(table, disks, &BTreeMap::new()).map_err(failed)?, extent)]);
    };
    let run = target.layout.on_members(extent);
    let on_member = |device: Option<Device>| {
        let device = device.ok_or(IoError::Gone).map_err(failed)?;
        Ok((device, Extent::new(target.metadata_size + run.offset, run.length)))
    };
    members(target, disks).into_iter().map(on_member).collect()
}

/// Waits until regions that come back by themselves can be read (OPENARRAY2).
async fn await_returning(host: &Host, array: &Array) {
    let deadline = host.clock().now().after(RETURNING_MAX);
    loop {
        let (changes, status) = (array.changes(), array.status());
        if !status.has_returning_regions() {
            return;
        }
        let (changed, over) = (pin!(array.changed(changes)), pin!(host.clock().sleep_until(deadline)));
        if let Either::Right(_) = select(changed, over).await {
            tracing::warn!("regions of an array cannot be read yet: the member that has them is caught up");
            return;
        }
    }
}

/// The log of an array in use is on `log` from now on, if that is here, or with its members.
async fn follow_log(array: &Array, log: Option<Member>) {
    let status = array.status().log_disk;
    let followed = match (status, log) {
        (None, None) => return,
        (Some(_), None) => array.detach_log().await,
        (Some(status), Some(log)) if status.id == log.id && (status.has_log || log.device.is_none()) => {
            return;
        }
        (_, Some(log)) => array.attach_log(log).await,
    };
    if let Err(error) = followed {
        tracing::warn!(%error, "the log of an array stays where it is");
    }
}

/// The disk that has the log of an array, behind the gate (OPENARRAY1).
fn log_of(gate: &Gate, target: &ArrayTarget, disks: &BTreeMap<PvName, Device>) -> Option<Member> {
    let log = log_disk(target, disks)?;
    Some(Member { device: log.device.map(|device| gate.guard(device)), ..log })
}

/// Members that are away and whose disks are here again catch up.
async fn take_back(array: &Array, members: Vec<Member>) {
    for (place, member) in members.into_iter().enumerate() {
        let is_away = array.status().members[place].state == MemberState::Away;
        if is_away
            && member.device.is_some()
            && let Err(error) = array.attach(place, member).await
        {
            tracing::warn!(member = place, %error, "a member of an array cannot be taken back");
        }
    }
}

/// Makes an array where nothing is yet, of disks that are all there.
pub async fn create(
    host: &Host,
    target: &ArrayTarget,
    disks: &BTreeMap<PvName, Device>,
) -> Result<(), Failure> {
    let devices = devices(&Gate::default(), target, disks);
    let members = array_members(target, devices);
    let made = Array::create(&array_spec(target), &members, &host.arena()).await;
    made.map_err(|error| failures::array(&error))
}

/// The members' devices, behind the gate (OPENARRAY1).
fn devices(gate: &Gate, target: &ArrayTarget, disks: &BTreeMap<PvName, Device>) -> Vec<Option<Device>> {
    let members = members(target, disks);
    members.into_iter().map(|device| device.map(|device| gate.guard(device))).collect()
}

/// The disks, for the volumes of this shard.
pub fn on_host(host: &Host, disks: &Disks) -> BTreeMap<PvName, Device> {
    disks.iter().map(|(name, file)| (*name, host.disk(file))).collect()
}

fn options(host: &Host, target: &ArrayTarget) -> ArrayOptions {
    let ArrayTarget { read_policy, policy, .. } = *target;
    let slow_after = Duration::from_millis(policy.slow_after_ms);
    let rates = Rates { floor: policy.resync_rate_min, ceiling: policy.resync_rate_max.unwrap_or(u64::MAX) };
    let release_delay = Duration::from_millis(policy.release_after_ms);
    let injected_bug = injected_bug::has(InjectedBug::BelieveMember).then_some(ArrayBug::BelieveStale);
    let usual = ArrayOptions::new(host.arena(), host.clock());
    ArrayOptions { read_policy, slow_after, rates, release_delay, injected_bug, ..usual }
}

/// On which disks each member is, and behind them the log.
pub(crate) fn disks_of(target: &ArrayTarget) -> Vec<Vec<PvName>> {
    let disks = |member: &ArrayMember| {
        let mut disks: Vec<PvName> = member.runs.iter().map(|run| run.pv).collect();
        disks.dedup();
        disks
    };
    target.members.iter().chain(&target.log).map(disks).collect()
}

/// Tells the control of members that are away, and that are back.
async fn watch(host: Host, subject: Uuid, disks: MemberDisks, array: Rc<Array>) {
    let mut known: Vec<MemberState> = vec![MemberState::InSync; disks.borrow().len()];
    let mut has_failed = false;
    let mut had_log = true;
    loop {
        let (changes, status) = (array.changes(), array.status());
        if let Some(log) = status.log_disk
            && had_log != log.has_log
        {
            had_log = log.has_log;
            let disks = disks.borrow().get(status.members.len()).cloned().unwrap_or_default();
            host.tell(VolumeEvent::Warning { volume: subject, message: log_news(&disks, log) });
        }
        for (place, member) in status.members.iter().enumerate() {
            if known[place] != member.state {
                let disks = disks.borrow()[place].clone();
                let message = news(&disks, place, member);
                host.tell(VolumeEvent::Warning { volume: subject, message });
                if member.state == MemberState::Away {
                    host.tell(VolumeEvent::Ejected { volume: subject, disks });
                }
            }
            known[place] = member.state;
        }
        if status.failure.is_some() && !std::mem::replace(&mut has_failed, true) {
            let message =
                "too many members have failed: it is out of use until varve pv scan finds its disks again";
            host.tell(VolumeEvent::Warning { volume: subject, message: message.to_owned() });
        }
        array.changed(changes).await;
    }
}

/// The message about a log disk that has the log no more, or again.
fn log_news(disks: &[PvName], log: LogDiskStatus) -> String {
    let disks: Vec<String> = disks.iter().map(PvName::to_string).collect();
    let disk = disks.join(", ");
    match log.has_log {
        true => format!("the log lies on {disk} again"),
        false if log.is_slow => {
            format!("the log disk {disk} took too long to answer and is away: the members have the log")
        }
        false => format!("the log disk {disk} is away: the members have the log"),
    }
}

/// The message about a member that has another state.
fn news(disks: &[PvName], place: usize, member: &MemberStatus) -> String {
    let disks: Vec<String> = disks.iter().map(PvName::to_string).collect();
    let disk = disks.join(", ");
    match member.state {
        MemberState::InSync => format!("member {place} ({disk}) is in sync again"),
        MemberState::Away if member.is_slow => {
            format!(
                "member {place} ({disk}) took too long to answer and is away; the others go on without it"
            )
        }
        MemberState::Away => format!("member {place} ({disk}) is away; the others go on without it"),
        MemberState::CatchingUp => format!("member {place} ({disk}) catches up"),
    }
}
