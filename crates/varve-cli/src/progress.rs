//! A bar for a job on a terminal: done, rate, time left.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use varve_api::Job;

/// The bar; it goes away when dropped. Draws nothing where there is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar for `job`.
    pub(crate) fn new(job: &Job) -> Self {
        let template = match job.unit.as_str() {
            "bytes" => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
            _ => "{msg} [{bar:30}] {pos}/{len} {per_sec} {eta} left",
        };
        let bar = ProgressBar::with_draw_target(Some(job.total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(format!("{} {}", job.kind, job.subject));
        bar.set_position(job.done);
        Self { bar }
    }

    /// Shows how far `job` is.
    pub(crate) fn show(&self, job: &Job) {
        self.bar.set_length(job.total);
        self.bar.set_position(job.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
