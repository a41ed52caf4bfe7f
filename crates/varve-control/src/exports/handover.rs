//! What passes to another process that takes over: disks with their locks, and clients that see a pause.
//!
//! Once clients are out no command begins any more: one that looks for clients would see none.
//!
//! Invariants:
//! - HANDOVER1. Nothing is closed before all clients that are to pass on wait, with everything answered that they began. If that lasts too
//!   long they are served on, and the failure names what does not end. What is known not to end is named before any client waits.
//! - HANDOVER2. Requests of clients are waited for and none fails because of the handover, those excepted that wait for space when the
//!   volumes are closed.

use super::server::HandedSocket;
use crate::{Control, PROBE};
use futures_util::future::join_all;
use std::os::fd::OwnedFd;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Moment;
use varve_volume::ShardHandle;

/// What another process goes on with.
#[derive(Debug, Default)]
pub struct Handover {
    /// Sockets of exports.
    pub sockets: Vec<HandedSocket>,
    /// Disks; their locks travel with them.
    pub disks: Vec<OwnedFd>,
}

/// Detaches all clients that can be passed on, within `bound` (HANDOVER1).
pub(crate) async fn prepare(control: &Control, bound: Duration) -> Result<Handover, Failure> {
    let deadline = control.context.clock().now().after(bound);
    let Some(_locks) = control.until(deadline, control.lock_everything()).await else {
        let message = format!("a command does not end within {} s", bound.as_secs());
        return Err(Failure::new(Code::VolumeBusy, message).help("varve status, varve job list"));
    };
    let soon = control.context.clock().now().after(PROBE.max(bound / 4));
    if let Some(failure) = obstacle(control, soon).await {
        return Err(failure);
    }
    lift_limits(control, true);
    let servers = control.exports.servers();
    let detached = join_all(servers.iter().map(|server| server.detach()));
    if control.until(deadline, detached).await.is_none() {
        let soon = control.context.clock().now().after(PROBE);
        let failure = obstacle(control, soon).await.unwrap_or_else(|| unknown_obstacle(bound));
        join_all(servers.iter().map(|server| server.resume())).await;
        lift_limits(control, false);
        return Err(failure);
    }
    let sockets = join_all(servers.iter().map(|server| server.take_detached())).await;
    control.life.stopping.set(true); // Commands that wait for the locks are refused.
    // What went wrong before is in the log, and tells nothing of what is passed on.
    control.life.faults.take();
    let known = control.disks.known.borrow();
    let disks = known.values().filter_map(|known| known.file.descriptor()).collect();
    Ok(Handover { sockets: sockets.into_iter().flatten().collect(), disks })
}

/// Serves the clients on that passed here; how many.
pub(crate) async fn adopt(control: &Control, sockets: Vec<HandedSocket>) -> usize {
    let mut adopted = 0;
    for HandedSocket { address, connections, .. } in sockets {
        let door = control
            .exports
            .known
            .borrow()
            .values()
            .find_map(|known| (known.remembered.address == address).then_some(known.remembered.door));
        match door {
            Some(door) => adopted += control.exports.server(door).adopt(&address, connections).await,
            None => tracing::warn!(
                address,
                "no export is at a socket that was passed here: its clients are disconnected"
            ),
        }
    }
    adopted
}

/// EXPORTLIMIT1: what waits goes on, or has its limits again.
fn lift_limits(control: &Control, are_lifted: bool) {
    for (id, known) in &*control.exports.known.borrow() {
        match are_lifted {
            true => control.exports.lift_limits(id),
            false if known.door().is_some() => drop(control.exports.limits_of(&known.remembered)),
            false => {}
        }
    }
}

/// Why requests would not end, as far as it is known until `soon`: writes that wait for space, or a disk that does not answer.
async fn obstacle(control: &Control, soon: Moment) -> Option<Failure> {
    let waiting = join_all(control.shards.iter().map(ShardHandle::waiting_for_space));
    let waiting: Vec<Uuid> = match control.until(soon, waiting).await {
        Some(waiting) => waiting.into_iter().flatten().flatten().collect(),
        None => Vec::new(),
    };
    if let Some(volume) = waiting.first() {
        let (group, _) = control.name_of(*volume).unwrap_or_default();
        let message = format!("writes wait for space in {}", control.subject(*volume));
        let help =
            format!("varve vg extend {group} PATH…, or remove snapshots; then start the new daemon again");
        return Some(Failure::new(Code::VolumeBusy, message).help(help));
    }
    let silent = control.silent_disks(soon).await;
    let names: Vec<String> = silent.iter().map(|path| path.display().to_string()).collect();
    (!names.is_empty()).then(|| {
        let message = format!("requests do not end: no answer comes from {}", names.join(", "));
        Failure::new(Code::VolumeBusy, message)
            .help("varve pv list; start the new daemon again when the disk answers, or stop the one that runs (SIGTERM)")
    })
}

fn unknown_obstacle(bound: Duration) -> Failure {
    Failure::new(Code::VolumeBusy, format!("requests of clients do not end within {} s", bound.as_secs()))
        .help("varve status; then start the new daemon again")
}
