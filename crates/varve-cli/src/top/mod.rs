//! `varve top`: what volumes, exports, disks, pools and jobs do now, sample after sample.

mod activity;
mod keys;
mod lines;
mod screen;

use crate::answer::{self, Answer};
use crate::session::Session;
use activity::{Activity, Sample};
use std::io::IsTerminal;
use std::time::Duration;
use varve_api::{Exit, Failure};

/// Shows what is done, each `every`: on a screen if there is a terminal and no `count`, else as lines, `count` times.
pub(crate) async fn top(session: &Session, every: Duration, count: Option<u64>) -> Result<Answer, Failure> {
    let first = Sample::take(session).await?;
    let is_screen = count.is_none() && !session.is_json();
    if is_screen && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        screen::show(session, first, every).await?;
        return Ok(Answer::silent(Exit::Ok));
    }
    print(session, first, every, count.unwrap_or(u64::MAX)).await
}

async fn print(
    session: &Session,
    mut before: Sample,
    every: Duration,
    count: u64,
) -> Result<Answer, Failure> {
    for left in (0..count).rev() {
        tokio::time::sleep(every).await;
        let now = Sample::take(session).await?;
        let activity = Activity::between(&before, &now);
        let answer = Answer::new(&activity, lines::text(&activity));
        if left == 0 || !answer::print_line(&answer, session.is_json()) {
            return Ok(answer); // It is the last one, or the reader has gone.
        }
        before = now;
    }
    Ok(Answer::silent(Exit::Ok))
}
