//! Tests of volumes that are block devices of the host's kernel: what is refused, what comes back, and what a change does to them.

use super::losses::{live_until, make_group};
use super::*;
use crate::simulation::attached::SimKernel;
use std::time::Duration;
use varve_api::{Door, Export, ExportCreate, ExportRemove, ExportState, Failure, Rename};
use varve_sim::CrashKind;

/// Longer than until an export that is down is tried again.
const LONG: Duration = Duration::from_secs(10);

fn attach_request(volume: &str) -> ExportCreate {
    let (volume, address) = (volume.to_owned(), format!("/dev/varve/{volume}"));
    ExportCreate { volume, door: Some(Door::KernelNbd), address, ..Default::default() }
}

async fn attach(control: &Control, volume: &str) -> Result<Export, Failure> {
    match control.create_export(attach_request(volume)).await? {
        Changed::Done(export) => Ok(export),
        Changed::Planned(plan) => panic!("{plan:?}"),
    }
}

/// The kernel's devices: number, bytes, whether they are served.
fn devices() -> Vec<(u32, u64, bool)> {
    let shown = |kernel: &mut SimKernel| {
        kernel.devices.values().map(|device| (device.number, device.size, device.is_served)).collect()
    };
    host().files.with_kernel(shown)
}

fn set_users(users: &[&str]) {
    let users: Vec<String> = users.iter().map(|user| (*user).to_owned()).collect();
    host().files.with_kernel(|kernel| {
        kernel.devices.values_mut().for_each(|device| device.users.clone_from(&users));
    });
}

async fn shown(control: &Control) -> Export {
    control.list_exports().await.expect("exports").pop().expect("one")
}

#[test]
fn a_volume_is_not_attached_where_the_kernel_has_no_client_and_nothing_is_left() {
    with_disks(1, "300M", async |control, _| {
        make_linear(&control, "data/v", "4M").await;
        let failure = attach(&control, "data/v").await.expect_err("no client");
        assert_eq!(failure.code, Code::DoorFailed);
        let help = failure.help;
        assert!(help.contains("modprobe nbd") && help.contains("--fuse"), "{help}");
        assert_eq!(control.list_exports().await, Ok(Vec::new()));
        host().files.with_kernel(|kernel| kernel.has_client = true);
        let dry = ExportCreate { dry_run: true, ..attach_request("data/v") };
        control.create_export(dry).await.expect("it could be");
        assert_eq!(devices(), []);
        let made = attach(&control, "data/v").await.expect("a device");
        assert_eq!(made.path.as_deref(), Some("/dev/varve/data/v"));
        assert_eq!(made.device.as_deref(), Some("/dev/nbd0"));
        assert_eq!(attach(&control, "data/v").await.map_err(|failure| failure.code), Err(Code::ExportExists));
    });
}

#[test]
fn ublk_is_another_door_at_the_same_link() {
    with_disks(1, "300M", async |control, _| {
        make_linear(&control, "data/v", "4M").await;
        host().files.with_kernel(|kernel| kernel.has_client = true);
        let request = ExportCreate { door: Some(Door::Ublk), ..attach_request("data/v") };
        let failure = control.create_export(request.clone()).await.map(drop).expect_err("no driver");
        assert_eq!(failure.code, Code::DoorFailed);
        assert!(failure.message.contains("ublk_drv"), "{}", failure.message);
        let help = failure.help;
        assert!(help.contains("modprobe ublk_drv") && help.contains("--via nbd"), "{help}");
        assert_eq!((control.list_exports().await, devices()), (Ok(Vec::new()), Vec::new()));
        host().files.with_kernel(|kernel| kernel.has_ublk = true);
        control.create_export(request).await.map(drop).expect("a device");
        let made = shown(&control).await;
        assert_eq!((made.door, made.device.as_deref()), (Door::Ublk, Some("/dev/ublkb0")));
        assert_eq!(made.path.as_deref(), Some("/dev/varve/data/v"));
        let taken = attach(&control, "data/v").await.map_err(|failure| failure.code);
        assert_eq!(taken, Err(Code::ExportExists), "one link leads to one device");
    });
}

