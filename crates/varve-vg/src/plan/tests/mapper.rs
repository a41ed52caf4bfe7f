//! Plans for volumes that a program maps.

use super::*;

fn mapped(name: &str, role: Role, extents: u64) -> Change {
    let layout = Layout::Mapper { socket: "/run/map.sock".to_owned(), wait_ms: 500, devices: Vec::new() };
    let size = SizeArgument::bytes(extents * MIB4);
    let (policy, disks) = (StorePolicy::default(), DiskChoice::default());
    Change::CreateVolume { name: name.into(), id: Uuid::from_u128(0x4000), size, role, layout, policy, disks }
}

#[test]
fn a_volume_that_a_program_maps_takes_no_space_of_its_group_and_grows() {
    let before = group(&[4]);
    let plan = planned(&before, mapped("m", Role::Volume, 100)).expect("on no disk");
    let step = "create volume that a program at /run/map.sock maps data/m of 400.0 MiB (on no disk)";
    assert_eq!(plan.steps, [step]);
    assert_eq!(plan.after.usage(), before.usage(), "it takes no space");
    let grown = made(&plan.after, extend("m", "+8M"));
    assert_eq!(grown.lv("m").expect("kept").extents, 102);
    let renamed = made(&grown, Change::RenameVolume { from: "m".into(), to: "n".into() });
    let removed = made(&renamed, Change::RemoveVolume { name: "n".into() });
    assert!(removed.logical_volumes().is_empty());
}

#[test]
fn what_a_mapped_volume_cannot_be_is_refused() {
    let before = group(&[4]);
    let pool = planned(&before, mapped("p", Role::Pool, 2));
    assert_eq!(pool.expect_err("a pool lies on disks"), PlanError::Layout("a pool lies on disks"));
    let one = made(&before, mapped("m", Role::Volume, 4));
    let shrunk = planned(&one, Change::ReduceVolume { name: "m".into(), size: MIB4 });
    let shrunk = shrunk.expect_err("what the mapper said of the rest would be lost");
    assert_eq!(shrunk, PlanError::Layout("a volume that a program maps does not shrink"));
}
