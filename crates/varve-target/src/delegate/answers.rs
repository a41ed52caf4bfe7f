//! What a mapper says: it is checked before anything of it is used.

use super::notices::Notice;
use super::question::{About, Answer, Connection, CopyFirst, Kept, send};
use super::range_map::{Entry, Place, Target};
use super::state::State;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Extent, is_aligned};
use varve_mapper::wire::{self, Access, COPY_LENGTH_MAX, Intent, Status, ToMapper};

/// An extent of an answer.
enum Checked {
    Keep(Kept),
    Copy {
        kept: Kept,
        to: (Rc<Target>, u64),
        from: Option<(Rc<Target>, u64)>,
    },
    /// Unknown to the mapper: requests for it fail.
    Error,
}

/// The notice for which an extent of an answer to a write asks.
fn notice(said: &wire::Extent, extent: Extent, kept: &Kept) -> Option<Notice> {
    match &kept.place {
        Place::Data { target, offset } if said.notify && kept.access.write => {
            assert!(target.may_be_written(), "DELEGATE1");
            Some(Notice { extent, to: (Rc::clone(target), *offset) })
        }
        _ => None,
    }
}

impl State {
    /// An answer has come, or extents that were not asked for.
    pub(super) fn mapped(&self, connection: &Connection, number: u64, extents: &[wire::Extent]) {
        let asked = self.outstanding.borrow().get(&number).and_then(|question| question.about.range());
        let (mut copies, mut notices, mut is_located, mut copied) = (Vec::new(), Vec::new(), false, 0_u64);
        let mut is_outdated = false;
        for said in extents {
            let Some((extent, checked)) = self.checked(said, asked) else {
                self.refuse(connection, number, said);
                continue;
            };
            if self.is_outdated(number, extent) {
                is_outdated = true;
                if let Checked::Copy { .. } = checked {
                    self.tell_failed(connection, number, extent);
                }
                continue;
            }
            let has_first = |access: Access| {
                asked.is_some_and(|(gap, intent)| {
                    let fits = if intent == Intent::Read { access.read } else { access.write };
                    fits && extent.contains(Extent::new(gap.offset, 1))
                })
            };
            match checked {
                Checked::Error => {}
                Checked::Keep(kept) => {
                    is_located |= has_first(kept.access);
                    notices.extend(notice(said, extent, &kept));
                    self.keep_if_wanted(kept, extent, asked.map(|(_, intent)| intent));
                }
                Checked::Copy { kept, to, from } => {
                    copied += extent.length;
                    if copied > COPY_LENGTH_MAX {
                        self.refuse(connection, number, said);
                        continue;
                    }
                    is_located |= has_first(kept.access);
                    notices.extend(notice(said, extent, &kept));
                    let changing = self.changing.add(extent);
                    copies.push(CopyFirst { extent, to, from, kept, changing });
                }
            }
        }
        if asked.is_none() {
            return;
        }
        let answer = match (is_located, copies.is_empty()) {
            (false, true) if is_outdated => Answer::Kept { notices }, // Nothing is: it is asked again.
            (false, _) => {
                self.fail_copies(number, copies.iter().map(|copy| copy.extent));
                Answer::Error
            }
            (true, true) => Answer::Kept { notices },
            (true, false) => Answer::Copies { copies, notices, in_use: self.enter() },
        };
        self.answer(number, answer);
    }

    /// The answer to a flush or a trim; whether such a question may have been asked.
    pub(super) fn status_came(&self, number: u64, status: Status) -> bool {
        let about = self.outstanding.borrow().get(&number).map(|question| question.about);
        match about {
            Some(About::Range(..)) => return false,
            Some(About::Trim(extent)) if status == Status::Done => self.keep_zeros(extent),
            Some(About::Trim(_) | About::Flush) | None => {}
        }
        self.end_late_trim(number);
        self.answer(number, Answer::Status(status));
        true
    }

