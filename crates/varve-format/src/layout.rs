//! What a byte table is: named fields that tile a block, read and written through the table itself.
//!
//! A format file declares its fields as constants, collects them in a [`Layout`] and encodes and decodes through
//! the same constants, so that `docs/format.md`, which is rendered from the layouts, cannot differ from the code.
//!
//! Invariant LAYOUT1: the fields of a layout tile `0..size` in order, without gap or overlap; asserted at compile time
//! by [`Layout::new`].

use std::fmt::Write;
use uuid::Uuid;
use varve_block::is_zero;

/// One field of an on-disk structure. Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// First byte, counted from the start of the structure.
    pub offset: usize,
    /// Number of bytes.
    pub size: usize,
    /// Its name.
    pub name: &'static str,
    /// What it means, in words.
    pub meaning: &'static str,
}

impl Field {
    /// A field of `size` bytes at `offset`.
    pub const fn new(offset: usize, size: usize, name: &'static str, meaning: &'static str) -> Self {
        Self { offset, size, name, meaning }
    }

    /// The first byte after the field.
    pub const fn end(&self) -> usize {
        self.offset + self.size
    }

    /// The field's bytes in `block`.
    pub fn bytes<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.offset..self.end()]
    }

    /// Writes the field's bytes; `value` is exactly as long as the field.
    pub fn put(&self, block: &mut [u8], value: &[u8]) {
        block[self.offset..self.end()].copy_from_slice(value);
    }

    /// The field as a number of 4 bytes.
    pub fn u32(&self, block: &[u8]) -> u32 {
        u32::from_le_bytes(self.array(block))
    }

    /// Writes a number of 4 bytes.
    pub fn put_u32(&self, block: &mut [u8], value: u32) {
        self.put(block, &value.to_le_bytes());
    }

    /// The field as a number of 8 bytes.
    pub fn u64(&self, block: &[u8]) -> u64 {
        u64::from_le_bytes(self.array(block))
    }

    /// Writes a number of 8 bytes.
    pub fn put_u64(&self, block: &mut [u8], value: u64) {
        self.put(block, &value.to_le_bytes());
    }

    /// The field as a UUID, in the byte order of RFC 9562.
    pub fn uuid(&self, block: &[u8]) -> Uuid {
        Uuid::from_bytes(self.array(block))
    }

    /// Writes a UUID.
    pub fn put_uuid(&self, block: &mut [u8], value: Uuid) {
        self.put(block, value.as_bytes());
    }

    /// Whether every byte of the field is zero, as reserved bytes must be.
    pub fn is_zero(&self, block: &[u8]) -> bool {
        is_zero(self.bytes(block))
    }

    /// Writes the CRC32C of all bytes before this field into it.
    pub fn seal(&self, block: &mut [u8]) {
        let checksum = crc32c::crc32c(&block[..self.offset]);
        self.put_u32(block, checksum);
    }

    /// Whether this field holds the CRC32C of all bytes before it.
    pub fn seals(&self, block: &[u8]) -> bool {
        self.u32(block) == crc32c::crc32c(&block[..self.offset])
    }

    fn array<const N: usize>(&self, block: &[u8]) -> [u8; N] {
        assert_eq!(self.size, N, "the field {} is read with its own width", self.name);
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(block));
        array
    }
}

/// The byte table of one on-disk structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The structure's name, as a heading.
    pub title: &'static str,
    /// What it is for, and where it is.
    pub purpose: &'static str,
    /// Bytes that the fields cover.
    pub size: usize,
    /// The fields in order.
    pub fields: &'static [Field],
}

impl Layout {
    /// A layout; does not compile as a constant when LAYOUT1 does not hold.
    pub const fn new(
        title: &'static str,
        purpose: &'static str,
        size: usize,
        fields: &'static [Field],
    ) -> Self {
        let mut at = 0;
        let mut index = 0;
        while index < fields.len() {
            assert!(fields[index].offset == at, "LAYOUT1: a field starts where the one before it ends");
            at = fields[index].end();
            index += 1;
        }
        assert!(at == size, "LAYOUT1: the fields end where the structure ends");
        Self { title, purpose, size, fields }
    }

    /// The table as Markdown.
    pub fn render(&self) -> String {
        let mut page = format!("## {}\n\n{}\n\n", self.title, self.purpose);
        page.push_str("| offset | size | field | meaning |\n|---:|---:|---|---|\n");
        for field in self.fields {
            let Field { offset, size, name, meaning } = field;
            writeln!(page, "| {offset} | {size} | `{name}` | {meaning} |")
                .expect("a string can be written to");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "LAYOUT1: a field starts")]
    fn overlapping_fields_are_refused() {
        const FIELDS: &[Field] = &[Field::new(0, 8, "one", ""), Field::new(4, 8, "two", "")];
        let _ = Layout::new("", "", 12, FIELDS);
    }

    #[test]
    #[should_panic(expected = "LAYOUT1: the fields end")]
    fn a_gap_at_the_end_is_refused() {
        const FIELDS: &[Field] = &[Field::new(0, 8, "one", "")];
        let _ = Layout::new("", "", 12, FIELDS);
    }
}
