//! The job that makes a volume in an image need what lies below the image no more.

use super::Control;
use super::find::Located;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Failure, Plan};
use varve_vg::model::Layout;
use varve_vg::names::VolumeName;
use varve_vg::size::format_size;
use varve_volume::image_jobs::ImageWork;
use varve_volume::progress::Progress;

/// What flattening an image would do.
pub(super) fn image_plan(name: &VolumeName, size: u64) -> Plan {
    let size = format_size(size);
    let step =
        format!("would copy what {name} shows of what lies below its image, at most {size}, into the image");
    Plan::of_steps(vec![step])
}

impl Control {
    /// Bytes of a volume, if it lies in an image and lies over another one with it.
    pub(super) async fn image_to_flatten(
        &self,
        located: &Located,
        name: &VolumeName,
    ) -> Result<Option<u64>, Failure> {
        let in_image = matches!(located.volume.layout, Layout::Image { .. });
        if !in_image || located.thin.is_some() || name.snapshot.is_some() {
            return Ok(None);
        }
        Ok(Some(self.below_image(located, name).await?.size))
    }

    pub(super) async fn flatten_image(&self, volume: Uuid, progress: Arc<Progress>) -> Result<(), Failure> {
        self.work_on_image(volume, ImageWork::Flatten, progress).await?;
        self.event(&self.subject(volume), "lies over nothing any more");
        if let Err(failure) = self.reopen_image(volume).await {
            tracing::warn!(%volume, %failure, "a volume was not brought back after its image was flattened");
        }
        Ok(())
    }
}