    /// Where a range was trimmed there are zeros.
    fn keep_zeros(&self, extent: Extent) {
        let kept = Kept { access: Access::READ, place: Place::Zero, once: false, expiry_ms: 0 };
        let unflushed = self.is_persistent.get().then(|| self.next_answer());
        let entry = Entry { unflushed, ..self.entry(&kept) };
        assert!(self.changing.has(extent.offset), "DELEGATE5: no answer was kept meanwhile");
        let mut cache = self.cache.borrow_mut();
        cache.trimmed(extent);
        cache.insert(extent, Access::READ, &entry);
    }

    fn answer(&self, number: u64, answer: Answer) {
        if let Some(question) = self.outstanding.borrow_mut().get_mut(&number) {
            assert!(number <= self.last_number.get(), "DELEGATE7: a question that waits was sent");
            question.answer = Some(answer);
        }
        self.note_answer();
        self.changed.notify_all();
    }

    /// Keeps an answer to a question for `asked`, if there was one. What only writes could use, and was not asked for, is dropped
    /// if there is no room: it may be pinned (REMAP2), and the mapper could say it without end.
    fn keep_if_wanted(&self, kept: Kept, extent: Extent, asked: Option<Intent>) {
        let has_room = || {
            self.cache.borrow_mut().evict();
            self.cache.borrow().has_room()
        };
        let access = match asked {
            Some(Intent::Write) => kept.access,
            Some(Intent::Read) => Access { write: kept.access.write && has_room(), ..kept.access },
            None if has_room() => kept.access,
            None => return,
        };
        self.keep(&Kept { access, ..kept }, extent);
    }

    /// Keeps an answer, but for what is being copied or trimmed (DELEGATE2, DELEGATE5).
    pub(super) fn keep(&self, kept: &Kept, extent: Extent) {
        for (part, entry) in self.unchanging(kept, extent) {
            self.cache.borrow_mut().insert(part, kept.access, &entry);
        }
    }

    /// Keeps an answer whose copy is done. One for one request alone was used by that (REMAP2).
    pub(super) fn keep_copied(&self, kept: &Kept, extent: Extent) {
        if !kept.once {
            return self.keep(kept, extent);
        }
        for (part, entry) in self.unchanging(kept, extent) {
            self.cache.borrow_mut().use_up(part, kept.access, entry);
        }
    }

    /// What is kept of an answer: all that is neither being copied nor being trimmed.
    fn unchanging(&self, kept: &Kept, extent: Extent) -> Vec<(Extent, Entry)> {
        let entry = self.entry(kept);
        assert!(self.shape.extent().contains(extent), "DELEGATE1");
        let parts = self.changing.unchanging(extent).into_iter();
        parts
            .map(|part| {
                let place = entry.place.further(part.offset - extent.offset);
                (part, Entry { place, ..entry.clone() })
            })
            .collect()
    }

    /// Keeps it in any case.
    pub(super) fn keep_at_once(&self, kept: &Kept, extent: Extent) {
        let entry = self.entry(kept);
        assert!(self.shape.extent().contains(extent), "DELEGATE1");
        self.cache.borrow_mut().insert(extent, kept.access, &entry);
    }

    fn entry(&self, kept: &Kept) -> Entry {
        let expiry = Duration::from_millis(u64::from(kept.expiry_ms));
        let expires = (kept.expiry_ms > 0).then(|| self.clock.now().after(expiry));
        let is_pinned = kept.access.write && self.is_persistent.get();
        let unflushed = is_pinned.then(|| self.next_answer());
        let (place, once) = (kept.place.clone(), kept.once);
        Entry { place, expires, once, unflushed, was_used: Cell::new(true) }
    }

    /// The number of an answer that clients rely on.
    fn next_answer(&self) -> u64 {
        self.answered.set(self.answered.get() + 1);
        self.answered.get()
    }

