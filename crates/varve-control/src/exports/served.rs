//! Exports: doors opened, listed, closed, remembered and brought back.
//!
//! Invariants:
//! - EXPORTS1. An export that was made is remembered before its command returns, and comes back when its volume does.
//! - EXPORTS2. An export that was removed is forgotten before its door is closed, and does not come back.
//! - EXPORTS3. An export that is down, or whose socket or mount has gone, is tried again until it is served or removed; its clients stay.
//! - EXPORTS4. What clients have open is not taken away, renamed or changed under them, unless the command is forced.

use super::access;
use super::address::Address;
use super::known_export::{KnownExport, Open};
use super::limits;
use super::server::Closing;
use super::since;
use super::tls;
use crate::Control;
use crate::failures;
use crate::host::remembered::RememberedExport;
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Export, ExportAccess, ExportCreate, ExportLimits, ExportRemove, ExportState, ExportTls,
    Failure, Plan, Traffic,
};
use varve_block::Moment;
use varve_vg::names::VolumeName;
use varve_volume::NoAnswer;
use varve_volume::world::Files;

/// How long a command waits for requests of an export that it removes. They are waited for on.
const CLOSE_MAX: Duration = Duration::from_secs(20);
/// How long a command waits for clients that are leaving: one that has ended is disconnected a moment later.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// How often it looks whether they are gone.
const LEAVE_TICK: Duration = Duration::from_millis(5);
/// What to do instead of letting other hosts in.
const AGREE_HELP: &str = "--nbd unix:PATH or --nbd tcp:127.0.0.1:PORT; or add --tls FOLDER; or --insecure, if all who reach the address may use the volume";
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
        let door = request.door.ok_or_else(|| {
            Failure::new(Code::Usage, "no door was chosen").help("--nbd, --fuse, --ublk or --vhost-user")
        })?;
        let (server, text) = (self.exports.server(door), request.address.clone());
        let read = server.address();
        let address = self.at_path(Path::new(&request.address), move |_| read(&text)).await??;
        let located = self.find_volume(&name)?;
        self.check_readable(&located, &name).await?;
        let name = self.present_name(located.volume.id, name);
        self.refuse_granted(&located)?;
        self.check_export(&address, &name)?;
        tls::check_protocol(&address, request.tls.as_deref())?;
        let folder = request.tls.as_ref().map(PathBuf::from);
        self.exports.check_tls(&address, folder.as_deref())?;
        address.check_exposure(request.insecure || folder.is_some(), || AGREE_HELP.to_owned())?;
        address.check_folder(&self.context).await?;
        server.check(&address).await?;
        let limits =
            limits::parse(request.iops.as_deref(), request.bandwidth.as_deref(), ExportLimits::default())?;
        let since = since::since_of_new(self, &request, &address, &located, &name).await?;
        let given = (request.mode.as_deref(), request.group.as_deref());
        let access = self.exports.access_of_new(given, &address)?;
        access::resolve(&self.context, &address, &access).await?;
        if let Some(folder) = &folder {
            tls::read(&self.context, folder).await?;
        }
        if request.dry_run {
            let read_only = if request.read_only { ", read-only" } else { "" };
            let step = format!("would export {name} through {door} at {}{read_only}", address.text);
            let step = format!("{step}{}", with_words(limits, &access, folder.as_deref()));
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let id = self.next_export_id();
        let remembered = RememberedExport {
            id: id.clone(),
            volume: located.volume.id,
            name: name.to_string(),
            door,
            address: address.text.clone(),
            read_only: request.read_only,
            insecure: request.insecure,
            aliases: Vec::new(),
            limits,
            access,
            tls: folder,
            since,
        };
        let opened = self.open_export(&remembered, &name, &address, &located).await;
        let open = opened.inspect_err(|_| {
            self.exports.forget(&id);
            self.exports.forget_tls(&address.text);
        })?;
        let stored = remembered.clone();
        self.keep_export(remembered, name, Some(address.clone()), open).await;
        let called = stored.name.clone();
        self.memory.remembered.borrow_mut().exports.push(stored);
        self.note_name(&id, &address.text, &called);
        // An export that cannot be remembered is not made (EXPORTS1).
        if let Err(failure) = self.save().await {
            self.forget_export(&id).await;
            return Err(failure);
        }
        self.event(&request.volume, &format!("exported as {id} at {}", address.text));
        let export = self.shown_export(&id).await;
        Ok(Changed::Done(export.expect("the lock on exports is held (CONTROL1)")))
    }

    /// Closes a door; `text` is its ID, its URI, its address or its volume.
    pub async fn remove_export(&self, text: &str, request: ExportRemove) -> Result<Changed<Export>, Failure> {
        let lock = self.lock_exports().await?;
        let id = self.find_export(text).await?;
        let export = self.shown_export(&id).await.ok_or_else(|| no_export(text))?;
        self.refuse_clients(|export| export.remembered.id == id, request.force).await?;
        if request.dry_run {
            let step =
                format!("would end export {id} of {} with {} clients", export.volume, export.connections);
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        self.refuse_closing(&id)?;
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

    /// Refuses what concerns an export that is remembered no more, and whose requests end.
    pub(super) fn refuse_closing(&self, id: &str) -> Result<(), Failure> {
        if self.memory.remembered.borrow().exports.iter().any(|export| export.id == id) {
            return Ok(());
        }
        let message = format!("export {id} is being closed already");
        Err(Failure::new(Code::VolumeBusy, message).help("varve export list"))
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
                let server = self.exports.server(used.door);
                return Err(connected(&used, server.leave_help()));
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
        let closing = if force { Closing::Forced } else { Closing::Unused };
        let closed = self.close_export(id, closing).await;
        if closed.is_err() {
            let again = self.exports.known.borrow().get(id).map(|export| export.remembered.clone());
            self.memory.remembered.borrow_mut().exports.extend(again);
            self.save_or_warn().await;
            return closed;
        }
        self.exports.forget(id);
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
        let Ok(_lock) = self.lock_exports().await else { return };
        let remembered = self.memory.remembered.borrow().exports.clone();
        for export in remembered.into_iter().filter(|export| self.is_down(export)) {
            self.restore_export(export, deadline).await;
        }
    }

    /// What is remembered of a group's volumes and is down.
    pub(crate) fn down_exports_of(&self, group: Uuid) -> Vec<String> {
        let volumes: BTreeSet<Uuid> = self
            .with_group(group, |known| known.volumes().into_iter().map(|(volume, _)| volume).collect())
            .unwrap_or_default();
        let remembered = &self.memory.remembered.borrow().exports;
        let down =
            remembered.iter().filter(|export| volumes.contains(&export.volume) && self.is_down(export));
        down.map(|export| export.id.clone()).collect()
    }

    /// Opens an export that is remembered and is down.
    pub(crate) async fn open_down_export(&self, id: &str) {
        let Ok(_lock) = self.lock_exports().await else { return };
        let remembered =
            self.memory.remembered.borrow().exports.iter().find(|export| export.id == id).cloned();
        if let Some(export) = remembered.filter(|export| self.is_down(export)) {
            self.restore_export(export, self.context.clock().now()).await;
        }
    }

    fn is_down(&self, export: &RememberedExport) -> bool {
        match self.exports.known.borrow().get(&export.id) {
            Some(known) => matches!(known.open, Open::Down(_)),
            None => true,
        }
    }

    pub(crate) async fn restore_export(&self, remembered: RememberedExport, deadline: Moment) {
        let Ok(name) = remembered.name.parse::<VolumeName>() else {
            tracing::warn!(export = remembered.id, name = remembered.name, "an export has no valid name");
            return;
        };
        let name = self.present_name(remembered.volume, name);
        let text = remembered.address.clone();
        let read = self.exports.server(remembered.door).address();
        let read =
            self.context.files_at(Path::new(&remembered.address), move |_| read(&text)).await.flatten();
        let address = read.as_ref().ok().cloned();
        if let Some(address) = &address
            && let Err(failure) = address.check_folder(&self.context).await
        {
            return self.keep_export(remembered, name, Some(address.clone()), Open::Down(failure)).await;
        }
        let opened = match (read, self.find_volume(&name)) {
            // Another volume may have its name now.
            (Ok(_), Ok(located)) if located.volume.id != remembered.volume => Err(Failure::new(
                Code::VolumeNotFound,
                format!("the volume that was called {name} is not here"),
            )
            .help(format!("varve export remove {}", remembered.id))),
            (Ok(address), Ok(located)) => match self.check_readable(&located, &name).await {
                Ok(()) => {
                    let open = async || self.open_export(&remembered, &name, &address, &located).await;
                    self.retry_until(deadline, &[Code::AddressInUse, Code::DoorFailed], open).await
                }
                Err(failure) => Err(failure),
            },
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        };
        let open = opened.unwrap_or_else(Open::Down);
        self.keep_export(remembered, name, address, open).await;
    }

    /// Knows an export from now on, and the file that it has now.
    async fn keep_export(
        &self,
        remembered: RememberedExport,
        name: VolumeName,
        address: Option<Address>,
        open: Open,
    ) {
        let id = remembered.id.clone();
        let export = KnownExport::new(remembered, name, address, open);
        let path = export.file_path().filter(|_| export.is_open());
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

    /// Refuses an export that is there already.
    fn check_export(&self, address: &Address, name: &VolumeName) -> Result<(), Failure> {
        let exports = self.exports.known.borrow();
        let text = &address.text;
        let is_taken = |export: &&KnownExport| {
            export.remembered.address == *text && (!address.is_shared || export.name == *name)
        };
        let taken = exports.values().find(is_taken);
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
        let _ = self.close_export(id, Closing::Unused).await;
        self.exports.forget(id);
        self.memory.remembered.borrow_mut().exports.retain(|export| export.id != id);
    }

    fn next_export_id(&self) -> String {
        let mut remembered = self.memory.remembered.borrow_mut();
        remembered.last_export += 1;
        format!("e{}", remembered.last_export)
    }

    /// The export that is meant by its ID, its URI, its volume, or a path that leads to its file.
    pub(super) async fn find_export(&self, text: &str) -> Result<String, Failure> {
        match self.export_called(text) {
            Err(failure) if failure.code == Code::ExportNotFound => match self.address_at(text).await {
                Some(address) => self.export_called(&address),
                None => Err(failure),
            },
            found => found,
        }
    }

    fn export_called(&self, text: &str) -> Result<String, Failure> {
        let exports = self.exports.known.borrow();
        if exports.contains_key(text) {
            return Ok(text.to_owned());
        }
        let is_meant = |export: &&KnownExport| {
            let remembered = &export.remembered;
            let bare = remembered.address.strip_prefix("unix:").unwrap_or(&remembered.address);
            let uri = uri(export);
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
                Err(Failure::new(Code::ExportAmbiguous, message).help("name one of them: varve export list"))
            }
        }
    }

    /// The address of the exports whose file is at a path, however that is written.
    async fn address_at(&self, text: &str) -> Option<String> {
        let path = PathBuf::from(text.strip_prefix("unix:").unwrap_or(text));
        let file = |export: &KnownExport| Some((export.remembered.address.clone(), export.file_path()?));
        let files: Vec<(String, PathBuf)> = self.exports.known.borrow().values().filter_map(file).collect();
        let at = path.clone();
        let look = move |host: &dyn Files| {
            let real = host.real_path(&at).ok().and_then(|real| host.identity(&real));
            let meant = [host.identity(&at)?, real?]; // A device is a link itself.
            let is_meant = |file: &Path| host.identity(file).is_some_and(|found| meant.contains(&found));
            files.into_iter().find(|(_, file)| is_meant(file)).map(|(address, _)| address)
        };
        self.at_path(&path, look).await.ok().flatten()
    }

    pub(super) async fn shown_export(&self, id: &str) -> Option<Export> {
        let (mut export, door) = {
            let exports = self.exports.known.borrow();
            let known = exports.get(id)?;
            let folder = known.remembered.tls.as_ref().map(|folder| folder.display().to_string());
            let valid_until = self.exports.tls_valid_until(&known.remembered.address);
            let tls = folder.map(|folder| ExportTls { folder, valid_until });
            (Export { tls, ..shown(known) }, known.door())
        };
        if let Some(door) = door {
            export.device = door.device();
            (export.clients, export.traffic) = door.counters().await;
            export.connections = export.clients.len() as u64;
        }
        Some(export)
    }
}

/// What a new export has beside its address, in words.
fn with_words(limits: ExportLimits, access: &ExportAccess, tls: Option<&Path>) -> String {
    let limits = (!limits.is_none()).then(|| format!(", with {}", limits::words(limits)));
    let access = (!access.is_default()).then(|| format!(", with {}", access::words(access)));
    let tls = tls.map(|folder| format!(", with TLS by {}", folder.display()));
    [limits, access, tls].into_iter().flatten().collect()
}

/// What clients of an export connect to, if its protocol has URIs.
fn uri(known: &KnownExport) -> Option<String> {
    known.address.as_ref()?.uri(&known.name, known.remembered.tls.is_some())
}

/// What is shown of an export, without what its door counts.
fn shown(known: &KnownExport) -> Export {
    let remembered = &known.remembered;
    let address = known.address.as_ref();
    let (state, reason) = match (&known.open, &known.away) {
        (Open::Serving(_), Some(away)) => (ExportState::Down, Some(away.message.clone())),
        (Open::Serving(door), None) => match door.ended() {
            None => (ExportState::Serving, door.notice()),
            Some(ended) => (ExportState::Down, Some(ended.reason.to_owned())),
        },
        (Open::Down(failure), _) => (ExportState::Down, Some(failure.message.clone())),
        (Open::Moving, _) => (ExportState::Down, Some("it is being opened or closed".to_owned())),
    };
    Export {
        id: remembered.id.clone(),
        volume: known.name.to_string(),
        door: remembered.door,
        address: remembered.address.clone(),
        uri: uri(known),
        path: address.and_then(|address| Some(address.path.as_ref()?.display().to_string())),
        device: None,
        read_only: remembered.read_only,
        limits: remembered.limits,
        access: remembered.access.clone(),
        tls: None,
        since: remembered.since.as_ref().map(|since| since.name.clone()),
        state,
        reason,
        connections: 0,
        clients: Vec::new(),
        traffic: Traffic::default(),
    }
}

/// The failure of a change that a client of `export` is in the way of (EXPORTS4).
fn connected(export: &Export, help: &str) -> Failure {
    let (volume, id, address) = (&export.volume, &export.id, &export.address);
    let shown = export.clients.iter().take(CLIENTS_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let more = export.clients.len().saturating_sub(CLIENTS_SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!("{volume} is in use through export {id} at {address}: {shown}{more}");
    Failure::new(Code::ClientsConnected, message).help(help)
}

fn no_export(text: &str) -> Failure {
    Failure::new(Code::ExportNotFound, format!("there is no export {text:?}")).help("varve export list")
}
