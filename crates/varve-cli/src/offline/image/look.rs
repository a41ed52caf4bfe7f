//! `varve image info`, `check` and `map`: what an image is like, whether its tables agree, and where its bytes lie.

use super::super::disks::on_shard;
use super::chain::{device_of, open_shared, open_shared_chain};
use super::failure::failed;
use crate::answer::Answer;
use crate::grammar::Sharing;
use crate::table::Table;
use crate::units;
use serde::Serialize;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use varve_api::{Exit, Failure};
use varve_block::{IoError, StatusRun};
use varve_format::qcow2::{Bitmap, Compression};
use varve_image::{Format, Layer, Selected};
use varve_target::qcow2::{Image, Mapping, OpenError, Options, Report};

/// What an image is like.
#[derive(Serialize)]
struct Info {
    path: String,
    format: &'static str,
    virtual_bytes: u64,
    disk_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    qcow2: Option<Qcow2Info>,
}

#[derive(Serialize)]
struct Qcow2Info {
    version: u32,
    cluster_size: u64,
    refcount_bits: u32,
    compression: &'static str,
    extended_l2: bool,
    lazy_refcounts: bool,
    dirty: bool,
    corrupt: bool,
    backing: Option<String>,
    backing_format: Option<String>,
    snapshots: Vec<Snapshot>,
    bitmaps: Vec<BitmapInfo>,
}

#[derive(Serialize)]
struct BitmapInfo {
    name: String,
    granularity: u64,
    in_use: bool,
    auto: bool,
}

#[derive(Serialize)]
struct Snapshot {
    id: String,
    name: String,
    virtual_bytes: Option<u64>,
    created: u32,
}

impl BitmapInfo {
    fn of(bitmap: &Bitmap) -> Self {
        let Bitmap { granularity, in_use, auto, .. } = *bitmap;
        Self { name: bitmap.name.clone(), granularity, in_use, auto }
    }

    fn text(&self) -> String {
        let void = if self.in_use { ", void: it was being changed" } else { "" };
        format!("{} ({}{void})", self.name, units::size(self.granularity))
    }
}

impl Qcow2Info {
    fn of(image: &Image) -> Self {
        let header = image.header();
        let snapshots = image.snapshots().iter().map(|entry| Snapshot {
            id: entry.id.clone(),
            name: entry.name.clone(),
            virtual_bytes: entry.size,
            created: entry.seconds,
        });
        Self {
            version: header.version,
            cluster_size: header.cluster_size(),
            refcount_bits: header.refcount_width.bits(),
            compression: match header.compression {
                Compression::Deflate => "zlib",
                Compression::Zstd => "zstd",
            },
            extended_l2: header.extended_l2,
            lazy_refcounts: header.lazy_refcounts,
            dirty: header.dirty,
            corrupt: header.corrupt,
            backing: header.backing.as_ref().map(|backing| backing.name.clone()),
            backing_format: header.backing.as_ref().and_then(|backing| backing.format.clone()),
            snapshots: snapshots.collect(),
            bitmaps: image.bitmaps().iter().map(BitmapInfo::of).collect(),
        }
    }
}

/// Shows what an image is like. What is below it is not opened.
pub(super) fn info(selected: &Selected, sharing: Sharing) -> Result<Answer, Failure> {
    let path = selected.path.clone();
    let metadata = std::fs::metadata(&path);
    let disk_bytes = metadata.map_or(0, |metadata| metadata.blocks() * 512);
    let (virtual_bytes, qcow2) = match selected.format {
        Format::Raw => (open_shared(&path, sharing)?.length(), None),
        Format::Qcow2 => {
            let of = |image: Image| Ok((image.header().size, Some(Qcow2Info::of(&image))));
            with_image(path.clone(), sharing, async move |image| of(image))?
        }
    };
    let format = selected.format.name();
    let info = Info { path: path.display().to_string(), format, virtual_bytes, disk_bytes, qcow2 };
    Ok(Answer::new(&info, text(&info)))
}

