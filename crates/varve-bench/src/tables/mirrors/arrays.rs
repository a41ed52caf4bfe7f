//! Arrays beside one raw member: members that are made slow, so that the array and not this machine's one disk is measured, and
//! members that do nothing, to see what the processor does.
//!
//! In each round a raw member and the array are measured one right after the other under the same load.

use super::array_cases::{Case, LogUse, MIRROR, ORDER_1, ORDER_2, SIZE, State, cases, layout_name, load};
use crate::machine::{Machine, file_system};
use crate::memory::memory;
use crate::nothing::nothing;
use crate::options::{Medium, Options};
use crate::programs::cpu;
use crate::programs::place::Place;
use crate::report::sheet::Sheet;
use crate::results::{ArrayPart, ArrayRow, ProcessorRow};
use futures_util::FutureExt;
use futures_util::future::join;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use varve_block::{Arena, Clock, Device, Durability, Extent, KIB, MIB};
use varve_os::{
    CacheMode, DiskFile, DiskOptions, ShardContext, Shards, ShardsConfig, ThrottleOptions, Throttled,
};
use varve_sim::{Direction, ModelDisk, Order, Random, World, measure as run};
use varve_target::Linear;
use varve_target::array::{
    Array, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, METADATA_SIZE_MIN, Member, ReadPolicy, Uuid,
};

/// What a member is like.
pub(in crate::tables) const MEMBER: ThrottleOptions = ThrottleOptions {
    bandwidth: 100_000_000,
    latency: Duration::from_micros(100),
    latency_flush: Duration::from_micros(100),
};
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
    for (case, row) in cases.iter().zip(&mut part.rows).filter(|(case, _)| case.is_slow) {
        row.exact = Some(exact(case).map_err(|error| format!("{}, {}: {error}", row.array, row.load))?);
    }
    if !options.wants("loads") {
        // Speeds in real time stay what they were, and so do the machine and the day.
        if let Some(old) = sheet.results().arrays.clone() {
            part = with_speeds_of(part, old);
        }
    }
    for (_, row) in cases.iter().zip(&mut part.rows).filter(|(case, _)| is_wanted(options, case)) {
        (row.array_speed, row.raw_speed) = (Vec::new(), Vec::new());
    }
    match ["loads", "unthrottled"].iter().any(|rows| options.wants(rows)) {
        true => in_real_time(options, &cases, &mut part, sheet),
        false => sheet.keep(|results| results.arrays = Some(part)),
    }
}

/// Whether the speeds of `case` are measured in real time.
fn is_wanted(options: &Options, case: &Case) -> bool {
    case.is_real && options.wants(if case.is_slow { "loads" } else { "unthrottled" })
}

/// Measures the rows that are wanted on files in memory.
fn in_real_time(
    options: &Options,
    cases: &[Case],
    part: &mut ArrayPart,
    sheet: &mut Sheet,
) -> Result<(), String> {
    let members = ORDER_2.members() as u64;
    let place = Place::new(options.directory(Medium::Memory), members * (SIZE + METADATA_SIZE_MIN))?;
    let disk_options = DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() };
    let open = |member: u64| {
        let path = place.file(&format!("member{member}"), SIZE + METADATA_SIZE_MIN)?;
        DiskFile::open(&path, disk_options).map_err(|error| error.to_string())
    };
    let files = (0..members).map(open).collect::<Result<Vec<_>, String>>()?;
    let shards = Shards::start(&ShardsConfig { count: 1, ..ShardsConfig::default() })
        .map_err(|error| error.to_string())?;
    for round in 0..options.runs() {
        for (case, row) in cases.iter().zip(&mut part.rows).filter(|(case, _)| is_wanted(options, case)) {
            let (case, files) = (*case, files.clone());
            let speeds = shards.handle(0).run_and_wait(move |context| speeds(context, files, case));
            let (array, raw) = speeds
                .map_err(|error| error.to_string())?
                .map_err(|error| format!("{}, {}: {error}", row.array, row.load))?;
            row.array_speed.push(array);
            row.raw_speed.push(raw);
        }
        if options.wants("loads") {
            processor(&mut part.processor, options.is_quick())?;
        }
        sheet.keep(|results| results.arrays = Some(part.clone()))?;
        eprintln!("arrays: round {} of {}", round + 1, options.runs());
    }
    shards.stop();
    Ok(())
}

