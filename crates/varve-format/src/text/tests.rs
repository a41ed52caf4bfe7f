//! Tests of the group's text: its exact form, every refusal, and that it survives the round trip.

mod logs;
mod schedules;
mod trash;
mod work;

use super::*;
use crate::name::NameError;
use proptest::prelude::*;

fn area(pv: u32, start: u64, count: u64) -> Area {
    Area { pv: PvName(pv), start, count }
}

fn disk(number: u32) -> PhysicalVolumeEntry {
    PhysicalVolumeEntry {
        name: PvName(number),
        id: Uuid::from_u128(0x100 + u128::from(number)),
        size: 1 << 30,
        data_offset: 1 << 20,
        extents: 255,
        path: format!("/dev/sd{number}"),
        missing: number == 1,
        spare: number == 3,
    }
}

fn sample() -> Description {
    let mut description = Description::new(GroupEntry {
        name: "data".into(),
        id: Uuid::from_u128(1),
        sequence: 7,
        extent_size: 4 << 20,
        created: UnixTime(1_750_000_000),
        changed: UnixTime(1_750_000_100),
        change: "lv create data/fast --size 80M --type striped".into(),
        metadata: None,
        trash_keep_s: None,
    });
    description.physical_volumes = vec![disk(0), disk(1)];
    description.logical_volumes = vec![
        LogicalVolumeEntry {
            name: "vm1".into(),
            id: Uuid::from_u128(2),
            role: Role::Volume,
            layout: Layout::Linear,
            read_only: false,
            created: UnixTime(1_750_000_050),
            extents: 30,
            segments: vec![Segment::linear(area(0, 0, 25)), Segment::linear(area(1, 100, 5))],
            store_policy: None,
            array_policy: None,
            independent_stores: Vec::new(),
            inactive: None,
            store: Some(StoreEntry {
                id: Uuid::from_u128(3),
                chunk_size: 65_536,
                layout: Layout::Linear,
                extents: 5,
                segments: vec![Segment::linear(area(0, 30, 5))],
            }),
        },
        LogicalVolumeEntry {
            name: "fast".into(),
            id: Uuid::from_u128(4),
            role: Role::Volume,
            layout: Layout::Striped { stripe_size: 65_536 },
            read_only: true,
            created: UnixTime(1_750_000_100),
            extents: 20,
            segments: vec![Segment { areas: vec![area(0, 50, 10), area(1, 0, 10)] }],
            store_policy: None,
            array_policy: None,
            store: None,
            independent_stores: Vec::new(),
            inactive: None,
        },
    ];
    description
}

#[test]
fn golden_text() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/text/golden.toml");
    let golden = std::fs::read_to_string(path).expect("the golden text is checked in");
    assert_eq!(sample().encode(), golden);
    assert_eq!(Description::decode(&golden), Ok(sample()));
}

/// Members with these ids from `id` on, the first of them on `pv0` with its metadata at `start`, each on a disk of its own.
fn members(id: u128, start: u64, count: u32) -> Vec<MemberEntry> {
    let member = |pv| MemberEntry { id: Uuid::from_u128(id + u128::from(pv)), metadata: area(pv, start, 1) };
    (0..count).map(member).collect()
}

/// The sample, with its first volume and that one's store mirrored, and the second one as ddraid.
fn arrays() -> Description {
    let mut description = sample();
    description.physical_volumes = (0..4).map(disk).collect();
    description.physical_volumes[3].spare = false;
    let row = |start, count, width| Segment { areas: (0..width).map(|pv| area(pv, start, count)).collect() };
    let [first, second] = &mut description.logical_volumes[..] else { unreachable!("two volumes") };
    let read_policy = ReadPolicy::Data;
    let log = Some(LogEntry { id: Uuid::from_u128(0x202), area: area(3, 0, 1) });
    first.layout = Layout::Mirror { read_policy, checksums: true, log, members: members(0x200, 0, 2) };
    first.segments = vec![row(1, 20, 2), row(30, 10, 2)];
    let store = first.store.as_mut().expect("the sample has a store");
    let (read_policy, checksums) = (ReadPolicy::Rotate, false);
    store.layout = Layout::Mirror { read_policy, checksums, log: None, members: members(0x210, 50, 2) };
    store.segments = vec![row(51, 5, 2)];
    let (order, block_size, read_policy) = (1, 8192, ReadPolicy::Verify);
    let members = members(0x220, 60, 3);
    second.layout = Layout::Ddraid { order, block_size, read_policy, checksums: false, log: None, members };
    second.segments = vec![row(61, 10, 3)];
    description
}

