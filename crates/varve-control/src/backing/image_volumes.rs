//! Volumes that lie in disk images: made, opened, grown.
//!
//! Invariants:
//! - IMAGEVOL1. What a volume's image holds is as large as the group's text says, or the volume is not used: other
//!   programs may have given it another size.
//! - IMAGEVOL2. The image of a volume is opened for nothing else, and no physical volume is one.

use super::images::{conversion, not_agreed};
use super::layers::OpenedImage;
use crate::Control;
use crate::commands::array_policy;
use crate::commands::volumes::refuse_disks;
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::change::shown;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Failure, Layout as ShownLayout, LogicalVolume as ShownVolume, Resize, VolumeCreate,
};
use varve_block::host::OpenError;
use varve_block::{MIB, align_down};
use varve_target::qcow2::room;
use varve_vg::Change;
use varve_vg::disks::identity::label_of;
use varve_vg::model::{ImageFormat, Layout, LogicalVolume, Role, StorePolicy};
use varve_vg::names::VolumeName;
use varve_vg::plan::{DiskChoice, Layout as Asked};
use varve_vg::size::{SizeArgument, format_size};
use varve_volume::fault;
use varve_volume::layers::Image;

impl Control {
    /// Makes a volume of an image.
    pub(crate) async fn create_in_image(
        &self,
        request: &VolumeCreate,
        name: &VolumeName,
        path: &str,
    ) -> Result<Changed<ShownVolume>, Failure> {
        refuse_disks(&request.on)?;
        array_policy::refuse_words(&request.array_policy)?;
        if !request.size.is_empty() {
            let message = "a volume in an image is as large as the image";
            return Err(
                Failure::new(Code::Usage, message).help("leave --size out; varve lv extend changes it")
            );
        }
        if request.layout.is_some_and(|layout| layout != ShownLayout::Linear) {
            let message = "a volume in an image lies on no disk of its group, in no other layout";
            return Err(Failure::new(Code::Usage, message).help("leave --type out"));
        }
        let format = self.named_format(request, path)?;
        let group = self.find_group(&name.group)?;
        self.refuse_thin_name(group, &name.volume)?;
        let opened = self.open_image_to_write(Path::new(path), format).await;
        let opened = opened.map_err(|failure| super::images::unopened(failure, path))?;
        let fits = self.refuse_unfit(&opened, path, request.format.is_none()).await;
        fits.map_err(|failure| super::images::unopened(failure, path))?;
        let size = SizeArgument::bytes(opened.disk_bytes());
        drop(opened); // It is opened again when it is valid (IMAGEVOL2).
        let change = Change::CreateVolume {
            name: name.volume.clone(),
            id: self.new_id(),
            size,
            role: Role::Volume,
            layout: Asked::Image { path: path.to_owned(), format },
            policy: StorePolicy::default(),
            disks: DiskChoice::default(),
        };
        let commits = self.commits(group).await;
        let words = format!("lv create {name} --image {path} --format {}", format.name());
        let planned = commits.plan(group, change, &words)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan makes this volume");
        self.agree_to_image(group, path).await?;
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.activate_new(group, &volume).await?;
        self.show_volume(&request.name).await.map(Changed::Done)
    }

    /// How an image is said to be read.
    fn named_format(&self, request: &VolumeCreate, path: &str) -> Result<ImageFormat, Failure> {
        refuse_relative(path)?;
        let format = request.format.as_deref().map_or(Some(ImageFormat::Raw), ImageFormat::named);
        format.ok_or_else(|| {
            let message = format!("{path}: only raw and qcow2 images can be volumes");
            Failure::new(Code::BadOrigin, message).help(conversion(path))
        })
    }

    /// IMAGEVOL2, and IMAGES3 of `images.rs`: refuses what is no image, or hardly meant to be a raw one.
    pub(crate) async fn refuse_unfit(
        &self,
        opened: &OpenedImage,
        path: &str,
        is_unsaid: bool,
    ) -> Result<(), Failure> {
        if opened.header.is_some() {
            opened.image.device(&self.context).await?; // All that is below it can be read, too.
            return self.refuse_unwritable(opened, path).await;
        }
        let device = self.context.disk(&opened.image.top.file);
        if label_of(&device, &self.context.arena()).await.is_some() {
            let message = format!("{path} is a physical volume, or was one");
            return Err(Failure::new(Code::IsPhysicalVolume, message).help(format!("varve pv scan {path}")));
        }
        match self.format_of(&opened.image.top).await? {
            Some(looks_like) if is_unsaid => {
                let message = format!("{path} begins as a {looks_like}, and is not said to be one");
                let help = format!("{}; if it is meant byte by byte: --format raw", conversion(path));
                Err(Failure::new(Code::BadOrigin, message).help(help))
            }
            _ => self.refuse_unwritable(opened, path).await,
        }
    }

