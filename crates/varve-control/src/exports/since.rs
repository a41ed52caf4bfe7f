//! Exports that say what was changed since an older snapshot: for incremental backups.
//!
//! Invariants:
//! - SINCE1. Neither state changes: both are read-only snapshots of one volume.
//! - SINCE2. The older snapshot is known by its identity: another one that has got its name is not compared with.

use super::address::Address;
use crate::Control;
use crate::find::LocatedVolume;
use crate::host::remembered::Since;
use varve_api::{Code, ExportCreate, Failure};
use varve_block::Extent;
use varve_export::nbd::DirtyBitmap;
use varve_vg::names::VolumeName;
use varve_volume::content::snapshot_facts::Target;

/// The older snapshot that a new export is to be compared with, if it names one.
pub(super) async fn since_of_new(
    control: &Control,
    request: &ExportCreate,
    address: &Address,
    located: &LocatedVolume,
    name: &VolumeName,
) -> Result<Option<Since>, Failure> {
    let Some(old) = request.since.clone() else { return Ok(None) };
    if !address.is_nbd() {
        return Err(Failure::new(Code::Usage, "--since is for NBD")
            .help("--nbd unix:PATH or --nbd tcp:HOST:PORT; or leave it out"));
    }
    unchanging(control, located, name).await?;
    let older = VolumeName { snapshot: Some(old.clone()), ..name.clone() };
    let Target { store, number } = unchanging(control, located, &older).await?;
    Ok(Some(Since { name: old, store, number }))
}

/// What was changed between an older snapshot and the one that is exported.
pub(super) async fn changed_since(
    control: &Control,
    located: &LocatedVolume,
    name: &VolumeName,
    since: &Since,
) -> Result<DirtyBitmap, Failure> {
    unchanging(control, located, name).await?;
    let old = VolumeName { snapshot: Some(since.name.clone()), ..name.clone() };
    let target = unchanging(control, located, &old).await?;
    if (target.store, target.number) != (since.store, since.number) {
        let message = format!("{old} is another snapshot than the one that {name} was compared with");
        return Err(
            Failure::new(Code::SnapshotNotFound, message).help("varve export remove, then create it anew")
        );
    }
    let diff = control.diff_snapshots(&old.to_string(), Some(&name.to_string())).await?;
    let extents = diff.extents.iter().map(|extent| Extent::new(extent.offset, extent.length));
    Ok(DirtyBitmap::new(since.name.clone(), extents.collect()))
}

/// The snapshot, which cannot be written (SINCE1).
async fn unchanging(
    control: &Control,
    located: &LocatedVolume,
    name: &VolumeName,
) -> Result<Target, Failure> {
    let own: Vec<String> = name.snapshot.iter().cloned().collect();
    if own.is_empty() {
        let message = format!("{name} may change: what was changed since a snapshot is said of a snapshot");
        let help = format!("varve snap create {name}@NEW --read-only, and export that");
        return Err(Failure::new(Code::Usage, message).help(help));
    }
    control.check_snapshot(located, name).await?;
    let facts = control.facts_called(located, &own).await.pop().filter(|facts| facts.read_only);
    facts.map(|facts| facts.target).ok_or_else(|| {
        Failure::new(Code::Usage, format!("{name} may change: it can be written"))
            .help(format!("varve snap create {}@NEW --read-only", name.origin()))
    })
}
