//! What clients may keep, how many there may be, and how long they may take.

use super::super::receive_buffer::BUSY_BYTES;
use super::*;
use futures_util::future::join_all;
use std::cell::Cell;
use varve_block::{Notify, yield_now};
use varve_nbd::client::{HandshakeError, Step};
use varve_nbd::wire::reply;

/// What a busy connection has of the budget to receive into.
pub(super) const BUSY: u64 = BUSY_BYTES as u64;

fn header(command: Command, length: u64) -> Vec<u8> {
    let request = Request { flags: 0, command, cookie: 1, offset: 0, length };
    request.encode(Framing::Extended).unwrap().to_vec()
}

async fn send(scene: &Scene, stream: &Rc<PipeEnd>, bytes: &[u8]) {
    let _ = stream.send(vec![scene.door.arena.copy(bytes)]).await;
}

/// Takes what comes until the server closes.
async fn drain(scene: &Scene, stream: &Rc<PipeEnd>) {
    while let (Ok(_), _) = stream.receive(scene.door.arena.take(64 << 10), 0, 1).await {}
}

#[test]
fn announced_writes_hold_the_budget_over_all_connections_and_small_requests_are_served() {
    let mut scene = Scene::new();
    let capacity = 64 << 20;
    scene.door.budget = Budget::new(capacity);
    let size = 32 << 20;
    scene.device = MemoryDevice::new(size);
    let export = Export::new("data/vm1", Device::from_rc(scene.device.clone()));
    scene.door.catalog = Rc::new(OneExport(RefCell::new(export)));
    let announce = async |seed| {
        let (ours, theirs) = pair(1 << 16, 0, seed);
        let client = async {
            let connected = Client::connect(&theirs, Wish::new("")).await.unwrap();
            send(&scene, &connected.stream, &header(Command::Write, size)).await;
            scene.clock.clock().sleep(Duration::from_secs(1)).await;
            assert!(scene.door.budget.used() <= capacity, "NBD2: {}", scene.door.budget.used());
            drain(&scene, &connected.stream).await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let honest = async {
        let (ours, theirs) = pair(1 << 16, 0, 99);
        let client = async {
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            scene.clock.clock().sleep(Duration::from_secs(2)).await;
            let before = scene.clock.clock().now();
            for index in 0..100 {
                let reply = client.ask(Command::Read, 0, index * 4096, 128 << 10, &[]).await;
                assert_eq!(reply.error, None);
            }
            assert_eq!(scene.clock.clock().now(), before, "NBD2: small requests need not wait");
            let reply = client.ask(Command::Read, 0, 0, 8 << 20, &[]).await;
            assert_eq!(reply.error, None, "a large one has its turn");
            client.disconnect().await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let (ends, end) = world::run(&scene.clock, join(join_all((0..40).map(announce)), honest));
    assert_eq!(end, Ok(()));
    assert!(ends.iter().all(|end| *end == Err(SessionEnd::Stalled)), "{ends:?}");
    assert_eq!((scene.door.budget.used(), scene.door.admission.connections()), (0, 0));
}

/// How a connection ends whose client sends `bytes` after its handshake, and then neither sends nor reads.
fn silent_after(bytes: &[u8]) -> (Result<(), SessionEnd>, Duration) {
    let scene = Scene::new();
    let began = scene.clock.clock().now();
    let (end, ()) = scene.connected(Wish::new(""), async |client| {
        send(&scene, &client.stream, bytes).await;
        scene.clock.clock().sleep(Duration::from_secs(3600)).await;
        client.stream.close_writing();
        drain(&scene, &client.stream).await;
    });
    (end, scene.clock.clock().now().since(began))
}

#[test]
fn a_client_that_begins_and_does_not_go_on_is_left_and_an_idle_one_is_not() {
    let stalled = Err(SessionEnd::Stalled);
    assert_eq!(silent_after(&header(Command::Read, 512)[..31]).0, stalled, "half a header");
    assert_eq!(silent_after(&header(Command::Read, 512)[..1]).0, stalled, "one byte of a header");
    assert_eq!(silent_after(&header(Command::Write, 512)).0, stalled, "a small write without its data");
    let half = [&header(Command::Write, 1 << 20)[..], &[7; 600_000]].concat();
    assert_eq!(silent_after(&half).0, stalled, "half of a large write");
    assert_eq!(silent_after(&header(Command::Write, 1 << 30)).0, stalled, "a write that is refused");
    assert_eq!(silent_after(&header(Command::Read, 1 << 20)).0, stalled, "a reply that is not fetched");
    assert_eq!(silent_after(&header(Command::Read, 512)).0, Ok(()), "an idle client");
    assert_eq!(silent_after(b"").0, Ok(()), "a client that never asks");
}

#[test]
fn a_slow_client_is_served_while_it_goes_on() {
    let scene = Scene::new();
    scene.orderly(Wish::new(""), async |mut client| {
        let clock = scene.clock.clock();
        send(&scene, &client.stream, &header(Command::Write, 4 << 20)).await;
        for _ in 0..16 {
            clock.sleep(Duration::from_secs(25)).await;
            send(&scene, &client.stream, &[7; 256 << 10]).await;
        }
        drop(client.stream.receive(scene.door.arena.take(64), 0, 32).await);
        client.disconnect().await;
    });
    assert!(scene.device.content.borrow()[..4 << 20].iter().all(|byte| *byte == 7));
}

#[test]
fn a_stalled_client_does_not_take_its_requests_with_it() {
    let scene = Scene::new();
    scene.device.turns.set(3);
    let (end, ()) = scene.connected(Wish::new(""), async |mut client| {
        client.begin(Command::Write, 0, 0, 3, b"abc").await;
        send(&scene, &client.stream, &header(Command::Write, 512)).await;
        scene.clock.clock().sleep(Duration::from_secs(3600)).await;
    });
    assert_eq!(end, Err(SessionEnd::Stalled));
    assert_eq!(&scene.device.content.borrow()[..3], b"abc", "NBD1");
}

/// Opens `count` connections one after the other that stay; how the last one was answered.
fn last_of(scene: &Scene, count: usize) -> Result<(), Step> {
    let clients = async {
        let mut held = Vec::new();
        let mut served = Vec::new();
        let mut last = Ok(());
        for seed in 0..count {
            let (ours, theirs) = pair(1 << 16, 0, seed as u64);
            let mut serve = Box::pin(scene.door.serve(ours));
            let mut connect = Box::pin(Client::connect(&theirs, Wish::new("data/vm1")));
            let connected = std::future::poll_fn(|context| {
                let _ = serve.as_mut().poll(context);
                connect.as_mut().poll(context)
            });
            match connected.await {
                Ok(client) => held.push(client),
                Err(step) => last = Err(step),
            }
            served.push(serve);
        }
        drop(served);
        last
    };
    let last = world::run(&scene.clock, clients);
    assert_eq!((scene.door.admission.connections(), scene.door.budget.used()), (0, 0));
    last
}

fn refusal(result: Result<(), Step>) -> String {
    match result {
        Err(Step::Failed(HandshakeError::Refused { kind, message })) => {
            assert_eq!(kind, reply::ERR_POLICY);
            message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_are_capped_and_the_refusal_says_by_what() {
    let mut scene = Scene::new();
    scene.door.admission = Admission::new(6);
    assert_eq!(last_of(&scene, 3), Ok(()));
    assert!(refusal(last_of(&scene, 4)).contains("the export has 3 connections already"));
    scene.door.admission = Admission::new(1);
    assert_eq!(last_of(&scene, 1), Ok(()));
    assert!(refusal(last_of(&scene, 2)).contains("--connections"));
    assert_eq!(scene.door.admission.refused(), 1);
}

#[test]
fn exports_together_have_no_more_connections_than_the_daemon_may() {
    let admission = Admission::new(4);
    let held: Vec<_> = (0..4)
        .map(|_| {
            let admitted = admission.admit(0);
            admitted.unwrap_or_else(|refusal| panic!("{refusal}"))
        })
        .collect();
    let refused = admission.admit(0).err();
    assert_eq!(refused, Some(Refusal::Connections(4)));
    drop(held);
    assert!(admission.admit(0).is_ok());
}

#[test]
fn a_thousand_idle_connections_keep_a_short_buffer_each_and_a_busy_one_goes_on_beside_them() {
    let mut scene = Scene::new();
    scene.door.admission = Admission::new(4096);
    scene.door.budget = Budget::new(64 << 20);
    scene.door.arena = Arena::heap(64 << 20);
    let (idle, data) = (1000, vec![7; 128 << 10]);
    let (arrived, arrival) = (Cell::new(0), Notify::default());
    let leave = Shutdown::new();
    let used = |scene: &Scene| (scene.door.budget.used(), scene.door.arena.usage().in_use);
    let rest = (0, (idle + 1) * LANDING_BYTES as u64);
    let one = async |seed| {
        // No more handshakes at a time than there may be.
        arrival.until(|| arrived.get() + 100 > seed).await;
        let (ours, theirs) = pair(1 << 16, 0, seed);
        let client = async {
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            // Each has been busy, and is idle again.
            for _ in 0..4 {
                client.begin(Command::Write, 0, 0, 4096, &data[..4096]).await;
            }
            for _ in 0..4 {
                assert_eq!(client.next().await.expect("NBD3").1.error, None);
            }
            arrived.set(arrived.get() + 1);
            arrival.notify_all();
            leave.wait().await;
            client.disconnect().await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let busy = async {
        let (ours, theirs) = pair(1 << 16, 0, 9999);
        let client = async {
            arrival.until(|| arrived.get() == idle).await;
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            for index in 0..100 {
                assert_eq!(client.ask(Command::Write, 0, index, 128 << 10, &data).await.error, None);
                assert_eq!(
                    client.ask(Command::Read, 0, index, 8 << 20 >> (index % 12 + 1), &[]).await.error,
                    None
                );
            }
            scene.clock.clock().sleep(Duration::from_secs(1)).await;
            assert_eq!(used(&scene), rest, "NBD6, RECEIVE4");
            assert_eq!(scene.export.counters.connections.get(), idle + 1);
            leave.pull();
            client.disconnect().await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let (ends, end) = world::run(&scene.clock, join(join_all((0..idle).map(one)), busy));
    assert_eq!(end, Ok(()));
    assert!(ends.iter().all(|end| *end == Ok(())), "{ends:?}");
    assert_eq!(used(&scene), (0, 0));
}

#[test]
fn a_write_that_stalls_keeps_large_requests_waiting_for_a_bounded_time_and_small_ones_not_at_all() {
    let mut scene = Scene::new();
    let length = 32 << 20;
    scene.device = MemoryDevice::new(length);
    let export = Export::new("data/vm1", Device::from_rc(scene.device.clone()));
    scene.door.catalog = Rc::new(OneExport(RefCell::new(export)));
    let began = scene.clock.clock().now();
    let waited = || scene.clock.clock().now().since(began);
    let stalled = async {
        let (ours, theirs) = pair(1 << 16, 0, 1);
        let client = async {
            let connected = Client::connect(&theirs, Wish::new("")).await.unwrap();
            send(&scene, &connected.stream, &header(Command::Write, length)).await;
            send(&scene, &connected.stream, &vec![7; 1 << 20]).await;
            drain(&scene, &connected.stream).await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let honest = async {
        let (ours, theirs) = pair(1 << 16, 0, 99);
        let client = async {
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            while scene.door.budget.used() == 0 {
                yield_now().await;
            }
            client.begin(Command::Write, 0, 0, length, &vec![9; length as usize]).await;
            assert_eq!(client.next().await.expect("NBD3").1.error, None);
            assert!(waited() <= 2 * scene.door.limits.progress / 10, "NBD2: {:?}", waited());
            client.disconnect().await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let small = async {
        let (ours, theirs) = pair(1 << 16, 0, 199);
        let client = async {
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            while !scene.door.budget.is_short() {
                yield_now().await;
            }
            for index in 0..1000 {
                let reply = client.ask(Command::Read, 0, index * 4096, 256 << 10, &[]).await;
                assert_eq!(reply.error, None);
            }
            assert!(
                scene.door.budget.is_short() && waited() == Duration::ZERO,
                "BUDGET3: the others still wait"
            );
            client.disconnect().await;
        };
        join(scene.door.serve(ours), client).await.0
    };
    let ends = world::run(&scene.clock, join(stalled, join(honest, small)));
    assert_eq!(ends, (Err(SessionEnd::Stalled), (Ok(()), Ok(()))));
    assert_eq!(scene.door.budget.used(), 0);
}

#[test]
fn clients_in_their_handshake_are_capped() {
    let scene = Scene::new();
    let held: Vec<_> = (0..Admission::HANDSHAKES_MAX).map(|_| scene.door.admission.begin()).collect();
    let (end, ()) = scene.play(pair(1 << 16, 0, 1), async |stream| drain(&scene, &stream).await);
    assert_eq!(end, Err(SessionEnd::Refused(Refusal::Handshakes(Admission::HANDSHAKES_MAX))));
    drop(held);
    scene.orderly(Wish::new(""), async |mut client| client.disconnect().await);
}

#[test]
fn a_flood_of_questions_for_block_status_is_held_to_the_limits() {
    let scene = Scene::new();
    let run = |at: u64| StatusRun {
        length: 4096,
        allocation: if at.is_multiple_of(2) { Allocation::Data } else { Allocation::Hole },
    };
    *scene.device.runs.borrow_mut() = (0..SIZE / 4096).map(run).collect();
    let (end, ()) = scene.connected(Wish::new(""), async |client| {
        let questions = header(Command::BlockStatus, SIZE).repeat(2000);
        send(&scene, &client.stream, &questions).await;
        assert!(scene.door.budget.used() <= scene.door.budget.capacity() / 4 + BUSY, "NBD2");
        client.stream.close();
    });
    assert!(end.is_err());
}
