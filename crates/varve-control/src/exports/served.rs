//! Exports: doors opened, listed, closed, remembered and brought back.
//!
//! Invariants:
//! - EXPORTS1. An export that was made is remembered before its command returns, and comes back when its volume does.
//! - EXPORTS2. An export that was removed is forgotten before its door is closed, and does not come back.
//! - EXPORTS3. An export that is down, or whose socket or mount has gone, is tried again until it is served or removed; its clients stay.
//! - EXPORTS4. What clients have open is not taken away, renamed or changed under them, unless the command is forced.

use super::address::Address;
use super::known_export::{KnownExport, Open};
use crate::Control;
use crate::failures;
use crate::host::remembered::RememberedExport;
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Door, Export, ExportCreate, ExportRemove, ExportState, Failure, Plan, Traffic,
};
use varve_block::Moment;
use varve_vg::names::VolumeName;
use varve_volume::NoAnswer;
use varve_volume::world::{FileDoor, Place};

/// How long a command waits for requests of an export that it removes. They are waited for on.
const CLOSE_MAX: Duration = Duration::from_secs(20);
/// How long a command waits for clients that are leaving: one that has ended is disconnected a moment later.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// How often it looks whether they are gone.
const LEAVE_TICK: Duration = Duration::from_millis(5);
/// Clients that a refusal names.
const CLIENTS_SHOWN: usize = 8;

impl Control {
    /// All exports.
    pub async fn list_exports(&self) -> Result<Vec<Export>, Failure> {
        let mut ids: Vec<String> = self.exports.known.borrow().keys().cloned().collect();
        ids.sort_by_key(|id| (id.len(), id.clone()));
        let mut exports = Vec::with_capacity(ids.len());
        for id in ids {
            exports.extend(self.shown_export(&id).await);
        }
        Ok(exports)
    }

    /// Opens a door onto a volume or snapshot.
    pub async fn create_export(&self, request: ExportCreate) -> Result<Changed<Export>, Failure> {
        let _lock = self.lock_of(&request.volume).await?;
        let _exports = self.lock_exports().await?;
        let name: VolumeName = request.volume.parse().map_err(|error| failures::bad_name(&error))?;
        let door = request
            .door
            .ok_or_else(|| Failure::new(Code::Usage, "no door was chosen").help("--nbd or --fuse"))?;
        let text = request.address.clone();
        let parsed = self.at_path(Path::new(&request.address), move |_| Address::parse(door, &text)).await;
        let address = parsed??;
        let located = self.find_volume(&name)?;
        self.check_readable(&located, &name).await?;
        let name = self.present_name(located.volume.id, name);
        self.refuse_granted(&located)?;
        self.check_export(&address, &name)?;
        self.check_folder(&address).await?;
        if let Address::Fuse(path) = &address {
            self.check_fuse(path).await?;
        }
        if request.dry_run {
            self.check_listen(&address).await?;
            let access = if request.read_only { ", read-only" } else { "" };
            let step = format!("would export {name} through {door} at {}{access}", address.text());
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let id = self.next_export_id();
        let remembered = RememberedExport {
            id: id.clone(),
            volume: located.volume.id,
            name: name.to_string(),
            door,
            address: address.text(),
            read_only: request.read_only,
        };
        let open = self.open_export(&remembered, &name, &address, &located).await?;
        let stored = remembered.clone();
        self.keep_export(remembered, name, open).await;
        self.memory.remembered.borrow_mut().exports.push(stored);
        // An export that cannot be remembered is not made (EXPORTS1).
        if let Err(failure) = self.save().await {
            self.forget_export(&id).await;
            return Err(failure);
        }
        self.event(&request.volume, &format!("exported as {id} at {}", address.text()));
        let export = self.shown_export(&id).await;
        Ok(Changed::Done(export.expect("the lock on exports is held (CONTROL1)")))
    }

    /// Closes a door; `text` is its ID, its URI, its address or its volume.
    pub async fn remove_export(&self, text: &str, request: ExportRemove) -> Result<Changed<Export>, Failure> {
        let lock = self.lock_exports().await?;
        let id = self.find_export(text)?;
        let export = self.shown_export(&id).await.ok_or_else(|| no_export(text))?;
        self.refuse_clients(|export| export.remembered.id == id, request.force).await?;
        if request.dry_run {
            let step =
                format!("would end export {id} of {} with {} clients", export.volume, export.connections);
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        if !self.memory.remembered.borrow().exports.iter().any(|export| export.id == id) {
            let message = format!("export {id} is being closed already");
            return Err(Failure::new(Code::VolumeBusy, message).help("varve export list"));
        }
        self.stop_remembering(&id).await?;
        let volume = export.volume.clone();
        let (sender, closed) = oneshot::channel();
        let me = self.weak();
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            let _ = sender.send(control.finish_removal(&id, &volume, request.force).await);
        });
        drop(lock); // LOCKING2 of `locking.rs`
        let deadline = self.context.clock().now().after(CLOSE_MAX);
        match self.until(deadline, closed).await {
            Some(Ok(closed)) => closed.map(|()| Changed::Done(export)),
            Some(Err(_)) => Err(failures::gone(NoAnswer::Gone)),
            None => {
                let message = format!("export {} takes no requests any more, but some do not end", export.id);
                Err(Failure::new(Code::VolumeBusy, message)
                    .help("a disk does not answer: varve pv list, varve status"))
            }
        }
    }