    /// The image in which a volume is, open, if it is in one (IMAGES4 of `images.rs`, IMAGEVOL1).
    pub(crate) async fn image_for(
        &self,
        group: Uuid,
        volume: &LogicalVolume,
    ) -> Result<Option<Image>, Failure> {
        let Layout::Image { path, bytes, .. } = &volume.layout else { return Ok(None) };
        if self.jobs.committing.borrow().contains_key(&volume.id) {
            return self.image_and_base(group, volume).await.map(Some);
        }
        let name = self.subject(volume.id);
        let opened = self.open_image_of(group, volume).await?;
        let now = opened.disk_bytes();
        if now != *bytes {
            return Err(other_size(&name, path, *bytes, now));
        }
        self.take_up_image(volume).await?;
        self.prepare(opened).await.map(Some)
    }

    /// Refuses an image that cannot be written as it is, before anything of it is changed.
    pub(crate) async fn refuse_unwritable(&self, opened: &OpenedImage, path: &str) -> Result<(), Failure> {
        match &opened.header {
            Some(_) => opened.image.top.check_to_write(&self.context).await,
            None if opened.image.top.file.size() == opened.length => Ok(()),
            None => {
                let message =
                    format!("{path} has {} bytes, which are no whole blocks of 4096", opened.length);
                let help = format!("truncate -s %4096 {path} makes them whole");
                Err(Failure::new(Code::VolumeUnusable, message).help(help))
            }
        }
    }

    async fn open_image_of(&self, group: Uuid, volume: &LogicalVolume) -> Result<OpenedImage, Failure> {
        let Layout::Image { path, format, .. } = &volume.layout else {
            unreachable!("only a volume in an image is asked for it");
        };
        self.told_of_image(group, path)?;
        let opened = self.open_image_to_write(Path::new(path), *format).await;
        let opened = opened.map_err(|failure| lost(failure, path, &self.subject(volume.id)))?;
        self.refuse_unwritable(&opened, path).await?;
        opened.image.check_below(&self.context).await?;
        Ok(opened)
    }

    /// IMAGES4 of `images.rs`, before the image of a volume is opened.
    pub(crate) fn told_of_image(&self, group: Uuid, path: &str) -> Result<(), Failure> {
        if !self.is_agreed(group, path) {
            return Err(not_agreed(path));
        }
        let name = self.with_group(group, |known| known.group.name().to_owned())?;
        self.event(path, &format!("opened as an image of group {name}"));
        Ok(())
    }

    /// Makes the file as long as the image may become (IMAGE2 of `shard/images.rs`).
    pub(crate) async fn prepare(&self, opened: OpenedImage) -> Result<Image, Failure> {
        let OpenedImage { mut image, length, header, .. } = opened;
        let Some(header) = header else { return Ok(image) };
        let room = room(&header, length);
        if room > length {
            let file = Arc::clone(&image.top.file);
            let path = file.path().to_owned();
            let grown =
                self.at_path(&path, move |_| make_room(length, room, |to| file.set_length(to))).await?;
            grown.map_err(|error| failures::open(&error))?;
        }
        image.file_end = Some(length);
        Ok(image)
    }

    /// Grows a volume in an image, and the image. One that other programs have made larger is taken as it is.
    pub(crate) async fn extend_image(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        request: &Resize,
    ) -> Result<Changed<ShownVolume>, Failure> {
        self.refuse_if_busy(located.volume.id)?;
        refuse_disks(&request.on)?;
        let size = SizeArgument::parse(&request.size).map_err(|error| failures::bad_size(&error))?;
        let group = located.group;
        let commits = self.commits(group).await;
        let change = Change::ExtendVolume { name: name.volume.clone(), size, disks: DiskChoice::default() };
        let planned = commits.plan(group, change, &format!("lv extend {name} --size {}", request.size))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        let bytes =
            planned.after.lv(&name.volume).map_or(0, |volume| volume.size(planned.after.extent_size()));
        self.set_volume_aside(located, "it is being extended").await;
        let extended = match self.grow_image(group, &located.volume, bytes).await {
            Ok(()) => {
                fault::die_at("image-grown");
                commits.commit(group, planned, Vec::new()).await
            }
            failed => failed,
        };
        drop(commits);
        self.bring_back(located).await?;
        extended?;
        self.resize_exports(name, &self.find_volume(name)?).await;
        self.show_volume(&name.to_string()).await.map(Changed::Done)
    }

    async fn grow_image(&self, group: Uuid, volume: &LogicalVolume, bytes: u64) -> Result<(), Failure> {
        let opened = self.open_image_of(group, volume).await?;
        if opened.disk_bytes() >= bytes { Ok(()) } else { self.grow_opened(opened, bytes).await }
    }

