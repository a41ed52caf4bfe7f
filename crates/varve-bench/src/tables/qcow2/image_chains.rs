//! Chains of qcow2 images: random reads of many overlays beside those of one image, round by round.

use super::image_files::{CLUSTER, files_of};
use crate::prelude::*;
use varve_block::Access;
use varve_sim::{Direction, Load, Order, Random, measure as run};
use varve_target::qcow2::{
    Image, ImageDevice, Layer, NewImage, Options as ImageOptions, chain as chain_of, create,
};

/// Bytes of the disk of a chain.
const SIZE: u64 = 64 * MIB;
/// Random reads of a long chain over those of one image, at least.
const GOAL: Goal = Goal::AtLeast(0.9);

/// Reads of chains of overlays, of which each has its share of the clusters.
pub(in crate::tables) fn measure(options: &Options, part: &mut Part) -> Outcome<()> {
    let place = Place::new(options.directory(Medium::Memory), 4 * SIZE)?;
    let depths: &[usize] = if options.is_quick() { &[1, 30] } else { &[1, 30, 300] };
    let shard = Shard::start()?;
    let files = |depth: &usize| files_of(place.path(), &format!("chain{depth}"), *depth, SIZE);
    let chains = depths.iter().map(files).collect::<Result<Vec<_>, _>>()?;
    let rounds = options.runs();
    let measured = shard.run(async move |context: ShardContext| {
        let arena = context.arena();
        let mut devices = Vec::new();
        for files in &chains {
            fill(&context, files, SIZE).await?;
            devices.push(open(&context, files, &arena).await?);
        }
        let mut speeds = Vec::new();
        // In the first round tables are read.
        for round in 0..=rounds {
            let mut of_round = Vec::new();
            for device in &devices {
                of_round.push(reads(&context, device).await?);
            }
            if round > 0 {
                speeds.push(of_round);
            }
        }
        Ok::<_, Failed>(speeds)
    });
    for round in measured? {
        for (depth, speed) in depths.iter().zip(&round) {
            let name = format!("random reads of 4 KiB QD8 of a chain of {depth}");
            part.note(&name, "MiB/s", speed / MIB as f64);
            if *depth > 1 {
                let name = format!("{name}, over those of one image");
                part.record(&name, "x", GOAL, speed / round[0]);
            }
        }
    }
    Ok(())
}

/// Makes images in `files`, each over the last one, of which each has its share of the clusters of a disk of `size` bytes.
pub(in crate::tables) async fn fill(
    context: &ShardContext,
    files: &[(PathBuf, Arc<DiskFile>)],
    size: u64,
) -> Outcome<()> {
    let arena = context.arena();
    let mut clusters: Vec<u64> = (0..size / CLUSTER).collect();
    Noise(1).shuffle(&mut clusters);
    let data = arena.take_zeroed(CLUSTER as usize).freeze();
    let share = clusters.len().div_ceil(files.len());
    for (layer, (_, file)) in files.iter().enumerate() {
        let disk = context.disk(file);
        let mut new = NewImage::new(size);
        if layer > 0 {
            let below = files[layer - 1].0.file_name().unwrap_or_default();
            let (name, format) = (below.to_string_lossy().into_owned(), Some("qcow2".to_owned()));
            new.backing = Some(varve_format::qcow2::Backing { name, format });
        }
        create(disk.clone(), arena.clone(), &new).await?;
        let options = ImageOptions { access: Access::ReadWrite, ..ImageOptions::default() };
        let image = Image::open(disk, arena.clone(), options).await?;
        let image = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        // Whole clusters are written: what is below is not read.
        for cluster in clusters.iter().skip(layer * share).take(share) {
            device.write(cluster * CLUSTER, data.clone(), Durability::Volatile).await?;
        }
        image.close().await?;
    }
    Ok(())
}

/// The uppermost of the images in `files`, over the others, to be read.
async fn open(context: &ShardContext, files: &[(PathBuf, Arc<DiskFile>)], arena: &Arena) -> Outcome<Device> {
    let (top, others) = files.split_last().ok_or("a chain has an image")?;
    let mut below = Vec::new();
    for (_, file) in others.iter().rev() {
        let image = Image::open(context.disk(file), arena.clone(), ImageOptions::default()).await;
        below.push(Layer::Image(Rc::new(image?)));
    }
    let options = ImageOptions { backing: chain_of(below, arena), ..ImageOptions::default() };
    let image = Image::open(context.disk(&top.1), arena.clone(), options).await;
    Ok(Device::new(ImageDevice::new(Rc::new(image?))))
}

/// Bytes a second of random reads.
async fn reads(context: &ShardContext, device: &Device) -> Outcome<f64> {
    let (direction, order) = (Direction::Read, Order::Random { unit: 4 * KIB });
    let load = Load { direction, order, request_bytes: 4 * KIB, depth: 8, count: SIZE / (4 * KIB) };
    let measured = run(device, &context.clock(), &context.arena(), &load, &mut Random::new(7)).await;
    Ok(measured?.bytes_per_second())
}
