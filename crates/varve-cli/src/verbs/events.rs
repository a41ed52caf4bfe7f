//! `varve events`, carried out.

use crate::answer::{self, Answer};
use crate::session::Session;
use crate::table::Table;
use crate::units::date;
use std::time::Duration;
use varve_api::{Event, Exit, Failure, calls};

/// How often the daemon is asked for what is new.
const PAUSE: Duration = Duration::from_millis(500);

/// Shows what happened last; if it is to `follow`, what happens from now on.
pub(crate) async fn events(session: &Session, follow: bool) -> Result<Answer, Failure> {
    let mut status = session.ask(&calls::DaemonStatus()).await?;
    if !follow {
        return Ok(Answer::new(&status.events, table(&status.events)));
    }
    let mut seen = last(&status.events);
    loop {
        tokio::time::sleep(PAUSE).await;
        let started = status.started;
        status = session.ask(&calls::DaemonStatus()).await?;
        if status.started != started {
            seen = 0; // Another daemon, which counts anew.
        }
        for event in status.events.iter().filter(|event| event.number > seen) {
            let text = format!("{}  {}  {}", date(event.time), event.subject, event.message);
            if !answer::print_line(&Answer::new(event, text), session.is_json()) {
                return Ok(Answer::silent(Exit::Ok));
            }
        }
        seen = seen.max(last(&status.events));
    }
}

fn last(events: &[Event]) -> u64 {
    events.last().map_or(0, |event| event.number)
}

/// What happened, as shown to users.
pub(super) fn table(events: &[Event]) -> String {
    let mut table = Table::new(&["TIME (UTC)", "ABOUT", "WHAT"]);
    for event in events {
        table.row(vec![date(event.time), event.subject.clone(), event.message.clone()]);
    }
    table.render("nothing happened yet")
}
