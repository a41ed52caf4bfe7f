//! One request to a simulated disk, from its submission to its end or to the crash.
//!
//! The invariants SIMDISK1 to SIMDISK4 of the disk are kept here: a change is applied to the medium sector by sector, some of
//! them perhaps before its end, the rest at its end, and is acknowledged after that.

use super::answer::Reply;
use super::fault::{Damage, Fault, Struck};
use super::flight::{Done, Flight, Job};
use super::medium::Content;
use super::{State, flipped, index, sectors};
use crate::SECTOR_SIZE;
use crate::pattern::is_content;
use crate::random::Random;
use crate::world::CrashKind;
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{Buffer, Durability, Extent, Io, IoError};

/// Bytes of the blocks that [`Struck`] speaks of, and their sectors.
const BLOCK: usize = 4096;
const BLOCK_SECTORS: usize = BLOCK / SECTOR_SIZE;

/// How much of a change happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Amount {
    All,
    /// Each sector perhaps, one in so many.
    Some(u64),
}

impl State {
    pub(crate) fn new_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// Takes a request in.
    pub(crate) fn begin(&mut self, io: Io, fault: Fault, reply: Reply) -> u64 {
        let id = self.new_request();
        self.counters.count(&io);
        let (verb, extent) = (io.verb(), io.extent());
        let job = match io {
            Io::Read { buffer, .. } => Job::Read(buffer),
            Io::Write { data, durability, .. } => {
                Job::Change { bytes: Some(Rc::from(&data[..])), durability }
            }
            Io::Zero { options, .. } => Job::Change { bytes: None, durability: options.durability },
            Io::Discard { .. } => Job::Discard,
            Io::Flush => {
                let changes = self.flights.iter().filter(|(_, flight)| flight.is_change());
                let unacknowledged = changes.map(|(id, _)| *id).collect();
                Job::Flush { mark: self.medium.order(), unacknowledged }
            }
        };
        let mut flight = Flight { verb, extent, job, fault, astray: None, reply, applied: BTreeSet::new() };
        if let Some(target) = self.misdirect_next.take_if(|_| verb == "write") {
            flight.fault = Fault::Misdirected;
            flight.astray = Some(target / SECTOR_SIZE as u64);
        }
        self.flights.insert(id, flight);
        id
    }

    /// Ends a request. `lies`: nothing becomes durable.
    pub(crate) fn complete(&mut self, id: u64, lies: bool, random: &mut Random) -> Done {
        if random.chance(1, 4) {
            self.make_progress(id, random);
        }
        let mut flight = self.flights.remove(&id).expect("a request under way ends once");
        if flight.fault == Fault::Vanish {
            self.gone = true;
        }
        let result = if self.gone {
            if flight.is_change() {
                self.apply(id, &mut flight, Amount::Some(2), random);
            }
            Err(IoError::Gone)
        } else {
            self.carry_out(id, &mut flight, lies, random)
        };
        let counts = !matches!(flight.job, Job::Read(_));
        let Flight { verb, extent, job, reply, .. } = flight;
        let outcome = result.map(|()| match job {
            Job::Read(buffer) => buffer,
            Job::Change { .. } | Job::Discard | Job::Flush { .. } => Buffer::empty(),
        });
        Done { verb, extent, counts, outcome, reply }
    }

    fn carry_out(
        &mut self,
        id: u64,
        flight: &mut Flight,
        lies: bool,
        random: &mut Random,
    ) -> Result<(), IoError> {
        if let Job::Read(buffer) = &mut flight.job {
            self.damage_before_read(flight.extent, flight.fault, random);
            return self.read(flight.extent, buffer);
        }
        match flight.fault {
            Fault::FailAndLose => {
                self.lose(&flight.job, random);
                return Err(IoError::Medium);
            }
            _ if self.poisoned => {
                if flight.is_change() {
                    self.apply(id, flight, Amount::Some(2), random);
                }
                return Err(IoError::Medium);
            }
            Fault::NoSpace => return Err(IoError::NoSpace),
            Fault::Fail if !flight.is_change() => return Err(IoError::Medium),
            Fault::Fail => {
                self.apply(id, flight, Amount::Some(2), random);
                return Err(IoError::Medium);
            }
            _ => {}
        }
        let hidden = self.go_astray(flight, random);
        match &flight.job {
            Job::Flush { mark, unacknowledged } if !lies => self.medium.flush(*mark, unacknowledged),
            Job::Flush { .. } | Job::Read(_) => {}
            Job::Discard => self.apply(id, flight, Amount::All, random),
            Job::Change { durability, .. } => {
                let durable = *durability == Durability::Durable && !lies;
                self.apply(id, flight, Amount::All, random);
                if durable {
                    self.settle(id, flight.extent);
                }
            }
        }
        for (sector, content) in hidden {
            self.faults.damage(sector, Damage::Shows(content));
        }
        Ok(())
    }

