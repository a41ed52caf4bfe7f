//! Tests of planning: members of arrays that are put on other disks.

use super::arrays::{MIRROR, create, ddraid, on, volume, with_sectors};
use super::*;

fn lost(group: &Group, number: u128) -> Group {
    made(group, Change::MarkMissing { missing: vec![disk(number, 0).id], returned: vec![] })
}

fn replace(number: u128, only: Option<&str>, disks: DiskChoice) -> Change {
    let (from, id) = (disk(number, 0).id, Uuid::from_u128(0x7000));
    Change::ReplaceMembers { from, volume: only.map(str::to_owned), id, disks }
}

fn anywhere(number: u128) -> Change {
    replace(number, None, DiskChoice::default())
}

/// The ids of the members of a volume, and on which disks each is.
fn members(group: &Group, name: &str) -> Vec<(Uuid, BTreeSet<u32>)> {
    let lv = group.lv(name).expect("it is there");
    let disks = |place| lv.space().areas_of_member(place).map(|area| area.pv.0).collect();
    (0..).zip(lv.layout.members()).map(|(place, member)| (member.id, disks(place))).collect()
}

#[test]
fn all_members_on_a_missing_disk_get_places_on_others_and_its_extents_are_free_when_it_is_back() {
    let store = Change::CreateStore {
        volume: "m".into(),
        id: Uuid::from_u128(7),
        size: 2 * MIB4,
        chunk_size: 65_536,
        kind: StoreKind::Dependent,
    };
    let pool = Change::CreateVolume {
        name: "p".into(),
        id: Uuid::from_u128(0x4000),
        size: SizeArgument::bytes(4 * MIB4),
        role: Role::Pool,
        layout: ddraid(1, None),
        policy: StorePolicy::default(),
        disks: on(&[0, 1, 2]),
    };
    let size = SizeArgument::bytes(2 * MIB4);
    let whole = made(&group(&[20, 20, 20]), create("m", size, MIRROR, on(&[0, 1])));
    let whole = made(&made(&whole, store), pool);
    let one = lost(&made(&whole, Change::AddDisks { disks: vec![disk(3, 30)] }), 0);
    let grow = refusal(&one, extend("m", "+4M"));
    assert_eq!(grow, (ErrorKind::Busy, "data/m is used without pv0, and has members there".into()), "PLAN3");

    let plan = planned(&one, anywhere(0)).expect("pv3 has room");
    assert_eq!(plan.steps.len(), 3, "{:?}", plan.steps);
    assert!(
        plan.steps[0].starts_with("replace the member of data/m on pv0 (/dev/sd0); the array then lies at ")
    );
    assert_eq!(plan.bytes_taken, plan.bytes_freed);
    let after = &plan.after;
    assert!(after.volumes_on(PvName(0)).is_empty(), "PLAN6");
    for name in ["m", "p"] {
        let (old, new) = (members(&whole, name), members(after, name));
        let place = old.iter().position(|(_, disks)| disks.contains(&0)).expect("it lies there");
        assert!(old[place].0 != new[place].0 && new[place].1.len() == 1, "PLAN6: {new:?}");
        assert!(!new[place].1.contains(&0), "PLAN6: {new:?}");
        let others = |members: &[(Uuid, BTreeSet<u32>)]| [&members[..place], &members[place + 1..]].concat();
        assert_eq!(others(&old), others(&new), "PLAN6");
    }
    let again = planned(&one, anywhere(0)).expect("pv3 has room");
    assert_eq!(again, plan, "a plan is a function of what it is made of");
    made(after, extend("m", "+4M"));
    let free = after.usage().free;
    let back = made(after, Change::MarkMissing { missing: vec![], returned: vec![disk(0, 0).id] });
    assert_eq!(back.usage().free, free + 20 * MIB4);
    assert_eq!(
        refusal(after, anywhere(0)),
        (ErrorKind::NotFound, "no array has a member on /dev/sd0".into())
    );
}

