//! `varve status`, carried out.

use crate::answer::Answer;
use crate::session::Session;
use crate::table::pairs;
use crate::units::date;
use varve_api::{Exit, Failure, Health, Problem, calls};

/// Shows the daemon and what happened last; if it is to `check`, only what needs a person.
pub(crate) async fn status(session: &Session, check: bool) -> Result<Answer, Failure> {
    let status = session.ask(&calls::DaemonStatus()).await?;
    if check {
        let exit = if status.health == Health::Ok { Exit::Ok } else { Exit::NeedsRepair };
        let mut lines = vec![status.health.to_string()];
        lines.extend(status.attention.iter().map(|problem| format!("{problem}\n  help: {}", problem.help)));
        return Ok(Answer::new(&status, lines.join("\n")).exit(exit));
    }
    let head = pairs(&[
        ("health", status.health.to_string()),
        ("version", status.version.clone()),
        ("process", status.pid.to_string()),
        ("serves since", date(status.started)),
        ("shards", status.shards.to_string()),
        ("io", status.io.clone()),
        ("state", status.state_dir.clone()),
    ]);
    let problem = |problem: &Problem| format!("PROBLEM: {problem}\n  help: {}\n", problem.help);
    let problems: String = status.attention.iter().map(problem).collect();
    let events = super::events::table(&status.events);
    Ok(Answer::new(&status, format!("{head}\n{problems}{events}")))
}
