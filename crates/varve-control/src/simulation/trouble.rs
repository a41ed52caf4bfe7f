//! What goes wrong with a disk or an image of one group for a while, and what a daemon does meanwhile and afterwards.

use super::daemon::Daemon;
use super::mapper::MAPPERS;
use super::verbs::{DISK_SIZE, Verb};
use super::{Event, History, Kind, LIVES, UNFLUSHED, boundaries, count, model, volume_of};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use varve_api::{Code, Problem, ProblemKind};
use varve_block::timeout;
use varve_sim::{Client, FaultPlan, Mix};

/// How long it may take until everything is back, in the time of the world.
const BACK_MAX: Duration = Duration::from_secs(120);
/// How long a command may take.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How long it may take until the status says that a disk is out of use.
const SEEN_MAX: Duration = Duration::from_secs(5);
/// How often disks are looked at until then.
const LOOK: Duration = Duration::from_millis(100);

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It is not there.
    Gone,
    /// Requests fail now and then.
    Fails,
    /// Requests take 30 s now and then.
    Stalls,
    /// Its file is cut short, and later as long as before, with zeros where it was cut. That is known for as long as the daemon
    /// runs: it does not end before all is whole.
    CutOff {
        /// How short it is.
        length: u64,
    },
    /// Its file is cut to nothing while it is in use, and gets its content back later: until it is opened anew it answers nothing.
    Shrunk,
    /// It is sound, and a person has taken members of arrays there out of use.
    Ejected,
    /// Its path leads to its file no more, which is open all the same: everything is served (HISTORY15).
    Unlinked(Unlinked),
}

/// What became of the name of a file that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unlinked {
    /// It was deleted.
    Deleted,
    /// It has another name.
    Renamed,
    /// It has another name, and another file has its own.
    Taken,
}

/// A disk with which something is wrong.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    group: String,
    pub(super) path: String,
    pub(super) fault: Fault,
    /// Volumes of the group that are served all the same (HISTORY9): until the daemon ends, for a crash is a second fault.
    pub(super) survivors: BTreeSet<String>,
}

impl Trouble {
    pub(super) fn new(group: String, path: String, fault: Fault) -> Self {
        Self { group, path, fault, survivors: BTreeSet::new() }
    }

    /// Where its file is if it was renamed.
    fn new_path(&self) -> String {
        format!("{}-moved", self.path)
    }

    /// Whether a volume or snapshot may suffer.
    pub(super) fn hurts(&self, name: &str) -> bool {
        if matches!(self.fault, Fault::Unlinked(_)) {
            return false;
        }
        let volume = volume_of(name);
        name.split('/').next() == Some(self.group.as_str()) && !self.survivors.contains(volume)
    }

    /// Whether a volume or snapshot is served all the same (HISTORY9).
    pub(super) fn has_survivor(&self, name: &str) -> bool {
        self.survivors.contains(volume_of(name))
    }

    fn plan(&self) -> FaultPlan {
        match self.fault {
            Fault::Gone | Fault::CutOff { .. } | Fault::Shrunk | Fault::Ejected | Fault::Unlinked(_) => {
                FaultPlan::default()
            }
            Fault::Fails => {
                // What is on arrays is read from others, and written again.
                let latent = if self.survivors.is_empty() { 0 } else { 20_000 };
                FaultPlan { latent, write_error: 100_000, flush_error: 100_000, ..FaultPlan::default() }
            }
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
            Kind::Refused => *random.pick(&[Fault::Fails, Fault::Stalls]),
            Kind::Troubles => *random.pick(&[Fault::Gone, Fault::Fails, Fault::Shrunk]),
            _ => match *random.pick(&[Unlinked::Deleted, Unlinked::Renamed, Unlinked::Taken]) {
                unlinked if !path.starts_with(MAPPERS) && random.chance(1, 2) => Fault::Unlinked(unlinked),
                _ => *random.pick(&[Fault::Gone, Fault::Fails, Fault::Stalls, Fault::Shrunk]),
            },
        };
        self.begin(Trouble::new(group, path, fault));
    }

