//! Thin pools on disks that no daemon holds: checked, dumped, compared, their metadata written anew.
//!
//! Invariants:
//! - NEWPOOL1. The old metadata is put aside, durably, before anything of the pool is written.

use super::renewal::{Renewed, Wish, commit, io, kept_name};
use super::{arrays, damage};
use std::collections::BTreeMap;
use varve_api::{ByteExtent, Code, Failure, Finding, Plan as ShownPlan, SnapshotDiff};
use varve_block::{Device, Extent};
use varve_control::shown_plan;
use varve_os::ShardContext;
use varve_target::thin::{
    MetadataBackup, PoolDamage, PoolError, PoolReport, Restored, backed_up_pool, check_pool, compare_volumes,
    dump_pool, repair_pool, restore_pool,
};
use varve_vg::model::{LogicalVolume, Role, StorePolicy};
use varve_vg::names::VolumeName;
use varve_vg::plan::{DiskChoice, Layout};
use varve_vg::size::{SizeArgument, format_size};
use varve_vg::table::{Parts, Table, table};
use varve_vg::{Absent, Change, Disk, OpenGroup, Plan, Stamp, Survey, plan, scan};

const POOL: &str = "pool";

/// The index in `survey.groups` of the group that `name` names, and the volume: a pool, or a metadata backup of one.
pub(super) fn find_volume(survey: &Survey, name: &str) -> Option<(usize, LogicalVolume)> {
    let (group, own) = name.split_once('/')?;
    let at = survey.groups.iter().position(|open| open.group().name() == group)?;
    survey.groups[at].group().lv(own).map(|volume| (at, volume.clone()))
}

/// The pool that `name` names.
pub(super) fn find_pool(survey: &Survey, name: &str) -> Option<(usize, LogicalVolume)> {
    find_volume(survey, name).filter(|(_, volume)| volume.is_pool())
}

/// The device of a volume, to be read.
pub(super) async fn device_of(
    context: &ShardContext,
    open: &OpenGroup,
    volume: &LogicalVolume,
) -> Result<Device, Failure> {
    let table = table_of(open, volume)?;
    let name = format!("{}/{}", open.group().name(), volume.name);
    let pool = volume.is_pool().then_some(name.as_str());
    let opened = arrays::look(context, &table, open).await.map_err(|failure| failure.about(&name, pool))?;
    Ok(opened.device)
}

fn table_of(open: &OpenGroup, volume: &LogicalVolume) -> Result<Table, Failure> {
    table(open.group(), volume, Parts::All).map_err(|error| arrays::incomplete(&error))
}

/// What a walk through a thin pool finds: the last commit, what it leads to, and which volumes hold it.
pub(super) async fn findings(
    context: &ShardContext,
    open: &OpenGroup,
    volume: &LogicalVolume,
) -> Vec<Finding> {
    let name = format!("{}/{}", open.group().name(), volume.name);
    let device = match device_of(context, open, volume).await {
        Ok(device) => device,
        Err(failure) => return vec![remark(format!("{name}: not checked: {}", failure.message))],
    };
    match check_pool(&device, &context.arena(), &context.clock()).await {
        Ok(report) => told(&name, open.group().name(), &report),
        Err(error) => {
            let message = format!("{name}: {error}; every volume in it is concerned");
            vec![damaged(message)]
        }
    }
}

/// A report in findings.
pub(super) fn told(pool: &str, group: &str, report: &PoolReport) -> Vec<Finding> {
    if report.is_sound() {
        let data = format_size(report.data_blocks * 4096);
        let PoolReport { volumes, runs, nodes, records, .. } = report;
        let message = format!(
            "{pool}: sound; {volumes} volumes and snapshots, {runs} runs in {nodes} nodes, {records} records, {data} of data"
        );
        return vec![remark(message)];
    }
    let errors = report.errors.iter().map(|error| damaged(format!("{pool}: {error}")));
    errors.chain(losses(group, report)).collect()
}

/// Whose bytes are lost or in doubt.
fn losses(group: &str, report: &PoolReport) -> Vec<Finding> {
    let finding = |loss: &PoolDamage| {
        let (volume, snapshot) = names(group, loss, &report.names);
        damage::finding(true, &volume, snapshot.as_deref(), &loss.extents, loss.why)
    };
    report.damage.iter().map(finding).collect()
}

