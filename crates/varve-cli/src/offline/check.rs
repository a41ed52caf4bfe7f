//! `varve check`: labels, descriptions, snapshot stores and pools read and verified; nothing is written.

use super::damage;
use super::disks::{absolute, with_disks};
use super::stores::store_name;
use super::{arrays, pools};
use crate::answer::Answer;
use futures_util::FutureExt;
use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use varve_api::{Check, CheckedDisk, Code, Exit, Failure, Finding};
use varve_block::{Access, Arena, Device};
use varve_os::ShardContext;
use varve_target::snapshot::{check_store, dump_store};
use varve_vg::disks::relabel::{FoundLabel, find_labels};
use varve_vg::model::{Layout, LogicalVolume, Store};
use varve_vg::table::{Parts, store_table, table};
use varve_vg::{Disk, DiskProblem, Note, OpenGroup, ReadProblem, Survey, scan};
use varve_volume::fault::{self, Injections};

/// Checks the disks at `paths`. Exit 7 if something is damaged.
pub(crate) fn check(paths: &[PathBuf]) -> Result<Answer, Failure> {
    let check = look(paths)?;
    Ok(Answer::new(&check, text(&check)).exit(exit(&check)))
}

/// What a check of the disks at `paths` finds.
pub(super) fn look(paths: &[PathBuf]) -> Result<Check, Failure> {
    with_disks(paths, Access::ReadOnly, async move |context, disks| {
        walk(&context, &Surveyed::of(disks, &context.arena()).await).await
    })?
}

/// What disks say of themselves and of their groups.
pub(super) struct Surveyed {
    pub(super) disks: Vec<Disk>,
    /// The labels that are lost and can be made again, with the places of their disks.
    pub(super) lost: Vec<(usize, FoundLabel)>,
    pub(super) survey: Survey,
}

impl Surveyed {
    pub(super) async fn of(disks: Vec<Disk>, arena: &Arena) -> Self {
        let lost = find_labels(&disks, absolute, arena).await;
        let survey = scan(disks.clone(), arena).await;
        Self { disks, lost, survey }
    }
}

/// The exit code that says whether something is damaged.
pub(super) fn exit(check: &Check) -> Exit {
    if check.clean { Exit::Ok } else { Exit::NeedsRepair }
}

/// What a check finds on disks that were surveyed.
pub(super) async fn walk(context: &ShardContext, surveyed: &Surveyed) -> Result<Check, Failure> {
    let panic = std::env::var_os("VARVE_INJECT_PANIC");
    fault::inject(Injections { panic, ..Injections::default() });
    let Surveyed { disks, lost, survey } = surveyed;
    let names: Vec<&str> = disks.iter().map(|disk| disk.path.as_str()).collect();
    let unlabelled =
        |problem: &DiskProblem| matches!(problem, DiskProblem::Read { problem: ReadProblem::NoLabel, .. });
    if !survey.problems.is_empty()
        && survey.problems.len() == names.len()
        && survey.problems.iter().all(unlabelled)
        && lost.is_empty()
    {
        let message =
            format!("{}: no physical volume, neither by its first nor by its last MiB", names.join(", "));
        return Err(Failure::new(Code::NotPhysicalVolume, message).help(
            "varve repair PATH… of all disks of its group, or varve restore FILE PATH… of a backup, if it was one; \
             varve pv create PATH makes a new one",
        ));
    }
    let mut check = Check {
        clean: true,
        disks: names.iter().map(|name| checked(name, surveyed)).collect(),
        findings: Vec::new(),
    };
    for refused in &survey.refused {
        check.findings.push(damaged("description", format!("group {}: {}", refused.id, refused.problem)));
    }
    for open in &survey.groups {
        let notes = open.notes().iter().cloned().chain(open.tail_notes().await);
        check.findings.extend(notes.map(|note| noted(open, &note)));
        for volume in open.group().logical_volumes() {
            check.findings.extend(absence(open, volume));
            check.findings.extend(contents(context, open, volume).await);
        }
    }
    let is_damage = |finding: &Finding| finding.damage;
    check.clean = !check.findings.iter().any(is_damage)
        && !check.disks.iter().flat_map(|disk| &disk.findings).any(is_damage);
    Ok(check)
}

