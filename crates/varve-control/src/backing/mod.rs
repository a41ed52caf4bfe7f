//! What is below volumes beside disks: images, their backing images, and mappers.

pub(super) mod image_volumes;
pub(super) mod images;
pub(super) mod layers;
pub(super) mod left_images;
pub(super) mod mappers;
pub(super) mod read_files;
