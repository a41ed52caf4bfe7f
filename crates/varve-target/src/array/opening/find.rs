//! What is in the places of an array's members, and on its log disk, when it is opened. A member that does not answer is waited for until the others can
//! do without it.
//!
//! Invariants:
//! - FIND1. A member that has not answered is taken as missing only if the bound for slow requests is over, and those that have
//!   answered elect without it. It is not asked again before it is taken in.
//! - FIND2. Members were exchanged if one is in the place of another one and not in its own. If it is in its own, what is found of it
//!   elsewhere was left behind by a move, and the extents have been given to another member since.

use super::super::dirty_log::log_copy::LogCopy;
use super::super::dirty_log::log_disk::is_of;
use super::super::dirty_log::stamps::{Shown, read_stamps};
use super::super::geometry::kind_of;
use super::super::slow::{Requests, TICKS, Watch};
use super::super::{ArrayError, ArrayLayout, ArrayOptions, ArraySpec, Member};
use super::election::{Election, Found, Worth, elect};
use crate::journal::Newest;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::pin::pin;
use std::rc::Rc;
use varve_block::{Arena, Device};
use varve_format::array::{ArrayFormatError, BLOCK_SIZE, NUMBER_MAX, SLOT_SIZE, Superblock};

/// What was found in the places of all members.
pub(in crate::array) struct FoundMembers {
    pub(in crate::array) found: Vec<Found>,
    /// What the log disk has.
    pub(in crate::array) log: Found,
    /// The newest stamp of each member that has a superblock.
    pub(in crate::array) shown: Vec<Shown>,
    /// Damaged slots, and the places of their members; the log disk is behind the last one.
    pub(in crate::array) damaged: Vec<(usize, u64)>,
    /// The requests on each member, and on the log disk; those on one that has not answered are abandoned.
    pub(in crate::array) requests: Vec<Rc<Requests>>,
    pub(in crate::array) watch: Rc<Watch>,
}

impl FoundMembers {
    /// Looks at all members, and at the log disk. Those that do not answer have no device any more.
    pub(in crate::array) async fn look(
        spec: &ArraySpec,
        members: &mut [Member],
        log: &mut Option<Member>,
        options: &ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let (watch, count): (Rc<Watch>, _) = (Rc::default(), members.len());
        let requests: Vec<Rc<Requests>> = (0..=count).map(|_| Requests::new(&watch)).collect();
        let watched = |(member, requests): (&Member, &Rc<Requests>)| Member {
            id: member.id,
            device: member.device.clone().map(|device| requests.on(device)),
        };
        let watched_log = log.as_ref().map(|log| watched((log, &requests[count])));
        let watched: Vec<Member> = members.iter().zip(&requests).map(watched).collect();
        let (watched, watched_log) = (&watched, &watched_log);
        let finding = (0..=count).map(|place| async move {
            let answer = match watched_log {
                Some(log) if place == count => Ok(find_log(spec, place, log, &options.arena).await),
                None if place == count => Ok((Found::Missing, Vec::new())),
                _ => find(spec, place, watched, &options.arena).await,
            };
            let newest = shown_by(spec, &answer, watched.get(place), &options.arena).await;
            (place, answer, newest)
        });
        let mut finding: FuturesUnordered<_> = finding.collect();
        let mut this = Self {
            found: vec![Found::Missing; count],
            log: Found::Missing,
            shown: vec![Shown::default(); count],
            damaged: Vec::new(),
            requests,
            watch,
        };
        let (mut ticks, mut problem) = (0, None);
        let next_tick = || options.clock.now().after(options.slow_after / TICKS);
        let mut due = next_tick();
        let mut awaited = vec![true; count + 1];
        while !finding.is_empty() {
            match select(finding.next(), pin!(options.clock.sleep_until(due))).await {
                Either::Left((Some((place, answer, newest)), _)) if awaited[place] => {
                    awaited[place] = false;
                    this.shown.get_mut(place).into_iter().for_each(|shown| *shown = newest.clone());
                    match answer {
                        Ok((found, slots)) => {
                            *this.found.get_mut(place).unwrap_or(&mut this.log) = found;
                            this.damaged.extend(slots.into_iter().map(|slot| (place, slot)));
                        }
                        Err(error) => problem = problem.or(Some(error)),
                    }
                }
                Either::Left(_) => {} // It was abandoned.
                Either::Right(_) => (ticks, due) = (ticks + 1, next_tick()),
            }
            if ticks > TICKS && problem.is_none() && this.elect(spec, options).is_ok() {
                // Those that have answered elect without the rest, or all would have been waited for (FIND1).
                for place in (0..=count).filter(|place| std::mem::take(&mut awaited[*place])) {
                    tracing::warn!(array = %spec.id, member = place, "a member does not answer: it is left out");
                    this.requests[place].abandon();
                    match members.get_mut(place) {
                        Some(member) => member.device = None,
                        None => log.iter_mut().for_each(|log| log.device = None),
                    }
                }
            }
        }
        problem.map_or(Ok(this), Err)
    }

