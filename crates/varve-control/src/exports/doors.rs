//! Doors of exports: opened, changed, recovered, redirected, closed, of whatever kind they are.

use super::access;
use super::address::Address;
use super::known_export::{KnownExport, Open};
use super::limits;
use super::server::{self, Closing, NewDoor, NotClosed, Opened};
use super::since;
use super::tls;
use crate::Control;
use crate::find::LocatedVolume;
use crate::group::known_group::KnownGroup;
use crate::host::remembered::RememberedExport;
use futures_util::future::{Either, join_all, select};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Export, ExportChange, Failure, Plan};
use varve_block::host::FileIdentity;
use varve_block::{Moment, Portal};
use varve_vg::names::VolumeName;
use varve_volume::DoorOf;
use varve_volume::doors::export_target::Target;
use varve_volume::world::Files;

/// How long requests of an export that ends may wait for space.
const DRAIN: Duration = Duration::from_secs(3);

impl Control {
    /// Closes every door, whatever clients it has; what is in flight is finished, unless that lasts longer than until
    /// `deadline`.
    pub(crate) async fn close_exports(&self, deadline: Moment) {
        let ids: Vec<String> = self.exports.known.borrow().keys().cloned().collect();
        join_all(ids.iter().map(async |id| {
            if self.until(deadline, self.close_door(id, Closing::Stop)).await.is_none() {
                let name = self.name_of_export(id).unwrap_or_default();
                self.fault(format!("export {id} of {name} did not end in time"));
            }
        }))
        .await;
    }

