//! Many requests at once at random, against a model of what the disk must hold.

use super::{new_disk, places, with_shards};
use futures_util::stream::{FuturesUnordered, StreamExt};
use varve_block::{Device, Durability, Extent, ZeroOptions};

/// Size of the disk in blocks.
const BLOCKS: usize = 256;
/// Size of a block in bytes.
const BLOCK: usize = 4096;

/// A small generator (xorshift), so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// One request on blocks that no other request in flight touches: so the model says exactly what must be read.
async fn one(
    device: Device,
    arena: varve_block::Arena,
    first: usize,
    expected: Vec<u8>,
    choice: usize,
) -> (usize, Vec<u8>) {
    let extent = Extent::new((first * BLOCK) as u64, (expected.len() * BLOCK) as u64);
    match choice {
        0 => {
            let value = (first as u8).wrapping_add(expected[0]).wrapping_add(1);
            let mut buffer = arena.take(expected.len() * BLOCK);
            buffer.fill(value);
            let durability =
                if first.is_multiple_of(16) { Durability::Durable } else { Durability::Volatile };
            device.write(extent.offset, buffer.freeze(), durability).await.expect("written");
            (first, vec![value; expected.len()])
        }
        1 => {
            let options = ZeroOptions { unmap: first.is_multiple_of(2), ..ZeroOptions::default() };
            device.zero(extent, options).await.expect("zeroed");
            (first, vec![0; expected.len()])
        }
        _ => {
            let buffer = device.read(extent.offset, arena.take(expected.len() * BLOCK)).await.expect("read");
            for (block, value) in buffer.chunks(BLOCK).zip(&expected) {
                assert!(
                    block.iter().all(|byte| byte == value),
                    "block of {extent:?}: {} not {value}",
                    block[0]
                );
            }
            (first, expected)
        }
    }
}

async fn play(device: Device, arena: varve_block::Arena, seed: u64) {
    let mut random = Random(seed);
    let mut model = vec![0_u8; BLOCKS];
    let mut busy = vec![false; BLOCKS];
    let mut under_way = FuturesUnordered::new();
    for _ in 0..4000 {
        while under_way.len() >= 48 {
            let (first, values): (usize, Vec<u8>) = under_way.next().await.expect("some are under way");
            busy[first..first + values.len()].fill(false);
            model[first..first + values.len()].copy_from_slice(&values);
        }
        let first = random.below(BLOCKS);
        let count = 1 + random.below((BLOCKS - first).min(8));
        if busy[first..first + count].iter().any(|busy| *busy) {
            continue;
        }
        busy[first..first + count].fill(true);
        let expected = model[first..first + count].to_vec();
        let choice = [0, 0, 1, 2, 2][random.below(5)];
        under_way.push(one(device.clone(), arena.clone(), first, expected, choice));
        if random.below(200) == 0 {
            device.flush().await.expect("flushed");
        }
    }
    while let Some((first, values)) = under_way.next().await {
        model[first..first + values.len()].copy_from_slice(&values);
    }
    let expected = std::mem::take(&mut model);
    one(device, arena, 0, expected, 2).await;
}

#[test]
fn many_requests_at_random_agree_with_the_model() {
    with_shards(1, |shards| {
        for (place, seed) in places().iter().zip(1..) {
            let (_directory, file) = new_disk(place, (BLOCKS * BLOCK) as u64);
            let done = shards.handle(0).run_and_wait(move |context| async move {
                play(context.disk(&file), context.arena(), 0x9e37_79b9_7f4a_7c15 ^ seed).await;
            });
            assert_eq!(done, Ok(()), "{place:?}, seed {seed}");
        }
    });
}
