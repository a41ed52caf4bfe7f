//! Arrays beside one raw member: members that are made slow, so that the array and not this machine's one disk is measured, and
//! members that do nothing, to see what the processor does.
//!
//! In each round a raw member and the array are measured one right after the other under the same load.

use crate::machine::{Machine, file_system};
use crate::nothing::nothing;
use crate::options::{Medium, Options};
use crate::place::Place;
use crate::results::{ArrayPart, ArrayRow, ProcessorRow};
use crate::sheet::Sheet;
use crate::watch::Watch;
use futures_util::FutureExt;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use varve_block::{Arena, Clock, Device, Durability, Extent, KIB, MIB};
use varve_os::{
    CacheMode, DiskFile, DiskOptions, ShardContext, Shards, ShardsConfig, ThrottleOptions, Throttled,
};
use varve_sim::{Direction, Load, ModelDisk, Order, Random, World, measure as run};
use varve_target::Linear;
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, METADATA_SIZE_MIN, Member, ReadPolicy, Uuid,
};

/// Bytes of each array.
const SIZE: u64 = 96 * MIB;
/// What a member is like.
const MEMBER: ThrottleOptions = ThrottleOptions {
    bandwidth: 100_000_000,
    latency: Duration::from_micros(100),
    latency_flush: Duration::from_micros(100),
};
/// The arrays.
pub(super) const MIRROR: ArrayLayout = ArrayLayout::Mirror { copies: 2 };
pub(super) const ORDER_1: ArrayLayout = ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB };
const ORDER_2: ArrayLayout = ArrayLayout::Ddraid { order: 2, block_size: 4 * KIB };

/// What state an array is in when it is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its regions were written, and are dirty.
    Warm,
    /// No region was ever written.
    Cold,
    /// As warm, and its first member is away.
    Degraded,
}

/// One row of the table.
#[derive(Clone, Copy)]
struct Case {
    layout: ArrayLayout,
    policy: ReadPolicy,
    state: State,
    load: Load,
    goal: Option<f64>,
}

impl Case {
    const fn new(layout: ArrayLayout, policy: ReadPolicy, load: Load, goal: f64) -> Self {
        Self { layout, policy, state: State::Warm, load, goal: Some(goal) }
    }

    fn array_name(&self) -> String {
        let layout = layout_name(self.layout);
        let state = match self.state {
            State::Warm => "",
            State::Cold => ", regions cold",
            State::Degraded => ", a member away",
        };
        format!("{layout}, {}{state}", format!("{:?}", self.policy).to_lowercase())
    }

    fn load_name(&self) -> String {
        let Load { direction, order, request_bytes, depth, .. } = self.load;
        let verb = if direction == Direction::Read { "reads" } else { "writes" };
        let order = if order == Order::Sequential { "sequential" } else { "random" };
        format!("{order} {verb} of {} KiB QD{depth}", request_bytes / KIB)
    }
}

fn load(direction: Direction, order: Order, kib: u64) -> Load {
    let request_bytes = kib * KIB;
    Load { direction, order, request_bytes, depth: 8, count: 24 * MIB / request_bytes }
}

/// All rows.
fn cases() -> Vec<Case> {
    let sequential = |direction, kib| load(direction, Order::Sequential, kib);
    let random = |direction| load(direction, Order::Random { unit: 4 * KIB }, 4);
    let (read, write) = (Direction::Read, Direction::Write);
    let mut cases = Vec::new();
    for kib in [4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let goal = if kib < 32 { 1.0 } else { 1.9 };
        cases.push(Case::new(ORDER_1, ReadPolicy::Verify, sequential(write, kib), goal));
    }
    for kib in [4, 64, 1024] {
        let case = Case::new(ORDER_1, ReadPolicy::Verify, sequential(write, kib), 0.0);
        cases.push(Case { state: State::Cold, goal: None, ..case });
    }
    cases.extend([
        Case::new(ORDER_1, ReadPolicy::Verify, random(write), 0.95),
        Case::new(ORDER_1, ReadPolicy::Data, sequential(read, 1024), 1.95),
        Case::new(ORDER_1, ReadPolicy::Verify, sequential(read, 1024), 1.85),
        Case::new(ORDER_1, ReadPolicy::Rotate, sequential(read, 1024), 2.8),
        Case::new(ORDER_2, ReadPolicy::Rotate, sequential(read, 1024), 4.6),
        Case::new(ORDER_1, ReadPolicy::Rotate, random(read), 1.45),
        Case { state: State::Degraded, ..Case::new(ORDER_1, ReadPolicy::Data, sequential(read, 1024), 1.75) },
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(read, 1024), 1.9),
        Case::new(MIRROR, ReadPolicy::Rotate, random(read), 1.9),
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(write, 4), 0.97),
        Case::new(MIRROR, ReadPolicy::Rotate, sequential(write, 1024), 0.97),
    ]);
    cases
}

