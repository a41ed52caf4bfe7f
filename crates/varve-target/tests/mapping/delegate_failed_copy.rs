//! A copy that fails while the same range is asked for again: what the mapper answered before it heard of that is not used.

use crate::scripted_mapper::{BASE, BLOCK, Host, OWN, Script, ScriptedMapper};
use futures_util::future::join;
use std::cell::{Cell, RefCell};
use varve_block::{Extent, IoError};
use varve_mapper::wire::{self, Intent, Place, ToMapper, Welcome};
use varve_sim::{FaultBudget, FaultPlan};

/// Lets the first write copy two blocks to its own device. What is asked for while that copy is under way it answers before it
/// hears that the copy has failed; the answer arrives behind that.
struct Late {
    /// What it answers to that question.
    late: Place,
    first: Cell<Option<u64>>,
    second: Cell<Option<u64>>,
}

fn copy() -> Place {
    Place::Copy { device: OWN, offset: 0, from: Some((BASE, 0)) }
}

/// Both blocks lie there.
fn both(place: Place) -> wire::Extent {
    wire::Extent::new(0, 2 * BLOCK, place)
}

impl Script for Late {
    fn hear(&self, mapper: &ScriptedMapper, number: u64, message: &ToMapper) {
        match message {
            ToMapper::Map { .. } if self.first.get().is_none() => self.first.set(Some(number)),
            ToMapper::Map { .. } if self.second.get().is_none() => {
                self.second.set(Some(number));
                mapper.map(self.first.get().expect("it was asked before"), both(copy()));
            }
            ToMapper::Map { intent: Intent::Read, .. } => {
                let place = Place::Data { device: BASE, offset: 0 };
                mapper.map(number, wire::Extent { access: wire::Access::READ, ..both(place) });
            }
            ToMapper::Map { intent: Intent::Write, .. } => mapper.map(number, both(copy())),
            ToMapper::Failed { .. } => {
                if mapper.failed().len() == 1 {
                    mapper.map(self.second.get().expect("it was asked before"), both(self.late));
                }
            }
            other => panic!("{other:?} is not to be expected"),
        }
    }
}

/// So many writes fail on the mapper's device.
fn failing<S: Script + 'static>(script: S, writes: u64) -> Host<S> {
    let host = Host::new(script, Welcome { is_persistent: true, ..Welcome::default() });
    let faults = FaultPlan { write_error: 1_000_000, ..FaultPlan::default() };
    host.own.set_faults(faults, FaultBudget::new(writes, 1));
    host
}

/// One write fails.
fn host(late: Place) -> Host<Late> {
    failing(Late { late, first: Cell::default(), second: Cell::default() }, 1)
}

/// Lets two writes, far from each other, copy to its own device, and answers a read of the later one before it hears that both copies
/// have failed; the answer arrives behind that.
#[derive(Default)]
struct Apart(RefCell<Vec<u64>>);

impl Apart {
    /// Where the later one is.
    const LATER: u64 = 5 * BLOCK;

    fn at(offset: u64, place: Place) -> wire::Extent {
        wire::Extent::new(offset, BLOCK, place)
    }
}

impl Script for Apart {
    fn hear(&self, mapper: &ScriptedMapper, number: u64, message: &ToMapper) {
        match *message {
            ToMapper::Map { .. } => self.0.borrow_mut().push(number),
            ToMapper::Failed { .. } => {}
            ref other => panic!("{other:?} is not to be expected"),
        }
        let asked = self.0.borrow();
        match (message, &asked[..]) {
            (ToMapper::Map { .. }, &[first, later, _]) => {
                for (number, offset) in [(first, 0), (later, Self::LATER)] {
                    let from = Some((BASE, offset));
                    mapper.map(number, Self::at(offset, Place::Copy { device: OWN, offset, from }));
                }
            }
            (ToMapper::Failed { .. }, &[_, _, read]) if mapper.failed().len() == 2 => {
                mapper.map(read, Self::at(Self::LATER, Place::Data { device: OWN, offset: Self::LATER }));
            }
            (ToMapper::Map { offset, .. }, &[_, _, _, again]) => {
                let base = Self::at(*offset, Place::Data { device: BASE, offset: *offset });
                mapper.map(again, wire::Extent { access: wire::Access::READ, ..base });
            }
            _ => {}
        }
    }
}

#[test]
fn an_answer_that_leads_to_one_of_two_copies_that_have_failed_is_not_used() {
    let host = failing(Apart::default(), 2);
    let (written, read) = host.run(async {
        let writes = join(host.write(0), host.write(Apart::LATER));
        join(writes, host.read(Apart::LATER)).await
    });
    assert_eq!(written, (Err(IoError::Medium), Err(IoError::Medium)));
    assert_eq!(host.mapper.failed().len(), 2, "DELEGATE2");
    assert!(read.iter().all(|byte| *byte == b'b'), "DELEGATE2: what its base has");
}

#[test]
fn a_read_is_not_led_to_where_a_copy_has_failed_by_an_answer_that_was_given_before() {
    let host = host(Place::Data { device: OWN, offset: 0 });
    let (written, read) = host.run(async { join(host.write(BLOCK), host.read(0)).await });
    assert_eq!(written, Err(IoError::Medium));
    assert_eq!(host.mapper.failed(), [host.script.first.get().expect("it was asked")], "DELEGATE2");
    assert!(read.iter().all(|byte| *byte == b'b'), "DELEGATE2: what its base has, not what lay there before");
}

#[test]
fn a_copy_that_was_answered_before_another_one_failed_is_given_back_and_asked_for_again() {
    let host = host(copy());
    let (first, second, read) = host.run(async {
        let (first, second) = join(host.write(BLOCK), host.write(0)).await;
        (first, second, host.read(0).await)
    });
    assert_eq!((first, second), (Err(IoError::Medium), Ok(())));
    let asked = [&host.script.first, &host.script.second].map(|number| number.get().expect("it was asked"));
    assert_eq!(host.mapper.failed(), asked, "DELEGATE2: the mapper hears that neither copy holds");
    let copied = host.own.peek(Extent::new(BLOCK, BLOCK));
    assert!(copied.iter().all(|byte| *byte == b'b'), "DELEGATE2: it was copied anew");
    assert_eq!(read, [b'w'; BLOCK as usize]);
}
