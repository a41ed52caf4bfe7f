//! Writes the seeds that are checked in: sound structures, and real conversations between our client and server.
//! Run it when a layout changes: `cargo run --release --example seeds` in this folder.

use std::fs;
use std::path::Path;
use uuid::Uuid;
use varve_block::{Arena, Extent, UnixTime};
use varve_format::array::{self, Epoch, Kind, MemberEntry, MemberState};
use varve_format::pdata::link::Link;
use varve_format::pdata::{Block, node, space_page};
use varve_format::qcow2;
use varve_format::store::{BlockKind, Descriptor, Entry, EntryBlock, Mapping, Roots, Superblock};
use varve_format::thin::{self, Backing, Change, Origin, Record, VolumeFlags, VolumeRows};
use varve_format::{Label, Slot};
use varve_fuzz::machine::step;
use varve_nbd::client::{self, Wish, put_option};
use varve_nbd::server::{self, Listed, Offer};
use varve_nbd::transmission::{Head, Run, encode_runs};
use varve_nbd::{BlockSizes, Command, ExportFlags, Framing, Request};

const GOLDEN_TEXT: &str = include_str!("../../crates/varve-format/src/text/golden.toml");
const ARRAYS_TEXT: &str = include_str!("../../crates/varve-format/src/text/arrays.toml");
const JOBS_TEXT: &str = include_str!("../../crates/varve-format/src/text/jobs.toml");

fn main() {
    for (target, seeds) in [
        ("label", labels()),
        ("slot", slots()),
        (
            "group_text",
            [GOLDEN_TEXT, "version = 5\n", ARRAYS_TEXT, JOBS_TEXT]
                .map(|text| text.as_bytes().to_vec())
                .to_vec(),
        ),
        ("signature", signatures()),
        ("store", store()),
        ("pool", pool()),
        ("array", array()),
        ("qcow2", qcow2()),
        ("ordered_map", ordered_map()),
        ("nbd_server", conversations().0),
        ("nbd_client", conversations().1),
        ("vhost_user", machines()),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder).expect("the folder can be made");
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed).expect("the seed can be written");
        }
    }
}

/// Machines that have a queue served, with and without memory for what is in flight; and their requests.
fn machines() -> Vec<Vec<u8>> {
    let sound = |number: u8| [step::SOUND, number];
    let set_up = |protocol: bool| (0..13).filter(move |number| protocol || *number != 4).flat_map(sound);
    let request = |kind: u8, given: u8, room: u16| {
        let [low, high] = room.to_le_bytes();
        let head = [step::REQUEST, 0, kind, 8, 0, given, low, high, 0];
        head.into_iter().chain((0..given).map(|byte| byte ^ 0x5a))
    };
    let requests =
        || request(0, 0, 4096).chain(request(4, 0, 0)).chain(request(1, 128, 0)).chain(request(8, 0, 20));
    vec![
        set_up(false).chain(requests()).collect(),
        set_up(true).chain(requests()).chain([step::TRUNCATE, 1]).chain(requests()).collect(),
        set_up(true).chain(sound(13)).chain(request(11, 16, 0)).chain([step::MESSAGE, 11, 0, 0x10]).collect(),
    ]
}

/// The targets put the zeros back.
fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    bytes
}

fn array() -> Vec<Vec<u8>> {
    let member = |(number, state, away_since)| MemberEntry {
        id: Uuid::from_u128(number),
        state,
        away_since,
        left_at: if state == MemberState::Away { 6 } else { 0 },
        is_behind: number == 1,
    };
    let superblock = array::Superblock {
        number: 5,
        array: Uuid::from_u128(9),
        place: 1,
        kind: Kind::Ddraid,
        block_size: 4096,
        size: 100 << 20,
        metadata_size: 1 << 20,
        region_size: 1 << 20,
        head: 3,
        sequence: 7,
        epoch: Epoch { generation: 1, revision: 2 },
        stamp: 8,
        log_members: 0b101,
        log_disk: Uuid::nil(),
        checksums: false,
        pages_current: false,
        previous: 1,
        members: [(1, MemberState::InSync, 0), (2, MemberState::Away, 4), (3, MemberState::CatchingUp, 5)]
            .map(member)
            .to_vec(),
        dirty: vec![1, 0],
        missed: vec![3, 1],
        written: vec![u64::MAX, 7],
        known: vec![Extent::new(4096, 8192)],
    };
    let mut bytes = vec![0; superblock.length()];
    superblock.encode(&mut bytes);
    let content = Arena::heap(1 << 20).copy(&[7; 4096]);
    let changes = vec![
        array::Change::Write(1, 2),
        array::Change::Zero(9, 1),
        array::Change::Clean(4, 3),
        array::Change::Content(8192, content),
    ];
    let record = array::Record {
        sequence: 7,
        array: 9,
        epoch: Epoch { generation: 1, revision: 2 },
        stamp: 8,
        acknowledged: 7,
        is_behind: false,
        changes,
    };
    let mut logged = vec![0; usize::try_from(record.blocks() * array::BLOCK_SIZE).expect("small")];
    record.encode(&mut logged);
    let rows = vec![(0..256).map(|sum| (sum % 7 != 0).then_some(sum)).collect(); 2];
    let page = array::ChecksumPage { array: 9, span: 3, place: 1, generation: 5, forgotten: true, rows };
    let mut sums = vec![0; array::BLOCK_SIZE as usize];
    page.encode(&mut sums);
    let kinds = [(0, bytes), (1, logged), (3, sums)];
    kinds.map(|(kind, bytes)| [vec![kind], without_zeros(bytes)].concat()).to_vec()
}

