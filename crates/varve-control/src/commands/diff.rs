//! What differs between two volumes or snapshots, asked of the store or the pool that knows both.

use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use varve_api::{ByteExtent, Code, Failure, SnapshotDiff};
use varve_block::Extent;
use varve_target::snapshot::StoreError;
use varve_vg::names::VolumeName;

/// The extents, and whether something in each of them was written.
type Compared = Result<(Vec<Extent>, bool), StoreError>;

impl Control {
    /// The extents in which two states of a volume differ, or two volumes or snapshots of one pool.
    pub async fn diff_snapshots(&self, from: &str, to: Option<&str>) -> Result<SnapshotDiff, Failure> {
        let from: VolumeName = from.parse().map_err(|error| failures::bad_name(&error))?;
        let to = other_state(&from, to)?;
        let (one, other) = (self.find_volume(&from)?, self.find_volume(&to)?);
        self.check_snapshot(&one, &from).await?;
        self.check_snapshot(&other, &to).await?;
        let compared = match (&one.thin, &other.thin) {
            (Some(first), Some(second)) if first.pool == second.pool => {
                self.diff_in_pool((&one, &from), (&other, &to)).await?
            }
            (None, None) if one.volume.id == other.volume.id => {
                self.diff_in_volume(&one, from.snapshot.clone(), to.snapshot.clone()).await?
            }
            (first, second) => return Err(apart(&from, &to, first.is_some() && second.is_some())),
        };
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

    /// Two states of a volume that is not thin; which is the first does not matter.
    async fn diff_in_volume(
        &self,
        located: &LocatedVolume,
        from: Option<String>,
        to: Option<String>,
    ) -> Result<Compared, Failure> {
        let (Some(one), other) = (if from.is_some() { (from, to) } else { (to, from) }) else {
            return Ok(Ok((Vec::new(), true))); // The volume and itself.
        };
        let volume = located.volume.id;
        let compared = located.home.volume(volume).diff(one, other).await.map_err(failures::gone)?;
        Ok(compared.unwrap_or(Err(StoreError::NotFound)))
    }

    /// Any two volumes or snapshots of a pool.
    async fn diff_in_pool(
        &self,
        (one, from): (&LocatedVolume, &VolumeName),
        (other, to): (&LocatedVolume, &VolumeName),
    ) -> Result<Compared, Failure> {
        let state = |located: &LocatedVolume, name: &VolumeName| {
            let number = located.thin.as_ref().map(|thin| thin.number);
            (number.expect("the caller found thin volumes"), name.snapshot.clone())
        };
        let (pool, first, second) = (one.pool(), state(one, from), state(other, to));
        let compared = one.home.pool(pool).diff(first, second);
        compared.await.map_err(failures::gone)
    }
}

/// The second state of a comparison: `to`, or the volume of the snapshot `from`.
fn other_state(from: &VolumeName, to: Option<&str>) -> Result<VolumeName, Failure> {
    match to {
        Some(text) => text.parse().map_err(|error| failures::bad_name(&error)),
        None if from.snapshot.is_some() => Ok(from.origin()),
        None => {
            Err(Failure::new(Code::BadName, format!("{from} is compared with nothing: name another volume"))
                .help(format!("varve snap diff {from} {from}@SNAP")))
        }
    }
}

fn apart(from: &VolumeName, to: &VolumeName, are_thin: bool) -> Failure {
    let message = match are_thin {
        true => format!("{from} and {to} are in different pools: only volumes of one pool can be compared"),
        false => format!(
            "{from} and {to} are states of two volumes: only states of one can be compared, or volumes of one pool"
        ),
    };
    Failure::new(Code::Usage, message).help(format!("varve snap list {}", from.origin()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_compared_with_its_volume_unless_something_else_is_named() {
        let from: VolumeName = "data/a@one".parse().expect("a name");
        let to = |text| other_state(&from, text).map(|name| name.to_string()).map_err(|failure| failure.code);
        assert_eq!(to(None).as_deref(), Ok("data/a"));
        assert_eq!(to(Some("data/a@two")).as_deref(), Ok("data/a@two"));
        assert_eq!(to(Some("data/b")).as_deref(), Ok("data/b"));
        assert_eq!(to(Some("two")), Err(Code::BadName));
        let volume = from.origin();
        assert_eq!(other_state(&volume, None).map_err(|failure| failure.code), Err(Code::BadName));
    }
}
