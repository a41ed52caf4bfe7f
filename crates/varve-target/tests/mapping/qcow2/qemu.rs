//! Images that QEMU, imago and this code write in turn, over random histories: each reads what the other wrote, and finds no fault.

use crate::qcow2::files::{
    FileDevice, Folder, open_chain, open_over, our_check, qemu, qemu_check, read_all, run, text, to_write,
    write,
};
use crate::qcow2::imago_oracle;
use futures_executor::block_on;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use varve_block::{Access, Device, Extent, ZeroOptions};
use varve_format::qcow2::{Backing, RefcountWidth};
use varve_sim::Random;
use varve_target::qcow2::{ImageDevice, NewImage, Options, create};

struct Pair {
    path: PathBuf,
    new: NewImage,
    model: Vec<u8>,
    /// By cluster: whether it was ever changed. QEMU compresses only what has no place.
    changed: Vec<bool>,
    random: Random,
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

fn make(path: &Path, new: &NewImage, by_qemu: bool) {
    if !by_qemu {
        let device = FileDevice::open(path, new.room().expect("valid"), Access::ReadWrite);
        let arena = crate::qcow2::files::arena();
        block_on(create(device, arena, new)).expect("created");
        return;
    }
    let compat = if new.version == 2 { "0.10" } else { "1.1" };
    let options = format!(
        "compat={compat},cluster_size={},refcount_bits={},extended_l2={},lazy_refcounts={}",
        new.cluster_size,
        new.refcount_width.bits(),
        if new.extended_l2 { "on" } else { "off" },
        if new.version == 3 && new.size.is_multiple_of(3) { "on" } else { "off" }
    );
    let size = new.size.to_string();
    let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", &options];
    if let Some(backing) = &new.backing {
        let format = backing.format.as_deref().expect("said");
        arguments.extend(["-u", "-F", format, "-b", &backing.name]);
    }
    arguments.extend([text(path), &size]);
    qemu("qemu-img", &arguments);
}

enum Change {
    Write(Extent, u8),
    Zero(Extent),
    Discard(Extent),
}

impl Pair {
    fn new(path: PathBuf, new: NewImage, model: Vec<u8>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        make(&path, &new, random.chance(1, 2));
        let changed = vec![false; index(new.size.div_ceil(new.cluster_size))];
        Self { path, new, model, changed, random }
    }

    fn change(&mut self) -> Change {
        let unit = if self.random.chance(1, 2) { 512 } else { self.new.cluster_size.min(64 << 10) };
        let units = self.new.size / unit;
        let bound = (units / 6).clamp(1, 200);
        let length = self.random.between(1, bound + 1);
        let extent = Extent::new(self.random.below(units - length + 1) * unit, length * unit);
        let whole = extent.align_in(self.new.cluster_size);
        let can_discard = !whole.is_empty() && (self.new.version == 3 || self.new.backing.is_none());
        match self.random.below(8) {
            0 => Change::Zero(extent),
            1 if can_discard => Change::Discard(whole),
            _ => Change::Write(extent, u8::try_from(self.random.between(1, 255)).expect("a byte")),
        }
    }

    fn set(&mut self, extent: Extent, value: u8) {
        self.model[index(extent.offset)..index(extent.end())].fill(value);
        extent.pieces(self.new.cluster_size).for_each(|(cluster, _)| self.changed[index(cluster)] = true);
    }

    fn changes(&mut self) -> Vec<Change> {
        let changes: Vec<Change> = (0..8).map(|_| self.change()).collect();
        for change in &changes {
            let (extent, value) = match change {
                Change::Write(extent, value) => (extent, *value),
                Change::Zero(extent) | Change::Discard(extent) => (extent, 0),
            };
            self.set(*extent, value);
        }
        changes
    }

