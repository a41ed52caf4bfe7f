//! Doors of exports: sockets and files opened, led to another size, closed.
//!
//! Invariant DOORS1: when a door is closed it serves no client, and nothing that came through it is in flight.

use super::address::Address;
use super::known_export::{KnownExport, Open};
use super::served::parsed;
use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::known_group::KnownGroup;
use crate::host::remembered::RememberedExport;
use futures_util::future::{Either, join_all, select};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::host::FileIdentity;
use varve_block::{Moment, Portal, UnixTime};
use varve_export::fuse::FuseOptions;
use varve_vg::names::VolumeName;
use varve_volume::doors::export_target::Target;
use varve_volume::world::{Files, Place};
use varve_volume::{DoorOf, NewExport, ShardHandle};

/// How long requests of an export that ends may wait for space.
const DRAIN: Duration = Duration::from_secs(3);
/// How long a mount may take.
const MOUNT_MAX: Duration = Duration::from_secs(30);

impl Control {
    /// Closes every door, whatever clients it has; what is in flight is finished, unless that lasts longer than until
    /// `deadline`.
    pub(crate) async fn close_exports(&self, deadline: Moment) {
        let ids: Vec<String> = self.exports.known.borrow().keys().cloned().collect();
        join_all(ids.iter().map(async |id| {
            if self.until(deadline, self.end_door(id)).await.is_none() {
                let name = self.name_of_export(id).unwrap_or_default();
                self.fault(format!("export {id} of {name} did not end in time"));
            }
        }))
        .await;
    }

    async fn end_door(&self, id: &str) {
        match self.take_open(id) {
            Some(Open::Fuse(mut door)) => {
                let place = door.path().to_owned();
                let _ = self.at_mount(&place, move |_| door.detach()).await;
            }
            Some(Open::Nbd(shard)) => {
                let Some(address) = self.address_of(id) else { return };
                let _ = shard.exports(&address).close_all().await;
            }
            _ => {}
        }
    }

    /// EXPORTS3: serves an export again that is down, or does not have the file any more that it `had`.
    async fn recover_export(&self, id: &str, had: Option<FileIdentity>) -> Result<(), Failure> {
        let _lock = self.lock_exports().await?;
        let (is_down, remembered) = {
            let exports = self.exports.known.borrow();
            let is_meant = |export: &&KnownExport| {
                let is_known = !export.is_open() || export.file == had; // Else another one at its address has recovered it.
                is_known && !matches!(export.open, Open::Moving)
            };
            let Some(export) = exports.get(id).filter(is_meant) else { return Ok(()) };
            (!export.is_open(), export.remembered.clone())
        };
        let address = parsed(&remembered);
        match &address {
            Some(Address::Nbd(place)) if !is_down => {
                self.check_folder(&Address::Nbd(place.clone())).await?;
                self.listen_again(&remembered.address, place).await?;
            }
            _ => {
                self.drop_mount(id).await;
                self.restore_export(remembered.clone(), self.context.clock().now()).await;
            }
        }
        self.note_file(&remembered.address).await;
        Ok(())
    }

    /// Learns the file of all exports at `address`.
    async fn note_file(&self, address: &str) {
        let at = |export: &&KnownExport| export.remembered.address == address && export.is_open();
        let path = self.exports.known.borrow().values().find(at).and_then(KnownExport::path);
        let Some(path) = path else { return };
        let asked = path.clone();
        let Ok(Some(file)) = self.at_path(&path, move |files| files.identity(&asked)).await else { return };
        let mut exports = self.exports.known.borrow_mut();
        for export in exports.values_mut().filter(|export| export.remembered.address == address) {
            (export.file, export.away) = (Some(file), None);
        }
    }

    /// Has the socket at `address` listen anew; its connections stay.
    pub(crate) async fn listen_again(&self, address: &str, place: &Place) -> Result<(), Failure> {
        let Some(shard) = self.socket_home(address) else { return Ok(()) };
        let listens = shard.exports(address).listen_again(place.clone()).await.map_err(failures::gone)?;
        listens.map_err(|error| failures::listen(address, &error))
    }

