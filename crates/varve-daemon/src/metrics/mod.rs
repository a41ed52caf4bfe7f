//! What is counted, in Prometheus' text exposition form.
//!
//! Invariant:
//! - METRICS1. However many volumes there are, the lines of a scrape are bounded, unless all volumes are asked for: those of groups,
//!   pools and disks, and of so many volumes, exports, problems and jobs as were chosen.
//!
//! One scrape comes after the other: what a later one shows was asked for after what an earlier one shows, so that no counter falls.

mod arrays;
mod groups;
mod program;
mod tally;
mod text;
mod volumes;

use crate::config::VolumeMetrics;
use std::time::Duration;
use tally::Tally;
use tokio::sync::Mutex;
use tokio::time::Instant;
use varve_api::Failure;
use varve_control::{ControlHandle, Figures};

/// Problems and jobs that are shown one by one where no volume is.
const ROWS_MAX: usize = 100;

/// What scrapes share.
pub(crate) struct Scrapes {
    volumes: VolumeMetrics,
    /// The last one, and when it was.
    last: Mutex<(Tally, Instant)>,
}

impl Scrapes {
    /// Scrapes that show `volumes`.
    pub(crate) fn new(volumes: VolumeMetrics) -> Self {
        Self { volumes, last: Mutex::new((Tally::default(), Instant::now())) }
    }

    /// One scrape.
    pub(crate) async fn scrape(&self, control: &ControlHandle) -> Result<String, Failure> {
        let (tally, last) = &mut *self.last.lock().await;
        let figures = control.call(async |control| control.figures().await).await?;
        let now = Instant::now();
        let elapsed = now.duration_since(*last);
        *last = now;
        Ok(render(figures, tally, self.volumes, elapsed))
    }
}

/// The text; `elapsed` is the time since the last one.
fn render(mut figures: Figures, tally: &mut Tally, volumes: VolumeMetrics, elapsed: Duration) -> String {
    tally.take(&mut figures.volumes, &mut figures.exports, elapsed);
    tally.keep(&figures.groups, &figures.pools);
    let mut metrics = groups::all(&figures);
    metrics.extend(groups::sums_of_pools(tally.pools()));
    if volumes != VolumeMetrics::None {
        metrics.extend(groups::sums_of_groups(tally.groups()));
    }
    let (shown, rows_max) = match volumes {
        VolumeMetrics::All => (usize::MAX, usize::MAX),
        VolumeMetrics::Busiest(count) => (count, ROWS_MAX.max(count)),
        VolumeMetrics::Group | VolumeMetrics::None => (0, ROWS_MAX),
    };
    tally.keep_busiest(&mut figures.volumes, &mut figures.exports, shown); // METRICS1
    metrics.extend(program::all(&figures, rows_max));
    for part in [volumes::volumes, volumes::mappers, volumes::exports, arrays::all] {
        metrics.extend(part(&figures));
    }
    let mut text = String::new();
    metrics.iter().for_each(|metric| metric.write(&mut text));
    text
}

#[cfg(test)]
mod tests;
