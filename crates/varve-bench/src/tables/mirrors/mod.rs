//! Arrays: beside one raw member, beside themselves, and what they do beside requests.

pub(super) mod array_cases;
pub(super) mod array_files;
pub(super) mod array_ratios;
pub(crate) mod array_work;
pub(crate) mod arrays;