    /// Whether the authoritative superblock was cut short: a member in sync does not have it.
    pub(in crate::array) fn is_cut_short(&self, election: &Election) -> bool {
        let is_behind = |(found, worth): (&Found, &Worth)| match found {
            Found::Superblock(own) => *worth == Worth::InSync && own.number < election.superblock.number,
            Found::Missing | Found::Blank => false,
        };
        self.found.iter().zip(&election.members).any(is_behind)
    }

    /// Which of the members that have answered are believed.
    pub(in crate::array) fn elect(
        &self,
        spec: &ArraySpec,
        options: &ArrayOptions,
    ) -> Result<Election, ArrayError> {
        elect(spec.layout, (&self.found, &self.shown), options.accept_missing, options.injected_bug)
    }
}

/// What is in a member's place.
async fn find(
    spec: &ArraySpec,
    place: usize,
    members: &[Member],
    arena: &Arena,
) -> Result<(Found, Vec<u64>), ArrayError> {
    let Some(device) = &members[place].device else { return Ok((Found::Missing, Vec::new())) };
    let Slots { newest, damaged } = read_superblock(device, place, arena).await?;
    let Some(superblock) = newest.filter(|superblock| superblock.array == spec.id) else {
        return Ok((Found::Blank, damaged));
    };
    let superblock = without_split(spec, superblock);
    let found = superblock.place as usize;
    let own = superblock.members.get(found).map(|entry| entry.id);
    if own.is_none() || own != members.get(found).map(|member| member.id) {
        // It is a member no more: another one has taken its place, or the array had another layout when it was.
        return Ok((Found::Blank, damaged));
    }
    compare(spec, &superblock)?;
    if found == place {
        return Ok((Found::Superblock(superblock), damaged));
    }
    match is_in_place(spec, found, members, arena).await {
        true => Ok((Found::Blank, damaged)), // FIND2
        false => Err(ArrayError::Exchanged { place, found }),
    }
}

/// The newest stamp of `member`, if it has answered with a superblock.
async fn shown_by(
    spec: &ArraySpec,
    answer: &Result<(Found, Vec<u64>), ArrayError>,
    member: Option<&Member>,
    arena: &Arena,
) -> Shown {
    match (answer, member.and_then(|member| member.device.as_ref())) {
        (Ok((Found::Superblock(own), _)), Some(device)) => shown(spec, device, own, arena).await,
        _ => Shown::default(),
    }
}

/// The newest stamp of the member with superblock `own`: in its ring if it has the log, else in blocks of their own.
pub(in crate::array) async fn shown(
    spec: &ArraySpec,
    device: &Device,
    own: &Superblock,
    arena: &Arena,
) -> Shown {
    let shown = read_stamps(device, spec.id, own, arena).await;
    if own.log_members >> own.place & 1 == 0 {
        return shown;
    }
    match LogCopy::new(spec, own, device, arena).newest().await {
        Some(record) => shown.or_newer(record),
        None => shown,
    }
}

/// Whether the member that belongs in `place` is there.
async fn is_in_place(spec: &ArraySpec, place: usize, members: &[Member], arena: &Arena) -> bool {
    let Some(device) = &members[place].device else { return false };
    let newest = read_superblock(device, place, arena).await.ok().and_then(|slots| slots.newest);
    newest.is_some_and(|own| {
        let entry = own.members.get(place).map(|entry| entry.id);
        (own.array, own.place as usize, entry) == (spec.id, place, Some(members[place].id))
    })
}

