//! Disks that end within a cluster, a subcluster or a block of 4 KiB: what is in the last sectors is written, zeroed and discarded
//! as anywhere else.

use crate::qcow2::files::{Folder, open_chain, our_check, qemu, qemu_check, read_all, text, to_write, write};
use futures_executor::block_on;
use std::rc::Rc;
use varve_block::{Device, Extent, ZeroOptions};
use varve_sim::Random;
use varve_target::qcow2::ImageDevice;

/// One history of an image of `size` bytes: all requests lie in its last 80 KiB, half of them in its last sectors.
fn history(folder: &Folder, options: &str, size: u64, random: &mut Random) {
    let path = folder.path("image");
    let _ = std::fs::remove_file(&path);
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, text(&path), &size.to_string()]);
    let bytes = |number: u64| usize::try_from(number).expect("small");
    let mut image = open_chain(&path, to_write());
    let mut model = vec![0; bytes(size)];
    for round in 0..3 {
        let open = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&open)));
        let sectors = device.shape().size / 512;
        for _ in 0..30 {
            let reach = *random.pick(&[3, 160]);
            let first = sectors - random.between(1, reach + 1);
            let last = if random.chance(1, 2) { sectors } else { random.between(first + 1, sectors + 1) };
            let extent = Extent::between(first * 512, last * 512);
            let part = bytes(extent.offset)..bytes(extent.end());
            let unmap = random.chance(1, 2);
            match random.below(3) {
                0 => {
                    let value = u8::try_from(random.between(1, 255)).expect("a byte");
                    write(&device, extent.offset, &vec![value; bytes(extent.length)]);
                    model[part].fill(value);
                }
                1 => {
                    let options = ZeroOptions { unmap, ..ZeroOptions::default() };
                    block_on(device.zero(extent, options)).map(drop).expect("zeroed");
                    model[part].fill(0);
                }
                _ => {
                    block_on(device.discard(extent)).map(drop).expect("discarded");
                    let now = read_all(&device);
                    for at in part {
                        assert!(now[at] == model[at] || now[at] == 0, "{options}, {size} bytes: byte {at}");
                        model[at] = now[at];
                    }
                }
            }
            assert!(read_all(&device) == model, "{options}, {size} bytes: {extent:?}");
        }
        drop(device);
        image = Rc::into_inner(open).expect("nothing else has it open");
        let grown = image.size() + 512 * *random.pick(&[1, 7, 150]);
        if round < 2 {
            block_on(image.grow(grown)).expect("it grows");
            model.resize(bytes(grown), 0);
        }
    }
    block_on(image.close()).expect("closed");
    let end = block_on(image.end()).expect("known");
    std::fs::OpenOptions::new().write(true).open(&path).expect("there").set_len(end).expect("cut");
    drop(image);
    let (report, (corrupt, leaked, said)) = (our_check(&path), qemu_check(&path));
    assert!(!corrupt && !leaked && report.corruptions == 0, "{options}, {size} bytes: {said} {report:?}");
}

#[test]
fn the_last_sectors_of_disks_of_any_size_are_changed_as_all_others() {
    let folder = Folder::new("odd");
    let kinds = [
        "cluster_size=64k",
        "cluster_size=4k",
        "extended_l2=on,cluster_size=64k",
        "extended_l2=on,cluster_size=16k",
        "extended_l2=on,cluster_size=2M",
        "compat=0.10",
    ];
    for (seed, options) in (1..).zip(kinds) {
        let mut random = Random::new(seed);
        for beyond in [512, 3 * 512, 4096 + 512, 60 * 1024 + 512] {
            history(&folder, options, (1 << 20) + beyond, &mut random);
        }
    }
}
