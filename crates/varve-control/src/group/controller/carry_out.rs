//! The actions of a controller, carried out: each is small, asynchronous, may be repeated, and calls no other.

use super::action::Action;
use super::boundary;
use super::view::Facts;
use crate::Control;
use crate::find::LocatedVolume;
use crate::jobs::rebuilds;
use crate::trash::Trash;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_vg::names::VolumeName;
use varve_volume::lifecycle::placement::PlacementState;

/// What brings one group to what its text says.
pub(super) struct Controller<'a> {
    pub(super) control: &'a Control,
    pub(super) group: Uuid,
}

/// What an action has led to, beside what is seen.
enum Fact {
    Nothing,
    Placements(BTreeMap<Uuid, PlacementState>),
    /// What was closed may have requests under way.
    StillInUse,
    DownExports(Vec<String>),
}

impl Controller<'_> {
    /// Carries out actions of one stage. Volumes are taken into use together: many wait for the same disks.
    pub(super) async fn carry_out(&self, actions: Vec<Action>, facts: &mut Facts) {
        if actions.iter().all(|action| matches!(action, Action::Activate(_))) {
            let activate = async |action: &Action| {
                for _ in 0..boundary::times() {
                    self.act(action).await;
                }
            };
            join_all(actions.iter().map(activate)).await;
            facts.tried.extend(actions);
            return;
        }
        for action in actions {
            for _ in 0..boundary::times() {
                facts.learn(self.act(&action).await);
            }
            facts.tried.insert(action);
        }
    }

    async fn act(&self, action: &Action) -> Fact {
        let Self { control, group } = *self;
        match action {
            Action::Compare => return Fact::Placements(control.placements(group).await),
            Action::Close(id) if control.close_fenced(group, *id).await => {}
            Action::Close(_) => return Fact::StillInUse,
            Action::Extend(id) => control.grow_served(group, *id).await,
            Action::Forget => control.forget_lost_homes(group).await,
            Action::EndDraining => control.end_draining(group),
            Action::CutOff(id) => control.cut_off_mapped(group, *id).await,
            Action::ReserveMemory => control.set_quotas_for_all(group).await,
            Action::Activate(id) => control.activate_idle(group, *id).await,
            Action::AttachOrigins => control.attach_origins(group).await,
            Action::HoldOrigins => control.reconcile_all_origins(group).await,
            Action::DivideMemory => control.set_quotas(group).await,
            Action::ListThinVolumes => control.reconcile_names(group).await,
            Action::NoteServed => drop(control.groups.unserved.borrow_mut().remove(&group)),
            Action::RenameExports => control.rename_exports(group).await,
            Action::ResolveSets => control.resolve_sets(&[group]).await,
            Action::EmptyTrash(ids) => Trash::of(control).empty_old(group, ids).await,
            Action::FollowArrays => rebuilds::resume(control).await,
            Action::Job(id) => control.resume_recorded(group, *id).await,
            Action::Ask(owner) => self.ask(*owner).await,
            Action::WakeCoordinators => {
                control.coordinators_beside(group).into_iter().for_each(|first| control.converge_soon(first));
            }
            Action::ListExports => return Fact::DownExports(control.down_exports_of(group)),
            Action::OpenExport(id) => control.open_down_export(id).await,
            Action::Redirect(owner) => control.redirect_exports(&self.volumes_in(*owner)).await,
        }
        Fact::Nothing
    }

    /// Asks a volume, or those in a pool, what they hold that goes on, and resumes that (CONVERGE3 of `mod.rs`).
    async fn ask(&self, owner: Uuid) {
        let volumes = self.volumes_in(owner);
        if let Some(known) = self.control.groups.known.borrow_mut().get_mut(&self.group) {
            known.note_asked(owner);
        }
        self.control.resume_removals(&volumes).await;
        self.control.resume_rollbacks(&volumes).await;
    }

    /// A volume, or those in a pool, by name.
    fn volumes_in(&self, owner: Uuid) -> Vec<(VolumeName, LocatedVolume)> {
        let control = self.control;
        let names = control.with_group(self.group, |known| known.volumes_in(owner)).unwrap_or_default();
        let located = |name: VolumeName| {
            let located = control.find_volume_for_snapshots(&name).ok()?;
            Some((name, located))
        };
        names.into_iter().filter_map(located).collect()
    }
}

impl Facts {
    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Nothing => {}
            Fact::Placements(placements) => self.placements = placements,
            Fact::StillInUse => self.is_still_in_use = true,
            Fact::DownExports(down) => self.down = down,
        }
    }
}
