//! What the arrays of a volume or pool declare: in the words of requests, and in the group's.

use super::policy::{bad, milliseconds};
use crate::Control;
use crate::failures;
use crate::group::change::shown;
use varve_api::{ArrayChange, ArrayPolicyWords, Changed, Code, Failure, VolumeArray};
use varve_vg::model::ArrayPolicy;
use varve_vg::size::parse_size;
use varve_vg::{Change, Plan};

/// `policy` with what `words` say; what they do not say stays.
fn changed(policy: ArrayPolicy, words: &ArrayPolicyWords) -> Result<ArrayPolicy, Failure> {
    let mut policy = policy;
    if let Some(text) = &words.slow_after {
        policy.slow_after_ms = milliseconds(text).ok_or_else(|| bad("--slow-after", text, "30s"))?;
    }
    if let Some(text) = &words.release_after {
        policy.release_after_ms = milliseconds(text).ok_or_else(|| bad("--release-after", text, "1s"))?;
    }
    if let Some(text) = &words.resync_rate {
        let (least, most) =
            text.split_once("..").map_or((text.as_str(), None), |(least, most)| (least, Some(most)));
        let size = |text: &str| parse_size(text).map_err(|_| bad("--resync-rate", text, "20M, or 20M..200M"));
        (policy.resync_rate_min, policy.resync_rate_max) = (size(least)?, most.map(size).transpose()?);
    }
    Ok(policy)
}

/// `planned`, which makes `volume`, with what `words` say of its arrays.
pub(crate) fn with_words(planned: Plan, volume: &str, words: &ArrayPolicyWords) -> Result<Plan, Failure> {
    if *words == ArrayPolicyWords::default() {
        return Ok(planned);
    }
    if planned.after.lv(volume).is_none_or(|volume| volume.layout.members().is_empty()) {
        return Err(not_an_array());
    }
    let policy = changed(ArrayPolicy::default(), words)?;
    planned.with_array_policy(volume, policy).map_err(|error| failures::plan(&error))
}

/// Refuses words for arrays where there is none.
pub(crate) fn refuse_words(words: &ArrayPolicyWords) -> Result<(), Failure> {
    if *words == ArrayPolicyWords::default() { Ok(()) } else { Err(not_an_array()) }
}

fn not_an_array() -> Failure {
    Failure::new(
        Code::Usage,
        "--slow-after, --resync-rate and --release-after belong to --type mirror and --type ddraid",
    )
}

impl Control {
    /// Changes what the arrays of a volume or pool declare.
    pub async fn change_arrays(
        &self,
        text: &str,
        request: ArrayChange,
    ) -> Result<Changed<Vec<VolumeArray>>, Failure> {
        let _lock = self.lock_of(text).await?;
        let located = self.find_array(text)?;
        let has_policy = request.policy != ArrayPolicyWords::default();
        match &request.log {
            Some(_) if has_policy => {
                let message =
                    "--log is changed by itself, without --slow-after, --resync-rate and --release-after";
                return Err(Failure::new(Code::Usage, message).help("two commands"));
            }
            Some(word) => return self.change_log((text, located), word, request.dry_run).await,
            None if !has_policy => {
                let failure = Failure::new(Code::Usage, "nothing to change is named");
                return Err(failure.help("--slow-after, --resync-rate, --release-after or --log"));
            }
            None => {}
        }
        let commits = self.commits(located.group).await;
        let (_, entry) = self.entry_of(located.volume.id)?; // As the group says it is now.
        let policy = changed(entry.array_policy.unwrap_or_default(), &request.policy)?;
        let (volume, title) = (entry.name.clone(), format!("array change {text}"));
        let planned = commits.plan(located.group, Change::SetArrayPolicy { volume, policy }, &title)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.converge(located.group).await;
        self.show_arrays(text).await.map(Changed::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_of_arrays_stays_and_nonsense_is_refused() {
        let words = |slow: Option<&str>, rate: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            changed(
                ArrayPolicy::default(),
                &ArrayPolicyWords { slow_after: own(slow), resync_rate: own(rate), release_after: None },
            )
        };
        assert_eq!(words(None, None), Ok(ArrayPolicy::default()));
        let slow = words(Some("10s"), None).expect("sound");
        assert_eq!(slow, ArrayPolicy { slow_after_ms: 10_000, ..ArrayPolicy::default() });
        let rates = words(None, Some("20M..200M")).expect("sound");
        assert_eq!((rates.resync_rate_min, rates.resync_rate_max), (20 << 20, Some(200 << 20)));
        let release = |text: &str| {
            let words = ArrayPolicyWords { release_after: Some(text.to_owned()), ..Default::default() };
            changed(ArrayPolicy::default(), &words).map(|policy| policy.release_after_ms)
        };
        assert_eq!((release("0"), release("250ms")), (Ok(0), Ok(250)));
        assert_eq!(release("never").map_err(|failure| failure.code), Err(Code::Usage));
        assert_eq!(words(None, Some("1G")).expect("sound").resync_rate_max, None);
        for (slow, rate) in
            [(Some("soon"), None), (None, Some("fast")), (None, Some("1M..")), (None, Some("..1M"))]
        {
            assert_eq!(
                words(slow, rate).map_err(|failure| failure.code),
                Err(Code::Usage),
                "{slow:?} {rate:?}"
            );
        }
    }
}
