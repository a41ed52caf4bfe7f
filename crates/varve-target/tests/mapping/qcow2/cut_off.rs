//! Images of which the end is missing: refused before anything of them is changed, unless all that they hold is there.

use crate::qcow2::files::{FileDevice, Folder, arena, open_chain, qemu, read_all, run, text, to_write};
use futures_executor::block_on;
use std::path::Path;
use std::rc::Rc;
use varve_block::{Access, Device, IoError};
use varve_sim::Random;
use varve_target::qcow2::{Image, ImageDevice, OpenError, Options, Report, check_to_write};

const SIZE: &str = "1049088"; // 1 MiB and a sector

/// An image with data, some of it compressed, zeros, and maybe a snapshot.
fn image(path: &Path, options: &str, snapshot: bool) {
    let _ = std::fs::remove_file(path);
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, text(path), SIZE]);
    // QEMU does not compress clusters so small, nor what has a place.
    let small = options.contains("=512") || options.contains("preallocation");
    let commands = [
        "write -q -P 1 0 100k",
        if small { "write -q -P 2 128k 64k" } else { "write -q -c -P 2 128k 64k" },
        "write -q -P 3 300k 100k",
        "write -q -z 320k 8k",
        "write -q -P 4 1048576 512",
        "write -q -P 5 700k 200k",
    ];
    let (before, after) = commands.split_at(3);
    let write = |commands: &[&str]| {
        let arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        qemu("qemu-io", &[&["-f", "qcow2"], &arguments[..], &[text(path)]].concat());
    };
    write(before);
    if snapshot {
        qemu("qemu-img", &["snapshot", "-c", "one", text(path)]);
    }
    write(after);
}

fn open(path: &Path, options: Options) -> Result<Image, OpenError> {
    let length = std::fs::metadata(path).expect("there").len();
    let device = FileDevice::open(path, length, options.access);
    let options = Options { file_end: Some(length), ..options };
    block_on(Image::open(device, arena(), options))
}

fn content(image: Image) -> Vec<u8> {
    read_all(&Device::new(ImageDevice::new(Rc::new(image))))
}

fn check(path: &Path) -> Result<Report, OpenError> {
    let image = open(path, Options { inspects: true, ..Options::default() })?;
    block_on(image.check()).map_err(OpenError::Io)
}

/// The copy at `path`, cut to `length` bytes, is refused, or shows `whole`; whether it is refused.
fn is_refused(path: &Path, whole: &[u8], length: u64) -> bool {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("there");
    file.set_len(length).expect("cut");
    let before = std::fs::read(path).expect("read");
    let to_read = open(path, Options::default());
    let device = FileDevice::open(path, length, Access::ReadOnly);
    let to_write = block_on(check_to_write(device, arena(), length));
    let refused = to_read.is_err();
    match to_read {
        Ok(image) => assert!(content(image) == whole, "QEND1: {length} bytes are not all of it"),
        Err(OpenError::CutOff { end, .. }) => assert_eq!(end, length),
        Err(error) => assert!(matches!(error, OpenError::Format(_)), "{length} bytes: {error}"),
    }
    assert_eq!(to_write.is_err(), refused, "{length} bytes: {to_write:?}");
    assert!(std::fs::read(path).expect("read") == before, "nothing was changed");
    if refused && let Ok(report) = check(path) {
        assert!(report.corruptions > 0, "{length} bytes: a check finds what is missing");
    }
    refused
}

#[test]
fn an_image_that_was_cut_off_is_refused_unless_all_that_it_holds_is_there() {
    let folder = Folder::new("cut");
    let (path, copy) = (folder.path("image"), folder.path("copy"));
    let kinds = [
        ("cluster_size=64k", false),
        ("cluster_size=4k", true),
        ("cluster_size=512", false),
        ("extended_l2=on,cluster_size=64k", true),
        ("lazy_refcounts=on,cluster_size=4k", false),
        ("preallocation=metadata,cluster_size=64k", false),
        ("compat=0.10,cluster_size=4k", true),
    ];
    let (mut refused, mut shown, mut checked) = (0_u32, 0_u32, 0_u32);
    for (seed, (options, snapshot)) in (1..).zip(kinds) {
        image(&path, options, snapshot);
        let whole = content(open(&path, Options::default()).expect("all of it is there"));
        let length = std::fs::metadata(&path).expect("there").len();
        let mut random = Random::new(seed);
        let cuts = (0..24).map(|_| random.below(length / 512) * 512 + random.below(2) * 8);
        for cut in cuts.chain([length, length - 8, length - 512, length - 4096]) {
            std::fs::copy(&path, &copy).expect("copied");
            match is_refused(&copy, &whole, cut) {
                true => refused += 1,
                false => shown += 1,
            }
            checked += u32::from(check(&copy).is_ok());
        }
    }
    assert!(refused > 140 && shown >= 7, "{refused} are refused, and {shown} are whole");
    assert!(checked > 140, "what is missing can be looked for in {checked}");
}

#[test]
fn a_dirty_image_that_was_cut_off_is_refused_though_its_counts_do_not_tell() {
    let folder = Folder::new("cut-dirty");
    let path = folder.path("image");
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on", text(&path), "8M"]);
    let arguments = ["-f", "qcow2", "-c", "write -P 5 0 1M", "-c", "flush", "-c", "abort", text(&path)];
    assert!(!run("qemu-io", &arguments).status.success());
    let whole = content(open(&path, Options::default()).expect("all of it is there"));
    assert!(is_refused(&path, &whole, 1 << 20));
}

#[test]
fn an_entry_without_a_count_that_leads_behind_the_end_is_damage() {
    let folder = Folder::new("cut-entry");
    let path = folder.path("image");
    image(&path, "cluster_size=4k", false);
    let mut bytes = std::fs::read(&path).expect("read");
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) & !(1 << 63))
            .expect("small")
    };
    let l2 = word(&bytes, word(&bytes, 40));
    let behind = bytes.len().next_multiple_of(4096) as u64 + 4096;
    bytes[l2..l2 + 8].copy_from_slice(&(behind | 1 << 63).to_be_bytes());
    std::fs::write(&path, &bytes).expect("written");
    for options in [Options::default(), to_write()] {
        let image = Rc::new(open_chain(&path, options));
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let read = block_on(device.read(0, arena().take(4096)));
        assert_eq!(read.err(), Some(IoError::Corrupt), "QEND2");
        let rest = block_on(device.read(4096, arena().take(4096))).expect("the rest of it is sound");
        assert!(rest.iter().all(|byte| *byte == 1));
    }
}