    fn by_us(&mut self) {
        let changes = self.changes();
        let image = Rc::new(open_chain(&self.path, to_write()));
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        for change in changes {
            match change {
                Change::Write(extent, value) => {
                    write(&device, extent.offset, &vec![value; index(extent.length)]);
                }
                Change::Zero(extent) => {
                    let options = ZeroOptions { unmap: self.random.chance(1, 2), ..ZeroOptions::default() };
                    block_on(device.zero(extent, options)).map(drop).expect("zeroed");
                }
                Change::Discard(extent) => block_on(device.discard(extent)).map(drop).expect("discarded"),
            }
            if self.random.chance(1, 3) {
                block_on(device.flush()).map(drop).expect("flushed");
            }
        }
        block_on(image.close()).expect("closed");
        let end = block_on(image.end()).expect("known");
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).expect("opened");
        file.set_len(end).expect("cut");
    }

    fn by_qemu(&mut self) {
        let mut arguments = vec!["-f".to_owned(), "qcow2".to_owned(), "-d".to_owned(), "unmap".to_owned()];
        for change in self.changes() {
            arguments.push("-c".to_owned());
            let place = |extent: Extent| format!("{} {}", extent.offset, extent.length);
            arguments.push(match change {
                Change::Write(extent, value) => {
                    format!("write -q -P {value} {}", place(extent))
                }
                Change::Zero(extent) => {
                    format!(
                        "write -q -z {} {}",
                        if self.random.chance(1, 2) { "-u" } else { "" },
                        place(extent)
                    )
                }
                Change::Discard(extent) => format!("discard -q {}", place(extent)),
            });
        }
        for _ in 0..3 {
            let cluster = self.random.index(self.changed.len());
            let size = self.new.cluster_size;
            if !self.changed[cluster] && (cluster as u64 + 1) * size <= self.new.size {
                arguments
                    .extend(["-c".to_owned(), format!("write -q -c -P 77 {} {size}", cluster as u64 * size)]);
                self.set(Extent::new(cluster as u64 * size, size), 77);
            }
        }
        arguments.push(text(&self.path).to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = run("qemu-io", &arguments);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    }

    /// It writes; discards are zeros to it.
    fn by_imago(&mut self) {
        let runs = self.changes().into_iter().map(|change| match change {
            Change::Write(extent, value) => (extent.offset, index(extent.length), value),
            Change::Zero(extent) | Change::Discard(extent) => (extent.offset, index(extent.length), 0),
        });
        imago_oracle::write(&self.path, &runs.collect::<Vec<_>>());
    }

    /// Both find the tables in order, and read what was written.
    fn compare(&self) {
        let (corrupt, leaked, said) = qemu_check(&self.path);
        assert!(!corrupt && !leaked, "{:?}: {said}", self.new);
        let report = our_check(&self.path);
        assert!(report.corruptions == 0 && report.leaks == 0, "{:?}: {report:?}", self.new);
        let image = open_chain(&self.path, Options::default());
        self.compare_with(&read_all(&Device::new(ImageDevice::new(Rc::new(image)))), "read by us");
        let raw = self.path.with_extension("out");
        qemu("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", text(&self.path), text(&raw)]);
        self.compare_with(&std::fs::read(&raw).expect("read"), "read by QEMU");
        match imago_oracle::read_all(&self.path) {
            Some(content) => self.compare_with(&content, "read by imago"),
            None => assert!(self.new.extended_l2 || self.new.backing.is_some(), "{:?}", self.new),
        }
    }

    fn compare_with(&self, content: &[u8], how: &str) {
        assert_eq!(content.len(), self.model.len(), "{how}");
        let differs = content.iter().zip(&self.model).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{how}: {:?}", self.new);
    }
}

