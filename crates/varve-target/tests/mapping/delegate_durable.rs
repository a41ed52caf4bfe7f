//! What a mapper is told to be durable was written where its answer said, and flushed.

use crate::scripted_mapper::{BLOCK, Host, OWN, ScriptedMapper, Turn, Turns};
use futures_util::future::join;
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::Extent;
use varve_mapper::wire::{self, Place, ToEngine, Welcome};
use varve_sim::Holds;

/// Blocks of the volume that lie at `at` of the mapper's device, of which it wants to hear.
fn data(block: u64, count: u64, at: u64) -> wire::Extent {
    let place = Place::Data { device: OWN, offset: at * BLOCK };
    wire::Extent { notify: true, ..wire::Extent::new(block * BLOCK, count * BLOCK, place) }
}

fn blocks(block: u64, count: u64) -> Extent {
    Extent::new(block * BLOCK, count * BLOCK)
}

fn host(turns: Vec<Turn>) -> Host<Turns> {
    Host::new(Turns::new(turns), Welcome { is_persistent: true, ..Welcome::default() })
}

#[test]
fn a_mapper_hears_that_data_is_durable_when_it_was_written_and_flushed() {
    let host = host(vec![Turns::map(data(0, 2, 4))]);
    host.run(async {
        host.holder.hold_next(1, Holds::VolatileWrites);
        let watch = async {
            host.settle().await;
            assert_eq!(host.holder.held(), 1, "the answer has come, and the write is under way");
            assert_eq!(host.mapper.durable(), [], "DELEGATE8: nothing is written");
            host.holder.release();
        };
        let (written, ()) = join(host.write(0), watch).await;
        written.expect("a good disk");
        host.settle().await;
    });
    let [asked] = host.mapper.questions()[..] else { panic!("one question") };
    assert_eq!(host.mapper.durable(), [(asked, blocks(0, 2))], "DELEGATE8");
    assert!(host.own.counters().flushes > 0, "DELEGATE8: it is durable");
    assert_eq!(host.own.peek(blocks(4, 1)), [b'w'; BLOCK as usize]);
}

#[test]
fn a_mapper_hears_of_each_range_of_an_answer_when_all_of_it_that_the_request_has_is_written() {
    let late: Rc<RefCell<Option<u64>>> = Rc::default();
    let asked = Rc::clone(&late);
    let first = Box::new(|mapper: &ScriptedMapper, number| {
        let extents = vec![data(0, 1, 4), data(2, 1, 8), data(3, 1, 11)];
        mapper.say(number, &ToEngine::Mapped(extents));
    });
    let second = Box::new(move |_: &ScriptedMapper, number| {
        asked.replace(Some(number));
    });
    let host = host(vec![first, second]);
    host.run(async {
        let watch = async {
            host.settle().await;
            let [first, second] = host.mapper.questions()[..] else { panic!("two questions") };
            let heard = [(first, blocks(0, 1))];
            assert_eq!(host.mapper.durable(), heard, "DELEGATE8: before the request goes on");
            host.holder.hold_next(2, Holds::VolatileWrites);
            assert_eq!(*late.borrow(), Some(second));
            host.mapper.map(second, wire::Extent { notify: false, ..data(1, 1, 5) });
            host.settle().await;
            assert_eq!(host.holder.held(), 2, "the rest is under way");
            assert_eq!(host.mapper.durable(), heard, "DELEGATE8: the third block is not written");
            host.holder.release();
            host.settle().await;
            let heard = [(first, blocks(0, 1)), (first, blocks(2, 1))];
            assert_eq!(host.mapper.durable(), heard, "DELEGATE8: it wrote nothing in the fourth");
        };
        join(host.write_blocks(0, 3), watch).await.0.expect("a good disk");
    });
}

#[test]
fn a_mapper_does_not_hear_of_a_place_that_it_has_replaced_before_anything_was_written_there() {
    let replace = Box::new(|mapper: &ScriptedMapper, number| {
        mapper.map(number, data(0, 1, 4));
        mapper.map(0, data(0, 1, 7));
    });
    let host = host(vec![replace]);
    host.run(async {
        host.write(0).await.expect("a good disk");
        host.settle().await;
    });
    assert_eq!(host.own.peek(blocks(7, 1)), [b'w'; BLOCK as usize], "REMAP1: the later answer holds");
    assert_eq!(host.own.peek(blocks(4, 1)), [b'o'; BLOCK as usize]);
    assert_eq!(host.mapper.durable(), [], "DELEGATE8: nothing is where that answer said");
}

#[test]
fn a_mapper_that_comes_back_does_not_hear_of_answers_that_it_gave_before() {
    let host = host(vec![Turns::map(data(0, 1, 4))]);
    host.run(async {
        host.holder.hold_next(1, Holds::VolatileWrites);
        let watch = async {
            host.settle().await;
            assert_eq!(host.holder.held(), 1, "the write is under way");
            host.holder.release();
            host.holder.hold_next(1, Holds::All);
        };
        let (written, ()) = join(host.write(0), watch).await;
        written.expect("a good disk");
        host.settle().await;
        assert_eq!(host.holder.held(), 1, "the flush is under way");
        host.reconnect().await;
        host.holder.release();
        host.settle().await;
    });
    assert_eq!(host.mapper.durable(), [], "DELEGATE8");
}

#[test]
fn a_copy_is_reported_when_it_and_what_the_request_writes_are_durable() {
    let place = Place::Copy { device: OWN, offset: 4 * BLOCK, from: None };
    let copy = wire::Extent { place, ..data(0, 2, 4) };
    let host = host(vec![Turns::map(copy)]);
    host.run(async {
        host.holder.hold_next(1, Holds::VolatileWrites);
        let watch = async {
            host.settle().await;
            assert_eq!(host.holder.held(), 1, "what the request writes is under way");
            assert_eq!(host.mapper.durable(), [], "DELEGATE8");
            host.holder.release();
        };
        join(host.write(0), watch).await.0.expect("a good disk");
        host.settle().await;
    });
    assert_eq!(host.mapper.durable(), [(host.mapper.questions()[0], blocks(0, 2))], "DELEGATE8");
}

#[test]
fn a_mapper_is_asked_to_flush_when_what_its_answers_led_to_is_written() {
    let host = host(vec![Turns::map(data(0, 1, 4))]);
    host.run(async {
        host.holder.hold_next(1, Holds::VolatileWrites);
        let flush = async {
            host.settle().await;
            assert_eq!(host.holder.held(), 1, "the write is under way");
            host.flush().await
        };
        let watch = async {
            host.settle().await;
            host.settle().await;
            assert_eq!(host.mapper.flushes(), 0, "DELEGATE3: an answer to a write is under way");
            host.holder.release();
        };
        let (written, (flushed, ())) = join(host.write(0), join(flush, watch)).await;
        written.and(flushed).expect("a good disk");
    });
    assert_eq!(host.mapper.flushes(), 1, "DELEGATE3");
}
