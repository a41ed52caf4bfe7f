//! `varve lv`, carried out.

use super::export::{attach, detach};
use super::layout::{array_text, array_word, convert, disk_words, layout_word, member_table, policy_words};
use super::trash::removed;
use super::{activate, deactivate, not_built, or_dash};
use crate::answer::Answer;
use crate::grammar::{LayoutChoice, PolicyOptions, VolumeCreateOptions, VolumeVerb};
use crate::places::absolute;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::{date, size};
use varve_api::{
    Code, Commit, Failure, Flatten, InGroup, Layout, LogicalVolume, Mapper, PolicyWords, Rename, Resize,
    SnapshotPolicy, SnapshotStore, Split, ThinUse, VolumeChange, VolumeCreate, VolumeRemove, WhenFull, calls,
};

/// Carries out a verb of volumes.
pub(crate) async fn volume(session: &Session, verb: VolumeVerb) -> Result<Answer, Failure> {
    let resized = |now: &LogicalVolume| format!("{} now has {}", now.name, size(now.size));
    match verb {
        VolumeVerb::Create(options) => {
            let call = calls::CreateVolume(create_request(&options)?);
            if call.0.array_block_size.is_some() {
                session.warn_of(&call).await;
            }
            session.change(call, |made| format!("made {} of {}", made.name, size(made.size))).await
        }
        VolumeVerb::List { group } => {
            session.show(calls::ListVolumes(InGroup { group }), |volumes| table(volumes)).await
        }
        VolumeVerb::Show { name } => session.show(calls::ShowVolume(name), show).await,
        VolumeVerb::Map(options) => super::volume_map::map(session, &options).await,
        VolumeVerb::Extend { name, size, disks, change } => {
            let request = Resize { size, on: disk_words(&disks)?, dry_run: change.dry_run };
            let text = |now: &LogicalVolume| match name.contains('@') {
                true => format!("extended the snapshot store of {name}"),
                false => resized(now),
            };
            session.change(calls::ExtendVolume(name.clone(), request), text).await
        }
        VolumeVerb::Reduce { name, size, destroy } => {
            let what = format!("lv reduce {name}");
            let request = Resize { size, dry_run: destroy.dry_run, ..Resize::default() };
            session.destroy(&what, destroy.yes, calls::ReduceVolume(name, request), resized).await
        }
        VolumeVerb::Declare { name, policy, image, force, change } => {
            let image = image.as_deref().map(absolute).transpose()?;
            let (snapshot_policy, is_moved) = (words(&policy), image.is_some());
            let request = VolumeChange { snapshot_policy, image, force, dry_run: change.dry_run };
            session.change(calls::ChangeVolume(name, request), |now| changed(now, is_moved)).await
        }
        VolumeVerb::Rename { name, to, force, change } => {
            let request = Rename { to, force: force.force, dry_run: change.dry_run };
            let call = calls::RenameVolume(name.clone(), request);
            session.change(call, |now| format!("{name} is now {}", now.name)).await
        }
        VolumeVerb::Activate { name, options } => {
            activate(session, calls::ActivateVolume, &name, options).await
        }
        VolumeVerb::Deactivate { name, change } => {
            deactivate(session, calls::DeactivateVolume, &name, change).await
        }
        VolumeVerb::Convert { name, options } => {
            convert(session, calls::ConvertVolume, &name, *options).await
        }
        VolumeVerb::Split { name, to, change } => {
            let call = calls::SplitVolume(name.clone(), Split { to, dry_run: change.dry_run });
            session.change(call, |new| format!("{} has a copy of {name}", new.name)).await
        }
        VolumeVerb::Attach(options) => attach(session, options).await,
        VolumeVerb::Detach(options) => detach(session, &options).await,
        VolumeVerb::Flatten { name, change, waiting } => {
            let call = calls::FlattenVolume(name.clone(), Flatten { dry_run: change.dry_run });
            session.job(call, waiting, |_| format!("{name} is backed by nothing any more")).await
        }
        VolumeVerb::Commit { name, change, waiting } => {
            let call = calls::CommitVolume(name.clone(), Commit { dry_run: change.dry_run });
            session.job(call, waiting, |_| format!("{name} lies in the image below now")).await
        }
        VolumeVerb::Remove { names, trash, destroy } => {
            let request = VolumeRemove { now: trash.now, dry_run: destroy.dry_run };
            let call = |name: String| (name.clone(), calls::RemoveVolume(name, request.clone()));
            let calls = names.into_iter().map(call).collect();
            session.destroy_each("lv remove", destroy.yes, calls, removed).await
        }
    }
}

