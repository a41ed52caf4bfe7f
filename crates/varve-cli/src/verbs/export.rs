//! `varve export`, carried out.

use crate::answer::Answer;
use crate::grammar::{
    AccessOptions, Driver, ExportVerb, LimitOptions, VolumeAttachOptions, VolumeDetachOptions,
};
use crate::places::absolute;
use crate::session::Session;
use crate::table::Table;
use crate::units;
use varve_api::{Code, Door, Export, ExportChange, ExportCreate, ExportRemove, Failure, calls};

/// Carries out a verb of exports.
pub(crate) async fn export(session: &Session, verb: ExportVerb) -> Result<Answer, Failure> {
    match verb {
        ExportVerb::Create { volume, door, read_only, insecure, since, limits, access, change } => {
            let (door, address) = match (door.nbd, door.fuse, door.vhost_user) {
                (Some(address), ..) => (Door::Nbd, nbd_address(&address)?),
                (_, Some(file), _) => (Door::Fuse, absolute(&file)?),
                (_, _, Some(socket)) => (Door::VhostUser, absolute(&socket)?),
                (None, None, None) => (Door::Ublk, link_of(&volume)),
            };
            let LimitOptions { iops, bandwidth } = limits;
            let AccessOptions { mode, group, tls } = access;
            let tls = tls.as_deref().map(absolute).transpose()?;
            let (door, dry_run) = (Some(door), change.dry_run);
            let request = ExportCreate {
                volume,
                door,
                address,
                read_only,
                insecure,
                iops,
                bandwidth,
                mode,
                group,
                tls,
                since,
                dry_run,
            };
            session.change(calls::CreateExport(request), |made| place(made).to_owned()).await
        }
        ExportVerb::Change(options) => {
            let LimitOptions { iops, bandwidth } = options.limits;
            let AccessOptions { mode, group, tls } = options.access;
            let tls = tls.as_deref().map(absolute).transpose()?;
            let request = ExportChange { iops, bandwidth, mode, group, tls, dry_run: options.change.dry_run };
            let call = calls::ChangeExport(resolvable(&options.export), request);
            session
                .change(call, |export| format!("{} of {}: {}", export.id, export.volume, access(export)))
                .await
        }
        ExportVerb::List => session.show(calls::ListExports(), |exports| table(exports)).await,
        ExportVerb::Remove { exports, force, change, yes: _ } => {
            let request = ExportRemove { force: force.force, dry_run: change.dry_run };
            let call = |export: String| calls::RemoveExport(resolvable(&export), request.clone());
            let calls = exports.into_iter().map(|export| (export.clone(), call(export))).collect();
            let text = |_: &str, gone: &Export| format!("removed {} of {}", gone.id, gone.volume);
            session.destroy_each("export remove", true, calls, text).await
        }
    }
}

/// Makes a volume a block device of this kernel.
pub(super) async fn attach(session: &Session, options: VolumeAttachOptions) -> Result<Answer, Failure> {
    let VolumeAttachOptions { volume, via, read_only, change } = options;
    let door = match via {
        Driver::Nbd => Door::KernelNbd,
        Driver::Ublk => Door::Ublk,
    };
    let (door, address, dry_run) = (Some(door), link_of(&volume), change.dry_run);
    let call =
        calls::CreateExport(ExportCreate { volume, door, address, read_only, dry_run, ..Default::default() });
    session.change(call, |made| place(made).to_owned()).await
}

/// The link to a volume's block device.
fn link_of(volume: &str) -> String {
    format!("/dev/varve/{volume}")
}

/// Ends the block device of a volume, by whatever name of the volume it was made.
pub(super) async fn detach(session: &Session, options: &VolumeDetachOptions) -> Result<Answer, Failure> {
    let volume = options.volume.as_str();
    let exports = session.ask(&calls::ListExports()).await?;
    let is_meant = |export: &&Export| {
        let is_named = export.volume == volume || export.path.as_deref() == Some(volume);
        matches!(export.door, Door::KernelNbd | Door::Ublk)
            && (is_named || export.device.as_deref() == Some(volume))
    };
    let export = exports.iter().find(is_meant).ok_or_else(|| {
        let message = format!("{volume} is not attached");
        Failure::new(Code::ExportNotFound, message).help("varve export list")
    })?;
    let request = ExportRemove { force: options.force.force, dry_run: options.change.dry_run };
    let call = calls::RemoveExport(export.id.clone(), request);
    session.change(call, |gone| format!("detached {}", gone.volume)).await
}

/// An NBD address with the socket's path seen from the root directory.
fn nbd_address(address: &str) -> Result<String, Failure> {
    match address.strip_prefix("unix:") {
        Some(path) => Ok(format!("unix:{}", absolute(path)?)),
        None => Ok(address.to_owned()),
    }
}

/// An export may be named by a path relative to here; the daemon works elsewhere.
fn resolvable(export: &str) -> String {
    let is_path = export.starts_with('.') && export.contains('/');
    match absolute(export) {
        Ok(path) if is_path || std::path::Path::new(export).exists() => path,
        _ => nbd_address(export).unwrap_or_else(|_| export.to_owned()),
    }
}

/// What a client connects to.
fn place(export: &Export) -> &str {
    export.uri.as_deref().or(export.path.as_deref()).unwrap_or(&export.address)
}

/// What clients may do, how fast, and who they may be.
fn access(export: &Export) -> String {
    let access = if export.read_only { "read-only" } else { "read-write" };
    let iops = export.limits.iops.map(|iops| format!(", {iops} IOPS"));
    let bandwidth = export.limits.bandwidth.map(|bytes| format!(", {}/s", units::size(bytes)));
    let mode = export.access.mode.map(|mode| format!(", mode {mode}"));
    let group = export.access.group.as_ref().map(|group| format!(", group {group}"));
    let tls = export.tls.as_ref().map(|_| ", TLS".to_owned());
    let since = export.since.as_ref().map(|since| format!(", changes since {since}"));
    [Some(access.to_owned()), iops, bandwidth, mode, group, tls, since].into_iter().flatten().collect()
}

fn table(exports: &[Export]) -> String {
    let mut table = Table::new(&["EXPORT", "VOLUME", "DOOR", "ACCESS", "STATE", "CLIENTS>", "WHERE"]);
    for export in exports {
        let state = match &export.reason {
            Some(reason) => format!("{}: {reason}", export.state),
            None => export.state.to_string(),
        };
        table.row(vec![
            export.id.clone(),
            export.volume.clone(),
            export.door.to_string(),
            access(export),
            state,
            export.connections.to_string(),
            place(export).to_owned(),
        ]);
    }
    table.render("no exports; varve export create VG/LV --nbd unix:PATH")
}
