//! What clients rely on is sent to a mapper that comes back, also where no request uses it any more: what was answered to one write
//! alone, and what is in a range that could not be trimmed.

use crate::scripted_mapper::{BLOCK, Host, OWN, Turn, Turns};
use std::time::Duration;
use varve_block::{Extent, IoError};
use varve_mapper::wire::{self, Access, Place, Status, ToEngine, Welcome};
use varve_sim::Holds;

/// Block 0 is in block `at` of the mapper's device.
fn data(at: u64) -> wire::Extent {
    wire::Extent::new(0, BLOCK, Place::Data { device: OWN, offset: at * BLOCK })
}

/// That is for the request that asked alone.
fn once(at: u64) -> wire::Extent {
    wire::Extent { once: true, ..data(at) }
}

/// Block 0 is to be copied there for the request that asked alone.
fn copied_once(at: u64) -> wire::Extent {
    let place = Place::Copy { device: OWN, offset: at * BLOCK, from: None };
    wire::Extent { place, ..once(at) }
}

fn first() -> Extent {
    Extent::new(0, BLOCK)
}

fn host(extents: Vec<wire::Extent>) -> Host<Turns> {
    let turns: Vec<Turn> = extents.into_iter().map(Turns::map).collect();
    let trim_unit = u32::try_from(BLOCK).expect("small");
    Host::new(Turns::new(turns), Welcome { is_persistent: true, keeps_answers: true, trim_unit })
}

/// Places that the mapper was told to hold when the engine connected last.
fn held(host: &Host<Turns>) -> Vec<Place> {
    host.mapper.held().iter().map(|extent| extent.place).collect()
}

/// The mapper forgets answers for block 0.
async fn invalidate(host: &Host<Turns>, access: Access) {
    host.mapper.say(1, &ToEngine::Invalidate { offset: 0, length: BLOCK, access });
    host.settle().await;
}

#[test]
fn an_answer_to_one_write_alone_is_sent_again_until_the_mapper_has_made_it_durable() {
    let host = host(vec![once(4)]);
    host.run(async {
        host.write(0).await.expect("a good disk");
        host.reconnect().await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6: the write was acknowledged");
        host.flush().await.expect("a good disk");
        assert_eq!(host.mapper.flushes(), 1, "DELEGATE3: the mapping is not durable before");
        host.reconnect().await;
        assert_eq!(held(&host), [], "REMAP2: it is durable");
    });
}

#[test]
fn of_answers_to_one_write_alone_the_last_is_sent_again() {
    let host = host(vec![once(4), once(5), copied_once(6), data(7)]);
    host.run(async {
        for (count, at) in [(1, 4), (2, 5), (3, 6), (4, 7)] {
            host.write(0).await.expect("a good disk");
            assert_eq!(host.mapper.questions().len(), count, "each write asks");
            host.reconnect().await;
            assert_eq!(held(&host), [data(at).place], "REMAP2");
        }
    });
}

#[test]
fn what_was_copied_for_one_write_alone_is_read_after_zeros_were_known() {
    let host = host(vec![copied_once(4), wire::Extent { access: Access::READ, ..data(4) }]);
    host.run(async {
        host.delegate.connected(true).await;
        host.discard(first()).await.expect("it can be trimmed");
        host.write(0).await.expect("a good disk");
        assert_eq!(host.read(0).await, [b'w'; BLOCK as usize], "REMAP1: the zeros were replaced");
        host.reconnect().await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6");
    });
}

#[test]
fn answers_to_one_write_alone_are_forgotten_when_those_for_writes_are_invalidated() {
    let host = host(vec![once(4)]);
    host.run(async {
        host.write(0).await.expect("a good disk");
        invalidate(&host, Access::READ).await;
        host.reconnect().await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6: those for reads alone are invalid");
        invalidate(&host, Access::WRITE).await;
        host.reconnect().await;
        assert_eq!(held(&host), []);
    });
}

#[test]
fn a_range_that_was_trimmed_holds_no_answer_to_one_write_alone() {
    let host = host(vec![once(4)]);
    host.run(async {
        host.write(0).await.expect("a good disk");
        host.discard(first()).await.expect("it can be trimmed");
        host.reconnect().await;
        assert_eq!(held(&host), [Place::Zero], "DELEGATE6");
    });
}

#[test]
fn answers_for_a_range_that_the_mapper_fails_to_trim_are_sent_again_and_used_no_more() {
    let host = host(vec![data(4), data(5)]);
    host.script.trimmed.set(Some(Status::Failed));
    host.run(async {
        host.write(0).await.expect("a good disk");
        assert_eq!(host.discard(first()).await, Err(IoError::Medium));
        host.reconnect().await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6: the write was acknowledged");
        host.write(0).await.expect("a good disk");
        assert_eq!(host.own.peek(Extent::new(5 * BLOCK, BLOCK)), [b'w'; BLOCK as usize], "it is asked for");
        host.reconnect().await;
        assert_eq!(held(&host), [data(5).place], "REMAP2: the later answer replaced it");
    });
}

