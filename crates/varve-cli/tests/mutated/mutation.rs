//! Changes of one field of one structure on a disk, with the checksum redone: metadata that contradicts itself.
//!
//! Which structures there are and where their fields lie is what `varve_format` says of its own layouts.

use rustix::fs::SeekFrom;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use uuid::Uuid;
use varve_format::{Field, Layout, Slot, SlotHeader, tables};

const BLOCK: usize = 4096;
/// Blocks of the longest structure that is looked for.
const BLOCKS_MAX: usize = 16;
/// What a structure begins with, and the title of its layout.
const STRUCTURES: [(&[u8], &str); 10] = [
    (b"VARVE\xffPV", "Label"),
    (b"VARVE\xffVG", "Metadata slot"),
    (b"VARVE\xffSS", "Exception store: superblock"),
    (b"VARVE\xffSL", "Exception store: entry block"),
    (b"VARVE\xffST", "Exception store: entry block"),
    (b"VARVE\xffTP", "Thin pool: superblock"),
    (b"VARVE\xffTK", "Thin pool: kept metadata"),
    (b"VREC", "Thin pool: record of the log"),
    (b"VNOD", "Map node"),
    (b"VSPC", "Space map page"),
];

/// Layouts of what describes a disk and its group.
const DESCRIPTIONS: [&str; 2] = ["Label", "Metadata slot"];

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }
}

/// What a disk holds that is not zero, block by block.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) size: u64,
    pub(crate) blocks: BTreeMap<u64, Vec<u8>>,
}

/// A structure on a disk.
#[derive(Clone, Debug)]
struct Found {
    address: u64,
    /// Bytes under its checksum.
    length: usize,
    kind: usize,
}

impl Image {
    /// All of a disk that is mostly a hole.
    pub(crate) fn read(disk: &File) -> io::Result<Self> {
        let mut image = Self { size: disk.metadata()?.len(), blocks: BTreeMap::new() };
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(disk, SeekFrom::Data(at)) {
            let hole = rustix::fs::seek(disk, SeekFrom::Hole(data))?;
            for start in (data..hole).step_by(BLOCK) {
                let mut block = vec![0; BLOCK];
                disk.read_exact_at(&mut block, start)?;
                if block.iter().any(|byte| *byte != 0) {
                    image.blocks.insert(start, block);
                }
            }
            at = hole;
        }
        Ok(image)
    }

    fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let zeros = vec![0; BLOCK];
        let starts = (address..address + length as u64).step_by(BLOCK);
        let mut bytes: Vec<u8> =
            starts.flat_map(|at| self.blocks.get(&at).unwrap_or(&zeros).clone()).collect();
        bytes.truncate(length);
        bytes
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        for (index, part) in bytes.chunks(BLOCK).enumerate() {
            let block = self.blocks.entry(address + (index * BLOCK) as u64).or_insert_with(|| vec![0; BLOCK]);
            block[..part.len()].copy_from_slice(part);
        }
    }

    /// Every structure with a sound checksum.
    fn structures(&self) -> Vec<Found> {
        let found = self.blocks.iter().filter_map(|(&address, block)| {
            let kind = STRUCTURES.iter().position(|(magic, _)| block.starts_with(magic))?;
            let length = self.length(address, kind)?;
            Some(Found { address, length, kind })
        });
        found.collect()
    }

    /// How many bytes the checksum of a structure covers; `None` if it is not sound.
    fn length(&self, address: u64, kind: usize) -> Option<usize> {
        let layout = layout(kind);
        let checksum = field(layout, "checksum");
        if STRUCTURES[kind].1 == "Metadata slot" {
            let header = SlotHeader::decode(&self.bytes(address, BLOCK), address).ok()?;
            return usize::try_from(header.length()).ok();
        }
        let block = self.bytes(address, BLOCK);
        if checksum.seals(&block) {
            return Some(checksum.end());
        }
        (1..=BLOCKS_MAX).map(|count| count * BLOCK).find(|&length| {
            let bytes = self.bytes(address, length);
            checksum.u32(&bytes) == checksum_without(&bytes, checksum)
        })
    }

    /// Changes what says whose disk it is and how it is divided, or two structures of what lies on it: they are
    /// mostly of different volumes, and so do not hide each other. What was changed.
    pub(crate) fn mutate(&mut self, chance: &mut Chance) -> String {
        if chance.below(4) == 0 {
            return self.mutate_one(chance, |title| DESCRIPTIONS.contains(&title));
        }
        let one = self.mutate_one(chance, |title| !DESCRIPTIONS.contains(&title));
        let other = self.mutate_one(chance, |title| !DESCRIPTIONS.contains(&title));
        format!("{one}; {other}")
    }

    fn mutate_one(&mut self, chance: &mut Chance, is_wanted: impl Fn(&str) -> bool) -> String {
        let all = self.structures();
        let mut kinds: Vec<usize> = all.iter().map(|found| found.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.retain(|kind| is_wanted(STRUCTURES[*kind].1));
        let kind = kinds[chance.below(kinds.len())];
        let found = self.choose(all, kind, chance);
        let layout = layout(kind);
        let mut bytes = self.bytes(found.address, found.length);
        let what = if STRUCTURES[kind].1 == "Metadata slot" {
            change_text(&mut bytes, found.address, chance)
        } else {
            let what = change(&mut bytes, layout, chance);
            seal(&mut bytes, field(layout, "checksum"));
            what
        };
        self.put(found.address, &bytes);
        // Of the label both copies are changed, or the sound one would count.
        if layout.title == "Label" && found.address == 0 {
            let mut copy = bytes.clone();
            field(layout, "address").put_u64(&mut copy, BLOCK as u64);
            seal(&mut copy, field(layout, "checksum"));
            self.put(BLOCK as u64, &copy);
        }
        format!("{} at {}: {what}", layout.title, found.address)
    }

    /// One of a kind; of what is written in turn mostly the newest, which counts.
    fn choose(&self, mut all: Vec<Found>, kind: usize, chance: &mut Chance) -> Found {
        all.retain(|found| found.kind == kind);
        let age = layout(kind).fields.iter().find(|field| match layout(kind).title {
            "Metadata slot" => field.name == "sequence",
            title => title.contains("superblock") && field.name == "generation",
        });
        if let Some(age) = age.filter(|_| chance.below(5) > 0) {
            all.sort_by_key(|found| age.u64(&self.bytes(found.address, BLOCK)));
            return all.swap_remove(all.len() - 1);
        }
        all.swap_remove(chance.below(all.len()))
    }
}

fn layout(kind: usize) -> &'static Layout {
    let title = STRUCTURES[kind].1;
    tables().iter().find(|layout| layout.title == title).expect("the title of a layout")
}

