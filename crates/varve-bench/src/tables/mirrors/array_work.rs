//! What arrays do beside requests: rebuild, move, convert, and how little a client notices of it. In virtual time, on throttled
//! members, so the figures are exact and the same on every machine; what the processor does takes no time there. At last, in real
//! time, what it costs to copy fragments instead of writing them from where they lie.

use super::array_cases::{Case, MIRROR, ORDER_1, SIZE, layout_name, load};
use super::arrays::{MEMBER, build, members, throttled};
use super::{array_files, array_ratios};
use crate::memory::memory;
use crate::prelude::*;
use futures_util::future::{join, join_all};
use std::fs::File;
use std::io::IoSlice;
use varve_sim::{Direction, Order, Random, World};
use varve_target::Linear;
use varve_target::array::{Array, ArrayLayout, METADATA_SIZE_MIN, Member, MemberState, ReadPolicy, Uuid};
use varve_target::moving::Move;

/// Share of a member's bandwidth that a rebuild or a move of idle data has at least.
const IDLE_GOAL: Goal = Goal::AtLeast(0.95);
/// What the 99th percentile of a client's requests may be beside a rebuild, over that without.
const BESIDE_GOAL: Goal = Goal::AtMost(1.5);
/// Bytes of a client's request beside a rebuild.
const REQUEST: u64 = 16 * KIB;
/// Bytes of a record of the log, but for what is written.
const RECORD: u64 = 4 * KIB;
/// Requests of a client.
const REQUESTS: u64 = 6000;
/// Bytes that the daemon has copied at a time.
const BATCH: u64 = 8 * MIB;

/// Measures all of it.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let mut part = Part::exact("array work", "virtual time", format!("members in memory {}", members()));
    for layout in [MIRROR, ORDER_1] {
        let name = layout_name(layout);
        let share = rebuild_share(layout)?;
        let name = format!("{name}, rebuild of a member, idle, share of its bandwidth");
        part.record(name, "x", IDLE_GOAL, share);
        for client in clients(layout) {
            let (quiet, beside) = (p99(&client, false)?, p99(&client, true)?);
            part.note(format!("{}: p99 alone", client.name), "us", quiet);
            let name = format!("{}: p99 during a rebuild, over that", client.name);
            part.record(name, "x", BESIDE_GOAL, beside / quiet);
        }
    }
    let (share, _) = moved(None)?;
    let name = "pv move of a run between two disks, idle, share of a disk's bandwidth";
    part.record(name, "x", IDLE_GOAL, share);
    for layout in [MIRROR, ORDER_1] {
        let (share, rate) = moved(Some(layout))?;
        let name = format!("conversion of a linear volume to a {}", layout_name(layout));
        part.record(format!("{name}, share of a disk's bandwidth"), "x", IDLE_GOAL, share);
        part.note(&name, "MiB/s", rate / MIB as f64);
    }
    array_ratios::measure(&mut part)?;
    sheet.keep(&part)?;
    let description = "the processor, and files on ext4, on files in memory";
    let mut part = Part::new("array work", "real time", description);
    if options.wants("files") {
        array_files::measure(options, &mut part)?;
    }
    for _ in (0..options.runs()).filter(|_| options.wants("work")) {
        vectors(options, &mut part)?;
    }
    if part.records.is_empty() { Ok(()) } else { sheet.keep(&part) }
}

/// A world with throttled members, and a warm array on them.
struct Bed {
    world: World,
    disks: Vec<Device>,
    array: Rc<Array>,
}

impl Bed {
    fn new(layout: ArrayLayout) -> Outcome<Self> {
        let world = World::steady(1);
        let case = Case::new(layout, ReadPolicy::Data, load(Direction::Read, Order::Sequential, 1024), 0.0);
        let size = SIZE + case.metadata_size();
        // One more, to take the place of a member.
        let disks: Vec<Device> = (0..=layout.members()).map(|_| memory(size)).collect();
        let (clock, arena) = (world.clock(), world.arena());
        let slow: Vec<Device> = disks.iter().map(|disk| throttled(disk, &clock)).collect();
        let array = world.run(build(&case, &disks, &slow, &arena, &clock))?;
        Ok(Self { world, disks: slow, array })
    }

    /// A new disk takes the place of a member that is away.
    async fn attach(&self, place: usize) -> Outcome<()> {
        let member = Member { id: Uuid::from_u128(99), device: self.disks.last().cloned() };
        self.array.attach(place, member).await.map_err(Failed::from)
    }

    async fn rebuilt(&self) {
        while self.array.status().members.iter().any(|member| member.state != MemberState::InSync) {
            self.array.changed(self.array.changes()).await;
        }
    }
}

