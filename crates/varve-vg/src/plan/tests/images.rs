//! Tests of plans of volumes that lie in images.

use super::*;
use crate::model::ImageFormat;
use crate::table::{Parts, table};

fn in_image(name: &str, id: u128, path: &str, bytes: u64) -> Change {
    Change::CreateVolume {
        name: name.into(),
        id: Uuid::from_u128(id),
        size: SizeArgument::bytes(bytes),
        role: Role::Volume,
        layout: Layout::Image { path: path.into(), format: ImageFormat::Qcow2 },
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    }
}

#[test]
fn a_volume_in_an_image_takes_no_space_and_is_as_large_as_the_image() {
    let empty = group(&[10]);
    let plan = planned(&empty, in_image("vm", 0x3000, "/srv/vm", 10 * MIB4 + 512)).expect("possible");
    assert_eq!((plan.bytes_taken, plan.bytes_freed), (0, 0));
    assert_eq!(plan.steps, ["create volume in a qcow2 image data/vm of 40.0 MiB (/srv/vm)"]);
    let lv = plan.after.lv("vm").expect("made").clone();
    assert_eq!((lv.extents, lv.size(MIB4)), (11, 10 * MIB4 + 512));
    let lines = table(&plan.after, &lv, Parts::All).expect("complete").lines;
    assert_eq!(lines[0].to_string(), format!("0 {} qcow2 /srv/vm", 10 * MIB4 + 512));

    let extended = planned(&plan.after, extend("vm", "+1M")).expect("possible");
    assert_eq!(extended.steps, ["extend data/vm, and the image /srv/vm, from 40.0 MiB to 41.0 MiB"]);
    let lv = extended.after.lv("vm").expect("kept");
    assert_eq!((lv.extents, lv.size(MIB4)), (11, 10 * MIB4 + (1 << 20) + 512));
    let odd = made(&extended.after, extend("vm", "50000001B"));
    assert_eq!(odd.lv("vm").expect("kept").size(MIB4), 50_000_384, "whole sectors");

    let removed = planned(&odd, Change::RemoveVolume { name: "vm".into() }).expect("possible");
    assert_eq!(removed.steps, ["remove data/vm (47.7 MiB); /srv/vm stays as it is"]);
    let renamed = made(&odd, Change::RenameVolume { from: "vm".into(), to: "disk".into() });
    assert!(renamed.lv("disk").is_some());
}

#[test]
fn the_snapshots_of_a_volume_in_an_image_lie_on_the_disks_of_its_group() {
    let with = made(&group(&[10]), in_image("vm", 0x3000, "/srv/vm", 2 * MIB4));
    let store = Change::CreateStore {
        volume: "vm".into(),
        id: Uuid::from_u128(0x4000),
        size: MIB4,
        chunk_size: 64 * KIB,
        kind: StoreKind::Dependent,
    };
    let after = made(&with, store);
    let volume = after.lv("vm").expect("it is there");
    assert_eq!(
        volume.store.as_ref().map(|store| (&store.layout, store.extents)),
        Some((&model::Layout::Linear, 1))
    );
    assert_eq!(volume.segments, []);
}

#[test]
fn a_volume_that_is_not_made_of_whole_blocks_has_no_snapshots() {
    let store = |kind| Change::CreateStore {
        volume: "vm".into(),
        id: Uuid::from_u128(0x4000),
        size: MIB4,
        chunk_size: 64 * KIB,
        kind,
    };
    let odd = made(&group(&[10]), in_image("vm", 0x3000, "/srv/vm", (1 << 20) + 512));
    for kind in [StoreKind::Dependent, StoreKind::Independent] {
        let refused = planned(&odd, store(kind)).expect_err("no whole blocks");
        let bytes = (1 << 20) + 512;
        let (group, volume) = ("data".to_owned(), "vm".to_owned());
        assert_eq!(refused, PlanError::SnapshotBlocks { group, volume, bytes });
        assert_eq!(refused.help(), "`varve lv extend data/vm --size 1052672B` makes its blocks whole");
    }
    let whole = made(&made(&odd, extend("vm", "1052672B")), store(StoreKind::Dependent));
    assert!(matches!(planned(&whole, extend("vm", "+512B")), Err(PlanError::SnapshotBlocks { .. })));
    assert!(planned(&whole, extend("vm", "+4096B")).is_ok());
}

#[test]
fn a_volume_comes_to_lie_in_another_image_and_stays_what_it_is() {
    let with = made(&group(&[10]), in_image("vm", 0x3000, "/srv/vm", 2 * MIB4));
    let set = |path: &str| {
        let (path, format) = (path.to_owned(), ImageFormat::Raw);
        Change::SetImage { volume: "vm".into(), path, format }
    };
    let plan = planned(&with, set("/srv/base")).expect("possible");
    assert_eq!(plan.steps, ["let data/vm lie in /srv/base instead of /srv/vm"]);
    let volume = plan.after.lv("vm").expect("it is there").clone();
    assert_eq!((volume.id, volume.size(MIB4)), (Uuid::from_u128(0x3000), 2 * MIB4));
    let lines = table(&plan.after, &volume, Parts::All).expect("complete").lines;
    assert_eq!(lines[0].to_string(), format!("0 {} raw /srv/base", 2 * MIB4));
    let two = made(&plan.after, in_image("other", 0x3001, "/srv/vm", 2 * MIB4));
    assert!(matches!(planned(&two, set("/srv/vm")), Err(PlanError::Invalid(_))), "TEXT21");
}

#[test]
fn what_an_image_cannot_do_is_refused() {
    let with = made(&group(&[10]), in_image("vm", 0x3000, "/srv/vm", 2 * MIB4));
    let twice = planned(&with, in_image("other", 0x3001, "/srv/vm", 2 * MIB4));
    assert!(matches!(twice, Err(PlanError::Invalid(_))), "TEXT21: {twice:?}");
    for change in [
        Change::ReduceVolume { name: "vm".into(), size: MIB4 },
        extend("vm", "10%FREE"),
        extend("vm", "4M"),
        Change::Convert {
            volume: Uuid::from_u128(0x3000),
            step: ConversionStep::Begin {
                job: 1,
                id: Uuid::from_u128(0xc0de),
                layout: Layout::Linear,
                disks: DiskChoice::default(),
                rate: None,
            },
        },
    ] {
        assert_eq!(refusal(&with, change.clone()).0, ErrorKind::Usage, "{change:?}");
    }
    let pool = Change::CreateVolume {
        name: "p".into(),
        id: Uuid::from_u128(0x3001),
        size: SizeArgument::bytes(2 * MIB4),
        role: Role::Pool,
        layout: Layout::Image { path: "/srv/p".into(), format: ImageFormat::Raw },
        policy: StorePolicy::default(),
        disks: DiskChoice::default(),
    };
    assert!(matches!(planned(&with, pool), Err(PlanError::Layout(_))));
    // A backup that knows the image as it was before it grew takes no space from any volume.
    let backup = Box::new(with.description().clone());
    let grown = made(&with, extend("vm", "+4M"));
    let restored = made(&grown, Change::Restore { backup });
    assert_eq!(losses(&grown, &restored), []);
}