fn text(info: &Info) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(lines, "{name:<16}{value}");
    };
    line("image", info.path.clone());
    line("format", info.format.to_owned());
    line("virtual size", format!("{} ({} bytes)", units::size(info.virtual_bytes), info.virtual_bytes));
    line("disk size", units::size(info.disk_bytes));
    let Some(qcow2) = &info.qcow2 else { return lines };
    let yes = |holds| if holds { "yes" } else { "no" }.to_owned();
    line("version", qcow2.version.to_string());
    line("cluster size", units::size(qcow2.cluster_size));
    line("refcount bits", qcow2.refcount_bits.to_string());
    line("compression", qcow2.compression.to_owned());
    line("extended L2", yes(qcow2.extended_l2));
    line("lazy refcounts", yes(qcow2.lazy_refcounts));
    line("dirty", yes(qcow2.dirty));
    line("corrupt", yes(qcow2.corrupt));
    if !qcow2.bitmaps.is_empty() {
        let bitmaps: Vec<String> = qcow2.bitmaps.iter().map(BitmapInfo::text).collect();
        line("bitmaps", bitmaps.join(", "));
    }
    if let Some(backing) = &qcow2.backing {
        let format = qcow2.backing_format.as_deref().unwrap_or("format not said");
        line("backing file", format!("{backing} ({format})"));
    }
    if qcow2.snapshots.is_empty() {
        return lines;
    }
    let mut table = Table::new(&["ID", "SNAPSHOT", "CREATED"]);
    for snapshot in &qcow2.snapshots {
        table.row(vec![snapshot.id.clone(), snapshot.name.clone(), units::date(snapshot.created.into())]);
    }
    lines + &table.render("")
}

/// Runs `look` with one image, without what is below it.
fn with_image<T: Send + 'static>(
    path: PathBuf,
    sharing: Sharing,
    look: impl AsyncFnOnce(Image) -> Result<T, IoError> + Send + 'static,
) -> Result<T, Failure> {
    let file = open_shared(&path, sharing)?;
    on_shard(async move |context| {
        let device = device_of(&context, &file)?;
        let options = Options { inspects: true, file_end: Some(file.length()), ..Options::default() };
        let looked = match Image::open(device, context.arena(), options).await {
            Ok(image) => look(image).await.map_err(OpenError::Io),
            Err(error) => Err(error),
        };
        looked.map_err(|error| failed(&path, &error))
    })?
}

/// What a check found.
#[derive(Serialize)]
struct Checked {
    corruptions: u64,
    leaked_clusters: u64,
    findings: Vec<String>,
    allocated_clusters: u64,
    compressed_clusters: u64,
    total_clusters: u64,
    end_offset: u64,
}

/// Checks an image. Exit 7 if its tables contradict each other; what is merely leaked is no damage.
pub(super) fn check(path: PathBuf, sharing: Sharing) -> Result<Answer, Failure> {
    let report = with_image(path, sharing, async |image: Image| image.check().await)?;
    let Report { corruptions, leaks, told, allocated_clusters, compressed_clusters, total_clusters, end } =
        report;
    let mut text = told.join("\n");
    if !told.is_empty() {
        text.push('\n');
    }
    let _ = match (corruptions, leaks) {
        (0, 0) => writeln!(text, "no errors were found"),
        (0, leaks) => writeln!(text, "{leaks} clusters are leaked: they cost space, and nothing else"),
        (errors, leaks) => writeln!(text, "{errors} errors were found, and {leaks} leaked clusters"),
    };
    let _ = writeln!(
        text,
        "{allocated_clusters} of {total_clusters} clusters are allocated, {compressed_clusters} of them compressed; the image ends at byte {end}"
    );
    let checked = Checked {
        corruptions,
        leaked_clusters: leaks,
        findings: told,
        allocated_clusters,
        compressed_clusters,
        total_clusters,
        end_offset: end,
    };
    let exit = if corruptions > 0 { Exit::NeedsRepair } else { Exit::Ok };
    Ok(Answer::new(&checked, text).exit(exit))
}

