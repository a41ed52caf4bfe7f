//! What the metadata of a store costs: memory under a budget, reads on demand, write-through beside the log.

use std::io::Write;
use std::rc::Rc;
use varve_block::{Device, Durability, KIB, MIB};
use varve_sim::{ModelDisk, World};
use varve_target::Linear;
use varve_target::pdata::CachePolicy;
use varve_target::snapshot::{FormatOptions, MetadataOrder, NewSnapshot, SnapshotStore, StoreOptions, Uuid};

const ORIGIN_SIZE: u64 = 96 * MIB;
const STORE_SIZE: u64 = 256 * MIB;
const PART: u64 = 4 * KIB;

struct Host {
    world: World,
    disk: ModelDisk,
}

impl Host {
    fn new() -> Host {
        let host = Host { world: World::steady(1), disk: ModelDisk::new(ORIGIN_SIZE + STORE_SIZE) };
        let (device, arena) = (host.part(ORIGIN_SIZE, STORE_SIZE), host.world.arena());
        let format = FormatOptions { chunk_size: PART, ..FormatOptions::new(Uuid::from_u128(1)) };
        host.world.run(SnapshotStore::format(&device, &arena, format)).expect("large enough");
        host
    }

    fn part(&self, offset: u64, size: u64) -> Device {
        Device::new(Linear::new(vec![(size, self.disk.device(&self.world), offset)]))
    }

    fn open(&self, options: StoreOptions) -> Rc<SnapshotStore> {
        let (origin, store) = (self.part(0, ORIGIN_SIZE), self.part(ORIGIN_SIZE, STORE_SIZE));
        let (arena, clock) = (self.world.arena(), self.world.clock());
        self.world.run(SnapshotStore::open(origin, store, arena, clock, options)).expect("sound")
    }

    async fn create(&self, store: &Rc<SnapshotStore>, name: &str) -> u64 {
        let new = NewSnapshot { name: name.into(), read_only: false, held: false };
        store.create(&new).await.expect("there is space")
    }

    async fn fill(&self, device: &Device, part: u64, byte: u8) {
        let data = self.world.arena().copy(&[byte; PART as usize]);
        device.write(part * PART, data, Durability::Volatile).await.expect("there is space");
    }

