//! What a client that floods the door leaves of it to others, counted in requests.

use super::*;
use crate::nbd::activity::Pace;
use futures_util::FutureExt;
use futures_util::future::select;
use std::cell::Cell;

/// What a flood has done before it is measured: requests, or bytes.
const WARM: (u64, u64) = (500, 16 << 20);
/// What it does while it is measured.
const MEASURED: (u64, u64) = (5000, 64 << 20);

struct TwoExports([Export; 2]);

impl Catalog for TwoExports {
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move { self.0.iter().find(|export| export.name == name).cloned() })
    }
    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        Box::pin(async { Vec::new() })
    }
}

/// What was done for flooding connections during one request of a neighbour.
#[derive(Debug, Default)]
struct Cost {
    requests_max: u64,
    bytes_max: u64,
}

/// A neighbour reads one block after the other while `connections` of another export flood theirs with `request`.
/// Most that was done for these during one read.
fn neighbour(connections: u64, command: Command, length: u64, turns: u64) -> Cost {
    let mut scene = Scene::new();
    scene.device.turns.set(turns);
    let flooded = Export::new("flooded", Device::from_rc(scene.device.clone()));
    let quiet = Export::new("quiet", Device::from_rc(scene.device.clone()));
    let counters = Rc::clone(&flooded.counters);
    scene.door.catalog = Rc::new(TwoExports([flooded, quiet]));
    scene.door.limits.progress = Duration::from_secs(1 << 20);
    let done = || {
        let succeeded =
            [&counters.reads, &counters.writes, &counters.flushes, &counters.discards, &counters.others];
        (succeeded.iter().map(|count| count.get()).sum::<u64>(), scene.device.moved.get())
    };
    let flood = async |seed: u64| {
        let (ours, theirs) = pair(1 << 20, 0, seed);
        let client = async {
            let client = Client::connect(&theirs, Wish::new("flooded")).await.unwrap();
            let mut one = Vec::new();
            let request = Request { flags: 0, command, cookie: 1, offset: 0, length };
            one.extend_from_slice(&request.encode(Framing::Extended).unwrap());
            one.resize(one.len() + request.payload_length(Framing::Extended) as usize, 7);
            let many = scene.door.arena.copy(&one.repeat(1 + 20_000 / one.len()));
            let ask = async {
                loop {
                    let _ = client.stream.send(vec![many.clone()]).await;
                }
            };
            let fetch = async {
                loop {
                    let _ = client.stream.receive(scene.door.arena.take(1 << 20), 0, 1).await;
                }
            };
            join(ask, fetch).await;
        };
        let _ = join(scene.door.serve(ours), client).await;
    };
    let floods = futures_util::future::join_all((0..connections).map(flood));
    let (ours, theirs) = pair(1 << 16, 0, 99);
    let worst = Cell::new(Cost::default());
    let client = async {
        let mut client = Client::connect(&theirs, Wish::new("quiet")).await.unwrap();
        let mut cost = Cost::default();
        let is_before = |end: (u64, u64)| done().0 < end.0 && done().1 < end.1;
        while is_before(WARM) {
            client.ask(Command::Read, 0, 0, 512, &[]).await;
        }
        while is_before(MEASURED) {
            let before = done();
            client.ask(Command::Read, 0, 0, 512, &[]).await;
            let after = done();
            cost.requests_max = cost.requests_max.max(after.0 - before.0);
            cost.bytes_max = cost.bytes_max.max(after.1 - before.1);
        }
        client.disconnect().await;
        worst.set(cost);
    };
    let honest = join(scene.door.serve(ours), client).map(|(end, ())| assert_eq!(end, Ok(())));
    world::run(&scene.clock, select(Box::pin(honest), Box::pin(floods)));
    worst.into_inner()
}

#[test]
fn a_request_waits_behind_few_requests_of_a_flood() {
    for (command, length) in
        [(Command::Read, 1), (Command::Write, 1), (Command::Flush, 0), (Command::Trim, 512)]
    {
        for (connections, turns) in [(1, 0), (1, 3), (4, 0), (4, 3)] {
            let cost = neighbour(connections, command, length, turns);
            assert!(
                (1..=200).contains(&cost.requests_max),
                "NBD5: {cost:?} of {command:?} on {connections}, {turns}"
            );
        }
    }
}