    /// EXPORTS4. Clients that are leaving have a moment.
    pub(crate) async fn refuse_clients(
        &self,
        is_meant: impl Fn(&KnownExport) -> bool,
        force: bool,
    ) -> Result<(), Failure> {
        if force {
            return Ok(());
        }
        let clock = self.context.clock();
        let deadline = clock.now().after(LEAVE_MAX);
        loop {
            let meant = |(id, export): (&String, &KnownExport)| is_meant(export).then(|| id.clone());
            let ids: Vec<String> = self.exports.known.borrow().iter().filter_map(meant).collect();
            let mut used = None;
            for id in ids {
                used = used.or(self.shown_export(&id).await.filter(|export| export.connections > 0));
            }
            let Some(used) = used else { return Ok(()) };
            if clock.now() >= deadline {
                return Err(connected(&used));
            }
            clock.sleep(LEAVE_TICK).await;
        }
    }

    /// EXPORTS1, EXPORTS2: an export that is removed does not come back. If that cannot be remembered it stays.
    async fn stop_remembering(&self, id: &str) -> Result<(), Failure> {
        let removed = {
            let exports = &mut self.memory.remembered.borrow_mut().exports;
            let place = exports.iter().position(|export| export.id == id);
            place.map(|place| (place, exports.remove(place)))
        };
        let saved = self.save().await;
        if let (Err(_), Some((place, export))) = (&saved, removed) {
            let exports = &mut self.memory.remembered.borrow_mut().exports;
            let place = place.min(exports.len());
            exports.insert(place, export);
        }
        saved
    }

    /// Closes the door of an export that is remembered no more; if that cannot be it is an export again.
    async fn finish_removal(&self, id: &str, volume: &str, force: bool) -> Result<(), Failure> {
        let closed = match force {
            true => self.detach_export(id).await,
            false => self.close_export(id).await,
        };
        if closed.is_err() {
            let again = self.exports.known.borrow().get(id).map(|export| export.remembered.clone());
            self.memory.remembered.borrow_mut().exports.extend(again);
            self.save_or_warn().await;
            return closed;
        }
        self.exports.known.borrow_mut().remove(id);
        self.event(volume, &format!("export {id} removed"));
        Ok(())
    }

    /// Identifiers of the exports of a volume, or of one of its snapshots.
    pub(crate) fn exports_of(&self, name: &VolumeName) -> Vec<String> {
        let exports = self.exports.known.borrow();
        exports
            .values()
            .filter(|export| export.name == *name)
            .map(|export| export.remembered.id.clone())
            .collect()
    }

    /// Brings back what is remembered and whose volume is there; tells why the others are not. Until `deadline` an
    /// address that is taken is tried again.
    pub(crate) async fn restore_exports(&self, deadline: Moment) {
        self.restore_those(deadline, |_| true).await;
    }

    /// Brings back what is remembered of a group and is down.
    pub(crate) async fn restore_exports_of(&self, group: Uuid) {
        let volumes: BTreeSet<Uuid> = self
            .with_group(group, |known| known.volumes().into_iter().map(|(volume, _)| volume).collect())
            .unwrap_or_default();
        self.restore_those(self.context.clock().now(), |export| volumes.contains(&export.volume)).await;
    }

    async fn restore_those(&self, deadline: Moment, is_meant: impl Fn(&RememberedExport) -> bool) {
        let Ok(_lock) = self.lock_exports().await else { return };
        let remembered = self.memory.remembered.borrow().exports.clone();
        for export in remembered.into_iter().filter(is_meant) {
            let down = match self.exports.known.borrow().get(&export.id) {
                Some(known) => matches!(known.open, Open::Down(_)),
                None => true,
            };
            if down {
                self.restore_export(export, deadline).await;
            }
        }
    }

