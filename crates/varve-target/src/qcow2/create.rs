//! New images, and the room that images need.

use super::file::{File, index};
use super::tables::counts::Counts;
use super::tables::rebuild::write_counts;
use super::{Image, OpenError, Options};
use varve_block::{Arena, Device, MIB};
use varve_format::qcow2::{Backing, Header, L1_ENTRIES_MAX, NewHeader, RefcountWidth, SECTOR};

/// What a new image is to be like.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Virtual bytes.
    pub size: u64,
    /// Bytes of a cluster: a power of two from 512 to 2 MiB.
    pub cluster_size: u64,
    /// 2 or 3.
    pub version: u32,
    /// Width of a reference count.
    pub refcount_width: RefcountWidth,
    /// L2 entries of 16 bytes, with subclusters.
    pub extended_l2: bool,
    /// The file below.
    pub backing: Option<Backing>,
}

impl NewImage {
    /// An image as `qemu-img create` makes it.
    pub fn new(size: u64) -> Self {
        let cluster_size = 64 << 10;
        let refcount_width = RefcountWidth::DEFAULT;
        Self { size, cluster_size, version: 3, refcount_width, extended_l2: false, backing: None }
    }

    fn check(&self) -> Result<NewHeader, OpenError> {
        let refuse = |why| Err(OpenError::Invalid(why));
        if !self.cluster_size.is_power_of_two() || !(512..=2 * MIB).contains(&self.cluster_size) {
            return refuse("a cluster has 512 bytes to 2 MiB, a power of two");
        }
        if !(2..=3).contains(&self.version) {
            return refuse("the version of a qcow2 image is 2 or 3");
        }
        if self.version == 2 && (self.extended_l2 || self.refcount_width != RefcountWidth::DEFAULT) {
            return refuse(
                "an image of version 2 has no extended L2 entries, and reference counts of 16 bits",
            );
        }
        if self.extended_l2 && self.cluster_size < 16 << 10 {
            return refuse("extended L2 entries need clusters of at least 16 KiB");
        }
        let entry = if self.extended_l2 { 16 } else { 8 };
        let entries = self.size.div_ceil(self.cluster_size * (self.cluster_size / entry));
        let Some(l1_entries) = u32::try_from(entries).ok().filter(|entries| *entries <= L1_ENTRIES_MAX)
        else {
            return refuse("the size is too large for clusters of this size");
        };
        Ok(NewHeader {
            version: self.version,
            cluster_bits: self.cluster_size.trailing_zeros(),
            size: self.size.next_multiple_of(SECTOR),
            l1_entries,
            l1_offset: self.cluster_size,
            refcount_width: self.refcount_width,
            extended_l2: self.extended_l2,
            backing: self.backing.clone(),
        })
    }
}

/// Makes an image in `device`, which holds zeros; where it ends.
pub async fn create(device: Device, arena: Arena, new: &NewImage) -> Result<u64, OpenError> {
    let header = new.check()?;
    let Some(mut first) = header.encode() else {
        return Err(OpenError::Invalid("the path of the backing file is too long"));
    };
    let size = new.cluster_size;
    assert!(first.len() as u64 == size, "the header has a cluster");
    let file = File::new(device, arena);
    let l1_clusters = (u64::from(header.l1_entries) * 8).div_ceil(size);
    let mut counts = Counts::default();
    (0..=l1_clusters).for_each(|cluster| counts.add(cluster));
    if (1 + l1_clusters) * size > file.size() {
        return Err(OpenError::Io(varve_block::IoError::NoSpace));
    }
    file.write_table(size, &vec![0; index(l1_clusters * size)]).await?;
    let table = write_counts(&file, header.refcount_width, size, &mut counts, 1 + l1_clusters).await?;
    Header::put_refcount_table(&mut first, table.offset, table.clusters);
    file.write_table(0, &first).await?;
    file.flush().await?;
    Ok(counts.used().next_back().map_or(0, |last| (last + 1) * size))
}

/// So many bytes an image's file may need: all of the disk, an eighth for what is freed late, and tables. `length` is what it
/// has.
pub fn room(header: &Header, length: u64) -> u64 {
    room_of(header.size, header.cluster_size(), header.l2_entry_size(), header.refcount_width)
        .saturating_add(if header.snapshots > 0 { length } else { 0 })
        .max(length.next_multiple_of(header.cluster_size()))
}

impl NewImage {
    /// So many bytes the file of such an image may need; an error if there can be no such image.
    pub fn room(&self) -> Result<u64, OpenError> {
        self.check()?;
        Ok(room_of(self.size, self.cluster_size, if self.extended_l2 { 16 } else { 8 }, self.refcount_width))
    }
}

fn room_of(size: u64, cluster_size: u64, entry_size: u64, width: RefcountWidth) -> u64 {
    let clusters = size.div_ceil(cluster_size);
    let clusters = clusters + clusters / 8;
    let table = |entries: u64, bytes: u64| (entries * bytes).next_multiple_of(cluster_size) + cluster_size;
    let l2 = table(clusters, entry_size);
    let l1 = table(l2 / cluster_size, 8);
    let counts = table(clusters + (l1 + l2) / cluster_size, 2 * u64::from(width.bits()).div_ceil(8));
    let refcount_table = 2 * table(counts / cluster_size, 8);
    (clusters * cluster_size + l1 + l2 + 2 * counts + refcount_table + 16 * MIB)
        .next_multiple_of(cluster_size)
}

/// Refuses an image in a file of `length` bytes, all of which are in `device`, that cannot be written, before its file is made as long
/// as [`room`] says. Nothing is changed.
pub async fn check_to_write(device: Device, arena: Arena, length: u64) -> Result<(), OpenError> {
    let options = Options { file_end: Some(length), ..Options::default() };
    let image = Image::open(device, arena, options).await?;
    image.check_to_write(room(&image.header, length)).await
}