impl Pair {
    /// By us, or by QEMU's program: what is gained is zeros.
    fn grow(&mut self, size: u64) {
        if self.random.chance(3, 4) {
            let length = std::fs::metadata(&self.path).expect("there").len();
            let file = FileDevice::open(
                &self.path,
                NewImage { size, ..self.new.clone() }.room().expect("valid") + length,
                Access::ReadWrite,
            );
            let mut image = open_over(file, &self.path, to_write());
            block_on(image.grow(size)).expect("it grows");
            block_on(image.close()).expect("closed");
            let end = block_on(image.end()).expect("known");
            let file = std::fs::OpenOptions::new().write(true).open(&self.path).expect("opened");
            file.set_len(end).expect("cut");
        } else {
            qemu("qemu-img", &["resize", "-q", "-f", "qcow2", text(&self.path), &size.to_string()]);
        }
        self.new.size = size;
        self.model.resize(index(size), 0);
        self.changed.resize(index(size.div_ceil(self.new.cluster_size)), false);
    }
}

#[test]
fn images_grow_and_what_is_gained_is_zeros() {
    let folder = Folder::new("growing");
    for (seed, cluster_bits) in (1_u64..).zip([9, 9, 10, 12, 14, 16, 16]) {
        let extended_l2 = cluster_bits >= 14 && seed % 2 == 0;
        let version = if seed % 4 == 3 { 2 } else { 3 };
        let below = folder.path(&format!("{seed}.raw"));
        std::fs::write(&below, vec![3; 100 << 10]).expect("written");
        let backing = (seed % 3 == 0).then(|| {
            let format = Some("raw".to_owned());
            Backing { name: format!("{seed}.raw"), format }
        });
        // The end is in the middle of a cluster.
        let size = 150 * 1024 + 512;
        let mut model = vec![if backing.is_some() { 3 } else { 0 }; 100 << 10];
        model.resize(index(size), 0);
        let new = NewImage {
            cluster_size: 1 << cluster_bits,
            version,
            extended_l2,
            backing,
            ..NewImage::new(size)
        };
        let mut pair = Pair::new(folder.path(&format!("{seed}.qcow2")), new, model, 50 + seed);
        for factor in [2, 3, 20] {
            history(&mut pair, 1);
            pair.grow(size * factor);
            pair.compare();
        }
        history(&mut pair, 1);
    }
}

#[test]
fn an_image_shorter_than_its_backing_image_does_not_grow() {
    let folder = Folder::new("long-backing");
    std::fs::write(folder.path("base"), vec![3; 1 << 20]).expect("written");
    let path = folder.path("top");
    qemu(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", text(&folder.path("base")), text(&path), "512k"],
    );
    let mut image = open_chain(&path, to_write());
    let refused = block_on(image.grow(768 << 10)).expect_err("QGROW2");
    assert!(refused.to_string().contains("longer than it"), "{refused}");
    assert_eq!(image.size(), 512 << 10);
}

/// Entries of snapshots have their own size of the disk in version 3 only.
#[test]
fn an_image_with_snapshots_grows_if_its_version_can_say_how_large_they_were() {
    let folder = Folder::new("grows");
    for (compat, grows) in [("0.10", false), ("1.1", true)] {
        let path = folder.path(compat);
        let options = format!("compat={compat}");
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", &options, text(&path), "1M"]);
        qemu("qemu-img", &["snapshot", "-c", "before", text(&path)]);
        let mut image = open_chain(&path, to_write());
        assert_eq!(block_on(image.grow(2 << 20)).is_ok(), grows, "{compat}");
        block_on(image.close()).expect("closed");
        assert!(!qemu_check(&path).0, "{compat}");
    }
}

fn history(pair: &mut Pair, rounds: u64) {
    for round in 0..rounds {
        let before = pair.model.clone();
        let snapshots = pair.new.refcount_width.bits() > 1 && round == 1;
        if snapshots {
            qemu("qemu-img", &["snapshot", "-c", "before", text(&pair.path)]);
        }
        // It zeroes in version 3 only, knows no extended L2 entries, and is not tried on what snapshots share.
        let plain = pair.new.version == 3 && !pair.new.extended_l2 && pair.new.backing.is_none();
        let by_imago = round == 0 && plain;
        match pair.random.below(if by_imago { 3 } else { 2 }) {
            0 => pair.by_us(),
            1 => pair.by_qemu(),
            _ => pair.by_imago(),
        }
        pair.compare();
        if snapshots {
            let options = Options { snapshot: Some("before".to_owned()), ..Options::default() };
            let image = Device::new(ImageDevice::new(Rc::new(open_chain(&pair.path, options))));
            assert!(read_all(&image) == before, "the snapshot shows what was there");
        }
    }
}