    pub(crate) async fn restore_export(&self, remembered: RememberedExport, deadline: Moment) {
        let Ok(name) = remembered.name.parse::<VolumeName>() else {
            tracing::warn!(export = remembered.id, name = remembered.name, "an export has no valid name");
            return;
        };
        let name = self.present_name(remembered.volume, name);
        let (door, text) = (remembered.door, remembered.address.clone());
        let parsed =
            self.context.files_at(Path::new(&remembered.address), move |_| Address::parse(door, &text)).await;
        if let Ok(Ok(address)) = &parsed
            && let Err(failure) = self.check_folder(address).await
        {
            return self.keep_export(remembered, name, Open::Down(failure)).await;
        }
        let opened = match (parsed, self.find_volume(&name)) {
            // Another volume may have its name now.
            (Ok(_), Ok(located)) if located.volume.id != remembered.volume => Err(Failure::new(
                Code::VolumeNotFound,
                format!("the volume that was called {name} is not here"),
            )
            .help(format!("varve export remove {}", remembered.id))),
            (Ok(Ok(address)), Ok(located)) => match self.check_readable(&located, &name).await {
                Ok(()) => {
                    let open = async || self.open_export(&remembered, &name, &address, &located).await;
                    self.retry_until(deadline, &[Code::AddressInUse, Code::DoorFailed], open).await
                }
                Err(failure) => Err(failure),
            },
            (Ok(Err(failure)), _) | (_, Err(failure)) => Err(failure),
            (Err(failure), _) => Err(failure),
        };
        let open = opened.unwrap_or_else(Open::Down);
        self.keep_export(remembered, name, open).await;
    }

    /// Knows an export from now on, and the file that it has now.
    async fn keep_export(&self, remembered: RememberedExport, name: VolumeName, open: Open) {
        let id = remembered.id.clone();
        let export = KnownExport { remembered, name, open, file: None, away: None, is_recovering: false };
        let path = export.path().filter(|_| export.is_open());
        self.exports.known.borrow_mut().insert(id.clone(), export);
        let Some(path) = path else { return };
        let asked = path.clone();
        let file = self.at_path(&path, move |files| files.identity(&asked)).await.ok().flatten();
        if let Some(export) = self.exports.known.borrow_mut().get_mut(&id) {
            export.file = file;
        }
    }

    /// `name` with what its volume and group are called now; unchanged if they are not there.
    fn present_name(&self, volume: Uuid, name: VolumeName) -> VolumeName {
        match self.name_of(volume) {
            Some((group, volume)) => VolumeName { group, volume, ..name },
            None => name,
        }
    }

    /// Refuses an address in a folder that is not there.
    pub(crate) async fn check_folder(&self, address: &Address) -> Result<(), Failure> {
        let (Address::Nbd(Place::Unix(path)) | Address::Fuse(path)) = address else { return Ok(()) };
        let Some(folder) = path.parent().map(Path::to_owned) else { return Ok(()) };
        let asked = folder.clone();
        if self.at_path(&folder, move |files| files.is_folder(&asked)).await? {
            return Ok(());
        }
        let message = format!("{}: there is no folder {}", path.display(), folder.display());
        Err(Failure::new(Code::DoorFailed, message).help(format!("mkdir -p {}", folder.display())))
    }

    /// Refuses an export that is there already.
    fn check_export(&self, address: &Address, name: &VolumeName) -> Result<(), Failure> {
        let exports = self.exports.known.borrow();
        let text = address.text();
        let mut here = exports.values().filter(|export| export.remembered.address == text);
        let taken = match address {
            Address::Nbd(_) => here.find(|export| export.name == *name),
            Address::Fuse(_) => here.next(),
        };
        match taken {
            None => Ok(()),
            Some(export) => {
                let id = &export.remembered.id;
                let message = format!("{} is exported at {text} already, as {id}", export.name);
                Err(Failure::new(Code::ExportExists, message).help(format!("varve export remove {id}")))
            }
        }
    }

    async fn forget_export(&self, id: &str) {
        let _ = self.close_export(id).await;
        self.exports.known.borrow_mut().remove(id);
        self.memory.remembered.borrow_mut().exports.retain(|export| export.id != id);
    }

    fn next_export_id(&self) -> String {
        let mut remembered = self.memory.remembered.borrow_mut();
        remembered.last_export += 1;
        format!("e{}", remembered.last_export)
    }

