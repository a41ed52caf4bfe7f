//! Reads that follow each other ask the mapper for more than they read.

use crate::scripted_mapper::{BLOCK, Host, OWN, SIZE, Script, ScriptedMapper};
use varve_mapper::wire::{Extent, Place, Status, ToEngine, ToMapper, Welcome};

/// Says of each range that is asked for, and no more, that it is in the same place of the mapper's device.
struct InPlace;

impl Script for InPlace {
    fn hear(&self, mapper: &ScriptedMapper, number: u64, message: &ToMapper) {
        match *message {
            ToMapper::Map { offset, length, .. } => {
                mapper.map(number, Extent::new(offset, length, Place::Data { device: OWN, offset }));
            }
            ToMapper::Flush => mapper.say(number, &ToEngine::Flushed(Status::Done)),
            _ => {}
        }
    }
}

#[test]
fn reads_that_follow_each_other_ask_for_twice_as_much_each_time() {
    let welcome = Welcome { is_persistent: true, keeps_answers: true, trim_unit: 0 };
    let host = Host::new(InPlace, welcome);
    host.run(async {
        for block in 0..SIZE / BLOCK {
            assert_eq!(host.read(block * BLOCK).await, [b'o'; BLOCK as usize]);
        }
        let asked = host.mapper.heard(|heard| match heard.message {
            ToMapper::Map { offset, length, .. } => Some((offset / BLOCK, length / BLOCK)),
            _ => None,
        });
        assert_eq!(asked, [(0, 1), (1, 2), (3, 4), (7, 8), (15, 1)]);
    });
}