    /// A flush fails, and of what it covers half is lost.
    fn lose(&mut self, job: &Job, random: &mut Random) {
        if let Job::Flush { mark, unacknowledged } = job {
            self.medium.lose(*mark, unacknowledged, || random.chance(1, 2));
        }
        (self.poisoned, self.has_lost_flush) = (true, true);
    }

    /// What a durable change has written survives a crash from now on (SIMDISK3).
    fn settle(&mut self, id: u64, extent: Extent) {
        for sector in self.medium.touched(sectors(extent)) {
            self.medium.settle(sector, id);
        }
    }

    fn read(&self, extent: Extent, buffer: &mut Buffer) -> Result<(), IoError> {
        let range = sectors(extent);
        self.medium.read(range.clone(), buffer);
        for (sector, damage) in self.faults.within(range.clone()) {
            let at = index((sector - range.start) * SECTOR_SIZE as u64);
            let target = &mut buffer[at..at + SECTOR_SIZE];
            match damage {
                Damage::Unreadable => return Err(IoError::Medium),
                Damage::Shows(content) => content.copy_to(target),
                Damage::Flipped { byte, mask } => target[*byte] ^= mask,
            }
        }
        Ok(())
    }

    fn damage_before_read(&mut self, extent: Extent, fault: Fault, random: &mut Random) {
        let range = sectors(extent);
        let sector = random.between(range.start, range.end);
        if fault == Fault::Rot && self.is_spared(sector) {
            return;
        }
        match fault {
            Fault::Latent => self.faults.damage(sector, Damage::Unreadable),
            Fault::Rot => self.faults.damage(sector, flipped(random)),
            _ => {}
        }
    }

    /// For a write that is lost or goes elsewhere: what reads are to see in its place, which is what was there
    /// before. Where it goes, reads see what it wrote. The medium itself is written as it should be (FAULT1).
    fn go_astray(&mut self, flight: &Flight, random: &mut Random) -> Vec<(u64, Content)> {
        let Job::Change { bytes: Some(bytes), .. } = &flight.job else { return Vec::new() };
        if !matches!(flight.fault, Fault::Lost | Fault::Misdirected) {
            return Vec::new();
        }
        if let Some(only) = self.faults.plan.only {
            return self.lead_blocks_astray(flight, &Rc::clone(bytes), only, random);
        }
        let range = sectors(flight.extent);
        let length = range.end - range.start;
        if self.faults.plan.spares_content && is_content(&bytes[..SECTOR_SIZE]) {
            return Vec::new();
        }
        if flight.fault == Fault::Misdirected {
            let distance = length * random.between(1, 256);
            let near = range.start.checked_sub(distance).unwrap_or(range.start + distance);
            let target = flight.astray.unwrap_or(near);
            if flight.astray.is_none() && (target..target + length).any(|sector| self.is_spared(sector)) {
                return Vec::new();
            }
            for (number, sector) in (target..target + length).enumerate() {
                let content = Content::Data { bytes: Rc::clone(bytes), start: number * SECTOR_SIZE };
                self.faults.damage(sector, Damage::Shows(content));
            }
        }
        range.map(|sector| (sector, self.medium.newest(sector))).collect()
    }