#[test]
fn golden_text_of_arrays() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/text/arrays.toml");
    let golden = std::fs::read_to_string(path).expect("the golden text is checked in");
    assert_eq!(arrays().encode(), golden);
    assert_eq!(Description::decode(&golden), Ok(arrays()));
}

/// Breaks one rule of arrays.
type BrokenArray = (&'static str, fn(&mut Description), &'static str);

const BROKEN_ARRAYS: &[BrokenArray] = &[
    ("TEXT16", |d| array(d, 0).truncate(1), "vm1: a mirror has 2 to 8 members"),
    ("TEXT16", |d| array(d, 0).extend(members(0x230, 70, 7)), "vm1: a mirror has 2 to 8 members"),
    ("TEXT16", |d| array(d, 0).extend(members(0x230, 70, 1)), "vm1: a segment of an array has an area for"),
    ("TEXT16", |d| array(d, 1).truncate(2), "fast: a ddraid array of order 1, 2 or 3 has"),
    ("TEXT16", |d| ddraid(d, 0, 8192), "fast: a ddraid array of order 1, 2 or 3 has"),
    ("TEXT16", |d| ddraid(d, 4, 8192), "fast: a ddraid array of order 1, 2 or 3 has"),
    ("TEXT16", |d| ddraid(d, u32::MAX, 8192), "fast: a ddraid array of order 1, 2 or 3 has"),
    ("TEXT16", |d| ddraid(d, 1, 2048), "fast: block_size must be"),
    ("TEXT16", |d| ddraid(d, 1, 12_288), "fast: block_size must be"),
    ("TEXT16", |d| array(d, 1)[1].metadata.count = 2, "fast: the metadata areas of an array's members are"),
    ("TEXT16", |d| d.group.extent_size = 512 << 10, "vm1: the metadata areas of an array's members are"),
    ("TEXT16", |d| array(d, 0)[1].metadata = area(2, 5, 1), ""),
    (
        "TEXT16",
        |d| array(d, 0)[1].metadata = area(0, 100, 1),
        "vm1: a disk serves one member of an array only",
    ),
    ("TEXT16", |d| areas(d)[1].pv = PvName(0), "vm1: a disk serves one member of an array only"),
    ("TEXT16", |d| areas(d).swap(0, 1), "vm1: a disk serves one member of an array only"),
    ("TEXT16", |d| areas(d)[1].count = 9, "vm1: a segment of an array has an area for each member, equally"),
    ("TEXT7", |d| d.logical_volumes[0].extents = 60, "vm1: `extents` is not the sum of its segments"),
    ("TEXT7", |d| d.logical_volumes[1].extents = 10, "fast: `extents` is not the sum of its segments"),
    (
        "TEXT5",
        |d| array(d, 1)[0].metadata.start = 55,
        "extent 55 of pv0 belongs to the exception store of vm1",
    ),
    ("TEXT4", |d| array(d, 1)[0].metadata.start = 255, "fast: pv0:255+1 ends behind"),
    ("TEXT1", |d| array(d, 1)[0].id = Uuid::from_u128(0x201), "two things have the id"),
    ("TEXT1", |d| array(d, 1)[2].id = Uuid::nil(), "member 2 of fast has no id"),
    ("TEXT6", |d| store(d).layout = Layout::Zero, "the exception store of vm1: an exception store lies on"),
    ("TEXT6", |d| store(d).layout = Layout::Linear, "the exception store of vm1: a linear volume has"),
];

/// The members of a volume of [`arrays`].
fn array(description: &mut Description, volume: usize) -> &mut Vec<MemberEntry> {
    match &mut description.logical_volumes[volume].layout {
        Layout::Mirror { members, .. } | Layout::Ddraid { members, .. } => members,
        other => panic!("{other:?} is no array"),
    }
}

