//! Measures connections: a blocking client sends requests of 32 bytes, a shard answers each with 4 KiB.
//!
//! `answer ring|pool DEPTH SECONDS`. Prints requests a second, and microseconds of CPU for each, both sides together.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use varve_os::{IoChoice, ShardContext, Shards, ShardsConfig, socket_pair};

const REQUEST: usize = 32;
const ANSWER: usize = 4096;

async fn serve(context: ShardContext, socket: std::os::fd::OwnedFd) {
    let stream = context.adopt(socket);
    let mut buffer = context.arena().take(64 << 10);
    let mut filled = 0;
    loop {
        let (count, back) = stream.receive(buffer, filled, filled.max(REQUEST - 1) + 1).await;
        buffer = back;
        let Ok(count) = count else { return };
        let parts = (0..count / REQUEST).map(|_| context.arena().take(ANSWER).freeze()).collect();
        filled = count % REQUEST;
        if stream.send(parts).await.is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the client stands outside of the engine")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, io, depth, seconds] = arguments.as_slice() else { panic!("answer ring|pool DEPTH SECONDS") };
    let io = if io == "ring" { IoChoice::Ring } else { IoChoice::Pool };
    let (depth, seconds): (usize, u64) = (depth.parse().expect("a count"), seconds.parse().expect("seconds"));
    let shards = Shards::start(&ShardsConfig { io, ..ShardsConfig::default() }).expect("shards start");
    let (near, far) = socket_pair().expect("a pair");
    drop(shards.handle(0).run(move |context| serve(context, far)));
    let mut client = UnixStream::from(near);
    let mut space = vec![0; 1 << 20];
    let (end, before) = (Instant::now() + Duration::from_secs(seconds), cpu_time());
    let (mut sent, mut received) = (0_u64, 0_u64);
    while Instant::now() < end {
        let answered = received / ANSWER as u64;
        let missing = depth as u64 - (sent - answered);
        client.write_all(&vec![0; missing as usize * REQUEST]).expect("sent");
        sent += missing;
        received += client.read(&mut space).expect("received") as u64;
    }
    let (count, cpu) = (received / ANSWER as u64, cpu_time() - before);
    println!("{} requests/s, {:.2} us CPU each", count / seconds, cpu.as_secs_f64() * 1e6 / count as f64);
    drop(client);
    shards.stop();
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