    pub(super) fn begin(&self, trouble: Trouble) {
        match trouble.fault {
            Fault::Gone => self.host.set_gone(&trouble.path, true),
            Fault::Shrunk => self.host.shrink(&trouble.path),
            Fault::CutOff { length } => {
                boundaries::let_live(&self.host);
                self.host.cut_off(&trouble.path, length);
            }
            Fault::Unlinked(how) => {
                let (old, new) = (Path::new(&trouble.path), trouble.new_path());
                match how {
                    Unlinked::Deleted => {
                        boundaries::let_live(&self.host);
                        self.host.files.delete(old);
                    }
                    Unlinked::Renamed | Unlinked::Taken => self.host.files.rename(&trouble.path, &new),
                }
                if how == Unlinked::Taken {
                    self.host.files.make(old, DISK_SIZE);
                }
            }
            Fault::Fails | Fault::Stalls => self.host.set_faults(&trouble.path, trouble.plan()),
            Fault::Ejected => {}
        }
        count(&self.counts.troubles);
        super::log(format_args!("{trouble:?}"));
        self.trouble.replace(Some(trouble));
    }

    /// Lets clients and users go on while a disk is in trouble, then mends it (HISTORY5). Whether the host ends before: members
    /// of arrays that missed writes may be there when it starts again.
    pub(super) async fn work_in_trouble(&self, daemon: &Daemon) -> bool {
        let fault = self.trouble.borrow().as_ref().map(|trouble| trouble.fault);
        let is_cut_off = matches!(fault, Some(Fault::CutOff { .. }));
        let mut steps = self.random.borrow_mut().below(10);
        if is_cut_off && self.random.borrow_mut().chance(2, 3) {
            steps = 0; // What is written meanwhile would be made good without knowing of the cut.
        }
        for _ in 0..steps {
            let Some(trouble) = self.trouble.borrow().clone() else { return false };
            let step = self.random.borrow_mut().below(9);
            match step {
                _ if self.kind == Kind::Arrays => self.step_in_array_trouble(daemon, &trouble, step).await,
                _ if self.kind == Kind::Refused && step >= 2 => {
                    self.command_in_trouble(daemon, &trouble).await;
                }
                _ if self.kind == Kind::Away && step >= 4 => self.give_up(daemon, &trouble).await,
                8 if trouble.fault == Fault::Gone => self.give_up(daemon, &trouble).await,
                0 => {
                    let _ = daemon.scan(Vec::new()).await;
                    if !matches!(self.kind, Kind::Troubles | Kind::Refused) {
                        self.hear_of_losses().await; // These use nothing until the disk is sound again.
                    }
                }
                1 => drop(daemon.lists().await),
                2..=4 => {
                    let others = self.models.borrow()[0].part(&trouble.group, false);
                    // A job may let a crash come, which ends a file that has no name.
                    let may_end = trouble.fault != Fault::Unlinked(Unlinked::Deleted);
                    if self.models.borrow().len() == 1 && may_end {
                        self.command(daemon, &others).await;
                    }
                }
                _ if self.kind == Kind::Troubles => {}
                _ => self.requests(daemon, &Mix::default()).await,
            }
        }
        if self.kind == Kind::Arrays
            && !is_cut_off
            && self.life.get() < LIVES
            && self.random.borrow_mut().chance(2, 3)
        {
            // What a member misses is durable on the others.
            self.requests(daemon, &UNFLUSHED).await;
            self.requests(daemon, &UNFLUSHED).await;
            self.hear_of_losses().await;
            self.count(Event::EndedInTrouble);
            return true;
        }
        if fault == Some(Fault::Shrunk) {
            self.see_that_it_is_shrunk(daemon).await;
        }
        if let Some(Fault::Unlinked(how)) = fault {
            self.see_that_it_is_unlinked(daemon, how).await;
            self.tell_its_place(daemon, how).await;
        }
        self.mend();
        if matches!(fault, Some(Fault::Unlinked(_))) {
            self.host.world.clock().sleep(SEEN_MAX).await; // It is looked at again.
        }
        if fault == Some(Fault::Stalls) {
            // Arrays are made equal by requests that no client waits for: those that stall have ended, too, then.
            self.host.world.clock().sleep(FaultPlan::STALL).await;
        }
        self.bring_back(daemon).await;
        self.become_whole(daemon).await;
        false
    }