#[test]
fn images_of_all_shapes_are_written_in_turn() {
    let folder = Folder::new("shapes");
    for (seed, cluster_bits) in (1_u64..).zip((9..=21).chain(14..=21)) {
        let cluster_size = 1_u64 << cluster_bits;
        let extended_l2 = seed > 13;
        let version = if seed % 4 == 0 && !extended_l2 { 2 } else { 3 };
        let bits = if version == 2 { 16 } else { 1 << (seed % 7) };
        let size = (cluster_size * 40).clamp(192 << 10, 6 << 20);
        let new = NewImage {
            cluster_size,
            version,
            extended_l2,
            refcount_width: RefcountWidth::of_bits(bits).expect("a width"),
            ..NewImage::new(size)
        };
        let model = vec![0; index(size)];
        let mut pair = Pair::new(folder.path(&format!("{seed}.qcow2")), new, model, seed);
        history(&mut pair, 4);
    }
}

#[test]
fn chains_of_images_are_written_in_turn() {
    let folder = Folder::new("chains");
    for depth in [1, 3, 30] {
        let size = 1_u64 << 20;
        let name = |number: u64| format!("{depth}-{number}.img");
        let base: Vec<u8> = (0..size - 70_000).map(|at| (at / 512 % 251) as u8).collect();
        std::fs::write(folder.path(&name(0)), &base).expect("written");
        let mut model = base;
        for number in 1..=depth {
            let format = if number == 1 { "raw" } else { "qcow2" };
            let backing = Some(Backing { name: name(number - 1), format: Some(format.to_owned()) });
            let extended_l2 = number % 5 == 2;
            let cluster_size = if extended_l2 { 32 << 10 } else { 4096 << (number % 5) };
            let version = if number % 7 == 3 { 2 } else { 3 };
            let version = if extended_l2 { 3 } else { version };
            let new = NewImage { cluster_size, extended_l2, version, backing, ..NewImage::new(size) };
            model.resize(index(size), 0);
            let mut pair = Pair::new(folder.path(&name(number)), new, model, depth * 100 + number);
            match number == depth {
                true => history(&mut pair, 4),
                false if number % 2 == 0 => pair.by_us(),
                false => pair.by_qemu(),
            }
            model = pair.model;
        }
    }
}

#[test]
fn behind_the_end_of_a_shorter_layer_are_zeros_whatever_lies_below() {
    let folder = Folder::new("shorter");
    let paths = ["base", "middle", "lower", "top"].map(|name| folder.path(name));
    let [base, middle, lower, top] = &paths;
    std::fs::write(base, vec![7; 4 << 20]).expect("written");
    for (above, below, format, size) in
        [(middle, base, "raw", "1000K"), (lower, middle, "qcow2", "4M"), (top, lower, "qcow2", "4M")]
    {
        qemu(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", "-b", text(below), "-F", format, text(above), size],
        );
    }
    let read = read_all(&Device::new(ImageDevice::new(Rc::new(open_chain(top, Options::default())))));
    let seven = 1000 << 10;
    assert!(read[..seven].iter().all(|byte| *byte == 7), "the base shows through");
    assert!(read[seven..].iter().all(|byte| *byte == 0), "and not behind the end of its overlay");
}

