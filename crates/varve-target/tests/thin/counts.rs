//! Counts of holders that contradict the maps, in blocks with sound checksums: a check names the blocks.

use crate::common::{fresh, newest_superblock, volume, write};
use varve_block::{Extent, MIB};
use varve_format::pdata::node::{Entries, Key, Node, Value};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{PART_SIZE, Share};
use varve_sim::{SimDisk, World};
use varve_target::thin::{PoolReport, check_pool};

const SIZE: u64 = 8 * MIB;
/// Parts that one volume holds alone.
const ALONE: u64 = 3;

/// What a check says of a pool after `change` of its counts of holders, which is passed the first of [`ALONE`] blocks that
/// one volume holds alone.
fn checked(change: impl FnOnce(&mut Vec<(Key, Value)>, Block)) -> PoolReport {
    let (world, disk) = (World::new(1), SimDisk::new(SIZE));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, shared) = volume(&pool, "shared", MIB).await;
        let (_, alone) = volume(&pool, "alone", MIB).await;
        for (device, parts, byte) in [(&shared, 2, 1), (&alone, ALONE, 7)] {
            let extent = Extent::new(0, parts * PART_SIZE);
            write(device, &world.arena(), extent, byte).await.expect("space");
        }
        pool.snapshot(id, "s", true).await.expect("space");
        pool.checkpoint().await.expect("no faults");
    });
    let peek = |block: Block| disk.peek(block.extent());
    let superblock = newest_superblock(&disk);
    let is_alone = |block: &Block| peek(*block).iter().all(|byte| *byte == 7);
    let first = (0..SIZE / PART_SIZE).map(Block::new).find(is_alone).expect("it was written");
    let mut node = Node::decode(&peek(superblock.shares.block()), superblock.shares.block())
        .expect("something is shared");
    let Entries::Leaf(rows) = &mut node.entries else { panic!("few are shared") };
    change(rows, first);
    let mut bytes = vec![0; 4096];
    node.encode(&mut bytes);
    disk.poke(node.address.offset(), &bytes);
    let device = disk.device(&world);
    world.run(check_pool(&device, &world.arena(), &world.clock())).expect("a pool")
}

fn says(report: &PoolReport, what: &str) -> bool {
    report.errors.iter().any(|error| error.contains(what))
}

#[test]
fn true_counts_are_sound() {
    let report = checked(|_, _| {});
    assert!(report.is_sound(), "{report:#?}");
}

#[test]
fn a_count_of_blocks_before_the_end_of_the_log_cannot_be() {
    let report = checked(|rows, _| rows[0].0 = 0);
    assert!(says(&report, "counts what cannot be"), "{report:#?}");
}

#[test]
fn a_count_of_what_is_younger_than_any_clone_names_the_blocks() {
    let mut blocks = BlockRun::default();
    let report = checked(|rows, first| {
        blocks = BlockRun::new(first, ALONE);
        let share = Share { run: blocks, others: 1 };
        rows.push((share.key(), share.value()));
        rows.sort_unstable_by_key(|row| row.0);
    });
    let held = format!("blocks {} to {} are held by others too", blocks.first, blocks.end() - 1);
    assert!(
        report.errors.iter().any(|error| error.starts_with("POOLCHECK2") && error.contains(&held)),
        "{report:#?}"
    );
}
