//! The third table: nanoseconds that a layer adds to a request, on a device that does nothing and answers at once.
//!
//! In each round the bare device and every layer are measured in turn; what a layer adds is the difference within the
//! round.

use crate::first_touch::CHUNK;
use crate::nothing::nothing;
use crate::prelude::*;
use crate::programs::cpu;
use crate::tables::mirrors::array_cases::{MIRROR, ORDER_1};
use crate::tables::mirrors::arrays::on_nothing;
use futures_util::FutureExt;
use std::hint::black_box;
use varve_block::{Bytes, Io, Switch, ZeroOptions, accept_unaligned};
use varve_sim::{ModelDisk, World};
use varve_target::array::ReadPolicy;
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreError, StoreOptions, Uuid};
use varve_target::{Linear, Striped};

/// Bytes of a request.
const BLOCK: usize = 4096;
/// Bytes of each device.
const SIZE: u64 = 64 << 20;
/// What a remap may cost.
const REMAP_GOAL_NS: Goal = Goal::AtMost(50.0);
/// What a mirror and ddraid may add.
const MIRROR_GOAL_NS: Goal = Goal::AtMost(300.0);
const DDRAID_GOAL_NS: Goal = Goal::AtMost(1000.0);
/// Requests of one measurement.
const REQUESTS: u64 = 200_000;

/// What is sent through a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Read,
    Write,
}

/// A device with a layer on top.
#[derive(Clone)]
struct Stack {
    name: String,
    device: Device,
    verb: Verb,
    goal_ns: Option<Goal>,
}

/// Measures all layers.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let arena = Arena::heap(64 << 20);
    let world = World::steady(1);
    let stacks = [remaps(&arena), fronts(&world)?, arrays(&world)?].concat();
    let bare = nothing(SIZE, 512);
    let mut part = Part::new("layers", "one core", format!("{} rounds", options.layer_rounds()));
    let requests = if options.is_quick() { REQUESTS / 20 } else { REQUESTS };
    for _ in 0..options.layer_rounds() {
        let read = time(&bare, Verb::Read, &arena, requests)?;
        let write = time(&bare, Verb::Write, &arena, requests)?;
        part.note("the device alone, the checked door included", "ns", read);
        for stack in &stacks {
            let base = if stack.verb == Verb::Read { read } else { write };
            let added = time(&stack.device, stack.verb, &arena, requests)? - base;
            part.record(&stack.name, "ns", stack.goal_ns, added);
        }
    }
    sheet.keep(&part)
}

fn remaps(arena: &Arena) -> Vec<Stack> {
    let bare = || nothing(SIZE, 512);
    let stack = |name: &str, device: Device, goal_ns: Option<Goal>| Stack {
        name: name.to_owned(),
        device,
        verb: Verb::Read,
        goal_ns,
    };
    let linear = Device::new(Linear::new(vec![(SIZE, bare(), 0)]));
    let segments = (0..64).map(|index| (SIZE / 64, bare(), index * SIZE / 64)).collect();
    let striped = Striped::new((0..4).map(|_| (bare(), 0)).collect(), 64 << 10, SIZE / 4);
    let volume = Switch::new(linear.clone()).device();
    vec![
        stack("linear, 1 segment (a remap)", linear, Some(REMAP_GOAL_NS)),
        stack("linear, 64 segments", Device::new(Linear::new(segments)), Some(REMAP_GOAL_NS)),
        stack("striped over 4", Device::new(striped), Some(REMAP_GOAL_NS)),
        stack("switch", Switch::new(bare()).device(), None),
        stack("unaligned-I/O adapter, an aligned request", accept_unaligned(bare(), arena.clone()), None),
        stack("a linear volume: adapter, switch, linear", accept_unaligned(volume, arena.clone()), None),
    ]
}

