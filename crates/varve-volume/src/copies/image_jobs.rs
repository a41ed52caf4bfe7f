//! The work on an image in which a volume is, and on what is below it, while the volume is used: step by step from the beginning of
//! the image to its end.

use crate::ShardContext;
use crate::copies::progress::Progress;
use crate::failures;
use crate::fault;
use crate::lifecycle::background::rest_after;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{IoError, MIB};
use varve_format::qcow2::Backing;
use varve_target::qcow2::Image;

/// Bytes after which what was done is made durable: neither a client's flush nor the end has much left to wait for.
const DURABLE: u64 = 16 * MIB;
/// After so much work it rests as long as that took.
const BATCH: Duration = Duration::from_millis(5);

/// What is asked of an image before it is flattened or committed.
#[derive(Clone, Debug)]
pub struct Below {
    /// Bytes of the disk that the image holds.
    pub size: u64,
    /// What the image names as its backing image.
    pub backing: Option<Backing>,
    /// How many internal snapshots it has.
    pub snapshots: usize,
}

/// Which work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageWork {
    /// The image takes in what it shows of what is below it, then forgets that. It is to be opened anew afterwards.
    Flatten,
    /// The image gives what it holds to the image below it. It was opened so that it can.
    Commit,
}

impl ImageWork {
    /// One step; of how many bytes.
    async fn step(self, image: &Image, at: u64) -> Result<u64, IoError> {
        match self {
            ImageWork::Flatten => Ok(image.pull(at).await?.length),
            ImageWork::Commit => Ok(image.push(at).await?.length),
        }
    }

    async fn end(self, image: &Image) -> Result<(), IoError> {
        match self {
            ImageWork::Flatten => {
                fault::die_at("image-pulled");
                image.forget_backing().await
            }
            ImageWork::Commit => {
                assert!(image.holds_nothing().await?, "QPUSH2: it has given away all");
                Ok(())
            }
        }
    }

    fn word(self) -> &'static str {
        match self {
            ImageWork::Flatten => "flattened",
            ImageWork::Commit => "committed",
        }
    }
}

/// What is below the image of a volume; none of a volume that is in no qcow2 image, or is not in use.
pub fn below(context: &ShardContext, volume: Uuid) -> Option<Below> {
    let (image, _guard) = context.opened(volume)?.enter_image()?;
    let (size, snapshots) = (image.size(), image.snapshots().len());
    Some(Below { size, backing: image.header().backing.clone(), snapshots })
}

/// Does `work` on the image of a volume.
pub async fn run(
    context: &ShardContext,
    volume: Uuid,
    work: ImageWork,
    progress: &Progress,
) -> Result<(), Failure> {
    let (clock, mut at, mut durable) = (context.clock(), 0, 0);
    let enter = || context.opened(volume)?.enter_image();
    let mut begun = clock.now();
    loop {
        if progress.is_cancelled() {
            return Err(Failure::new(Code::JobCancelled, "cancelled; what was copied stays"));
        }
        let (image, _guard) = enter().ok_or_else(|| out_of_use(work))?;
        if at == image.size() {
            return work.end(&image).await.map_err(|error| failed(work, error));
        }
        at += work.step(&image, at).await.map_err(|error| failed(work, error))?;
        if at - durable >= DURABLE {
            image.make_durable().await.map_err(|error| failed(work, error))?;
            durable = at;
        }
        progress.report(at, image.size());
        drop((image, _guard));
        let took = clock.now().since(begun);
        if took >= BATCH {
            clock.sleep(rest_after(took, 1)).await;
            begun = clock.now();
        }
    }
}

fn out_of_use(work: ImageWork) -> Failure {
    let word = work.word();
    Failure::new(Code::VolumeUnusable, format!("the volume was taken out of use while its image was {word}"))
        .help("it goes on when the volume is in use again: varve status")
}

fn failed(work: ImageWork, error: IoError) -> Failure {
    let what = match work {
        ImageWork::Flatten => "the copy of what lies below the image",
        ImageWork::Commit => "the copy of what the image holds",
    };
    failures::io(what, error)
}
