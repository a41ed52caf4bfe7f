//! What goes wrong with a disk or an image of one group for a while, and what a daemon does meanwhile and afterwards.

use super::daemon::Daemon;
use super::{History, Kind, count, model};
use std::path::Path;
use std::time::Duration;
use varve_api::Code;
use varve_sim::{Client, FaultPlan, Mix};

/// How long it may take until everything is back, in the time of the world.
const BACK_MAX: Duration = Duration::from_secs(120);
/// How often disks are looked at until then.
const LOOK: Duration = Duration::from_millis(100);

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// It is not there.
    Gone,
    /// Requests fail now and then.
    Fails,
    /// Requests take 30 s now and then.
    Stalls,
}

/// A disk with which something is wrong.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    group: String,
    path: String,
    fault: Fault,
}

impl Trouble {
    /// Whether a volume or snapshot is in the group of the disk.
    pub(super) fn hurts(&self, name: &str) -> bool {
        name.split('/').next() == Some(self.group.as_str())
    }

    fn plan(&self) -> FaultPlan {
        match self.fault {
            Fault::Gone => FaultPlan::default(),
            Fault::Fails => FaultPlan { write_error: 100_000, flush_error: 100_000, ..FaultPlan::default() },
            Fault::Stalls => FaultPlan { stall: 50_000, ..FaultPlan::default() },
        }
    }
}

