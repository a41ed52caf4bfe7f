//! A volume or snapshot on whichever shard, as what an export leads to.

use super::limits::Limits;
use super::nbd::ExportTarget;
use crate::lifecycle::reopen::device_when_open;
use crate::{ShardContext, ShardHandle};
use uuid::Uuid;
use varve_block::{Device, LocalFuture};

/// A volume or snapshot.
#[derive(Clone)]
pub struct Target {
    /// The volume.
    pub volume: Uuid,
    /// One of its snapshots, or the volume itself.
    pub snapshot: Option<String>,
    /// The shard on which the volume lives.
    pub home: ShardHandle,
    /// Whether clients may not write.
    pub read_only: bool,
    /// How fast clients may be, over all connections that have these limits.
    pub limits: Limits,
}

/// A volume or snapshot as seen from the shard of its socket.
pub struct ReachedFrom {
    /// That shard.
    pub context: ShardContext,
    /// What is reached.
    pub target: Target,
}

impl ExportTarget for ReachedFrom {
    fn description(&self) -> &'static str {
        match self.target.snapshot {
            Some(_) => "a snapshot",
            None => "a volume",
        }
    }

    fn is_read_only(&self) -> bool {
        self.target.read_only
    }

    fn device(&self) -> LocalFuture<'_, Option<Device>> {
        Box::pin(reach(&self.context, &self.target))
    }
}

/// A device for this shard onto a volume that lives on this one or another.
async fn reach(context: &ShardContext, target: &Target) -> Option<Device> {
    if target.home.index() == context.index() {
        return limited(context, target).await;
    }
    let asked = target.clone();
    let portal =
        target.home.run(async move |there: ShardContext| Some(there.portal(&limited(&there, &asked).await?)));
    let portal = portal.await.ok().flatten()?;
    Some(context.import(&portal))
}

/// A device of this shard, on which the volume lives, behind the limits of the export.
async fn limited(here: &ShardContext, target: &Target) -> Option<Device> {
    let device = device_when_open(here, target.volume, target.snapshot.as_deref()).await?;
    Some(target.limits.guard(device, here.clock()))
}