/// The origin's front of an exception store, by what it has to look up.
fn fronts(world: &World) -> Outcome<Vec<Stack>> {
    let mut fronts = Vec::new();
    for (name, snapshots, verb) in [
        ("snapshot front, read, 16 snapshots", 16, Verb::Read),
        ("snapshot front, write, no snapshot", 0, Verb::Write),
        ("snapshot front, write to a preserved chunk, 1 snapshot", 1, Verb::Write),
        ("snapshot front, write to a preserved chunk, 16 snapshots", 16, Verb::Write),
    ] {
        let device = world.run(front(world, snapshots)).of(name)?;
        fronts.push(Stack { name: name.to_owned(), device, verb, goal_ns: None });
    }
    Ok(fronts)
}

/// Arrays whose regions are warm.
fn arrays(world: &World) -> Outcome<Vec<Stack>> {
    let mut stacks = Vec::new();
    for (name, layout, verb, goal_ns) in [
        ("mirror of 2, read", MIRROR, Verb::Read, MIRROR_GOAL_NS),
        ("mirror of 2, write", MIRROR, Verb::Write, MIRROR_GOAL_NS),
        ("ddraid 2+1, read of a block", ORDER_1, Verb::Read, DDRAID_GOAL_NS),
        ("ddraid 2+1, write of a block", ORDER_1, Verb::Write, DDRAID_GOAL_NS),
    ] {
        let device = on_nothing(world, layout, ReadPolicy::Data, false).of(name)?;
        stacks.push(Stack { name: name.to_owned(), device, verb, goal_ns: Some(goal_ns) });
    }
    Ok(stacks)
}

/// An origin that does nothing, with so many snapshots, each chunk preserved for the newest of them.
async fn front(world: &World, snapshots: u32) -> Result<Device, StoreError> {
    let (arena, clock) = (world.arena(), world.clock());
    let store = ModelDisk::new(2 * SIZE).device(world);
    SnapshotStore::format(&store, &arena, FormatOptions::new(Uuid::from_u128(1))).await?;
    let origin = nothing(SIZE, 512);
    let store = SnapshotStore::open(origin, store, arena.clone(), clock, StoreOptions::default()).await?;
    for snapshot in 0..snapshots {
        store.create(&NewSnapshot { name: format!("s{snapshot}"), read_only: true, held: false }).await?;
    }
    let front = store.origin();
    if snapshots > 0 {
        let mut chunks: Vec<u64> = (0..SIZE / CHUNK).collect();
        Noise(1).shuffle(&mut chunks);
        for chunk in chunks {
            front.zero(Extent::new(chunk * CHUNK, CHUNK), ZeroOptions::default()).await?;
        }
    }
    Ok(front)
}

/// Nanoseconds of one request.
fn time(device: &Device, verb: Verb, arena: &Arena, requests: u64) -> Outcome<f64> {
    let mut buffer = arena.take(BLOCK);
    let data: Bytes = arena.take_zeroed(BLOCK).freeze();
    let blocks = device.shape().size / BLOCK as u64;
    // The processor's time: what else runs on the machine is not the layer's.
    let start = cpu::thread_seconds();
    for request in 0..requests {
        // A stride that is prime to the number of blocks visits all of them, and a next one is never near.
        let offset = request.wrapping_mul(7919) % blocks * BLOCK as u64;
        let io = match verb {
            Verb::Read => {
                Io::Read { offset, buffer: std::mem::replace(&mut buffer, varve_block::Buffer::empty()) }
            }
            Verb::Write => Io::Write { offset, data: data.clone(), durability: Durability::Volatile },
        };
        let outcome = black_box(device.submit(io)).now_or_never().ok_or("a layer waits for nothing")?;
        let outcome = outcome.of("a request failed")?;
        if verb == Verb::Read {
            buffer = outcome;
        }
    }
    Ok((cpu::thread_seconds() - start) * 1e9 / requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_answers_at_once_and_costs_a_plausible_time() {
        let arena = Arena::heap(1 << 20);
        let world = World::steady(1);
        for stack in
            [remaps(&arena), fronts(&world).expect("stores"), arrays(&world).expect("arrays")].concat()
        {
            let ns = time(&stack.device, stack.verb, &arena, 1000).expect(&stack.name);
            assert!(ns > 1.0 && ns < 1e6, "{}: {ns} ns", stack.name);
        }
    }
}