/// `part` with the speeds in real time that `old` has.
fn with_speeds_of(part: ArrayPart, mut old: ArrayPart) -> ArrayPart {
    let rows = part.rows.into_iter().map(|row| {
        match old.rows.iter_mut().find(|old| (&old.array, &old.load) == (&row.array, &row.load)) {
            Some(old) => ArrayRow { exact: row.exact, goal: row.goal, ..std::mem::take(old) },
            None => row,
        }
    });
    ArrayPart { rows: rows.collect(), ..old }
}

/// Bytes a second of the array and of one raw member.
async fn speeds(context: ShardContext, files: Vec<Arc<DiskFile>>, case: Case) -> Result<(f64, f64), String> {
    let plain: Vec<Device> = files.iter().map(|file| context.disk(file)).collect();
    measure_case(&plain, &context.clock(), &context.arena(), &case).await
}

/// As [`speeds`], as a ratio and in virtual time: the throttle is all that takes any.
pub(in crate::tables) fn exact(case: &Case) -> Result<f64, String> {
    let world = World::steady(1);
    let size = SIZE + case.metadata_size();
    let devices = case.layout.members() + usize::from(case.log_disk);
    let plain: Vec<Device> = (0..devices).map(|_| memory(size)).collect();
    let (array, raw) = world.run(measure_case(&plain, &world.clock(), &world.arena(), case))?;
    Ok(array / raw)
}

async fn measure_case(
    plain: &[Device],
    clock: &Clock,
    arena: &Arena,
    case: &Case,
) -> Result<(f64, f64), String> {
    let slow = |disk: &Device| if case.is_slow { throttled(disk, clock) } else { disk.clone() };
    let slow: Vec<Device> = plain.iter().map(slow).collect();
    let member = Device::new(Linear::new(vec![(SIZE, slow[0].clone(), METADATA_SIZE_MIN)]));
    let failed = |error| format!("{error}");
    let array = build(case, plain, &slow, arena, clock).await?;
    let device = array.device();
    let background = async {
        if matches!(case.log, LogUse::Released(_)) {
            array.background().await;
        }
    };
    let load = async {
        let measured = run(&device, clock, arena, &case.load, &mut Random::new(7)).await;
        (measured, array.close().await)
    };
    let ((measured, closed), ()) = join(load, background).await;
    let measured = measured.map_err(failed)?;
    closed.map_err(failed)?;
    let raw = run(&member, clock, arena, &case.load, &mut Random::new(7)).await.map_err(failed)?;
    Ok((measured.bytes_per_second(), raw.bytes_per_second()))
}

/// `disk` as a member is.
pub(in crate::tables) fn throttled(disk: &Device, clock: &Clock) -> Device {
    Device::new(Throttled::new(disk.clone(), clock.clone(), MEMBER))
}

