//! `varve schedule`, carried out.

use super::or_dash;
use crate::answer::Answer;
use crate::grammar::ScheduleVerb;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::date;
use varve_api::{
    Failure, InGroup, Remove, Schedule, ScheduleChange, ScheduleCreate, ScheduleRan, ScheduleRun, calls,
};
use varve_vg::plan::every_text;

/// Carries out a verb of schedules.
pub(crate) async fn schedule(session: &Session, verb: ScheduleVerb) -> Result<Answer, Failure> {
    match verb {
        ScheduleVerb::Create { volume, every, keep, name, set, change } => {
            let request = ScheduleCreate { volume, set, name, every, keep, dry_run: change.dry_run };
            session
                .change(calls::CreateSchedule(request), |made| format!("made schedule {}", made.name))
                .await
        }
        ScheduleVerb::List { group } => {
            session.show(calls::ListSchedules(InGroup { group }), |schedules| table(schedules)).await
        }
        ScheduleVerb::Show { name } => session.show(calls::ShowSchedule(name), details).await,
        ScheduleVerb::Edit { schedule, every, keep, name, change } => {
            let request = ScheduleChange { name, every, keep, dry_run: change.dry_run };
            let text = |changed: &Schedule| format!("changed schedule {}", changed.name);
            session.change(calls::ChangeSchedule(schedule, request), text).await
        }
        ScheduleVerb::Remove { name, change } => {
            let call = calls::RemoveSchedule(name.clone(), Remove { dry_run: change.dry_run });
            session
                .change(call, |_| format!("removed schedule {name}; the snapshots that it made stay"))
                .await
        }
        ScheduleVerb::Run { name, change } => {
            let call = calls::RunSchedule(name, ScheduleRun { dry_run: change.dry_run });
            session.change(call, ran).await
        }
    }
}

fn ran(ran: &ScheduleRan) -> String {
    let made = ran.made.iter().map(|name| format!("made {name}\n"));
    made.chain(ran.removed.iter().map(|name| format!("removed {name}\n"))).collect()
}

fn date_or_dash(seconds: Option<u64>) -> String {
    or_dash(&seconds.map(date).unwrap_or_default())
}

fn table(schedules: &[Schedule]) -> String {
    let mut table = Table::new(&[
        "SCHEDULE",
        "VOLUMES",
        "EVERY>",
        "KEEP",
        "KEPT>",
        "LAST RUN (UTC)",
        "NEXT RUN (UTC)",
        "STATE",
    ]);
    for schedule in schedules {
        table.row(vec![
            schedule.name.clone(),
            or_dash(&schedule.volumes.join(" ")),
            every_text(schedule.every),
            schedule.keep.clone(),
            schedule.kept.to_string(),
            date_or_dash(schedule.last_run),
            date(schedule.next_run),
            schedule.state.to_string(),
        ]);
    }
    table.render("no schedules; varve schedule create VG/LV --every 1h --keep 24h,7d,4w,12m")
}

fn details(schedule: &Schedule) -> String {
    let reason = schedule.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    pairs(&[
        ("schedule", schedule.name.clone()),
        ("of", or_dash(&schedule.volumes.join(" "))),
        ("every", every_text(schedule.every)),
        ("keep", schedule.keep.clone()),
        ("created", date(schedule.created)),
        ("last run", date_or_dash(schedule.last_run)),
        ("next run", date(schedule.next_run)),
        ("state", format!("{}{reason}", schedule.state)),
        ("snapshots", or_dash(&schedule.snapshots.join(" "))),
    ])
}