/// The areas of the last segment of the first volume.
fn areas(description: &mut Description) -> &mut Vec<Area> {
    &mut description.logical_volumes[0].segments[1].areas
}

fn ddraid(description: &mut Description, order: u32, block_size: u64) {
    let members = array(description, 1).clone();
    let read_policy = ReadPolicy::Verify;
    description.logical_volumes[1].layout =
        Layout::Ddraid { order, block_size, read_policy, checksums: false, log: None, members };
}

#[test]
fn every_broken_rule_of_arrays_is_refused_and_named() {
    for (rule, change, message) in BROKEN_ARRAYS {
        let mut broken = arrays();
        change(&mut broken);
        let found = broken.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.starts_with(message) && found.is_empty() == message.is_empty(), "{rule}: {found}");
    }
}

#[test]
fn newer_and_unknown_texts_are_refused_with_what_is_wrong() {
    let text = sample().encode();
    let decoded = |version: &str| Description::decode(&text.replace("version = 5\n", version));
    assert_eq!(decoded("version = 6\nnew = true\n"), Err(TextError::Newer(6)));
    assert_eq!(decoded("version = 2\n"), Err(TextError::Older(2)));
    assert_eq!(decoded(""), Err(TextError::NoVersion));
    assert_eq!(Description::decode(""), Err(TextError::NoVersion));
    for (from, to, word) in [
        ("read_only = true", "colour = 1", "colour"),
        ("extents = 30", "extents = \"x\"", "extents"),
        ("extents = 30", "", "extents"),
        ("pv0:0+25", "pv0:0+25+1", "pv0:0+25+1"),
        ("pv0:0+25", "pv00:0+25", "pv00:0+25"),
        ("pv0:0+25", "pv0:0+-5", "pv0:0+-5"),
        ("2025-06-15T15:06:40Z", "yesterday", "yesterday"),
        ("[group]", "[grp]", "grp"),
    ] {
        assert!(text.contains(from), "{from}");
        let mended = text.replacen(from, to, 1);
        match Description::decode(&mended) {
            Err(TextError::Syntax(message)) => assert!(message.contains(word), "{word} in {message}"),
            other => panic!("{to}: {other:?}"),
        }
    }
}

/// One change that breaks one rule, and what the refusal says.
type Breakage = (&'static str, fn(&mut Description), &'static str);