/// Bytes of a member a second of its rebuild, over its bandwidth.
fn rebuild_share(layout: ArrayLayout) -> Outcome<f64> {
    let bed = Bed::new(layout)?;
    let clock = bed.world.clock();
    let work = async {
        bed.array.fail_member(0).await?;
        bed.attach(0).await?;
        let start = clock.now();
        bed.rebuilt().await;
        let time = clock.now().since(start);
        bed.array.close().await?;
        Ok::<_, Failed>(layout.on_members(Extent::new(0, SIZE)).length as f64 / time.as_secs_f64())
    };
    let (rate, ()) = bed.world.run(async { join(work, bed.array.background()).await });
    Ok(rate? / MEMBER.bandwidth as f64)
}

/// A client beside a rebuild.
struct Client {
    name: String,
    layout: ArrayLayout,
    direction: Direction,
    /// The mean time from one request to the next.
    interval: Duration,
    /// The member that is rebuilt.
    place: usize,
    /// Whether it is away when nothing is rebuilt.
    is_away: bool,
}

/// The clients of an array of `layout`. While a data member of ddraid is away or rebuilt, two of the others take what is written once more,
/// whole, in their log: of half of a member's bandwidth more comes to them then than they take, however slow the rebuild is.
fn clients(layout: ArrayLayout) -> Vec<Client> {
    // Of an array that stripes a member has a part of each request.
    let on_member = layout.on_members(Extent::new(0, REQUEST)).length;
    let half = |bytes: u64| Duration::from_secs_f64(bytes as f64 / (MEMBER.bandwidth as f64 / 2.0));
    let client = |direction, what: &str| {
        let verb = if direction == Direction::Read { "reads" } else { "writes" };
        Client {
            name: format!("{}, random {verb} of 16 KiB at half of {what}", layout_name(layout)),
            layout,
            direction,
            interval: half(on_member),
            place: 0,
            is_away: false,
        }
    };
    let mut clients =
        Vec::from([Direction::Read, Direction::Write].map(|it| client(it, "a member's bandwidth")));
    if layout == ORDER_1 {
        let parity = client(Direction::Write, "a member's bandwidth (the member of the parity)");
        let away = client(Direction::Write, "what an array without a data member takes");
        clients.push(Client { place: layout.members() - 1, ..parity });
        clients.push(Client { interval: half(on_member + REQUEST + RECORD), is_away: true, ..away });
    }
    clients
}

/// The 99th percentile in microseconds of a client's requests, which come at random moments.
fn p99(client: &Client, beside_rebuild: bool) -> Outcome<f64> {
    let bed = Bed::new(client.layout)?;
    let (clock, arena) = (bed.world.clock(), bed.world.arena());
    let (interval, direction) = (client.interval, client.direction);
    let device = bed.array.device();
    let mut random = Random::new(11);
    let mut due = Duration::ZERO;
    let times: Vec<(Duration, u64)> = (0..REQUESTS)
        .map(|_| {
            // Of arrivals at random the gaps are distributed exponentially.
            let uniform = (random.below(1 << 32) as f64 + 1.0) / (1u64 << 32) as f64;
            due += interval.mul_f64(-uniform.ln());
            (due, random.below(SIZE / REQUEST) * REQUEST)
        })
        .collect();
    let work = async {
        if beside_rebuild || client.is_away {
            bed.array.fail_member(client.place).await?;
        }
        if beside_rebuild {
            bed.attach(client.place).await?;
        }
        let start = clock.now();
        let request = async |(due, offset): (Duration, u64)| {
            let begun = start.after(due);
            clock.sleep_until(begun).await;
            let length = REQUEST as usize;
            let outcome = match direction {
                Direction::Read => device.read(offset, arena.take(length)).await.map(drop),
                _ => {
                    let data = arena.take_zeroed(length).freeze();
                    device.write(offset, data, Durability::Volatile).await.map(drop)
                }
            };
            outcome.map(|()| clock.now().since(begun).as_secs_f64() * 1e6)
        };
        let outcomes = join_all(times.into_iter().map(request)).await;
        let is_rebuilding = bed.array.status().members.iter().any(|it| it.state == MemberState::CatchingUp);
        bed.array.close().await?;
        if is_rebuilding != beside_rebuild {
            return Err("the rebuild ended before the load".into());
        }
        outcomes.into_iter().collect::<Result<Vec<f64>, _>>().map_err(Failed::from)
    };
    let (latencies, ()) = bed.world.run(async { join(work, bed.array.background()).await });
    Ok(percentile(&latencies?, 0.99))
}

