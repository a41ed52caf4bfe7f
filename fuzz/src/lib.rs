//! What the fuzz targets share: making a damaged block look whole, so that its content is looked at too.

pub mod machine;

use varve_format::{Field, Layout};

/// The field of this name.
pub fn field(layout: &Layout, name: &str) -> Field {
    *layout.fields.iter().find(|field| field.name == name).expect("the layout has such a field")
}

/// A block of the layout's size that begins with `data`; the rest is zeros.
pub fn block(layout: &Layout, data: &[u8]) -> Vec<u8> {
    let mut block = data[..data.len().min(layout.size)].to_vec();
    block.resize(layout.size, 0);
    block
}

/// Writes the checksum of everything before it, which is where these layouts have it.
pub fn seal(layout: &Layout, block: &mut [u8]) {
    let checksum = field(layout, "checksum");
    let sum = crc32c::crc32c(&block[..checksum.offset]);
    checksum.put_u32(block, sum);
}

/// Writes the checksum of the whole block with the checksum itself zero.
pub fn seal_whole(layout: &Layout, block: &mut [u8]) {
    let checksum = field(layout, "checksum");
    checksum.put_u32(block, 0);
    let sum = crc32c::crc32c(block);
    checksum.put_u32(block, sum);
}