const BREAKAGES: &[Breakage] = &[
    ("TEXT1", |d| d.group.name = "a/b".into(), "the group: a name is made of"),
    ("TEXT1", |d| d.logical_volumes[0].name = "-x".into(), "the volume \"-x\": a name does not begin with"),
    ("TEXT1", |d| d.logical_volumes[0].name = "fast".into(), "two of them are called fast"),
    ("TEXT1", |d| d.physical_volumes[1].name = PvName(0), "two of them are called pv0"),
    ("TEXT1", |d| d.logical_volumes[0].id = Uuid::nil(), "vm1 has no id"),
    ("TEXT1", |d| d.physical_volumes[1].id = Uuid::from_u128(4), "two things have the id"),
    ("TEXT2", |d| d.group.extent_size = 3 << 20, "extent_size is 3145728"),
    ("TEXT2", |d| d.group.extent_size = 0, "extent_size is 0"),
    ("TEXT2", |d| d.group.extent_size = 1 << 40, "extent_size is 1099511627776"),
    ("TEXT3", |d| d.physical_volumes[0].extents = 256, "pv0: its extents do not lie"),
    ("TEXT3", |d| d.physical_volumes[0].extents = u64::MAX, "pv0: its extents do not lie"),
    ("TEXT3", |d| d.physical_volumes[0].extents = 0, "pv0: its extents do not lie"),
    ("TEXT3", |d| d.physical_volumes[0].data_offset += 512, "pv0: its extents do not lie"),
    ("TEXT4", |d| d.logical_volumes[1].segments[0].areas[1].pv = PvName(7), "fast: there is no pv7"),
    ("TEXT4", |d| d.logical_volumes[0].segments[1].areas[0].start = 251, "vm1: pv1:251+5 ends behind"),
    (
        "TEXT4",
        |d| d.logical_volumes[0].segments[1].areas[0].start = u64::MAX,
        "vm1: pv1:18446744073709551615+5",
    ),
    (
        "TEXT5",
        |d| d.logical_volumes[0].segments[1].areas[0].start = 9,
        "extent 9 of pv1 belongs to fast and to vm1",
    ),
    (
        "TEXT5",
        |d| d.logical_volumes[1].segments[0].areas[0].start = 34,
        "extent 34 of pv0 belongs to the exception store of vm1 and to fast",
    ),
    ("TEXT6", |d| d.logical_volumes[0].layout = striped(65_536), "vm1: a striped segment has"),
    ("TEXT6", |d| d.logical_volumes[1].layout = Layout::Linear, "fast: a linear volume has"),
    ("TEXT6", |d| d.logical_volumes[1].layout = striped(0), "fast: stripe_size must be"),
    ("TEXT6", |d| d.logical_volumes[1].layout = striped(8 << 20), "fast: stripe_size must be"),
    ("TEXT7", |d| d.logical_volumes[1].layout = Layout::Zero, "fast: `extents` is not the sum"),
    ("TEXT7", |d| on_no_disk(d, Layout::Error).extents = 0, "fast: `extents` is not the sum"),
    ("TEXT12", |d| on_no_disk(d, Layout::Zero).role = Role::Pool, "fast: a pool lies on disks"),
    ("TEXT21", |d| _ = in_image(d, "gold", 40 << 20), "fast: the `path` of an image is absolute"),
    ("TEXT21", |d| _ = in_image(d, "/a\nb", 40 << 20), "fast: the `path` of an image is absolute"),
    (
        "TEXT21",
        |d| _ = in_image(d, "/gold", (40 << 20) - 1),
        "fast: the `bytes` of an image are whole sectors",
    ),
    ("TEXT21", |d| _ = in_image(d, "/gold", 0), "fast: the `bytes` of an image are whole sectors"),
    ("TEXT21", |d| in_image(d, "/gold", 40 << 20).extents = 11, "fast: `extents` are those that hold"),
    ("TEXT21", |d| in_image(d, "/gold", 512).extents = 0, "fast: `extents` are those that hold"),
    ("TEXT21", |d| in_image(d, "/gold", 512).role = Role::Pool, "fast: a pool lies on disks"),
    (
        "TEXT21",
        |d| in_image(d, "/gold", 512).role = Role::StoreBackup { of: Uuid::from_u128(77) },
        "fast: a volume in an image is no copy",
    ),
    (
        "TEXT21",
        |d| {
            in_image(d, "/gold", 512);
            let mut other = d.logical_volumes[1].clone();
            (other.name, other.id) = ("other".into(), Uuid::from_u128(99));
            d.logical_volumes.push(other);
        },
        "other: its image is that of another volume",
    ),
    (
        "TEXT21",
        |d| {
            in_image(d, "/gold", 512);
            d.images.push(ImageEntry { path: "/gold".into(), ..image() });
        },
        "fast: its image is that of another volume, or one that others are backed by",
    ),
    ("TEXT12", |d| on_no_disk(d, mapper("/run/map", 1)).role = Role::Pool, "fast: a pool lies on disks"),
    ("TEXT7", |d| d.logical_volumes[1].layout = mapper("/run/map", 1), "fast: `extents` is not the sum"),
    ("TEXT23", |d| granted(d, &[77]), "fast: a mapper names volumes of its group"),
    ("TEXT23", |d| granted(d, &[4]), "fast: a mapper names volumes of its group"),
    ("TEXT23", |d| granted(d, &[2, 2]), "fast: a volume is a device of one mapper, once"),
    ("TEXT23", |d| granted(d, &[2; 65]), "fast: a mapper has at most 64 volumes"),
    ("TEXT22", |d| _ = on_no_disk(d, mapper("run/map", 1)), "fast: the socket of a mapper is an absolute"),
    ("TEXT22", |d| _ = on_no_disk(d, mapper("/run/\n", 1)), "fast: the socket of a mapper is an absolute"),
    (
        "TEXT22",
        |d| _ = on_no_disk(d, mapper(&"/".repeat(108), 1)),
        "fast: the socket of a mapper is an absolute",
    ),
    ("TEXT22", |d| _ = on_no_disk(d, mapper("/run/map", 0)), "fast: a request waits 1 millisecond to"),
    ("TEXT22", |d| _ = on_no_disk(d, mapper("/m", 3_600_001)), "fast: a request waits 1 millisecond to"),
    ("TEXT6", |d| d.logical_volumes[1].segments[0].areas[1].pv = PvName(0), "fast: a striped segment has"),
    (
        "TEXT6",
        |d| {
            d.logical_volumes[1].segments[0].areas[1].count = 9;
            d.logical_volumes[1].extents = 19;
        },
        "fast: a striped segment has",
    ),
    (
        "TEXT6",
        |d| {
            d.physical_volumes.push(disk(2));
            let areas = (0..3).map(|pv| area(pv, 200, 5)).collect();
            d.logical_volumes[1].segments.push(Segment { areas });
            d.logical_volumes[1].extents = 35;
        },
        "fast: all segments of a striped volume have",
    ),
    ("TEXT7", |d| d.logical_volumes[0].extents = 31, "vm1: `extents` is not the sum"),
    (
        "TEXT7",
        |d| {
            d.logical_volumes[1].extents = 0;
            d.logical_volumes[1].segments.clear();
        },
        "fast: `extents` is not the sum",
    ),
    ("TEXT7", |d| store(d).extents = 6, "the exception store of vm1: `extents` is not the sum"),
    ("TEXT8", |d| store(d).chunk_size = 2048, "the exception store of vm1: chunk_size must be"),
    ("TEXT8", |d| store(d).chunk_size = 2 << 20, "the exception store of vm1: chunk_size must be"),
    ("TEXT9", |d| d.group.sequence = 0, "sequence is 0"),
    ("TEXT10", |d| policy(d).extend_at_percent = Some(100), "vm1: store_policy: "),
    ("TEXT10", |d| policy(d).extend_by_percent = 0, "vm1: store_policy: "),
    ("TEXT10", |d| policy(d).pause_timeout_ms = u64::MAX, "vm1: store_policy: "),
    (
        "TEXT13",
        |d| metadata(d).cache_bytes = 65_535,
        "the group: a budget for metadata in memory is 64 KiB to 1 TiB",
    ),
    (
        "TEXT13",
        |d| (metadata(d).per_gib, metadata(d).cache_bytes) = (true, 511),
        "the group: a budget for metadata in",
    ),
    ("TEXT12", |d| d.logical_volumes[0].role = Role::Pool, "vm1: a pool lies on disks, is writable, has no"),
    ("TEXT12", |d| d.logical_volumes[1].role = Role::Pool, "fast: a pool lies on disks, is writable"),
    (
        "TEXT12",
        |d| {
            d.logical_volumes[0].store = None;
            d.logical_volumes[0].role = Role::Pool;
            policy(d).when_full = WhenFull::DropOldest;
        },
        "vm1: a pool lies on disks, is writable, has no exception store and drops no snapshots",
    ),
    ("TEXT5", |d| add_independent(d, 49, 9), "extent 50 of pv0 belongs to the exception store"),
    ("TEXT1", |d| add_independent(d, 35, 3), "two things have the id"),
    ("TEXT1", |d| set(d).id = Uuid::from_u128(4), "two things have the id"),
    (
        "TEXT11",
        |d| set(d).members.clear(),
        "the set of snapshots 00000000-0000-0000-0000-00000000000a: it names no",
    ),
    ("TEXT11", |d| set(d).members[0].names.clear(), "the set of snapshots"),
    ("TEXT11", |d| set(d).members[0].after = u64::MAX, "the set of snapshots"),
    ("TEXT11", |d| set(d).members[0].names[1] = "x y".into(), "the set of snapshots"),
    ("TEXT18", |d| d.physical_volumes[1].spare = true, "vm1: nothing lies on a spare"),
    ("TEXT19", |d| array_policy(d).slow_after_ms = 999, "vm1: an array waits for a request"),
    ("TEXT19", |d| array_policy(d).release_after_ms = 3_600_001, "vm1: a region of an array is clean again"),
    ("TEXT19", |d| array_policy(d).resync_rate_min = 0, "vm1: an array is made equal at a rate"),
    ("TEXT19", |d| array_policy(d).resync_rate_max = Some(8 << 10), "vm1: an array is made equal at a rate"),
    ("TEXT19", |d| array_policy(d).resync_rate_max = Some(u64::MAX), "vm1: an array is made equal at a rate"),
    ("TEXT12", |d| policy(d).discards = Discards::PassDown, "vm1: only a pool declares"),
    ("TEXT12", |d| policy(d).over_commit = OverCommit::Forbid, "vm1: only a pool declares"),
];

