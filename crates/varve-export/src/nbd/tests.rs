//! The door over connections in memory: every request, random requests against a model, and hostile clients.

mod client;
mod contexts;
mod fairness;
mod limits;
mod receiving;
mod world;

use super::*;
use client::{Client, Reply};
use futures_util::future::join;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Allocation, Arena, ByteStream, Device, Durability, IoError, LocalFuture, StatusRun};
use varve_nbd::client::{Wish, put_option};
use varve_nbd::wire::{STATE_HOLE, STATE_ZERO, command_flag, option};
use varve_nbd::{Command, ErrorCode, ExportFlags, Framing, Request, Run};
use world::{Dice, FakeClock, MemoryDevice, PipeEnd, pair};

const SIZE: u64 = 8 << 20;

struct OneExport(RefCell<Export>);

impl Catalog for OneExport {
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move { ["", "data/vm1"].contains(&name).then(|| self.0.borrow().clone()) })
    }
    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        Box::pin(async { vec![Listed { name: "data/vm1".to_owned(), description: "the first".to_owned() }] })
    }
}

struct Scene {
    clock: FakeClock,
    device: Rc<MemoryDevice>,
    export: Export,
    door: Door,
}

impl Scene {
    fn new() -> Self {
        let clock = FakeClock::default();
        let device = MemoryDevice::new(SIZE);
        let export = Export::new("data/vm1", Device::from_rc(device.clone()));
        let door = Door {
            catalog: Rc::new(OneExport(RefCell::new(export.clone()))),
            limits: Limits::default(),
            budget: Budget::new(64 << 20),
            admission: Admission::new(256),
            tls: None,
            activity: Activity::default(),
            arena: Arena::heap(8 << 20),
            clock: clock.clock(),
            shutdown: Shutdown::new(),
            detachment: Detachment::default(),
        };
        Self { clock, device, export, door }
    }

    /// Serves one connection whose other end is in the hands of `client`.
    fn play<T>(
        &self,
        ends: (Rc<PipeEnd>, Rc<PipeEnd>),
        client: impl AsyncFnOnce(Rc<PipeEnd>) -> T,
    ) -> (Result<(), SessionEnd>, T) {
        let (ours, theirs) = ends;
        let served = world::run(&self.clock, join(self.door.serve(ours), client(theirs)));
        assert_eq!(self.device.inside.get(), 0, "NBD1");
        assert_eq!(self.door.budget.used(), 0, "NBD2: everything was given back");
        assert_eq!(self.export.counters.connections.get(), 0);
        served
    }

    /// The same, for a client that has done its handshake with `wish`.
    fn connected<T>(&self, wish: Wish, client: impl AsyncFnOnce(Client) -> T) -> (Result<(), SessionEnd>, T) {
        self.play(pair(1 << 16, 0, 1), async |stream| {
            let connected = Client::connect(&stream, wish).await.expect("a handshake");
            client(connected).await
        })
    }

    /// The same, for a client that ends its connection in order.
    fn orderly(&self, wish: Wish, client: impl AsyncFnOnce(Client)) {
        assert_eq!(self.connected(wish, client).0, Ok(()));
    }
}

fn wishes() -> [Wish; 3] {
    let everything = Wish::new("data/vm1");
    let structured = Wish { extended_headers: false, ..everything.clone() };
    let simple = Wish { structured_replies: false, ..structured.clone() };
    [simple, structured, everything]
}