#[test]
fn a_member_of_several_pieces_is_put_where_there_is_room_piece_by_piece() {
    // Disk 0 has three pieces of the member, disk 3 the rest; the free runs that are left are short.
    let mut group = group(&[9, 30, 30, 4, 3, 3]);
    group = made(&group, create("v", SizeArgument::bytes(4 * MIB4), ddraid(1, None), on(&[0, 1, 2])));
    for (name, size) in [("a", "+8M"), ("b", "+32M")] {
        group = made(&group, create(name, SizeArgument::bytes(MIB4), Layout::Linear, on(&[0])));
        let (size, disks) = (SizeArgument::parse(size).expect("a size"), on(&[0, 1, 2, 3]));
        group = made(&group, Change::ExtendVolume { name: "v".into(), size, disks });
    }
    let before = members(&group, "v");
    let place = before.iter().position(|(_, disks)| *disks == BTreeSet::from([0, 3])).expect("one does");
    let (kind, words) = refusal(&group, anywhere(0));
    assert!(
        kind == ErrorKind::Busy && words == "volumes lie on /dev/sd0, and nothing can make up for it: a, b"
    );
    for name in ["a", "b"] {
        group = made(&group, Change::RemoveVolume { name: name.into() });
    }
    let plan = planned(&group, anywhere(0)).expect("two disks hold it together");
    assert_eq!(members(&plan.after, "v")[place].1, BTreeSet::from([3, 4, 5]), "PLAN6");
    let extents = |group: &Group, place: usize| -> Vec<(u32, u64)> {
        let lv = group.lv("v").expect("it is there");
        let of = |area: Area| (area.start..area.end()).map(move |extent| (area.pv.0, extent));
        lv.space().areas_of_member(place).flat_map(of).collect()
    };
    for other in (0..3).filter(|other| *other != place) {
        assert_eq!(members(&plan.after, "v")[other], before[other], "PLAN6");
        assert_eq!(extents(&plan.after, other), extents(&group, other), "PLAN6: in the same order");
    }
    let kept = extents(&group, place).into_iter().zip(extents(&plan.after, place));
    assert!(kept.into_iter().all(|(old, new)| old.0 == 0 || old == new), "what is elsewhere stays");
}

#[test]
fn a_replacement_that_is_not_possible_says_what_is() {
    let group = made(&group(&[20, 20, 20, 5]), volume("m", 8, ddraid(1, None)));
    let group = made(&group, create("l", SizeArgument::bytes(MIB4), Layout::Linear, on(&[3])));
    let cases = [
        (
            anywhere(0),
            ErrorKind::NoSpace,
            "a new member of data/m needs 20.0 MiB free on disks that hold no other",
        ),
        (
            replace(0, None, on(&[1])),
            ErrorKind::NoSpace,
            "a new member of data/m needs 20.0 MiB free on disks on pv1",
        ),
        (replace(0, Some("x"), on(&[1])), ErrorKind::NotFound, "there is no volume data/x"),
        (replace(0, Some("l"), on(&[1])), ErrorKind::NotFound, "no array of data/l has a member on /dev/sd0"),
        (replace(0, None, on(&[8])), ErrorKind::NotFound, "the disk pv8 does not belong to data"),
        (
            anywhere(9),
            ErrorKind::NotFound,
            "the disk 00000000-0000-0000-0000-000000001009 does not belong to data",
        ),
        (anywhere(3), ErrorKind::Busy, "a volume lies on /dev/sd3, and nothing can make up for it: l"),
    ];
    for (change, kind, message) in cases {
        let (found, words) = refusal(&group, change);
        assert!(found == kind && words.starts_with(message), "{words}");
    }
    let larger = made(&group, Change::AddDisks { disks: vec![disk(4, 20), disk(5, 20)] });
    let one = lost(&larger, 1);
    let message = "data/m is used without pv1, and has members there";
    assert_eq!(refusal(&one, anywhere(0)), (ErrorKind::Busy, message.into()), "two of three are too many");
    made(&one, anywhere(1));
    assert_eq!(refusal(&lost(&larger, 4), replace(0, None, on(&[4]))).1, "pv4 (/dev/sd4) is missing");
    // Large sectors do not fit the fragments of its blocks.
    let sectors = [(512, 512), (512, 512), (512, 512), (512, 512), (8192, 8192), (4096, 4096)];
    let plan = planned(&larger, replace(0, None, with_sectors(&sectors))).expect("pv5 fits");
    assert_eq!(members(&plan.after, "m")[0].1, BTreeSet::from([5]));
}

