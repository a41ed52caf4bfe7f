//! A copy of a mirror made a volume of its own.

use super::volumes::name_beside;
use crate::Control;
use crate::find::volume_name;
use crate::group::change::shown;
use crate::jobs::moves::not_known;
use varve_api::{Changed, Code, Failure, LogicalVolume, Split};
use varve_vg::Change;
use varve_vg::plan::ConversionStep;

impl Control {
    /// Splits a copy of a mirror off as a volume that has the content of one instant.
    pub async fn split_volume(&self, text: &str, request: Split) -> Result<Changed<LogicalVolume>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_volume(&name)?;
        let (group, volume) = (located.group, located.volume.id);
        self.refuse_if_busy(volume)?;
        if located.thin.is_some() || located.uncleared.is_some() {
            let message = format!("{text} has no copies that could be split off");
            return Err(Failure::new(Code::NotAnArray, message).help(format!("varve lv show {text}")));
        }
        let full = name_beside(&name, &request.to)?;
        self.refuse_thin_name(group, &full.volume)?;
        let to = full.volume.clone();
        let step = ConversionStep::Split { to: to.clone(), id: self.context.new_id() };
        let commits = self.commits(group).await;
        let planned =
            commits.plan(group, Change::Convert { volume, step }, &format!("lv split {text} {to}"))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        let new = planned.after.lv(&to).cloned().expect("the plan makes this volume");
        let (before, after) = self.with_group(group, |known| {
            let version = |version| self.wanted(known, version, volume);
            version(&known.group).zip(version(&planned.after)).ok_or_else(not_known)
        })??;
        let held = located.home.volume(volume).hold_for_split(after.clone());
        self.answered(volume, held.await)?;
        let committed = commits.commit(group, planned, Vec::new()).await;
        drop(commits);
        let home = located.home.volume(volume);
        let released = if self.is_undecided(group) {
            home.give_up_after_split() // SPLIT1 of `varve_volume::copies::split`
        } else {
            let is_split =
                self.with_group(group, |known| known.group.lv(&to).is_some_and(|known| known.id == new.id))?;
            home.release_after_split(is_split, if is_split { after } else { before })
        };
        if let Err(failure) = self.answered(volume, released.await) {
            tracing::error!(volume = text, %failure, "a mirror does not go on after a split");
            self.converge(group).await;
        }
        if self.is_undecided(group) {
            self.converge(group).await; // It is out of use, with the reason.
        }
        committed?;
        self.activate_new(group, &new).await?;
        self.show_volume(&full.to_string()).await.map(Changed::Done)
    }
}
