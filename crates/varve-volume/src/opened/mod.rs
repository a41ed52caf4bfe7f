//! What volumes and pools have open: stores, arrays, images and mappers, and the memory that they have for metadata.

pub(super) mod arrays;
pub(super) mod children;
pub mod growth;
pub mod images;
pub(super) mod mapper_link;
pub mod mappers;
pub mod metadata;
pub mod open_array;
pub(super) mod open_images;
pub(super) mod open_mapper;
pub mod open_pool;
pub mod open_store;
pub mod pool_serving;
pub mod quota;
