//! The door, the switch and the adapter for unaligned I/O, over a device of plain memory.

use crate::*;
use futures_executor::{LocalPool, block_on};
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::task::LocalSpawnExt;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};

/// Waits one turn, so that requests interleave.
struct Turn(bool);

impl Future for Turn {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Blocks in memory; every request takes a turn.
#[derive(Clone)]
struct Blocks {
    content: Rc<RefCell<Vec<u8>>>,
    shape: Shape,
}

impl Blocks {
    fn new(size: usize, block_size: u32) -> Self {
        Self { content: Rc::new(RefCell::new(vec![0; size])), shape: Shape::new(size as u64, block_size) }
    }
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    extent.offset as usize..extent.end() as usize
}

impl BlockDevice for Blocks {
    fn shape(&self) -> Shape {
        self.shape
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        Completion::pending(async move {
            Turn(false).await;
            let extent = io.extent();
            let mut content = self.content.borrow_mut();
            match io.into_io() {
                Io::Read { mut buffer, .. } => {
                    buffer.copy_from_slice(&content[range(extent)]);
                    return Ok(buffer);
                }
                Io::Write { data, .. } => content[range(extent)].copy_from_slice(&data),
                Io::Zero { .. } => content[range(extent)].fill(0),
                Io::Discard { .. } | Io::Flush => {}
            }
            Ok(Buffer::empty())
        })
    }
}

#[test]
#[should_panic(expected = "OutOfBounds")]
fn a_request_beyond_the_end_is_the_callers_bug() {
    let device = Device::new(Blocks::new(8192, 512));
    drop(device.discard(Extent::new(8192, 512)));
}

#[test]
#[should_panic(expected = "Misaligned")]
fn a_request_for_half_a_block_is_the_callers_bug() {
    // DEVICE2.
    let device = Device::new(Blocks::new(8192, 512));
    drop(device.discard(Extent::new(0, 100)));
}

#[test]
fn a_request_of_no_bytes_is_answered_at_once() {
    let (device, arena) = (Device::new(Blocks::new(8192, 512)), Arena::heap(1 << 16));
    let is_ready = |completion: Completion<'_>| matches!(completion, Completion::Ready(_));
    assert!(is_ready(device.read(8192, arena.take(0))), "DEVICE4");
    assert!(is_ready(device.discard(Extent::new(0, 0))), "DEVICE4");
    assert!(!is_ready(device.flush()), "DEVICE4: a flush is no such request");
}

#[test]
fn a_change_of_a_read_only_device_is_answered_not_made() {
    let mut blocks = Blocks::new(8192, 512);
    blocks.shape.access = Access::ReadOnly;
    let device = Device::new(blocks.clone());
    let arena = Arena::heap(1 << 16);
    let outcome = block_on(device.write(0, arena.copy(&[1; 512]), Durability::Volatile));
    assert!(matches!(outcome, Err(IoError::ReadOnly)), "DEVICE3");
    assert_eq!(blocks.content.borrow()[0], 0);
}

#[test]
fn a_device_without_the_right_to_write_reads_and_changes_nothing() {
    let blocks = Blocks::new(8192, 512);
    blocks.content.borrow_mut()[..512].fill(7);
    let writable = Device::new(blocks);
    let device = read_only(writable.clone());
    assert_eq!(device.shape(), Shape { access: Access::ReadOnly, ..writable.shape() }, "READONLY1");
    let arena = Arena::heap(1 << 16);
    let outcome = block_on(device.write(0, arena.copy(&[1; 512]), Durability::Volatile));
    assert!(matches!(outcome, Err(IoError::ReadOnly)), "READONLY1");
    let outcome = block_on(device.zero(Extent::new(0, 512), ZeroOptions::default()));
    assert!(matches!(outcome, Err(IoError::ReadOnly)), "READONLY1");
    assert_eq!(block_on(device.read(0, arena.take(512))).expect("read")[..], [7; 512]);
    assert!(read_only(device.clone()).is_same(&device) && !device.is_same(&writable));
}

#[test]
fn changes_of_an_overlay_are_read_there_and_reach_nothing_below() {
    let blocks = Blocks::new(8192, 512);
    blocks.content.borrow_mut().fill(7);
    let below = Device::new(blocks.clone());
    let device = overlay(read_only(below));
    assert_eq!(device.shape().access, Access::ReadWrite);
    let arena = Arena::heap(1 << 16);
    block_on(device.write(512, arena.copy(&[1; 1024]), Durability::Durable)).expect("kept in memory");
    block_on(device.zero(Extent::new(1024, 512), ZeroOptions::default())).expect("kept in memory");
    block_on(device.flush()).expect("there is nothing to do");
    let found = block_on(device.read(0, arena.take(2048))).expect("read");
    let expected = [[7; 512], [1; 512], [0; 512], [7; 512]].concat();
    assert_eq!(found[..], expected[..], "OVERLAY1");
    assert!(blocks.content.borrow().iter().all(|byte| *byte == 7), "OVERLAY1");
}

#[test]
fn a_forwarded_request_counts_until_it_is_done_or_dropped() {
    let switch = Switch::new(Device::new(Blocks::new(8192, 512)));
    let device = switch.device();
    let (mut done, dropped) = (device.flush(), device.flush());
    assert_eq!(switch.inside(), 2, "DEVICE6");
    drop(dropped);
    assert_eq!(switch.inside(), 1, "DEVICE6");
    assert!(block_on(&mut done).is_ok());
    assert_eq!(switch.inside(), 0, "DEVICE6: though its answer is held still");
}

#[test]
fn a_switch_lets_requests_out_before_it_turns_and_holds_back_new_ones() {
    let (old, new) = (Blocks::new(8192, 512), Blocks::new(8192, 512));
    let arena = Arena::heap(1 << 16);
    let switch = Switch::new(Device::new(old.clone()));
    let device = switch.device();
    let mut early = device.write(0, arena.copy(&[1; 512]), Durability::Volatile);
    assert!((&mut early).now_or_never().is_none());
    let mut suspend = Box::pin(switch.suspend());
    assert!((&mut suspend).now_or_never().is_none(), "SWITCH1: one request is inside");
    let mut late = device.write(0, arena.copy(&[2; 512]), Durability::Volatile);
    assert!((&mut late).now_or_never().is_none());
    assert!(block_on(early).is_ok());
    let suspended = block_on(suspend);
    assert!((&mut late).now_or_never().is_none(), "SWITCH1: held at the gate");
    suspended.replace(Device::new(new.clone()));
    drop(suspended);
    assert!(block_on(late).is_ok());
    assert_eq!((old.content.borrow()[0], new.content.borrow()[0]), (1, 2));
}

#[test]
fn the_last_request_that_leaves_a_switch_wakes_the_task_that_suspends_it() {
    let arena = Arena::heap(1 << 16);
    let switch = Switch::new(Device::new(Blocks::new(8192, 512)));
    let device = switch.device();
    let [mut one, mut other] =
        [0, 512].map(|at| device.write(at, arena.copy(&[1; 512]), Durability::Volatile));
    assert!((&mut one).now_or_never().is_none() && (&mut other).now_or_never().is_none());
    let mut tasks = LocalPool::new();
    let suspend = async move { switch.suspend().await };
    let mut suspend = tasks.spawner().spawn_local_with_handle(suspend).expect("the pool is there");
    tasks.run_until_stalled();
    block_on(one).expect("written");
    tasks.run_until_stalled();
    assert!((&mut suspend).now_or_never().is_none(), "SWITCH1: one request is inside");
    block_on(other).expect("written");
    // Only tasks that were woken are polled.
    tasks.run_until_stalled();
    assert!(suspend.now_or_never().is_some(), "SWITCH1: no request is inside");
}

#[test]
fn a_request_that_a_shrink_left_outside_is_answered_and_reaches_nothing() {
    let arena = Arena::heap(1 << 16);
    let switch = Switch::new(Device::new(Blocks::new(8192, 512)));
    let device = switch.device();
    let suspended = block_on(switch.suspend());
    let outside = device.write(4096, arena.copy(&[2; 512]), Durability::Volatile);
    suspended.replace(Device::new(Blocks::new(4096, 512)));
    drop(suspended);
    assert!(matches!(block_on(outside), Err(IoError::Gone)), "SWITCH2");
    assert!(matches!(block_on(device.status(Extent::new(4096, 512))), Err(IoError::Gone)), "SWITCH2");
    let read = block_on(device.read(0, arena.take(512))).expect("inside");
    assert_eq!(read.len(), 512, "DEVICE5");
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Zero(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let write = (0u64..7000, prop::collection::vec(any::<u8>(), 1..1100))
        .prop_map(|(at, data)| Change::Write(at, data));
    let zero = (0u64..7000, 1u64..1100).prop_map(|(at, length)| Change::Zero(at, length));
    prop_oneof![write, zero]
}

proptest! {
    /// UNALIGNED1: changes of any bytes, disjoint and all in flight together, end as if made one by one.
    #[test]
    fn unaligned_changes_never_lose_each_other(changes in prop::collection::vec(change(), 1..12)) {
        let blocks = Blocks::new(8192, 512);
        let arena = Arena::heap(1 << 20);
        let device = accept_unaligned(Device::new(blocks.clone()), arena.clone());
        let mut model = vec![0u8; 8192];
        let mut taken = Vec::<Extent>::new();
        let mut flying = Vec::new();
        for change in &changes {
            let extent = match change {
                Change::Write(at, data) => Extent::new(*at, data.len() as u64),
                Change::Zero(at, length) => Extent::new(*at, *length),
            };
            if taken.iter().any(|other| other.overlaps(extent)) {
                continue;
            }
            taken.push(extent);
            flying.push(match change {
                Change::Write(at, data) => {
                    model[range(extent)].copy_from_slice(data);
                    device.write(*at, arena.copy(data), Durability::Volatile)
                }
                Change::Zero(..) => {
                    model[range(extent)].fill(0);
                    device.zero(extent, ZeroOptions::default())
                }
            });
        }
        for outcome in block_on(join_all(flying)) {
            prop_assert!(outcome.is_ok());
        }
        prop_assert!(*blocks.content.borrow() == model);
        let read = block_on(device.read(3, arena.take(5000))).expect("read");
        prop_assert_eq!(&read[..], &model[3..5003]);
    }
}

#[test]
fn an_aligned_change_is_not_lost_to_a_merge_that_begins_meanwhile() {
    let blocks = Blocks::new(8192, 512);
    let arena = Arena::heap(1 << 16);
    let device = accept_unaligned(Device::new(blocks.clone()), arena.clone());
    let aligned = device.write(0, arena.copy(&[1; 512]), Durability::Volatile);
    let ragged = device.write(100, arena.copy(&[2; 50]), Durability::Volatile);
    for outcome in block_on(join_all([ragged, aligned])) {
        assert!(outcome.is_ok());
    }
    let content = blocks.content.borrow();
    assert_eq!((content[0], content[511]), (1, 1), "UNALIGNED1: the aligned change came first and is there");
}

/// The verb of a request, its bytes, and how durable a change is to be.
type Seen = (&'static str, Extent, Option<Durability>);

/// Notes what reaches it, and answers at once.
#[derive(Clone)]
struct Recorder {
    seen: Rc<RefCell<Vec<Seen>>>,
    runs: Vec<StatusRun>,
}

impl Recorder {
    fn with_runs(runs: Vec<StatusRun>) -> Self {
        Self { seen: Rc::default(), runs }
    }

    /// What has come since the last time.
    fn take(&self) -> Vec<Seen> {
        self.seen.take()
    }
}

impl BlockDevice for Recorder {
    fn shape(&self) -> Shape {
        Shape { discard: true, ..Shape::new(8192, 512) }
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let durability = match io.io() {
            Io::Write { durability, .. } => Some(*durability),
            Io::Zero { options, .. } => Some(options.durability),
            _ => None,
        };
        self.seen.borrow_mut().push((io.io().verb(), io.extent(), durability));
        match io.into_io() {
            Io::Read { buffer, .. } => Completion::ready(Ok(buffer)),
            _ => Completion::done(),
        }
    }
    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        assert!(extent.is_aligned(512), "DEVICE2");
        MapAnswer::of_status(&self.runs).ready()
    }
}

#[test]
fn a_ragged_discard_gives_up_whole_blocks_only() {
    let recorder = Recorder::with_runs(Vec::new());
    let device = accept_unaligned(Device::new(recorder.clone()), Arena::heap(1 << 16));
    let whole = |offset, length| vec![("discard", Extent::new(offset, length), None)];
    for (extent, expected) in [
        (Extent::new(100, 2000), whole(512, 1536)),
        (Extent::new(512, 700), whole(512, 512)),
        (Extent::new(500, 524), whole(512, 512)),
        (Extent::new(0, 8192), whole(0, 8192)),
        // No whole block inside: in the middle of one, across the border of two, at the front and at the end of one.
        (Extent::new(600, 100), Vec::new()),
        (Extent::new(700, 600), Vec::new()),
        (Extent::new(512, 511), Vec::new()),
        (Extent::new(513, 511), Vec::new()),
        (Extent::new(8191, 1), Vec::new()),
    ] {
        block_on(device.discard(extent)).expect("a hint");
        assert_eq!(recorder.take(), expected, "UNALIGNED3: {extent:?}");
    }
}

#[test]
fn a_ragged_write_reads_its_edges_and_nothing_between() {
    let recorder = Recorder::with_runs(Vec::new());
    let arena = Arena::heap(1 << 16);
    let device = accept_unaligned(Device::new(recorder.clone()), arena.clone());
    let extent = |(offset, length)| Extent::new(offset, length);
    for (write, reads, whole) in [
        ((100, 50), vec![(0, 512)], (0, 512)),
        ((500, 524), vec![(0, 1024)], (0, 1024)),
        ((500, 3000), vec![(0, 512), (3072, 512)], (0, 3584)),
        ((512, 3000), vec![(3072, 512)], (512, 3072)),
        ((500, 3084), vec![(0, 512)], (0, 3584)),
    ] {
        let data = arena.copy(&vec![1; write.1]);
        block_on(device.write(write.0, data, Durability::Volatile)).expect("written");
        let reads = reads.into_iter().map(|read| ("read", extent(read), None));
        let written = ("write", extent(whole), Some(Durability::Volatile));
        assert_eq!(recorder.take(), reads.chain([written]).collect::<Vec<_>>(), "{write:?}");
    }
}

#[test]
fn a_durable_zero_is_durable_at_its_edges() {
    let recorder = Recorder::with_runs(Vec::new());
    let device = accept_unaligned(Device::new(recorder.clone()), Arena::heap(1 << 16));
    let durable = Some(Durability::Durable);
    let options = ZeroOptions { durability: Durability::Durable, ..ZeroOptions::default() };
    for extent in [Extent::new(100, 2000), Extent::new(700, 100), Extent::new(700, 600)] {
        block_on(device.zero(extent, options)).expect("zeroed");
        let changes: Vec<_> = recorder.take().into_iter().filter(|(verb, ..)| *verb != "read").collect();
        assert!(!changes.is_empty() && changes.iter().all(|(_, _, found)| *found == durable), "{changes:?}");
    }
}

#[test]
fn the_status_of_any_bytes_is_cut_on_both_sides() {
    let run = |length, allocation| StatusRun { length, allocation };
    let runs = vec![run(512, Allocation::Data), run(512, Allocation::Hole), run(512, Allocation::Data)];
    let device = accept_unaligned(Device::new(Recorder::with_runs(runs)), Arena::heap(1 << 16));
    let found = block_on(device.status(Extent::new(100, 1000))).expect("status");
    assert_eq!(found, [run(412, Allocation::Data), run(512, Allocation::Hole), run(76, Allocation::Data)]);
}

#[test]
fn a_merge_under_way_keeps_what_is_shown_from_being_exchanged() {
    let blocks = Blocks::new(8192, 512);
    let (arena, shown) = (Arena::heap(1 << 16), Shown::default());
    let device = accept_unaligned_shown(Device::new(blocks.clone()), arena.clone(), shown.clone());
    blocks.content.borrow_mut().fill(1);
    let mut ragged = device.write(100, arena.copy(&[9; 50]), Durability::Volatile);
    assert!((&mut ragged).now_or_never().is_none(), "its read is under way");
    let mut exchange = shown.exchange();
    assert!((&mut exchange).now_or_never().is_none(), "UNALIGNED2: the merge ends first");
    let mut late = device.write(700, arena.copy(&[8; 50]), Durability::Volatile);
    block_on(&mut ragged).expect("written");
    let alone = block_on(exchange);
    assert!((&mut late).now_or_never().is_none(), "UNALIGNED2: a merge that came later begins later");
    let whole = device.write(2048, arena.copy(&[7; 512]), Durability::Volatile);
    block_on(whole).expect("UNALIGNED2: changes of whole blocks go on");
    blocks.content.borrow_mut()[..1024].fill(2);
    drop(alone);
    block_on(late).expect("written");
    let content = blocks.content.borrow();
    assert_eq!(
        (content[512], content[700], content[2048]),
        (2, 8, 7),
        "UNALIGNED2: what is merged is what is shown"
    );
}

/// Answers each request on the thread that asks.
struct Answers;

impl Submit for Answers {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        done(if matches!(io, Io::Flush) { Ok(Buffer::empty()) } else { Err(IoError::Unsupported) });
    }
    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        done(Ok(vec![StatusRun { length: extent.length, allocation: Allocation::Hole }]));
    }
}