/// The request, or the error of a kind of volume that is not built.
fn create_request(options: &VolumeCreateOptions) -> Result<VolumeCreate, Failure> {
    if let Some((kind, instead)) = missing_kind(options) {
        return Err(not_built(kind).help(instead));
    }
    if options.layout.layout != LayoutChoice::Linear && options.pool.is_some() {
        return Err(Failure::new(Code::Usage, "a thin volume lies in its pool, in no layout of its own"));
    }
    let layout = match (&options.mapper, layout_word(&options.layout)?) {
        (Some(_), Layout::Linear) => Layout::Mapper, // What is usual, not what was asked for.
        (_, layout) => layout,
    };
    let size = match &options.size {
        Some(size) => size.clone(),
        None if options.origin.is_some() || options.image.is_some() => String::new(),
        None => return Err(Failure::new(Code::Usage, "--size is missing")),
    };
    Ok(VolumeCreate {
        name: options.name.clone(),
        size,
        pool: options.pool.clone(),
        origin: options.origin.clone(),
        image: options.image.as_deref().map(absolute).transpose()?,
        format: options.format.clone(),
        image_snapshot: options.image_snapshot.clone(),
        layout: Some(layout),
        mapper: options.mapper.as_deref().map(absolute_socket).transpose()?,
        mapper_wait: options.mapper_wait.clone(),
        devices: options.devices.clone(),
        no_zero: options.no_zero,
        stripes: options.layout.stripes,
        stripe_size: options.layout.stripe_size.clone(),
        copies: options.layout.copies,
        order: options.layout.order,
        array_block_size: options.layout.array_block_size.clone(),
        read_policy: options.layout.read_policy,
        array_policy: policy_words(&options.layout.policy),
        checksums: options.layout.checksums,
        log: options.layout.log.as_deref().map(absolute).transpose()?,
        on: disk_words(&options.layout.disks)?,
        snapshot_policy: words(&options.policy),
        dry_run: options.change.dry_run,
    })
}

/// `unix:PATH`, with a path that the daemon finds, too.
fn absolute_socket(address: &str) -> Result<String, Failure> {
    match address.strip_prefix("unix:") {
        Some(path) => absolute(path).map(|path| format!("unix:{path}")),
        None => Ok(address.to_owned()), // The daemon says what is wrong with it.
    }
}

fn mapper_text(mapper: &Mapper) -> String {
    let state = if mapper.connected { "connected" } else { "away" };
    let Mapper { address, answers, unflushed, questions, refused, timeouts, .. } = mapper;
    format!(
        "{address}, {state}; {answers} answers kept, {unflushed} of them not durable; {questions} questions, {refused} answers \
        refused, {timeouts} requests timed out after {}",
        milliseconds(mapper.wait_ms)
    )
}

/// What a volume declares now, or where its image is.
fn changed(now: &LogicalVolume, is_moved: bool) -> String {
    match now.image.as_ref().filter(|_| is_moved) {
        Some(image) => format!("{} lies in {} now", now.name, image.path),
        None => format!("{}: {}", now.name, policy_text(&now.snapshot_policy)),
    }
}

fn words(options: &PolicyOptions) -> PolicyWords {
    let PolicyOptions { when_full, pause_timeout, auto_extend } = options.clone();
    PolicyWords { when_full, pause_timeout, auto_extend, ..PolicyWords::default() }
}

/// The kind of volume that is asked for and not built, and what to do instead.
fn missing_kind(options: &VolumeCreateOptions) -> Option<(&'static str, &'static str)> {
    const RAW: &str = "qemu-img convert -O raw FILE FILE.raw, then --image FILE.raw --format raw";
    if options.format.as_deref().is_some_and(|format| !["raw", "qcow2"].contains(&format)) {
        Some(("disk images that are neither raw nor qcow2", RAW))
    } else {
        None
    }
}

fn table(volumes: &[LogicalVolume]) -> String {
    let mut table = Table::new(&["VOLUME", "LAYOUT", "SIZE>", "STATE", "SNAPSHOTS>", "KEPT>", "EXPORTS"]);
    for volume in volumes {
        table.row(vec![
            volume.name.clone(),
            layout(volume),
            size(volume.size),
            volume.state.to_string(),
            volume.snapshots.to_string(),
            match (&volume.thin, stores(volume).count()) {
                (Some(thin), _) => format!("{} mapped", size(thin.mapped)),
                (None, 0) => "-".to_owned(),
                _ => size(stores(volume).map(|store| store.used).sum()),
            },
            or_dash(&volume.exports.join(" ")),
        ]);
    }
    table.render("no volumes; varve lv create VG/LV --size SIZE")
}

/// All snapshot stores of a volume.
fn stores(volume: &LogicalVolume) -> impl Iterator<Item = &SnapshotStore> {
    volume.snapshot_store.iter().chain(&volume.independent_stores)
}

fn store_text(store: &SnapshotStore) -> String {
    let paused = if store.paused { "; WRITES WAIT FOR SPACE" } else { "" };
    let (used, all, chunk) = (size(store.used), size(store.size), size(store.chunk_size));
    format!("{used} of {all} in use, chunks of {chunk}{paused}")
}