fn qcow2() -> Vec<Vec<u8>> {
    let image = |version, extended_l2, entries: &[u64]| {
        let backing = Some(qcow2::Backing { name: "base".to_owned(), format: Some("raw".to_owned()) });
        let new = qcow2::NewHeader {
            version,
            cluster_bits: 16,
            size: 1 << 20,
            l1_entries: 1,
            l1_offset: 1 << 16,
            refcount_width: qcow2::RefcountWidth::DEFAULT,
            extended_l2,
            backing,
        };
        let mut bytes = new.encode().expect("it has room");
        qcow2::Header::put_refcount_table(&mut bytes, 2 << 16, 1);
        bytes.truncate(1024);
        bytes.extend(entries.iter().flat_map(|entry| entry.to_be_bytes()));
        bytes
    };
    let place = qcow2::COPIED | 5 << 16;
    vec![
        image(2, false, &[place, 0, 1 << 62 | 2 << 54 | 0x2_0100, 6 << 16]),
        image(3, false, &[place, 1, 6 << 16 | 1, 0]),
        image(3, true, &[place, 0xffff, 0, 5 << 32, 6 << 16, 0xf0 << 32 | 0xf]),
    ]
}

fn labels() -> Vec<Vec<u8>> {
    let label = |vg| Label {
        generation: 3,
        pv: Uuid::from_u128(1),
        vg,
        size: 1 << 30,
        ring: Extent::new(64 << 10, 960 << 10),
        data_offset: 1 << 20,
        created: UnixTime(1_700_000_000),
        nonce: Uuid::nil(),
    };
    // Without the checksum, which the target makes.
    let bytes = |label: Label, address| without_zeros(label.encode(address)[..4092].to_vec());
    vec![bytes(label(None), 0), bytes(label(Some(Uuid::from_u128(2))), 4096)]
}

fn slots() -> Vec<Vec<u8>> {
    let slot = |sequence, previous, text: &str| {
        let (vg, pv) = (Uuid::from_u128(1), Uuid::from_u128(2));
        without_zeros(
            Slot { vg, pv, sequence, previous, ancestors: Vec::new(), text: text.to_owned() }.encode(1 << 16),
        )
    };
    vec![slot(1, None, "version = 1\n"), slot(2, Some(Uuid::from_u128(3)), GOLDEN_TEXT)]
}

fn signatures() -> Vec<Vec<u8>> {
    let patch = |place: usize, bytes: &[u8]| {
        let place = place.to_le_bytes();
        [&place[..3], &[u8::try_from(bytes.len()).expect("a short patch")], bytes].concat()
    };
    let disk = |choice: u8, patch: Vec<u8>| [&[choice][..], &(1_u64 << 30).to_le_bytes(), &patch].concat();
    vec![
        disk(1, patch(0, b"XFSB")),
        disk(1, patch(1080, b"\x53\xef")),
        disk(1, patch(512, b"LABELONE")),
        disk(4, patch(1024, &0x00ba_b10c_u64.to_le_bytes())),
        disk(0, patch(510, b"\x55\xaa")),
    ]
}

