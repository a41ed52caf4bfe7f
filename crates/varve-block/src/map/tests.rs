//! What an answer says of pieces, steps and guards.

use crate::*;
use futures_executor::block_on;
use futures_util::FutureExt;
use std::rc::Rc;

/// A device of 8 KiB that gives one answer, and counts the guards of it.
struct Answering {
    answer: Box<dyn Fn(MapIntent) -> Vec<MapPiece>>,
    held: Tracker,
    access: Access,
}

impl Answering {
    fn device(answer: impl Fn(MapIntent) -> Vec<MapPiece> + 'static) -> (Device, Tracker) {
        let held = Tracker::default();
        let (answer, counted) = (Box::new(answer), held.clone());
        (Device::new(Answering { answer, held: counted, access: Access::ReadWrite }), held)
    }
}

impl BlockDevice for Answering {
    fn shape(&self) -> Shape {
        Shape { access: self.access, ..Shape::new(8192, 512) }
    }
    fn submit(&self, _io: Checked) -> Completion<'_> {
        Completion::done()
    }
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        assert!(extent.is_aligned(512), "DEVICE2");
        let mut answer = MapAnswer::default().keeping(MapGuard::holding(self.held.enter()));
        (self.answer)(intent).into_iter().for_each(|piece| answer.push(piece));
        answer.ready()
    }
}

/// One that wants requests.
struct Leaf;

impl BlockDevice for Leaf {
    fn shape(&self) -> Shape {
        Shape::new(8192, 512)
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { buffer, .. } => Completion::ready(Ok(buffer)),
            _ => Completion::done(),
        }
    }
}

fn leaf() -> Device {
    Device::new(Leaf)
}

/// Where a piece leads: to this device, and where there.
fn lies_on(piece: &MapPiece, expected: &Device) -> Option<u64> {
    match &piece.location {
        Location::On { device, offset } if device.is_same(expected) => Some(*offset),
        _ => None,
    }
}

const SOME: Extent = Extent::new(1024, 2048);

#[test]
fn a_device_that_cannot_tell_wants_a_request() {
    for intent in [MapIntent::Inspect, MapIntent::Read, MapIntent::Overwrite] {
        let answer = block_on(leaf().map(SOME, intent)).expect("no faults");
        assert!(answer.is_sent() && answer.guard.is_none(), "MAP3");
        assert_eq!(answer.length(), SOME.length, "MAP1");
    }
    let data = [StatusRun { length: SOME.length, allocation: Allocation::Data }];
    assert_eq!(block_on(leaf().status(SOME)).expect("no faults"), data);
}

#[test]
fn an_answer_to_a_reader_leads_on_as_a_whole_or_holds_nothing() {
    let there = leaf();
    let pieces = move |_| vec![MapPiece::on(&there, 512, 512), MapPiece::sent(512), MapPiece::hole(512)];
    let (device, held) = Answering::device(pieces);
    let answer = block_on(device.map(SOME, MapIntent::Read)).expect("no faults");
    assert_eq!((answer.pieces.len(), answer.length(), held.count()), (1, 512, 1), "MAP3: it ends there");
    drop(answer);
    assert!(held.is_empty(), "MAP2");
    let everything = block_on(device.map(SOME, MapIntent::Inspect)).expect("no faults");
    assert_eq!(everything.length(), 1536);
    let (device, held) = Answering::device(|_| vec![MapPiece::sent(512), MapPiece::hole(512)]);
    let answer = block_on(device.map(SOME, MapIntent::Overwrite)).expect("no faults");
    assert!(answer.is_sent() && answer.length() == 512);
    assert!(held.is_empty() && answer.guard.is_none(), "MAP3: who sends a request holds nothing");
}

#[test]
fn what_may_not_be_written_is_not_overwritten_elsewhere_either() {
    let (below, device) = (leaf(), read_only(leaf()));
    let answer = block_on(device.map(SOME, MapIntent::Overwrite)).expect("no faults");
    assert!(answer.is_sent(), "DEVICE3");
    let device = read_only(below.clone());
    let answer = block_on(device.map(SOME, MapIntent::Read)).expect("no faults");
    assert_eq!(lies_on(&answer.pieces[0], &below), Some(1024));
}

#[test]
#[should_panic(expected = "MAP1")]
fn an_answer_that_covers_too_much_is_refused() {
    let (device, _) = Answering::device(|_| vec![MapPiece::hole(4096)]);
    let _ = block_on(device.map(SOME, MapIntent::Read));
}

#[test]
#[should_panic(expected = "MAP1")]
fn a_piece_beyond_its_device_is_refused() {
    let (device, _) = Answering::device(|_| vec![MapPiece::on(&leaf(), 8000, 512)]);
    let _ = block_on(device.map(SOME, MapIntent::Inspect));
}

#[test]
#[should_panic(expected = "DEVICE2")]
fn a_piece_that_is_no_whole_block_is_not_moved() {
    let (device, _) = Answering::device(|_| vec![MapPiece::on(&leaf(), 100, 512)]);
    let _ = block_on(device.map(SOME, MapIntent::Read));
}

