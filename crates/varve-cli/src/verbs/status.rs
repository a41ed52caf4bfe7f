//! `varve status`, carried out.

use crate::answer::Answer;
use crate::grammar::CheckFormat;
use crate::session::Session;
use crate::table::pairs;
use crate::units::{date, duration, size};
use rustix::time::{ClockId, clock_gettime};
use varve_api::{DaemonStatus, Exit, Failure, Health, Problem, Severity, calls};

/// Shows the daemon and what happened last; if it is to `check`, only what needs a person.
pub(crate) async fn status(session: &Session, check: Option<CheckFormat>) -> Result<Answer, Failure> {
    let asked = session.ask(&calls::DaemonStatus()).await;
    if check == Some(CheckFormat::Nagios) {
        return Ok(nagios(asked));
    }
    let status = asked?;
    let problems: String = status.attention.iter().map(problem_text).collect();
    if check.is_some() {
        let exit = if status.health == Health::Ok { Exit::Ok } else { Exit::NeedsRepair };
        return Ok(Answer::new(&status, format!("{}\n{problems}", status.health)).exit(exit));
    }
    let head = pairs(&[
        ("health", status.health.to_string()),
        ("version", status.version.clone()),
        ("process", status.pid.to_string()),
        ("serves since", date(status.started)),
        ("shards", status.shards.to_string()),
        ("io", status.io.clone()),
        ("state", status.state_dir.clone()),
        ("trash", size(status.trash)),
    ]);
    let events = super::events::table(&status.events);
    Ok(Answer::new(&status, format!("{head}\n{problems}{events}")))
}

/// A problem, how long it has lasted, and what ends it.
pub(crate) fn problem_text(problem: &Problem) -> String {
    let now = clock_gettime(ClockId::Realtime).tv_sec.unsigned_abs();
    let age = duration(now.saturating_sub(problem.since));
    format!("{}: {problem} (for {age})\n  help: {}\n", problem.severity, problem.help)
}

/// One line with what is worst first, and the exit codes of monitoring plugins: 0, 1 for a warning, 2 if it is critical, 3 if that
/// is unknown.
fn nagios(asked: Result<DaemonStatus, Failure>) -> Answer {
    let status = match asked {
        Ok(status) => status,
        Err(failure) => return Answer::new(&failure, format!("VARVE UNKNOWN - {}", failure.message)).code(3),
    };
    let is_critical = |problem: &Problem| problem.severity == Severity::Critical;
    let critical = status.attention.iter().filter(|problem| is_critical(problem)).count();
    let (word, code) = match (critical, status.attention.len()) {
        (0, 0) => ("OK", 0),
        (0, _) => ("WARNING", 1),
        _ => ("CRITICAL", 2),
    };
    let problems: Vec<String> = status.attention.iter().map(ToString::to_string).collect();
    let problems =
        if problems.is_empty() { "nothing needs a person".to_owned() } else { problems.join("; ") };
    let figures = format!("critical={critical} warning={}", status.attention.len() - critical);
    Answer::new(&status, format!("VARVE {word} - {problems} | {figures}")).code(code)
}