/// What is found in a volume's stores, or in a pool. A check that contradicts itself there is a finding like others.
async fn contents(context: &ShardContext, open: &OpenGroup, volume: &LogicalVolume) -> Vec<Finding> {
    let name = format!("{}/{}", open.group().name(), volume.name);
    let walked = async {
        fault::panic_at(&name, "check");
        let mut findings = Vec::new();
        if let Ok(table) = table(open.group(), volume, Parts::Some) {
            findings.extend(arrays::findings(context, &name, &table, open).await);
        }
        for store in volume.stores() {
            findings.extend(store_findings(context, open, volume, store).await);
        }
        if volume.is_pool() {
            findings.extend(pools::findings(context, open, volume).await);
        }
        findings
    };
    match AssertUnwindSafe(walked).catch_unwind().await {
        Ok(findings) => findings,
        Err(_) => {
            let message = format!(
                "{name}: its check ended with a panic: it is damaged in a way that no checksum shows"
            );
            vec![Finding { volume: Some(name), ..damaged("metadata", message) }]
        }
    }
}

fn checked(path: &str, Surveyed { disks, lost, survey }: &Surveyed) -> CheckedDisk {
    let mut disk = CheckedDisk { path: path.to_owned(), id: None, group: None, findings: Vec::new() };
    for open in &survey.groups {
        let member = open.group().physical_volumes().iter().find(|member| open.path(member.id) == Some(path));
        if let Some(member) = member {
            (disk.id, disk.group) = (Some(member.id.to_string()), Some(open.group().name().to_owned()));
        }
    }
    if let Some(free) = survey.unassigned.iter().find(|free| free.disk.path == path) {
        disk.id = Some(free.label.pv.to_string());
    }
    let concerned = survey.problems.iter().filter(|problem| match problem {
        DiskProblem::Read { path: other, .. } => other == path,
        DiskProblem::Duplicate { paths, .. } => paths.iter().any(|other| other == path),
    });
    disk.findings = concerned.map(|problem| damaged("label", problem.to_string())).collect();
    let lost = lost.iter().filter(|(place, _)| disks[*place].path == path);
    disk.findings.extend(lost.map(|(_, found)| lost_label(path, found)));
    disk
}

fn noted(open: &OpenGroup, note: &Note) -> Finding {
    let structure = match note {
        Note::LabelWorn { .. } | Note::TailBehind { .. } | Note::NoTail { .. } => "label",
        _ => "description",
    };
    // The others are what a crash or an absence leaves behind; the next start of a daemon reconciles them.
    let is_damage = matches!(note, Note::Stale { .. } | Note::NumberForged { .. });
    let message = format!("group {}: {note}", open.group().name());
    Finding { damage: is_damage, structure: structure.to_owned(), message, ..Finding::default() }
}

/// A label, or all descriptions of a disk, that can be made again.
fn lost_label(path: &str, found: &FoundLabel) -> Finding {
    let source = found.found_in;
    let whose = found.group.as_ref().map_or("of no group".to_owned(), |group| format!("of group {group}"));
    damaged("label", format!("{path}: a disk {whose} by {source}: varve repair PATH… of its disks mends it"))
}

/// The bytes of a volume that lie on disks which are not here: worth knowing, and damage only if these do not come.
fn absence(open: &OpenGroup, volume: &LogicalVolume) -> Vec<Finding> {
    let name = format!("{}/{}", open.group().name(), volume.name);
    let absent = damage::absent(open, volume.space());
    if absent.is_empty() {
        return Vec::new();
    }
    let why = match volume.layout {
        Layout::Linear | Layout::Zero | Layout::Error | Layout::Image { .. } | Layout::Mapper { .. } => {
            "lie on disks that are not here"
        }
        Layout::Striped { .. } | Layout::Mirror { .. } | Layout::Ddraid { .. } => {
            "lie in part on disks that are not here"
        }
    };
    vec![damage::finding(false, &name, None, &absent, why)]
}

