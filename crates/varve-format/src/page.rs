//! `docs/format.md`: every byte table of the project, and what stands around them.

use crate::layout::Layout;
use crate::{array, label, pdata, slot, store, thin};

/// Every byte table, in the order of the page.
const TABLES: &[&Layout] = &[
    &label::LAYOUT,
    &slot::LAYOUT,
    &store::SUPERBLOCK_LAYOUT,
    &store::BLOCK_LAYOUT,
    &store::PIECE_LAYOUT,
    &store::CREATE_LAYOUT,
    &store::FLAGS_LAYOUT,
    &store::RENAME_LAYOUT,
    &store::ROLLBACK_LAYOUT,
    &store::RESTORED_LAYOUT,
    &store::DROPPED_LAYOUT,
    &store::SNAPSHOT_LAYOUT,
    &store::BYTES_LAYOUT,
    &pdata::node::LAYOUT,
    &pdata::node::LEAF_ENTRY,
    &pdata::node::BRANCH_ENTRY,
    &pdata::space_page::LAYOUT,
    &pdata::exception::LAYOUT,
    &pdata::written::LAYOUT,
    &thin::SUPERBLOCK_LAYOUT,
    &thin::RECORD_LAYOUT,
    &thin::ENTRY_LAYOUT,
    &thin::MAPPING_LAYOUT,
    &thin::SHARE_LAYOUT,
    &thin::VOLUME_LAYOUT,
    &thin::ORIGIN_LAYOUT,
    &thin::BACKUP_LAYOUT,
    &array::SUPERBLOCK_LAYOUT,
    &array::MEMBER_LAYOUT,
    &array::RECORD_LAYOUT,
    &array::ENTRY_LAYOUT,
    &array::CHECKSUM_PAGE_LAYOUT,
];

/// Every byte table of the project, in the order in which `docs/format.md` shows them.
pub fn tables() -> &'static [&'static Layout] {
    TABLES
}

/// The text of `docs/format.md`.
pub fn render() -> String {
    let mut page = String::from(INTRODUCTION);
    for table in tables() {
        page.push('\n');
        page.push_str(&table.render());
    }
    page.push_str(TEXTS);
    page.push_str(JOBS);
    page
}

const JOBS: &str = concat!(
    "
## Volume group: jobs in its text

Work that goes on is a `[[job]]`, from version 5 on of every kind (a text of version 3 or 4 is read if no move, conversion or clearing goes on in \
it). `last_job` is the highest number that a job of the group has had.

| field | meaning |
|---|---|
| `id` | the number under which it is shown; no other job of the group has it |
| `subject` | what it works on, for people |
| `started` | when it was begun |
| `groups` | UUIDs of the groups that have a part of it, if there are several; the first one decides whether it goes on |
| `work.remove-snapshots` | `snapshots`: all of them go; by volume and store (or pool) their `numbers` there, and the `bytes` that they show |
| `work.rollback` | the `volume` gets what snapshot `number` of `store` shows, `bytes` of it; `mark`: of a thin volume, what it had before; \
`begun`: the volume shows that already |
| `work.flatten` | the volume or snapshot `number` of `pool` gets a copy of its origin |
| `work.flatten-image` | the `image` of the `volume` gets a copy of what lies below it |
| `work.commit-image` | the image below the `image` of the `volume` gets what that one holds |
| `work.scrub` | the members of the arrays of the `volume` or pool are compared, at no more than `rate` bytes a second, and made equal unless it is \
`check_only`; `position`: the rest of `array`, the volume's own or a store, begins at `offset`; `compared` bytes of it and `before` of those before it were \
compared, and this was found in all of them |
| `work.move` | the disk `from` is emptied to the disks `to`, or to any other ones, at no more than `rate` bytes a second; `step`: the run `old` of the \
volume or store `of` is being copied to `new`; of these the volume or store owns one, the valid one, and the job the other |
| `work.convert` | the `volume` or pool, and its stores, get another layout; `id`: what the arrays of it are called meanwhile; `rate` as before; \
`part`: by volume or store (`of`) the `layout` and `segments` that the job owns: the new ones, or the old ones once it is `switched` |
| `work.clear` | what others wrote to the extents of the `volume` or pool is cleared, by its extents; those of `from` on are not served yet |

What a job names may be gone, but for moves, conversions and clearings: then nothing is left to be done. A disk has one move at most, and a volume one \
conversion and one clearing; of other jobs there are at most 64, and they remove at most 8192 snapshots. One of each kind:

```toml
",
    include_str!("text/jobs.toml"),
    "```
"
);

