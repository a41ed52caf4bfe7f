//! The daemon itself, what is not as it should be, and jobs.

use super::text::{Metric, gauge, labels, one};
use std::collections::BTreeMap;
use varve_api::{Job, JobState, Problem};
use varve_control::Figures;

/// The daemon, and the first `rows_max` of what is not as it should be.
pub(super) fn all(figures: &Figures, rows_max: usize) -> Vec<Metric> {
    let version = labels(&[("version", &figures.status.version), ("io", &figures.status.io)]);
    let problems = &figures.status.attention;
    let of_problem = |problem: &Problem| {
        let group = problem.group.as_deref().unwrap_or_default();
        let what = [("noun", problem.noun.as_str()), ("name", &problem.name), ("group", group)];
        let severity = ("severity", problem.severity.word());
        labels(&[("kind", problem.kind.word()), what[0], what[1], what[2], severity])
    };
    let each: Vec<(String, u64)> =
        problems.iter().take(rows_max).map(|problem| (of_problem(problem), 1)).collect();
    let running = figures.jobs.iter().filter(|job| job.state == JobState::Running).count() as u64;
    let mut metrics = vec![
        gauge("varve_build_info", "Always 1; the labels tell what runs.", vec![(version, 1_u64)]),
        gauge("varve_start_time_seconds", "When the daemon began to serve.", one(figures.status.started)),
        gauge("varve_shards", "Threads that serve volumes.", one(u64::from(figures.status.shards))),
        gauge("varve_problems", "Things that are not as they should be.", one(problems.len() as u64)),
        gauge("varve_problem", "Always 1: one for each of these, as long as it lasts.", each),
        gauge("varve_jobs_running", "Jobs at work.", one(running)),
        gauge("varve_buffer_capacity_bytes", "Memory set aside for requests.", one(figures.arena.capacity)),
        gauge("varve_buffer_in_use_bytes", "Memory that requests hold now.", one(figures.arena.in_use)),
        gauge(
            "varve_buffer_overflow_bytes",
            "Memory beyond what was set aside.",
            one(figures.arena.overflow),
        ),
    ];
    metrics.push(kinds_of_problems(problems));
    metrics.extend(jobs(&figures.jobs, rows_max));
    metrics
}

/// How many problems there are of each kind: few series, however many volumes a disk takes with it.
fn kinds_of_problems(problems: &[Problem]) -> Metric {
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for problem in problems {
        *kinds.entry((problem.kind.word(), problem.severity.word())).or_default() += 1;
    }
    let sample = |((kind, severity), count)| (labels(&[("kind", kind), ("severity", severity)]), count);
    let help =
        "Things that are not as they should be, by their kind; of a kind without any there is no series.";
    gauge("varve_problems_by_kind", help, kinds.into_iter().map(sample).collect::<Vec<_>>())
}

/// Jobs that run or ended lately; the first `rows_max` of those that run one by one.
fn jobs(jobs: &[Job], rows_max: usize) -> Vec<Metric> {
    let mut states: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for job in jobs {
        *states.entry((&job.kind, job.state.word())).or_default() += 1;
    }
    let sample = |((kind, state), count)| (labels(&[("kind", kind), ("state", state)]), count);
    let running: Vec<&Job> =
        jobs.iter().filter(|job| job.state == JobState::Running).take(rows_max).collect();
    let label = |job: &Job| labels(&[("job", &job.id), ("kind", &job.kind), ("subject", &job.subject)]);
    let progress = |job: &&Job| {
        let known = job.total > 0;
        known.then(|| (label(job), job.done.min(job.total) as f64 / job.total as f64))
    };
    vec![
        gauge(
            "varve_jobs",
            "Jobs that run or ended lately, by kind and state.",
            states.into_iter().map(sample).collect::<Vec<_>>(),
        ),
        gauge(
            "varve_job_progress_ratio",
            "How much of a job that runs is done, once that is known.",
            running.iter().filter_map(progress).collect(),
        ),
        gauge(
            "varve_job_start_time_seconds",
            "When a job that runs began.",
            running.iter().map(|job| (label(job), job.started)).collect(),
        ),
    ]
}
