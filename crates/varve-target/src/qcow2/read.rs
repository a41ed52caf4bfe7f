//! Reading an image: lookups give mappings, and what they lead to is read at the same time.

use super::decompress::decompress;
use super::file::index;
use super::tables::mapping::{Mapped, Mapping, locate};
use super::{Image, InjectedBug};
use futures_util::future::join_all;
use varve_block::{Access, Buffer, Completion, IoError, LocalFuture, Outcome};
use varve_format::qcow2::{Qcow2Error, table_offset};

/// Where a run of bytes is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the file, from this byte on.
    File(u64),
    /// In the same place of what is below.
    Below,
    /// Nowhere: it is zeros.
    Zeros,
    /// Not as it is there: it is compressed; or what is below is not there.
    Apart(Mapping),
}

/// Where the L2 entry of a byte is.
enum EntryAt {
    /// There is no table: the mapping that follows from that.
    None(Mapped),
    /// The entry is number `first` of `slice`, and the byte is `within` its cluster.
    In { slice: u64, first: u64, within: u64 },
}

impl Image {
    /// Where byte `at` is, and how many bytes behind it up to `length_max` follow it there.
    pub async fn lookup(&self, at: u64, length_max: u64) -> Result<Mapped, IoError> {
        assert!(length_max > 0, "a lookup is of a byte at least");
        match self.entry_of(at, length_max).map_err(|error| self.report_damage(&error))? {
            EntryAt::None(mapped) => Ok(mapped),
            EntryAt::In { slice, first, within } => {
                let look = |slice: &[u8]| locate(slice, &self.header, first, within, length_max);
                let mapped = self.cache.get(slice, look).await?;
                mapped.and_then(|here| self.in_file(here)).map_err(|error| self.report_damage(&error))
            }
        }
    }

    /// Like [`Image::lookup`], where nothing need be read for that and nothing is damaged.
    fn lookup_in_memory(&self, at: u64, length_max: u64) -> Option<Mapped> {
        match self.entry_of(at, length_max).ok()? {
            EntryAt::None(mapped) => Some(mapped),
            EntryAt::In { slice, first, within } => {
                let look = |slice: &[u8]| locate(slice, &self.header, first, within, length_max);
                self.in_file(self.cache.peek(slice, look)?.ok()?).ok()
            }
        }
    }

    /// Where the L2 entry of byte `at` is.
    fn entry_of(&self, at: u64, length_max: u64) -> Result<EntryAt, Qcow2Error> {
        let header = &self.header;
        let (cluster, within) = (at / header.cluster_size(), at % header.cluster_size());
        let (l1_index, number) = (cluster / header.l2_entries(), cluster % header.l2_entries());
        let entry = self.l1.borrow().get(l1_index);
        let Some(table) = table_offset(entry, header, "L1 table")? else {
            let rest = (header.l2_entries() - number) * header.cluster_size() - within;
            return Ok(EntryAt::None(Mapped { mapping: Mapping::Unallocated, length: length_max.min(rest) }));
        };
        let (slice, first) = self.slice_of(table, number);
        Ok(EntryAt::In { slice, first, within })
    }

    /// The L2 table that L1 entry number `l1_index` leads to.
    pub(super) fn table_at(&self, l1_index: u64) -> Result<Option<u64>, IoError> {
        let entry = self.l1.borrow().get(l1_index);
        table_offset(entry, &self.header, "L1 table").map_err(|error| self.report_damage(&error))
    }

    /// The slice of the cache that has entry number `number` of the table at `table`, and its number there.
    pub(super) fn slice_of(&self, table: u64, number: u64) -> (u64, u64) {
        assert!(number < self.header.l2_entries(), "entry {number} is one of a table's");
        let per_slice = self.cache.slice_size() / self.header.l2_entry_size();
        (table + number / per_slice * self.cache.slice_size(), number % per_slice)
    }

    pub(super) fn report_damage(&self, error: &Qcow2Error) -> IoError {
        if self.damage_events.take() {
            tracing::error!(%error, "a qcow2 image is damaged");
        }
        IoError::Corrupt
    }