    /// Releases the mount of an export that clients do not find any more.
    pub(crate) async fn drop_mount(&self, id: &str) {
        if let Some(Open::Fuse(mut door)) = self.take_open(id) {
            let place = door.path().to_owned();
            let _ = self.at_mount(&place, move |_| door.detach()).await;
        }
    }

    /// Ends exports of a group under the old names of their volumes and begins them under the present ones; connections stay.
    pub(crate) async fn rename_exports(&self, group: Uuid) {
        let renamed = self.with_group(group, |known| self.renamed(known)).unwrap_or_default();
        if renamed.is_empty() {
            return;
        }
        for (id, name) in renamed {
            let Some((old, new, shard, address)) = self.rename_known(&id, name) else { continue };
            if let Some(shard) = shard {
                let _ = shard.exports(&address).rename(old, new).await;
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

    /// Changes the name of an export that is known; old and new name, and where its socket is.
    fn rename_known(
        &self,
        id: &str,
        to: VolumeName,
    ) -> Option<(String, String, Option<ShardHandle>, String)> {
        let mut exports = self.exports.known.borrow_mut();
        let known = exports.get_mut(id)?;
        let (old, new) = (known.name.to_string(), to.to_string());
        known.name = to;
        known.remembered.name.clone_from(&new);
        let shard = match &known.open {
            Open::Nbd(shard) => Some(shard.clone()),
            _ => None,
        };
        let address = known.remembered.address.clone();
        for remembered in &mut self.memory.remembered.borrow_mut().exports {
            if remembered.id == id {
                remembered.name.clone_from(&new);
            }
        }
        Some((old, new, shard, address))
    }

    /// Redirects the files of these volumes and of their snapshots to what serves them now (OUTOFUSE2 of `activation.rs`).
    pub(crate) async fn redirect_files(&self, volumes: &[(VolumeName, LocatedVolume)]) {
        let files: Vec<(String, Option<String>, bool, &LocatedVolume)> = {
            let exports = self.exports.known.borrow();
            let files = exports.iter().filter(|(_, export)| matches!(export.open, Open::Fuse(_)));
            let of = |(id, KnownExport { remembered, name, .. }): (&String, &KnownExport)| {
                let (_, located) =
                    volumes.iter().find(|(_, located)| located.volume.id == remembered.volume)?;
                Some((id.clone(), name.snapshot.clone(), remembered.read_only, located))
            };
            files.filter_map(of).collect()
        };
        for (id, snapshot, read_only, located) in files {
            let Ok(portal) = self.portal(located, snapshot, read_only, DoorOf::SameFile).await else {
                continue;
            };
            if let Some(KnownExport { open: Open::Fuse(door), .. }) = self.exports.known.borrow().get(&id) {
                door.replace(portal);
            }
        }
    }

    /// Leads files to the new size of a volume; NBD clients see it when they connect again.
    pub(crate) async fn resize_exports(&self, name: &VolumeName, located: &LocatedVolume) {
        for id in self.exports_of(name) {
            let read_only =
                self.exports.known.borrow().get(&id).is_some_and(|export| export.remembered.read_only);
            let Ok(portal) = self.portal(located, None, read_only, DoorOf::SameFile).await else { continue };
            if let Some(KnownExport { open: Open::Fuse(door), .. }) = self.exports.known.borrow().get(&id) {
                door.replace(portal);
            }
        }
    }

    /// Refuses an address at which a new socket would have to listen and cannot.
    pub(crate) async fn check_listen(&self, address: &Address) -> Result<(), Failure> {
        let (Address::Nbd(place), text) = (address, address.text()) else { return Ok(()) };
        if self.socket_home(&text).is_some() {
            return Ok(());
        }
        let (asked, path) = (place.clone(), address.file().unwrap_or_default());
        let checked = self.at_path(&path, move |files| files.check_listen(&asked)).await?;
        checked.map_err(|error| failures::listen(&text, &error))
    }

    pub(crate) async fn check_fuse(&self, path: &Path) -> Result<(), Failure> {
        let place = path.to_owned();
        let checked = self.at_path(path, move |files| files.check_mount(&place)).await?;
        checked.map_err(|error| failures::fuse(&error))
    }

    pub(crate) async fn open_export(
        &self,
        remembered: &RememberedExport,
        name: &VolumeName,
        address: &Address,
        located: &LocatedVolume,
    ) -> Result<Open, Failure> {
        match address {
            Address::Nbd(place) => self.open_nbd(remembered, name, place, located).await,
            Address::Fuse(path) => self.open_fuse(remembered, name, path, located).await,
        }
    }

    /// Adds a name to the socket at `place`; a new socket listens on the volume's own shard.
    async fn open_nbd(
        &self,
        remembered: &RememberedExport,
        name: &VolumeName,
        place: &Place,
        located: &LocatedVolume,
    ) -> Result<Open, Failure> {
        let address = remembered.address.clone();
        let shard = self.socket_home(&address).unwrap_or_else(|| located.home.clone());
        let target = Target {
            volume: located.volume.id,
            snapshot: name.snapshot.clone(),
            home: located.home.clone(),
            read_only: remembered.read_only,
        };
        let (own_name, place, resources) = (name.to_string(), place.clone(), self.exports.doors.clone());
        let export = NewExport { name: own_name.clone(), place: place.clone(), resources, target };
        let opened = shard.exports(&address).open(export).await.map_err(failures::gone)?;
        if opened.map_err(|error| failures::listen(&address, &error))? {
            if let Place::Tcp(address) = &place
                && !address.ip().is_loopback()
            {
                let open = format!(
                    "open to other hosts at tcp:{address}: anybody who reaches it may use the volume"
                );
                self.warn(&own_name, &open);
            }
            return Ok(Open::Nbd(shard));
        }
        Err(Failure::new(Code::ExportExists, format!("{own_name} is exported at this socket already")))
    }

    /// The shard of the socket that listens at `address`, if one does.
    fn socket_home(&self, address: &str) -> Option<ShardHandle> {
        let exports = self.exports.known.borrow();
        exports.values().find_map(|export| match &export.open {
            Open::Nbd(shard) if export.remembered.address == address => Some(shard.clone()),
            _ => None,
        })
    }

    async fn open_fuse(
        &self,
        remembered: &RememberedExport,
        name: &VolumeName,
        path: &Path,
        located: &LocatedVolume,
    ) -> Result<Open, Failure> {
        let portal =
            self.portal(located, name.snapshot.clone(), remembered.read_only, DoorOf::NewFile).await?;
        let (arena, path, name) = (self.context.arena(), path.to_owned(), name.to_string());
        let options = FuseOptions {
            name,
            created: UnixTime(self.now()),
            budget: self.exports.doors.budget.clone(),
            ..FuseOptions::default()
        };
        let place = path.clone();
        let opened =
            self.at_mount(&place, move |files| files.mount(&portal, &arena, &path, &options)).await?;
        let door = opened.map_err(|error| failures::fuse(&error))?;
        Ok(Open::Fuse(door))
    }

    /// Mounts or unmounts at `path`, on a thread that nothing else waits for: what lies at the path may not answer. A door
    /// that comes back too late is detached.
    async fn at_mount<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&dyn Files) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let deadline = self.context.clock().now().after(MOUNT_MAX);
        match self.until(deadline, self.context.files_at(path, work)).await {
            Some(done) => done,
            None => Err(Failure::new(Code::DoorFailed, format!("{}: it does not answer", path.display()))
                .help("look at the file system of that path: it hangs; then try again")),
        }
    }

    /// The way from any thread to a volume or snapshot.
    pub(crate) async fn portal(
        &self,
        located: &LocatedVolume,
        snapshot: Option<String>,
        read_only: bool,
        of: DoorOf,
    ) -> Result<Portal, Failure> {
        let volume = located.volume.id;
        let portal = located.home.volume(volume).portal(snapshot, read_only, of);
        let portal = portal.await.map_err(failures::gone)?;
        portal.ok_or_else(|| Failure::new(Code::VolumeUnusable, "the volume is not active"))
    }

    /// Ends an export whose file could not be remembered, or that is removed. Writes of its volume that wait for space
    /// fail after a while.
    pub(crate) async fn close_export(&self, id: &str) -> Result<(), Failure> {
        let volume = self.exports.known.borrow().get(id).map(|export| export.remembered.volume);
        match select(pin!(self.close_door(id)), self.context.clock().sleep(DRAIN)).await {
            Either::Left((closed, _)) => closed,
            Either::Right(((), closing)) => {
                self.let_writes_fail(volume, true).await;
                let closed = closing.await;
                self.let_writes_fail(volume, false).await;
                closed
            }
        }
    }

    /// The same, even if its file is open: what has it open gets errors from now on.
    pub(crate) async fn detach_export(&self, id: &str) -> Result<(), Failure> {
        let is_file =
            matches!(self.exports.known.borrow().get(id), Some(KnownExport { open: Open::Fuse(_), .. }));
        if is_file {
            self.end_door(id).await;
            return Ok(());
        }
        self.close_export(id).await
    }

    /// Lets writes of a volume that wait for space fail, or wait again.
    async fn let_writes_fail(&self, volume: Option<Uuid>, fail: bool) {
        let Some((volume, home)) = volume.and_then(|volume| Some((volume, self.home_of(volume)?))) else {
            return;
        };
        let _ = home.volume(volume).let_writes_fail(fail).await;
    }

    async fn close_door(&self, id: &str) -> Result<(), Failure> {
        match self.take_open(id) {
            Some(Open::Fuse(mut door)) => {
                let place = door.path().to_owned();
                match self.at_mount(&place, move |_| (door.close(), door)).await {
                    Ok((Ok(()), _)) => {}
                    Ok((Err(error), door)) => {
                        self.put_door(id, Open::Fuse(door));
                        return Err(failures::fuse(&error));
                    }
                    // It is closed as soon as its path answers.
                    Err(failure) => {
                        self.put_door(id, Open::Down(failure.clone()));
                        return Err(failure);
                    }
                }
            }
            Some(Open::Nbd(shard)) => self.close_nbd(id, &shard).await?,
            _ => {}
        }
        Ok(())
    }

    async fn close_nbd(&self, id: &str, shard: &ShardHandle) -> Result<(), Failure> {
        let (Some(address), Some(name)) = (self.address_of(id), self.name_of_export(id)) else {
            return Ok(());
        };
        shard.exports(&address).close(name).await.map_err(failures::gone) // DOORS1
    }

    fn take_open(&self, id: &str) -> Option<Open> {
        let mut exports = self.exports.known.borrow_mut();
        exports.get_mut(id).map(|export| std::mem::replace(&mut export.open, Open::Moving))
    }

    fn put_door(&self, id: &str, open: Open) {
        if let Some(export) = self.exports.known.borrow_mut().get_mut(id) {
            export.open = open;
        }
    }

    fn address_of(&self, id: &str) -> Option<String> {
        self.exports.known.borrow().get(id).map(|export| export.remembered.address.clone())
    }

    fn name_of_export(&self, id: &str) -> Option<String> {
        self.exports.known.borrow().get(id).map(|export| export.name.to_string())
    }
}

/// EXPORTS3: looks at the files of all exports, folder by folder, and recovers those that are not served.
pub(crate) fn watch(control: &Control) {
    let mut folders: BTreeMap<PathBuf, Vec<(String, PathBuf)>> = BTreeMap::new();
    for (id, export) in &*control.exports.known.borrow() {
        match (export.path(), export.folder()) {
            (Some(path), Some(folder)) => folders.entry(folder).or_default().push((id.clone(), path)),
            _ if !export.is_open() => recover(control, id.clone(), None),
            _ => {}
        }
    }
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
