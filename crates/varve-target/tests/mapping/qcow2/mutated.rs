//! Images with changed fields: whatever a file holds, the answer is an error or a success, and the work is bounded.

use crate::qcow2::files::{Folder, arena, open_chain, qemu, text, to_write, write};
use futures_executor::block_on;
use std::rc::Rc;
use varve_block::{
    Access, BlockDevice, Buffer, Checked, Completion, Device, Durability, Extent, Io, IoError, Shape,
    ZeroOptions,
};
use varve_format::qcow2::{Header, OFFSET_MASK};
use varve_sim::Random;
use varve_target::qcow2::{Image, ImageDevice, Options};

/// Bytes as a device.
struct Memory(std::cell::RefCell<Vec<u8>>);

impl BlockDevice for Memory {
    fn shape(&self) -> Shape {
        Shape::new(self.0.borrow().len() as u64, 512)
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let mut bytes = self.0.borrow_mut();
        let place = |at: u64, length: usize| usize::try_from(at).map(|at| at..at + length).expect("small");
        match io.into_io() {
            Io::Read { offset, mut buffer } => {
                let length = buffer.len();
                buffer.copy_from_slice(&bytes[place(offset, length)]);
                return Completion::ready(Ok(buffer));
            }
            Io::Write { offset, data, .. } => bytes[place(offset, data.len())].copy_from_slice(&data),
            Io::Zero { extent, .. } => {
                let length = usize::try_from(extent.length).expect("small");
                bytes[place(extent.offset, length)].fill(0);
            }
            Io::Discard { .. } | Io::Flush => {}
        }
        Completion::ready(Ok(Buffer::empty()))
    }
}

/// An image with data, compressed clusters and a snapshot.
fn image(folder: &Folder, options: &str) -> Vec<u8> {
    let path = folder.path("image");
    let _ = std::fs::remove_file(&path);
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, text(&path), "1M"]);
    let writes =
        ["-c", "write -q -P 1 0 100k", "-c", "write -q -c -P 2 128k 64k", "-c", "write -q -P 3 300k 100k"];
    qemu("qemu-io", &[&["-f", "qcow2"], &writes[..], &[text(&path)]].concat());
    qemu("qemu-img", &["snapshot", "-c", "one", text(&path)]);
    let image = Rc::new(open_chain(&path, to_write()));
    write(&Device::new(ImageDevice::new(Rc::clone(&image))), 4096, &[9; 8192]);
    block_on(image.close()).expect("closed");
    let end = block_on(image.end()).expect("known");
    let mut bytes = std::fs::read(&path).expect("read");
    bytes.resize(usize::try_from(end).expect("small") + (256 << 10), 0);
    bytes
}

/// Changes a few fields, most of them in metadata.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    let word = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let header = Header::decode(bytes).expect("sound");
    let offset = |at: u64| usize::try_from(at).expect("small");
    let l2 = offset(word(bytes, offset(header.l1_offset)) & OFFSET_MASK);
    let block = offset(word(bytes, offset(header.refcount_table_offset)) & OFFSET_MASK);
    let tables = [
        (0, 120),
        (offset(header.l1_offset), 16),
        (offset(header.refcount_table_offset), 32),
        (offset(header.snapshots_offset), 80),
        (l2, 256),
        (block, 64),
    ];
    for _ in 0..random.between(1, 4) {
        let (start, length) = *random.pick(&tables);
        let at = start + random.index(length);
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = u8::try_from(random.below(256)).expect("a byte"),
            2 => {
                let to = start + random.index(length / 8) * 8;
                let value =
                    *random.pick(&[l2, block, 0, 512, bytes.len(), start]) as u64 | random.below(2) << 63;
                bytes[to..to + 8].copy_from_slice(&value.to_be_bytes());
            }
            _ => {
                let to = start + random.index(length / 8) * 8;
                let value = random.bits() >> random.below(64);
                bytes[to..to + 8].copy_from_slice(&value.to_be_bytes());
            }
        }
    }
}

