//! qcow2 images: beside QEMU's servers on the same image, in chains, below thin volumes, and opened when they are large.

use super::image_files::{CLUSTER, size, sparse};
use crate::machine::memory_mib;
use crate::prelude::*;
use varve_block::Access;
use varve_target::qcow2::{Image, ImageDevice, NewImage, Options as ImageOptions, create};

/// One part of the measurement.
type Step = fn(&Options, &mut Part) -> Outcome<()>;

/// Measures all of it; each part is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let parent = options.directory(Medium::Memory);
    let description = format!(
        "files on {}, buffered; images of {} MiB with clusters of 64 KiB, written in full; {} rounds",
        file_system(parent),
        size(options) >> 20,
        options.runs()
    );
    let steps: [(&str, Step); 5] = [
        ("mappers", super::mappers::measure),
        ("chains", super::image_chains::measure),
        ("thin", super::image_thin::measure),
        ("opening", opening),
        ("peers", super::image_peers::measure),
    ];
    for (name, step) in steps.into_iter().filter(|(name, _)| options.wants(name)) {
        let mut part = Part::new("images", "memory", description.as_str());
        step(options, &mut part).of(name)?;
        part.tell();
        sheet.keep(&part)?;
    }
    Ok(())
}

/// An image of 1 TiB with 10 GiB of clusters at random places, of which each has a block of data.
fn opening(options: &Options, part: &mut Part) -> Outcome<()> {
    let virtual_size: u64 = 1 << 40;
    let clusters: u64 = if options.is_quick() { 1000 } else { (10 << 30) / CLUSTER };
    let place = Place::new(options.directory(Medium::Memory), 2 << 30)?;
    let room = NewImage::new(virtual_size).room()?;
    let file = sparse(&place.path().join("large"), room)?;
    let shard = Shard::start()?;
    let made = Arc::clone(&file);
    let outcome = shard.run(async move |context: ShardContext| {
        let (disk, arena) = (context.disk(&made), context.arena());
        let failed = |error: varve_target::qcow2::OpenError| error.to_string();
        let end = create(disk.clone(), arena.clone(), &NewImage::new(virtual_size)).await.map_err(failed)?;
        let options =
            ImageOptions { access: Access::ReadWrite, file_end: Some(end), ..ImageOptions::default() };
        let image = Rc::new(Image::open(disk, arena.clone(), options).await.map_err(failed)?);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let data = arena.take_zeroed(4096).freeze();
        let mut noise = Noise(3);
        for _ in 0..clusters {
            let at = noise.next() % (virtual_size / CLUSTER) * CLUSTER;
            device.write(at, data.clone(), Durability::Volatile).await?;
        }
        image.close().await.map_err(Failed::from)
    });
    outcome?;
    for _ in 0..options.runs() {
        let file = Arc::clone(&file);
        let opened = shard.run(async move |context: ShardContext| {
            let (disk, before) = (context.disk(&file), memory_mib("VmRSS"));
            let watch = Watch::start();
            let options = ImageOptions { access: Access::ReadWrite, ..ImageOptions::default() };
            let image = Image::open(disk, context.arena(), options).await;
            let (ms, after) = (watch.seconds() * 1e3, memory_mib("VmRSS"));
            image.map(|_| (ms, (after - before).max(0.0))).map_err(Failed::from)
        });
        let (ms, mib) = opened?;
        let what = "an image of 1 TiB with 10 GiB at random places";
        part.record(format!("opening {what} to write"), "ms", Goal::AtMost(50.0), ms);
        part.record(format!("memory that {what} takes when opened"), "MiB", Goal::AtMost(32.0), mib);
    }
    Ok(())
}
