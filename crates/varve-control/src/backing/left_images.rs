//! Images of volumes, while these are not in use: other programs may write them then; and images that were moved, to which their volumes
//! are led.
//!
//! Invariants:
//! - LEFT1. What the snapshots of a volume share with the image is where it was when the volume was released. An image that was
//!   written since is not used. After a crash, or without its state directory, the daemon does not know, and uses it.
//! - LEFT2. What is remembered of an image is forgotten before the daemon writes it: durably if the volume has snapshots, else as soon as the
//!   state directory takes it.
//! - MOVEDIMAGE1. A volume that is in use is led to another name of the file that it has open, and to no other file.
//! - MOVEDIMAGE2. One that is not is led to a file that holds a disk as large, and was last written when the volume was released. Where these
//!   times differ, or the latter is not known, a person decides; but past snapshots of the volume nothing is decided (LEFT1).
//! - MOVEDIMAGE3. What is below the image is found from the new place, too, before anything is changed.

use super::image_volumes::{other_size, refuse_relative};
use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::change::shown;
use std::path::Path;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, LogicalVolume as ShownVolume, VolumeChange};
use varve_format::format_exact_date;
use varve_vg::Change;
use varve_vg::model::{ImageFormat, Layout, LogicalVolume};
use varve_vg::names::VolumeName;

/// The image of a volume.
fn image_of(volume: &LogicalVolume) -> Option<&str> {
    match &volume.layout {
        Layout::Image { path, .. } => Some(path),
        _ => None,
    }
}

/// The image of a volume, if the volume has snapshots.
fn shared_image(volume: &LogicalVolume) -> Option<&str> {
    image_of(volume).filter(|_| volume.stores().next().is_some())
}

/// How a file stands to the image that a volume was released from.
enum Left {
    /// It was last written then.
    Then,
    /// It was last written at another time, in nanoseconds since 1970.
    Otherwise { left: u64, now: u64 },
    /// It was last written at another time, and the volume has snapshots (LEFT1).
    Shared(Failure),
    /// One of the times is not known.
    Unknown,
}

impl Control {
    /// LEFT1, MOVEDIMAGE2: remembers when the images of released volumes were last written.
    pub(crate) async fn remember_left(&self, closed: &[Uuid]) {
        let images: Vec<(Uuid, String)> = {
            let groups = self.groups.known.borrow();
            let volumes = groups.values().flat_map(|known| known.group.logical_volumes());
            let closed = volumes.filter(|volume| closed.contains(&volume.id));
            closed.filter_map(|volume| Some((volume.id, image_of(volume)?.to_owned()))).collect()
        };
        for (volume, path) in &images {
            if let Ok(Some(written)) = self.written_at(path).await {
                self.memory.remembered.borrow_mut().left_images.insert(*volume, written);
            }
        }
        if !images.is_empty() {
            self.save_or_warn().await;
        }
    }

    /// LEFT1, LEFT2: the image of a volume is about to be used.
    pub(crate) async fn take_up_image(&self, volume: &LogicalVolume) -> Result<(), Failure> {
        let Some(left) = self.memory.remembered.borrow().left_images.get(&volume.id).copied() else {
            return Ok(());
        };
        let Some(path) = shared_image(volume) else {
            self.forget_left(volume.id);
            self.save_or_warn().await;
            return Ok(());
        };
        match self.written_at(path).await? {
            Some(now) if now != left => return Err(written_since(path, left, now)),
            _ => {}
        }
        self.forget_left(volume.id);
        self.save().await
    }

    /// How the file at `path` stands to the image that `volume` was released from last.
    async fn left_at(&self, volume: &LogicalVolume, path: &str) -> Result<Left, Failure> {
        let left = self.memory.remembered.borrow().left_images.get(&volume.id).copied();
        Ok(match (left, self.written_at(path).await?) {
            (Some(left), Some(now)) if left == now => Left::Then,
            (Some(left), Some(now)) if shared_image(volume).is_some() => {
                Left::Shared(written_since(path, left, now))
            }
            (Some(left), Some(now)) => Left::Otherwise { left, now },
            _ => Left::Unknown,
        })
    }

    /// A volume is gone, or its image is in use.
    pub(crate) fn forget_left(&self, volume: Uuid) {
        self.memory.remembered.borrow_mut().left_images.remove(&volume);
    }

    async fn written_at(&self, path: &str) -> Result<Option<u64>, Failure> {
        let place = Path::new(path).to_owned();
        self.at_path(Path::new(path), move |files| files.modified_ns(&place)).await
    }