#[test]
fn clusters_compressed_by_zstandard_are_read_and_written_over() {
    let folder = Folder::new("zstd");
    for (name, cluster_size) in [("small", "4k"), ("usual", "64k"), ("large", "2M")] {
        let (path, raw) = (folder.path(name), folder.path("raw"));
        let mut model: Vec<u8> = (0..6_u32 << 20).map(|at| (at / 700 * 31 % 251) as u8).collect();
        model[1 << 20..3 << 20].fill(9);
        std::fs::write(&raw, &model).expect("written");
        let options = format!("compression_type=zstd,cluster_size={cluster_size}");
        qemu(
            "qemu-img",
            &["convert", "-q", "-c", "-O", "qcow2", "-f", "raw", "-o", &options, text(&raw), text(&path)],
        );
        assert!(our_check(&path).compressed_clusters > 0, "clusters of {cluster_size}");
        let image = Rc::new(open_chain(&path, to_write()));
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        assert!(read_all(&device) == model, "clusters of {cluster_size}");
        write(&device, (2 << 20) + 512, &[5; 5120]);
        model[(2 << 20) + 512..][..5120].fill(5);
        block_on(image.close()).expect("closed");
        drop((device, image));
        assert_eq!(our_check(&path).corruptions, 0);
        qemu("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", text(&path), text(&raw)]);
        assert!(std::fs::read(&raw).expect("read") == model, "by QEMU");
    }
}

#[test]
fn an_image_left_dirty_is_counted_anew() {
    let folder = Folder::new("dirty");
    let path = folder.path("lazy.qcow2");
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on", text(&path), "8M"]);
    // Aborted: what was written has no counts.
    let arguments = ["-f", "qcow2", "-c", "write -P 5 0 1M", "-c", "flush", "-c", "abort", text(&path)];
    assert!(!run("qemu-io", &arguments).status.success());
    assert!(our_check(&path).corruptions > 0 && qemu_check(&path).0, "counts are missing");
    let image = Rc::new(open_chain(&path, to_write()));
    let device = Device::new(ImageDevice::new(Rc::clone(&image)));
    write(&device, 2 << 20, &[6; 4096]);
    block_on(image.close()).expect("closed");
    assert_eq!((our_check(&path).corruptions, our_check(&path).leaks), (0, 0));
    let (corrupt, leaked, said) = qemu_check(&path);
    assert!(!corrupt && !leaked, "{said}");
    let content = read_all(&device);
    assert!(content[..1 << 20].iter().all(|byte| *byte == 5), "what was there is there");
    assert_eq!(content[2 << 20], 6);
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    use varve_target::qcow2::{Image, OpenError};
    let folder = Folder::new("refused");
    let path = folder.path("image");
    let refusal = |options: &str, access| {
        let _ = std::fs::remove_file(&path);
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, text(&path), "1M"]);
        let length = std::fs::metadata(&path).expect("there").len();
        let options = Options { access, ..Options::default() };
        let opened = block_on(Image::open(
            FileDevice::open(&path, length, access),
            crate::qcow2::files::arena(),
            options,
        ));
        opened.err().map(|error: OpenError| error.to_string()).unwrap_or_default()
    };
    let external = format!("data_file={}", text(&folder.path("data")));
    assert!(refusal(&external, Access::ReadOnly).contains("external data file"));
    assert_eq!(refusal("compat=1.1", Access::ReadOnly), "");
    let bytes = std::fs::read(&path).expect("read");
    let with = |at: usize, byte: u8, access| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        std::fs::write(&path, &bytes).expect("written");
        let options = Options { access, ..Options::default() };
        let device = FileDevice::open(&path, bytes.len() as u64, access);
        let opened = block_on(Image::open(device, crate::qcow2::files::arena(), options));
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with(35, 2, Access::ReadOnly).contains("LUKS"));
    assert!(with(35, 1, Access::ReadOnly).contains("AES"));
    assert!(with(79, 1 << 5, Access::ReadOnly).contains("bit 5"));
    assert!(with(0, 0, Access::ReadOnly).contains("no qcow2 image"));
    assert!(with(7, 4, Access::ReadOnly).contains("version 4"));
    assert!(with(79, 2, Access::ReadWrite).contains("corrupt"));
    assert_eq!(with(79, 2, Access::ReadOnly), "");
}
