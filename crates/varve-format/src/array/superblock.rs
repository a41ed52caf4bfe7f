//! The superblock of an array's member: a checkpoint of the members' states and of the sets of regions.
//!
//! Two slots of [`SLOT_SIZE`] bytes, one behind the other from byte 0 on. Number `n` is in slot `n % 2`; the higher number
//! counts, of all members. A superblock is as many blocks long as its sets need. The last block of each slot has a stamp of the
//! member, a [`Record`](super::Record): number `s` is in slot `s % 2`. The byte tables are [`SUPERBLOCK_LAYOUT`]
//! and [`MEMBER_LAYOUT`].
//!
//! Invariants:
//! - ARRAY1. The checksum covers all blocks of the superblock, with its address, its number and the member's place.
//! - ARRAY2. The address is the slot of the number.
//! - ARRAY3. There are as many members as the layout has, each with an id, and the superblock is one of theirs, or of the log disk
//!   that has the log.
//! - ARRAY4. A region is a power of two of at least 4 KiB, and there are at most [`REGIONS_MAX`] of them; the sets have no bit of
//!   a region that is not there.
//! - ARRAY5. The log is on a log disk, or on a member at least; its head is in the ring or at its end, and numbers that only
//!   rise are so small that they never end.
//! - ARRAY6. A superblock leaves the last block of its slot to a stamp; a member that left names a stamp no newer than the superblock's.
//! - ARRAY7. Bytes of dirty regions are known only while a data member of ddraid is not in sync: at most [`KNOWN_MAX`] runs of whole
//!   blocks, in order, that do not touch each other.

use super::{ARRAY_VERSION, ArrayFormatError, BLOCK_SIZE, checksum_without, require};
use crate::epoch::{Epoch, EpochFields};
use crate::layout::{Field, Layout};
use uuid::Uuid;
use varve_block::{Extent, is_zero};

/// The most members of an array.
pub const MEMBERS_MAX: usize = 9;
/// The most regions of an array.
pub const REGIONS_MAX: u64 = 1 << 17;
/// Bytes of a slot.
pub const SLOT_SIZE: u64 = 64 * 1024;
/// The first byte of the ring, behind both slots.
pub const RING_OFFSET: u64 = 2 * SLOT_SIZE;
/// The highest number of a superblock or a record (ARRAY5).
pub const NUMBER_MAX: u64 = 1 << 62;

/// The most runs of bytes of dirty regions that are known (ARRAY7).
pub const KNOWN_MAX: usize =
    (SLOT_SIZE - BLOCK_SIZE - SETS.offset as u64 - 3 * REGIONS_MAX / 8) as usize / RUN;
/// Bytes of a run.
const RUN: usize = 16;

const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffAR";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `AR`");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 3");
const CHECKSUM: Field = Field::new(12, 4, "checksum", "CRC32C of all blocks with this field zero");
const ADDRESS: Field = Field::new(16, 8, "address", "first byte of this slot on the member");
const NUMBER: Field = Field::new(24, 8, "number", "number of times that superblocks were written");
const ARRAY: Field = Field::new(32, 16, "array", "UUID of this array");
const BLOCKS: Field = Field::new(48, 4, "blocks", "blocks of 4 KiB of this superblock");
const PLACE: Field =
    Field::new(52, 4, "place", "of this member among all, from 0 on; on a log disk the number of members");
const MEMBERS: Field = Field::new(56, 4, "members", "number of members");
const KIND: Field = Field::new(60, 4, "kind", "1 mirror, 2 ddraid");
const ARRAY_BLOCK: Field =
    Field::new(64, 8, "block_size", "bytes of a block of a ddraid array; 1 of a mirror");
const SIZE: Field = Field::new(72, 8, "size", "bytes of the array");
const METADATA_SIZE: Field = Field::new(80, 8, "metadata_size", "bytes in front of a member's data");
const REGION_SIZE: Field = Field::new(88, 8, "region_size", "bytes of the array that a region has");
const HEAD: Field = Field::new(96, 8, "head", "where the next record lies, in blocks from the ring's start");
const SEQUENCE: Field = Field::new(104, 8, "sequence", "the number of that record");
const EPOCH: EpochFields = EpochFields::own(112);
const LOG_MEMBERS: Field =
    Field::new(128, 4, "log_members", "bit `i`: member `i` has the log; 0 if a log disk has it");
