//! Disk images that are origins of thin volumes: files or disks of the host that are read, and must not change. Those in which
//! volumes lie are in `image_volumes.rs`.
//!
//! Invariants:
//! - IMAGES1. An image stands in the group's text from before a volume is backed by it, until none is, or would be after a crash.
//! - IMAGES2. Nothing is read from an image that is not what it was when a volume was first backed by it: as long, and not
//!   written since, as far as its file system says.
//! - IMAGES3. What an image holds does not decide how it is read. It is raw unless it was said to be qcow2; what begins as one of
//!   another format is refused unless its format was said.
//! - IMAGES4. Nothing of the host is opened because a group's text names it: a user at this host has named it for that group,
//!   or has agreed to it. Every opening is an event. The sockets of mappers are agreed to in the same way.

use super::mappers::named_mappers;
use crate::Control;
use crate::failures;
use crate::group::known_group::KnownGroup;
use crate::group::origins::Base;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use uuid::Uuid;
use varve_api::{Code, Failure, VolumeCreate};
use varve_format::find_image_format;
use varve_format::thin::PART_SIZE;
use varve_target::thin::{Backing, Origin};
use varve_vg::Change;
use varve_vg::model::{Image as Entry, ImageFormat, Layout};
use varve_vg::size::format_size;
use varve_volume::content::origins::Below;
use varve_volume::fault;
use varve_volume::layers::{Image, Layer};

/// How the address of a mapper begins, and no absolute path.
const MAPPER_PREFIX: &str = "unix:";

/// What a volume is to be made over.
pub(crate) enum Chosen {
    /// A snapshot, or a read-only volume.
    Stored(Box<Base>),
    /// A disk image, whether the group's text does not have it yet, and the bytes of the disk that it holds.
    Image(Box<Image>, Entry, bool, u64),
}

impl Chosen {
    /// How much of it there is, in whole parts of a thin volume.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Chosen::Stored(base) => base.origin.bytes,
            Chosen::Image(.., bytes) => bytes.next_multiple_of(PART_SIZE),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chosen::Stored(base) => write!(form, "{}, which is kept then", base.name),
            Chosen::Image(_, entry, ..) => write!(form, "{}, which must not change then", entry.shown()),
        }
    }
}

impl KnownGroup {
    /// The paths of all images that its text names.
    fn image_paths(&self) -> impl Iterator<Item = &str> {
        let read = self.group.images().iter().map(|image| image.path.as_str());
        read.chain(self.group.logical_volumes().iter().filter_map(|volume| match &volume.layout {
            Layout::Image { path, .. } => Some(path.as_str()),
            _ => None,
        }))
    }

    /// The image that is known by `id`.
    pub(crate) fn image(&self, id: Uuid) -> Option<&Entry> {
        self.group.images().iter().find(|image| image.id == id)
    }
}

impl Control {
    /// The origin that a request names for its volume.
    pub(crate) async fn find_below(
        &self,
        request: &VolumeCreate,
        group: Uuid,
    ) -> Result<Option<Chosen>, Failure> {
        match (&request.origin, &request.image) {
            (Some(_), Some(_)) => {
                Err(Failure::new(Code::Usage, "a volume is backed by a snapshot or by an image, not by both"))
            }
            (Some(text), None) => {
                let base = self.find_base(text, group).await?;
                Ok(Some(Chosen::Stored(Box::new(base))))
            }
            (None, Some(path)) => {
                if !request.dry_run {
                    self.reconcile_origins(group).await; // A file that was replaced may be one that is not needed any more.
                }
                self.find_image(path, request, group).await.map(Some)
            }
            (None, None) if request.format.is_some() || request.image_snapshot.is_some() => {
                Err(Failure::new(Code::Usage, "--format and --image-snapshot are those of an --image"))
            }
            (None, None) => Ok(None),
        }
    }

