//! Measures random requests through a device on a file, to be held against fio on the same file.
//!
//! `random_io PATH read|write direct|buffered ring|pool SIZE DEPTH SECONDS`; the file must exist. Prints requests a
//! second, and microseconds of CPU for each.

use futures_util::future::join_all;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Clock, Device, Durability, Moment};
use varve_os::{CacheMode, DiskFile, DiskOptions, IoChoice, Shards, ShardsConfig};

struct Load {
    write: bool,
    size: usize,
    end: Moment,
}

async fn worker(device: Device, arena: Arena, clock: Clock, load: Rc<Load>, seed: u64, count: Rc<Cell<u64>>) {
    let blocks = device.shape().size / load.size as u64;
    let mut random = seed;
    let mut buffer = arena.take_zeroed(load.size);
    let data = arena.take_zeroed(load.size).freeze();
    while clock.now() < load.end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let offset = random % blocks * load.size as u64;
        if load.write {
            device.write(offset, data.clone(), Durability::Volatile).await.expect("written");
        } else {
            buffer = device.read(offset, buffer).await.expect("read");
        }
        count.set(count.get() + 1);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, verb, cache, io, size, depth, seconds] = arguments.as_slice() else {
        panic!("random_io PATH read|write direct|buffered ring|pool SIZE DEPTH SECONDS");
    };
    let cache = if cache == "direct" { CacheMode::Direct } else { CacheMode::Buffered };
    let io = if io == "ring" { IoChoice::Ring } else { IoChoice::Pool };
    let (write, size): (bool, usize) = (verb == "write", size.parse().expect("bytes"));
    let (depth, seconds): (u64, u64) = (depth.parse().expect("a count"), seconds.parse().expect("seconds"));
    let file = DiskFile::open(path, DiskOptions { cache, ..DiskOptions::default() }).expect("opened");
    let shards = Shards::start(&ShardsConfig { io, ..ShardsConfig::default() }).expect("shards start");
    let before = cpu_time();
    let count = shards.handle(0).run_and_wait(move |context| async move {
        let (device, clock) = (context.disk(&file), context.clock());
        let end = clock.now().after(Duration::from_secs(seconds));
        let load = Rc::new(Load { write, size, end });
        let count = Rc::new(Cell::new(0));
        let workers = (0..depth).map(|at| {
            let seed = 0x9e37_79b9_7f4a_7c15 ^ (at + 1);
            worker(device.clone(), context.arena(), clock.clone(), Rc::clone(&load), seed, Rc::clone(&count))
        });
        join_all(workers).await;
        count.get()
    });
    let count = count.expect("a count");
    let cpu = cpu_time() - before;
    println!("{} requests/s, {:.2} us CPU each", count / seconds, cpu.as_secs_f64() * 1e6 / count as f64);
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