#[test]
fn what_uses_a_device_is_in_the_way_of_whatever_would_take_it_away() {
    with_disks(1, "300M", async |control, _| {
        host().files.with_kernel(|kernel| kernel.has_client = true);
        make_linear(&control, "data/v", "4M").await;
        let snapshots = SnapshotCreate { names: vec!["data/v@s".into()], ..Default::default() };
        control.create_snapshots(snapshots).await.expect("there is space");
        let made = attach(&control, "data/v").await.expect("a device");
        set_users(&["mounted on /mnt"]);
        let remove = |force| ExportRemove { force, dry_run: false };
        let refused = control.remove_export(&made.id, remove(false)).await.expect_err("it is mounted");
        assert_eq!(refused.code, Code::ClientsConnected, "EXPORTS4");
        assert!(refused.message.contains("mounted on /mnt"), "{}", refused.message);
        let to = Rename { to: "w".into(), ..Default::default() };
        let refused = control.rename_volume("data/v", to.clone()).await.map(drop).expect_err("it is mounted");
        assert_eq!(refused.code, Code::ClientsConnected, "EXPORTS4");
        let back = SnapshotRollback { name: "data/v@s".into(), ..Default::default() };
        let refused = control.rollback_snapshot(back).await.map(drop).expect_err("it is mounted");
        assert_eq!(refused.code, Code::ClientsConnected, "EXPORTS4");
        assert_eq!(shown(&control).await.clients, ["mounted on /mnt"]);
        let longer = Resize { size: "8M".into(), ..Default::default() };
        control.extend_volume("data/v", longer).await.expect("there is space");
        assert_eq!(devices(), [(0, 8 * MIB, true)]);
        set_users(&[]);
        control.rename_volume("data/v", to).await.expect("nothing uses it");
        assert_eq!(shown(&control).await.volume, "data/w");
        set_users(&["process 7 (dd)"]);
        control.remove_export(&made.id, remove(true)).await.expect("it is forced");
        assert_eq!(devices(), []);
    });
}

#[test]
fn a_device_is_there_again_with_the_next_daemon_however_the_last_one_ended() {
    let machine = Host::new(1, Duration::from_micros(200));
    machine.files.with_kernel(|kernel| kernel.has_client = true);
    let paths = vec!["/disk0".to_owned()];
    live_until(&machine, CrashKind::Process, async move |control| {
        make_group(&control, &paths).await;
        make_linear(&control, "data/v", "4M").await;
        attach(&control, "data/v").await.expect("a device");
        set_users(&["mounted on /mnt"]);
    });
    machine
        .files
        .with_kernel(|kernel| kernel.devices.values_mut().for_each(|device| device.is_served = false));
    live_until(&machine, CrashKind::Process, async move |control| {
        assert_eq!(devices(), [(0, 4 * MIB, true)], "EXPORTS1: the same one");
        assert_eq!(shown(&control).await.state, ExportState::Serving);
        let deadline = control.context.clock().now().after(LONG);
        control.close_exports(deadline).await;
        assert_eq!(devices(), [(0, 4 * MIB, false)], "what uses it waits");
    });
    machine.files.with_kernel(|kernel| (kernel.has_client, kernel.devices) = Default::default());
    live_until(&machine, CrashKind::Process, async move |control| {
        let down = shown(&control).await;
        assert_eq!(down.state, ExportState::Down);
        assert!(down.reason.is_some_and(|reason| reason.contains("module nbd")), "the host began anew");
        host().files.with_kernel(|kernel| kernel.has_client = true);
        control.context.clock().sleep(LONG).await;
        assert_eq!(devices(), [(1, 4 * MIB, true)], "EXPORTS3");
        host().files.delete_socket(Path::new("/dev/varve/data/v"));
        control.context.clock().sleep(LONG).await;
        assert!(host().files.has_socket(Path::new("/dev/varve/data/v")), "EXPORTS3: its link");
        assert_eq!(devices(), [(1, 4 * MIB, true)], "and it stayed");
    });
}
