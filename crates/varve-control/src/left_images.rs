//! Images in which volumes with snapshots lie, while these are not in use: other programs may write them then.
//!
//! Invariants:
//! - LEFT1. What such a volume's snapshots share with the image is where it was when the volume was released. An image that was
//!   written since is not used. After a crash, or without its state directory, the daemon does not know, and uses it.
//! - LEFT2. What is remembered of an image is forgotten, durably, before the daemon writes it.

use super::Control;
use std::path::Path;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_format::format_exact_date;
use varve_vg::model::{Layout, LogicalVolume};

/// The image of a volume, if the volume has snapshots.
fn shared_image(volume: &LogicalVolume) -> Option<&str> {
    match &volume.layout {
        Layout::Image { path, .. } if volume.stores().next().is_some() => Some(path),
        _ => None,
    }
}

impl Control {
    /// LEFT1: remembers when the images of released volumes were last written.
    pub(super) async fn remember_left(&self, closed: &[Uuid]) {
        let shared: Vec<(Uuid, String)> = {
            let groups = self.groups.borrow();
            let volumes = groups.values().flat_map(|known| known.group.logical_volumes());
            let closed = volumes.filter(|volume| closed.contains(&volume.id));
            closed.filter_map(|volume| Some((volume.id, shared_image(volume)?.to_owned()))).collect()
        };
        for (volume, path) in &shared {
            if let Ok(Some(written)) = self.written_at(path).await {
                self.remembered.borrow_mut().left_images.insert(*volume, written);
            }
        }
        if !shared.is_empty() {
            self.save_or_warn().await;
        }
    }

    /// LEFT1, LEFT2: the image of a volume is about to be used.
    pub(super) async fn take_up_image(&self, volume: &LogicalVolume) -> Result<(), Failure> {
        let Some(left) = self.remembered.borrow().left_images.get(&volume.id).copied() else { return Ok(()) };
        if let Some(path) = shared_image(volume) {
            match self.written_at(path).await? {
                Some(now) if now != left => return Err(written_since(path, left, now)),
                _ => {}
            }
        }
        self.forget_left(volume.id);
        self.save().await
    }

    /// A volume is gone, or its image is in use.
    pub(super) fn forget_left(&self, volume: Uuid) {
        self.remembered.borrow_mut().left_images.remove(&volume);
    }

    async fn written_at(&self, path: &str) -> Result<Option<u64>, Failure> {
        let place = Path::new(path).to_owned();
        self.at_path(Path::new(path), move |files| files.modified_ns(&place)).await
    }
}

fn written_since(path: &str, left: u64, now: u64) -> Failure {
    let (left, now) = (format_exact_date(left), format_exact_date(now));
    let message = format!(
        "the image {path} was written at {now}, past the snapshots of its volume, which was let go of at {left}"
    );
    Failure::new(Code::VolumeUnusable, message).help(format!(
        "bring {path} back as it was, then varve pv scan; or give the snapshots up: touch -d {left} {path}, varve pv scan, then \
         varve snap remove"
    ))
}
