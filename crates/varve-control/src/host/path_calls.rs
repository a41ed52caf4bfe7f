//! Calls on paths, which may never return: a mount that does not answer holds the thread of a helper, and no shard.
//!
//! Invariant PATHCALL1: at most [`CALLS_MAX`] such calls are under way, and each is answered after [`CALL_MAX`] at the latest.

use futures_util::future::{Either, select};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_api::{Code, Failure};
use varve_volume::Host;
use varve_volume::world::Files;

/// How long a call may take before it is answered in its place. It goes on, and its result is dropped.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Most calls at one time, those that no task waits for any more included.
const CALLS_MAX: usize = 64;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Counts a call until it has returned.
struct UnderWay;

impl UnderWay {
    fn begin() -> Option<Self> {
        let begun = CALLS.fetch_add(1, Ordering::Relaxed);
        let call = Self;
        (begun < CALLS_MAX).then_some(call)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does `work` with what is at `path`, on a thread of its own (PATHCALL1).
pub(crate) async fn at_path<T: Send + 'static>(
    host: &Host,
    path: &Path,
    work: impl FnOnce(&dyn Files) -> T + Send + 'static,
) -> Result<T, Failure> {
    let silent = |why: &str| {
        Failure::new(Code::DiskUnusable, format!("{}: {why}", path.display()))
            .help("look at the mount or device: it hangs; then varve pv scan")
    };
    let call = UnderWay::begin().ok_or_else(|| silent("too many calls hang already"))?;
    let begun = host.files_alone(move |files| {
        let done = work(files);
        drop(call);
        done
    });
    let answer = begun.map_err(|error| silent(&error.to_string()))?;
    match within(host, CALL_MAX, answer).await {
        Some(Ok(done)) => Ok(done),
        Some(Err(_)) => Err(silent("the call ended with a panic")),
        None => Err(silent("it does not answer")),
    }
}

/// What `work` answers, unless that takes longer than `limit`.
pub(crate) async fn within<T>(host: &Host, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    match select(pin!(work), host.clock().sleep(limit)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_do_not_return_are_bounded() {
        let mut calls: Vec<UnderWay> = std::iter::from_fn(UnderWay::begin).collect();
        assert!(calls.len() <= CALLS_MAX, "PATHCALL1");
        assert!(UnderWay::begin().is_none());
        calls.pop();
        assert!(UnderWay::begin().is_some());
    }
}