#[test]
fn a_portal_sends_each_request_and_calls_back_with_its_answer() {
    let portal = Portal::new(Shape::new(8192, 512), Arc::new(Answers));
    let (answers, answered) = channel();
    let sender = answers.clone();
    portal.submit(Io::Flush, move |outcome| sender.send(outcome.map(|_| 0)).expect("it listens"));
    let length = |runs: Vec<StatusRun>| runs.iter().map(|run| run.length).sum();
    portal.status(Extent::new(512, 1024), move |runs| {
        answers.send(runs.map(length)).expect("it listens");
    });
    assert_eq!(answered.iter().collect::<Vec<Result<u64, IoError>>>(), [Ok(0), Ok(1024)]);
}

/// Tasks that were handed over and not run yet.
#[derive(Default)]
struct Handed(RefCell<Vec<LocalFuture<'static, ()>>>);

impl Spawn for Handed {
    fn spawn(&self, task: LocalFuture<'static, ()>) {
        self.0.borrow_mut().push(task);
    }
}

#[test]
fn a_spawner_hands_each_task_to_the_executor() {
    let (handed, ran) = (Rc::new(Handed::default()), Rc::new(Cell::new(0)));
    let spawner = Spawner::new(Rc::clone(&handed) as Rc<dyn Spawn>);
    for _ in 0..2 {
        let ran = Rc::clone(&ran);
        spawner.spawn(async move { ran.set(ran.get() + 1) });
    }
    block_on(join_all(handed.0.take()));
    assert_eq!(ran.get(), 2);
}