/// What the walk through a snapshot store finds.
async fn store_findings(
    context: &ShardContext,
    open: &OpenGroup,
    volume: &LogicalVolume,
    store: &Store,
) -> Vec<Finding> {
    const STORE: &str = "snapshot store";
    let arena = &context.arena();
    let name = store_name(open.group(), volume, store);
    let table = match store_table(open.group(), volume, store) {
        Ok(table) => table,
        Err(incomplete) => return vec![remark(STORE, format!("not checked: {incomplete}"))],
    };
    let mut found = arrays::findings(context, &format!("the snapshots of {name}"), &table, open).await;
    let device = match arrays::look(context, &table, open).await {
        Ok(opened) => opened.device,
        Err(error) => {
            found.push(remark(STORE, format!("{name}: not checked: {}", error.message)));
            return found;
        }
    };
    found.extend(content_findings(open, (volume, store), &name, &device, arena).await);
    found
}

/// What the walk through a store on `device` finds.
async fn content_findings(
    open: &OpenGroup,
    (volume, store): (&LogicalVolume, &Store),
    name: &str,
    device: &Device,
    arena: &Arena,
) -> Vec<Finding> {
    let report = match check_store(device, arena).await {
        Ok(report) => report,
        Err(error) => return vec![lost_store(open, volume, store, &error.to_string())],
    };
    let contents = match dump_store(device, arena).await {
        Ok(text) => damage::Contents::parse(&text),
        Err(error) => return vec![lost_store(open, volume, store, &error.to_string())],
    };
    let unreadable = damage::unreadable(device, &contents, arena).await;
    if unreadable.is_empty() {
        let (snapshots, entries) = (report.snapshots.len(), report.entries);
        let bytes = varve_vg::size::format_size(report.content_bytes);
        let sound = format!("{name}: sound; {snapshots} snapshots, {entries} entries, {bytes} kept");
        return vec![remark("snapshot store", sound)];
    }
    let volume = format!("{}/{}", open.group().name(), volume.name);
    let finding = |loss: damage::Loss| {
        let why = "their content in the snapshot store cannot be read";
        damage::finding(true, &volume, loss.snapshot.as_deref(), &loss.extents, why)
    };
    contents.losses(&unreadable).into_iter().map(finding).collect()
}

/// A store whose metadata cannot be believed: whose snapshots can be damaged, and what is not.
fn lost_store(open: &OpenGroup, volume: &LogicalVolume, store: &Store, error: &str) -> Finding {
    let (name, whose) =
        (store_name(open.group(), volume, store), format!("{}/{}", open.group().name(), volume.name));
    let whole = damage::whole(open, volume);
    let which = match volume.store.as_ref().is_some_and(|shared| shared.id == store.id) {
        true => "every dependent snapshot",
        false => "its one independent snapshot",
    };
    let ranges = damage::ranges_text(&whole);
    let message = format!(
        "{name}: {error}; concerned is {which} of {whose}, {ranges}, and not {whose} itself, unless it was being rolled back"
    );
    let extents = damage::finding(true, &whose, None, &whole, "").extents;
    Finding { volume: Some(whose), extents, ..damaged("snapshot store", message) }
}

fn damaged(structure: &str, message: String) -> Finding {
    Finding { damage: true, structure: structure.to_owned(), message, ..Finding::default() }
}

fn remark(structure: &str, message: String) -> Finding {
    Finding { damage: false, structure: structure.to_owned(), message, ..Finding::default() }
}

/// What a check found, as shown to users.
pub(super) fn text(check: &Check) -> String {
    let mut text = String::new();
    let line = |text: &mut String, finding: &Finding| {
        let word = if finding.damage { "DAMAGED" } else { "note" };
        let _ = writeln!(text, "  {word}: {}: {}", finding.structure, finding.message);
    };
    for disk in &check.disks {
        let group = disk.group.as_deref().map_or("no group".to_owned(), |group| format!("group {group}"));
        let _ = writeln!(text, "{} ({group})", disk.path);
        disk.findings.iter().for_each(|finding| line(&mut text, finding));
    }
    for finding in &check.findings {
        line(&mut text, finding);
    }
    text.push_str(if check.clean { "nothing is damaged" } else { "damage was found; nothing was changed" });
    text
}