    /// BELOW1 of `origins.rs` and IMAGES1: sees to it that what was chosen stays as it is, and says how a volume of `bytes` bytes
    /// is backed by it.
    pub(crate) async fn protect_below(
        &self,
        chosen: Chosen,
        bytes: u64,
        group: Uuid,
    ) -> Result<(Origin, Below), Failure> {
        let shown = chosen.bytes().min(bytes);
        match chosen {
            Chosen::Stored(base) => {
                self.hold_base(&base).await?;
                fault::die_at("origin-noted");
                Ok((Origin { bytes: shown, ..base.origin }, Below::Stored(base.place)))
            }
            Chosen::Image(image, entry, is_new, _) => {
                let origin = Origin { backing: Backing::Image { id: entry.id }, bytes: shown };
                self.agree_to_image(group, &entry.path).await?;
                if is_new {
                    let words = format!("a volume is backed by {}", entry.path);
                    let change = Change::AddImage { image: entry };
                    self.commits(group).await.make(group, change, &words).await?;
                }
                Ok((origin, Below::Image(*image)))
            }
        }
    }

    /// The image at `path`, if a volume can be backed by it.
    async fn find_image(&self, path: &str, request: &VolumeCreate, group: Uuid) -> Result<Chosen, Failure> {
        let (format, snapshot) = (request.format.as_deref(), request.image_snapshot.as_deref());
        let Some(read_as) = format.map_or(Some(ImageFormat::Raw), ImageFormat::named) else {
            let message = format!("{path}: only raw and qcow2 images can be an origin");
            return Err(Failure::new(Code::BadOrigin, message).help(conversion(path)));
        };
        if !Path::new(path).is_absolute() {
            let message = format!("{path} is not absolute: nobody knows where the daemon would look for it");
            return Err(Failure::new(Code::Usage, message));
        }
        if snapshot.is_some() && read_as == ImageFormat::Raw {
            let message = format!("{path}: only qcow2 images have snapshots in them");
            return Err(Failure::new(Code::BadOrigin, message).help("--format qcow2 if it is one"));
        }
        let is_it = |image: &&Entry| image.path == path && image.snapshot.as_deref() == snapshot;
        let known = self.with_group(group, |known| known.group.images().iter().find(is_it).cloned())?;
        let asked = Entry {
            id: known.as_ref().map_or_else(|| self.new_id(), |known| known.id),
            path: path.to_owned(),
            bytes: 0,
            format: read_as,
            snapshot: snapshot.map(ToOwned::to_owned),
            modified_ns: None,
        };
        let opened = self.open_image(group, asked).await;
        let (image, found) = opened.map_err(|failure| unopened(failure, path))?;
        if let Some(known) = &known {
            refuse_changed(known, &found).map_err(|failure| failure.with_code(Code::BadOrigin))?;
        }
        if format.is_none()
            && let Some(looks_like) = self.format_of(&image.top).await?
        {
            let message = format!("{path} begins as a {looks_like}, and is not said to be one");
            let help = format!("{}; if it is meant byte by byte: --format raw", conversion(path));
            return Err(Failure::new(Code::BadOrigin, message).help(help));
        }
        let bytes = match read_as {
            ImageFormat::Raw => found.bytes,
            ImageFormat::Qcow2 => {
                let device = image.device(&self.context).await;
                device.map_err(|failure| failure.with_code(Code::BadOrigin))?.shape().size
            }
        };
        Ok(Chosen::Image(Box::new(image), found, known.is_none(), bytes))
    }

    /// Opens the image that `entry` names, and says what it is like now.
    async fn open_image(&self, group: Uuid, entry: Entry) -> Result<(Image, Entry), Failure> {
        let name = self.with_group(group, |known| known.group.name().to_owned())?;
        self.event(&entry.path, &format!("opened as an image of group {name}")); // IMAGES4
        let opened = self.open_image_to_read(Path::new(&entry.path), entry.format).await?;
        let image = Image { snapshot: entry.snapshot.clone(), ..opened.image };
        Ok((image, Entry { bytes: opened.length, modified_ns: opened.modified_ns, ..entry }))
    }

