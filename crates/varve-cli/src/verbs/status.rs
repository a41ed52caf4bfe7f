//! `varve status`, carried out.

use crate::answer::Answer;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::date;
use varve_api::{DaemonStatus, Failure};

/// Shows the daemon and what happened last.
pub(crate) async fn status(session: &Session) -> Result<Answer, Failure> {
    let status: DaemonStatus = session.get("/v1/status").await?;
    let head = pairs(&[
        ("health", status.health.to_string()),
        ("version", status.version.clone()),
        ("process", status.pid.to_string()),
        ("serves since", date(status.started)),
        ("shards", status.shards.to_string()),
        ("io", status.io.clone()),
        ("state", status.state_dir.clone()),
    ]);
    let problems: String = status.problems.iter().map(|problem| format!("PROBLEM: {problem}\n")).collect();
    let mut table = Table::new(&["TIME (UTC)", "ABOUT", "WHAT"]);
    for event in &status.events {
        table.row(vec![date(event.time), event.subject.clone(), event.message.clone()]);
    }
    Ok(Answer::new(&status, format!("{head}\n{problems}{}", table.render("nothing happened yet"))))
}
