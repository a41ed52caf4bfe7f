//! `varve pv`, carried out.

use super::or_dash;
use crate::answer::Answer;
use crate::confirm;
use crate::grammar::{DiskChange, PhysicalVerb};
use crate::places::{absolute, absolute_all};
use crate::session::{Call, Session};
use crate::table::{Table, pairs};
use crate::units::size;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use varve_api::{
    Code, Failure, PhysicalVolume, PhysicalVolumeChange, PhysicalVolumeCreate, PhysicalVolumeMove,
    PhysicalVolumeRemove, PhysicalVolumeReplace, PhysicalVolumeScan, PhysicalVolumeState, VolumeArray,
};
use varve_os::medium_at;

/// Carries out a verb of physical volumes.
pub(crate) async fn physical(session: &Session, verb: PhysicalVerb) -> Result<Answer, Failure> {
    match verb {
        PhysicalVerb::Create { paths, size, disk, destroy } => {
            let paths = absolute_all(&paths)?;
            let mut request = PhysicalVolumeCreate {
                paths,
                size,
                cache: disk.cache,
                overwrite: destroy.yes,
                ..PhysicalVolumeCreate::default()
            };
            let text = |disks: &Vec<PhysicalVolume>| made(disks);
            overwriting(session, "/v1/pvs", &mut request, destroy.dry_run, text).await
        }
        PhysicalVerb::List => {
            let disks: Vec<PhysicalVolume> = session.get("/v1/pvs").await?;
            Ok(Answer::new(&disks, table(&disks)))
        }
        PhysicalVerb::Show { disk } => show(session, &disk).await,
        PhysicalVerb::Scan { paths, trust_images, disk, change } => {
            let request = PhysicalVolumeScan {
                paths: absolute_all(&paths)?,
                cache: disk.cache,
                trust_images,
                ..PhysicalVolumeScan::default()
            };
            let path = "/v1/pvs/scan".to_owned();
            let call = Call { method: Method::POST, path, request: &request, dry_run: change.dry_run };
            session.change(call, |disks: &Vec<PhysicalVolume>| table(disks)).await
        }
        PhysicalVerb::Remove { path, destroy } => {
            let request = PhysicalVolumeRemove { path: absolute(&path)?, ..PhysicalVolumeRemove::default() };
            let url = "/v1/pvs/remove".to_owned();
            let call = Call { method: Method::POST, path: url, request: &request, dry_run: destroy.dry_run };
            session.consent(&format!("pv remove {path}"), &call, destroy).await?;
            session.change(call, |_: &varve_api::Empty| format!("gave up {path}")).await
        }
        PhysicalVerb::Forget { path, change } => {
            let request = PhysicalVolumeRemove { path: absolute(&path)?, ..PhysicalVolumeRemove::default() };
            let url = "/v1/pvs/forget".to_owned();
            let call = Call { method: Method::POST, path: url, request: &request, dry_run: change.dry_run };
            session.change(call, |_: &varve_api::Empty| format!("forgot {path}")).await
        }
        PhysicalVerb::Change(DiskChange { disk, spare, change }) => {
            let (disk, spare) = (absolute(&disk)?, Some(spare));
            let request = PhysicalVolumeChange { disk, spare, ..PhysicalVolumeChange::default() };
            let path = "/v1/pvs/change".to_owned();
            let call = Call { method: Method::POST, path, request: &request, dry_run: change.dry_run };
            session.change(call, |disks: &Vec<PhysicalVolume>| table(disks)).await
        }
        PhysicalVerb::Replace { from, to, change } => {
            let to = to.as_deref().map(absolute).transpose()?;
            let request =
                PhysicalVolumeReplace { from: absolute(&from)?, to, ..PhysicalVolumeReplace::default() };
            let path = "/v1/pvs/replace".to_owned();
            let call = Call { method: Method::POST, path, request: &request, dry_run: change.dry_run };
            session.change(call, |arrays: &Vec<VolumeArray>| replaced(&from, arrays)).await
        }
        PhysicalVerb::Move { from, to, rate, change, waiting } => {
            let (from, to) = (absolute(&from)?, absolute_all(&to)?);
            let request =
                PhysicalVolumeMove { from: from.clone(), to, rate, ..PhysicalVolumeMove::default() };
            let path = "/v1/pvs/move".to_owned();
            let call = Call { method: Method::POST, path, request: &request, dry_run: change.dry_run };
            session.job(call, waiting, &format!("nothing lies on {from} any more")).await
        }
    }
}

/// One disk, which is named by its path or its identity.
async fn show(session: &Session, name: &str) -> Result<Answer, Failure> {
    let disks: Vec<PhysicalVolume> = session.get("/v1/pvs").await?;
    let path = absolute(name)?;
    let is_named = |disk: &&PhysicalVolume| disk.id == name || disk.path.as_ref() == Some(&path);
    let medium = |path: &str| medium_at(Path::new(path)).ok();
    let asked = medium(&path);
    let is_same = |disk: &&PhysicalVolume| {
        asked.is_some() && disk.path.as_ref().and_then(|known| medium(known)) == asked
    };
    let found = disks.iter().find(is_named).or_else(|| disks.iter().find(is_same)).cloned();
    let disk = found.ok_or_else(|| {
        Failure::new(Code::DiskNotFound, format!("no disk {name} is known")).help("varve pv list")
    })?;
    Ok(Answer::new(&disk, shown(&disk)))
}