    /// As [`State::go_astray`], of some blocks alone, each by itself; over another one of their kind, if it goes elsewhere.
    fn lead_blocks_astray(
        &mut self,
        flight: &Flight,
        bytes: &Rc<[u8]>,
        only: Struck,
        random: &mut Random,
    ) -> Vec<(u64, Content)> {
        let (range, mut hidden) = (sectors(flight.extent), Vec::new());
        let firsts = range.clone().step_by(BLOCK_SECTORS);
        for (start, (first, block)) in (0..).step_by(BLOCK).zip(firsts.zip(bytes.chunks_exact(BLOCK))) {
            if !only.strikes(block, &self.sector_now(first)) {
                continue;
            }
            let sectors = first..first + BLOCK_SECTORS as u64;
            if flight.fault == Fault::Misdirected {
                let places = (first.saturating_sub(256 * 8)..first + 256 * 8).step_by(BLOCK_SECTORS);
                let others = places.filter(|other| !range.contains(other));
                let others: Vec<u64> = others.filter(|other| only.is_one(&self.sector_now(*other))).collect();
                if !others.is_empty() {
                    let target = *random.pick(&others);
                    for number in 0..BLOCK_SECTORS {
                        let content =
                            Content::Data { bytes: Rc::clone(bytes), start: start + number * SECTOR_SIZE };
                        self.faults.damage(target + number as u64, Damage::Shows(content));
                    }
                }
            }
            hidden.extend(sectors.map(|sector| (sector, self.medium.newest(sector))));
        }
        hidden
    }

    fn sector_now(&self, sector: u64) -> [u8; SECTOR_SIZE] {
        let mut bytes = [0; SECTOR_SIZE];
        self.medium.newest(sector).copy_to(&mut bytes);
        bytes
    }

    /// Whether silent faults leave `sector` alone as it is now.
    fn is_spared(&self, sector: u64) -> bool {
        let mut bytes = [0; SECTOR_SIZE];
        self.medium.newest(sector).copy_to(&mut bytes);
        let plan = &self.faults.plan;
        let place = Extent::new(sector * SECTOR_SIZE as u64, SECTOR_SIZE as u64);
        plan.spared.is_some_and(|spared| spared.contains(place)) || plan.spares_content && is_content(&bytes)
    }

    /// Applies the sectors of a change that were not yet applied, or some of them.
    fn apply(&mut self, id: u64, flight: &mut Flight, amount: Amount, random: &mut Random) {
        let range = sectors(flight.extent);
        let bytes = match &flight.job {
            Job::Change { bytes, .. } => bytes.clone(),
            Job::Discard => None,
            Job::Read(_) | Job::Flush { .. } => unreachable!("only a change is applied"),
        };
        // Where nothing was ever written there are zeros already.
        let targets =
            if bytes.is_some() { range.clone().collect() } else { self.medium.touched(range.clone()) };
        for sector in targets {
            if let Amount::Some(out_of) = amount
                && !random.chance(1, out_of)
            {
                continue;
            }
            if !flight.applied.insert(sector) {
                continue;
            }
            let content = match (&bytes, &flight.job) {
                (Some(bytes), _) => {
                    let start = usize::try_from(sector - range.start).expect("in memory") * SECTOR_SIZE;
                    Content::Data { bytes: Rc::clone(bytes), start }
                }
                (None, Job::Discard) => match random.below(4) {
                    0 | 1 => Content::Zeros,
                    2 => self.medium.newest(sector),
                    _ => self.medium.settled(sector),
                },
                (None, _) => Content::Zeros,
            };
            self.medium.apply(sector, id, content);
            self.faults.written(sector);
        }
    }

    /// Lets part of some other change happen before its end.
    fn make_progress(&mut self, except: u64, random: &mut Random) {
        let waiting = self
            .flights
            .iter()
            .filter(|(id, flight)| **id != except && flight.is_change() && flight.fault == Fault::None);
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        if waiting.is_empty() {
            return;
        }
        let id = *random.pick(&waiting);
        let mut flight = self.flights.remove(&id).expect("it was just there");
        self.apply(id, &mut flight, Amount::Some(2), random);
        self.flights.insert(id, flight);
    }

    /// At a crash: what is under way has happened, as far as the medium then keeps it; or, if only the process
    /// ended, in part.
    pub(crate) fn apply_in_flight(&mut self, kind: CrashKind, random: &mut Random) {
        for (id, mut flight) in std::mem::take(&mut self.flights) {
            if flight.is_change() && flight.fault != Fault::NoSpace {
                let amount = match kind {
                    CrashKind::Power => Amount::All,
                    CrashKind::Process => Amount::Some(2),
                };
                self.apply(id, &mut flight, amount, random);
            }
        }
        self.misdirect_next = None;
    }
}
