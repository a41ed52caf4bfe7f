//! A copy that fails while the same range is asked for again: what the mapper answered before it heard of that is not used.

use crate::scripted_mapper::{BASE, BLOCK, Host, OWN, Script, ScriptedMapper};
use std::cell::Cell;
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

/// One write fails on the mapper's device.
fn host(late: Place) -> Host<Late> {
    let script = Late { late, first: Cell::default(), second: Cell::default() };
    let host = Host::new(script, Welcome { is_persistent: true, ..Welcome::default() });
    let faults = FaultPlan { write_error: 1_000_000, ..FaultPlan::default() };
    host.own.set_faults(faults, FaultBudget::new(1, 1));
    host
}

#[test]
fn a_read_is_not_led_to_where_a_copy_has_failed_by_an_answer_that_was_given_before() {
    let host = host(Place::Data { device: OWN, offset: 0 });
    let (written, read) =
        host.run(async { futures_util::future::join(host.write(BLOCK), host.read(0)).await });
    assert_eq!(written, Err(IoError::Medium));
    assert_eq!(host.mapper.failed(), [host.script.first.get().expect("it was asked")], "DELEGATE2");
    assert!(read.iter().all(|byte| *byte == b'b'), "DELEGATE2: what its base has, not what lay there before");
}

#[test]
fn a_copy_that_was_answered_before_another_one_failed_is_given_back_and_asked_for_again() {
    let host = host(copy());
    let (first, second, read) = host.run(async {
        let (first, second) = futures_util::future::join(host.write(BLOCK), host.write(0)).await;
        (first, second, host.read(0).await)
    });
    assert_eq!((first, second), (Err(IoError::Medium), Ok(())));
    let asked = [&host.script.first, &host.script.second].map(|number| number.get().expect("it was asked"));
    assert_eq!(host.mapper.failed(), asked, "DELEGATE2: the mapper hears that neither copy holds");
    let copied = host.own.peek(Extent::new(BLOCK, BLOCK));
    assert!(copied.iter().all(|byte| *byte == b'b'), "DELEGATE2: it was copied anew");
    assert_eq!(read, [b'w'; BLOCK as usize]);
}
