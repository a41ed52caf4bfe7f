//! An image and all that is below it, opened to be read.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;
use varve_block::{Arena, Device};
use varve_format::qcow2::{BackingError, LAYERS_MAX};
pub use varve_format::text::ImageFormat as Format;
use varve_target::qcow2::{self, Image, ImageDevice, OpenError, Options, chain, read_header};

/// Which image, and how it is to be read.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub format: Format,
    /// The internal snapshot to show, by id or name.
    pub snapshot: Option<String>,
}

impl Selected {
    /// The image itself, not a snapshot in it.
    pub fn new(path: PathBuf, format: Format) -> Self {
        Self { path, format, snapshot: None }
    }
}

/// An image of a chain.
pub struct Layer {
    /// The file, by its canonical path.
    pub path: PathBuf,
    /// None of a raw image.
    pub image: Option<Rc<Image>>,
    /// The disk that the image holds; of the first layer with what is below it.
    pub device: Device,
}

/// Why a chain was not opened.
#[derive(Debug, Error)]
pub enum ChainError<E> {
    /// A file was not opened.
    #[error(transparent)]
    File(E),
    /// An image in a file was not opened.
    #[error("{path}: {error}")]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// The files lead to each other, or there are too many.
    #[error("{0}: the chain of backing files has no end")]
    Endless(PathBuf),
    /// What an image says of its backing file cannot be followed.
    #[error("{path}: {error}")]
    Backing {
        /// The file that says it.
        path: PathBuf,
        /// Why not.
        error: BackingError,
    },
}

/// Makes a device of a path, to read, whose file is not written meanwhile, and says how many bytes the file has.
pub type OpenFile<'a, E> = dyn FnMut(&Path) -> Result<(Device, u64), E> + 'a;

/// Opens `selected` and what is below it: the image itself first.
pub async fn open_chain<E>(
    open: &mut OpenFile<'_, E>,
    arena: &Arena,
    selected: Selected,
) -> Result<Vec<Layer>, ChainError<E>> {
    let mut files: Vec<(Selected, Device, u64)> = Vec::new();
    let mut next = Some(selected);
    while let Some(selected) = next {
        let real = std::fs::canonicalize(&selected.path).unwrap_or_else(|_| selected.path.clone());
        let again = files.iter().any(|(other, ..)| other.path == real);
        if again || files.len() == LAYERS_MAX {
            return Err(ChainError::Endless(selected.path));
        }
        if let Some((above, ..)) = files.last()
            && !selected.path.exists()
        {
            let (path, error) = (above.path.clone(), BackingError::Missing(selected.path));
            return Err(ChainError::Backing { path, error });
        }
        let (device, length) = open(&selected.path).map_err(ChainError::File)?;
        next = backing_of(arena, &selected, &device).await?;
        files.push((Selected { path: real, ..selected }, device, length));
    }
    let mut files = files.into_iter();
    let Some(top) = files.next() else { return Ok(Vec::new()) };
    let mut below = Vec::new();
    for file in files {
        below.push(layer(arena, file, None).await?);
    }
    let part = |layer: &Layer| match &layer.image {
        Some(image) => qcow2::Layer::Image(Rc::clone(image)),
        None => qcow2::Layer::Raw(layer.device.clone()),
    };
    let backing = chain(below.iter().map(part).collect(), arena);
    below.insert(0, layer(arena, top, backing).await?);
    Ok(below)
}

async fn layer<E>(
    arena: &Arena,
    (selected, device, length): (Selected, Device, u64),
    backing: Option<Device>,
) -> Result<Layer, ChainError<E>> {
    let Selected { path, format, snapshot } = selected;
    if format == Format::Raw {
        return Ok(Layer { path, image: None, device });
    }
    let options = Options { backing, snapshot, file_end: Some(length), ..Options::default() };
    match Image::open(device, arena.clone(), options).await {
        Ok(image) => {
            let image = Rc::new(image);
            let device = Device::new(ImageDevice::new(Rc::clone(&image)));
            Ok(Layer { path, image: Some(image), device })
        }
        Err(error) => Err(ChainError::Image { path, error }),
    }
}

/// What the image `selected`, which is in `device`, says is below it.
pub async fn backing_of<E>(
    arena: &Arena,
    selected: &Selected,
    device: &Device,
) -> Result<Option<Selected>, ChainError<E>> {
    let path = &selected.path;
    if selected.format == Format::Raw {
        return Ok(None);
    }
    let header = read_header(device.clone(), arena.clone()).await;
    let header = header.map_err(|error| ChainError::Image { path: path.clone(), error })?;
    let Some(backing) = header.backing else { return Ok(None) };
    match backing.file(path) {
        Ok((below, format)) => Ok(Some(Selected::new(below, format))),
        Err(error) => Err(ChainError::Backing { path: path.clone(), error }),
    }
}