const TEXTS: &str = "
## Thin pool: text

What `varve dump --store VG/POOL` prints and `varve restore --store` takes: one thing a line, words separated by spaces,
numbers decimal and in bytes, but for ids and dates (seconds since 1970). Restored and dumped again it is the same text.

| line | meaning |
|---|---|
| `varve-thin-pool 2` | the first line |
| `pool UUID block N slot N log N size N next N` | the second: block size, slot of a superblock, ring, size, the id that no \
volume has had yet |
| `volume ID NAME created N size N [snapshot-of ID] [of ID] [like ID] [read-only] [held] [base] [over ORIGIN N]` | a volume, \
or a snapshot of another one; `of`: cloned from; `like`: what is not said below is as in that one, which is above; \
`base`: others are backed by it; `over`: its origin (`volume ID`, `image ID` or `snapshot STORE NUMBER CREATED`) and \
how many bytes of that show |
| `map OFFSET BYTES PLACE` | bytes of the last volume lie there in the pool |
| `zero OFFSET BYTES` | written zeros, which lie nowhere |
| `hole OFFSET BYTES` | nothing, where the volume that it is like has something |

Lines of a volume rise and do not overlap. Data is not in the text: it lies where the text says. Volumes that are being
removed are left out.
";

const INTRODUCTION: &str = "\
# On-disk formats

Rendered from the layouts in `crates/varve-format` by `UPDATE_DOCS=1 cargo test -p varve-format`; a test fails when
this page and the code differ.

Numbers are little-endian, UUIDs stand in the byte order of RFC 9562, checksums are CRC32C (Castagnoli). Every block
carries its own address and generation under its checksum, so that a block that was written to the wrong place, or a
stale one, is refused. Reserved bytes are zero; a reader refuses anything else.

A physical volume holds, from its first byte on:

| from | to | what |
|---:|---:|---|
| 0 | 4 KiB | label |
| 4 KiB | 8 KiB | copy of the label |
| 64 KiB | 1 MiB | metadata ring: the last descriptions of the volume group, one slot each |
| 1 MiB | last MiB | data, in extents of the group's extent size |
| end - 1 MiB | end - 4 KiB | a second ring, for repairs, unless extents reach there |
| end - 4 KiB | end | a third copy of the label, with the second ring |

A slot lies at a multiple of 4 KiB in the ring, directly behind the one before it, or at the ring's start when there is
no room; it is never longer than a third of the ring, so that writing a new one never touches the newest. The
description itself is text (TOML); `crates/varve-format/src/text.rs` says what it may hold.

A volume, pool or exception store that is an array lies on members. A member is a device of its own: its metadata area, then the
areas at its place in each segment, in order. The text names them.

An exception store is a device of its own, in blocks of 4 KiB:

| blocks | what |
|---:|---|
| 0, 1 | superblock, two slots: to one first, then to the other |
| 2 + n x 32256 | space map of the blocks from here on, two places written in turn |
| all others | where they are needed: nodes of the two maps (preserved, written), the table of snapshots, records of the \
log, content |

The superblock leads to the roots of the maps, to the table and to the place of the next record of the log. What the log
says is newer than the maps and the table; a record is an entry block, with the preserved content as a rule behind it.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test is told by the environment to rewrite the page")]
    fn the_page_shows_the_layouts_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
        if std::env::var("UPDATE_DOCS").is_ok() {
            std::fs::write(path, render()).expect("docs/format.md can be written");
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == render(), "docs/format.md is stale: UPDATE_DOCS=1 cargo test -p varve-format");
    }
}