fn metadata(description: &mut Description) -> &mut MetadataEntry {
    description.group.metadata.get_or_insert_default()
}

fn array_policy(description: &mut Description) -> &mut ArrayPolicyEntry {
    description.logical_volumes[0].array_policy.get_or_insert_default()
}

fn policy(description: &mut Description) -> &mut StorePolicyEntry {
    description.logical_volumes[0].store_policy.get_or_insert_default()
}

/// A set of two snapshots of the first volume.
fn set(description: &mut Description) -> &mut SnapshotSetEntry {
    if description.snapshot_sets.is_empty() {
        let volume = &description.logical_volumes[0];
        let store = volume.store.as_ref().expect("the sample has a store").id;
        let names = vec!["monday".into(), "tuesday".into()];
        let member = SetMemberEntry { volume: volume.id, store, after: 12, names };
        let set = SnapshotSetEntry { id: Uuid::from_u128(10), groups: Vec::new(), members: vec![member] };
        description.snapshot_sets.push(set);
    }
    &mut description.snapshot_sets[0]
}

/// Gives a volume an independent snapshot's store of three extents from `start` on.
fn add_independent(description: &mut Description, start: u64, id: u128) {
    let id = Uuid::from_u128(id);
    let segments = vec![Segment::linear(area(0, start, 3))];
    let store = StoreEntry { id, chunk_size: 4096, layout: Layout::Linear, extents: 3, segments };
    description.logical_volumes[0].independent_stores.push(store);
}

