//! Tests of connections.

use crate::tests::with_shards;
use crate::{ShardContext, socket_pair};
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::Duration;
use varve_block::host::FileAccess;
use varve_block::{Arena, Bytes, Stream, StreamError, yield_now};

/// Many parts of odd sizes: several times what one call takes, and more than any socket buffer.
fn parts(arena: &Arena, count: usize) -> Vec<Bytes> {
    (0..count).map(|at| arena.copy(&vec![at as u8; 1 + at * 37 % 4099])).collect()
}

/// Receives `total` bytes in steps, slowly at first.
async fn collect(context: ShardContext, stream: Stream, total: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(total);
    let mut steps = 0;
    while content.len() < total {
        let space = (total - content.len()).min(100_000);
        let wanted = 1 + steps * 7919 % space;
        let (filled, buffer) = stream.receive(context.arena().take(space), 0, wanted).await;
        let filled = filled.expect("received");
        assert!(filled >= wanted);
        content.extend_from_slice(&buffer[..filled]);
        steps += 1;
        if steps < 5 {
            context.clock().sleep(Duration::from_millis(10)).await;
        }
    }
    content
}

#[test]
fn a_large_gather_reaches_a_slow_reader_whole_and_in_order() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let parts = parts(&context.arena(), 3000);
            let expected: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            let (sent, received) =
                futures_util::join!(near.send(parts), collect(context.clone(), far, expected.len()));
            assert_eq!(sent, Ok(()));
            assert!(received == expected);
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn both_directions_work_at_once() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let parts = parts(&context.arena(), 500);
            let total: usize = parts.iter().map(|part| part.len()).sum();
            let (one, two, there, back) = futures_util::join!(
                near.send(parts.clone()),
                far.send(parts),
                collect(context.clone(), Rc::clone(&far), total),
                collect(context.clone(), Rc::clone(&near), total),
            );
            assert_eq!((one, two), (Ok(()), Ok(())));
            assert!(there == back);
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn the_end_of_a_connection_is_told() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let arena = context.arena();
            let closing = async {
                context.clock().sleep(Duration::from_millis(10)).await;
                near.close();
            };
            // Waiting while the peer closes, and while we close ourselves.
            let (far_end, near_end, ()) = futures_util::join!(
                far.receive(arena.take(100), 0, 1),
                near.receive(arena.take(100), 0, 1),
                closing
            );
            assert_eq!(far_end.0, Err(StreamError::Closed));
            assert_eq!(near_end.0, Err(StreamError::Closed));
            assert_eq!(far.send(vec![arena.copy(b"x")]).await, Err(StreamError::Broken));
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn a_receive_dropped_in_flight_leaves_its_memory_to_the_kernel() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let before = context.arena().usage().in_use;
            for _ in 0..100 {
                let mut receive = near.receive(context.arena().take(4096), 0, 1);
                assert!(futures_util::poll!(&mut receive).is_pending());
            }
            // When the cancellations are through the memory is back, and bytes go to the receive that asks now.
            while context.arena().usage().in_use > before {
                context.clock().sleep(Duration::from_millis(1)).await;
            }
            far.send(vec![context.arena().copy(b"varve")]).await.expect("sent");
            let (filled, buffer) = near.receive(context.arena().take(4096), 0, 5).await;
            assert_eq!(filled, Ok(5));
            assert_eq!(&buffer[..5], b"varve");
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn a_connection_accepted_on_one_shard_is_served_on_another() {
    with_shards(2, |shards| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let other = shards.handle(1);
        let server_path = path.clone();
        let echo = shards.handle(0).run(move |context| async move {
            let listener = context.listen_unix(&server_path, FileAccess::OWNER).expect("listens");
            let mode = std::fs::metadata(&server_path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let accepted = listener.accept().await.expect("accepted");
            assert!(
                context.listen_unix(&server_path, FileAccess::OWNER).is_err(),
                "somebody listens there already"
            );
            let served = other.run(move |context| async move {
                let stream = context.adopt(accepted);
                assert!(stream.peer().contains("unix"), "{}", stream.peer());
                let (filled, mut buffer) = stream.receive(context.arena().take(64), 0, 5).await;
                buffer.truncate(filled.expect("received"));
                stream.send(vec![buffer.freeze()]).await.expect("sent");
            });
            served.await.expect("served");
        });
        while !path.exists() {
            std::thread::yield_now();
        }
        let client_path = path.clone();
        let answer = shards.handle(1).run_and_wait(move |context| async move {
            let stream = loop {
                match context.connect_unix(&client_path).await {
                    Ok(stream) => break stream,
                    Err(_) => context.clock().sleep(Duration::from_millis(1)).await,
                }
            };
            stream.send(vec![context.arena().copy(b"hello")]).await.expect("sent");
            let (filled, buffer) = stream.receive(context.arena().take(64), 0, 5).await;
            assert_eq!(filled, Ok(5));
            buffer[..5].to_vec()
        });
        assert_eq!(answer.as_deref(), Ok(b"hello".as_slice()));
        assert_eq!(futures_executor::block_on(echo), Ok(()));
        assert!(!path.exists(), "the socket file goes with its listener");
    });
}