/// Opens, reads, checks, and writes; what comes of it.
fn use_it(bytes: Vec<u8>, random: &mut Random) -> bool {
    let device = Device::new(Memory(std::cell::RefCell::new(bytes)));
    let snapshot = random.chance(1, 4).then(|| "one".to_owned());
    let options = Options { snapshot, cache_bytes: 32 << 10, ..Options::default() };
    let Ok(image) = block_on(Image::open(device.clone(), arena(), options)) else { return false };
    let _ = block_on(image.check());
    let shown = Device::new(ImageDevice::new(Rc::new(image)));
    let whole = shown.shape().size.min(2 << 20);
    let reads = |shown: &Device| {
        for (_, piece) in Extent::new(0, whole).pieces(64 << 10) {
            let buffer = arena().take(usize::try_from(piece.length).expect("small"));
            let _ = block_on(shown.read(piece.offset, buffer));
            let _ = block_on(shown.status(piece));
        }
    };
    reads(&shown);
    let options = Options { access: Access::ReadWrite, cache_bytes: 32 << 10, ..Options::default() };
    let Ok(image) = block_on(Image::open(device, arena(), options)) else { return true };
    let image = Rc::new(image);
    let shown = Device::new(ImageDevice::new(Rc::clone(&image)));
    let sectors = shown.shape().size.min(1 << 20) / 512;
    for _ in 0..12 {
        let length = random.between(1, 65.min(sectors + 1).max(2)).min(sectors);
        if length == 0 {
            break;
        }
        let extent = Extent::new(random.below(sectors - length + 1) * 512, length * 512);
        let data = arena().copy(&vec![7; usize::try_from(extent.length).expect("small")]);
        let _ = match random.below(4) {
            0 => block_on(shown.zero(extent, ZeroOptions::default())),
            1 => block_on(shown.discard(extent)),
            _ => block_on(shown.write(extent.offset, data, Durability::Volatile)),
        };
    }
    let _ = block_on(image.close());
    let _ = block_on(image.end());
    let _ = block_on(image.check());
    true
}

#[test]
fn a_table_that_lies_beside_a_cluster_is_an_error_of_who_needs_it() {
    let folder = Folder::new("beside");
    let mut bytes = image(&folder, "cluster_size=64k");
    let header = Header::decode(&bytes).expect("sound");
    let entry = usize::try_from(header.l1_offset).expect("small");
    bytes[entry + 6] |= 2; // 512 bytes behind the beginning of a cluster
    let device = Device::new(Memory(std::cell::RefCell::new(bytes)));
    let options = Options { access: Access::ReadWrite, ..Options::default() };
    let image = Rc::new(block_on(Image::open(device, arena(), options)).expect("the rest of it is sound"));
    let shown = Device::new(ImageDevice::new(Rc::clone(&image)));
    assert_eq!(block_on(shown.read(0, arena().take(512))).map(drop), Err(IoError::Corrupt));
    let data = arena().copy(&[7; 512]);
    assert_eq!(block_on(shown.write(0, data, Durability::Durable)).map(drop), Err(IoError::Corrupt));
}

#[test]
fn changed_fields_are_errors_or_nothing() {
    let folder = Folder::new("mutated");
    let kinds = [
        "cluster_size=64k",
        "cluster_size=4k,refcount_bits=64",
        "extended_l2=on,cluster_size=64k",
        "compat=0.10",
    ];
    let (mut opened, mut cases) = (0_u32, 0_u32);
    for (seed, options) in (1..).zip(kinds) {
        let sound = image(&folder, options);
        let mut random = Random::new(seed);
        for _ in 0..250 {
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut random);
            if random.chance(1, 10) {
                let length = random.index(bytes.len()) / 512 * 512;
                bytes.truncate(length);
            }
            opened += u32::from(use_it(bytes, &mut random));
            cases += 1;
        }
    }
    assert!(opened * 4 > cases, "a good part is opened: {opened} of {cases}");
}

#[test]
fn an_entry_that_leads_to_metadata_is_not_written_through() {
    let folder = Folder::new("metadata");
    let sound = image(&folder, "cluster_size=4k");
    let word = |at: u64| {
        let at = usize::try_from(at).expect("small");
        u64::from_be_bytes(sound[at..at + 8].try_into().expect("8 bytes"))
    };
    let header = Header::decode(&sound).expect("sound");
    let l2 = word(header.l1_offset) & OFFSET_MASK;
    let block = word(header.refcount_table_offset) & OFFSET_MASK;
    for metadata in [header.l1_offset, header.refcount_table_offset, l2, block] {
        let mut bytes = sound.clone();
        // The first cluster, as one that is there once: its place is overwritten.
        let at = usize::try_from(l2).expect("small");
        bytes[at..at + 8].copy_from_slice(&(metadata | 1 << 63).to_be_bytes());
        let file = Rc::new(Memory(std::cell::RefCell::new(bytes.clone())));
        let options = Options { access: Access::ReadWrite, ..Options::default() };
        let opened = block_on(Image::open(Device::from_rc(file.clone()), arena(), options));
        let shown = Device::new(ImageDevice::new(Rc::new(opened.expect("its roots are sound"))));
        let data = arena().copy(&[7; 4096]);
        let written = block_on(shown.write(0, data, Durability::Volatile));
        assert_eq!(written.err(), Some(IoError::Corrupt), "QCOUNT3: {metadata:#x}");
        let start = usize::try_from(metadata).expect("small");
        assert_eq!(
            file.0.borrow()[start..start + 4096],
            bytes[start..start + 4096],
            "QCOUNT3: {metadata:#x}"
        );
    }
}