const PREVIOUS: Field = Field::new(
    132,
    4,
    "previous",
    "CRC32C of number, members and sets of the superblock that this one follows; 0 of the first",
);
const CHECKSUMS: Field = Field::new(136, 4, "checksums", "1 if the array has checksums, else 0");
const PAGES_CURRENT: Field = Field::new(
    140,
    4,
    "pages_current",
    "1 if the pages of checksums of all regions in the set dirty are at least as new as the last flush, else 0",
);
const LOG_DISK: Field = Field::new(144, 16, "log_disk", "UUID of the log disk that has the log, or zero");
const STAMP: Field =
    Field::new(160, 8, "stamp", "number of the stamp that all members got before this superblock");
const TABLE: Field = Field::new(168, 360, "table", "one entry for each member, 40 bytes each");
const KNOWN: Field = Field::new(
    528,
    8,
    "known",
    "number of runs of bytes in regions of the set dirty of which it is known what they hold although a data member is missing",
);
const RESERVED_2: Field = Field::new(536, 104, "reserved", "zero");
const SETS: Field = Field::new(
    640,
    3456,
    "sets",
    "three sets of regions, one bit a region, each a multiple of 8 bytes: dirty, missed, written; then the runs that are \
     known, each with its first byte in the array and its length, 8 bytes each; goes on to the end of the blocks",
);

/// The byte table of a superblock.
pub const SUPERBLOCK_LAYOUT: Layout = Layout::new(
    "Array: superblock",
    "The states of the members and the sets of regions. In two slots from byte 0 of each member on.",
    BLOCK_SIZE as usize,
    &[
        MAGIC,
        VERSION,
        CHECKSUM,
        ADDRESS,
        NUMBER,
        ARRAY,
        BLOCKS,
        PLACE,
        MEMBERS,
        KIND,
        ARRAY_BLOCK,
        SIZE,
        METADATA_SIZE,
        REGION_SIZE,
        HEAD,
        SEQUENCE,
        EPOCH.generation,
        EPOCH.revision,
        LOG_MEMBERS,
        PREVIOUS,
        CHECKSUMS,
        PAGES_CURRENT,
        LOG_DISK,
        STAMP,
        TABLE,
        KNOWN,
        RESERVED_2,
        SETS,
    ],
);

const ID: Field = Field::new(0, 16, "id", "UUID of the member");
const STATE: Field = Field::new(16, 4, "state", "1 in sync, 2 away, 3 catching up");
const BEHIND: Field =
    Field::new(20, 4, "behind", "1 if other members count in the set dirty: this one may be older; else 0");
const AWAY_SINCE: Field =
    Field::new(24, 8, "away_since", "number of the superblock that called it away first; 0 if it is not");
const LEFT_AT: Field = Field::new(
    32,
    8,
    "left_at",
    "number of the stamp that it has at least if it is the one that left; 0 if it is not away",
);

/// The byte table of an entry of the members.
pub const MEMBER_LAYOUT: Layout = Layout::new(
    "Array: member",
    "What the array knows of a member.",
    40,
    &[ID, STATE, BEHIND, AWAY_SINCE, LEFT_AT],
);

const _: () = assert!(TABLE.size == MEMBERS_MAX * MEMBER_LAYOUT.size);
const _: () =
    assert!(SETS.offset as u64 + 3 * REGIONS_MAX / 8 + (KNOWN_MAX * RUN) as u64 <= SLOT_SIZE - BLOCK_SIZE);

/// How an array lays its bytes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every byte on every member.
    Mirror,
    /// Blocks over all members but the last, which has the parity.
    Ddraid,
}

/// What the content of a member is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It is read and written.
    InSync,
    /// It is not believed, and not written.
    Away,
    /// It is written, and not read: what it missed is being written to it.
    CatchingUp,
}

/// What the array knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// Which one.
    pub id: Uuid,
    /// What it is worth.
    pub state: MemberState,
    /// The number of the superblock that called it away first; 0 if it is in sync.
    pub away_since: u64,
    /// Stamp that it has at least if it is away and comes back as it left; else 0.
    pub left_at: u64,
    /// Whether others count in dirty regions, because it lacked the newest stamp when the array was opened.
    pub is_behind: bool,
}