#[test]
fn a_disk_with_room_and_larger_sectors_than_a_member_may_have_is_told_from_a_full_one() {
    let size = SizeArgument::bytes(8 * MIB4);
    let replaced = |layout, only_room: &[u64], sector: u64| {
        let sectors = [(512, 512), (512, 512), (512, 512), (sector, sector), (sector, sector)];
        let created =
            create("m", size, layout, DiskChoice { on: on(&[0, 1, 2]).on, ..with_sectors(&sectors) });
        let sizes: Vec<u64> = [20, 20, 20].iter().chain(only_room).copied().collect();
        let group = made(&group(&sizes), created);
        let change = replace(0, None, DiskChoice { on: on(&[3]).on, ..with_sectors(&sectors) });
        planned(&group, change).map(drop).map_err(|error| (error.to_string(), error.help()))
    };
    let (words, help) = replaced(ddraid(1, Some(4096)), &[20], 4096).expect_err("fragments of 2048 bytes");
    let said = "data/m takes disks with sectors of at most 2048 bytes, and /dev/sd3 is written in sectors of 4096 bytes";
    assert_eq!(words, said);
    assert!(
        help.contains("`varve lv convert data/m --type ddraid --order 1 --array-block-size 8192`"),
        "{help}"
    );
    let (words, help) =
        replaced(Layout::Mirror { copies: 3, read_policy: None, checksums: false }, &[20], 4096)
            .expect_err("the other copies have smaller ones");
    assert!(words.starts_with("data/m takes disks with sectors of at most 512 bytes"), "{words}");
    assert!(help.contains("`varve lv convert data/m --type "), "{help}");
    assert_eq!(replaced(ddraid(1, Some(8192)), &[20], 4096), Ok(()));
    let (words, _) = replaced(ddraid(1, Some(4096)), &[2], 4096).expect_err("no room either");
    assert!(words.contains("free on disks on pv3"), "{words}");
}

fn spare(number: u128, is_spare: bool) -> Change {
    Change::SetSpare { disk: disk(number, 0).id, is_spare }
}

#[test]
fn a_spare_gets_nothing_but_members_that_are_put_there_and_is_none_then() {
    let group =
        made(&group(&[20, 20, 20, 20]), create("m", SizeArgument::bytes(8 * MIB4), MIRROR, on(&[0, 1])));
    let free = group.usage().free;
    let plan = planned(&group, spare(3, true)).expect("nothing lies there");
    assert_eq!(plan.lines().collect::<Vec<_>>(), ["would keep /dev/sd3 (pv3) as a spare"]);
    let kept = plan.after;
    let usage = kept.usage();
    assert_eq!((usage.free, usage.spare), (free - 20 * MIB4, 20 * MIB4), "TEXT18");
    let message = (ErrorKind::Busy, "/dev/sd0 holds extents of m".to_owned());
    assert_eq!(refusal(&kept, spare(0, true)), message, "TEXT18");
    let message = (ErrorKind::Busy, "/dev/sd3 is a spare".to_owned());
    let linear = |disks| create("l", SizeArgument::bytes(MIB4), Layout::Linear, disks);
    assert_eq!(refusal(&kept, linear(on(&[3]))), message);
    let from = PvName(0);
    assert_eq!(refusal(&kept, Change::BeginMove { job: 1, from, disks: on(&[3]), rate: None }), message);
    let all = SizeArgument { relative: true, amount: Amount::PercentFree(100) };
    assert!(
        made(&kept, create("l", all, Layout::Linear, DiskChoice::default())).volumes_on(PvName(3)).is_empty()
    );

    let anywhere = made(&kept, anywhere(0));
    assert!(anywhere.volumes_on(PvName(3)).is_empty(), "another disk has room");
    let plan = planned(&kept, replace(0, None, on(&[3]))).expect("the spare has room");
    assert_eq!(plan.steps[1], "use /dev/sd3 (pv3) for volumes: it is a spare no more");
    assert_eq!(members(&plan.after, "m")[0].1, BTreeSet::from([3]));
    assert_eq!(plan.after.usage().spare, 0, "TEXT18");

    let backup = Box::new(group.description().clone());
    let moved = made(&made(&kept, replace(0, None, on(&[2]))), spare(0, true));
    let restored = made(&moved, Change::Restore { backup });
    assert_eq!(restored.usage().spare, 20 * MIB4, "TEXT18: a disk of the backup's volume is a spare no more");
}