    /// Leads a volume to the place `to`, at which its image is now.
    pub(crate) async fn follow_image(
        &self,
        name: &VolumeName,
        to: &str,
        request: &VolumeChange,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let located = self.find_any_volume(name)?;
        let Layout::Image { path, format, bytes } = &located.volume.layout else {
            let message = format!("{name} does not lie in an image");
            return Err(Failure::new(Code::Usage, message).help(format!("varve lv show {name}")));
        };
        refuse_relative(to)?;
        if path == to {
            let message = format!("{name} is led to {to} already");
            return Err(Failure::new(Code::Usage, message).help(format!("varve lv show {name}")));
        }
        self.refuse_if_busy(located.volume.id)?;
        match located.unusable {
            None => self.check_open(name, &located, Path::new(to)).await?,
            Some(_) => self.check_closed(name, &located, to, (*format, *bytes), request.force).await?,
        }
        let (volume, group) = (located.volume.name.clone(), located.group);
        let change = Change::SetImage { volume, path: to.to_owned(), format: *format };
        let commits = self.commits(group).await;
        let planned = commits.plan(group, change, &format!("lv change {name} --image {to}"))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        self.agree_to_image(group, to).await?;
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        if located.unusable.is_some() {
            self.bring_back(&located).await?;
        }
        self.show_volume(&name.to_string()).await.map(Changed::Done)
    }

    /// Refuses for a volume in use what is not the file that it has open (MOVEDIMAGE1, MOVEDIMAGE3).
    async fn check_open(&self, name: &VolumeName, located: &LocatedVolume, to: &Path) -> Result<(), Failure> {
        let id = located.volume.id;
        let open = located.home.image_files().await.map_err(failures::gone)?;
        let open = open.into_iter().find(|(volume, _)| *volume == id).map(|(_, file)| file.medium());
        let place = to.to_owned();
        let found = self.at_path(to, move |files| files.medium(&place)).await?;
        let found = found.map_err(|error| {
            Failure::new(Code::DiskNotFound, format!("{}: {error}", to.display()))
                .help("name where it is now")
        })?;
        if open.is_none_or(|open| !open.overlaps(&found)) {
            let to = to.display();
            let message = format!("{name} is in use, and {to} is another file than its image");
            return Err(Failure::new(Code::VolumeBusy, message).help(format!(
                "varve lv deactivate {name}, copy its image, then varve lv change {name} --image {to}"
            )));
        }
        let below = located.home.volume(id).image_below().await.map_err(failures::gone)?;
        match below.and_then(|below| below.backing) {
            Some(backing) => self.backing_file(to, &backing).await.map(drop),
            None => Ok(()),
        }
    }

    /// Refuses for a volume out of use what was written since it was released (MOVEDIMAGE2, MOVEDIMAGE3).
    async fn check_closed(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        to: &str,
        (format, bytes): (ImageFormat, u64),
        is_forced: bool,
    ) -> Result<(), Failure> {
        let opened = self.open_image_to_write(Path::new(to), format).await;
        let opened = opened.map_err(|failure| super::images::unopened(failure, to))?;
        let fits = self.refuse_unfit(&opened, to, false).await;
        fits.map_err(|failure| super::images::unopened(failure, to))?;
        if opened.disk_bytes() != bytes {
            return Err(other_size(&name.to_string(), to, bytes, opened.disk_bytes()));
        }
        let why = match self.left_at(&located.volume, to).await? {
            Left::Then => return Ok(()),
            Left::Shared(failure) => return Err(failure),
            Left::Unknown => format!("it is not known when {name} was released from its image last"),
            Left::Otherwise { left, now } => format!(
                "it was written at {}, and the image of {name} at {} when that was released",
                format_exact_date(now),
                format_exact_date(left)
            ),
        };
        if is_forced {
            return Ok(());
        }
        Err(Failure::new(Code::OtherImage, format!("{to} may be another image: {why}")).help(format!(
            "look at it: varve image info {to}; if it is the image of {name}: varve lv change {name} --image {to} --force"
        )))
    }
}

fn written_since(path: &str, left: u64, now: u64) -> Failure {
    let (left, now) = (format_exact_date(left), format_exact_date(now));
    let message = format!(
        "the image {path} was written at {now}, past the snapshots of its volume, which was released at {left}"
    );
    Failure::new(Code::VolumeUnusable, message).help(format!(
        "bring {path} back as it was, then varve pv scan; or give the snapshots up: touch -d {left} {path}, varve pv scan, then \
         varve snap remove"
    ))
}
