//! A place in a map that moves forward: one descent for all the neighbours in a leaf.

use super::pages::{Pages, Stop};
use super::tree::{Span, Tree};
use varve_format::pdata::node::{Key, Value};

/// A place in a map. It belongs to one attempt: a change of the map makes it stale.
pub struct Cursor {
    tree: Tree,
    /// The leaf in which it stands; none at the end.
    span: Span,
    index: usize,
}

impl Cursor {
    /// At the last entry at or before `key`, or else at the first one behind it.
    pub fn floor(tree: Tree, pages: &mut Pages, key: Key) -> Result<Cursor, Stop> {
        let mut cursor = Cursor { tree, span: Span::default(), index: 0 };
        cursor.descend(pages, key)?;
        match cursor.entries().partition_point(|entry| entry.0 <= key) {
            0 => match tree.floor(pages, key)? {
                Some((before, _)) => cursor.go_to(pages, before)?,
                None => cursor.skip_to_entry(pages)?,
            },
            count => cursor.index = count - 1,
        }
        Ok(cursor)
    }

    /// At the first entry at or after `key`.
    pub fn ceiling(tree: Tree, pages: &mut Pages, key: Key) -> Result<Cursor, Stop> {
        let mut cursor = Cursor { tree, span: Span::default(), index: 0 };
        cursor.go_to(pages, key)?;
        Ok(cursor)
    }

    /// The entry at which it stands; none behind the last.
    pub fn entry(&self) -> Option<(Key, Value)> {
        self.entries().get(self.index).copied()
    }

    /// On to the next entry.
    pub fn advance(&mut self, pages: &mut Pages) -> Result<(), Stop> {
        self.index += 1;
        self.skip_to_entry(pages)
    }

    /// To where [`Cursor::floor`] would be; cheap if that is in the same leaf.
    pub fn seek_floor(&mut self, pages: &mut Pages, key: Key) -> Result<(), Stop> {
        let begun = self.entries().first().is_some_and(|entry| entry.0 <= key);
        if begun && self.span.end.is_none_or(|end| key < end) {
            self.index = self.entries().partition_point(|entry| entry.0 <= key) - 1;
            assert!(self.entry().is_some_and(|entry| entry.0 <= key), "NODE2: keys rise");
            return Ok(());
        }
        *self = Cursor::floor(self.tree, pages, key)?;
        Ok(())
    }

    fn entries(&self) -> &[(Key, Value)] {
        self.span.entries()
    }

    fn go_to(&mut self, pages: &mut Pages, key: Key) -> Result<(), Stop> {
        self.descend(pages, key)?;
        self.index = self.entries().partition_point(|entry| entry.0 < key);
        self.skip_to_entry(pages)
    }

    /// To the beginning of the leaf where `key` is or would be.
    fn descend(&mut self, pages: &mut Pages, key: Key) -> Result<(), Stop> {
        self.span = self.tree.span(pages, key)?;
        self.index = 0;
        Ok(())
    }

    /// From the end of a leaf to the beginning of the next that has entries.
    fn skip_to_entry(&mut self, pages: &mut Pages) -> Result<(), Stop> {
        while self.index >= self.entries().len() {
            let Some(next) = self.span.end else {
                self.span = Span::default();
                return Ok(());
            };
            self.descend(pages, next)?;
            assert!(self.span.first >= next, "NODE4: leaves follow each other");
        }
        Ok(())
    }
}