/// A disk, line by line.
fn shown(disk: &PhysicalVolume) -> String {
    let state = disk.reason.as_ref().map_or(disk.state.to_string(), |why| format!("{}: {why}", disk.state));
    pairs(&[
        ("disk", or_dash(disk.path.as_deref().unwrap_or(""))),
        ("id", disk.id.clone()),
        ("group", or_dash(disk.group.as_deref().unwrap_or(""))),
        ("name", or_dash(disk.name.as_deref().unwrap_or(""))),
        ("state", state),
        ("spare", if disk.spare { "yes" } else { "no" }.to_owned()),
        ("size", size_text(disk)),
        ("sectors", sectors(disk)),
        ("cache", disk.cache.to_string()),
        ("errors", format!("{} requests failed since it was opened", disk.errors)),
        ("slow", format!("{} requests took a second or longer", disk.slow)),
        ("ejections", format!("arrays went on without it {} times", disk.ejections)),
    ])
}

/// A request that may have to destroy what a disk holds.
pub(super) trait Overwrite: Serialize {
    /// Allows it.
    fn allow(&mut self);
}

impl Overwrite for PhysicalVolumeCreate {
    fn allow(&mut self) {
        self.overwrite = true;
    }
}

/// Sends `request`; if a disk holds something else, asks and sends it again.
pub(super) async fn overwriting<R: Overwrite, T: DeserializeOwned + Serialize>(
    session: &Session,
    path: &str,
    request: &mut R,
    dry_run: bool,
    text: impl Fn(&T) -> String,
) -> Result<Answer, Failure> {
    let call = Call { method: Method::POST, path: path.to_owned(), request: &*request, dry_run };
    match session.change(call, &text).await {
        Err(failure) if failure.code == Code::ForeignSignature && session.can_ask() && !dry_run => {
            confirm::ask_plainly(&format!("{}. Overwrite it?", failure.message))?;
            request.allow();
            let call = Call { method: Method::POST, path: path.to_owned(), request: &*request, dry_run };
            session.change(call, &text).await
        }
        result => result,
    }
}

/// Which volumes and pools have their members, or their log, elsewhere now.
fn replaced(from: &str, arrays: &[VolumeArray]) -> String {
    let mut names: Vec<&str> = arrays.iter().map(|array| array.volume.as_str()).collect();
    names.dedup();
    let first = names.first().copied().unwrap_or("VG/LV");
    format!("replaced {from} in {}; varve array show {first} says what is being rebuilt", names.join(", "))
}

fn made(disks: &[PhysicalVolume]) -> String {
    let line = |disk: &PhysicalVolume| {
        format!("labelled {} ({})\n", or_dash(disk.path.as_deref().unwrap_or("")), size(disk.size))
    };
    disks.iter().map(line).collect()
}

/// The logical and the physical sectors of a disk, in bytes.
fn sectors(disk: &PhysicalVolume) -> String {
    let sizes = disk.sector_logical.zip(disk.sector_physical);
    sizes.map_or_else(|| "-".to_owned(), |(logical, physical)| format!("{logical}/{physical}"))
}

/// Its size, and what of it is free.
fn size_text(disk: &PhysicalVolume) -> String {
    let grown = grown(disk).map(|grown| format!("; {grown}"));
    format!("{}, {} free{}", size(disk.size), size(disk.free), grown.unwrap_or_default())
}

/// What is said of a disk that has grown.
fn grown(disk: &PhysicalVolume) -> Option<String> {
    disk.grown_to.map(|bytes| format!("it has grown to {}, and uses no more than before", size(bytes)))
}

/// The state of a disk; of one that is well whether it is a spare.
fn state_text(disk: &PhysicalVolume) -> String {
    match disk.state {
        PhysicalVolumeState::Ok if disk.spare => "spare".to_owned(),
        state => state.to_string(),
    }
}

/// Disks as a table.
pub(super) fn table(disks: &[PhysicalVolume]) -> String {
    let table = [
        "DISK",
        "GROUP",
        "STATE",
        "SIZE>",
        "FREE>",
        "CACHE",
        "ERRORS>",
        "SLOW>",
        "EJECTIONS>",
        "NAME",
        "SECTORS",
    ];
    let mut table = Table::new(&table);
    for disk in disks {
        table.row(vec![
            disk.path.clone().unwrap_or_else(|| disk.id.clone()),
            or_dash(disk.group.as_deref().unwrap_or("")),
            state_text(disk),
            size(disk.size),
            size(disk.free),
            disk.cache.to_string(),
            disk.errors.to_string(),
            disk.slow.to_string(),
            disk.ejections.to_string(),
            or_dash(disk.name.as_deref().unwrap_or("")),
            sectors(disk),
        ]);
    }
    let reasons = disks.iter().filter_map(|disk| {
        let name = disk.path.as_ref().unwrap_or(&disk.id);
        let line = |reason: &String| match reason.starts_with(name.as_str()) {
            true => format!("{reason}\n"),
            false => format!("{name}: {reason}\n"),
        };
        disk.reason.as_ref().map(line)
    });
    let grown = disks.iter().filter_map(|disk| Some(format!("{}: {}\n", disk.path.as_ref()?, grown(disk)?)));
    table.render("no disks; varve pv create PATH") + &reasons.chain(grown).collect::<String>()
}