/// A set of regions, one bit each: region `r` is bit `r % 64` of word `r / 64`.
pub type RegionBits = Vec<u64>;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of times that superblocks were written; the highest of all members is valid.
    pub number: u64,
    /// This array.
    pub array: Uuid,
    /// The place of this member; the number of members on a log disk.
    pub place: u32,
    /// How bytes are laid out.
    pub kind: Kind,
    /// Bytes of a block of a ddraid array; 1 of a mirror.
    pub block_size: u64,
    /// Bytes of the array.
    pub size: u64,
    /// Bytes in front of a member's data.
    pub metadata_size: u64,
    /// Bytes of a region.
    pub region_size: u64,
    /// Where the next record of the log is, in blocks from the ring's start.
    pub head: u64,
    /// The number of that record.
    pub sequence: u64,
    /// Term of the host that wrote it. Records of the log repeat it.
    pub epoch: Epoch,
    /// Bit `i`: member `i` has the log. None has it if a log disk does.
    pub log_members: u32,
    /// The log disk that has the log; nil if members have it.
    pub log_disk: Uuid,
    /// [`Superblock::identity`] of the superblock that this one follows; 0 of the first.
    pub previous: u32,
    /// Whether the array has checksums: a table of pages behind the ring.
    pub checksums: bool,
    /// Whether the pages of checksums of all regions in `dirty` are at least as new as the last flush, and no fragment there was changed
    /// since but of what is `known`: what fits them may be read although a data member is missing.
    pub pages_current: bool,
    /// The stamp that all members got before this superblock.
    pub stamp: u64,
    /// The members, in their places.
    pub members: Vec<MemberEntry>,
    /// Regions in which members may differ.
    pub dirty: RegionBits,
    /// Regions that a member which is not in sync may lack.
    pub missed: RegionBits,
    /// Regions that were ever written.
    pub written: RegionBits,
    /// What was written to regions in `dirty` while a data member is missing: it is computed from the others.
    pub known: Vec<Extent>,
}

impl Superblock {
    /// First byte of the slot in which this number is.
    pub const fn slot(&self) -> u64 {
        self.number % 2 * SLOT_SIZE
    }

    /// Number of regions.
    pub const fn regions(&self) -> u64 {
        self.size.div_ceil(self.region_size)
    }

    /// Words of each set.
    fn words(&self) -> usize {
        usize::try_from(self.regions().div_ceil(64)).expect("ARRAY4: regions are few")
    }

    /// Bytes of the superblock: whole blocks.
    pub fn length(&self) -> usize {
        (SETS.offset + 3 * 8 * self.words() + RUN * self.known.len()).next_multiple_of(BLOCK_SIZE as usize)
    }

    /// Tells superblocks apart that hosts with different members wrote under one number; the same on all members.
    pub fn identity(&self) -> u32 {
        let mut common = vec![0; self.length()];
        Superblock { place: 0, ..self.clone() }.encode(&mut common);
        crc32c::crc32c(&common)
    }