#[test]
fn tcp_works_and_a_listener_ends_when_the_shards_stop() {
    with_shards(1, |shards| {
        let (address_sender, address) = std::sync::mpsc::channel();
        let server = shards.handle(0).run(move |context| async move {
            let listener = context.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
            address_sender.send(listener.address().expect("known")).expect("sent");
            let mut streams = Vec::new();
            while let Ok(accepted) = listener.accept().await {
                let stream = context.adopt(accepted);
                stream.send(vec![context.arena().copy(b"welcome")]).await.expect("sent");
                streams.push(stream);
            }
            streams.len()
        });
        let address = address.recv().expect("the server is up");
        let greeting = shards.handle(0).run_and_wait(move |context| async move {
            let stream = context.connect_tcp(address).await.expect("connected");
            assert!(stream.peer().starts_with("tcp 127.0.0.1:"));
            let (filled, buffer) = stream.receive(context.arena().take(64), 0, 7).await;
            buffer[..filled.expect("received")].to_vec()
        });
        assert_eq!(greeting.as_deref(), Ok(b"welcome".as_slice()));
        drop(server);
    });
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_plain_file_is_not() {
    with_shards(1, |shards| {
        let directory = tempfile::tempdir().expect("a directory");
        let stale = directory.path().join("stale");
        drop(std::os::unix::net::UnixListener::bind(&stale).expect("bound"));
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "precious").expect("written");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            assert!(context.listen_unix(&stale, FileAccess::OWNER).is_ok());
            assert!(context.listen_unix(&plain, FileAccess::OWNER).is_err());
            assert_eq!(std::fs::read(&plain).expect("kept"), b"precious");
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn a_task_that_never_waits_keeps_no_connection_waiting() {
    const ROUNDS: usize = 200;
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let turns = Rc::new(std::cell::Cell::new(0));
            let counted = Rc::clone(&turns);
            context.spawner().spawn(async move {
                while Rc::strong_count(&counted) > 1 {
                    counted.set(counted.get() + 1);
                    yield_now().await;
                }
            });
            let (near, far) = (context.adopt(near), context.adopt(far));
            for _ in 0..ROUNDS {
                let send = async {
                    yield_now().await;
                    near.send(vec![context.arena().copy(b"x")]).await
                };
                let received = far.receive(context.arena().take(1), 0, 1);
                let ((filled, _), sent) = futures_util::join!(received, send);
                assert_eq!((filled, sent), (Ok(1), Ok(())));
            }
            turns.get()
        });
        let turns = done.expect("the shard lives");
        assert!(turns <= ROUNDS * 20, "TASK2: {turns} turns of the other task in {ROUNDS} round trips");
    });
}