/// The array of `case`: made and written on the `plain` devices, and open on the `slow` ones, which are the same disks.
pub(in crate::tables) async fn build(
    case: &Case,
    plain: &[Device],
    slow: &[Device],
    arena: &Arena,
    clock: &Clock,
) -> Result<Rc<Array>, String> {
    let layout = case.layout;
    // Records of the array that was there before are not this one's.
    let id = Uuid::from_u128(u128::from(clock.now().0) << 64);
    let spec =
        ArraySpec { id, layout, size: SIZE, metadata_size: case.metadata_size(), checksums: case.checksums };
    let members = |devices: &[Device]| -> Vec<Member> {
        let member = |(place, device): (usize, &Device)| Member {
            id: Uuid::from_u128(place as u128 + 2),
            device: Some(device.clone()),
        };
        devices.iter().take(layout.members()).enumerate().map(member).collect()
    };
    let mut options =
        ArrayOptions { read_policy: case.policy, ..ArrayOptions::new(arena.clone(), clock.clone()) };
    match case.log {
        LogUse::Warm => {}
        LogUse::Released(after) => options.release_delay = after,
        LogUse::Off => options.injected_bug = Some(InjectedBug::WriteBeforeMark),
    }
    let log_disk = |devices: &[Device]| {
        let device = devices.get(layout.members()).filter(|_| case.log_disk)?;
        Some(Member { id: Uuid::from_u128(100), device: Some(device.clone()) })
    };
    Array::create(&spec, &members(plain), arena).await.map_err(|error| error.to_string())?;
    if case.state != State::Cold {
        let array =
            Array::open(spec, members(plain), options.clone()).await.map_err(|error| error.to_string())?;
        fill(&array, arena, MIB).await?;
        array.close().await.map_err(|error| error.to_string())?;
    }
    options.log_disk = log_disk(slow);
    let array = Array::open(spec, members(slow), options).await.map_err(|error| error.to_string())?;
    if case.state == State::Degraded {
        array.fail_member(0).await.map_err(|error| error.to_string())?;
    }
    if case.state == State::WithoutParity {
        let parity = layout.members() - 1;
        array.fail_member(parity).await.map_err(|error| error.to_string())?;
    }
    if matches!(case.state, State::Warm | State::WithoutParity) && case.load.direction != Direction::Read {
        fill(&array, arena, 64 * KIB).await?;
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
pub(in crate::tables) fn processor(rows: &mut Vec<ProcessorRow>, is_quick: bool) -> Result<(), String> {
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
    let start = cpu::thread_seconds();
    (0..requests).for_each(|_| black_box(&mut copy[..]).copy_from_slice(black_box(&data[..])));
    note("memcpy", cpu::thread_seconds() - start);
    let layouts = [MIRROR, ORDER_1, ORDER_2];
    for (layout, checksums) in layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let device = on_nothing(&world, layout, ReadPolicy::Data, checksums)?;
        let start = cpu::thread_seconds();
        for request in 0..requests {
            let written = device.write(request % (SIZE / MIB) * MIB, data.clone(), Durability::Volatile);
            let written =
                black_box(written).now_or_never().ok_or("a member that does nothing is waited for")?;
            written.map_err(|error| error.to_string())?;
        }
        note(
            &format!("{}{}", layout_name(layout), if checksums { ", checksums" } else { "" }),
            cpu::thread_seconds() - start,
        );
    }
    Ok(())
}

/// A warm array on members of `world` that keep their metadata, and of the data nothing.
pub(in crate::tables) fn on_nothing(
    world: &World,
    layout: ArrayLayout,
    policy: ReadPolicy,
    checksums: bool,
) -> Result<Device, String> {
    let load = load(Direction::Write, Order::Sequential, 1024);
    let case = Case { checksums, ..Case::new(layout, policy, load, 0.0) };
    let size = case.metadata_size();
    let member = || {
        let metadata = ModelDisk::new(size).device(world);
        Device::new(Linear::new(vec![(size, metadata, 0), (SIZE, nothing(SIZE, 512), 0)]))
    };
    let members: Vec<Device> = (0..layout.members()).map(|_| member()).collect();
    Ok(world.run(build(&case, &members, &members, &world.arena(), &world.clock()))?.device())
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
        assert_eq!(
            names,
            [
                "memcpy",
                "mirror of 2",
                "mirror of 2, checksums",
                "ddraid 2+1",
                "ddraid 2+1, checksums",
                "ddraid 4+1",
                "ddraid 4+1, checksums",
            ]
        );
        assert!(rows.iter().all(|row| row.seconds.len() == 2 && row.seconds.iter().all(|it| *it > 0.0)));
    }
}