    /// IMAGES3: what an image says that it is, if not raw.
    pub(crate) async fn format_of(&self, image: &Layer) -> Result<Option<&'static str>, Failure> {
        let device = image.bytes(&self.context);
        let length = usize::try_from(PART_SIZE).expect("a part fits in memory");
        let head = device.read(0, self.context.arena().take(length)).await;
        let head = head.map_err(|error| failures::io(&image.file.path().display().to_string(), error))?;
        Ok(find_image_format(&head))
    }

    /// The image that is an origin, opened and compared (IMAGES2), if the origin is an image.
    pub(crate) async fn image_below(&self, group: Uuid, origin: &Origin) -> Result<Option<Image>, Failure> {
        let Some(known) = self.image_of(group, origin) else { return Ok(None) };
        if !self.is_agreed(group, &known.path) {
            return Err(not_agreed(&known.path));
        }
        let opened = self.open_image(group, known.clone()).await;
        let (image, found) = opened.map_err(|failure| lost(&failure, &known.path))?;
        refuse_changed(&known, &found)?;
        Ok(Some(image))
    }

    /// Whether a user at this host has named the file at `path` for the group (IMAGES4).
    pub(crate) fn is_agreed(&self, group: Uuid, path: &str) -> bool {
        let remembered = self.memory.remembered.borrow();
        remembered.images.as_ref().is_none_or(|agreed| agreed.contains(&(group, path.to_owned())))
    }

    /// IMAGES4: remembers that an image, or the address of a mapper, was named at this host for a group.
    pub(crate) async fn agree_to_image(&self, group: Uuid, path: &str) -> Result<(), Failure> {
        let is_new = match &mut self.memory.remembered.borrow_mut().images {
            Some(agreed) => agreed.insert((group, path.to_owned())),
            None => false,
        };
        if is_new { self.save().await } else { Ok(()) }
    }

    /// The images and mappers that the texts of all groups name, and that are not agreed to: group, its name, path or address.
    pub(crate) fn images_not_agreed(&self) -> Vec<(Uuid, String, String)> {
        let groups = self.groups.known.borrow();
        let images = groups.iter().flat_map(|(id, known)| {
            let name = known.group.name().to_owned();
            let images = known.image_paths().map(ToOwned::to_owned);
            images.chain(named_mappers(known)).map(move |path| (*id, name.clone(), path))
        });
        images.filter(|(group, _, path)| !self.is_agreed(*group, path)).collect()
    }

    /// Agrees to all images and mappers that the texts of groups name now, and leads volumes to them.
    pub(crate) async fn agree_to_images(&self) -> Result<(), Failure> {
        for (group, name, path) in self.images_not_agreed() {
            self.event(&path, &format!("agreed to as {} of group {name}", what(&path)));
            self.agree_to_image(group, &path).await?;
            let _lock = self.lock_group(group).await;
            self.converge(group).await;
        }
        Ok(())
    }

    /// After the first start with a list of images: those that were served before are agreed to.
    pub(crate) async fn begin_list_of_images(&self) {
        if self.memory.remembered.borrow().images.is_some() {
            return;
        }
        self.memory.remembered.borrow_mut().images = Some(self.named_images());
        self.save_or_warn().await;
    }

    /// All images that groups name.
    fn named_images(&self) -> BTreeSet<(Uuid, String)> {
        let groups = self.groups.known.borrow();
        let of = |(id, known): (&Uuid, &KnownGroup)| {
            let images = known.image_paths().map(ToOwned::to_owned);
            images.chain(named_mappers(known)).map(|path| (*id, path)).collect::<Vec<_>>()
        };
        groups.iter().flat_map(of).collect()
    }

    /// What the group's text says of the image that is an origin, if the origin is one.
    pub(crate) fn image_of(&self, group: Uuid, origin: &Origin) -> Option<Entry> {
        let Backing::Image { id } = origin.backing else { return None };
        self.with_group(group, |known| known.image(id).cloned()).ok().flatten()
    }

    /// IMAGES1: forgets images that are not in `wanted`, which is all origins of the group. To be called by a change, under its
    /// lock (CONTROL1).
    pub(crate) async fn reconcile_images(&self, group: Uuid, wanted: &[Origin]) -> Result<(), Failure> {
        let images = self.with_group(group, |known| known.group.images().to_vec())?;
        let needed: BTreeSet<Uuid> = wanted.iter().map(|origin| origin.backing.id()).collect();
        for image in images.iter().filter(|image| !needed.contains(&image.id)) {
            let words = format!("nothing is backed by {} any more", image.path);
            let forgotten =
                self.commits(group).await.make(group, Change::RemoveImage { id: image.id }, &words).await;
            if let Err(failure) = forgotten {
                tracing::warn!(path = image.path, %failure, "an image that nobody needs cannot be forgotten");
            }
        }
        Ok(())
    }
}