    /// Whether ARRAY3 to ARRAY5 hold; else which does not.
    pub fn check(&self) -> Result<(), ArrayFormatError> {
        let count = self.members.len();
        let fits = match self.kind {
            Kind::Mirror => (2..=8).contains(&count) && self.block_size == 1,
            Kind::Ddraid => {
                matches!(count, 3 | 5 | 9)
                    && self.block_size.is_power_of_two()
                    && (4096..=65536).contains(&self.block_size)
            }
        };
        let places = count + usize::from(!self.log_disk.is_nil());
        require(fits && (self.place as usize) < places, "ARRAY3: the members")?;
        require(self.members.iter().all(|member| !member.id.is_nil()), "ARRAY3: a member without an id")?;
        let is_region = self.region_size.is_power_of_two() && self.region_size >= BLOCK_SIZE;
        require(is_region && self.size > 0 && self.size <= NUMBER_MAX, "ARRAY4: the size of a region")?;
        require(self.regions() <= REGIONS_MAX, "ARRAY4: the number of regions")?;
        let sets = [&self.dirty, &self.missed, &self.written];
        require(sets.iter().all(|set| self.is_set(set)), "ARRAY4: a set of regions")?;
        require(self.are_known(), "ARRAY7: what is known of dirty regions")?;
        let ring_blocks = self.metadata_size.saturating_sub(RING_OFFSET) / BLOCK_SIZE;
        require(ring_blocks >= 4 && self.head <= ring_blocks, "ARRAY5: the head of the log")?;
        let have_log = self.log_members != 0;
        require(self.checksums || !self.pages_current, "ARRAY4: there are no pages")?;
        let is_somewhere = have_log == self.log_disk.is_nil() && self.log_members >> count == 0;
        require(is_somewhere, "ARRAY5: who has the log")?;
        let numbers = [self.number, self.sequence, self.metadata_size, self.stamp];
        require(numbers.iter().all(|number| *number <= NUMBER_MAX), "ARRAY5: a number that only rises")?;
        let was_before = |member: &MemberEntry| (1..=self.number).contains(&member.away_since);
        let is_before = |member: &MemberEntry| match member.state {
            MemberState::InSync => member.away_since == 0 && member.left_at == 0,
            MemberState::CatchingUp => was_before(member) && member.left_at == 0 && !member.is_behind,
            MemberState::Away => was_before(member) && member.left_at <= self.stamp && !member.is_behind,
        };
        require(self.members.iter().all(is_before), "ARRAY5: since when a member is away")
    }

    fn is_set(&self, set: &RegionBits) -> bool {
        let rest = self.regions() % 64;
        let has_no_more = rest == 0 || set.last().is_none_or(|word| word >> rest == 0);
        set.len() == self.words() && has_no_more
    }

    fn are_known(&self) -> bool {
        let data_members = &self.members[..self.members.len() - 1];
        let is_missing = data_members.iter().any(|member| member.state != MemberState::InSync);
        let is_run = |run: &Extent| !run.is_empty() && run.is_aligned(self.block_size);
        self.known.is_empty()
            || self.kind == Kind::Ddraid
                && is_missing
                && self.known.len() <= KNOWN_MAX
                && self.known.iter().all(is_run)
                && self.known.windows(2).all(|pair| pair[0].end() < pair[1].offset)
                && self.known.last().is_none_or(|last| last.end() <= self.size)
    }

