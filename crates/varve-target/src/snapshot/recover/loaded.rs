//! A store that was read.

use super::super::LogPosition;
use super::super::contents::Contents;
use super::super::map::Map;
use super::super::{StoreError, index};
use crate::pdata::{self};
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::Extent;
use varve_block::{Arena, Device};
use varve_format::store::PART_SIZE;
use varve_format::store::Superblock;

/// A store that was read and not written.
pub(in crate::snapshot) struct Loaded {
    pub superblock: Superblock,
    /// PAIR4: the addresses of the slots that hold it.
    pub held: Vec<u64>,
    pub contents: RefCell<Contents>,
    pub blocks: Rc<pdata::Map>,
    pub map: Map,
    /// Blocks of the table.
    pub table: Vec<Extent>,
    pub log: LogPosition,
    /// Entries of the table and of the log.
    pub entries: u64,
    /// Whether nodes may be written where they will stay, when many are dirty.
    pub(super) write_back: bool,
}

/// A block of the store.
pub(super) async fn read_block(
    store: &Device,
    arena: &Arena,
    address: u64,
) -> Result<varve_block::Buffer, StoreError> {
    if address.checked_add(PART_SIZE).is_none_or(|end| end > store.shape().size) {
        return Err(StoreError::Corrupt("a block lies beyond the end of the exception store"));
    }
    Ok(store.read(address, arena.take(index(PART_SIZE))).await?)
}
