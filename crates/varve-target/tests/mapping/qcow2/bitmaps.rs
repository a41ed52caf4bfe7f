//! Persistent bitmaps, which only QEMU keeps: counted and named; where they are void the image is written, without them.

use crate::qcow2::files::{
    Folder, open_chain, our_check, qemu, qemu_check, read_all, run, text, to_write, write,
};
use futures_executor::block_on;
use std::path::Path;
use std::rc::Rc;
use varve_block::Device;
use varve_target::qcow2::{ImageDevice, OpenError, Options, check_to_write};

/// An image with two bitmaps, one of them with bits that are set.
fn image(path: &Path) {
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", text(path), "8M"]);
    qemu("qemu-img", &["bitmap", "--add", "-g", "4096", text(path), "one"]);
    qemu("qemu-io", &["-f", "qcow2", "-c", "write -q -P 5 1M 1M", text(path)]);
    qemu("qemu-img", &["bitmap", "--add", "--disable", text(path), "two"]);
}

#[test]
fn clusters_of_bitmaps_are_in_use_and_the_image_is_not_written() {
    let folder = Folder::new("bitmaps");
    let path = folder.path("image");
    image(&path);
    assert!(!qemu_check(&path).1, "QEMU finds no leak");
    let report = our_check(&path);
    assert_eq!((report.leaks, report.corruptions), (0, 0), "{:?}", report.told);
    let image = open_chain(&path, Options::default());
    let shown = image.bitmaps().iter().map(|bitmap| (bitmap.name.as_str(), bitmap.granularity, bitmap.auto));
    assert_eq!(shown.collect::<Vec<_>>(), [("one", 4096, true), ("two", 65536, false)]);
    let (file, length) = crate::qcow2::files::file_of(&path, varve_block::Access::ReadOnly);
    let refused = block_on(check_to_write(file, crate::qcow2::files::arena(), length));
    assert_eq!(refused, Err(OpenError::Bitmaps));
}

/// Of clusters of 512 bytes the table of a bitmap for 128 MiB fills one.
#[test]
fn a_table_of_a_bitmap_that_fills_its_cluster_takes_no_other() {
    let folder = Folder::new("small");
    let path = folder.path("image");
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "cluster_size=512", text(&path), "128M"]);
    qemu("qemu-img", &["bitmap", "--add", "-g", "512", text(&path), "one"]);
    qemu("qemu-io", &["-f", "qcow2", "-c", "write -q -P 5 1M 1M", text(&path)]);
    assert!(!qemu_check(&path).1, "QEMU finds no leak");
    let report = our_check(&path);
    assert_eq!((report.leaks, report.corruptions), (0, 0), "{:?}", report.told);
}

#[test]
fn bitmaps_that_another_program_did_not_keep_go_with_the_first_write() {
    let folder = Folder::new("void");
    for backing in ["", "base"] {
        let path = folder.path(&format!("image{backing}"));
        image(&path);
        if !backing.is_empty() {
            std::fs::write(folder.path(backing), vec![3; 8 << 20]).expect("written");
            qemu("qemu-img", &["rebase", "-u", "-b", backing, "-F", "raw", text(&path)]);
        }
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[88..96].fill(0); // The bit that says that they are kept.
        std::fs::write(&path, &bytes).expect("written");
        let image = Rc::new(open_chain(&path, to_write()));
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let mut model = read_all(&device);
        assert_eq!(model[1 << 20..2 << 20], vec![5; 1 << 20]);
        write(&device, 4 << 20, &[6; 4096]);
        model[4 << 20..(4 << 20) + 4096].fill(6);
        block_on(image.close()).expect("closed");
        let said = String::from_utf8(run("qemu-img", &["info", text(&path)]).stdout).expect("in UTF-8");
        assert!(!said.contains("bitmap") && said.contains(backing), "{said}");
        let warned = String::from_utf8(run("qemu-img", &["check", text(&path)]).stderr).expect("in UTF-8");
        assert!(!warned.contains("bitmaps"), "they are gone: {warned}");
        assert!(!qemu_check(&path).0);
        let again = open_chain(&path, to_write());
        assert!(!again.header().void_bitmaps && again.header().backing.is_some() != backing.is_empty());
        assert!(read_all(&Device::new(ImageDevice::new(Rc::new(again)))) == model);
    }
}