/// What is on the log disk, behind the last place of a member.
async fn find_log(spec: &ArraySpec, place: usize, log: &Member, arena: &Arena) -> (Found, Vec<u64>) {
    let Some(device) = &log.device else { return (Found::Missing, Vec::new()) };
    let Ok(Slots { newest, damaged }) = read_superblock(device, place, arena).await else {
        return (Found::Blank, Vec::new());
    };
    let own = newest.filter(|own| is_of(spec, log.id, own)).map(|own| without_split(spec, own));
    match own.filter(|own| compare(spec, own).is_ok()) {
        Some(own) => (Found::Superblock(own), damaged),
        None => (Found::Blank, damaged),
    }
}

/// `superblock` of a mirror as if it had never had the last copies that it had more than `spec`: they were split off while all were
/// equal and no write was under way.
fn without_split(spec: &ArraySpec, mut superblock: Superblock) -> Superblock {
    if matches!(spec.layout, ArrayLayout::Mirror { .. }) && superblock.kind == kind_of(spec.layout).0 {
        superblock.members.truncate(spec.layout.members());
    }
    superblock
}

/// What the slots of a member hold.
pub(in crate::array) struct Slots {
    /// The newer superblock, if there is one that can be read.
    pub(in crate::array) newest: Option<Superblock>,
    /// The slots that are torn or cannot be read.
    pub(in crate::array) damaged: Vec<u64>,
}

/// The newer superblock of a member.
pub(in crate::array) async fn read_superblock(
    device: &Device,
    place: usize,
    arena: &Arena,
) -> Result<Slots, ArrayError> {
    let (mut newest, mut damaged) = (Newest::new(), Vec::new());
    for address in [0, SLOT_SIZE] {
        let slot = read_slot(device, address, arena).await;
        if matches!(slot, Err(ArrayFormatError::Checksum | ArrayFormatError::Invalid(_))) {
            damaged.push(address);
        }
        newest.look_at(address, slot);
    }
    match newest.found() {
        Ok((superblock, _)) => Ok(Slots { newest: Some(superblock), damaged }),
        Err(error @ ArrayFormatError::OtherVersion(_)) => Err(ArrayError::Format { place, error }),
        Err(error) => {
            tracing::warn!(member = place, %error, "no superblock of an array");
            Ok(Slots { newest: None, damaged })
        }
    }
}

/// The superblock in the slot at `address`. One that cannot be read is as if it were damaged.
async fn read_slot(device: &Device, address: u64, arena: &Arena) -> Result<Superblock, ArrayFormatError> {
    let read =
        async |length| device.read(address, arena.take(length)).await.map_err(|_| ArrayFormatError::Checksum);
    let first = read(usize::try_from(BLOCK_SIZE).expect("a block is small")).await?;
    let length = Superblock::claims(&first, address).ok_or(ArrayFormatError::Absent)?;
    Superblock::decode(&read(length).await?, address)
}

impl crate::journal::Superblock for Superblock {
    type Error = ArrayFormatError;
    const ABSENT: ArrayFormatError = ArrayFormatError::Absent;

    fn number(&self) -> u64 {
        self.number
    }

    fn is_other_version(error: ArrayFormatError) -> bool {
        matches!(error, ArrayFormatError::OtherVersion(_))
    }
}

/// Whether `superblock` is one of the array `spec`, of whatever size, that can be followed by others.
fn compare(spec: &ArraySpec, superblock: &Superblock) -> Result<(), ArrayError> {
    if superblock.number.max(superblock.sequence).max(superblock.stamp) > NUMBER_MAX / 2 {
        return Err(ArrayError::Mismatch("its numbers are near their end"));
    }
    let (kind, block_size) = kind_of(spec.layout);
    let is_same = (kind, block_size, spec.layout.members(), spec.checksums)
        == (superblock.kind, superblock.block_size, superblock.members.len(), superblock.checksums);
    match is_same && spec.metadata_size == superblock.metadata_size {
        true => Ok(()),
        false => Err(ArrayError::Mismatch("its layout")),
    }
}