impl History<'_> {
    /// Something goes wrong with a disk or an image, if there is one.
    pub(super) fn begin_trouble(&self) {
        let mut random = self.random.borrow_mut();
        let models = self.models.borrow();
        let groups: Vec<_> = models[0].groups.keys().cloned().collect();
        if groups.is_empty() {
            return;
        }
        let group = random.pick(&groups).clone();
        let path = random.pick(&models[0].files_of(&group)).clone();
        let fault = match self.kind {
            Kind::Away => Fault::Gone,
            Kind::Troubles => *random.pick(&[Fault::Gone, Fault::Fails]),
            _ => *random.pick(&[Fault::Gone, Fault::Fails, Fault::Stalls]),
        };
        let trouble = Trouble { group, path, fault };
        match fault {
            Fault::Gone => self.host.set_gone(&trouble.path, true),
            Fault::Fails | Fault::Stalls => self.host.set_faults(&trouble.path, trouble.plan()),
        }
        count(&self.counts.troubles);
        super::log(format_args!("{trouble:?}"));
        self.trouble.replace(Some(trouble));
    }

    /// Lets clients and people go on while a disk is in trouble, then mends it (HISTORY5).
    pub(super) async fn work_in_trouble(&self, daemon: &Daemon) {
        let steps = self.random.borrow_mut().below(10);
        for _ in 0..steps {
            let Some(trouble) = self.trouble.borrow().clone() else { return };
            let step = self.random.borrow_mut().below(9);
            match step {
                _ if self.kind == Kind::Away && step >= 4 => self.give_up(daemon, &trouble).await,
                8 if trouble.fault == Fault::Gone => self.give_up(daemon, &trouble).await,
                0 => {
                    let _ = daemon.scan(Vec::new()).await;
                    if self.kind != Kind::Troubles {
                        self.hear_of_losses().await; // Others use nothing until the disk is sound again.
                    }
                }
                1 => drop(daemon.lists().await),
                2..=4 => {
                    let others = self.models.borrow()[0].part(&trouble.group, false);
                    if self.models.borrow().len() == 1 {
                        self.command(daemon, &others).await;
                    }
                }
                _ if self.kind == Kind::Troubles => {}
                _ => self.requests(daemon, &Mix::default()).await,
            }
        }
        let stalls = self.trouble.borrow().as_ref().is_some_and(|trouble| trouble.fault == Fault::Stalls);
        self.mend();
        if stalls {
            // Arrays are made equal by requests that no client waits for: those that stall have ended, too, then.
            self.host.world.clock().sleep(FaultPlan::STALL).await;
        }
        self.bring_back(daemon).await;
    }

    /// A disk that is gone is given up, if nothing lies on it; when it comes back it is no disk of the group any more.
    async fn give_up(&self, daemon: &Daemon, trouble: &Trouble) {
        let models = self.models.borrow().clone();
        let [before] = models.as_slice() else { return };
        let mut after = before.clone();
        after.groups.entry(trouble.group.clone()).or_default().remove(&trouble.path);
        let _ = daemon.scan(Vec::new()).await;
        self.models.replace(vec![before.clone(), after.clone()]);
        let given_up = daemon.reduce_missing(trouble.group.clone()).await;
        super::log(format_args!("vg reduce --missing {}: {given_up:?}", trouble.group));
        self.models.replace(vec![if given_up.is_ok() { after } else { before.clone() }]);
    }

    /// The disk is sound again.
    fn mend(&self) {
        if let Some(trouble) = self.trouble.take() {
            self.host.set_faults(&trouble.path, FaultPlan::default());
            self.host.set_gone(&trouble.path, false);
        }
    }

    /// HISTORY5.
    async fn bring_back(&self, daemon: &Daemon) {
        let clock = self.host.world.clock();
        let limit = clock.now().after(BACK_MAX);
        loop {
            let scanned = daemon.scan(Vec::new()).await;
            let shown = daemon.lists().await;
            let is_back =
                |shown: &model::Lists| self.models.borrow().iter().any(|model| model.lists() == *shown);
            super::log(format_args!("pv scan: {scanned:?}"));
            if shown.as_ref().is_ok_and(is_back) {
                break;
            }
            let wanted: Vec<_> = self.models.borrow().iter().map(model::Model::lists).collect();
            assert!(
                clock.now() < limit,
                "HISTORY5: pv scan: {scanned:?}; it shows {shown:#?}, not {wanted:#?}"
            );
            let models = self.models.borrow().clone();
            daemon.take_back_stale_disks(&models).await;
            clock.sleep(LOOK).await;
        }
        for client in self.hear_of_losses().await {
            client.flush().await.expect("HISTORY5");
        }
    }

    /// Clients that stayed connected hear of what may be lost, with the next flush of each, before they read again.
    async fn hear_of_losses(&self) -> Vec<Client> {
        let clients: Vec<Client> = self.clients.borrow().values().cloned().collect();
        for client in &clients {
            let _ = client.flush().await;
        }
        clients
    }

    /// A crash is over. A disk that is gone may still be; the state directory may be lost.
    pub(super) fn after_crash(&self) {
        let stays = self.random.borrow_mut().chance(1, 2);
        if !self.trouble.borrow().as_ref().is_some_and(|trouble| trouble.fault == Fault::Gone && stays) {
            self.mend();
        }
        let loss = if self.job.borrow().is_some() { 2 } else { 8 };
        if self.trouble.borrow().is_none() && self.random.borrow_mut().chance(1, loss) {
            self.host.files.lose_state();
            self.is_new_host.set(true);
            self.models.borrow_mut().iter_mut().for_each(|model| model.exports.clear());
            count(&self.counts.lost_states);
            if self.job.borrow().is_some() {
                count(&self.counts.lost_in_jobs); // HISTORY6
            }
        }
    }

    /// A daemon that has lost its state directory is shown its disks, and people agree to the images that these name.
    pub(super) async fn find_disks(&self, daemon: &Daemon) {
        let remembered = self.host.files.remembered().disks;
        let is_known = |path: &String| remembered.iter().any(|disk| disk.path == Path::new(path));
        let mut paths = self.host.files.disks();
        if !paths.iter().all(is_known) || self.is_new_host.get() {
            // A file that was to become a disk when the crash came has no label.
            while let Err(failure) = daemon.scan_and_trust(paths.clone()).await {
                assert_eq!(failure.code, Code::NotPhysicalVolume, "{failure:?}");
                paths.retain(|path| !failure.message.starts_with(&format!("{path} ")));
            }
            self.is_new_host.set(false);
        }
    }
}
