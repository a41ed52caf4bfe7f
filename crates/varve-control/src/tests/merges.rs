//! Writes smaller than a block beside a rollback that begins, through all layers that a volume has in the daemon.

use super::*;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use varve_block::Device;
use varve_volume::ShardContext;
use varve_volume::lifecycle::open;

/// Longer than a rollback takes to begin; how long one that must not begin yet is looked at.
const LOOK: Duration = Duration::from_secs(1);

async fn write(context: &ShardContext, device: &Device, byte: u8) {
    let data = context.arena().copy(&[byte; 4096]);
    device.write(0, data, Durability::Durable).await.expect("the disk is good");
}

#[test]
fn a_rollback_begins_before_or_after_a_write_smaller_than_a_block_not_within() {
    with_disks(1, "600M", async |control, _| {
        make_volume(&control, "data/a", None, None).await;
        let located = control.find_volume(&name("data/a")).expect("it is there");
        let (id, home) = (located.volume.id, located.home);
        let first = home.run_for_test(async move |context: ShardContext| {
            write(&context, &open::device(&context, id, None).expect("it is active"), 0xaa).await;
        });
        first.await.expect("a shard");
        make_snapshot(&control, "data/a@one").await;
        let order = home.run_for_test(async move |context: ShardContext| {
            let device = open::device(&context, id, None).expect("it is active");
            write(&context, &device, 0xbb).await;
            // Its block is read from the disk; the task goes on with it only when it is polled again.
            let mut ragged = device.write(0, context.arena().copy(&[0x11; 100]), Durability::Volatile);
            assert!(futures_util::poll!(&mut ragged).is_pending());
            let stack = context.stack(id).expect("it is active");
            let point = stack.rollback_point("one").expect("it is there");
            let rollback = pin!(stack.begin_rollback(point));
            match select(rollback, pin!(context.clock().sleep(LOOK))).await {
                Either::Left((begun, _)) => {
                    begun.expect("there is space");
                    ragged.await.expect("the disk is good");
                }
                Either::Right(((), rollback)) => {
                    let (written, begun) = join(ragged, rollback).await;
                    written.expect("the disk is good");
                    begun.expect("there is space");
                }
            }
            stack.finish_rollback(&varve_target::snapshot::Progress::default()).await.expect("space");
            let now = device.read(0, context.arena().take(4096)).await.expect("the disk is good");
            (now[0], now[300])
        });
        let (written, beside) = order.await.expect("a shard");
        assert_eq!(beside, 0xaa, "STACK4: no request wrote this byte after the rollback");
        assert!(
            [0x11, 0xaa].contains(&written),
            "the write counts before the rollback or after it: {written:x}"
        );
    });
}
