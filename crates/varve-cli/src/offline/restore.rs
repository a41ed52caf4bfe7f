//! `varve restore` of groups: a group's description written back to disks that hold none any more.
//!
//! Invariant OFFLINE1: what a pool or snapshot store holds by its own superblock, and the backup does not give it, is lost only if
//! that was agreed to by name, as in `varve vg restore`.

use super::disks::{absolute, with_disks};
use super::{consent, new_store};
use crate::answer::Answer;
use crate::grammar::RestoreOptions;
use crate::table;
use std::collections::BTreeMap;
use varve_api::{Backup, Code, Failure, Plan};
use varve_block::{Access, Arena};
use varve_control::{Lost, refuse_lost};
use varve_vg::disks::held::held_beyond;
use varve_vg::model::{Description, LogicalVolume, PhysicalVolume};
use varve_vg::plan::under_way;
use varve_vg::rebuild::{RebuildError, lost_disks, rebuild};
use varve_vg::{CommitError, FreeDisk, Group, Stamp};

/// Writes the backup in a file to all of its disks.
pub(crate) fn restore(options: &RestoreOptions, json: bool) -> Result<Answer, Failure> {
    if let Some(store) = &options.store {
        return new_store::restore(&options.paths, store, &options.file, options.destroy, json);
    }
    let place = options.file.display().to_string();
    let text = std::fs::read_to_string(&options.file)
        .map_err(|error| Failure::new(Code::FileUnusable, format!("{place}: {error}")))?;
    let whole = Group::from_text(&text).map_err(|error| refused(&place, "", &RebuildError::Backup(error)))?;
    let (name, backup) = (whole.name(), without_dropped_pools(&whole, &options.drop));
    let (wanted, paths) = (backup.clone(), &options.paths);
    let lost = with_disks(paths, Access::ReadOnly, async move |context, disks| {
        let free = lost_disks(&wanted, disks, absolute, &context.arena()).await?;
        let steps = steps(&wanted, &free);
        Ok(lost_by(wanted, &free, &context.arena()).await.map(|lost| (lost, steps)))
    });
    let (lost, steps) = lost?.map_err(|error| refused(&place, name, &error))??;
    let command = format!("varve restore {place} PATH…");
    refuse_lost(&whole, &lost, &options.drop, options.destroy.dry_run, &command)?;
    let mut plan = Plan::of_steps(steps);
    plan.steps.extend(lost.iter().map(Lost::step));
    let ended: Vec<String> = under_way(&backup).iter().map(|words| format!("warning: {words}")).collect();
    plan.steps.extend(ended.iter().cloned());
    if options.destroy.dry_run {
        return Ok(Answer::new(&plan, table::plan(&plan)));
    }
    consent("restore", &plan, options.destroy, json)?;
    let rebuilt = with_disks(paths, Access::ReadWrite, async move |context, disks| {
        let change = format!("restore, version {}", backup.group.sequence);
        let stamp = Stamp { date: context.clock().date(), change };
        let open = rebuild(backup, disks, absolute, &stamp, context.arena()).await?;
        let group = open.group();
        let (name, sequence) = (group.name().to_owned(), group.entry().sequence);
        Ok(Backup { group: name, sequence, text: group.text() })
    });
    let rebuilt = rebuilt?.map_err(|error: RebuildError| refused(&place, name, &error))?;
    let mut said = vec![format!("restored group {} as change {}", rebuilt.group, rebuilt.sequence)];
    said.extend(ended);
    Ok(Answer::new(&rebuilt, said.join("\n")))
}

/// The backup without the pools that are to be dropped: a pool that is given less than it holds is none any more.
fn without_dropped_pools(whole: &Group, agreed: &[String]) -> Description {
    let mut wanted = whole.description().clone();
    let name = |entry: &LogicalVolume| format!("{}/{}", whole.name(), entry.name);
    wanted.logical_volumes.retain(|entry| !entry.is_pool() || !agreed.contains(&name(entry)));
    wanted
}

/// What pools and stores hold beyond what the backup gives them (OFFLINE1).
async fn lost_by(mut wanted: Description, free: &[FreeDisk], arena: &Arena) -> Result<Vec<Lost>, Failure> {
    wanted.physical_volumes.iter_mut().for_each(|pv| pv.missing = false); // All are here.
    let named = |pv: &PhysicalVolume| Some((pv.name, free.iter().find(|free| free.label.pv == pv.id)?));
    let disks = wanted.physical_volumes.iter().filter_map(named);
    let disks: BTreeMap<_, _> = disks.map(|(name, free)| (name, free.disk.device.clone())).collect();
    let group = Group::new(wanted).map_err(|error| Failure::new(Code::BadBackup, error.to_string()))?;
    let mut lost = Vec::new();
    for entry in group.logical_volumes() {
        let name = format!("{}/{}", group.name(), entry.name);
        let beyond = held_beyond(&group, entry, &disks, arena).await;
        let beyond = beyond.map_err(|error| Failure::new(Code::MediumFailed, format!("{name}: {error}")))?;
        lost.extend(beyond.map(|beyond| Lost { name, words: beyond.to_string() }));
    }
    Ok(lost)
}

fn steps(backup: &Description, free: &[FreeDisk]) -> Vec<String> {
    let (name, sequence) = (&backup.group.name, backup.group.sequence);
    let onto = |free: &FreeDisk| {
        let entry = backup.physical_volumes.iter().find(|pv| pv.id == free.label.pv);
        let (path, disk) = (&free.disk.path, entry.map_or_else(String::new, |pv| pv.name.to_string()));
        format!("would write the description of group {name}, change {sequence}, to {path}, its {disk}")
    };
    free.iter().map(onto).collect()
}

fn refused(place: &str, group: &str, error: &RebuildError) -> Failure {
    let (code, help) = match error {
        RebuildError::Backup(_) => (Code::BadBackup, "give a file that varve vg backup wrote"),
        RebuildError::Disk(..) => (Code::LabelDamaged, "varve repair PATH… of the group's disks comes first"),
        RebuildError::OtherDisk(_) => (Code::BadBackup, "varve check PATH tells whose disk it is"),
        RebuildError::Missing { .. } => {
            (Code::DiskMissing, "name all disks of the group: varve restore FILE PATH…")
        }
        RebuildError::Unknown(_) => {
            (Code::BadBackup, "name its disks by the paths in the backup: links will do")
        }
        RebuildError::NotLost(_) => (
            Code::GroupExists,
            "varve repair PATH…, then start the daemon, varve pv scan, and varve vg restore VG FILE",
        ),
        RebuildError::Commit(CommitError::NumbersUsedUp { .. }) => {
            (Code::BadBackup, "give it a lower `sequence`: no group changes so many times")
        }
        RebuildError::Commit(_) => (Code::MediumFailed, "look at the disks, and try again"),
    };
    let message = match error {
        RebuildError::Backup(_) => format!("{place}: {error}"),
        error => error.to_string(),
    };
    Failure::new(code, message).help(help.replace(" FILE", &format!(" {place}"))).about(group, None)
}