/// The share of a disk's bandwidth, and the bytes a second, with which a linear run goes to another disk, or to an array.
fn moved(layout: Option<ArrayLayout>) -> Outcome<(f64, f64)> {
    let world = World::steady(1);
    let (clock, arena): (Clock, _) = (world.clock(), world.arena());
    let size = SIZE + METADATA_SIZE_MIN;
    let plain = memory(size);
    let fill = async {
        let mut block = arena.take(MIB as usize);
        block.fill(0x5a);
        let block = block.freeze();
        for (_, piece) in Extent::new(0, SIZE).pieces(MIB) {
            plain.write(piece.offset, block.clone(), Durability::Volatile).await?;
        }
        Ok::<_, Failed>(())
    };
    world.run(fill)?;
    let old = throttled(&plain, &clock);
    let bed = layout.map(|layout| {
        let case = Case::new(layout, ReadPolicy::Data, load(Direction::Read, Order::Sequential, 1024), 0.0);
        let disks: Vec<Device> = (0..layout.members()).map(|_| memory(size)).collect();
        let slow: Vec<Device> = disks.iter().map(|disk| throttled(disk, &clock)).collect();
        world.run(build(&case, &disks, &slow, &arena, &clock))
    });
    let array = bed.transpose()?;
    let new = match &array {
        Some(array) => array.device(),
        None => throttled(&memory(size), &clock),
    };
    // What is moved has no larger blocks than the new place, as a volume whose door accepts unaligned requests.
    let old = Device::new(Linear::new(vec![(SIZE, old, 0)]));
    let moved = Move::new(&old, Extent::new(0, SIZE), &new, 0);
    let copy = async {
        let start = clock.now();
        while moved.left() > 0 {
            moved.copy(&arena, BATCH).await.map_err(|error| format!("{error:?}"))?;
        }
        moved.prepare().await.map_err(|error| format!("{error:?}"))?;
        Ok::<_, Failed>(SIZE as f64 / clock.now().since(start).as_secs_f64())
    };
    let rate = world.run(copy)?;
    Ok((rate / MEMBER.bandwidth as f64, rate))
}

/// A write of 1 MiB to the first of two members, of which it has every second fragment: from where the fragments lie, and copied
/// together first.
fn vectors(options: &Options, part: &mut Part) -> Outcome<()> {
    let complain = |error: std::io::Error| format!("a file in memory: {error}");
    let file = tempfile::tempfile_in(options.directory(Medium::Memory)).map_err(complain)?;
    let data = vec![0x5a_u8; 1 << 20];
    let count: u32 = if options.is_quick() { 20 } else { 400 };
    for fragment in [2_usize, 32] {
        let fragments = || data.chunks_exact(fragment << 10).step_by(2);
        let vectored = timed(count, || {
            let slices: Vec<IoSlice<'_>> = fragments().map(IoSlice::new).collect();
            write_all(&file, &slices)
        })?;
        let copied = timed(count, || {
            let mut copy: Vec<u8> = Vec::with_capacity(data.len() / 2);
            fragments().for_each(|fragment| copy.extend_from_slice(fragment));
            write_all(&file, &[IoSlice::new(&copy)])
        })?;
        let name = format!("a member's half of 1 MiB in fragments of {fragment} KiB");
        part.note(format!("{name}, copied together and written"), "us", copied);
        part.note(format!("{name}, written from where they lie, over that"), "x", vectored / copied);
    }
    Ok(())
}

fn write_all(file: &File, slices: &[IoSlice<'_>]) -> Outcome<()> {
    let length: usize = slices.iter().map(|slice| slice.len()).sum();
    let written = rustix::io::pwritev(file, slices, 0)?;
    if written == length { Ok(()) } else { Err(format!("{written} of {length} bytes were written").into()) }
}

/// Microseconds of one of `count` calls.
fn timed(count: u32, mut call: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    call()?;
    let watch = Watch::start();
    (0..count).try_for_each(|_| call())?;
    Ok(watch.seconds() * 1e6 / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_notices_little_of_a_rebuild() {
        // Writes of ddraid wait for the log while a data member is rebuilt, and miss the goal (0134).
        let is_judged = |client: &Client| client.direction == Direction::Read || client.layout == MIRROR;
        for client in [MIRROR, ORDER_1].into_iter().flat_map(clients).filter(is_judged) {
            let alone = p99(&client, false).expect("it is served");
            let beside = p99(&client, true).expect("it is served");
            eprintln!("{}: {alone:.0} us alone, {:.3} x beside a rebuild", client.name, beside / alone);
            assert!(BESIDE_GOAL.holds(beside / alone, 3), "{}: {}", client.name, beside / alone);
        }
    }

    #[test]
    fn a_rebuild_and_a_move_have_nearly_all_of_a_member() {
        for layout in [MIRROR, ORDER_1] {
            let share = rebuild_share(layout).expect("it is rebuilt");
            assert!(share >= 0.95, "{}: {share}", layout_name(layout));
        }
        for layout in [None, Some(MIRROR), Some(ORDER_1)] {
            let (share, _) = moved(layout).expect("it is moved");
            eprintln!("a move to {layout:?}: {share:.3}");
            assert!(IDLE_GOAL.holds(share, 3), "a move to {layout:?}: {share}");
        }
    }
}
