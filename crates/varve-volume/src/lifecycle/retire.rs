//! A volume or pool in which something panicked: no longer known on its shard, its doors led to errors, its control notified.

use super::health::{Health, drop_quietly};
use super::open;
use crate::ShardContext;
use crate::doors::views::lead_to_errors;
use crate::events::VolumeEvent;
use crate::failures;
use crate::spec::ActivationSpec;
use futures_util::future::join_all;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::{IoError, yield_now};

/// The state of a volume or pool that is taken into use.
pub(crate) fn health_of(context: &ShardContext, subject: Uuid) -> Health {
    let context = context.apart();
    Health::new(move |reason| {
        context.clone().spawner().spawn(async move {
            retire(&context, subject).await;
            context.tell(VolumeEvent::Failed { volume: subject, reason });
        });
    })
}

/// Takes a volume or pool into use on this shard. A panic meanwhile is an error, and takes it out of use.
pub async fn activate(context: &ShardContext, spec: &ActivationSpec) -> Result<(), Failure> {
    let health = health_of(context, spec.node.id);
    let opened = health.contain(Box::pin(open::open(context, spec, &health))).await;
    opened.unwrap_or_else(|_| Err(failures::failed(&spec.name, spec.node.is_pool(), &health.reason())))
}

/// Closes a volume or pool; everything that was acknowledged is durable afterwards. A panic meanwhile is an error.
pub async fn deactivate(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let health = {
        let stack = context.state().stacks.borrow().get(&volume).map(|stack| stack.health().clone());
        stack.or_else(|| context.state().pools.borrow().get(&volume).map(|pool| pool.health.clone()))
    };
    let members: Vec<Uuid> = {
        let state = context.state();
        let stacks = state.stacks.borrow();
        stacks.values().filter(|stack| stack.pool() == Some(volume)).map(|stack| stack.id()).collect()
    };
    let ended = match &health {
        Some(health) => health.contain(Box::pin(open::close(context, volume))).await,
        None => Ok(Ok(())),
    };
    context.state().tops.borrow_mut().retain(|id, _| *id != volume && !members.contains(id));
    if let Ok(ended) = ended {
        return ended;
    }
    yield_now().await; // Whatever else of the volume was under way was woken, and ends.
    let reason = health.map_or(String::new(), |health| health.reason());
    Err(failures::failed("the volume", false, &reason))
}

/// Forgets a failed volume, or a pool with its volumes, when every request to it has ended with an error. Their doors
/// get errors from then on.
async fn retire(context: &ShardContext, subject: Uuid) {
    context.moves.stop_copying(subject);
    let stacks = context.state().take_stacks(subject);
    let pool = context.state().pools.borrow_mut().remove(&subject);
    join_all(stacks.iter().map(async |stack| {
        let suspended = stack.suspend_doors().await;
        let broken = lead_to_errors(&suspended, IoError::Medium);
        stack.note_loss();
        drop_quietly(broken);
    }))
    .await;
    context.moves.forget(subject);
    context.arrays.abandon(subject);
    context.images.abandon(subject);
    context.mappers.close(subject);
    drop_quietly((stacks, pool));
}
