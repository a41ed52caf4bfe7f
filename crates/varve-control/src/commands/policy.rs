//! What a volume declares for its snapshot stores: in the words of requests, and in the group's.

use super::options::ShownOption;
use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::find::volume_name;
use crate::group::change::shown;
use varve_api::{
    AutoExtend, Changed, Code, Failure, LogicalVolume as ShownVolume, Plan, PolicyWords, SnapshotPolicy,
    VolumeChange,
};
use varve_vg::Change;
use varve_vg::model::{Discards, OverCommit, StorePolicy, WhenFull};

/// `policy` with what `words` say; what they do not say stays.
pub(crate) fn changed(policy: StorePolicy, words: &PolicyWords) -> Result<StorePolicy, Failure> {
    let mut policy = policy;
    if let Some(when_full) = words.when_full {
        policy.when_full = WhenFull::declared(when_full);
    }
    if let Some(text) = &words.pause_timeout {
        policy.pause_timeout_ms = milliseconds(text).ok_or_else(|| bad("--pause-timeout", text, "60s"))?;
    }
    if let Some(discards) = words.discards {
        policy.discards = Discards::declared(discards);
    }
    if let Some(over_commit) = words.over_commit {
        policy.over_commit = OverCommit::declared(over_commit);
    }
    match words.auto_extend.as_deref() {
        None => {}
        Some("off") => policy.extend_at_percent = None,
        Some(text) => {
            let (at, by) = percents(text).ok_or_else(|| bad("--auto-extend", text, "80%:20%, or off"))?;
            (policy.extend_at_percent, policy.extend_by_percent) = (Some(at), by);
        }
    }
    Ok(policy)
}

impl Control {
    /// Changes what a volume declares.
    pub async fn change_volume(
        &self,
        text: &str,
        request: VolumeChange,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        if let Some(image) = &request.image {
            if request.snapshot_policy != PolicyWords::default() {
                return Err(Failure::new(
                    Code::Usage,
                    "--image leads the volume elsewhere, and goes with no other option",
                ));
            }
            return self.follow_image(&name, image, &request).await;
        }
        let located = self.find_volume(&name)?;
        if located.thin.is_some() {
            return Err(Failure::new(
                Code::Usage,
                format!("what {name} does without space, its pool declares"),
            )
            .help(format!("varve pool change {}", self.subject(located.pool()))));
        }
        if request.snapshot_policy == PolicyWords::default() {
            return Err(Failure::new(Code::Usage, "nothing to change is named")
                .help("--when-full, --pause-timeout, --auto-extend or --image"));
        }
        match self.declare(&located, &request.snapshot_policy, request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_volume(text).await.map(Changed::Done),
        }
    }

    /// Changes the policy of a volume or a pool by `words`; with `dry_run` only the plan of it.
    pub(crate) async fn declare(
        &self,
        located: &LocatedVolume,
        words: &PolicyWords,
        dry_run: bool,
    ) -> Result<Option<Plan>, Failure> {
        let id = located.volume.id;
        let commits = self.commits(located.group).await;
        // As the group says it is now: it may have changed since it was found.
        let (_, entry) = self.entry_of(id)?;
        let policy = changed(entry.store_policy.unwrap_or_default(), words)?;
        let (volume, title) = (entry.name.clone(), format!("policy of {} changed", entry.name));
        let planned = commits.plan(located.group, Change::SetStorePolicy { volume, policy }, &title)?;
        if dry_run {
            return Ok(Some(shown(&planned)));
        }
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.watch.forget_dropped(id);
        located.home.volume(id).set_policy(policy).await.map_err(failures::gone)?;
        Ok(None)
    }
}

/// A policy as it is shown.
pub(crate) fn shown_policy(policy: StorePolicy) -> SnapshotPolicy {
    SnapshotPolicy {
        when_full: policy.when_full.shown(),
        pause_timeout_ms: policy.pause_timeout_ms,
        auto_extend: policy
            .extend_at_percent
            .map(|at_percent| AutoExtend { at_percent, by_percent: policy.extend_by_percent }),
    }
}

pub(crate) fn bad(option: &str, text: &str, example: &str) -> Failure {
    Failure::new(Code::Usage, format!("{text:?} is no value of {option}")).help(format!("{option} {example}"))
}

/// `500ms`, `60s`, `5m`, `2h`, `1d`; a plain number is in seconds. At most a year.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1000));
    let number: u64 = number.parse().ok()?;
    number.checked_mul(factor).filter(|ms| *ms <= 365 * 86_400_000)
}

/// `80%:20%`, the signs may be missing.
fn percents(text: &str) -> Option<(u64, u64)> {
    let (at, by) = text.split_once(':')?;
    let number = |text: &str| text.strip_suffix('%').unwrap_or(text).parse::<u64>().ok();
    let (at, by) = (number(at)?, number(by)?);
    ((1..=99).contains(&at) && (1..=1000).contains(&by)).then_some((at, by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::WhenFull as ShownWhenFull;

    #[test]
    fn times_and_percents_are_read_as_people_write_them() {
        assert_eq!(milliseconds("60"), Some(60_000));
        assert_eq!(milliseconds("500ms"), Some(500));
        assert_eq!(milliseconds("5m"), Some(300_000));
        assert_eq!(milliseconds("0s"), Some(0));
        for wrong in ["", "s", "-1s", "1.5s", "366d", "99999999999999999999h", "5 m"] {
            assert_eq!(milliseconds(wrong), None, "{wrong:?}");
        }
        assert_eq!(percents("80%:20%"), Some((80, 20)));
        assert_eq!(percents("70:100"), Some((70, 100)));
        for wrong in ["", "80%", "0%:20%", "100%:20%", "80%:0%", "80%:20%:3%", "a:b"] {
            assert_eq!(percents(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let words = PolicyWords { auto_extend: Some("off".into()), ..PolicyWords::default() };
        let policy = changed(StorePolicy::default(), &words).expect("sound");
        assert_eq!(policy, StorePolicy { extend_at_percent: None, ..StorePolicy::default() });
        let words = PolicyWords {
            when_full: Some(ShownWhenFull::DropOldest),
            pause_timeout: Some("2s".into()),
            auto_extend: Some("90%:10%".into()),
            ..PolicyWords::default()
        };
        let policy = changed(policy, &words).expect("sound");
        let shown = shown_policy(policy);
        assert_eq!((shown.when_full, shown.pause_timeout_ms), (ShownWhenFull::DropOldest, 2000));
        assert_eq!(shown.auto_extend, Some(AutoExtend { at_percent: 90, by_percent: 10 }));
        let words = PolicyWords { pause_timeout: Some("soon".into()), ..PolicyWords::default() };
        assert_eq!(changed(policy, &words).map_err(|failure| failure.code), Err(Code::Usage));
    }
}