    /// The export that is meant by its ID, its URI, its address or its volume.
    fn find_export(&self, text: &str) -> Result<String, Failure> {
        let exports = self.exports.known.borrow();
        if exports.contains_key(text) {
            return Ok(text.to_owned());
        }
        let is_meant = |export: &&KnownExport| {
            let remembered = &export.remembered;
            let bare = remembered.address.strip_prefix("unix:").unwrap_or(&remembered.address);
            let uri = parsed(remembered).and_then(|address| address.uri(&export.name));
            text == remembered.address
                || text == bare
                || uri.as_deref() == Some(text)
                || text == export.name.to_string()
        };
        let ids: Vec<&str> =
            exports.values().filter(is_meant).map(|export| export.remembered.id.as_str()).collect();
        match ids.as_slice() {
            [id] => Ok((*id).to_owned()),
            [] => Err(no_export(text)),
            several => {
                let message = format!("{text:?} has several exports: {}", several.join(", "));
                let help = format!("varve export remove {}", several[0]);
                Err(Failure::new(Code::ExportAmbiguous, message).help(help))
            }
        }
    }

    async fn shown_export(&self, id: &str) -> Option<Export> {
        let (mut export, shard) = {
            let exports = self.exports.known.borrow();
            let known = exports.get(id)?;
            let shard = match &known.open {
                Open::Nbd(shard) => Some(shard.clone()),
                _ => None,
            };
            (shown(known), shard)
        };
        if let Some(shard) = shard {
            let (address, name) = (export.address.clone(), export.volume.clone());
            let counters = shard.exports(&address).counters(name);
            if let Ok(Some((clients, traffic))) = counters.await {
                export.connections = clients.len() as u64;
                (export.clients, export.traffic) = (clients, traffic);
            }
        }
        Some(export)
    }
}

/// What is shown of an export, without what its shard counts.
fn shown(known: &KnownExport) -> Export {
    let remembered = &known.remembered;
    let address = parsed(remembered);
    let (state, reason) = match &known.open {
        Open::Nbd(_) | Open::Fuse(_) if known.away.is_some() => {
            (ExportState::Down, known.away.as_ref().map(|failure| failure.message.clone()))
        }
        Open::Nbd(_) => (ExportState::Serving, None),
        Open::Fuse(door) if door.is_serving() => (ExportState::Serving, None),
        Open::Fuse(_) => (ExportState::Down, Some("somebody unmounted it".to_owned())),
        Open::Down(failure) => (ExportState::Down, Some(failure.message.clone())),
        Open::Moving => (ExportState::Down, Some("it is being opened or closed".to_owned())),
    };
    let traffic = match &known.open {
        Open::Fuse(door) => file_traffic(&**door),
        _ => Traffic::default(),
    };
    let clients = match &known.open {
        Open::Fuse(door) if door.is_serving() => door.clients(),
        _ => Vec::new(),
    };
    Export {
        id: remembered.id.clone(),
        volume: known.name.to_string(),
        door: remembered.door,
        address: remembered.address.clone(),
        uri: address.as_ref().and_then(|address| address.uri(&known.name)),
        path: address.as_ref().and_then(Address::path),
        read_only: remembered.read_only,
        state,
        reason,
        connections: clients.len() as u64,
        clients,
        traffic,
    }
}

/// The failure of a change that a client of `export` is in the way of (EXPORTS4).
fn connected(export: &Export) -> Failure {
    let (volume, id, address) = (&export.volume, &export.id, &export.address);
    let shown = export.clients.iter().take(CLIENTS_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let more = export.clients.len().saturating_sub(CLIENTS_SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!("{volume} is in use through export {id} at {address}: {shown}{more}");
    let help = match export.door {
        Door::Fuse => {
            "unmount what is on it and detach loop devices (losetup -d); or add --force to go on without them"
        }
        _ => "let them unmount and disconnect; or add --force to go on without them",
    };
    Failure::new(Code::ClientsConnected, message).help(help)
}

fn file_traffic(door: &dyn FileDoor) -> Traffic {
    let counters = door.counters();
    Traffic {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes + counters.zeros,
        write_bytes: counters.write_bytes + counters.zero_bytes,
        flushes: counters.flushes,
        discards: 0,
        errors: counters.errors,
    }
}

/// The address as it was remembered, in the one way in which it is written; no host name is looked up.
pub(crate) fn parsed(remembered: &RememberedExport) -> Option<Address> {
    match remembered.door {
        Door::Fuse => Some(Address::Fuse(PathBuf::from(&remembered.address))),
        Door::Nbd => Address::parse(Door::Nbd, &remembered.address).ok(),
        Door::Ublk | Door::VhostUser => None,
    }
}

fn no_export(text: &str) -> Failure {
    Failure::new(Code::ExportNotFound, format!("there is no export {text:?}")).help("varve export list")
}