    /// Makes the disk that an image holds as large as `bytes`, while no volume has it open.
    pub(crate) async fn grow_opened(&self, mut opened: OpenedImage, bytes: u64) -> Result<(), Failure> {
        // As much as the larger image may become.
        if let Some(header) = &mut opened.header {
            header.size = bytes;
        }
        let image = self.prepare(opened).await?;
        let grown = image.grow(&self.context, bytes).await;
        grown.map_err(|failure| failure.help("varve image info FILE says what the image is like"))
    }

    /// Releases a volume, and before it all that is backed by it: pools with volumes backed by it or its snapshots, and the
    /// volume whose mapper has it as a device. Requests of their doors wait meanwhile. Whether the volume was closed in order.
    pub(crate) async fn set_volume_aside(&self, located: &LocatedVolume, why: &str) -> bool {
        let (volume, mut is_closed) = (located.volume.id, false);
        if located.unusable.is_some() {
            return false;
        }
        let pools =
            self.pools_over(located.group, slice::from_ref(&located.volume)).await.unwrap_or_default();
        let mapped = self.with_group(located.group, |known| Some(known.group.granted_to(volume)?.id));
        let over = pools.into_iter().map(|(pool, _)| pool).chain(mapped.ok().flatten());
        for id in over.chain([volume]) {
            let Some(home) = self.home_of(id) else { continue };
            let reason = Failure::new(Code::VolumeUnusable, why);
            is_closed = self.close_to_reopen(located.group, id, &home, reason).await;
        }
        is_closed
    }

    /// Takes a volume that was set aside into use again; its doors go on.
    pub(crate) async fn bring_back(&self, located: &LocatedVolume) -> Result<(), Failure> {
        self.converge(located.group).await;
        self.resume_doors().await
    }
}

/// Refuses a path that means one thing here and another there.
pub(crate) fn refuse_relative(path: &str) -> Result<(), Failure> {
    if Path::new(path).is_absolute() {
        return Ok(());
    }
    let message = format!("{path} is not absolute: nobody knows where the daemon would look for it");
    Err(Failure::new(Code::Usage, message))
}

/// Makes a file of `length` bytes as long as `room`, or as long as its file system lets it be.
fn make_room(
    length: u64,
    room: u64,
    set_length: impl Fn(u64) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut wanted = room;
    loop {
        let less = align_down(wanted - wanted / 16, 2 * MIB);
        match set_length(wanted) {
            Err(OpenError::NoSpace(_)) if less > length => wanted = less,
            done => return done,
        }
    }
}

/// The image of a volume holds another size than the group's text says (IMAGEVOL1).
pub(crate) fn other_size(name: &str, path: &str, then: u64, now: u64) -> Failure {
    let (shown_then, shown_now) = (format_size(then), format_size(now));
    let message = format!(
        "the image {path} holds a disk of {shown_now} ({now} bytes), and {name} has {shown_then} ({then} bytes)"
    );
    let help = if now > then {
        format!(
            "if that is meant: varve lv extend {name} --size {now}B; else qemu-img resize --shrink {path} {then}"
        )
    } else {
        format!(
            "if that is meant: varve lv remove {name}, which leaves the image as it is, and varve lv create it again; else \
             qemu-img resize {path} {then}, then varve pv scan"
        )
    };
    Failure::new(Code::VolumeUnusable, message).help(help)
}

/// Why a volume in an image that cannot be opened is not served.
fn lost(failure: Failure, path: &str, name: &str) -> Failure {
    let help = match failure.code {
        Code::DiskInUse => format!("end what uses {path} (a virtual machine?), then varve pv scan"),
        Code::ImageNotTrusted => return failure,
        Code::DiskNotFound => {
            format!(
                "bring {path} back, then varve pv scan; if it was moved: varve lv change {name} --image PATH"
            )
        }
        Code::VolumeUnusable => format!("{}; then varve pv scan", failure.help),
        _ => format!("mend {path}, then varve pv scan"),
    };
    let message = format!("the image in which it lies cannot be used: {}", failure.message);
    Failure::new(Code::VolumeUnusable, message).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_file_is_made_as_long_as_its_file_system_allows_and_no_shorter_than_it_is() {
        let longest = |most: u64, length| {
            let now = Cell::new(length);
            let set = |to| {
                if to > most {
                    return Err(OpenError::NoSpace("/image".into()));
                }
                now.set(to);
                Ok(())
            };
            make_room(length, 64 << 40, set).is_ok().then(|| now.get())
        };
        assert_eq!(longest(u64::MAX, 1), Some(64 << 40));
        let most = (16 << 40) - 4096;
        let found = longest(most, 1).expect("there is a length");
        assert!(found <= most && found > most / 16 * 15, "{found}");
        assert_eq!(longest(1 << 20, 1 << 40), None, "it is not cut");
    }
}
