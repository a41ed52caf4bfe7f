//! The work that makes an image in which a volume lies need what lies below it no more, while the volume is used.

use super::ShardContext;
use super::background::rest_after;
use crate::failures;
use crate::fault;
use crate::jobs::Progress;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::IoError;

/// After so much work it rests as long as that took.
const DOSE: Duration = Duration::from_millis(5);

/// What is asked of an image before it is flattened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    /// Bytes of the disk that the image holds.
    pub(crate) size: u64,
    /// Whether anything lies below it.
    pub(crate) lies_over: bool,
    /// How many internal snapshots it has.
    pub(crate) snapshots: usize,
}

/// What lies below the image of a volume; none of a volume that lies in no qcow2 image, or is not in use.
pub(crate) fn below(context: &ShardContext, volume: Uuid) -> Option<Below> {
    let (image, _guard) = context.images.enter(volume)?;
    let (size, snapshots) = (image.size(), image.snapshots().len());
    Some(Below { size, lies_over: image.header().backing.is_some(), snapshots })
}

/// Copies what the image of a volume shows of what lies below it, then forgets that. The image is to be opened anew afterwards.
pub(crate) async fn flatten(
    context: &ShardContext,
    volume: Uuid,
    progress: &Progress,
) -> Result<(), Failure> {
    let (clock, mut at) = (context.clock(), 0);
    let mut begun = clock.now();
    loop {
        if progress.is_cancelled() {
            return Err(Failure::new(Code::JobCancelled, "cancelled; what was copied stays"));
        }
        let (image, _guard) = context.images.enter(volume).ok_or_else(out_of_use)?;
        if at == image.size() {
            fault::die_at("image-pulled");
            return image.forget_backing().await.map_err(failed);
        }
        at += image.pull(at).await.map_err(failed)?.length;
        progress.report(at, image.size());
        drop((image, _guard));
        let took = clock.now().since(begun);
        if took >= DOSE {
            clock.sleep(rest_after(took, 1)).await;
            begun = clock.now();
        }
    }
}

fn out_of_use() -> Failure {
    Failure::new(Code::VolumeUnusable, "the volume was taken out of use while its image was flattened")
}

fn failed(error: IoError) -> Failure {
    failures::io("the copy of what lies below the image", error)
}