#[test]
fn policies_sets_and_independent_stores_survive_the_round_trip() {
    let mut description = sample();
    set(&mut description).groups = vec![Uuid::from_u128(1), Uuid::from_u128(11)];
    *policy(&mut description) = StorePolicyEntry {
        when_full: WhenFull::DropOldest,
        pause_timeout_ms: 1500,
        extend_at_percent: None,
        extend_by_percent: 50,
        ..StorePolicyEntry::default()
    };
    add_independent(&mut description, 40, 9);
    let text = description.encode();
    assert!(
        text.contains("when_full = \"drop-oldest\"") && text.contains("[[logical_volume.independent_store]]")
    );
    assert_eq!(Description::decode(&text), Ok(description));
}

fn striped(stripe_size: u64) -> Layout {
    Layout::Striped { stripe_size }
}

/// The second volume, which lies on no disk from now on.
fn on_no_disk(description: &mut Description, layout: Layout) -> &mut LogicalVolumeEntry {
    let volume = &mut description.logical_volumes[1];
    (volume.layout, volume.segments) = (layout, Vec::new());
    volume
}

/// Puts the striped volume into an image, on as many extents as hold it.
fn in_image<'a>(description: &'a mut Description, path: &str, bytes: u64) -> &'a mut LogicalVolumeEntry {
    let layout = Layout::Image { path: path.into(), format: ImageFormat::Raw, bytes };
    let volume = on_no_disk(description, layout);
    volume.extents = bytes.div_ceil(4 << 20);
    volume
}

#[test]
fn volumes_in_images_survive_the_round_trip() {
    let mut description = sample();
    let volume = in_image(&mut description, "/srv/vm.qcow2", (40 << 20) + 512);
    assert_eq!((volume.extents, volume.size(4 << 20)), (11, (40 << 20) + 512));
    let raw = description.encode();
    assert!(
        raw.contains("[logical_volume.layout.image]\npath = \"/srv/vm.qcow2\"\nbytes = 41943552\n"),
        "{raw}"
    );
    assert_eq!(Description::decode(&raw).as_ref(), Ok(&description));
    let Layout::Image { format, .. } = &mut description.logical_volumes[1].layout else { panic!("an image") };
    *format = ImageFormat::Qcow2;
    let text = description.encode();
    assert!(text.contains("format = \"qcow2\""), "{text}");
    assert_eq!(Description::decode(&text), Ok(description));
}