    /// Gives an export other limits or permissions; `text` is its ID, its URI, its address or its volume.
    pub async fn change_export(&self, text: &str, request: ExportChange) -> Result<Changed<Export>, Failure> {
        let _lock = self.lock_exports().await?;
        let id = self.find_export(text).await?;
        let known = |known: &KnownExport| (known.remembered.clone(), known.address.clone());
        let (before, address) = self.exports.known.borrow().get(&id).map(known).expect("it was found");
        let (iops, bandwidth) = (request.iops.as_deref(), request.bandwidth.as_deref());
        let given = (request.mode.as_deref(), request.group.as_deref());
        let of_limits = iops.or(bandwidth).is_some();
        let of_access = given.0.or(given.1).is_some();
        let folder = request.tls.as_ref().map(PathBuf::from);
        if !of_limits && !of_access && folder.is_none() {
            return Err(Failure::new(Code::Usage, "nothing was given to change")
                .help("--iops, --bandwidth, --mode, --group or --tls"));
        }
        let limits = limits::parse(iops, bandwidth, before.limits)?;
        let access = access::parse(given, address.as_ref(), &before.access)?;
        let file = match address.as_ref().filter(|_| of_access) {
            Some(address) => Some((address, access::resolve(&self.context, address, &access).await?)),
            None => None,
        };
        let credentials = match &folder {
            Some(folder) => Some(tls::changed(&self.context, &before, folder).await?),
            None => None,
        };
        self.refuse_closing(&id)?;
        let of_limits = of_limits.then(|| limits::words(limits));
        let of_access = of_access.then(|| access::words(&access));
        let of_tls = folder.as_ref().map(|folder| format!("TLS by {}", folder.display()));
        let words = [of_limits, of_access, of_tls].into_iter().flatten().collect::<Vec<_>>().join(", ");
        if request.dry_run {
            let step = format!("would give export {id} of {} {words}", before.name);
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        if let Some((address, file)) = file
            && let Some(door) = self.exports.door(&id)
        {
            door.set_access(address, file).await?;
        }
        let tls = folder.or(before.tls.clone());
        let after = RememberedExport { limits, access, tls, ..before.clone() };
        self.set_changed(&after);
        if let Err(failure) = self.save().await {
            self.set_changed(&before);
            self.restore_access(&before, address.as_ref()).await;
            return Err(failure);
        }
        if let Some(checked) = credentials {
            self.exports.use_tls(&before.address, checked);
        }
        self.event(&before.name, &format!("export {id} has {words} now"));
        let export = self.shown_export(&id).await;
        Ok(Changed::Done(export.expect("the lock on exports is held (CONTROL1)")))
    }

    /// The file of an export lets those again whom it let `before`, as far as it can.
    async fn restore_access(&self, before: &RememberedExport, address: Option<&Address>) {
        let Some((door, address)) = self.exports.door(&before.id).zip(address) else { return };
        if let Ok(file) = access::resolve(&self.context, address, &before.access).await {
            let _ = door.set_access(address, file).await;
        }
    }

    /// Notes the limits of an export and the permissions of its file, wherever exports are known.
    fn set_changed(&self, export: &RememberedExport) {
        let RememberedExport { id, address, limits, access, tls, .. } = export;
        if let Some(known) = self.exports.known.borrow_mut().get_mut(id) {
            known.remembered.limits = *limits;
            if known.door().is_some() {
                self.exports.limits_of(&known.remembered);
            }
        }
        self.exports.set_shared(address, access, tls.as_ref());
        for stored in &mut self.memory.remembered.borrow_mut().exports {
            if stored.id == *id {
                stored.limits = *limits;
            }
            if stored.address == *address {
                (stored.access, stored.tls) = (access.clone(), tls.clone()); // EXPORTACCESS1, EXPORTTLS1
            }
        }
    }

    /// EXPORTS3: serves an export again that is down, or does not have the file any more that it `had`.
    async fn recover_export(&self, id: &str, had: Option<FileIdentity>) -> Result<(), Failure> {
        let _lock = self.lock_exports().await?;
        let (is_down, remembered, address) = {
            let exports = self.exports.known.borrow();
            let is_meant = |export: &&KnownExport| {
                let is_known = !export.is_open() || export.file == had; // Else another one at its address has recovered it.
                is_known && !matches!(export.open, Open::Moving)
            };
            let Some(export) = exports.get(id).filter(is_meant) else { return Ok(()) };
            (!export.is_open(), export.remembered.clone(), export.address.clone())
        };
        let is_renewed = match self.exports.door(id).filter(|_| !is_down).zip(address) {
            Some((door, address)) => {
                let access = access::resolve(&self.context, &address, &remembered.access).await?;
                door.renew(&address, access).await?
            }
            None => false,
        };
        if !is_renewed {
            let _ = self.close_door(id, Closing::Forced).await;
            self.restore_export(remembered.clone(), self.context.clock().now()).await;
        }
        self.note_file(&remembered.address).await;
        Ok(())
    }

    /// Learns the file of all exports at `address`.
    async fn note_file(&self, address: &str) {
        let at = |export: &&KnownExport| export.remembered.address == address && export.is_open();
        let path = self.exports.known.borrow().values().find(at).and_then(KnownExport::file_path);
        let Some(path) = path else { return };
        let asked = path.clone();
        let Ok(Some(file)) = self.at_path(&path, move |files| files.identity(&asked)).await else { return };
        let mut exports = self.exports.known.borrow_mut();
        for export in exports.values_mut().filter(|export| export.remembered.address == address) {
            (export.file, export.away) = (Some(file), None);
        }
    }

    /// Ends exports of a group under the old names of their volumes and begins them under the present ones; connections stay.
    pub(crate) async fn rename_exports(&self, group: Uuid) {
        let renamed = self.with_group(group, |known| self.renamed(known)).unwrap_or_default();
        if renamed.is_empty() {
            return;
        }
        for (id, name) in renamed {
            let to = name.to_string();
            self.rename_known(&id, name);
            if let Some(door) = self.exports.door(&id) {
                door.rename(to).await;
            }
        }
        self.save_or_warn().await;
    }

    /// Exports that do not have the names of their volumes in the group, and what these are.
    fn renamed(&self, known: &KnownGroup) -> Vec<(String, VolumeName)> {
        let names: BTreeMap<Uuid, String> = known.volumes().into_iter().collect();
        let exports = self.exports.known.borrow();
        let present = |export: &KnownExport| {
            let (group, volume) =
                (known.group.name().to_owned(), names.get(&export.remembered.volume)?.clone());
            let name = VolumeName { group, volume, ..export.name.clone() };
            (name != export.name).then(|| (export.remembered.id.clone(), name))
        };
        exports.values().filter_map(present).collect()
    }

    /// Changes the name of an export that is known; clients find it by the one before, too.
    fn rename_known(&self, id: &str, to: VolumeName) {
        let text = to.to_string();
        let address = self.exports.known.borrow_mut().get_mut(id).map(|known| {
            known.name = to;
            known.remembered.address.clone()
        });
        if let Some(address) = address {
            self.note_name(id, &address, &text);
        }
    }

    /// Notes wherever exports are remembered what one of them is called.
    pub(crate) fn note_name(&self, id: &str, address: &str, name: &str) {
        let note = |remembered: &mut RememberedExport| remembered.note_name(id, address, name);
        self.memory.remembered.borrow_mut().exports.iter_mut().for_each(note);
        self.exports.known.borrow_mut().values_mut().for_each(|known| note(&mut known.remembered));
    }

    /// Redirects the doors of these volumes and of their snapshots to what serves them now (OUTOFUSE2 of `activation.rs`).
    pub(crate) async fn redirect_exports(&self, volumes: &[(VolumeName, LocatedVolume)]) {
        for (_, located) in volumes {
            self.redirect(located, |export| export.remembered.volume == located.volume.id).await;
        }
    }

    /// Redirects the doors of a volume to all of it: it has another size.
    pub(crate) async fn resize_exports(&self, name: &VolumeName, located: &LocatedVolume) {
        self.redirect(located, |export| export.name == *name).await;
    }

    async fn redirect(&self, located: &LocatedVolume, is_meant: impl Fn(&KnownExport) -> bool) {
        let doors: Vec<_> = {
            let exports = self.exports.known.borrow();
            let meant = exports.values().filter(|export| is_meant(export));
            let to = |export: &KnownExport| {
                let door = export.door()?; // EXPORTLIMIT1: not of one that is being closed.
                let target = located.target(export.name.snapshot.clone(), export.remembered.read_only);
                let limits = self.exports.limits_of(&export.remembered);
                Some((door, Target { limits, ..target }))
            };
            meant.filter_map(to).collect()
        };
        for (door, target) in doors {
            door.redirect(target).await;
        }
    }

    pub(crate) async fn open_export(
        &self,
        remembered: &RememberedExport,
        name: &VolumeName,
        address: &Address,
        located: &LocatedVolume,
    ) -> Result<Open, Failure> {
        let RememberedExport { id, door, read_only, insecure, tls: folder, .. } = remembered;
        address.check_exposure(*insecure || folder.is_some(), || {
            let access = if *read_only { " --read-only" } else { "" };
            let text = &address.text;
            format!("varve export remove {id}; varve export create {name} --{door} {text}{access} --insecure")
        })?;
        let limits = self.exports.limits_of(remembered);
        let target = Target { limits, ..located.target(name.snapshot.clone(), *read_only) };
        let (text, aliases) = (name.to_string(), remembered.aliases.clone());
        let access = access::resolve(&self.context, address, &remembered.access).await?;
        let tls = match folder {
            Some(folder) => {
                let checked = tls::read(&self.context, folder).await?;
                Some(self.exports.use_tls(&address.text, checked))
            }
            None => None,
        };
        let dirty = match &remembered.since {
            Some(old) => Some(Arc::new(since::changed_since(self, located, name, old).await?)),
            None => None,
        };
        let new = NewDoor { name: text, aliases, address: address.clone(), access, tls, dirty, target };
        let Opened { door, warning } = self.exports.server(*door).open(new).await?;
        if let Some(warning) = warning {
            self.warn(&name.to_string(), &warning);
        }
        Ok(Open::Serving(door))
    }

    /// The way from any thread to a volume or snapshot.
    pub(crate) async fn portal(
        &self,
        located: &LocatedVolume,
        snapshot: Option<String>,
        read_only: bool,
        of: DoorOf,
    ) -> Result<Portal, Failure> {
        server::portal(&located.target(snapshot, read_only), of).await
    }

    /// Ends an export. Writes of its volume that wait for space fail after a while.
    pub(crate) async fn close_export(&self, id: &str, closing: Closing) -> Result<(), Failure> {
        let volume = self.exports.known.borrow().get(id).map(|export| export.remembered.volume);
        match select(pin!(self.close_door(id, closing)), self.context.clock().sleep(DRAIN)).await {
            Either::Left((closed, _)) => closed,
            Either::Right(((), closing)) => {
                self.let_writes_fail(volume, true).await;
                let closed = closing.await;
                self.let_writes_fail(volume, false).await;
                closed
            }
        }
    }

    /// Lets writes of a volume that wait for space fail, or wait again.
    async fn let_writes_fail(&self, volume: Option<Uuid>, fail: bool) {
        let Some((volume, home)) = volume.and_then(|volume| Some((volume, self.home_of(volume)?))) else {
            return;
        };
        let _ = home.volume(volume).let_writes_fail(fail).await;
    }

    async fn close_door(&self, id: &str, closing: Closing) -> Result<(), Failure> {
        let Some(Open::Serving(door)) = self.take_open(id) else { return Ok(()) };
        self.exports.lift_limits(id);
        let Err(NotClosed { failure, is_serving }) = door.close(closing).await else { return Ok(()) };
        let open = if is_serving { Open::Serving(door) } else { Open::Down(failure.clone()) };
        if let Some(export) = self.exports.known.borrow_mut().get_mut(id) {
            export.open = open;
            if is_serving {
                self.exports.limits_of(&export.remembered);
            }
        }
        Err(failure)
    }

    fn take_open(&self, id: &str) -> Option<Open> {
        let mut exports = self.exports.known.borrow_mut();
        exports.get_mut(id).map(|export| std::mem::replace(&mut export.open, Open::Moving))
    }

    fn name_of_export(&self, id: &str) -> Option<String> {
        self.exports.known.borrow().get(id).map(|export| export.name.to_string())
    }
}

/// EXPORTS3: looks at the files of all exports, folder by folder, and recovers those that are not served.
pub(crate) fn watch(control: &Control) {
    tls::watch(control);
    let mut folders: BTreeMap<PathBuf, Vec<(String, PathBuf)>> = BTreeMap::new();
    let mut down = Vec::new(); // Without a file to look at.
    for (id, export) in &*control.exports.known.borrow() {
        match (export.file_path(), export.folder()) {
            (Some(path), Some(folder)) => folders.entry(folder).or_default().push((id.clone(), path)),
            _ if !export.is_open() => down.push(id.clone()),
            _ => {}
        }
    }
    down.into_iter().for_each(|id| recover(control, id, None));
    for (folder, known) in folders {
        let look = move |files: &dyn Files| -> Vec<(String, Option<FileIdentity>)> {
            known.into_iter().map(|(id, path)| (id, files.identity(&path))).collect()
        };
        control.look_at(&folder, look, |control, _, found| {
            found.into_iter().for_each(|(id, file)| judge(control, id, file));
        });
    }
}

/// The file of an export is this one.
fn judge(control: &Control, id: String, found: Option<FileIdentity>) {
    let had = {
        let mut exports = control.exports.known.borrow_mut();
        let Some(export) = exports.get_mut(&id) else { return };
        if export.is_open() && found.is_some() && export.file.is_none_or(|file| Some(file) == found) {
            (export.file, export.away) = (found, None);
            return;
        }
        export.file
    };
    recover(control, id, had);
}

/// EXPORTS3, in a task of its own, if there is something to serve.
fn recover(control: &Control, id: String, had: Option<FileIdentity>) {
    let name = control.exports.known.borrow().get(&id).map(|export| export.name.clone());
    if name.is_none_or(|name| control.find_volume(&name).is_err()) {
        return;
    }
    let set = |control: &Control, id: &str, is_recovering: bool, away: Option<Failure>| {
        let mut exports = control.exports.known.borrow_mut();
        let Some(export) = exports.get_mut(id) else { return true };
        if away.is_some() {
            export.away = away;
        }
        std::mem::replace(&mut export.is_recovering, is_recovering)
    };
    if set(control, &id, true, None) {
        return; // The last attempt has not ended.
    }
    let me = control.weak();
    control.context.spawner().spawn(async move {
        let Some(control) = me.upgrade() else { return };
        let recovered = control.recover_export(&id, had).await;
        set(&control, &id, false, recovered.err());
    });
}