#[test]
fn every_request_does_its_work_in_every_framing() {
    for wish in wishes() {
        let scene = Scene::new();
        let (end, ()) = scene.connected(wish, async |mut client| {
            assert_eq!(client.connected.size, SIZE);
            let ok = Reply::default();
            let data: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
            for (offset, length) in [(3, 5), (4096, 4096), (77, 100_000)] {
                let fua = command_flag::FUA;
                let reply = client.ask(Command::Write, fua, offset, length, &data[..length as usize]).await;
                assert_eq!(reply, ok);
                let reply = client.ask(Command::Read, 0, offset, length, &[]).await;
                assert!(reply.data == data[..length as usize]);
            }
            let fast = command_flag::FAST_ZERO | command_flag::NO_HOLE;
            assert_eq!(client.ask(Command::WriteZeroes, fast, 100, 1000, &[]).await, ok);
            assert_eq!(client.ask(Command::Trim, command_flag::FUA, 2000, 1000, &[]).await, ok);
            assert_eq!(client.ask(Command::Flush, 0, 0, 0, &[]).await, ok);
            assert_eq!(client.ask(Command::Cache, 0, 1, SIZE - 1, &[]).await, ok);
            assert_eq!(client.ask(Command::Read, 0, 10, 0, &[]).await, ok);
            let reply = client.ask(Command::Read, 0, 99, 1002, &[]).await;
            assert!(reply.data[1..1001].iter().all(|byte| *byte == 0) && reply.data[0] != 0);
            client.disconnect().await;
        });
        assert_eq!(end, Ok(()));
        assert_eq!((scene.device.flushes.get(), scene.device.durable_writes.get()), (2, 3));
        let counters = &scene.export.counters;
        assert_eq!((counters.reads.get(), counters.writes.get(), counters.errors.get()), (4, 4, 0));
        assert_eq!((counters.flushes.get(), counters.discards.get(), counters.others.get()), (1, 1, 2));
        assert_eq!(counters.written_bytes.get(), 105_101);
    }
}

#[test]
fn block_status_is_coalesced_and_answered_once_asked() {
    let scene = Scene::new();
    let run = |length, allocation| StatusRun { length, allocation };
    *scene.device.runs.borrow_mut() = vec![
        run(4096, Allocation::Data),
        run(4096, Allocation::Data),
        run(4096, Allocation::Hole),
        run(4096, Allocation::Zero),
        run(SIZE - 16_384, Allocation::Data),
    ];
    for wish in &wishes()[1..] {
        scene.orderly(wish.clone(), async |mut client| {
            let runs = client.ask(Command::BlockStatus, 0, 1, SIZE - 2, &[]).await.runs;
            let run = |length, state| Run { length, state };
            assert_eq!(
                runs,
                [
                    run(8191, 0),
                    run(4096, STATE_HOLE | STATE_ZERO),
                    run(4096, STATE_ZERO),
                    run(SIZE - 16_385, 0)
                ]
            );
            let one = client.ask(Command::BlockStatus, command_flag::REQ_ONE, 1, SIZE - 1, &[]).await;
            assert_eq!(one.runs, [run(8191, 0)]);
            client.disconnect().await;
        });
    }
    scene.orderly(wishes()[0].clone(), async |mut client| {
        let reply = client.ask(Command::BlockStatus, 0, 0, 4096, &[]).await;
        assert_eq!(reply.error, Some(ErrorCode::Invalid), "NBD4: not agreed");
        client.disconnect().await;
    });
}

#[test]
fn what_is_out_of_order_is_refused_and_the_stream_stays_in_step() {
    for wish in wishes() {
        let scene = Scene::new();
        scene.orderly(wish, async |mut client| {
            let error = async |client: &mut Client, command, flags, offset, length, data: &[u8]| {
                client.ask(command, flags, offset, length, data).await.error
            };
            let invalid = Some(ErrorCode::Invalid);
            assert_eq!(error(&mut client, Command::Read, 0, SIZE, 1, &[]).await, invalid);
            assert_eq!(error(&mut client, Command::Read, 0, u64::MAX, 1, &[]).await, invalid);
            let big = vec![7; (32 << 20) + 1];
            assert_eq!(error(&mut client, Command::Write, 0, 0, big.len() as u64, &big).await, invalid);
            assert_eq!(scene.door.arena.usage().overflow, 0, "RECEIVE3: it is not kept");
            let no_space = Some(ErrorCode::NoSpace);
            assert_eq!(error(&mut client, Command::Write, 0, SIZE - 1, 2, &[1, 2]).await, no_space);
            assert_eq!(error(&mut client, Command::Write, 1 << 9, 0, 3, &[1, 2, 3]).await, invalid);
            assert_eq!(error(&mut client, Command::Other(77), 0, 0, 0, &[]).await, invalid);
            assert_eq!(error(&mut client, Command::Trim, 0, SIZE, 1, &[]).await, invalid);
            assert_eq!(error(&mut client, Command::Write, 0, SIZE - 1, 1, &[9]).await, None);
            client.disconnect().await;
        });
        let content = scene.device.content.borrow();
        assert!(content[..content.len() - 1].iter().all(|byte| *byte == 0), "NBD4");
        assert_eq!(scene.export.counters.errors.get(), 7);
    }
}