fn mapper(socket: &str, wait_ms: u64) -> Layout {
    Layout::Mapper { socket: socket.to_owned(), wait_ms, devices: Vec::new() }
}

/// Gives volumes to the mapper of the striped volume.
fn granted(description: &mut Description, devices: &[u128]) {
    let devices = devices.iter().map(|id| Uuid::from_u128(*id)).collect();
    on_no_disk(description, Layout::Mapper { socket: "/run/map".to_owned(), wait_ms: 1, devices });
    description.logical_volumes[0].store = None;
}

#[test]
fn the_devices_of_a_mapper_survive_the_round_trip() {
    let mut description = sample();
    granted(&mut description, &[2]);
    let text = description.encode();
    assert_eq!(Description::decode(&text), Ok(description.clone()), "{text}");
    description.logical_volumes[0].role = Role::PoolBackup { of: Uuid::from_u128(78) };
    assert!(description.check().is_err(), "TEXT23");
}

#[test]
fn a_volume_that_a_program_maps_survives_the_round_trip() {
    for layout in [mapper(&"/".repeat(107), 3_600_000), mapper("/run/varve \"map\".sock", 1)] {
        let mut description = sample();
        on_no_disk(&mut description, layout);
        let text = description.encode();
        assert!(text.contains("[logical_volume.layout.mapper]\nsocket = "), "{text}");
        assert_eq!(Description::decode(&text), Ok(description));
    }
}

#[test]
fn volumes_on_no_disk_and_backups_survive_the_round_trip() {
    let mut description = sample();
    on_no_disk(&mut description, Layout::Zero).role = Role::StoreBackup { of: Uuid::from_u128(77) };
    description.logical_volumes[0].role = Role::PoolBackup { of: Uuid::from_u128(78) };
    let text = description.encode();
    assert!(text.contains("layout = \"zero\""), "{text}");
    assert!(text.contains("[logical_volume.role.pool-backup]"), "{text}");
    assert_eq!(Description::decode(&text), Ok(description));
}

fn store(description: &mut Description) -> &mut StoreEntry {
    description.logical_volumes[0].store.as_mut().expect("the sample has a store")
}

#[test]
fn every_broken_rule_is_refused_and_named() {
    for (rule, change, message) in BREAKAGES {
        let mut broken = sample();
        change(&mut broken);
        let error = broken.check().expect_err(message);
        assert!(error.to_string().starts_with(message), "{rule}: {error}");
        // A number beyond 63 bits has no form in TOML at all.
        if let Ok(text) = toml::to_string(&broken) {
            assert!(Description::decode(&text).is_err(), "{rule}");
        }
    }
}

#[test]
fn a_name_error_keeps_its_kind() {
    let mut broken = sample();
    broken.group.name.clear();
    let error = TextError::Name { place: "the group".into(), error: NameError::Empty };
    assert_eq!(broken.check(), Err(error));
}

prop_compose! {
    fn linear_volume(index: usize)(
        counts in proptest::collection::vec(1_u64..20, 1..5), read_only: bool, created in 0_u64..1 << 37,
    ) -> (usize, Vec<u64>, bool, u64) {
        (index, counts, read_only, created)
    }
}