fn store() -> Vec<Vec<u8>> {
    let id = Uuid::from_u128(7);
    let superblock = Superblock {
        generation: 2,
        store: id,
        chunk_size: 65_536,
        store_size: 1 << 30,
        table: 0x10_0000,
        table_blocks: 3,
        log: 0x2000,
        sequence: 9,
        next_snapshot: 17,
        roots: Roots { preserved: Link::unpack(0x200_0000_0011), written: Link::unpack(0x100_0000_0012) },
        nodes: 5,
        free_blocks: 0x0203,
        epoch: 0,
        places: vec![space_page::Place::First; 9],
    };
    let mapping = |place| Mapping { snapshot: 5, extent: Extent::new(0x2_0000, 0x1_0000), place };
    let entries = vec![
        Entry::Preserved { mapping: mapping(0x10_1000), checksum: 1 },
        Entry::Written(mapping(0)),
        Entry::Created(Descriptor {
            id: 6,
            name: "nightly.7".into(),
            created: UnixTime(1_700_000_000),
            size: 1 << 30,
            read_only: true,
            held: false,
            base: false,
        }),
        Entry::Flags { snapshot: 6, read_only: false, held: true, base: false },
        Entry::Removed(5),
        Entry::RollbackBegun { snapshot: 6, boundary: 9 },
        Entry::Restored { snapshot: 6, extent: Extent::new(0x3000, 0x2000) },
        Entry::Dropped { snapshot: 6, extent: Extent::new(0x3000, 0x2000) },
        Entry::RollbackEnded(6),
    ];
    let block = |kind, next| {
        let block = EntryBlock {
            kind,
            store: id,
            generation: 2,
            epoch: 0,
            address: 0x10_0000,
            sequence: 1,
            next,
            entries: entries.clone(),
        };
        let mut bytes = vec![0; 4096];
        block.encode(&mut bytes);
        bytes
    };
    let told = |kind: u8, bytes: Vec<u8>| [vec![kind], without_zeros(bytes[..4092].to_vec())].concat();
    vec![
        told(0, superblock.encode(superblock.slots()[0])),
        told(1, block(BlockKind::Log, 0x11_0000)),
        told(2, block(BlockKind::Table, 0)),
    ]
}

fn pool() -> Vec<Vec<u8>> {
    let superblock = thin::Superblock {
        number: 3,
        pool: Uuid::from_u128(7),
        block_size: 65536,
        slot_blocks: 1,
        log_blocks: 16,
        end_block: Block::new(100_000),
        generation: 7,
        free_blocks: 8,
        shares: Link::unpack(0x700_0000_0009),
        volumes: Link::unpack(0x700_0000_000a),
        head: 11,
        sequence: 12,
        next_volume: 13,
        nodes: 14,
        epoch: Epoch { generation: 1, revision: 2 },
        places: vec![space_page::Place::First, space_page::Place::Never],
    };
    let name = "web".to_owned();
    let backing = Backing::Snapshot { store: Uuid::from_u128(5), number: 2, created: 3 };
    let origin = Some(Origin { backing, bytes: 4096 });
    let changes = vec![
        Change::Create { volume: 1, bytes: 1 << 30, created: 9, flags: 1, name: name.clone(), origin: None },
        Change::Map { volume: 1, start: 2, count: 3, place: Block::new(4) },
        Change::Unmap { volume: 1, start: 2, end: 3 },
        Change::Clone { volume: 2, source: 1, created: 9, flags: 0, name },
        Change::RollBack { volume: 1, source: 2, rest: 3 },
        Change::Remove { volume: 1 },
        Change::Create { volume: 3, bytes: 1 << 30, created: 9, flags: 4, name: "over".to_owned(), origin },
    ];
    let record = Record { sequence: 12, pool: 7, epoch: Epoch { generation: 1, revision: 2 }, changes };
    let (mut slot, mut block) = (vec![0; 4096], vec![0; 4096]);
    superblock.encode(&mut slot, superblock.slots()[0]);
    record.encode(&mut block);
    let rows: Vec<u8> = (0..8_u8).flat_map(|row| [vec![0; 15], vec![row], vec![row; 16]].concat()).collect();
    let volume = VolumeRows {
        volume: 7,
        root: Link::unpack(0x700_0000_0009),
        since: 2,
        bytes: 1 << 30,
        mapped: 4,
        flags: VolumeFlags(VolumeFlags::ORIGIN),
        source: 5,
        created: 6,
        snapshot_of: Some(3),
        origin,
        name: "web".to_owned(),
    };
    let entry = |(key, value): (u128, [u8; 16])| [key.to_be_bytes(), value].concat();
    let volume: Vec<u8> = volume.encode().into_iter().flat_map(entry).collect();
    vec![
        [vec![0], without_zeros(slot)].concat(),
        [vec![1], without_zeros(block)].concat(),
        [vec![2], rows].concat(),
        [vec![2], volume].concat(),
    ]
}