    /// DELEGATE1: what the mapper said, if it may say that.
    fn checked(&self, said: &wire::Extent, asked: Option<(Extent, Intent)>) -> Option<(Extent, Checked)> {
        let extent = Extent::checked(said.offset, said.length)?;
        let fits =
            self.shape.extent().contains(extent) && extent.is_aligned(u64::from(self.shape.block_size));
        if extent.is_empty() || !fits {
            return None;
        }
        let kept = |place| Kept { access: said.access, place, once: said.once, expiry_ms: said.expiry_ms };
        let checked = match said.place {
            wire::Place::Error => Checked::Error,
            wire::Place::Zero if said.access.write => return None,
            wire::Place::Zero => Checked::Keep(kept(Place::Zero)),
            wire::Place::Data { device, offset } => {
                let target = self.target(device, offset, extent.length, said.access.write)?;
                Checked::Keep(kept(Place::Data { target, offset }))
            }
            wire::Place::Copy { device, offset, from } => {
                let is_asked =
                    asked.is_some_and(|(gap, intent)| intent == Intent::Write && gap.overlaps(extent));
                if !is_asked || !said.access.write {
                    return None;
                }
                let target = self.target(device, offset, extent.length, true)?;
                let from = match from {
                    Some((device, source)) => {
                        Some((self.target(device, source, extent.length, false)?, source))
                    }
                    None => None,
                };
                let kept = kept(Place::Data { target: Rc::clone(&target), offset });
                Checked::Copy { kept, to: (target, offset), from }
            }
        };
        Some((extent, checked))
    }

    fn target(&self, number: u32, offset: u64, length: u64, write: bool) -> Option<Rc<Target>> {
        let target = self.targets.borrow().get(&number).cloned()?;
        let shape = target.device.shape();
        let extent = Extent::checked(offset, length)?;
        let fits = shape.extent().contains(extent) && is_aligned(offset, u64::from(shape.block_size));
        (fits && (target.may_be_written() || !write)).then_some(target)
    }

    /// An extent is not used; the mapper is notified where it relies on a copy.
    fn refuse(&self, connection: &Connection, number: u64, said: &wire::Extent) {
        self.count(|counters| counters.refused += 1);
        tracing::warn!(volume = %self.options.name, ?said, "the mapper's answer is refused");
        if let wire::Place::Copy { .. } = said.place {
            let failed = ToMapper::Failed { offset: said.offset, length: said.length };
            send(connection, number, &failed);
        }
    }

    /// DELEGATE2: the mapper is notified that these parts of its answer do not hold.
    pub(super) fn fail_copies(&self, number: u64, extents: impl Iterator<Item = Extent>) {
        let Some(connection) = self.connection.borrow().clone() else { return };
        for extent in extents {
            self.tell_failed(&connection, number, extent);
        }
    }

    /// DELEGATE2: a copy has failed. Answers to what was asked before the mapper is notified may lead there.
    fn tell_failed(&self, connection: &Connection, number: u64, extent: Extent) {
        let mut outstanding = self.outstanding.borrow_mut();
        let others = outstanding.iter_mut().filter(|(other, _)| **other != number);
        let waiting = others.filter(|(_, question)| question.answer.is_none());
        for (_, question) in waiting {
            // One range, however many fail: a question may wait for long.
            let before = question.failed.unwrap_or(extent);
            let end = before.end().max(extent.end());
            question.failed = Some(Extent::between(before.offset.min(extent.offset), end));
        }
        let Extent { offset, length } = extent;
        send(connection, number, &ToMapper::Failed { offset, length });
    }

    /// Whether a copy that may overlap `extent` has failed since question `number` was sent.
    fn is_outdated(&self, number: u64, extent: Extent) -> bool {
        let outstanding = self.outstanding.borrow();
        outstanding
            .get(&number)
            .is_some_and(|question| question.failed.is_some_and(|failed| failed.overlaps(extent)))
    }
}