fn policy_text(policy: &SnapshotPolicy) -> String {
    let growth = match policy.auto_extend {
        Some(extend) => {
            format!("at {} % full the snapshot store grows by {} %", extend.at_percent, extend.by_percent)
        }
        None => "the snapshot store does not grow by itself".to_owned(),
    };
    let full = match policy.when_full {
        WhenFull::Pause => {
            format!("writes wait up to {}", milliseconds(policy.pause_timeout_ms))
        }
        WhenFull::DropOldest => "the oldest snapshots go".to_owned(),
        WhenFull::Error => "writes fail".to_owned(),
    };
    format!("{growth}; when it cannot, {full}")
}

/// `60 s`, `1500 ms`.
pub(super) fn milliseconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}

fn layout(volume: &LogicalVolume) -> String {
    match (&volume.array, volume.layout) {
        (Some(array), _) => array_word(array),
        (None, Layout::Striped) => format!("striped x{}", volume.stripes),
        (None, layout) if volume.image.is_some() => {
            format!("{layout} ({})", volume.image.as_ref().map_or("", |image| image.format.as_str()))
        }
        (None, layout) => layout.to_string(),
    }
}

fn show(volume: &LogicalVolume) -> String {
    let state = match &volume.reason {
        Some(reason) => format!("{}: {reason}", volume.state),
        None => volume.state.to_string(),
    };
    if let Some(thin) = &volume.thin {
        return show_thin(volume, thin, state);
    }
    let store = volume.snapshot_store.as_ref().map_or("-".to_owned(), store_text);
    let independent: Vec<String> = volume.independent_stores.iter().map(store_text).collect();
    let traffic = &volume.traffic;
    let mut head = vec![
        ("volume", volume.name.clone()),
        ("id", volume.id.clone()),
        ("layout", volume.array.as_ref().map_or_else(|| layout(volume), array_text)),
        ("size", format!("{} ({} bytes)", size(volume.size), volume.size)),
        ("state", state),
        ("created", date(volume.created)),
        ("shard", volume.shard.to_string()),
        ("snapshots", volume.snapshots.to_string()),
        ("snapshot store", store),
        ("independent", or_dash(&independent.join("; "))),
        ("when full", policy_text(&volume.snapshot_policy)),
        ("exports", or_dash(&volume.exports.join(" "))),
        ("read", format!("{} in {} requests", size(traffic.read_bytes), traffic.reads)),
        ("written", format!("{} in {} requests", size(traffic.write_bytes), traffic.writes)),
        ("errors", traffic.errors.to_string()),
    ];
    if let Some(to) = &volume.granted_to {
        head.insert(3, ("device of", to.clone()));
    }
    if let Some(mapper) = &volume.mapper {
        head.insert(3, ("mapper", mapper_text(mapper)));
        head.insert(4, ("devices", or_dash(&mapper.devices.join(" "))));
        return pairs(&head);
    }
    let head = pairs(&head);
    let mut table = Table::new(&["FROM>", "LENGTH>", "LIES ON"]);
    for segment in &volume.segments {
        table.row(vec![size(segment.offset), size(segment.length), segment.areas.join(" ")]);
    }
    if let Some(image) = &volume.image {
        table.row(vec![size(0), size(volume.size), image.path.clone()]);
    }
    let grown = volume.image.as_ref().and_then(|image| image.grown_to).map(|bytes| {
        let name = &volume.name;
        format!("its image has grown to {}: varve lv extend {name} --size {bytes}B\n", size(bytes))
    });
    format!(
        "{head}{}\n{}{}",
        member_table(volume.array.as_ref()),
        table.render(""),
        grown.unwrap_or_default()
    )
}

fn show_thin(volume: &LogicalVolume, thin: &ThinUse, state: String) -> String {
    let traffic = &volume.traffic;
    pairs(&[
        ("volume", volume.name.clone()),
        ("id", volume.id.clone()),
        ("layout", format!("thin, in {}", thin.pool)),
        ("size", format!("{} ({} bytes)", size(volume.size), volume.size)),
        ("mapped", size(thin.mapped)),
        ("exclusive", size(thin.exclusive)),
        ("shared", size(thin.shared)),
        ("origin", or_dash(thin.origin.as_deref().unwrap_or_default())),
        ("state", state),
        ("created", date(volume.created)),
        ("shard", volume.shard.to_string()),
        ("snapshots", volume.snapshots.to_string()),
        ("exports", or_dash(&volume.exports.join(" "))),
        ("read", format!("{} in {} requests", size(traffic.read_bytes), traffic.reads)),
        ("written", format!("{} in {} requests", size(traffic.write_bytes), traffic.writes)),
        ("errors", traffic.errors.to_string()),
    ])
}