#[test]
fn any_bytes_may_be_inspected() {
    let below = leaf();
    let there = below.clone();
    let (device, _) = Answering::device(move |_| vec![MapPiece::hole(512), MapPiece::on(&there, 4096, 1024)]);
    let answer = block_on(device.map(Extent::new(1024 + 100, 1000), MapIntent::Inspect)).expect("no faults");
    let lengths: Vec<_> = answer.pieces.iter().map(|piece| piece.length).collect();
    assert_eq!((lengths, lies_on(&answer.pieces[1], &below)), (vec![412, 588], Some(4096)));
}

#[test]
fn neighbours_are_one_piece() {
    let below = leaf();
    let mut answer = MapAnswer::default();
    for offset in [0, 512, 2048] {
        answer.push(MapPiece::on(&below, offset, 512));
    }
    answer.push(MapPiece::hole(10));
    answer.push(MapPiece::hole(20));
    answer.push(MapPiece { holds: Some(Allocation::Zero), ..MapPiece::hole(1) });
    let lengths: Vec<_> = answer.pieces.iter().map(|piece| piece.length).collect();
    assert_eq!(lengths, [1024, 512, 30, 1]);
}

#[test]
fn a_guard_keeps_the_switch_from_turning() {
    let (old, new) = (leaf(), leaf());
    let switch = Switch::new(old.clone());
    let device = switch.device();
    for intent in [MapIntent::Inspect, MapIntent::Read, MapIntent::Overwrite] {
        let answer = block_on(device.map(SOME, intent)).expect("no faults");
        assert_eq!(lies_on(&answer.pieces[0], &old), Some(1024));
        let mut suspend = Box::pin(switch.suspend());
        assert!((&mut suspend).now_or_never().is_none(), "SWITCH1, MAP2: {intent:?}");
        let mut late = Box::pin(device.map(SOME, intent));
        assert!((&mut late).now_or_never().is_none(), "SWITCH1: who asks late waits");
        drop(answer);
        let suspended = suspend.now_or_never().expect("SWITCH1: nobody is inside");
        suspended.replace(new.clone());
        drop(suspended);
        let answer = block_on(late).expect("no faults");
        assert_eq!(lies_on(&answer.pieces[0], &new), Some(1024));
        drop(answer);
        block_on(switch.suspend()).replace(old.clone());
    }
}

#[test]
fn whoever_overwrites_whole_blocks_keeps_merges_out() {
    let (below, arena) = (leaf(), Arena::heap(1 << 16));
    let device = accept_unaligned(below.clone(), arena.clone());
    let ragged = block_on(device.map(Extent::new(1000, 2000), MapIntent::Read)).expect("no faults");
    assert!(ragged.is_sent() && ragged.length() == 24, "DEVICE2: up to the next block");
    let small = block_on(device.map(Extent::new(1024, 100), MapIntent::Overwrite)).expect("no faults");
    assert!(small.is_sent() && small.length() == 100);
    let answer = block_on(device.map(Extent::new(1024, 1000), MapIntent::Overwrite)).expect("no faults");
    assert_eq!((lies_on(&answer.pieces[0], &below), answer.length()), (Some(1024), 512));
    let mut merge = device.write(1100, arena.copy(&[1; 10]), Durability::Volatile);
    assert!((&mut merge).now_or_never().is_none(), "UNALIGNED1, MAP2");
    drop(answer);
    block_on(merge).expect("written");
    let reader = block_on(device.map(SOME, MapIntent::Read)).expect("no faults");
    assert!(reader.guard.is_none(), "UNALIGNED1: only changes take the lock");
}

#[test]
fn leaves_are_found_through_every_step_with_all_guards() {
    let (bottom, arena) = (leaf(), Arena::heap(1 << 16));
    let there = bottom.clone();
    let (middle, held) = Answering::device(move |_| {
        vec![MapPiece::on(&there, 4096, 512).holding(Allocation::Data), MapPiece::hole(1536)]
    });
    let switch = Switch::new(accept_unaligned(middle, arena));
    let answer = block_on(switch.device().map_to_leaves(SOME, MapIntent::Read)).expect("no faults");
    assert_eq!((answer.pieces.len(), lies_on(&answer.pieces[0], &bottom)), (1, Some(4096)));
    assert_eq!(answer.pieces[0].holds, Some(Allocation::Data));
    assert_eq!((held.count(), switch.inside()), (1, 1), "MAP2: each step is kept true");
    drop(answer);
    assert_eq!((held.count(), switch.inside()), (0, 0));
    let runs = block_on(switch.device().status(SOME)).expect("no faults");
    let allocations: Vec<_> = runs.iter().map(|run| (run.length, run.allocation)).collect();
    assert_eq!(allocations, [(512, Allocation::Data), (1536, Allocation::Hole)]);
    assert_eq!((held.count(), switch.inside()), (0, 0));
}

#[test]
fn a_guard_lets_go_of_what_it_got_last_first() {
    struct Told(Rc<std::cell::RefCell<Vec<u32>>>, u32);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }
    let order = Rc::default();
    let guard = |number| MapGuard::holding(Told(Rc::clone(&order), number));
    drop(guard(1).and(guard(2)).and(MapGuard::none()).and(guard(3)));
    assert_eq!(*order.borrow(), [3, 2, 1]);
}