    /// A read of one run whose table is in memory, as one request to where that is; else the buffer again. The present tables are
    /// asked each time, so that what a write, a discard or a commit has changed is seen.
    pub(super) fn read_known(&self, offset: u64, buffer: Buffer) -> Result<Completion<'_>, Buffer> {
        let length = buffer.len() as u64;
        let Some(here) = self.lookup_in_memory(offset, length) else { return Err(buffer) };
        assert!(here.length <= length, "no more is found than was asked for");
        if here.length < length {
            return Err(buffer);
        }
        match (self.place_of(offset, here), &self.backing) {
            ((Place::File(there), here), _) if here == length => {
                let read = self.file.device().read(there, buffer);
                let places_stay =
                    self.access() == Access::ReadOnly || self.has_bug(InjectedBug::ReadUnguarded);
                Ok(if places_stay { read } else { read.keeping(self.readers.enter()) }) // QWRITE2
            }
            ((Place::Below, here), Some(backing)) if here == length => Ok(backing.read(offset, buffer)),
            _ => Err(buffer),
        }
    }

    /// Where the bytes from `at` on are read of which a lookup says this, and how many of them that are.
    pub(super) fn place_of(&self, at: u64, here: Mapped) -> (Place, u64) {
        let Mapped { mapping, length } = here;
        assert!(length > 0, "a lookup is of a byte at least");
        match (mapping, &self.backing) {
            (Mapping::Data { offset, .. }, _) => (Place::File(offset), length),
            (Mapping::Unallocated, Some(backing)) => match backing.shape().size.saturating_sub(at) {
                0 => (Place::Zeros, length),
                there => (Place::Below, length.min(there)),
            },
            (Mapping::Unallocated, None) if self.header.backing.is_some() => (Place::Apart(mapping), length),
            (Mapping::Zero | Mapping::Unallocated, _) => (Place::Zeros, length),
            (Mapping::Compressed { .. }, _) => (Place::Apart(mapping), length),
        }
    }

    /// Fills `buffer` from `offset` on; behind the image's end are zeros.
    pub(super) async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let _reading = self.readers.enter();
        let locate = async |at, length| self.lookup(at, length).await.map(|here| self.place_of(at, here));
        gather(offset, buffer, locate, |at, place, part| self.read_place(at, place, part)).await
    }

    fn read_place(&self, at: u64, place: Place, mut buffer: Buffer) -> LocalFuture<'_, Outcome> {
        match (place, &self.backing) {
            (Place::File(there), _) => self.file.device().read(there, buffer).boxed(),
            (Place::Below, Some(backing)) => backing.read(at, buffer).boxed(),
            (Place::Apart(Mapping::Compressed { offset, length }), _) => Box::pin(async move {
                let cluster = self.decompress(offset, length).await?;
                let (start, length) = (index(at % self.header.cluster_size()), buffer.len());
                buffer.copy_from_slice(&cluster[start..start + length]);
                Ok(buffer)
            }),
            (Place::Apart(_) | Place::Below, _) => Box::pin(std::future::ready(Err(IoError::Gone))),
            (Place::Zeros, _) => {
                buffer.fill(0);
                Box::pin(std::future::ready(Ok(buffer)))
            }
        }
    }

    /// The cluster that is compressed at `offset`.
    async fn decompress(&self, offset: u64, length: u64) -> Result<Vec<u8>, IoError> {
        let compressed = self.file.read(offset, length).await?;
        let cluster = decompress(&compressed, self.header.compression, index(self.header.cluster_size()));
        if cluster.is_none() && self.damage_events.take() {
            tracing::error!(offset, length, "a compressed cluster of a qcow2 image is damaged");
        }
        cluster.ok_or(IoError::Corrupt)
    }
}

/// Fills `buffer` from `offset` on: `locate` says where the next bytes lie, and for how many of them that holds; `read` reads these.
pub(super) async fn gather<'a, Place>(
    offset: u64,
    buffer: Buffer,
    locate: impl AsyncFn(u64, u64) -> Result<(Place, u64), IoError>,
    read: impl Fn(u64, Place, Buffer) -> LocalFuture<'a, Outcome>,
) -> Outcome {
    let (mut at, mut rest, mut failure) = (offset, buffer, None);
    let mut pieces: Vec<LocalFuture<'a, Outcome>> = Vec::new();
    while !rest.is_empty() {
        let (place, length) = match locate(at, rest.len() as u64).await {
            Ok(here) => here,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        if at == offset && length == rest.len() as u64 {
            return read(at, place, rest).await;
        }
        let behind = rest.split_off(index(length));
        pieces.push(read(at, place, rest));
        (at, rest) = (at + length, behind);
    }
    // All that was submitted runs to its end.
    let mut whole = Buffer::empty();
    for piece in join_all(pieces).await {
        match piece {
            Ok(piece) => whole.join(piece),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(whole), Err)
}