    /// The bytes of the superblock, as long as [`Superblock::length`]. Panics if [`Superblock::check`] fails.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert_eq!(self.check(), Ok(()), "ARRAY3 to ARRAY5: {self:?}");
        assert_eq!(bytes.len(), self.length(), "ARRAY1: whole blocks");
        bytes.fill(0);
        MAGIC.put(bytes, MAGIC_VALUE);
        VERSION.put_u32(bytes, ARRAY_VERSION);
        ARRAY.put_uuid(bytes, self.array);
        let small = |value: usize| u32::try_from(value).expect("ARRAY3: members and blocks are few");
        BLOCKS.put_u32(bytes, small(bytes.len() / BLOCK_SIZE as usize));
        PLACE.put_u32(bytes, self.place);
        MEMBERS.put_u32(bytes, small(self.members.len()));
        KIND.put_u32(bytes, if self.kind == Kind::Mirror { 1 } else { 2 });
        LOG_MEMBERS.put_u32(bytes, self.log_members);
        LOG_DISK.put_uuid(bytes, self.log_disk);
        PREVIOUS.put_u32(bytes, self.previous);
        CHECKSUMS.put_u32(bytes, u32::from(self.checksums));
        PAGES_CURRENT.put_u32(bytes, u32::from(self.pages_current));
        EPOCH.put(bytes, self.epoch);
        for (field, value) in self.numbers() {
            field.put_u64(bytes, value);
        }
        for (member, entry) in self.members.iter().zip(bytes[TABLE.offset..].chunks_mut(MEMBER_LAYOUT.size)) {
            ID.put_uuid(entry, member.id);
            STATE.put_u32(entry, state_number(member.state));
            BEHIND.put_u32(entry, u32::from(member.is_behind));
            AWAY_SINCE.put_u64(entry, member.away_since);
            LEFT_AT.put_u64(entry, member.left_at);
        }
        let runs = self.known.iter().flat_map(|run| [run.offset, run.length]);
        let sets = self.dirty.iter().chain(&self.missed).chain(&self.written).copied();
        for (word, place) in sets.chain(runs).zip(bytes[SETS.offset..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = checksum_without(bytes, CHECKSUM);
        CHECKSUM.put_u32(bytes, checksum);
    }

    fn numbers(&self) -> [(Field, u64); 10] {
        [
            (KNOWN, self.known.len() as u64),
            (ADDRESS, self.slot()),
            (NUMBER, self.number),
            (ARRAY_BLOCK, self.block_size),
            (SIZE, self.size),
            (METADATA_SIZE, self.metadata_size),
            (REGION_SIZE, self.region_size),
            (HEAD, self.head),
            (SEQUENCE, self.sequence),
            (STAMP, self.stamp),
        ]
    }

    /// How many bytes the superblock has whose first block is `block`, if it may be one at `address`.
    pub fn claims(block: &[u8], address: u64) -> Option<usize> {
        let length = BLOCKS.u32(block) as usize * BLOCK_SIZE as usize;
        let is_one = MAGIC.bytes(block) == MAGIC_VALUE && ADDRESS.u64(block) == address;
        (is_one && (BLOCK_SIZE as usize..SLOT_SIZE as usize).contains(&length)).then_some(length)
    }

    /// The superblock in `bytes`, all of its blocks, which were read from byte `address` of the member on.
    pub fn decode(bytes: &[u8], address: u64) -> Result<Superblock, ArrayFormatError> {
        if MAGIC.bytes(bytes) != MAGIC_VALUE {
            return Err(ArrayFormatError::Absent);
        }
        if VERSION.u32(bytes) != ARRAY_VERSION {
            return Err(ArrayFormatError::OtherVersion(VERSION.u32(bytes)));
        }
        if CHECKSUM.u32(bytes) != checksum_without(bytes, CHECKSUM) {
            return Err(ArrayFormatError::Checksum);
        }
        let are_flags = CHECKSUMS.u32(bytes) <= 1 && PAGES_CURRENT.u32(bytes) <= 1;
        let is_sound = are_flags && RESERVED_2.is_zero(bytes);
        require(is_sound, "reserved bytes are not zero")?;
        let count = MEMBERS.u32(bytes) as usize;
        require(count <= MEMBERS_MAX, "ARRAY3: the number of members")?;
        let mut superblock = Superblock {
            number: NUMBER.u64(bytes),
            array: ARRAY.uuid(bytes),
            place: PLACE.u32(bytes),
            kind: kind_of(KIND.u32(bytes))?,
            block_size: ARRAY_BLOCK.u64(bytes),
            size: SIZE.u64(bytes),
            metadata_size: METADATA_SIZE.u64(bytes),
            region_size: REGION_SIZE.u64(bytes),
            head: HEAD.u64(bytes),
            sequence: SEQUENCE.u64(bytes),
            epoch: EPOCH.get(bytes),
            log_members: LOG_MEMBERS.u32(bytes),
            log_disk: LOG_DISK.uuid(bytes),
            previous: PREVIOUS.u32(bytes),
            checksums: CHECKSUMS.u32(bytes) == 1,
            pages_current: PAGES_CURRENT.u32(bytes) == 1,
            stamp: STAMP.u64(bytes),
            members: Vec::with_capacity(count),
            dirty: Vec::new(),
            missed: Vec::new(),
            written: Vec::new(),
            known: Vec::new(),
        };
        for entry in bytes[TABLE.offset..TABLE.end()].chunks(MEMBER_LAYOUT.size).take(count) {
            superblock.members.push(member_of(entry)?);
        }
        let unused = &bytes[TABLE.offset + count * MEMBER_LAYOUT.size..TABLE.end()];
        require(is_zero(unused), "bytes behind the members are not zero")?;
        require(superblock.region_size > 0 && superblock.regions() <= REGIONS_MAX, "ARRAY4: regions")?;
        let runs = usize::try_from(KNOWN.u64(bytes)).unwrap_or(usize::MAX);
        require(runs <= KNOWN_MAX, "ARRAY7: how much of dirty regions is known")?;
        superblock.known = vec![Extent::default(); runs];
        let length = BLOCKS.u32(bytes) as usize * BLOCK_SIZE as usize;
        require(superblock.length() == bytes.len() && length == bytes.len(), "ARRAY1: the number of blocks")?;
        let words = superblock.words();
        let mut sets = bytes[SETS.offset..].chunks_exact(8).map(word);
        superblock.dirty = sets.by_ref().take(words).collect();
        superblock.missed = sets.by_ref().take(words).collect();
        superblock.written = sets.by_ref().take(words).collect();
        for run in &mut superblock.known {
            let (offset, length) = (sets.next().unwrap_or(0), sets.next().unwrap_or(0));
            let known = Extent::checked(offset, length);
            *run = known.ok_or(ArrayFormatError::Invalid("ARRAY7: a run that is known"))?;
        }
        require(sets.all(|word| word == 0), "bytes behind the sets are not zero")?;
        superblock.check()?;
        let is_here = ADDRESS.u64(bytes) == address && superblock.slot() == address;
        require(is_here, "ARRAY2: the address")?;
        Ok(superblock)
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("words of 8 bytes"))
}

fn state_number(state: MemberState) -> u32 {
    match state {
        MemberState::InSync => 1,
        MemberState::Away => 2,
        MemberState::CatchingUp => 3,
    }
}

fn member_of(entry: &[u8]) -> Result<MemberEntry, ArrayFormatError> {
    require(BEHIND.u32(entry) <= 1, "ARRAY3: whether a member is behind")?;
    let state = match STATE.u32(entry) {
        1 => MemberState::InSync,
        2 => MemberState::Away,
        3 => MemberState::CatchingUp,
        _ => return Err(ArrayFormatError::Invalid("ARRAY3: the state of a member")),
    };
    Ok(MemberEntry {
        id: ID.uuid(entry),
        state,
        away_since: AWAY_SINCE.u64(entry),
        left_at: LEFT_AT.u64(entry),
        is_behind: BEHIND.u32(entry) == 1,
    })
}

fn kind_of(number: u32) -> Result<Kind, ArrayFormatError> {
    match number {
        1 => Ok(Kind::Mirror),
        2 => Ok(Kind::Ddraid),
        _ => Err(ArrayFormatError::Invalid("ARRAY3: the kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u128, state: MemberState, away_since: u64) -> MemberEntry {
        let left_at = if state == MemberState::Away { away_since + 1 } else { 0 };
        MemberEntry { id: Uuid::from_u128(id), state, away_since, left_at, is_behind: id == 1 }
    }

    fn sample() -> Superblock {
        Superblock {
            number: 7,
            array: Uuid::from_u128(0x0102),
            place: 2,
            kind: Kind::Ddraid,
            block_size: 8192,
            size: 70 << 20,
            metadata_size: 1 << 20,
            region_size: 1 << 20,
            head: 9,
            sequence: 10,
            epoch: Epoch { generation: 11, revision: 12 },
            log_members: 0b101,
            log_disk: Uuid::nil(),
            previous: 13,
            checksums: true,
            pages_current: true,
            stamp: 14,
            members: vec![
                member(1, MemberState::InSync, 0),
                member(2, MemberState::Away, 6),
                member(3, MemberState::CatchingUp, 5),
            ],
            dirty: vec![1, 1 << 5],
            missed: vec![3, 0],
            written: vec![u64::MAX, (1 << 6) - 1],
            known: vec![Extent::new(8192, 8192), Extent::new(69 << 20, 1 << 20)],
        }
    }

    fn bytes(superblock: &Superblock) -> Vec<u8> {
        let mut bytes = vec![0xff; superblock.length()];
        superblock.encode(&mut bytes);
        bytes
    }

    #[test]
    fn golden_bytes_and_round_trip() {
        let block = bytes(&sample());
        assert_eq!((&block[..8], block.len()), (&MAGIC_VALUE[..], 4096));
        assert_eq!((block[24], block[47], block[52], block[56], block[60]), (7, 2, 2, 3, 2));
        assert_eq!((block[96], block[104], block[112], block[120]), (9, 10, 11, 12));
        assert_eq!((block[128], block[132], block[136], block[140], block[160]), (5, 13, 1, 1, 14));
        assert_eq!(
            (block[183], block[184], block[188], block[224], block[232], block[240]),
            (1, 1, 1, 2, 6, 7)
        );
        assert_eq!((block[528], block[640], block[648], block[656], block[672]), (2, 1, 1 << 5, 3, 255));
        assert_eq!((block[689], block[697], block[706], block[707], block[714]), (32, 32, 0x50, 4, 16));
        assert_eq!(Superblock::claims(&block, SLOT_SIZE), Some(4096));
        assert_eq!(Superblock::decode(&block, SLOT_SIZE), Ok(sample()));
        let large = Superblock {
            size: REGIONS_MAX << 20,
            dirty: vec![7; 2048],
            missed: vec![8; 2048],
            written: vec![9; 2048],
            known: (0..KNOWN_MAX as u64).map(|run| Extent::new(run << 20, 8192)).collect(),
            ..sample()
        };
        assert!(large.length() as u64 <= SLOT_SIZE - BLOCK_SIZE, "ARRAY6");
        assert_eq!(Superblock::decode(&bytes(&large), SLOT_SIZE), Ok(large));
        let block = bytes(&on_log_disk());
        assert_eq!((block[52], block[128], block[159], block[140]), (3, 0, 77, 1), "ARRAY5");
        assert_eq!(Superblock::decode(&block, SLOT_SIZE), Ok(on_log_disk()));
    }

    /// The superblock of a log disk.
    fn on_log_disk() -> Superblock {
        Superblock { place: 3, log_members: 0, log_disk: Uuid::from_u128(77), ..sample() }
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let block = bytes(&sample());
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged, SLOT_SIZE).is_err(), "ARRAY1: bit {bit}");
        }
        assert!(Superblock::decode(&block, 0).is_err(), "ARRAY2");
    }

