//! The order of grants, and their bounds, by size class.

use super::*;

/// One hundred of them are the budget of most tests; a request of some is large.
const UNIT: u64 = 1 << 20;

fn small(bytes: u64) -> Memory {
    Memory { small: bytes, large: 0 }
}

fn large(units: u64) -> Memory {
    Memory::of(units * UNIT)
}

fn wait(budget: &Budget, memory: Memory) -> Claim {
    budget.wait(1, memory, Waker::noop())
}

#[test]
fn waiters_of_a_class_are_served_in_order_and_none_overtakes_them() {
    let budget = Budget::new(100 * UNIT);
    assert!(budget.try_take(large(70)));
    let (mut first, mut second) = (wait(&budget, large(60)), wait(&budget, large(10)));
    assert!(!first.take() && !second.take() && !budget.try_take(large(1)), "BUDGET4");
    budget.give(large(30));
    assert!(!first.take() && !second.take(), "BUDGET4: the first in line is short of bytes");
    budget.give(large(30));
    assert!(first.take() && !second.take(), "BUDGET3");
    budget.give(large(60));
    assert!(second.take());
    budget.give(large(20));
    assert_eq!(budget.used(), 0, "BUDGET1");
}

#[test]
fn exports_take_turns() {
    let budget = Budget::new(100 * UNIT);
    assert!(budget.try_take(large(75)));
    let mut many: Vec<_> = (0..3).map(|_| wait(&budget, large(75))).collect();
    let mut other = budget.wait(2, large(75), Waker::noop());
    budget.give(large(75));
    assert!(many[0].take() && !other.take(), "BUDGET4: none was served before");
    budget.give(large(75));
    assert!(other.take() && !many[1].take(), "BUDGET4: it is the other export's turn");
    budget.give(large(75));
    assert!(many[1].take(), "BUDGET4");
    drop(many);
    budget.give(large(75));
    assert_eq!(budget.used(), 0, "BUDGET1");
}

#[test]
fn a_claim_that_is_dropped_makes_room_and_gives_back_what_was_granted() {
    let budget = Budget::new(100 * UNIT);
    assert!(budget.try_take(large(70)));
    let (first, mut second) = (wait(&budget, large(60)), wait(&budget, large(5)));
    drop(first);
    assert!(second.take(), "BUDGET4");
    let granted = wait(&budget, small(5));
    drop(granted);
    budget.give(large(75));
    assert_eq!((budget.used(), budget.is_short()), (0, false), "BUDGET1");
}

#[test]
fn small_requests_have_a_quarter_that_no_large_one_takes() {
    let budget = Budget::new(100 * UNIT);
    assert!(budget.try_take(large(75)) && !budget.try_take(large(1)), "BUDGET3");
    let waiting = wait(&budget, large(75));
    assert!((0..25).all(|_| budget.try_take(small(UNIT))), "BUDGET3");
    assert!(!budget.try_take(small(1)), "BUDGET2");
    assert_eq!(budget.used(), 100 * UNIT, "BUDGET2");
    drop(waiting);
    budget.give(large(75));
    assert!(budget.try_take(small(75 * UNIT)), "what no large request wants is for the small ones");
}

#[test]
fn small_requests_keep_to_their_quarter_while_a_large_one_waits() {
    let budget = Budget::new(100 * UNIT);
    assert!(budget.try_take(small(90 * UNIT)));
    let mut waiting = wait(&budget, large(60));
    assert!(!waiting.take() && !budget.try_take(small(1)), "BUDGET5");
    budget.give(small(49 * UNIT));
    assert!(!waiting.take() && !budget.try_take(small(1)), "BUDGET5");
    budget.give(small(UNIT));
    assert!(waiting.take(), "BUDGET5");
}

#[test]
fn a_giant_is_granted_once_it_is_alone_among_the_large() {
    let budget = Budget::new(100 * UNIT);
    let kept = budget.reserve(30 * UNIT).expect("free");
    assert!(budget.try_take(large(1)) && budget.try_take(small(UNIT)));
    let mut giant = wait(&budget, large(1000));
    assert!(!giant.take(), "BUDGET2");
    budget.give(large(1));
    assert!(giant.take(), "BUDGET2");
    let mut next = wait(&budget, large(1));
    assert!(!next.take(), "BUDGET2");
    assert!(budget.try_take(small(24 * UNIT)) && !budget.try_take(small(1)), "BUDGET2");
    budget.give(large(1000));
    assert!(next.take());
    drop(kept);
}

#[test]
fn reservations_leave_a_quarter_to_requests() {
    let budget = Budget::new(100);
    let first = budget.reserve(50).expect("free");
    assert!(budget.reserve(26).is_none(), "BUDGET3");
    let second = budget.reserve(25).expect("BUDGET3");
    drop(first);
    assert_eq!(budget.used(), 25, "BUDGET1");
    assert!(budget.try_take(small(75)));
    assert!(budget.reserve(25).is_none(), "BUDGET2: what requests have taken is not to be had");
    drop(second);
    assert_eq!(budget.used(), 75, "BUDGET1");
    let large_ones = Budget::new(100 * UNIT);
    assert!(large_ones.try_take(large(70)));
    assert!(large_ones.reserve(6 * UNIT).is_none(), "BUDGET3");
    assert!(large_ones.reserve(5 * UNIT).is_some(), "BUDGET3");
}

#[test]
fn what_only_makes_requests_faster_is_set_aside_from_half_and_while_none_waits() {
    let budget = Budget::new(100);
    let kept = budget.reserve_spare(50).expect("free");
    assert!(budget.reserve_spare(1).is_none() && budget.reserve(25).is_some());
    drop(kept);
    assert!(budget.try_take(small(100)));
    let waiting = wait(&budget, small(1));
    budget.give(small(60));
    assert!(budget.reserve_spare(1).is_some(), "none waits any more");
    assert!(budget.try_take(small(59)));
    let _other = wait(&budget, small(1));
    assert!(budget.reserve_spare(0).is_none());
    drop(waiting);
}

#[test]
fn threads_wait_until_there_is_room() {
    let budget = Budget::new(100);
    budget.take_blocking(1, small(60));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    budget.take_blocking(1, small(60));
                    assert!(budget.used() <= 100, "BUDGET2");
                    budget.give(small(60));
                }
            });
        }
        budget.give(small(60));
    });
    assert_eq!(budget.used(), 0, "BUDGET1");
}