#[test]
fn a_read_only_export_says_so_and_refuses() {
    let mut scene = Scene::new();
    scene.export.read_only = true;
    scene.door.catalog = Rc::new(OneExport(RefCell::new(scene.export.clone())));
    scene.orderly(Wish::new(""), async |mut client| {
        assert!(client.connected.flags.has(ExportFlags::READ_ONLY));
        assert!(!client.connected.flags.has(ExportFlags::TRIM));
        let permission = Some(ErrorCode::Permission);
        assert_eq!(client.ask(Command::Write, 0, 0, 1, &[1]).await.error, permission);
        assert_eq!(client.ask(Command::WriteZeroes, 0, 0, 1, &[]).await.error, permission);
        assert_eq!(client.ask(Command::Read, 0, 0, 1, &[]).await.error, None);
        client.disconnect().await;
    });
}

#[test]
fn write_zeroes_means_what_its_flags_say() {
    for wish in wishes() {
        let scene = Scene::new();
        scene.orderly(wish, async |mut client| {
            let both = command_flag::FUA | command_flag::NO_HOLE;
            for flags in [0, command_flag::FUA, command_flag::NO_HOLE, both] {
                client.ask(Command::WriteZeroes, flags, 4096, 4096, &[]).await;
            }
            client.disconnect().await;
        });
        let zeros = scene.device.zeros.borrow();
        let durable: Vec<_> = zeros.iter().map(|zero| zero.durability == Durability::Durable).collect();
        assert_eq!(durable, [false, true, false, true], "FUA");
        let unmap: Vec<_> = zeros.iter().map(|zero| zero.unmap).collect();
        assert_eq!(unmap, [true, true, false, false], "NO_HOLE");
    }
}

#[test]
fn a_flush_covers_what_other_connections_have_written() {
    let scene = Scene::new();
    scene.orderly(wishes()[0].clone(), async |mut client| {
        assert!(client.connected.flags.has(ExportFlags::MULTI_CONN));
        client.ask(Command::Write, 0, 0, 3, &[1, 2, 3]).await;
        client.disconnect().await;
    });
    scene.orderly(wishes()[0].clone(), async |mut client| {
        client.ask(Command::Flush, 0, 0, 0, &[]).await;
        client.disconnect().await;
    });
    assert_eq!(scene.device.flushes.get(), 1, "a connection that has written nothing flushes all the same");
}

#[test]
fn errors_of_the_device_have_their_numbers() {
    let scene = Scene::new();
    scene.orderly(Wish::new(""), async |mut client| {
        for (error, code) in [
            (IoError::Medium, ErrorCode::Io),
            (IoError::Corrupt, ErrorCode::Io),
            (IoError::NoSpace, ErrorCode::NoSpace),
            (IoError::ReadOnly, ErrorCode::Permission),
            (IoError::Unsupported, ErrorCode::NotSupported),
            (IoError::Gone, ErrorCode::Shutdown),
            (IoError::Fenced, ErrorCode::Shutdown),
        ] {
            scene.device.failing.set(Some(error));
            assert_eq!(client.ask(Command::Read, 0, 0, 512, &[]).await.error, Some(code));
            assert_eq!(client.ask(Command::Write, 0, 0, 1, &[1]).await.error, Some(code));
        }
        client.disconnect().await;
    });
}