/// What is agreed to, by its path or address.
pub(crate) fn what(path: &str) -> &'static str {
    if path.starts_with(MAPPER_PREFIX) { "a mapper" } else { "an image" }
}

/// Refuses an image that is not what it was when a volume was first backed by it (IMAGES2).
fn refuse_changed(known: &Entry, found: &Entry) -> Result<(), Failure> {
    let path = &known.path;
    if known.format != found.format {
        let message =
            format!("the image {path} was said to be of another format when volumes were first backed by it");
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve lv list"));
    }
    let back = format!("bring {path} back as it was, then varve pv scan");
    if known.bytes != found.bytes {
        let (then, now) = (format_size(known.bytes), format_size(found.bytes));
        let message = format!(
            "the image {path} has {} bytes ({now}), and had {} ({then}) when volumes were first backed by it",
            found.bytes, known.bytes
        );
        return Err(Failure::new(Code::VolumeUnusable, message).help(back));
    }
    match (known.modified(), found.modified()) {
        (Some(then), now) if now.as_ref() != Some(&then) => {
            let now = now.unwrap_or_else(|| "an unknown time".to_owned());
            let message = format!(
                "the image {path} was written at {now}, and last at {then} when volumes were first backed by it"
            );
            let help = format!("{back}; if it holds the same bytes as then: touch -d {then} {path}");
            Err(Failure::new(Code::VolumeUnusable, message).help(help))
        }
        _ => Ok(()),
    }
}

/// Why a volume cannot be backed by an image that cannot be opened.
pub(crate) fn unopened(failure: Failure, path: &str) -> Failure {
    match failure.code {
        Code::DiskNotFound => failure.help(format!("look where the daemon runs: ls -l {path}")),
        Code::DiskInUse => failure.help("somebody may write it: a copy that nobody writes will do"),
        Code::VolumeUnusable => failure.with_code(Code::BadOrigin),
        _ => failure,
    }
}

/// The failure of a file that no user at this host has named for the group (IMAGES4).
pub(crate) fn not_agreed(path: &str) -> Failure {
    let message =
        format!("its group says that it is backed by {path}, and nobody has agreed that this file be opened");
    Failure::new(Code::ImageNotTrusted, message)
        .help(format!("look at {path}; if it is what you expect: varve pv scan --trust-images"))
}

/// Why volumes backed by an image that cannot be opened are not served.
fn lost(failure: &Failure, path: &str) -> Failure {
    if failure.code == Code::ImageNotTrusted {
        return failure.clone();
    }
    let message = format!("the image that is its origin cannot be used: {}", failure.message);
    Failure::new(Code::VolumeUnusable, message).help(format!("bring {path} back, then varve pv scan"))
}

/// How an image becomes raw.
pub(crate) fn conversion(path: &str) -> String {
    format!("--format qcow2 if it is one, or qemu-img convert -O raw {path} {path}.raw")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: u64, modified_ns: Option<u64>) -> Entry {
        let format = ImageFormat::Raw;
        let (id, path) = (Uuid::from_u128(1), "/gold".to_owned());
        Entry { id, path, bytes, format, snapshot: None, modified_ns }
    }

    #[test]
    fn an_image_that_is_not_what_it_was_is_refused_with_a_way_back() {
        let was = entry(5000, Some(1));
        assert!(refuse_changed(&was, &was).is_ok());
        let longer = refuse_changed(&was, &entry(5001, Some(1))).expect_err("IMAGES2");
        assert!(longer.message.contains("5001 bytes"), "{}", longer.message);
        for now in [Some(2), None] {
            let written = refuse_changed(&was, &entry(5000, now)).expect_err("IMAGES2");
            let touch = "touch -d 1970-01-01T00:00:00.000000001Z /gold";
            assert!(written.help.contains(touch), "{}", written.help);
        }
        assert!(refuse_changed(&entry(5000, None), &entry(5000, None)).is_ok(), "a block device");
    }
}