proptest! {
    #[test]
    fn descriptions_survive_the_round_trip(
        volumes in proptest::collection::vec(linear_volume(0), 0..10),
        sequence in 1..=u64::from(u32::MAX), change in "\\PC{0,80}", path in "\\PC{0,40}", missing: bool,
    ) {
        let mut description = sample();
        description.group.sequence = sequence;
        description.group.change = change;
        description.physical_volumes = vec![PhysicalVolumeEntry { path, missing, extents: 2000, size: 8 << 30, ..disk(0) }];
        description.logical_volumes.clear();
        let mut next = 0;
        for (index, (_, counts, read_only, created)) in volumes.into_iter().enumerate() {
            let segments: Vec<_> = counts.iter().map(|count| {
                next += count + 1;
                Segment::linear(area(0, next - count, *count))
            }).collect();
            description.logical_volumes.push(LogicalVolumeEntry {
                name: format!("v{index}"), id: Uuid::from_u128(0x1000 + index as u128), role: Role::Volume,
                layout: Layout::Linear, read_only, created: UnixTime(created),
                extents: counts.iter().sum(), segments, store_policy: None, array_policy: None, store: None,
                independent_stores: Vec::new(),
            inactive: None,
            });
        }
        let text = description.encode();
        prop_assert_eq!(Description::decode(&text), Ok(description));
    }

    #[test]
    fn no_text_makes_the_decoder_panic(text in "\\PC*", cut in 0_usize..2000, insert in "\\PC{0,5}") {
        let _ = Description::decode(&text);
        let mut damaged = sample().encode();
        let at = cut.min(damaged.len());
        if damaged.is_char_boundary(at) {
            damaged.insert_str(at, &insert);
        }
        let _ = Description::decode(&damaged);
    }
}

fn image() -> ImageEntry {
    ImageEntry {
        id: Uuid::from_u128(9),
        path: "/srv/gold.raw".into(),
        bytes: 1_000_001,
        format: ImageFormat::Raw,
        snapshot: None,
        modified_ns: Some(1_750_000_000_000_000_004),
    }
}

#[test]
fn images_stand_in_the_text_as_a_person_reads_them() {
    let (id, format) = (Uuid::from_u128(10), ImageFormat::Qcow2);
    let disk = ImageEntry { id, path: "/dev/sdx".into(), bytes: 4096, format, modified_ns: None, ..image() };
    let description = Description { images: vec![image(), disk], ..sample() };
    let text = description.encode();
    let expected = r#"
[[image]]
id = "00000000-0000-0000-0000-000000000009"
path = "/srv/gold.raw"
bytes = 1000001
modified = "2025-06-15T15:06:40.000000004Z"

[[image]]
id = "00000000-0000-0000-0000-00000000000a"
path = "/dev/sdx"
bytes = 4096
format = "qcow2"
"#;
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(Description::decode(&text), Ok(description));
}

#[test]
fn an_image_without_a_place_or_without_a_byte_is_refused() {
    let refused = |wrong: ImageEntry| Description { images: vec![wrong], ..sample() }.check().err();
    assert_eq!(refused(image()), None);
    let of = |format, name: &str| ImageEntry { format, snapshot: Some(name.to_owned()), ..image() };
    assert_eq!(refused(of(ImageFormat::Qcow2, "before the update")), None);
    for wrong in [
        ImageEntry { path: "gold.raw".into(), ..image() },
        ImageEntry { bytes: 0, ..image() },
        of(ImageFormat::Raw, "1"),
        of(ImageFormat::Qcow2, ""),
        of(ImageFormat::Qcow2, "two\nlines"),
        of(ImageFormat::Qcow2, &"n".repeat(1025)),
    ] {
        assert!(matches!(refused(wrong), Some(TextError::Shape { .. })), "TEXT14");
    }
    let taken = ImageEntry { id: Uuid::from_u128(2), ..image() };
    assert_eq!(refused(taken), Some(TextError::IdTwice(Uuid::from_u128(2))), "TEXT1");
}

#[test]
fn a_volume_that_is_not_active_says_why_on_one_line() {
    let mut description = sample();
    assert!(!description.encode().contains("inactive"), "what is usual is not written");
    let mut encoded = |reason: String| {
        description.logical_volumes[0].inactive = Some(reason);
        description.check().map(|()| description.encode())
    };
    let text = encoded("a panic: left == right".into()).expect("it is sound");
    assert!(text.contains("inactive = \"a panic: left == right\""), "{text}");
    assert_eq!(Description::decode(&text).map(|read| read.encode()), Ok(text));
    for wrong in [String::new(), "two\nlines".into(), "x".repeat(501)] {
        assert!(matches!(encoded(wrong), Err(TextError::Shape { .. })), "TEXT15");
    }
}