/// Random requests, many in flight on disjoint parts, against a copy in memory.
fn random_requests(seed: u64) {
    let scene = Scene::new();
    let dice = Dice::new(seed);
    scene.device.turns.set(dice.below(4));
    let mut wish = wishes()[dice.below(3) as usize].clone();
    wish.name.clear();
    let ends = pair(1 << (9 + dice.below(10)), [0, 7, 3000, 70_000][dice.below(4) as usize], seed);
    let (end, ()) = scene.play(ends, async |stream| {
        let mut client = Client::connect(&stream, wish).await.unwrap();
        let mut model = vec![0u8; SIZE as usize];
        for _ in 0..12 {
            let mut expected = std::collections::HashMap::new();
            // Each request of a batch has its own part of the device, so that their order does not matter.
            for part in 0..8u64 {
                let offset = part * (SIZE / 8) + dice.below(5000);
                let length = [1, 512, 4096, 5000, 40_000, 200_000][dice.below(6) as usize];
                let range = offset as usize..(offset + length) as usize;
                let (command, data) = match dice.below(4) {
                    0 | 1 => (Command::Read, Vec::new()),
                    2 => {
                        let byte = dice.below(256) as u8;
                        (Command::Write, (0..length).map(|at| byte.wrapping_add(at as u8)).collect())
                    }
                    _ => (Command::WriteZeroes, Vec::new()),
                };
                match command {
                    Command::Write => model[range.clone()].copy_from_slice(&data),
                    Command::WriteZeroes => model[range.clone()].fill(0),
                    _ => {}
                }
                let wanted = if command == Command::Read { model[range].to_vec() } else { Vec::new() };
                let cookie = client.begin(command, 0, offset, length, &data).await;
                expected.insert(cookie, wanted);
                // A client that never reads while it sends would block a pipe this small.
                while expected.len() > 2 {
                    let (cookie, reply) = client.next().await.unwrap();
                    assert_eq!(reply.error, None);
                    assert!(reply.data == expected.remove(&cookie).expect("NBD3"), "wrong data");
                }
            }
            while !expected.is_empty() {
                let (cookie, reply) = client.next().await.unwrap();
                assert!(reply.data == expected.remove(&cookie).expect("NBD3"), "wrong data");
            }
        }
        client.disconnect().await;
        assert_eq!(client.next().await, None);
        assert!(*scene.device.content.borrow() == model);
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn random_requests_agree_with_a_model() {
    (0..60).for_each(random_requests);
}

#[test]
fn many_requests_are_in_flight_up_to_the_limits() {
    let mut scene = Scene::new();
    scene.door.limits.requests_max = 10;
    scene.device.turns.set(3);
    scene.orderly(Wish::new(""), async |mut client| {
        for index in 0..100 {
            client.begin(Command::Write, 0, index * 16, 16, &[index as u8; 16]).await;
        }
        for _ in 0..100 {
            assert_eq!(client.next().await.unwrap().1.error, None);
        }
        client.disconnect().await;
    });
    assert!((5..=10).contains(&scene.device.inside_max.get()), "NBD2: {}", scene.device.inside_max.get());
}

#[test]
fn a_client_that_reads_no_replies_is_not_read_either() {
    let mut scene = Scene::new();
    scene.door.limits.bytes_max = 1 << 20;
    let (end, ()) = scene.play(pair(1 << 16, 0, 1), async |stream| {
        let mut client = Client::connect(&stream, Wish::new("")).await.unwrap();
        let mut requests = Vec::new();
        for cookie in 1..=1000 {
            let request = Request { flags: 0, command: Command::Read, cookie, offset: 0, length: 100_000 };
            requests.extend_from_slice(&request.encode(Framing::Extended).unwrap());
        }
        let bytes = scene.door.arena.copy(&requests);
        let _ = stream.send(vec![bytes]).await;
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 100 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        let kept = scene.door.budget.used();
        assert!(kept > 0 && kept <= (1 << 20) + limits::BUSY, "NBD2: {kept}");
        assert!(scene.door.arena.usage().in_use < 4 << 20, "NBD2: {:?}", scene.door.arena.usage());
        assert!(client.connected.size == SIZE);
        client.stream.close();
        client.stream = pair(1, 0, 1).0;
    });
    assert_eq!(end, Err(SessionEnd::Broken));
}

#[test]
fn a_spent_budget_makes_others_wait_but_starves_nobody() {
    let mut scene = Scene::new();
    // Room for the data of one.
    let capacity = 2 << 20;
    scene.door.budget = Budget::new(capacity);
    scene.door.limits.bytes_max = 2 << 20;
    scene.device.turns.set(2);
    let one = async |seed| {
        let (ours, theirs) = pair(1 << 14, 0, seed);
        let client = async {
            let mut client = Client::connect(&theirs, Wish::new("")).await.unwrap();
            for index in 0..10 {
                let reply = client.ask(Command::Read, 0, index * 1000, 700_000, &[]).await;
                assert_eq!(reply.error, None);
                assert!(scene.door.budget.used() <= capacity, "NBD2");
            }
            client.disconnect().await;
        };
        assert_eq!(join(scene.door.serve(ours), client).await.0, Ok(()));
    };
    let all = futures_util::future::join_all((0..5).map(one));
    world::run(&scene.clock, all);
    assert_eq!(scene.door.budget.used(), 0);
    assert_eq!(scene.export.counters.connections_total.get(), 5);
}

#[test]
fn requests_in_flight_run_to_their_end_when_the_client_vanishes() {
    let scene = Scene::new();
    scene.device.held.set(true);
    let (end, ()) = scene.connected(Wish::new(""), async |mut client| {
        client.begin(Command::Write, 0, 0, 3, b"abc").await;
        while scene.device.inside.get() == 0 {
            let mut polled = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut polled, true) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
        }
        client.stream.close();
        scene.device.release();
    });
    assert!(end == Ok(()) || end == Err(SessionEnd::Broken), "{end:?}");
    assert_eq!(&scene.device.content.borrow()[..3], b"abc", "NBD1");
}

#[test]
fn a_client_that_only_stops_sending_gets_its_replies() {
    let scene = Scene::new();
    scene.device.turns.set(5);
    let (end, ()) = scene.connected(Wish::new(""), async |mut client| {
        for index in 0..10 {
            client.begin(Command::Read, 0, index, 100, &[]).await;
        }
        client.stream.close_writing();
        for _ in 0..10 {
            assert_eq!(client.next().await.expect("NBD3").1.error, None);
        }
        assert_eq!(client.next().await, None);
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn shutting_the_door_or_the_export_answers_what_is_in_flight() {
    for whole_door in [true, false] {
        let scene = Scene::new();
        scene.device.held.set(true);
        let (end, ()) = scene.connected(Wish::new(""), async |mut client| {
            client.begin(Command::Write, 0, 0, 3, b"abc").await;
            while scene.device.inside.get() == 0 {
                futures_util::future::ready(()).await;
                scene.clock.clock().sleep(Duration::from_millis(1)).await;
            }
            if whole_door {
                scene.door.shutdown.pull();
            } else {
                scene.export.shutdown.pull();
            }
            client.begin(Command::Write, 0, 0, 3, b"xyz").await;
            scene.device.release();
            assert_eq!(client.next().await.unwrap().1, Reply::default(), "NBD3");
            assert_eq!(client.next().await, None);
        });
        assert_eq!(end, Ok(()));
        assert_eq!(&scene.device.content.borrow()[..3], b"abc");
    }
}

#[test]
fn a_client_that_fetches_no_replies_cannot_hold_the_door_open() {
    let scene = Scene::new();
    let (end, ()) = scene.connected(Wish::new(""), async |mut client| {
        client.begin(Command::Read, 0, 0, 1 << 20, &[]).await;
        scene.clock.clock().sleep(Duration::from_secs(1)).await;
        scene.door.shutdown.pull();
        scene.clock.clock().sleep(Duration::from_secs(60)).await;
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn a_stalling_handshake_is_given_up() {
    let scene = Scene::new();
    let (end, ()) = scene.play(pair(1 << 16, 0, 1), async |stream| {
        let bytes = scene.door.arena.copy(b"\0\0\0\x03IHAVE");
        stream.send(vec![bytes]).await.unwrap();
        let (mut held, arena) = (0, &scene.door.arena);
        while let (Ok(filled), _) = stream.receive(arena.take(4096), 0, 1).await {
            held += filled;
        }
        assert_eq!(held, 18);
    });
    assert_eq!(end, Err(SessionEnd::TimedOut));
}

#[test]
fn a_list_names_the_exports_and_an_unknown_one_is_told() {
    let scene = Scene::new();
    let (end, error) = scene.play(pair(1 << 16, 0, 1), async |stream| {
        let failed = Client::connect(&stream, Wish::new("other")).await.err();
        stream.close();
        failed
    });
    let unknown = varve_nbd::client::HandshakeError::UnknownExport("other".to_owned());
    assert_eq!(error, Some(varve_nbd::client::Step::Failed(unknown)));
    assert_eq!(end, Err(SessionEnd::Truncated));
    let (end, output) = scene.play(pair(1 << 16, 0, 1), async |stream| {
        let mut input = vec![0, 0, 0, 3];
        put_option(option::LIST, &[], &mut input);
        put_option(option::ABORT, &[], &mut input);
        stream.send(vec![scene.door.arena.copy(&input)]).await.unwrap();
        let mut output = Vec::new();
        while let (Ok(filled), buffer) = stream.receive(scene.door.arena.take(4096), 0, 1).await {
            output.extend_from_slice(&buffer[..filled]);
        }
        output
    });
    assert_eq!(end, Err(SessionEnd::NoExport(CloseReason::Aborted)));
    let listed = b"\0\0\0\x03\0\0\0\x02\0\0\0\x15\0\0\0\x08data/vm1the first";
    assert!(output.windows(listed.len()).any(|window| window == listed));
}

/// Sends `bytes` after an orderly handshake, then closes.
fn hostile(bytes: &[u8]) -> Result<(), SessionEnd> {
    let scene = Scene::new();
    let (end, ()) = scene.play(pair(1 << 16, 1000, 5), async |stream| {
        let connected = Client::connect(&stream, wishes()[1].clone()).await.unwrap();
        let _ = stream.send(vec![scene.door.arena.copy(bytes)]).await;
        drop(connected);
        stream.close_writing();
        while let (Ok(_), _) = stream.receive(scene.door.arena.take(4096), 0, 1).await {}
    });
    end
}

#[test]
fn hostile_clients_are_left_and_keep_nothing() {
    let write = |length| {
        let request = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, length };
        request.encode(Framing::Structured).unwrap().to_vec()
    };
    assert!(matches!(hostile(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), Err(SessionEnd::Malformed(_))));
    assert_eq!(hostile(&write(4096)[..27]), Err(SessionEnd::Truncated));
    assert_eq!(hostile(&[&write(4096)[..], &[7; 4095]].concat()), Err(SessionEnd::Truncated));
    assert_eq!(hostile(&[&write(1 << 20)[..], &[7; 50_000]].concat()), Err(SessionEnd::Truncated));
    assert_eq!(hostile(&[&write(0xffff_ffff)[..], &[7; 50_000]].concat()), Err(SessionEnd::Truncated));
    assert_eq!(hostile(&[&write(4096)[..], &[7; 4096]].concat()), Ok(()));
    assert_eq!(hostile(b""), Ok(()));
    for seed in 0..50 {
        let dice = Dice::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..200 {
            let request = Request {
                flags: dice.below(64) as u16,
                command: Command::from_code(dice.below(10) as u16),
                cookie: dice.below(3),
                offset: dice.below(2 * SIZE),
                length: dice.below(5000),
            };
            if request.command != Command::Disconnect {
                bytes.extend_from_slice(&request.encode(Framing::Structured).unwrap());
                bytes.extend(std::iter::repeat_n(7, request.payload_length(Framing::Structured) as usize));
            }
        }
        assert_eq!(hostile(&bytes), Ok(()), "NBD3: a flood of nonsense is refused and stays in step");
        bytes.truncate(bytes.len() / 2);
        bytes.extend((0..100).map(|_| dice.below(256) as u8));
        let _ = hostile(&bytes);
    }
}