    /// Gives a command to the group in trouble (HISTORY11): whether it was carried out is known once the disk is sound again, unless it
    /// has succeeded.
    async fn command_in_trouble(&self, daemon: &Daemon, trouble: &Trouble) {
        let models = self.models.borrow().clone();
        let [before] = models.as_slice() else { return };
        let part = before.part(&trouble.group, true);
        let verb = self.pick(&part);
        // Lists and contents do not tell whether something is backed by an origin still.
        let is_unseen = matches!(verb, Verb::Flatten { .. } | Verb::CommitImage { .. });
        if is_unseen || verb.makes_what_is_in(before) {
            return;
        }
        self.disconnect(&part).await;
        let after = verb.apply(before);
        self.models.replace(vec![before.clone(), after.clone()]);
        let clock = self.host.world.clock();
        let command = timeout(&clock, ANSWER_MAX, verb.clone().issue(daemon));
        let answer = self.beside_requests(daemon, &verb, (before, &after), command).await;
        super::log(format_args!("{verb:?} in trouble: {answer:?}"));
        let answer = answer.unwrap_or_else(|| panic!("HISTORY11: {verb:?} is not answered"));
        count(&self.counts.commands);
        match answer {
            Ok(None) => {
                self.models.replace(vec![after]);
                if let (Verb::RenameGroup { to, .. }, Some(trouble)) =
                    (verb, self.trouble.borrow_mut().as_mut())
                {
                    trouble.group = to;
                }
            }
            Ok(Some(_)) => {}
            Err(_) => count(&self.counts.refused),
        }
    }

    /// A disk that is gone is removed from its group, if nothing is on it; when it comes back it is no disk of it any more.
    pub(super) async fn give_up(&self, daemon: &Daemon, trouble: &Trouble) {
        let models = self.models.borrow().clone();
        let [before] = models.as_slice() else { return };
        let mut after = before.clone();
        after.groups.entry(trouble.group.clone()).or_default().remove(&trouble.path);
        let _ = daemon.scan(Vec::new()).await;
        self.models.replace(vec![before.clone(), after.clone()]);
        let given_up = daemon.reduce_missing(trouble.group.clone()).await;
        super::log(format_args!("vg reduce --missing {}: {given_up:?}", trouble.group));
        if given_up.is_ok() {
            self.given_up.borrow_mut().push(trouble.path.clone());
        }
        self.models.replace(vec![if given_up.is_ok() { after } else { before.clone() }]);
    }

    /// HISTORY14: the status says that a disk of a group is out of use.
    async fn see_that_it_is_shrunk(&self, daemon: &Daemon) {
        self.host.world.clock().sleep(SEEN_MAX).await;
        let trouble = self.trouble.borrow().clone();
        let is_disk = |trouble: &Trouble| {
            self.models
                .borrow()
                .iter()
                .all(|model| model.groups.values().any(|disks| disks.contains(&trouble.path)))
        };
        if trouble.as_ref().is_some_and(is_disk) {
            assert!(!daemon.attention().await.is_empty(), "HISTORY14: {trouble:?}");
        }
    }

    /// HISTORY15: the status names the disk or the image.
    async fn see_that_it_is_unlinked(&self, daemon: &Daemon, how: Unlinked) {
        self.host.world.clock().sleep(SEEN_MAX).await;
        let Some(trouble) = self.trouble.borrow().clone() else { return };
        let is_deleted = how == Unlinked::Deleted;
        let image = if is_deleted { ProblemKind::ImageDeleted } else { ProblemKind::ImageMoved };
        let says = |problem: &Problem| {
            (problem.kind == ProblemKind::DiskUnlinked && problem.name == trouble.path)
                || (problem.kind == image && problem.message.contains(&trouble.path))
        };
        let problems = daemon.attention().await;
        assert!(problems.iter().any(says), "HISTORY15: {trouble:?}: {problems:?}");
    }

    /// The daemon is told where a disk is that was renamed, now and then; else it is put back.
    async fn tell_its_place(&self, daemon: &Daemon, how: Unlinked) {
        let Some(trouble) = self.trouble.borrow().clone() else { return };
        let is_disk = |model: &model::Model| model.groups.values().any(|disks| disks.contains(&trouble.path));
        let is_told = how != Unlinked::Deleted && self.models.borrow().iter().all(is_disk);
        if !is_told || self.random.borrow_mut().chance(1, 2) {
            return;
        }
        let new = trouble.new_path();
        let scanned = daemon.scan(vec![new.clone()]).await;
        super::log(format_args!("pv scan {new}: {scanned:?}"));
        assert_eq!(scanned, Ok(()), "HISTORY15");
        self.models.borrow_mut().iter_mut().for_each(|model| model.rename_disk(&trouble.path, &new));
        self.trouble.take();
    }

    /// The file has its name again.
    fn put_back(&self, trouble: &Trouble, how: Unlinked) {
        let files = &self.host.files;
        match how {
            Unlinked::Deleted => files.restore(Path::new(&trouble.path)),
            Unlinked::Renamed | Unlinked::Taken => files.rename(&trouble.new_path(), &trouble.path),
        }
    }

