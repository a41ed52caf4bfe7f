//! What arrays cost beside themselves without a part of their work, and a pool on a mirror beside a plain volume: in virtual time, on
//! throttled members, so the ratios are exact.

use super::array_cases::{Case, LogUse, MIRROR, ORDER_1, ORDER_2, SIZE, State, layout_name, load};
use super::arrays::{build, exact, throttled};
use crate::memory::memory;
use crate::prelude::*;
use futures_util::future::join_all;
use varve_sim::{Direction, Load, Order, Random, World, measure as run};
use varve_target::array::{ArrayLayout, METADATA_SIZE_MIN, ReadPolicy};
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

/// What the log may cost once its regions are warm.
const LOG_GOAL: Goal = Goal::AtLeast(0.95);
/// What it may cost to check parity in reads.
const VERIFY_GOAL: Goal = Goal::AtLeast(0.95);
/// What reads have at least while a data member is away.
const DEGRADED_GOAL: Goal = Goal::AtLeast(0.9);
/// What volumes on a mirror have at least, of a plain volume on one disk.
pub(in crate::tables) const VOLUME_GOAL: Goal = Goal::AtLeast(0.9);
/// Flushes of a load that is flushed.
const BURSTS: u64 = 64;
/// Bytes of a thin volume.
pub(in crate::tables) const VOLUME: u64 = 64 * MIB;

/// Measures all of them.
pub(in crate::tables) fn measure(part: &mut Part) -> Outcome<()> {
    let mut ratio = |name: &str, goal: Goal, case: &Case, other: &Case| {
        let value = exact(case)? / exact(other)?;
        part.record(name, "x", goal, value);
        Ok::<_, Failed>(())
    };
    for kib in [4, 16, 64, 256, 1024] {
        let writes = load(Direction::Write, Order::Sequential, kib);
        let case = Case::new(ORDER_1, ReadPolicy::Verify, writes, 0.0);
        let name = format!("{}, sequential writes of {kib} KiB QD8, regions warm", layout_name(ORDER_1));
        ratio(
            &format!("{name}: over that without a log"),
            LOG_GOAL,
            &case,
            &Case { log: LogUse::Off, ..case },
        )?;
    }
    for layout in [ORDER_1, ORDER_2] {
        let reads = load(Direction::Read, Order::Sequential, 1024);
        let data = Case::new(layout, ReadPolicy::Data, reads, 0.0);
        let name = format!("{}, sequential reads of 1 MiB QD8", layout_name(layout));
        let verify = Case { policy: ReadPolicy::Verify, ..data };
        ratio(&format!("{name}: verify, over data"), VERIFY_GOAL, &verify, &data)?;
        let degraded = Case { state: State::Degraded, ..data };
        ratio(&format!("{name}: a data member away, over data"), DEGRADED_GOAL, &degraded, &data)?;
    }
    flushes(part)?;
    volumes(part)
}

/// Writes that are flushed, on ddraid with checksums and without: a flush writes the pages of checksums of what it covers, too.
fn flushes(part: &mut Part) -> Outcome<()> {
    let at_random = |kib| load(Direction::Write, Order::Random { unit: kib * KIB }, kib);
    let in_sequence = |kib| load(Direction::Write, Order::Sequential, kib);
    for (writes, bursts) in [
        (at_random(4), [1, 16, 256]),
        (in_sequence(4), [1, 16, 256]),
        (at_random(64), [1, 4, 16]),
        (in_sequence(1024), [1, 4, 16]),
    ] {
        for burst in bursts {
            let case = Case::new(ORDER_1, ReadPolicy::Verify, writes, 0.0);
            let without = flushed(&case, burst)?;
            let with = flushed(&Case { checksums: true, ..case }, burst)?;
            let (array, writes) = (layout_name(ORDER_1), case.load_name());
            let writes = writes.trim_end_matches(&format!(" QD{}", case.load.depth));
            let name =
                format!("{array}, {writes}, a flush after every {burst}: with checksums, over without");
            part.note(&name, "x", with / without);
        }
    }
    Ok(())
}