fn ordered_map() -> Vec<Vec<u8>> {
    let leaf = node::Entries::Leaf((0..9).map(|key| (key * 3, [1; 16])).collect());
    let branch = node::Entries::Branch(
        (0..9).map(|key| (key * 100, Link::unpack(0x300_0000_0028 + key as u64))).collect(),
    );
    let node = |level, entries| {
        let node = node::Node { address: Block::new(40), generation: 3, store: 7, level, entries };
        let mut bytes = vec![0; 4096];
        node.encode(&mut bytes);
        [vec![0], without_zeros(bytes)].concat()
    };
    let mut page = space_page::SpacePage::new(7, 1);
    page.set(5, true);
    let mut bytes = vec![0; 4096];
    page.encode(&mut bytes, Block::new(40));
    vec![node(0, leaf), node(1, branch), [vec![1], without_zeros(bytes)].concat()]
}

fn wish(choice: u8) -> Wish {
    Wish {
        name: "data/home".to_owned(),
        extended_headers: choice & 1 != 0,
        structured_replies: choice & 2 != 0,
        allocation: choice & 4 != 0,
    }
}

/// What clients say and what servers say, one seed for each choice of what the client wishes.
fn conversations() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    for choice in [0, 2, 6, 7] {
        let (asked, told, framing) = converse(choice);
        to_server.push([vec![16], asked, requests(framing)].concat());
        to_client.push([vec![choice, 16], told, replies(framing)].concat());
        let kind = match framing {
            Framing::Simple => 0,
            Framing::Structured => 1,
            Framing::Extended => 2,
        };
        to_client.push([vec![8 | 4 | kind << 4, 16], replies(framing)].concat());
    }
    let mut listing = 3_u32.to_be_bytes().to_vec();
    put_option(3, &[], &mut listing);
    put_option(1, b"data/home", &mut listing);
    to_server.push([vec![3], listing].concat());
    (to_server, to_client)
}

/// Our client's handshake with our server: what each said, and what they agreed.
fn converse(choice: u8) -> (Vec<u8>, Vec<u8>, Framing) {
    let offer = Offer {
        size: 1 << 33,
        flags: ExportFlags(0xffff),
        block_sizes: BlockSizes::default(),
        name: "data/home".to_owned(),
        description: "a volume".to_owned(),
        changed_since: Some("monday".into()),
    };
    let (mut client, mut server) = (client::Handshake::new(wish(choice)), server::Handshake::new());
    let mut told = server::Handshake::greeting().to_vec();
    let (mut asked, mut heard_by_client, mut heard_by_server) = (Vec::new(), 0, 0);
    loop {
        let (used, step) = client.feed(&told[heard_by_client..], &mut asked);
        heard_by_client += used;
        if let client::Step::Ready(connected) = step {
            return (asked, told, connected.framing);
        }
        assert!(matches!(step, client::Step::More), "our client understands our server: {step:?}");
        let (used, step) = server.feed(&asked[heard_by_server..], &mut told);
        heard_by_server += used;
        match step {
            server::Step::Lookup(_) => drop(server.answer(Some(&offer), &mut told)),
            server::Step::List => {
                let listed = Listed { name: "data/home".to_owned(), description: String::new() };
                drop(server.answer_list(&[listed], &mut told));
            }
            _ => {}
        }
    }
}

fn request(cookie: u64, command: Command, length: u64) -> Request {
    Request { flags: 0, command, cookie, offset: 4096, length }
}

fn requests(framing: Framing) -> Vec<u8> {
    let commands = [Command::Read, Command::Flush, Command::BlockStatus, Command::Trim, Command::WriteZeroes];
    let head = |cookie, command, length| -> Head {
        request(cookie, command, length).encode(framing).expect("a short request fits in every framing")
    };
    let mut bytes = [&head(9, Command::Write, 4)[..], b"data"].concat();
    for (cookie, command) in (0..).zip(commands) {
        bytes.extend_from_slice(&head(cookie, command, 8192));
    }
    bytes
}

fn replies(framing: Framing) -> Vec<u8> {
    let length = 256;
    let read = request(0, Command::Read, length);
    let mut bytes = Head::data(framing, &read, length as u32).to_vec();
    bytes.extend_from_slice(&vec![7; length as usize]);
    bytes.extend_from_slice(&Head::done(framing, &request(1, Command::Write, length)));
    if framing != Framing::Simple {
        let status = request(3, Command::BlockStatus, length);
        let mut runs = Vec::new();
        let count = encode_runs(
            framing,
            &[Run { length: 4096, state: 0 }, Run { length: 4096, state: 3 }],
            &mut runs,
        );
        bytes.extend_from_slice(&Head::status(framing, &status, 1, count, true));
        bytes.extend_from_slice(&runs);
    }
    let failed = request(5, Command::Trim, length);
    bytes.extend_from_slice(&Head::error(framing, &failed, varve_nbd::ErrorCode::Io));
    bytes
}