#[test]
fn a_request_waits_behind_few_bytes_of_a_flood() {
    let large = [
        (Command::Read, 1 << 20),
        (Command::Read, 8 << 20),
        (Command::Cache, 8 << 20),
        (Command::Write, 1 << 20),
        (Command::Write, 8 << 20),
    ];
    for (command, length) in large {
        for turns in [0, 3] {
            let cost = neighbour(1, command, length, turns);
            assert!(cost.bytes_max <= 8 << 20, "NBD5: {cost:?} of {command:?} with {length} bytes, {turns}");
        }
    }
}

#[test]
fn few_requests_to_cache_are_in_flight_at_a_time() {
    let scene = Scene::new();
    scene.device.turns.set(3);
    scene.orderly(Wish::new(""), async |mut client| {
        for _ in 0..50 {
            client.begin(Command::Cache, 0, 0, SIZE, &[]).await;
        }
        for _ in 0..50 {
            assert_eq!(client.next().await.expect("NBD3").1.error, None);
        }
        client.disconnect().await;
    });
    assert_eq!(scene.device.inside_max.get(), 1, "NBD5");
}

#[test]
fn long_requests_come_to_the_device_in_pieces_and_take_no_long_memory() {
    let (length, piece) = (SIZE - 1536, 1 << 20);
    for wish in wishes() {
        let mut scene = Scene::new();
        scene.door.arena = Arena::heap(10 << 20);
        scene.device.turns.set(3);
        // What is too long for a run of memory that is left comes from the heap.
        let _taken = scene.door.arena.take(1 << 20);
        scene.orderly(wish, async |mut client| {
            let data: Vec<u8> = (0..length).map(|at| (at / 500) as u8).collect();
            assert_eq!(client.ask(Command::Write, 0, 512, length, &data).await.error, None);
            assert_eq!(scene.device.longest.get(), piece, "ACTIVITY2");
            assert_eq!(scene.device.flushes.get(), 0);
            let read = client.ask(Command::Read, 0, 512, length, &[]).await;
            assert!(read.data == data);
            assert_eq!(scene.device.longest.get(), piece, "ACTIVITY2");
            let flags = command_flag::FUA;
            assert_eq!(client.ask(Command::Write, flags, 512, length, &data).await.error, None);
            assert_eq!(scene.device.flushes.get(), 1, "all pieces are durable when it is answered");
            client.disconnect().await;
        });
        assert_eq!(scene.door.arena.usage().overflow, 0);
    }
}

#[test]
fn a_long_request_fails_with_its_first_piece_that_fails_and_all_of_them_end() {
    let scene = Scene::new();
    scene.device.turns.set(3);
    scene.device.failing.set(Some(IoError::NoSpace));
    scene.orderly(Wish::new(""), async |mut client| {
        let data = vec![7; SIZE as usize];
        let answer = client.ask(Command::Write, 0, 0, SIZE, &data).await;
        assert_eq!((answer.error, scene.device.inside.get()), (Some(ErrorCode::NoSpace), 0), "NBD1");
        let answer = client.ask(Command::Read, 0, 0, SIZE, &[]).await;
        assert_eq!((answer.error, scene.device.inside.get()), (Some(ErrorCode::NoSpace), 0), "NBD1");
        client.disconnect().await;
    });
}

#[test]
fn a_long_durable_change_fails_if_the_flush_behind_its_pieces_fails() {
    let scene = Scene::new();
    scene.device.failing_flush.set(Some(IoError::Medium));
    scene.orderly(Wish::new(""), async |mut client| {
        let data = vec![7; SIZE as usize];
        for (flags, error) in [(0, None), (command_flag::FUA, Some(ErrorCode::Io))] {
            assert_eq!(client.ask(Command::Write, flags, 0, SIZE, &data).await.error, error);
            assert_eq!(client.ask(Command::Trim, flags, 0, SIZE, &[]).await.error, error);
        }
        client.disconnect().await;
    });
}

#[test]
fn a_long_request_is_cut_finer_while_another_export_is_active() {
    let activity = Activity::default();
    let pace = Pace { activity: &activity, export: 1 };
    activity.note(1);
    assert_eq!((pace.piece(), pace.pieces_at_once(), pace.change()), (1 << 20, 4, u64::MAX), "ACTIVITY2");
    activity.note(2);
    assert_eq!((pace.piece(), pace.pieces_at_once(), pace.change()), (256 << 10, 1, 64 << 20), "ACTIVITY2");
}