/// `VG/LV` of what has a loss, and the snapshot's own name if it is one.
fn names(group: &str, loss: &PoolDamage, all: &BTreeMap<u64, String>) -> (String, Option<String>) {
    let named = |id: u64, name: Option<&String>| match name {
        Some(name) if !name.is_empty() => format!("{group}/{name}"),
        _ => format!("{group}/volume {id}"),
    };
    match loss.snapshot_of {
        None => (named(loss.volume, Some(&loss.name)), None),
        Some(of) => (named(of, all.get(&of)), Some(loss.name.clone())),
    }
}

fn damaged(message: String) -> Finding {
    Finding { damage: true, structure: POOL.to_owned(), message, ..Finding::default() }
}

fn remark(message: String) -> Finding {
    Finding { damage: false, structure: POOL.to_owned(), message, ..Finding::default() }
}

/// The metadata of the pool called `name`, or of one that was put aside in the volume of this name; none if there is no
/// such volume.
pub(super) async fn dump(
    context: &ShardContext,
    survey: &Survey,
    name: &str,
) -> Result<Option<String>, Failure> {
    let (arena, clock) = (context.arena(), context.clock());
    let Some((at, volume)) = find_volume(survey, name) else { return Ok(None) };
    let device = match volume.role {
        Role::Pool => device_of(context, &survey.groups[at], &volume).await?,
        Role::PoolBackup { .. } => {
            let backup = device_of(context, &survey.groups[at], &volume).await?;
            backed_up_pool(&backup, &arena).await.map_err(|error| unreadable(name, &error))?
        }
        Role::Volume | Role::StoreBackup { .. } => return Ok(None),
    };
    dump_pool(&device, &arena, &clock).await.map(Some).map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &str, error: &PoolError) -> Failure {
    Failure::new(Code::DataCorrupt, format!("{name}: {error}")).help("varve check PATH…")
}

/// Writes the metadata of a pool anew.
pub(super) async fn renew(
    context: &ShardContext,
    mut survey: Survey,
    (at, pool): (usize, LogicalVolume),
    wish: Wish,
) -> Result<Renewed, Failure> {
    let (arena, clock) = (context.arena(), context.clock());
    let mut open = survey.groups.swap_remove(at);
    let stamp = Stamp { date: clock.date(), change: wish.command.clone() };
    let device = device_of(context, &open, &pool).await?;
    let tried = carry_out(context, &device, &wish, true).await?;
    let lost = match wish.text {
        Some(_) => Vec::new(), // It says what there is, whatever can be read.
        None => check_pool(&device, &arena, &clock)
            .await
            .map_or(Vec::new(), |report| losses(open.group().name(), &report)),
    };
    let backup = MetadataBackup::find(&device, &arena, &clock).await.ok();
    let group = open.group().name().to_owned();
    if wish.dry_run {
        let words = format!(
            "would write the metadata of {} anew: {} volumes and snapshots with {} of data",
            wish.store,
            tried.volumes,
            format_size(tried.mapped_bytes)
        );
        let would = lost.iter().map(|loss| format!("would lose {}", loss.message));
        let words: Vec<String> = std::iter::once(words).chain(would).collect();
        let Some(backup) = backup else { return Ok(Renewed::Planned(ShownPlan::of_steps(words))) };
        let (planned, _) = plan_backup(&open, &pool, &backup, &stamp)?;
        let mut shown = shown_plan(&planned);
        shown.steps.extend(words);
        return Ok(Renewed::Planned(shown));
    }
    open.reconcile(Absent::Refuse, &stamp).await.map_err(|error| commit(&error))?;
    let opened = arrays::take(context, &table_of(&open, &pool)?, &open).await;
    let opened = opened.map_err(|failure| failure.about(&wish.store, Some(&wish.store)))?;
    let device = opened.device.clone();
    let mut kept_as = None;
    if let Some(backup) = backup {
        let (planned, own) = plan_backup(&open, &pool, &backup, &stamp)?;
        let volume = planned.after.lv(&own).cloned().expect("the plan makes this volume");
        let table = table(&planned.after, &volume, Parts::All).map_err(|error| arrays::incomplete(&error))?;
        let target = arrays::make(context, &table, &open).await?;
        backup.copy(&device, &target.device, &arena).await.map_err(|error| io(&wish.store, error))?;
        target.close().await?;
        open.apply(planned, Vec::new()).await.map_err(|error| commit(&error))?;
        assert!(open.group().lv(&own).is_some(), "NEWPOOL1: {own} holds the old metadata now");
        kept_as = Some(format!("{group}/{own}"));
    }
    let restored = carry_out(context, &device, &wish, false).await?;
    opened.close().await?;
    Ok(Renewed::Pool { kept_as, restored, lost })
}