/// Measures all rows on members in memory; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, sheet: &mut Sheet) -> Result<(), String> {
    let parent = options.directory(Medium::Memory);
    let cases = cases();
    let row = |case: &Case| ArrayRow {
        array: case.array_name(),
        load: case.load_name(),
        goal: case.goal,
        ..ArrayRow::default()
    };
    let mut part = ArrayPart {
        description: format!(
            "members on {} behind a throttle of {} MB/s and {} us a request, arrays of {} MiB, {} rounds",
            file_system(parent),
            MEMBER.bandwidth / 1_000_000,
            MEMBER.latency.as_micros(),
            SIZE / MIB,
            options.runs()
        ),
        machine: Machine::look(),
        rows: cases.iter().map(row).collect(),
        processor: Vec::new(),
    };
    let members = ORDER_2.members() as u64;
    let place = Place::new(parent, members * (SIZE + METADATA_SIZE_MIN))?;
    let disk_options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    let open = |member: u64| {
        let path = place.file(&format!("member{member}"), SIZE + METADATA_SIZE_MIN)?;
        DiskFile::open(&path, disk_options).map_err(|error| error.to_string())
    };
    let files = (0..members).map(open).collect::<Result<Vec<_>, String>>()?;
    let shards = Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() })
        .map_err(|error| error.to_string())?;
    for round in 0..options.runs() {
        for (case, row) in cases.iter().zip(&mut part.rows) {
            let (case, files) = (*case, files.clone());
            let speeds = shards.handle(0).run_and_wait(move |context| speeds(context, files, case));
            let (array, raw) = speeds
                .map_err(|error| error.to_string())?
                .map_err(|error| format!("{}, {}: {error}", row.array, row.load))?;
            row.array_speed.push(array);
            row.raw_speed.push(raw);
        }
        processor(&mut part.processor, options.is_quick())?;
        sheet.keep(|results| results.arrays = Some(part.clone()))?;
        eprintln!("arrays: round {} of {}", round + 1, options.runs());
    }
    shards.stop();
    Ok(())
}

/// Bytes a second of the array and of one raw member.
async fn speeds(context: ShardContext, files: Vec<Arc<DiskFile>>, case: Case) -> Result<(f64, f64), String> {
    let (clock, arena) = (context.clock(), context.arena());
    let slow = |file| Device::new(Throttled::new(context.disk(file), clock.clone(), MEMBER));
    let plain: Vec<Device> = files.iter().map(|file| context.disk(file)).collect();
    let slow: Vec<Device> = files.iter().map(slow).collect();
    let member = Device::new(Linear::new(vec![(SIZE, slow[0].clone(), METADATA_SIZE_MIN)]));
    let failed = |error| format!("{error}");
    let array = build(&case, &plain, &slow, &arena, &clock).await?;
    let mut random = Random::new(7);
    let measured = run(&array.device(), &clock, &arena, &case.load, &mut random).await.map_err(failed)?;
    array.close().await.map_err(failed)?;
    let raw = run(&member, &clock, &arena, &case.load, &mut random).await.map_err(failed)?;
    Ok((measured.bytes_per_second(), raw.bytes_per_second()))
}

