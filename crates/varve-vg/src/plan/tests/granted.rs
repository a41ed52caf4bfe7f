//! Tests of plans of volumes that are devices of a mapper.

use super::*;

fn mapped(devices: &[u128]) -> Change {
    let devices = devices.iter().map(|id| Uuid::from_u128(*id)).collect();
    Change::CreateVolume {
        name: "m".into(),
        id: Uuid::from_u128(0x5000),
        size: SizeArgument::bytes(2 * MIB4),
        role: Role::Volume,
        layout: Layout::Mapper { socket: "/run/map".into(), wait_ms: 1000, devices },
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

#[test]
fn a_device_of_a_mapper_stays_as_it_is() {
    let with = made(&group(&[10]), linear("a", 1));
    let id = with.lv("a").expect("it was made").id;
    let granted = made(&with, mapped(&[id.as_u128()]));
    assert_eq!(granted.granted_to(id).map(|to| to.name.as_str()), Some("m"));
    let store = Change::CreateStore {
        volume: "a".into(),
        id: Uuid::from_u128(0x4000),
        size: MIB4,
        chunk_size: 64 * KIB,
        kind: StoreKind::Dependent,
    };
    for change in [
        Change::RemoveVolume { name: "a".into() },
        Change::ReduceVolume { name: "a".into(), size: MIB4 },
        extend("a", "+4M"),
        store,
    ] {
        let (kind, why) = refusal(&granted, change.clone());
        assert!(kind == ErrorKind::Busy && why.contains("belongs to data/m"), "{change:?}: {why}");
        if !matches!(change, Change::ReduceVolume { .. }) {
            assert!(planned(&with, change).is_ok(), "nobody has it");
        }
    }
    let free = made(&granted, Change::RemoveVolume { name: "m".into() });
    made(&free, Change::RemoveVolume { name: "a".into() });
    for devices in [vec![0x77], vec![id.as_u128(); 2]] {
        assert!(matches!(planned(&with, mapped(&devices)), Err(PlanError::Invalid(_))), "TEXT23");
    }
}

#[test]
fn what_a_program_maps_goes_with_a_device_that_is_lost() {
    let with = made(&made(&group(&[10, 10]), linear("a", 10)), linear("b", 2));
    let ids = ["a", "b"].map(|name| with.lv(name).expect("it was made").id.as_u128());
    let granted = made(&with, mapped(&ids));
    let missing = made(&granted, Change::MarkMissing { missing: vec![disk(0, 0).id], returned: vec![] });
    let (kind, why) = refusal(&missing, Change::RemoveMissing { with_volumes: false });
    assert!(kind == ErrorKind::Busy || why.contains("data/a"), "{kind:?}: {why}");
    let plan = planned(&missing, Change::RemoveMissing { with_volumes: true }).expect("possible");
    assert_eq!(plan.steps[0], "remove data/m and its snapshots: data/a is a device of its mapper");
    assert!(plan.after.lv("m").is_none() && plan.after.lv("a").is_none() && plan.after.lv("b").is_some());
}
