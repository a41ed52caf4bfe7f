//! What is looked at again and again: what is not as it should be, so that it is reported when it begins and when it ends; files below
//! disks and images; and what can be tried again.
//!
//! Invariants:
//! - WATCH2. A file system that does not answer keeps one look waiting, and nothing else.
//! - WATCH3. Looks take a small share of the time, however much there is to look at.

use crate::Control;
use crate::exports::doors;
use crate::injected_bug::{self, InjectedBug};
use crate::jobs::rebuilds;
use crate::schedules::Schedules;
use crate::trash::Trash;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::Problem;
use varve_block::host::FileLook;
use varve_volume::world::DiskRef;

/// How often files, sockets and mounts are looked at, and what is out of order is tried again.
const FILES: Duration = Duration::from_secs(2);
/// How long a look at everything may take.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// After a look follows a rest of so many times its length, or a second (WATCH3).
const REST: u32 = 20;

/// Looks at everything, if it is time for that.
pub(crate) async fn look(control: &Control) {
    let clock = control.context.clock();
    let (begun, (everything, files)) = (clock.now(), control.watch.next.get());
    if begun < everything || control.life.stopping.get() {
        return;
    }
    let mut next_files = files;
    if begun >= files {
        next_files = begun.after(FILES);
        look_at_files(control).await;
        doors::watch(control);
        if control.watch.unsaved.borrow().is_some() {
            control.save_or_warn().await;
        }
        control.memory.archive.retry();
    }
    Schedules::of(control).look();
    Trash::of(control).look();
    count(control).await;
    rebuilds::resume(control).await;
    if let Some(Ok(problems)) = control.until(begun.after(LOOK_MAX), control.problems()).await {
        tell(control, problems);
    }
    let now = clock.now();
    let next = now.after(now.since(begun) * REST);
    assert!(next >= now, "WATCH3: what took long is looked at later");
    control.watch.next.set((next, next_files));
}

/// Reports what has begun and what has ended since the last look (WATCH1).
fn tell(control: &Control, problems: Vec<Problem>) {
    let (begun, ended) = control.watch.exchange(problems);
    for Problem { name, message, help, .. } in begun {
        control.warn(&name, &format!("{message}: {help}"));
    }
    for Problem { name, message, .. } in ended {
        control.event(&name, &format!("no longer: {message}"));
    }
}

/// All files of disks and images that are open here.
async fn open_files(control: &Control) -> Vec<(PathBuf, Option<Uuid>, DiskRef)> {
    let own = |(path, known): (&PathBuf, &crate::host::known_disk::KnownDisk)| {
        (path.clone(), None, DiskRef::clone(&known.file))
    };
    let mut files: Vec<_> = control.disks.known.borrow().iter().map(own).collect();
    let deadline = control.context.clock().now().after(crate::PROBE);
    let mut seen: BTreeSet<PathBuf> = files.iter().map(|(path, ..)| path.clone()).collect();
    for shard in &control.shards {
        if let Some(Ok(images)) = control.until(deadline, shard.image_files()).await {
            let images = images.into_iter().map(|(id, file)| (file.path().to_owned(), Some(id), file));
            // Many images may be over one, which each of them has open; of these one that is out of use comes before others.
            let (cut_off, whole): (Vec<_>, Vec<_>) = images.partition(|(.., file)| file.state().is_cut_off());
            let new = cut_off.into_iter().chain(whole).filter(|(path, ..)| seen.insert(path.clone()));
            files.extend(new);
        }
    }
    files
}

/// Counts what requests to files have met.
pub(crate) async fn count(control: &Control) {
    let files = open_files(control).await;
    control.watch.count(&files, control.context.clock().now());
}

async fn look_at_files(control: &Control) {
    for (path, _, file) in open_files(control).await {
        let learn = move |control: &Control, path: &Path, look: FileLook| {
            if injected_bug::has(InjectedBug::ForgetLooks) {
                return;
            }
            control.watch.learn(path, look);
            if let Some(known) = control.disks.known.borrow_mut().get_mut(path) {
                known.placement = look.placement;
            }
        };
        let place = path.clone();
        control.look_at(&path, move |_| file.look(&place), learn);
    }
}