/// The array of `case`: made and written on the `plain` devices, and open on the `slow` ones, which are the same disks.
async fn build(
    case: &Case,
    plain: &[Device],
    slow: &[Device],
    arena: &Arena,
    clock: &Clock,
) -> Result<Rc<Array>, String> {
    let layout = case.layout;
    // Records of the array that was there before are not this one's.
    let id = Uuid::from_u128(u128::from(clock.now().0) << 64);
    let spec = ArraySpec { id, layout, size: SIZE, metadata_size: METADATA_SIZE_MIN };
    let members = |devices: &[Device]| -> Vec<Member> {
        let member = |(place, device): (usize, &Device)| Member {
            id: Uuid::from_u128(place as u128 + 2),
            device: Some(device.clone()),
        };
        devices.iter().take(layout.members()).enumerate().map(member).collect()
    };
    let options =
        ArrayOptions { read_policy: case.policy, ..ArrayOptions::new(arena.clone(), clock.clone()) };
    Array::create(&spec, &members(plain), arena).await.map_err(|error| error.to_string())?;
    if case.state != State::Cold {
        let array =
            Array::open(spec, members(plain), options.clone()).await.map_err(|error| error.to_string())?;
        fill(&array, arena, MIB).await?;
        array.close().await.map_err(|error| error.to_string())?;
    }
    let array = Array::open(spec, members(slow), options).await.map_err(|error| error.to_string())?;
    if case.state == State::Warm && case.load.direction != Direction::Read {
        fill(&array, arena, 64 * KIB).await?;
    }
    if case.state == State::Degraded {
        array.fail_member(0).await.map_err(|error| error.to_string())?;
    }
    Ok(array)
}

/// Writes the first `length` bytes of each region.
async fn fill(array: &Rc<Array>, arena: &Arena, length: u64) -> Result<(), String> {
    let device = array.device();
    let block = arena.take_zeroed(usize::try_from(length).map_err(|error| error.to_string())?).freeze();
    for (_, piece) in Extent::new(0, SIZE).pieces(MIB) {
        let written = device.write(piece.offset, block.clone(), Durability::Volatile).await;
        written.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What a GiB of writes costs the processor: of a copy in memory, of raw members that do nothing, and of arrays of such.
fn processor(rows: &mut Vec<ProcessorRow>, is_quick: bool) -> Result<(), String> {
    let world = World::steady(1);
    let arena = world.arena();
    let requests: u64 = if is_quick { 16 } else { 512 };
    let mut note = |name: &str, seconds: f64| {
        let seconds = seconds * 1024.0 / requests as f64;
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.seconds.push(seconds),
            None => rows.push(ProcessorRow { name: name.to_owned(), seconds: vec![seconds] }),
        }
    };
    let data = arena.take_zeroed(1 << 20).freeze();
    let mut copy = arena.take(1 << 20);
    let watch = Watch::start();
    (0..requests).for_each(|_| black_box(&mut copy[..]).copy_from_slice(black_box(&data[..])));
    note("memcpy", watch.seconds());
    for layout in [MIRROR, ORDER_1, ORDER_2] {
        let device = on_nothing(&world, layout, ReadPolicy::Data)?;
        let watch = Watch::start();
        for request in 0..requests {
            let written = device.write(request % (SIZE / MIB) * MIB, data.clone(), Durability::Volatile);
            let written =
                black_box(written).now_or_never().ok_or("a member that does nothing is waited for")?;
            written.map_err(|error| error.to_string())?;
        }
        note(&layout_name(layout), watch.seconds());
    }
    Ok(())
}

/// A warm array on members of `world` that keep their metadata, and of the data nothing.
pub(super) fn on_nothing(world: &World, layout: ArrayLayout, policy: ReadPolicy) -> Result<Device, String> {
    let case = Case::new(layout, policy, load(Direction::Write, Order::Sequential, 1024), 0.0);
    let member = || {
        let metadata = ModelDisk::new(METADATA_SIZE_MIN).device(world);
        Device::new(Linear::new(vec![(METADATA_SIZE_MIN, metadata, 0), (SIZE, nothing(SIZE, 512), 0)]))
    };
    let members: Vec<Device> = (0..layout.members()).map(|_| member()).collect();
    Ok(world.run(build(&case, &members, &members, &world.arena(), &world.clock()))?.device())
}

fn layout_name(layout: ArrayLayout) -> String {
    match layout {
        ArrayLayout::Mirror { copies } => format!("mirror of {copies}"),
        ArrayLayout::Ddraid { order, .. } => format!("ddraid {}+1", 1 << order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_measured_for_each_layout() {
        let mut rows = Vec::new();
        processor(&mut rows, true).expect("nothing is waited for");
        processor(&mut rows, true).expect("nothing is waited for");
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["memcpy", "mirror of 2", "ddraid 2+1", "ddraid 4+1"]);
        assert!(rows.iter().all(|row| row.seconds.len() == 2 && row.seconds.iter().all(|it| *it > 0.0)));
    }
}
