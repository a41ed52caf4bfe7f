//! Where the bytes of a volume lie, asked of the shard that serves it.

use crate::Control;
use crate::failures;
use varve_api::{Code, Failure, MapExtent, MapKind, VolumeMap};
use varve_block::Extent;
use varve_vg::names::VolumeName;
use varve_vg::size::parse_size;
use varve_volume::extents::Lies;

impl Control {
    /// Where `length` bytes of a volume or snapshot from `offset` on lie, or all behind it.
    pub async fn map_volume(
        &self,
        name: &str,
        offset: Option<&str>,
        length: Option<&str>,
    ) -> Result<VolumeMap, Failure> {
        let name: VolumeName = name.parse().map_err(|error| failures::bad_name(&error))?;
        let bytes = |text: &str| parse_size(text).map_err(|error| failures::bad_size(&error));
        let offset = offset.map(bytes).transpose()?.unwrap_or_default();
        let length = length.map(bytes).transpose()?.unwrap_or(u64::MAX).min(u64::MAX - offset);
        let located = self.find_volume(&name)?;
        self.check_readable(&located, &name).await?;
        let wanted = Extent::new(offset, length);
        let asked = located.home.volume(located.volume.id).extents(name.snapshot.clone(), wanted);
        let found = asked.await.map_err(failures::gone)?.ok_or_else(not_active)??;
        let until = offset.saturating_add(length).min(found.size);
        let extents: Vec<MapExtent> = found
            .found
            .into_iter()
            .map(|run| {
                let (kind, disk, disk_offset) = match run.lies {
                    Lies::On(disk, at) => (MapKind::Disk, Some(self.path_of(located.group, disk)), Some(at)),
                    Lies::Nowhere => (MapKind::Zeros, None, None),
                    Lies::Apart => (MapKind::Layout, None, None),
                };
                let Extent { offset, length } = run.extent;
                MapExtent { offset, length, kind, disk, disk_offset, shared: run.is_shared }
            })
            .collect();
        let end = extents.last().map_or(until, |last| last.offset + last.length);
        Ok(VolumeMap { name: name.to_string(), size: found.size, until, end, extents })
    }
}

fn not_active() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume is not active").help("varve status")
}