#[test]
fn answers_for_a_range_that_a_mapper_died_trimming_are_sent_to_it_when_it_is_back_after_all() {
    let host = host(vec![once(4)]);
    host.script.trimmed.set(None);
    host.run(async {
        host.write(0).await.expect("a good disk");
        let die = async {
            host.settle().await;
            host.mapper.is_away.set(true);
            host.mapper.die();
        };
        let (discarded, ()) = futures_util::future::join(host.discard(first()), die).await;
        assert_eq!(discarded, Err(IoError::Medium), "DELEGATE7");
        host.mapper.is_away.set(false);
        host.delegate.connected(true).await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6");
    });
}

/// What is copied for a write lands while a discard of the range waits for it; then the mapper dies before it has trimmed the range.
#[test]
fn a_copy_that_lands_while_a_trim_waits_is_sent_to_a_mapper_that_comes_back() {
    for copied in [copied_once(4), wire::Extent { once: false, ..copied_once(4) }] {
        let host = host(vec![copied]);
        host.script.trimmed.set(None);
        host.run(async {
            host.holder.hold_next(1, Holds::VolatileWrites);
            let land = async {
                host.settle().await;
                assert_eq!(host.holder.held(), 1, "the copy is under way");
                host.holder.release();
                host.settle().await;
                assert_eq!(host.mapper.trims().len(), 1, "DELEGATE5: the trim has waited");
                host.reconnect().await;
                assert_eq!(held(&host), [data(4).place], "DELEGATE6: the write was acknowledged");
            };
            let discard = async {
                host.world.clock().sleep(Duration::from_millis(100)).await;
                host.discard(first()).await
            };
            let (written, discarded, ()) = futures_util::future::join3(host.write(0), discard, land).await;
            written.expect("a good disk");
            assert_eq!(discarded, Err(IoError::Medium), "the mapper never says that it has trimmed");
        });
    }
}

/// A write, and a discard of it that the mapper has not answered when the request is given up. The number of the trim.
async fn give_up_a_trim(host: &Host<Turns>) -> u64 {
    host.script.trimmed.set(None);
    host.write(0).await.expect("a good disk");
    assert_eq!(host.discard(first()).await, Err(IoError::Medium), "DELEGATE7");
    let trims = host.mapper.trims();
    assert_eq!(trims.len(), 1);
    trims[0]
}

#[test]
fn answers_for_a_range_are_told_again_if_the_mapper_dies_after_the_trim_was_given_up() {
    let host = host(vec![data(4), data(5)]);
    host.run(async {
        give_up_a_trim(&host).await;
        host.world.clock().sleep(Duration::from_secs(60)).await;
        host.reconnect().await;
        assert_eq!(held(&host), [data(4).place], "DELEGATE6: the write was acknowledged");
        host.write(0).await.expect("it is trimmed no more");
        assert_eq!(host.own.peek(Extent::new(5 * BLOCK, BLOCK)), [b'w'; BLOCK as usize], "it is asked for");
    });
}

#[test]
fn a_range_is_used_by_no_request_until_a_trim_that_was_given_up_is_answered() {
    for (status, place) in [(Status::Done, Place::Zero), (Status::Failed, data(4).place)] {
        let elsewhere = wire::Extent::new(BLOCK, BLOCK, Place::Data { device: OWN, offset: 7 * BLOCK });
        let host = host(vec![data(4), elsewhere, data(5)]);
        host.run(async {
            let trim = give_up_a_trim(&host).await;
            assert_eq!(host.write(0).await, Err(IoError::Medium), "DELEGATE5: the range may be trimmed yet");
            assert_eq!(host.mapper.questions().len(), 1, "DELEGATE5: it is asked nothing of the range");
            host.write(BLOCK).await.expect("DELEGATE7: other ranges are used");
            let other = Extent::new(2 * BLOCK, BLOCK);
            assert_eq!(host.discard(other).await, Err(IoError::Medium));
            assert_eq!(host.mapper.trims(), [trim], "no other trim is sent meanwhile");
            host.mapper.say(trim, &ToEngine::Trimmed(status));
            host.settle().await;
            assert_eq!(host.delegate.status().silence, Duration::ZERO, "nothing waits for the mapper");
            host.reconnect().await;
            let places = held(&host);
            assert!(places.contains(&place) && places.len() == 2, "DELEGATE6: {places:?}");
            host.script.trimmed.set(Some(Status::Done));
            host.discard(other).await.expect("trims go on");
            host.write(0).await.expect("a good disk");
            let written = host.own.peek(Extent::new(5 * BLOCK, BLOCK));
            assert_eq!(written, [b'w'; BLOCK as usize], "the range is asked for anew");
        });
    }
}

#[test]
fn a_range_that_was_trimmed_late_is_zeros() {
    let host = host(vec![data(4)]);
    host.run(async {
        let trim = give_up_a_trim(&host).await;
        let late = async {
            host.settle().await;
            host.mapper.say(trim, &ToEngine::Trimmed(Status::Done));
        };
        let (read, ()) = futures_util::future::join(host.read(0), late).await;
        assert_eq!(read, [0; BLOCK as usize], "DELEGATE5: what waited for the trim sees what it did");
    });
}