    async fn byte(&self, device: &Device, part: u64) -> u8 {
        let content =
            device.read(part * PART, self.world.arena().take(PART as usize)).await.expect("readable");
        assert!(content.iter().all(|byte| *byte == content[0]), "a part is torn");
        content[0]
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn memory_stays_within_its_budget_and_opening_reads_next_to_nothing() {
    const CHANGES: u64 = 12_000;
    const BUDGET: u64 = 24;
    for policy in CachePolicy::ALL {
        let host = Host::new();
        let options = StoreOptions { cache_bytes: BUDGET * PART, policy, ..StoreOptions::default() };
        let store = host.open(options);
        let mut most = 0;
        host.world.run(async {
            let id = host.create(&store, "one").await;
            let front = store.origin();
            // Every other part, in an order that jumps about: no two entries become one.
            for change in 0..CHANGES {
                let part = change * 7919 % CHANGES * 2;
                host.fill(&front, part, 1 + (part % 200) as u8).await;
                most = most.max(store.cache_use().nodes + store.cache_use().pages);
            }
            assert_eq!(store.snapshot_bytes()[&id].preserved, CHANGES * PART);
            store.verify().await.expect("readable");
        });
        let usage = store.cache_use();
        assert!(most <= BUDGET + 8, "{}: {most} nodes and pages in memory", policy.word());
        assert!(usage.loads > CHANGES / 10, "nodes were evicted and read again: {usage:?}");
        say(&format!(
            "{}: at most {most} nodes in memory, {} loads of {}",
            policy.word(),
            usage.loads,
            usage.loads + usage.hits
        ));
        drop(store);
        drop(host.open(options)); // Brings the maps up to what the log says.
        let before = host.disk.counters();
        let store = host.open(options);
        let read = host.disk.counters().since(&before).bytes_read;
        assert!(
            read <= 32 * KIB,
            "opening reads superblocks, the table and the end of the log: {read} bytes"
        );
        host.world.run(async {
            let view = store.snapshot(1).expect("there");
            for part in [0, 2, 11_998, 23_998, 5] {
                assert_eq!(host.byte(&view, part).await, 0, "the snapshot is what it was");
            }
            assert_eq!(host.byte(&store.origin(), 11_998).await, 1 + (11_998 % 200) as u8);
        });
    }
}

#[test]
fn the_oldest_of_a_thousand_snapshots_reads_like_the_newest() {
    const SNAPSHOTS: u64 = 1024;
    let host = Host::new();
    let store = host.open(StoreOptions::default());
    host.world.run(async {
        let front = store.origin();
        for number in 0..SNAPSHOTS {
            host.create(&store, &format!("s{number}")).await;
            // Part 0 changes under every snapshot, another one under this one alone.
            host.fill(&front, 0, (number % 250) as u8 + 1).await;
            host.fill(&front, 10 + number, 7).await;
        }
    });
    drop(store);
    drop(host.open(StoreOptions::default()));
    let cost = |id: u64| {
        let store = host.open(StoreOptions::default());
        let before = host.disk.counters();
        host.world.run(async {
            let view = store.snapshot(id).expect("there");
            let expected = if id == 1 { 0 } else { ((id - 2) % 250) as u8 + 1 };
            assert_eq!(host.byte(&view, 0).await, expected);
            assert_eq!(host.byte(&view, 10 + SNAPSHOTS - 1).await, 0);
        });
        host.disk.counters().since(&before).requests()
    };
    let (oldest, middle, newest) = (cost(1), cost(512), cost(SNAPSHOTS));
    say(&format!("two cold reads: {oldest} requests in the oldest of 1024, {newest} in the newest"));
    assert!(oldest <= newest + 1 && middle <= newest + 1, "{oldest}, {middle}, {newest}");
}

#[test]
fn write_through_says_on_the_disk_what_the_log_would() {
    let host = Host::new();
    let cost = |metadata| {
        let store = host.open(StoreOptions { metadata, ..StoreOptions::default() });
        let before = host.disk.counters();
        host.world.run(async {
            host.create(&store, MetadataOrder::word(metadata)).await;
            for part in 0..200 {
                host.fill(&store.origin(), part * 3, 5).await;
            }
        });
        let written = host.disk.counters().since(&before).bytes_written;
        drop(store);
        let before = host.disk.counters();
        let read = {
            let _store = host.open(StoreOptions::default());
            host.disk.counters().since(&before)
        };
        (written, read.bytes_written)
    };
    let (logged, replayed) = cost(MetadataOrder::Logged);
    let (through, nothing) = cost(MetadataOrder::WriteThrough);
    say(&format!(
        "200 first touches of 4 KiB, one at a time: {logged} bytes written logged, {through} through"
    ));
    assert!(through > logged, "every batch writes its nodes");
    assert!(replayed > 0 && nothing == 0, "nothing is left to be replayed: {nothing} bytes");
}

#[test]
fn another_budget_or_policy_counts_at_once_and_changes_nothing_that_is_read() {
    const CHANGES: u64 = 6000;
    const SMALL: u64 = 16;
    let host = Host::new();
    let store = host.open(StoreOptions::default());
    host.world.run(async {
        host.create(&store, "one").await;
        let front = store.origin();
        for change in 0..CHANGES {
            host.fill(&front, change * 7919 % CHANGES * 2, 9).await;
        }
        let full = store.cache_use();
        assert!(full.nodes > 4 * SMALL && full.dirty > SMALL, "{full:?}");
        for policy in CachePolicy::ALL {
            store.set_cache(SMALL * PART, policy).await;
            let usage = store.cache_use();
            assert!(
                usage.nodes + usage.pages <= SMALL,
                "{}: what is too much goes: {usage:?}",
                policy.word()
            );
            let view = store.snapshot(1).expect("there");
            for change in 0..CHANGES / 8 {
                assert_eq!(host.byte(&view, change * 7919 % CHANGES * 2).await, 0, "{}", policy.word());
            }
            let again = store.cache_use();
            assert!(again.nodes + again.pages <= SMALL + 8, "{}: it stays so: {again:?}", policy.word());
            assert!(again.evictions > usage.evictions && again.loads > usage.loads, "{again:?}");
        }
        // And write-through begins and ends while the store is in use.
        let written = async |order| {
            store.set_metadata_order(order);
            let before = host.disk.counters();
            for part in 0..50 {
                host.fill(
                    &store.origin(),
                    2 * (CHANGES + 3 * part) + u64::from(order == MetadataOrder::Logged),
                    5,
                )
                .await;
            }
            host.disk.counters().since(&before).bytes_written
        };
        let (through, logged) =
            (written(MetadataOrder::WriteThrough).await, written(MetadataOrder::Logged).await);
        assert!(through > 2 * logged, "{through} and {logged} bytes");
        store.verify().await.expect("readable");
    });
}