/// Where a run of bytes of an image is.
#[derive(Clone, Serialize)]
struct Run {
    start: u64,
    length: u64,
    /// How many images below the first it is; of zeros, where they are decided.
    depth: usize,
    data: bool,
    zero: bool,
    compressed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Shows where the bytes of an image lie.
pub(super) fn map(selected: Selected, sharing: Sharing) -> Result<Answer, Failure> {
    let path = selected.path.clone();
    let runs = on_shard(async move |context| {
        let layers = open_shared_chain(&context, selected, sharing).await?;
        runs(&layers).await.map_err(|error| failed(&path, &OpenError::Io(error)))
    })??;
    let mut table = Table::new(&["OFFSET>", "LENGTH>", "MAPPED TO>", "FILE"]);
    for run in runs.iter().filter(|run| run.data) {
        let offset = run.offset.map_or_else(|| "compressed".to_owned(), |offset| format!("{offset:#x}"));
        let path = run.path.clone().unwrap_or_default();
        table.row(vec![format!("{:#x}", run.start), format!("{:#x}", run.length), offset, path]);
    }
    Ok(Answer::new(&runs, table.render("nothing is allocated")))
}

async fn runs(layers: &[Layer]) -> Result<Vec<Run>, IoError> {
    let size = layers[0].device.shape().size;
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while at < size {
        let run = run_at(layers, at, size - at).await?;
        at += run.length;
        match runs.last_mut() {
            Some(last) if continues(last, &run) => last.length += run.length,
            _ => runs.push(run),
        }
    }
    Ok(runs)
}

fn continues(last: &Run, run: &Run) -> bool {
    let follows = match (last.offset, run.offset) {
        (Some(last_offset), Some(offset)) => last_offset + last.length == offset,
        (None, None) => !last.compressed,
        _ => false,
    };
    follows && (last.depth, last.data, last.zero) == (run.depth, run.data, run.zero)
}

/// Where byte `at` is: in the first layer that decides it.
async fn run_at(layers: &[Layer], at: u64, length: u64) -> Result<Run, IoError> {
    let mut run = Run {
        start: at,
        length,
        depth: layers.len() - 1,
        data: false,
        zero: true,
        compressed: false,
        offset: None,
        path: None,
    };
    for (depth, layer) in layers.iter().enumerate() {
        let size = layer.device.shape().size;
        run.depth = depth;
        if at >= size {
            return Ok(run);
        }
        run.length = run.length.min(size - at);
        let Some(image) = &layer.image else {
            return raw_run(layer, run).await;
        };
        let here = image.lookup(at, run.length).await?;
        run.length = here.length;
        match here.mapping {
            Mapping::Data { offset, .. } => return Ok(data(run, Some(offset), &layer.path)),
            Mapping::Compressed { .. } => return Ok(data(run, None, &layer.path)),
            Mapping::Zero => return Ok(run),
            Mapping::Unallocated => {}
        }
    }
    Ok(run)
}

async fn raw_run(layer: &Layer, mut run: Run) -> Result<Run, IoError> {
    let status = layer.device.status(varve_block::Extent::new(run.start, run.length)).await?;
    let first = status.first().copied();
    let allocation = varve_block::Allocation::Data;
    let StatusRun { length, allocation } = first.unwrap_or(StatusRun { length: run.length, allocation });
    run.length = run.length.min(length);
    let offset = run.start;
    Ok(if allocation == varve_block::Allocation::Data { data(run, Some(offset), &layer.path) } else { run })
}

fn data(mut run: Run, offset: Option<u64>, path: &Path) -> Run {
    (run.data, run.zero, run.compressed) = (true, false, offset.is_none());
    (run.offset, run.path) = (offset, Some(path.display().to_string()));
    run
}
