//! What passes to another process that takes over: disks with their locks, and clients that see a pause.
//!
//! Invariants:
//! - HANDOVER1. Nothing is closed before all clients that are to pass on wait, with everything answered that they began. If that lasts too
//!   long they are served on, and the failure names what does not end.
//! - HANDOVER2. Requests of clients are waited for and none fails because of the handover, those excepted that wait for space when the
//!   volumes are closed.

use super::server::HandedSocket;
use crate::{Control, PROBE};
use futures_util::future::join_all;
use std::os::fd::OwnedFd;
use std::time::Duration;
use varve_api::{Code, Failure};

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
    lift_limits(control, true);
    let servers = control.exports.servers();
    let detached = join_all(servers.iter().map(|server| server.detach()));
    if control.until(deadline, detached).await.is_none() {
        let failure = hangs(control, bound).await;
        join_all(servers.iter().map(|server| server.resume())).await;
        lift_limits(control, false);
        return Err(failure);
    }
    let sockets = join_all(servers.iter().map(|server| server.take_detached())).await;
    let known = control.disks.known.borrow();
    let disks = known.values().filter_map(|known| known.file.descriptor()).collect();
    Ok(Handover { sockets: sockets.into_iter().flatten().collect(), disks })
}

/// Serves the clients on that passed here.
pub(crate) async fn adopt(control: &Control, sockets: Vec<HandedSocket>) {
    for HandedSocket { address, connections, .. } in sockets {
        let door = control
            .exports
            .known
            .borrow()
            .values()
            .find_map(|known| (known.remembered.address == address).then_some(known.remembered.door));
        match door {
            Some(door) => control.exports.server(door).adopt(&address, connections).await,
            None => tracing::warn!(
                address,
                "no export is at a socket that was passed here: its clients are disconnected"
            ),
        }
    }
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

/// Why requests do not end.
async fn hangs(control: &Control, bound: Duration) -> Failure {
    let soon = control.context.clock().now().after(PROBE);
    let silent = control.silent_disks(soon).await;
    let names: Vec<String> = silent.iter().map(|path| path.display().to_string()).collect();
    let why = match names.as_slice() {
        [] => "requests of clients do not end".to_owned(),
        _ => format!("requests of clients do not end: {} does not answer", names.join(", ")),
    };
    Failure::new(Code::VolumeBusy, format!("{why} within {} s", bound.as_secs()))
        .help("varve pv list, varve status; then start the new daemon again")
}
