//! The loads of the snapshot table: lists of places such that every write is the first to its chunk.

use crate::prelude::*;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use varve_block::{Bytes, IoError};

/// Bytes of a chunk, the unit in which snapshots keep old content.
pub(crate) const CHUNK: u64 = 64 << 10;
/// Numbers of snapshots that are measured.
pub(crate) const COUNTS: [u32; 8] = [0, 1, 4, 8, 16, 64, 256, 1024];

/// Throughput with so many dependent snapshots over that with one, at least.
const GOALS: [(u32, Goal); 2] = [(16, Goal::AtLeast(0.98)), (1024, Goal::AtLeast(0.95))];

/// Puts down one more round of all loads with so many snapshots.
pub(crate) fn record(part: &mut Part, snapshots: u32, speeds: &[f64]) {
    let goal = GOALS.into_iter().find(|(count, _)| part.table == "first touches" && *count == snapshots);
    for (load, speed) in LOADS.iter().zip(speeds) {
        let record = part.at(load.name, &snapshots.to_string(), "MiB/s");
        if let Some((_, goal)) = goal {
            record.over("1").goal(goal);
        }
        record.push(speed / f64::from(1 << 20));
    }
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Its name in the tables.
    pub(crate) name: &'static str,
    /// Bytes of a write.
    pub(crate) block: usize,
    /// Writes in flight.
    pub(crate) depth: usize,
    /// Whether places come in random order.
    pub(crate) random: bool,
}

/// All loads: the one that others have published first.
pub(crate) const LOADS: [Load; 3] = [
    Load { name: "sequential 1 MiB", block: 1 << 20, depth: 1, random: false },
    Load { name: "random 64 KiB QD8", block: 64 << 10, depth: 8, random: true },
    Load { name: "random 4 KiB QD8", block: 4 << 10, depth: 8, random: true },
];

impl Load {
    /// Where the writes to the `length` bytes from `start` on go, in their order: no chunk is written twice.
    pub(crate) fn places(&self, start: u64, length: u64) -> Vec<u64> {
        let pitch = CHUNK.max(self.block as u64);
        let mut places: Vec<u64> = (0..length / pitch).map(|index| start + index * pitch).collect();
        if self.random {
            let mut noise = Noise(20_060_810);
            if (self.block as u64) < CHUNK {
                let slots = CHUNK / self.block as u64;
                places.iter_mut().for_each(|place| *place += noise.next() % slots * self.block as u64);
            }
            noise.shuffle(&mut places);
        }
        places
    }

    /// Writes to `length` bytes of `device` from `start` on and flushes, in this process; says how many bytes a
    /// second that made.
    pub(crate) async fn write(
        &self,
        device: &Device,
        around: &Surroundings,
        start: u64,
        length: u64,
    ) -> Outcome<f64> {
        write_places(device, around, &self.places(start, length), self.block, self.depth).await.of(self.name)
    }
}

/// Writes `block` bytes at each of `places`, `depth` at a time, and flushes; says how many bytes a second that made.
pub(crate) async fn write_places(
    device: &Device,
    Surroundings { arena, clock, .. }: &Surroundings,
    places: &[u64],
    block: usize,
    depth: usize,
) -> Outcome<f64> {
    let mut data = arena.take(block);
    Noise(1).fill(&mut data);
    let data = data.freeze();
    let began = clock.now();
    write_all(device, &data, places.iter().copied(), depth).await?;
    device.flush().await?;
    Ok((places.len() * block) as f64 / clock.now().since(began).as_secs_f64())
}

/// Writes `data` to each of `places`, `depth` at a time.
pub(crate) async fn write_all(
    device: &Device,
    data: &Bytes,
    places: impl Iterator<Item = u64>,
    depth: usize,
) -> Outcome<()> {
    let write = |place| device.write(place, data.clone(), Durability::Volatile);
    each(places.map(write), depth).await
}

/// Reads `block` bytes at each of `places`, `depth` at a time; says how many bytes a second that made.
pub(crate) async fn read_places(
    device: &Device,
    Surroundings { arena, clock, .. }: &Surroundings,
    places: &[u64],
    block: usize,
    depth: usize,
) -> Outcome<f64> {
    let began = clock.now();
    each(places.iter().map(|place| device.read(*place, arena.take(block))), depth).await?;
    Ok((places.len() * block) as f64 / clock.now().since(began).as_secs_f64())
}

/// Waits for all of `requests`, which are made when fewer than `depth` others are on their way.
pub(crate) async fn each<T>(
    requests: impl Iterator<Item = impl Future<Output = Result<T, IoError>>>,
    depth: usize,
) -> Outcome<()> {
    Ok(stream::iter(requests).buffer_unordered(depth).try_for_each(async |_| Ok(())).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_chunk_is_touched_twice_and_none_is_left_out() {
        for load in LOADS {
            let (start, length) = (3 << 20, 8 << 20);
            let places = load.places(start, length);
            let touched: Vec<u64> = places
                .iter()
                .flat_map(|place| place / CHUNK..(place + load.block as u64).div_ceil(CHUNK))
                .collect();
            let distinct: BTreeSet<_> = touched.iter().copied().collect();
            assert_eq!((touched.len(), distinct.len()), (128, 128), "{}", load.name);
            assert_eq!(distinct.first(), Some(&(start / CHUNK)));
        }
    }

    #[test]
    fn random_loads_are_out_of_order_and_repeat() {
        let places = LOADS[2].places(0, 64 << 20);
        assert_eq!(places, LOADS[2].places(0, 64 << 20));
        assert!(!places.is_sorted());
        assert!(places.iter().any(|place| place % CHUNK != 0));
        assert!(LOADS[0].places(0, 64 << 20).is_sorted());
    }
}