async fn carry_out(
    context: &ShardContext,
    device: &Device,
    wish: &Wish,
    dry_run: bool,
) -> Result<Restored, Failure> {
    let (arena, clock) = (context.arena(), context.clock());
    let done = match &wish.text {
        Some(text) => restore_pool(device, &arena, &clock, text, dry_run).await,
        None => repair_pool(device, &arena, &clock, dry_run).await,
    };
    done.map_err(|error| match error {
        PoolError::Misfit(_) | PoolError::Name | PoolError::Exists => {
            Failure::new(Code::BadBackup, format!("{}: {error}", wish.store))
                .help("nothing was changed; varve dump --store prints a text that fits")
        }
        PoolError::NoSpace => Failure::new(
            Code::PoolFull,
            format!("{}: there is no room for new metadata beside the old", wish.store),
        ),
        error => Failure::new(Code::DataCorrupt, format!("{}: {error}", wish.store)).help(format!(
            "varve restore FILE PATH… --store {} writes a text of varve dump --store back",
            wish.store
        )),
    })
}

/// A linear volume for the old metadata, and its name.
fn plan_backup(
    open: &OpenGroup,
    pool: &LogicalVolume,
    backup: &MetadataBackup,
    stamp: &Stamp,
) -> Result<(Plan, String), Failure> {
    let name = kept_name(open.group(), pool);
    let size = SizeArgument::parse(&backup.length().to_string()).expect("a number of bytes");
    let change = Change::CreateVolume {
        name: name.clone(),
        id: uuid::Uuid::new_v4(),
        size,
        role: Role::PoolBackup { of: pool.id },
        layout: Layout::of_store(&pool.layout),
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    };
    let planned = plan(open.group(), change, stamp)
        .map_err(|error| commit(&varve_vg::open::CommitError::Plan(error)))?;
    Ok((planned, name))
}

/// In which bytes two volumes of one pool differ. A pool that cannot be read is reported only if no other one holds both.
pub(super) async fn delta(
    context: &ShardContext,
    disks: Vec<Disk>,
    names: [String; 2],
) -> Result<SnapshotDiff, Failure> {
    let [one, two] = &names;
    let parse = |name: &String| -> Result<VolumeName, Failure> {
        name.parse().map_err(|error: varve_vg::names::NamesError| {
            Failure::new(Code::BadName, format!("{name}: {error}")).help("VG/LV or VG/LV@SNAP")
        })
    };
    let parsed = (parse(one)?, parse(two)?);
    if parsed.0.group != parsed.1.group {
        let message = format!("{one} and {two} are in two groups, and a pool is in one");
        return Err(
            Failure::new(Code::Usage, message).help("only volumes and snapshots of one pool are compared")
        );
    }
    let survey = scan(disks, &context.arena()).await;
    let mut unread = None;
    for open in survey.groups.iter().filter(|open| open.group().name() == parsed.0.group) {
        for pool in open.group().logical_volumes().iter().filter(|volume| volume.is_pool()) {
            let (extents, exact) = match delta_in(context, open, pool, &parsed).await {
                Ok(Some(compared)) => compared,
                Ok(None) => continue,
                Err(failure) => {
                    unread = unread.or(Some(failure));
                    continue;
                }
            };
            let bytes = extents.iter().map(|extent| extent.length).sum();
            let shown =
                extents.iter().map(|extent| ByteExtent { offset: extent.offset, length: extent.length });
            let extents = shown.collect();
            return Ok(SnapshotDiff { from: one.clone(), to: two.clone(), exact, bytes, extents });
        }
    }
    let missing = || {
        let message = format!("no pool on these disks holds both {one} and {two}");
        Failure::new(Code::VolumeNotFound, message)
            .help("name all disks of the group; only volumes and snapshots of one pool are compared")
    };
    Err(unread.unwrap_or_else(missing))
}

/// The same in one pool, and whether none of it is there without need; none if the pool does not hold both.
async fn delta_in(
    context: &ShardContext,
    open: &OpenGroup,
    pool: &LogicalVolume,
    (one, two): &(VolumeName, VolumeName),
) -> Result<Option<(Vec<Extent>, bool)>, Failure> {
    let device = device_of(context, open, pool).await?;
    let own = |name: &VolumeName| (name.volume.clone(), name.snapshot.clone());
    match compare_volumes(&device, &context.arena(), &context.clock(), own(one), own(two)).await {
        Ok(compared) => Ok(Some(compared)),
        Err(PoolError::NotFound) => Ok(None),
        Err(error) => Err(unreadable(&format!("{}/{}", open.group().name(), pool.name), &error)),
    }
}
