//! What differs between two states of a volume, asked of its store.

use super::Control;
use super::snapshots::snapshot_name;
use crate::failures;
use crate::shard::here;
use varve_api::{ByteExtent, Code, Failure, SnapshotDiff};
use varve_os::ShardContext;
use varve_target::snapshot::StoreError;
use varve_vg::names::VolumeName;

impl Control {
    /// The extents in which a snapshot differs from another one, or from its volume.
    pub(crate) async fn diff_snapshots(&self, from: &str, to: Option<&str>) -> Result<SnapshotDiff, Failure> {
        let from = snapshot_name(from)?;
        let to = other_state(&from, to)?;
        let located = self.find_volume(&from)?;
        self.check_snapshot(&located, &from).await?;
        self.check_snapshot(&located, &to).await?;
        let volume = located.volume.id;
        let (one, other) = (from.snapshot.clone().unwrap_or_default(), to.snapshot.clone());
        let compared = located.home.run(async move |_: ShardContext| {
            let family = here().family(volume).ok_or(StoreError::NotFound)?;
            family.diff(&one, other.as_deref()).await
        });
        let compared = compared.await.map_err(failures::gone)?;
        let (extents, exact) = compared.map_err(|error| failures::store(&from.to_string(), &error))?;
        Ok(SnapshotDiff {
            from: from.to_string(),
            to: to.to_string(),
            exact,
            bytes: extents.iter().map(|extent| extent.length).sum(),
            extents: extents
                .iter()
                .map(|extent| ByteExtent { offset: extent.offset, length: extent.length })
                .collect(),
        })
    }
}

/// The second state of a comparison: `to`, or the volume of `from`.
fn other_state(from: &VolumeName, to: Option<&str>) -> Result<VolumeName, Failure> {
    let volume = from.origin();
    let Some(text) = to else { return Ok(volume) };
    let to: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
    if to.origin() == volume {
        return Ok(to);
    }
    let message = format!("{from} and {to} are states of two volumes: only states of one can be compared");
    Err(Failure::new(Code::Usage, message).help(format!("varve snap list {volume}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_compared_with_states_of_its_own_volume() {
        let from: VolumeName = "data/a@one".parse().expect("a name");
        let to = |text| other_state(&from, text).map(|name| name.to_string()).map_err(|failure| failure.code);
        assert_eq!(to(None).as_deref(), Ok("data/a"));
        assert_eq!(to(Some("data/a")).as_deref(), Ok("data/a"));
        assert_eq!(to(Some("data/a@two")).as_deref(), Ok("data/a@two"));
        assert_eq!(to(Some("data/b@two")), Err(Code::Usage));
        assert_eq!(to(Some("two")), Err(Code::BadName));
    }
}