    #[test]
    fn superblocks_of_one_write_are_told_from_others_of_their_number() {
        assert_eq!(Superblock { place: 0, ..sample() }.identity(), sample().identity());
        let other = Superblock { dirty: vec![0; 2], ..sample() };
        assert_ne!(other.identity(), sample().identity());
    }

    #[test]
    fn contradictions_are_named() {
        let known = |runs: [Extent; 2]| Superblock { known: runs.to_vec(), ..sample() };
        let in_sync = [1, 2, 3].map(|id| member(id, MemberState::InSync, 0)).to_vec();
        let wrong = [
            (Superblock { place: 3, ..sample() }, "ARRAY3"),
            (Superblock { kind: Kind::Mirror, ..sample() }, "ARRAY3"),
            (Superblock { region_size: 3 << 20, ..sample() }, "ARRAY4"),
            (Superblock { region_size: 4096, size: 1 << 40, ..sample() }, "ARRAY4"),
            (Superblock { dirty: vec![0, 1 << 6], ..sample() }, "ARRAY4"),
            (Superblock { head: 1 << 20, ..sample() }, "ARRAY5"),
            (Superblock { log_members: 8, ..sample() }, "ARRAY5"),
            (Superblock { log_members: 0, ..sample() }, "ARRAY5"),
            (Superblock { log_disk: Uuid::from_u128(77), ..sample() }, "ARRAY5"),
            (Superblock { place: 4, ..on_log_disk() }, "ARRAY3"),
            (Superblock { number: u64::MAX, ..sample() }, "ARRAY5"),
            (Superblock { number: 5, ..sample() }, "ARRAY5"),
            (Superblock { stamp: 6, ..sample() }, "ARRAY5"),
            (known([Extent::new(0, 4096), Extent::new(1 << 20, 8192)]), "ARRAY7"),
            (known([Extent::new(0, 8192), Extent::new(8192, 8192)]), "ARRAY7"),
            (known([Extent::new(0, 8192), Extent::new(70 << 20, 8192)]), "ARRAY7"),
            (Superblock { members: in_sync, ..sample() }, "ARRAY7"),
        ];
        for (superblock, rule) in wrong {
            match superblock.check() {
                Err(ArrayFormatError::Invalid(broken)) => {
                    assert!(broken.starts_with(rule), "{broken}: {rule}");
                }
                other => panic!("{rule}: {other:?}"),
            }
        }
    }
}