#[test]
fn a_tcp_peer_that_vanishes_is_noticed() {
    with_shards(1, |shards| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (served, _) = listener.accept().expect("a client");
        let looked_at = served.try_clone().expect("a descriptor");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let _stream = context.adopt(served.into());
            rustix::net::sockopt::socket_keepalive(&looked_at)
        });
        assert_eq!(done, Ok(Ok(true)));
        drop(client);
    });
}

#[test]
fn an_interrupted_receive_gives_what_it_has_and_another_process_receives_the_rest() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let arena = context.arena();
            let interrupted = async {
                context.clock().sleep(Duration::from_millis(20)).await;
                far.interrupt();
            };
            assert_eq!(near.send(vec![arena.copy(b"abc")]).await, Ok(()));
            let (received, ()) = futures_util::join!(far.receive(arena.take(100), 0, 10), interrupted);
            assert_eq!((received.0, &received.1[..3]), (Ok(3), &b"abc"[..]));
            far.interrupt(); // Nothing is under way: nothing happens.
            let (socket, unread) = far.detach().expect("a socket can be passed on");
            assert!(far.is_passable() && unread.is_empty());
            drop(far);
            assert_eq!(near.send(vec![arena.copy(b"def")]).await, Ok(()));
            let (result, buffer) = context.adopt(socket).receive(arena.take(100), 0, 3).await;
            assert_eq!((result, &buffer[..3]), (Ok(3), &b"def"[..]));
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn a_receive_is_interrupted_also_when_a_part_of_the_message_comes_at_the_same_moment() {
    with_shards(1, |shards| {
        let (near, far) = socket_pair().expect("a pair");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let (near, far) = (context.adopt(near), context.adopt(far));
            let (arena, clock) = (context.arena(), context.clock());
            let mut is_woken = false;
            let interrupted = async {
                clock.sleep(Duration::from_millis(20)).await;
                assert_eq!(near.send(vec![arena.copy(b"abc")]).await, Ok(()));
                // What wakes the task is that the three bytes are there; the receive hears of it only afterwards.
                std::future::poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                })
                .await;
                far.interrupt();
            };
            let received = async { futures_util::join!(interrupted, far.receive(arena.take(100), 0, 10)).1 };
            let received = varve_block::timeout(&clock, Duration::from_secs(20), received).await;
            let (result, buffer) = received.expect("the receive ends with what it has");
            assert_eq!((result, &buffer[..3]), (Ok(3), &b"abc"[..]));
            assert_eq!(near.send(vec![arena.copy(b"def")]).await, Ok(()));
            let (result, buffer) = far.receive(buffer, 3, 6).await;
            assert_eq!((result, &buffer[..6]), (Ok(6), &b"abcdef"[..]), "the next one is not interrupted");
        });
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn an_accept_that_is_dropped_takes_no_connection_in() {
    with_shards(1, |shards| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let done = shards.handle(0).run_and_wait(move |context| async move {
            let listener = context.listen_unix(&path, FileAccess::OWNER).expect("free");
            let (clock, soon) = (context.clock(), Duration::from_millis(10));
            assert!(varve_block::timeout(&clock, soon, listener.accept()).await.is_none());
            let client = context.connect_unix(&path).await.expect("it listens");
            let descriptor = listener.into_descriptor().expect("a descriptor");
            assert!(path.exists(), "its file stays");
            let again = context.listen_on(descriptor, Some(&path)).expect("its file is there");
            let served = context.adopt(again.accept().await.expect("LISTENER2: it waits still"));
            let arena = context.arena();
            assert_eq!(client.send(vec![arena.copy(b"abc")]).await, Ok(()));
            assert_eq!(served.receive(arena.take(10), 0, 3).await.0, Ok(3));
            drop(again);
            assert!(!path.exists(), "it goes with the one that goes on");
        });
        assert_eq!(done, Ok(()));
    });
}
