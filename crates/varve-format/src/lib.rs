//! Every on-disk layout: bytes in, structures out; no I/O.

pub mod array;
pub mod date;
pub mod epoch;
pub mod label;
pub mod layout;
pub mod name;
mod options;
pub mod page;
pub mod pdata;
pub mod qcow2;
pub mod ring;
pub mod signature;
pub mod slot;
pub mod store;
pub mod text;
pub mod thin;

pub use date::{format_date, format_exact_date, month_of, parse_date, parse_exact_date};
pub use label::{BLOCK_SIZE, LABEL_ADDRESSES, Label, LabelError, RING_BLOCKS_MIN};
pub use layout::{Field, Layout};
pub use name::{NAME_LENGTH_MAX, NameError, check_name};
pub use page::tables;
pub use ring::{Damaged, Placed, RingContent, place, text_length_max};
pub use signature::{HEAD_LENGTH, Signature, TAIL_LENGTH, find_image_format, find_signature};
pub use slot::{SEQUENCE_END, Slot, SlotError, SlotHeader, slot_length, version_of};
