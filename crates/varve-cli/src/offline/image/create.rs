//! `varve image create`: new qcow2 images.

use super::super::disks::on_shard;
use super::chain::{new_file, open_chain};
use super::failure::failed;
use super::target::{check_new, cut};
use crate::answer::Answer;
use crate::grammar::ImageCreateOptions;
use crate::units;
use serde::Serialize;
use varve_api::{Code, Failure, Plan};
use varve_format::qcow2::Backing;
use varve_image::{Format, Selected};
use varve_target::qcow2::{NewImage, create as create_image};
use varve_vg::size::parse_size;

/// A new image.
#[derive(Serialize)]
struct Created {
    path: String,
    size: u64,
}

/// Makes an image.
pub(super) fn create(options: &ImageCreateOptions) -> Result<Answer, Failure> {
    let size = options.size.as_deref().map(bytes).transpose()?;
    let (size, backing) = match (&options.backing, options.backing_format) {
        (Some(name), Some(format)) => {
            let format = Format::from(format);
            let backing = Backing { name: name.clone(), format: Some(format.name().to_owned()) };
            let named = backing.file(&options.file).map_err(|error| {
                let help = format!("--backing ./{name} if it is a file beside {}", options.file.display());
                Failure::new(Code::Usage, error.to_string()).help(help)
            });
            let below = Selected::new(named?.0, format);
            let bytes = on_shard(async move |context| {
                open_chain(&context, below).await.map(|layers| layers[0].device.shape().size)
            })??;
            (size.unwrap_or(bytes), Some(backing))
        }
        _ => (size.unwrap_or(0), None),
    };
    let cluster_size = bytes(&options.cluster_size)?;
    let new = NewImage { cluster_size, extended_l2: options.extended_l2, backing, ..NewImage::new(size) };
    let path = options.file.clone();
    let room = new.room().map_err(|error| failed(&path, &error))?;
    if options.change.dry_run {
        check_new(&path)?;
        return Ok(Answer::planned(&Plan::of_steps(vec![format!(
            "would make {}: qcow2, {}",
            path.display(),
            units::size(size)
        )])));
    }
    let file = new_file(&path, room)?;
    let made = on_shard({
        let path = path.clone();
        async move |context| {
            let made = create_image(context.disk(&file), context.arena(), &new).await;
            made.map_err(|error| failed(&path, &error))
        }
    })?;
    let end = made.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
    cut(&path, end)?;
    let text = format!("created {}: qcow2, {}", path.display(), units::size(size));
    Ok(Answer::new(&Created { path: path.display().to_string(), size }, text))
}

/// A size that was said.
pub(super) fn bytes(text: &str) -> Result<u64, Failure> {
    parse_size(text).map_err(|error| Failure::new(Code::BadSize, error.to_string()))
}
