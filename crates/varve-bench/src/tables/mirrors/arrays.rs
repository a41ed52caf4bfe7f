//! Arrays beside one raw member: members that are made slow, so that the array and not this machine's one disk is measured, and
//! members that do nothing, to see what the processor does.
//!
//! In each round a raw member and the array are measured one right after the other under the same load.

use super::array_cases::{Case, LogUse, MIRROR, ORDER_1, ORDER_2, SIZE, State, cases, layout_name, load};
use crate::memory::memory;
use crate::nothing::nothing;
use crate::prelude::*;
use crate::programs::cpu;
use futures_util::FutureExt;
use futures_util::future::join;
use std::hint::black_box;
use varve_os::{ThrottleOptions, Throttled};
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
/// Measures all rows, in virtual time and in real time; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let mut part = Part::exact("exact arrays", "virtual time", format!("members in memory {}", members()));
    for case in cases().iter().filter(|case| case.is_slow) {
        let ratio = exact(case).of(case.name())?;
        part.record(case.name(), "x", case.goal.map(Goal::AtLeast), ratio);
    }
    sheet.keep(&part)?;
    if ["loads", "unthrottled"].iter().any(|rows| options.wants(rows)) {
        in_real_time(options, sheet)?;
    }
    Ok(())
}

/// What members and arrays are like, in words.
pub(in crate::tables) fn members() -> String {
    let (speed, latency) = (MEMBER.bandwidth / 1_000_000, MEMBER.latency.as_micros());
    format!("behind a throttle of {speed} MB/s and {latency} us a request, arrays of {} MiB", SIZE / MIB)
}

/// Whether the speeds of `case` are measured in real time.
fn is_wanted(options: &Options, case: &Case) -> bool {
    case.is_real && options.wants(if case.is_slow { "loads" } else { "unthrottled" })
}

/// Measures the rows that are wanted on files in memory.
fn in_real_time(options: &Options, sheet: &mut Sheet) -> Outcome<()> {
    let directory = file_system(options.directory(Medium::Memory));
    let description = format!("members on {directory} {}, {} rounds", members(), options.runs());
    let mut part = Part::new("arrays", "real time", description);
    let mut work = Part::new("processor", "one core", format!("{} rounds", options.runs()));
    let members = ORDER_2.members() as u64;
    let place = Place::new(options.directory(Medium::Memory), members * (SIZE + METADATA_SIZE_MIN))?;
    let member = |member: u64| {
        open(&place.file(&format!("member{member}"), SIZE + METADATA_SIZE_MIN)?, Medium::Memory)
    };
    let files = (0..members).map(member).collect::<Outcome<Vec<_>>>()?;
    let shard = Shard::start()?;
    for _ in 0..options.runs() {
        for case in cases().into_iter().filter(|case| is_wanted(options, case)) {
            let (name, files) = (case.name(), files.clone());
            let (array, raw) = shard.run(move |context| speeds(context, files, case)).of(&name)?;
            part.at(&name, "member", "MiB/s").push(raw / MIB as f64);
            let record = part.at(&name, "array", "MiB/s").over("member");
            record.goal(case.goal.map(Goal::AtLeast)).push(array / MIB as f64);
        }
        sheet.keep(&part)?;
        if options.wants("loads") {
            processor(&mut work, options.is_quick())?;
            sheet.keep(&work)?;
        }
    }
    Ok(())
}

/// Bytes a second of the array and of one raw member.
async fn speeds(context: ShardContext, files: Vec<Arc<DiskFile>>, case: Case) -> Outcome<(f64, f64)> {
    let plain: Vec<Device> = files.iter().map(|file| context.disk(file)).collect();
    measure_case(&plain, &context.clock(), &context.arena(), &case).await
}

/// As [`speeds`], as a ratio and in virtual time: the throttle is all that takes any.
pub(in crate::tables) fn exact(case: &Case) -> Outcome<f64> {
    let world = World::steady(1);
    let size = SIZE + case.metadata_size();
    let devices = case.layout.members() + usize::from(case.log_disk);
    let plain: Vec<Device> = (0..devices).map(|_| memory(size)).collect();
    let (array, raw) = world.run(measure_case(&plain, &world.clock(), &world.arena(), case))?;
    Ok(array / raw)
}

async fn measure_case(plain: &[Device], clock: &Clock, arena: &Arena, case: &Case) -> Outcome<(f64, f64)> {
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
) -> Outcome<Rc<Array>> {
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
    Array::create(&spec, &members(plain), arena).await?;
    if case.state != State::Cold {
        let array = Array::open(spec, members(plain), options.clone()).await?;
        fill(&array, arena, MIB).await?;
        array.close().await?;
    }
    options.log_disk = log_disk(slow);
    let array = Array::open(spec, members(slow), options).await?;
    if case.state == State::Degraded {
        array.fail_member(0).await?;
    }
    if case.state == State::WithoutParity {
        let parity = layout.members() - 1;
        array.fail_member(parity).await?;
    }
    if matches!(case.state, State::Warm | State::WithoutParity) && case.load.direction != Direction::Read {
        fill(&array, arena, 64 * KIB).await?;
    }
    Ok(array)
}

/// Writes the first `length` bytes of each region.
async fn fill(array: &Rc<Array>, arena: &Arena, length: u64) -> Outcome<()> {
    let device = array.device();
    let block = arena.take_zeroed(usize::try_from(length)?).freeze();
    for (_, piece) in Extent::new(0, SIZE).pieces(MIB) {
        device.write(piece.offset, block.clone(), Durability::Volatile).await?;
    }
    Ok(())
}

/// What a GiB of writes costs the processor: of a copy in memory, of raw members that do nothing, and of arrays of such.
fn processor(part: &mut Part, is_quick: bool) -> Outcome<()> {
    let world = World::steady(1);
    let arena = world.arena();
    let requests: u64 = if is_quick { 16 } else { 512 };
    let mut note = |name: &str, seconds: f64| part.note(name, "ms", seconds * 1e3 * 1024.0 / requests as f64);
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
            written?;
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
) -> Outcome<Device> {
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
        let mut part = Part::default();
        processor(&mut part, true).expect("nothing is waited for");
        processor(&mut part, true).expect("nothing is waited for");
        let names: Vec<&str> = part.records.iter().map(|record| record.row.as_str()).collect();
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
        let mut rounds = part.records.iter().map(|record| &record.rounds);
        assert!(rounds.all(|rounds| rounds.len() == 2 && rounds.iter().all(|it| *it > 0.0)));
    }
}