    /// The disk is sound again.
    fn mend(&self) {
        if let Some(trouble) = self.trouble.take() {
            if let Fault::Unlinked(how) = trouble.fault {
                return self.put_back(&trouble, how);
            }
            self.host.set_faults(&trouble.path, FaultPlan::default());
            self.host.set_gone(&trouble.path, false);
        }
    }

    /// Scans until all that the sound disk belongs to is served again (HISTORY5).
    async fn bring_back(&self, daemon: &Daemon) {
        let clock = self.host.world.clock();
        let limit = clock.now().after(BACK_MAX);
        // Whoever plugs in again what was removed shows it to the daemon, and wipes its label: alone it would be its group.
        let given_up = self.given_up.take();
        if !given_up.is_empty() {
            let _ = daemon.scan(given_up).await;
        }
        loop {
            let scanned = daemon.scan(Vec::new()).await;
            let shown = daemon.lists().await;
            let is_back = |shown: &model::Lists| {
                self.models.borrow().iter().any(|model| model.lists_as(shown) == *shown)
            };
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
            if self.kind == Kind::Arrays {
                // Disks that were exchanged are remembered where they are now: one that was away then is found by its path.
                let _ = daemon.scan(models[0].groups.values().flatten().cloned().collect()).await;
            }
            daemon.take_back_stale_disks(&models).await;
            clock.sleep(LOOK).await;
        }
        for client in self.hear_of_losses().await {
            client.flush().await.expect("HISTORY5");
        }
    }

    /// Clients that stayed connected hear of what may be lost, with the next flush of each, before they read again.
    pub(super) async fn hear_of_losses(&self) -> Vec<Client> {
        let clients: Vec<Client> = self.clients.borrow().values().cloned().collect();
        for client in &clients {
            let _ = client.flush().await;
        }
        clients
    }

    /// A crash is over. A disk that is gone may still be; the state directory may be lost.
    pub(super) fn after_crash(&self) {
        // A member of an array that missed writes is there more often than not when the next life begins.
        let stays = self.random.borrow_mut().chance(1, if self.kind == Kind::Arrays { 4 } else { 2 });
        if !self.trouble.borrow().as_ref().is_some_and(|trouble| trouble.fault == Fault::Gone && stays) {
            self.mend();
        }
        self.trouble.borrow_mut().iter_mut().for_each(|trouble| trouble.survivors.clear());
        self.exchange_disks();
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

    /// Two disks are found in each other's places, now and then.
    fn exchange_disks(&self) {
        let mut random = self.random.borrow_mut();
        let mut models = self.models.borrow_mut();
        // A disk that was perhaps taken out of its group stays where it is: the model knows disks by their paths.
        let is_quiet = self.trouble.borrow().is_none() && models.len() == 1;
        if self.kind != Kind::Arrays || !is_quiet || !random.chance(1, 4) {
            return;
        }
        let disks: Vec<&String> = models[0].groups.values().flatten().collect();
        if disks.len() > 1 {
            let (one, other) = ((*random.pick(&disks)).clone(), (*random.pick(&disks)).clone());
            self.host.files.exchange(Path::new(&one), Path::new(&other));
            super::log(format_args!("{one} and {other} are exchanged"));
            models[0].exchange(&one, &other);
            self.count(Event::Exchanged);
        }
    }

    /// A daemon that has lost its state directory is shown its disks, and a user agrees to the images that these name.
    pub(super) async fn find_disks(&self, daemon: &Daemon) {
        let remembered = self.host.files.remembered().disks;
        let is_known = |path: &String| remembered.iter().any(|disk| disk.path == Path::new(path));
        let mut paths = self.host.files.disks();
        if !paths.iter().all(is_known) || self.is_new_host.get() {
            // A file that was to become a disk when the crash came has no label, but may have what is behind one.
            while let Err(failure) = daemon.scan_and_trust(paths.clone()).await {
                let is_known = matches!(failure.code, Code::NotPhysicalVolume | Code::DisksRefused);
                assert!(is_known, "{failure:?}");
                let count = paths.len();
                let reasons: Vec<&str> = failure.message.split("; ").collect();
                paths.retain(|path| {
                    let says =
                        |words| reasons.iter().any(|said| said.starts_with(&format!("{path} {words}")));
                    !says("is no physical volume") && !says("has lost its label")
                });
                assert!(paths.len() < count, "{failure:?}");
            }
            self.is_new_host.set(false);
        }
    }
}