fn field(layout: &'static Layout, name: &str) -> &'static Field {
    layout.fields.iter().find(|field| field.name == name).expect("a field of that name")
}

/// CRC32C of all bytes, computed through a field behind them.
fn checksum_of(bytes: &[u8]) -> u32 {
    let behind = Field::new(bytes.len(), 4, "checksum", "");
    let mut sealed = [bytes, &[0; 4]].concat();
    behind.seal(&mut sealed);
    behind.u32(&sealed)
}

/// The checksum as if its own field were zero.
fn checksum_without(bytes: &[u8], field: &Field) -> u32 {
    let mut zeroed = bytes.to_vec();
    field.put_u32(&mut zeroed, 0);
    checksum_of(&zeroed)
}

/// Redoes the checksum: of all that is before it, or of all with itself as zero.
fn seal(bytes: &mut [u8], checksum: &Field) {
    if checksum.end() == bytes.len() {
        checksum.seal(bytes);
    } else {
        let value = checksum_without(bytes, checksum);
        checksum.put_u32(bytes, value);
    }
}

/// Changes a field of the head, or a number in what lies behind it.
fn change(bytes: &mut [u8], layout: &Layout, chance: &mut Chance) -> String {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let is_plain = |field: &&Field| {
        !["magic", "checksum", "address"].contains(&field.name) && !field.name.starts_with("reserved")
    };
    let plain: Vec<&Field> = layout.fields.iter().filter(is_plain).collect();
    let behind = layout.size..used.max(layout.size + 8).min(bytes.len());
    let has_entries = behind.len() > 8 && layout.size < BLOCK;
    let (name, start, size) = if plain.is_empty() || has_entries && chance.below(2) == 0 {
        let size = [1, 2, 4, 8, 8][chance.below(5)];
        let places = behind.len() / size;
        ("entry", behind.start + chance.below(places.max(1)) * size, size)
    } else {
        let field = plain[chance.below(plain.len())];
        let size = if field.size <= 8 { field.size } else { [1, 8][chance.below(2)] };
        let places = field.size.min(used.saturating_sub(field.offset).max(16)) / size;
        (field.name, field.offset + chance.below(places.max(1)) * size, size)
    };
    let end = (start + size).min(bytes.len());
    let mut number = [0; 8];
    number[..end - start].copy_from_slice(&bytes[start..end]);
    let old = u64::from_le_bytes(number);
    let other = chance.below(bytes.len() / 8) * 8;
    let new = match chance.below(12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old ^ (1 << chance.below(size * 8)),
        6 => old.wrapping_mul(2),
        7 => u64::from_le_bytes(bytes[other..other + 8].try_into().expect("eight bytes")),
        8 => chance.next(),
        9 => 1 << chance.below(size * 8),
        10 => old.wrapping_add(4096),
        _ => u64::try_from(chance.below(4096)).expect("small"),
    };
    bytes[start..end].copy_from_slice(&new.to_le_bytes()[..end - start]);
    format!("{name}, {size} bytes at {start}: {old:#x} is {new:#x}")
}

/// Changes a number, a word or a line of a group's description, and writes it as its next copy would be.
fn change_text(bytes: &mut Vec<u8>, address: u64, chance: &mut Chance) -> String {
    let Ok(mut slot) = Slot::decode(bytes, address) else { return "not decoded".to_owned() };
    let mut lines: Vec<String> = slot.text.lines().map(str::to_owned).collect();
    let at = chance.below(lines.len());
    let old = lines[at].clone();
    match chance.below(6) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, old.clone()),
        2 => {
            let other = chance.below(lines.len());
            lines.swap(at, other);
        }
        3 => lines[at] = Uuid::from_u64_pair(chance.next(), chance.next()).to_string(),
        _ => {
            // Numbers are what a description mostly consists of.
            let with_numbers: Vec<usize> = (0..lines.len())
                .filter(|line| lines[*line].bytes().any(|byte| byte.is_ascii_digit()))
                .collect();
            let line = with_numbers[chance.below(with_numbers.len())];
            return put_text(bytes, &mut slot, address, other_number(&mut lines, line, chance));
        }
    }
    put_text(bytes, &mut slot, address, (lines.join("\n") + "\n", format!("line {at} '{old}'")))
}

/// Another number in a line; the text, and what was changed.
fn other_number(lines: &mut [String], line: usize, chance: &mut Chance) -> (String, String) {
    let old = lines[line].clone();
    let starts: Vec<usize> = old
        .char_indices()
        .filter(|&(at, letter)| {
            letter.is_ascii_digit() && !old[..at].ends_with(|before: char| before.is_ascii_digit())
        })
        .map(|(at, _)| at)
        .collect();
    let start = starts[chance.below(starts.len())];
    let digits = old[start..].bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = old[start..start + digits].parse().unwrap_or(u64::MAX);
    let new = match chance.below(7) {
        0 => 0,
        1 => number.wrapping_add(1),
        2 => number.wrapping_sub(1),
        3 => u64::MAX,
        4 => u64::MAX / 2,
        5 => number.wrapping_mul(2),
        _ => chance.next() >> 40,
    };
    lines[line] = format!("{}{new}{}", &old[..start], &old[start + digits..]);
    (lines.join("\n") + "\n", format!("'{old}' is '{}'", lines[line]))
}

fn put_text(bytes: &mut Vec<u8>, slot: &mut Slot, address: u64, (text, what): (String, String)) -> String {
    slot.text = text;
    let mut encoded = slot.encode(address);
    // Where the text has become shorter, the rest of its old blocks stays.
    if encoded.len() < bytes.len() {
        encoded.resize(bytes.len(), 0);
    }
    *bytes = encoded;
    what
}
