//! Files as devices, and QEMU's programs.

use futures_executor::block_on;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use varve_block::{
    Access, Arena, BlockDevice, Buffer, Checked, Completion, Device, Durability, Extent, Io, IoError, Shape,
};
use varve_target::qcow2::{Image, Layer, Options, Report, chain, read_header, room};

/// A file; behind its end are zeros.
pub(crate) struct FileDevice {
    file: File,
    size: u64,
    access: Access,
}

impl FileDevice {
    pub(crate) fn open(path: &Path, size: u64, access: Access) -> Device {
        let write = access == Access::ReadWrite;
        let file = OpenOptions::new().read(true).write(write).create(write).truncate(false).open(path);
        Device::new(FileDevice { file: file.expect("opened"), size, access })
    }

    fn carry_out(&self, io: Io) -> std::io::Result<Buffer> {
        match io {
            Io::Read { offset, mut buffer } => {
                let mut done = 0;
                while done < buffer.len() {
                    match self.file.read_at(&mut buffer[done..], offset + done as u64)? {
                        0 => break,
                        count => done += count,
                    }
                }
                buffer[done..].fill(0);
                return Ok(buffer);
            }
            Io::Write { offset, data, .. } => self.file.write_all_at(&data, offset)?,
            Io::Zero { extent, .. } => {
                self.file
                    .write_all_at(&vec![0; usize::try_from(extent.length).expect("small")], extent.offset)?;
            }
            Io::Discard { .. } | Io::Flush => {}
        }
        Ok(Buffer::empty())
    }
}

impl BlockDevice for FileDevice {
    fn shape(&self) -> Shape {
        Shape { access: self.access, ..Shape::new(self.size.next_multiple_of(512), 512) }
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        Completion::ready(self.carry_out(io.into_io()).map_err(|_| IoError::Medium))
    }
}

/// A scratch folder, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("varve-qcow2-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn arena() -> Arena {
    thread_local! {
        static ARENA: Arena = Arena::heap(8 << 20);
    }
    ARENA.with(Arena::clone)
}

/// The file at `path`, and so large that the image in it has room.
pub(crate) fn file_of(path: &Path, access: Access) -> (Device, u64) {
    let length = std::fs::metadata(path).expect("there").len();
    let header =
        block_on(read_header(FileDevice::open(path, length, Access::ReadOnly), arena())).expect("a header");
    let size = if access == Access::ReadWrite { room(&header, length) } else { length };
    (FileDevice::open(path, size, access), length)
}

/// Opens an image, and all that is below it, as parts of a chain.
fn add_layers(layers: &mut Vec<Layer>, path: &Path, is_raw: bool) {
    if is_raw {
        let length = std::fs::metadata(path).expect("there").len();
        layers.push(Layer::Raw(FileDevice::open(path, length, Access::ReadOnly)));
        return;
    }
    let (file, _) = file_of(path, Access::ReadOnly);
    let image = block_on(Image::open(file, arena(), Options::default())).expect("an image");
    let backing = image.header().backing.clone();
    layers.push(Layer::Image(Rc::new(image)));
    if let Some(backing) = backing {
        add_layers(layers, &path.with_file_name(backing.name), backing.format.as_deref() == Some("raw"));
    }
}

/// Opens an image to read, with all that is below it.
pub(crate) fn open_chain(path: &Path, options: Options) -> Image {
    let (file, end) = file_of(path, options.access);
    open_over(file, path, Options { file_end: Some(end), ..options })
}

/// Opens the image at `path`, which is in `file`, with all that is below it.
pub(crate) fn open_over(file: Device, path: &Path, options: Options) -> Image {
    let header = block_on(read_header(file.clone(), arena())).expect("a header");
    let backing = header.backing.map(|backing| {
        let mut layers = Vec::new();
        add_layers(&mut layers, &path.with_file_name(backing.name), backing.format.as_deref() == Some("raw"));
        chain(layers, &arena()).expect("a layer")
    });
    block_on(Image::open(file, arena(), Options { backing, ..options })).expect("an image")
}

pub(crate) fn to_write() -> Options {
    Options { access: Access::ReadWrite, cache_bytes: 64 << 10, ..Options::default() }
}

pub(crate) fn read_all(device: &Device) -> Vec<u8> {
    let pieces = device.shape().extent().pieces(1 << 20);
    let read = |extent: Extent| {
        let buffer = arena().take(usize::try_from(extent.length).expect("small"));
        block_on(device.read(extent.offset, buffer)).expect("readable").to_vec()
    };
    pieces.flat_map(|(_, extent)| read(extent)).collect()
}

pub(crate) fn write(device: &Device, offset: u64, data: &[u8]) {
    block_on(device.write(offset, arena().copy(data), Durability::Volatile)).expect("written");
}

pub(crate) fn our_check(path: &Path) -> Report {
    block_on(open_chain(path, Options::default()).check()).expect("checked")
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; install qemu-utils"))
}

pub(crate) fn qemu(program: &str, arguments: &[&str]) {
    let output = run(program, arguments);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// What `qemu-img check` finds: corruptions and leaks.
pub(crate) fn qemu_check(path: &Path) -> (bool, bool, String) {
    let output = run("qemu-img", &["check", "-f", "qcow2", text(path)]);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => (false, false, said),
        Some(3) => (false, true, said),
        Some(2) => (true, said.contains("leaked"), said),
        other => panic!("qemu-img check: {other:?}: {said}"),
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("in UTF-8")
}