/// Writes a second of the array of `case`, with a flush after each `burst` of writes at once.
fn flushed(case: &Case, burst: u64) -> Outcome<f64> {
    let world = World::steady(1);
    let (clock, arena) = (world.clock(), world.arena());
    let plain: Vec<Device> =
        (0..case.layout.members()).map(|_| memory(SIZE + case.metadata_size())).collect();
    let slow: Vec<Device> = plain.iter().map(|disk| throttled(disk, &clock)).collect();
    let Load { request_bytes: length, order, .. } = case.load;
    let mut random = Random::new(7);
    world.run(async {
        let array = build(case, &plain, &slow, &arena, &clock).await?;
        let device = array.device();
        let data = arena.take_zeroed(usize::try_from(length)?).freeze();
        let bursts = (SIZE / length / burst).min(BURSTS);
        device.flush().await?; // What was written before is no part of it.
        let begun = clock.now();
        for number in 0..bursts {
            let places = (0..burst).map(|write| match order {
                Order::Sequential => (number * burst + write) * length,
                Order::Random { .. } => random.below(SIZE / length) * length,
            });
            let writes = places.map(|place| device.write(place, data.clone(), Durability::Volatile));
            join_all(writes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            device.flush().await?;
        }
        let time = clock.now().since(begun);
        array.close().await?;
        Ok((bursts * burst) as f64 / time.as_secs_f64())
    })
}

/// Loads of a plain volume on one disk, of one on a mirror, and of a thin volume whose pool is on a mirror.
fn volumes(part: &mut Part) -> Outcome<()> {
    for (name, load) in volume_loads() {
        let plain = speed(&load, async |device, _, _| Ok(device), None)?;
        let mirrored = speed(&load, async |device, _, _| Ok(device), Some(MIRROR))?;
        let row = format!("volume on a mirror of 2, {name}: over one on a disk");
        part.record(row, "x", VOLUME_GOAL, mirrored / plain);
        for is_written in [false, true] {
            if !is_written && load.direction == Direction::Read {
                continue; // What was never written is not read from disks.
            }
            let thin = async |device, clock, arena| thin_volume(device, clock, arena, is_written).await;
            let thin = speed(&load, thin, Some(MIRROR))?;
            let space = if is_written { "written before" } else { "fresh space" };
            let row = format!("thin volume on a mirror of 2, {name}, {space}: over a volume on a disk");
            part.record(row, "x", VOLUME_GOAL, thin / plain);
        }
    }
    Ok(())
}

/// As dd and fio ask in published figures of thin volumes on RAID 1.
fn volume_loads() -> Vec<(String, Load)> {
    let mut loads = Vec::new();
    for (direction, verb) in [(Direction::Write, "writes"), (Direction::Read, "reads")] {
        let long = Load { depth: 1, ..load(direction, Order::Sequential, 1024) };
        let short = Load { depth: 2, ..load(direction, Order::Random { unit: 4 * KIB }, 4) };
        loads.push((format!("sequential {verb} of 1 MiB QD1"), long));
        loads.push((format!("random {verb} of 4 KiB QD2"), short));
    }
    loads
}

/// Bytes a second of `load` on what `volume` makes of a throttled disk, or of an array of such.
fn speed(
    load: &Load,
    volume: impl AsyncFn(Device, Clock, Arena) -> Outcome<Device>,
    layout: Option<ArrayLayout>,
) -> Outcome<f64> {
    let world = World::steady(1);
    let (clock, arena) = (world.clock(), world.arena());
    world.run(async {
        let disks: Vec<Device> = (0..2).map(|_| memory(SIZE + METADATA_SIZE_MIN)).collect();
        let slow: Vec<Device> = disks.iter().map(|disk| throttled(disk, &clock)).collect();
        let array = match layout {
            Some(layout) => {
                let case =
                    Case::new(layout, ReadPolicy::Rotate, Load { direction: Direction::Write, ..*load }, 0.0);
                Some(build(&case, &disks, &slow, &arena, &clock).await?)
            }
            None => None,
        };
        let device = array.as_ref().map_or_else(|| slow[0].clone(), |array| array.device());
        let device = volume(device, clock.clone(), arena.clone()).await?;
        let measured = run(&device, &clock, &arena, load, &mut Random::new(7)).await;
        Ok(measured?.bytes_per_second())
    })
}

/// A thin volume in a new pool on `device`, written in full if it `is_written`.
pub(in crate::tables) async fn thin_volume(
    device: Device,
    clock: Clock,
    arena: Arena,
    is_written: bool,
) -> Outcome<Device> {
    Pool::format(&device, &arena, PoolFormat::new(Uuid::from_u128(7))).await?;
    let pool = Pool::open(device, arena.clone(), clock.clone(), PoolOptions::default()).await?;
    let id = pool.create(&NewVolume { name: "thin".to_owned(), bytes: VOLUME, origin: None }).await?;
    let volume = pool.volume(id)?;
    if is_written {
        let all = Load { count: VOLUME / MIB, ..load(Direction::Write, Order::Sequential, 1024) };
        run(&volume, &clock, &arena, &all, &mut Random::new(7)).await?;
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_costs_nothing_once_its_regions_are_warm_and_a_volume_on_a_mirror_is_as_fast_as_one_on_a_disk()
    {
        let mut part = Part::default();
        measure(&mut part).expect("nothing fails");
        part.tell();
        assert!(part.records.iter().filter(|it| it.row.contains("volume on a mirror")).count() == 10);
        for row in part.records.iter().filter(|it| !it.row.contains("thin")) {
            let (name, value) = (&row.row, row.rounds[0]);
            match row.goal {
                Some(goal) => assert!(goal.holds(value, 3), "{name}: {value}"),
                None => assert!(name.contains("flush") && (0.4..=1.0).contains(&value), "{name}: {value}"),
            }
        }
    }
}
