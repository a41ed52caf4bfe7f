//! Disks that lost what they had acknowledged to their group: not used, and taken back only because a user insists.

use super::known_group::KnownGroup;
use crate::Control;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Group as ShownGroup, GroupExtend, Plan};

impl KnownGroup {
    /// The identity of the stale disk at `path`, if there is one that the group still lacks.
    fn stale_at(&self, path: &str, label: Option<Uuid>) -> Option<Uuid> {
        let stale = self.stale.iter().any(|stale| stale == path);
        label.filter(|id| stale && self.group.pv_by_id(*id).is_some_and(|disk| disk.missing))
    }
}

impl Control {
    /// The stale disks of a group among `paths`; an error if some are stale and others are not.
    pub(crate) fn stale_among(&self, group: Uuid, paths: &[String]) -> Result<Vec<Uuid>, Failure> {
        let stale: Vec<Uuid> = self.with_group(group, |known| {
            paths.iter().filter_map(|path| known.stale_at(path, self.label_id(path))).collect()
        })?;
        if !stale.is_empty() && stale.len() < paths.len() {
            let message = "some of these disks belong to the group and are stale, others are new";
            return Err(Failure::new(Code::Usage, message).help("name them in two commands"));
        }
        Ok(stale)
    }

    /// Takes the stale disks `stale` back into their group, with data that may be old.
    pub(crate) async fn take_stale_back(
        &self,
        group: Uuid,
        stale: Vec<Uuid>,
        request: &GroupExtend,
    ) -> Result<Changed<ShownGroup>, Failure> {
        let name = self.with_group(group, |known| known.group.name().to_owned())?;
        let disks = request.paths.join(" ");
        if request.dry_run {
            let step = format!("would take {disks} back into group {name}, with data that may be old");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        if !request.overwrite {
            let message =
                format!("{disks}: stale, the group {name} has gone on without it; its data may be old");
            let help = format!("varve vg extend {name} {disks} --yes takes it back as it is");
            return Err(Failure::new(Code::Declined, message).help(help));
        }
        let commits = self.commits(group).await;
        let stamp = self.stamp(format!("vg extend {name} {disks}, which is stale"));
        let open = self.groups.known.borrow_mut().get_mut(&group).and_then(|known| known.open.take());
        let unusable =
            || Failure::new(Code::GroupIncomplete, "the group cannot be changed now").help("varve vg list");
        let mut open = open.ok_or_else(unusable)?;
        let mut taken = if open.is_reconciled() { Ok(()) } else { Err(unusable()) };
        for disk in stale {
            if taken.is_ok() {
                taken = open.take_back(disk, &stamp).await.map_err(|error| self.commit_failure(&error));
            }
        }
        self.put_open(group, open);
        self.fence_group(group).await;
        drop(commits);
        self.reconcile(group).await;
        taken?;
        self.event(&name, &stamp.change);
        self.activate_group(group).await;
        self.restore_exports(self.context.clock().now()).await;
        self.show_group(&group.to_string()).await.map(Changed::Done)
    }
}
