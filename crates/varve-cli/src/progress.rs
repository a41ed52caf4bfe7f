//! A bar for a job on a terminal: done, rate, time left.

use crate::answer::print_aside;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::{Cell, RefCell};
use varve_api::{Failure, Job, JobState};

/// The bar; it goes away when dropped. Draws nothing where there is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    /// Whether it is known how much there is to do: what was done before that has no rate.
    is_known: Cell<bool>,
    /// What it was last said to wait for.
    trouble: RefCell<Option<Failure>>,
}

impl Bar {
    /// A bar for `job`.
    pub(crate) fn new(job: &Job) -> Self {
        let bar = Self::drawn(job.unit == "bytes", job.total, format!("{} {}", job.kind, subject(job)));
        bar.move_to(job.done);
        bar.bar.reset_eta(); // What was done before was not done now.
        bar
    }

    /// A bar for work of this process on so many bytes.
    pub(crate) fn new_of(verb: &str, what: &str, bytes: u64) -> Self {
        Self::drawn(true, bytes, format!("{verb} {what}"))
    }

    fn drawn(bytes: bool, total: u64, message: String) -> Self {
        let template = match bytes {
            true => "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
            false => "{msg} [{wide_bar}] {pos}/{len} {per_sec} {eta} left",
        };
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(message);
        Self { bar, is_known: Cell::new(total > 0), trouble: RefCell::default() }
    }

    /// So much is done.
    pub(crate) fn move_to(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Shows how far `job` is, and what it waits for.
    pub(crate) fn show(&self, job: &Job) {
        let waits_for = job.error.as_ref().filter(|_| job.state == JobState::Running);
        if self.trouble.replace(waits_for.cloned()).as_ref() != waits_for
            && let Some(trouble) = waits_for
        {
            self.bar.suspend(|| print_aside(&format!("job {} waits: {trouble}", job.id)));
        }
        self.bar.set_length(job.total);
        self.bar.set_position(job.done);
        if job.total > 0 && !self.is_known.replace(true) {
            self.bar.reset_eta();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What a job works on, short enough for a line.
pub(crate) fn subject(job: &Job) -> String {
    if let Some((names, more)) = job.subject.rsplit_once(" and ")
        && let Some(more) = more.strip_suffix(" more").and_then(|more| more.parse::<usize>().ok())
    {
        let first = names.split(' ').next().unwrap_or_default();
        return format!("{first} and {} more", names.split(' ').count() - 1 + more);
    }
    let words: Vec<&str> = job.subject.split(' ').collect();
    match words.as_slice() {
        [first, _, .., last] => format!("{first} … {last} ({})", words.len()),
        _ => job.subject.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(subject: &str, done: u64, total: u64) -> Job {
        Job {
            id: "1".to_owned(),
            kind: "snapshot-remove".to_owned(),
            subject: subject.to_owned(),
            state: JobState::Running,
            done,
            total,
            unit: "bytes".to_owned(),
            rate: None,
            started: 0,
            ended: None,
            error: None,
            kept: None,
            scrub: None,
        }
    }

    /// The rate of a bar at an end far from its beginning, a moment after it is there, in bytes a second.
    #[expect(clippy::disallowed_methods, reason = "the bar takes the time of the host")]
    fn rate_after(bar: &Bar, job: &Job) -> f64 {
        bar.show(job);
        std::thread::sleep(std::time::Duration::from_millis(20));
        bar.show(&Job { done: job.done + 4096, ..job.clone() });
        bar.bar.per_sec()
    }

    #[test]
    fn what_was_done_before_a_bar_was_there_has_no_rate() {
        let (tebibyte, gibibyte) = (1 << 40, f64::from(1 << 30));
        let known = job("data/a", tebibyte, 2 * tebibyte);
        assert!(rate_after(&Bar::new(&known), &known) < gibibyte);
        let unknown = Bar::new(&job("data/a", 0, 0));
        assert!(rate_after(&unknown, &known) < gibibyte, "how much there is to do is known late");
        let other = Bar::new(&job("data/a", 0, 2 * tebibyte));
        assert!(rate_after(&other, &known) > gibibyte, "that it did since has one");
    }

    #[test]
    fn many_names_become_the_first_and_the_last() {
        let job = |subject: &str| job(subject, 0, 0);
        assert_eq!(subject(&job("a/b@1")), "a/b@1");
        assert_eq!(subject(&job("a/b@1 a/b@2 a/b@3")), "a/b@1 … a/b@3 (3)");
        assert_eq!(subject(&job("a/b@1 a/b@2 and 7 more")), "a/b@1 and 8 more");
    }
}
