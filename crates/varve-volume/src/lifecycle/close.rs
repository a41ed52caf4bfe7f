//! Takes volumes and pools out of use, whatever the reason.
//!
//! | reason | last writes | requests of doors |
//! |---|---|---|
//! | deactivated | are made durable | end: the doors are closed already |
//! | reopened | are made durable | wait until it is in use again |
//! | fenced | reach nothing | get `Gone` until it is in use again |
//! | failed | reach nothing | get `Medium` until it is in use again |
//!
//! Invariants:
//! - CLOSE1. A volume or pool is no longer found on its shard when its closing begins, and what it had open is closed when that ends.
//! - CLOSE2. A panic while something is closed is its own: what is left is closed as if it had failed, and the shard goes on.

use super::health::drop_quietly;
use super::reason::Reason;
use crate::ShardContext;
use crate::doors::views::lead_to_errors;
use crate::failures;
use crate::fault;
use crate::served::Served;
use crate::volume_stack::VolumeStack;
use futures_util::future::join_all;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{IoError, Suspended, yield_now};
use varve_target::snapshot::FullPolicy;
use varve_target::thin::WhenFull;

/// Closes a volume, or a pool with its volumes, if it is in use. Unless it is fenced or has failed, everything that was acknowledged is
/// durable afterwards. A panic meanwhile is an error (CLOSE2).
pub async fn close(context: &ShardContext, id: Uuid, reason: Reason) -> Result<(), Failure> {
    context.moves.stop_copying(id);
    let state = context.state();
    let served = state.take(id, |served| reason != Reason::Failed || served.below().health.is_failed());
    let stacks: Vec<Rc<VolumeStack>> = served.iter().filter_map(Served::stack).cloned().collect();
    if reason == Reason::Reopened {
        state.aside.borrow_mut().extend(stacks.iter().map(|stack| stack.id()));
    }
    let closed = close_served(context, &served, &stacks, reason).await;
    context.moves.forget(id);
    if reason == Reason::Deactivated {
        let is_of = |known: &Uuid| *known == id || stacks.iter().any(|stack| stack.id() == *known);
        state.tops.borrow_mut().retain(|known, _| !is_of(known));
    }
    drop_quietly((served, stacks));
    closed
}

async fn close_served(
    context: &ShardContext,
    served: &[Served],
    stacks: &[Rc<VolumeStack>],
    reason: Reason,
) -> Result<(), Failure> {
    let Some(health) = served.first().map(|served| served.below().health.clone()) else { return Ok(()) };
    let ended = health.contain(Box::pin(end(context, served, stacks, reason))).await;
    if let Ok(ended) = ended {
        return ended;
    }
    yield_now().await; // Whatever else of the volume was under way was woken, and ends.
    abandon(served, stacks).await;
    Err(failures::failed("the volume", false, &health.reason()))
}

/// Closes what has not failed.
async fn end(
    context: &ShardContext,
    served: &[Served],
    stacks: &[Rc<VolumeStack>],
    reason: Reason,
) -> Result<(), Failure> {
    if reason == Reason::Fenced {
        served.iter().for_each(refuse);
    }
    let (mut outcome, mut held) = (Ok(()), Vec::new());
    for stack in stacks {
        fault::panic_at(&stack.id().to_string(), reason.verb());
        match reason {
            Reason::Deactivated => outcome = outcome.and(flush(stack).await),
            Reason::Reopened => held.extend(hold(stack).await),
            Reason::Fenced | Reason::Failed => lead_away(stack, IoError::Gone).await,
        }
    }
    for served in served {
        outcome = outcome.and(served.close(reason).await);
    }
    context.state().held.borrow_mut().extend(held);
    outcome
}

/// Lets nothing through any more, and no request wait for space or for a mapper.
fn refuse(served: &Served) {
    match served {
        Served::Pool(open) => open.pool.set_when_full(WhenFull::Error),
        Served::Stack(stack) => {
            stack.stores.borrow().iter().for_each(|open| open.store.set_full_policy(FullPolicy::Error));
        }
    }
    if let Some(own) = served.own() {
        own.gate.close();
        own.mapper.let_fail(true);
    }
}

/// Makes durable what was written.
async fn flush(stack: &VolumeStack) -> Result<(), Failure> {
    stack.opened().mapper.let_fail(false); // The last flush waits for a mapper as long as any request may.
    stack.flush().await.map_err(|error| last_flush(stack, error))
}

/// The error of a last flush: of the disks, or of a mapper that did not come back for it.
fn last_flush(stack: &VolumeStack, error: IoError) -> Failure {
    let trouble = match stack.opened().mapper.facts() {
        Some(facts) if !facts.status.is_connected => {
            format!("its mapper is away: {}", facts.why_away.unwrap_or_default())
        }
        Some(facts) if facts.status.has_failed => "its mapper does not answer".to_owned(),
        _ => return failures::io("the last flush", error),
    };
    Failure::new(Code::MediumFailed, format!("the last flush: {trouble}"))
        .help("what was written since the flush before it is lost")
}

/// Holds back the requests of the doors, which lead to errors from now on, and makes durable what was written.
async fn hold(stack: &VolumeStack) -> Vec<Suspended> {
    let suspended = stack.suspend_doors().await;
    // The last flush goes past the doors.
    for last in lead_to_errors(&suspended, IoError::Medium) {
        if last.flush().await.is_err() {
            stack.note_loss();
        }
    }
    suspended
}

/// Leads the doors to `error`, when requests under way have ended; they are kept for when the volume is in use again.
async fn lead_away(stack: &VolumeStack, error: IoError) {
    let suspended = stack.suspend_doors().await;
    drop_quietly(lead_to_errors(&suspended, error));
    stack.note_loss();
}

/// Closes what has failed, when every request to it has ended with an error: nothing of it is touched again.
async fn abandon(served: &[Served], stacks: &[Rc<VolumeStack>]) {
    join_all(stacks.iter().map(|stack| lead_away(stack, IoError::Medium))).await;
    served.iter().for_each(|served| served.below().abandon());
}
