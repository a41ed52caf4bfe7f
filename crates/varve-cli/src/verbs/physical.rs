//! `varve pv`, carried out.

use super::array::rebuilt;
use super::or_dash;
use crate::answer::Answer;
use crate::confirm;
use crate::grammar::{DiskChange, PhysicalVerb};
use crate::places::{absolute, absolute_all};
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::size;
use serde::Serialize;
use std::path::Path;
use varve_api::calls::{self, Call};
use varve_api::{
    Changed, Code, DryRun, Failure, PhysicalVolume, PhysicalVolumeChange, PhysicalVolumeCreate,
    PhysicalVolumeMove, PhysicalVolumeRemove, PhysicalVolumeReplace, PhysicalVolumeResize,
    PhysicalVolumeScan, PhysicalVolumeState, VolumeArray,
};
use varve_os::medium_at;

/// Carries out a verb of physical volumes.
pub(crate) async fn physical(session: &Session, verb: PhysicalVerb) -> Result<Answer, Failure> {
    match verb {
        PhysicalVerb::Create { paths, size, disk, destroy } => {
            let (paths, cache, overwrite) = (absolute_all(&paths)?, disk.cache, destroy.yes);
            let request = PhysicalVolumeCreate { paths, size, cache, overwrite, dry_run: destroy.dry_run };
            let text = |disks: &Vec<PhysicalVolume>| made(disks);
            overwriting(session, calls::CreateDisks(request), |request| request.overwrite = true, text).await
        }
        PhysicalVerb::List => session.show(calls::ListDisks(), |disks| table(disks)).await,
        PhysicalVerb::Show { disk } => show(session, &disk).await,
        PhysicalVerb::Scan { paths, trust_images, disk, change } => {
            let (paths, cache) = (absolute_all(&paths)?, disk.cache);
            let request = PhysicalVolumeScan { paths, cache, trust_images, dry_run: change.dry_run };
            session.change(calls::ScanDisks(request), |disks| table(disks)).await
        }
        PhysicalVerb::Remove { path, destroy } => {
            let request = PhysicalVolumeRemove { path: absolute(&path)?, dry_run: destroy.dry_run };
            let (what, text) = (format!("pv remove {path}"), format!("gave up {path}"));
            session.destroy(&what, destroy.yes, calls::RemoveDisk(request), |_| text).await
        }
        PhysicalVerb::Forget { path, change } => {
            let request = PhysicalVolumeRemove { path: absolute(&path)?, dry_run: change.dry_run };
            session.change(calls::ForgetDisk(request), |_| format!("forgot {path}")).await
        }
        PhysicalVerb::Change(DiskChange { disk, spare, change }) => {
            let (disk, spare) = (absolute(&disk)?, Some(spare));
            let request = PhysicalVolumeChange { disk, spare, dry_run: change.dry_run };
            session.change(calls::ChangeDisk(request), |disks| table(disks)).await
        }
        PhysicalVerb::Resize { disk, size, change } => {
            let request = PhysicalVolumeResize { disk: absolute(&disk)?, size, dry_run: change.dry_run };
            session.change(calls::ResizeDisk(request), |disks| resized(disks)).await
        }
        PhysicalVerb::Replace { from, to, change, waiting } => {
            let to = to.as_deref().map(absolute).transpose()?;
            let request = PhysicalVolumeReplace { from: absolute(&from)?, to, dry_run: change.dry_run };
            rebuilt(session, calls::ReplaceDisk(request), waiting, |arrays| replaced(&from, arrays)).await
        }
        PhysicalVerb::Move { from, to, rate, change, waiting } => {
            let (from, to) = (absolute(&from)?, absolute_all(&to)?);
            let text = format!("nothing lies on {from} any more");
            let request = PhysicalVolumeMove { from, to, rate, dry_run: change.dry_run };
            session.job(calls::MoveDisk(request), waiting, |_| text).await
        }
    }
}

/// One disk, which is named by its path or its identity.
async fn show(session: &Session, name: &str) -> Result<Answer, Failure> {
    let disks = session.ask(&calls::ListDisks()).await?;
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

/// Makes a change; if a disk holds something else, asks, and makes it as `insist` says.
pub(super) async fn overwriting<C, T>(
    session: &Session,
    call: C,
    insist: impl FnOnce(&mut C::Request),
    text: impl Fn(&T) -> String,
) -> Result<Answer, Failure>
where
    C: Call<Request: DryRun, Answer = Changed<T>>,
    T: Serialize,
{
    let (insisting, dry_run) = (call.with(insist), call.request().is_dry_run());
    match session.change(call, &text).await {
        Err(failure) if failure.code == Code::ForeignSignature && session.can_ask() && !dry_run => {
            confirm::ask_plainly(&format!("{}. Overwrite it?", failure.message))?;
            session.change(insisting, &text).await
        }
        result => result,
    }
}

/// Which volumes and pools have their members, or their log, elsewhere now.
fn replaced(from: &str, arrays: &[VolumeArray]) -> String {
    let mut names: Vec<&str> = arrays.iter().map(|array| array.volume.as_str()).collect();
    names.dedup();
    format!("replaced {from} in {}", names.join(", "))
}

fn made(disks: &[PhysicalVolume]) -> String {
    let line = |disk: &PhysicalVolume| {
        format!("labelled {} ({})\n", or_dash(disk.path.as_deref().unwrap_or("")), size(disk.size))
    };
    disks.iter().map(line).collect()
}

/// How much of a disk its group uses now.
fn resized(disks: &[PhysicalVolume]) -> String {
    let line = |disk: &PhysicalVolume| {
        let (path, group) =
            (or_dash(disk.path.as_deref().unwrap_or("")), disk.group.as_deref().unwrap_or(""));
        format!("{path} has {} for group {group} now, {} free\n", size(disk.size), size(disk.free))
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
    let path = disk.path.as_deref()?;
    let text = |bytes| {
        format!("it has grown to {}, and uses no more than before: varve pv resize {path}", size(bytes))
    };
    disk.grown_to.map(text)
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
