//! Signatures of everything else that may live on a disk; used only to refuse such a disk, never to open it.
//!
//! A signature is a magic number at a place that the format fixes, counted from the disk's start ([`HEAD`]) or given
//! by a rule of its own. Sources: the public format descriptions, and what `blkid` and `wipefs` document.

use varve_block::{KIB, MIB, align_down};

/// Bytes from the disk's start that [`find_signature`] wants to see.
pub const HEAD_LENGTH: u64 = MIB;
/// Bytes at the disk's end that [`find_signature`] wants to see.
pub const TAIL_LENGTH: u64 = MIB;

/// What was found on a disk, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is, as shown to users.
    pub name: &'static str,
    /// First byte of the magic number on the disk.
    pub offset: u64,
}

/// A magic number at a fixed place.
struct Magic {
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn magic(name: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    Magic { name, offset, bytes }
}

/// From the specific to the general: a partition table is looked for last, because boot sectors of file systems look
/// like one.
const HEAD: &[Magic] = &[
    magic("LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    magic("XFS file system", 0, b"XFSB"),
    magic("qcow2 disk image", 0, b"QFI\xfb"),
    magic("VMDK disk image", 0, b"KDMV"),
    magic("VHDX disk image", 0, b"vhdxfile"),
    magic("VHD disk image", 0, b"conectix"),
    magic("QED disk image", 0, b"QED\0"),
    magic("Parallels disk image", 0, b"WithoutFreeSpace"),
    magic("Parallels disk image", 0, b"WithouFreSpacExt"),
    magic("VMDK disk image", 0, b"# Disk DescriptorFile"),
    magic("VDI disk image", 64, b"\x7f\x10\xda\xbe"),
    magic("squashfs file system", 0, b"hsqs"),
    magic("Ceph BlueStore device", 0, b"bluestore block device"),
    magic("APFS container", 32, b"NXSB"),
    magic("NTFS file system", 3, b"NTFS    "),
    magic("exFAT file system", 3, b"EXFAT   "),
    magic("FAT file system", 54, b"FAT12   "),
    magic("FAT file system", 54, b"FAT16   "),
    magic("FAT file system", 82, b"FAT32   "),
    magic("LVM2 physical volume", 0, b"LABELONE"),
    magic("LVM2 physical volume", 512, b"LABELONE"),
    magic("LVM2 physical volume", 1024, b"LABELONE"),
    magic("LVM2 physical volume", 1536, b"LABELONE"),
    magic("Stratis pool member", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("ext2, ext3 or ext4 file system", KIB + 56, b"\x53\xef"),
    magic("f2fs file system", KIB, b"\x10\x20\xf5\xf2"),
    magic("EROFS file system", KIB, b"\xe2\xe1\xf5\xe0"),
    magic("HFS+ file system", KIB, b"H+\x00\x04"),
    magic(
        "bcachefs file system",
        4 * KIB + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    magic("bcache device", 4 * KIB + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    magic("md RAID member", 0, b"\xfc\x4e\x2b\xa9"),
    magic("md RAID member", 4 * KIB, b"\xfc\x4e\x2b\xa9"),
    magic("swap space", 4 * KIB - 10, b"SWAPSPACE2"),
    magic("swap space", 8 * KIB - 10, b"SWAPSPACE2"),
    magic("swap space", 16 * KIB - 10, b"SWAPSPACE2"),
    magic("swap space", 64 * KIB - 10, b"SWAPSPACE2"),
    magic("JFS file system", 32 * KIB, b"JFS1"),
    magic("ISO 9660 file system", 32 * KIB + 1, b"CD001"),
    magic("btrfs file system", 64 * KIB + 64, b"_BHRfS_M"),
    magic("ReiserFS file system", 64 * KIB + 52, b"ReIsEr"),
    magic("GPT partition table", 512, b"EFI PART"),
    magic("GPT partition table", 4096, b"EFI PART"),
    magic("MBR partition table or boot sector", 510, b"\x55\xaa"),
];

/// What a disk of `size` bytes holds that is not Varve's, if anything is recognised.
///
/// `head` is its first [`HEAD_LENGTH`] bytes and `tail` its last [`TAIL_LENGTH`]; all of it if it is shorter.
pub fn find_signature(head: &[u8], tail: &[u8], size: u64) -> Option<Signature> {
    let disk = Ends { head, tail, size };
    let fixed = HEAD.iter().find(|magic| disk.holds(magic.offset, magic.bytes));
    let fixed = fixed.map(|magic| Signature { name: magic.name, offset: magic.offset });
    fixed.or_else(|| disk.find_zfs()).or_else(|| disk.find_at_the_end())
}

/// What a file says at its start that is a disk image, but not a raw one; `head` is at most [`HEAD_LENGTH`] bytes of it.
pub fn find_image_format(head: &[u8]) -> Option<&'static str> {
    let disk = Ends { head, tail: &[], size: head.len() as u64 };
    let is_found =
        |magic: &&Magic| magic.name.ends_with("disk image") && disk.holds(magic.offset, magic.bytes);
    HEAD.iter().find(is_found).map(|magic| magic.name)
}

/// The two ends of a disk.
struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    size: u64,
}

impl Ends<'_> {
    /// Whether `bytes` lie at `offset`, as far as that can be seen.
    fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        let slice = |part: &[u8], offset: u64| {
            let start = usize::try_from(offset).ok()?;
            Some(part.get(start..start.checked_add(bytes.len())?)? == bytes)
        };
        let tail_start = self.size.saturating_sub(self.tail.len() as u64);
        let in_tail = || slice(self.tail, offset.checked_sub(tail_start)?);
        slice(self.head, offset).or_else(in_tail).unwrap_or(false)
    }

    /// A ZFS label is 256 KiB, two at either end; its second half is a ring of uberblocks of 1 KiB or more, each with
    /// the magic number 0x00bab10c in the byte order of the machine that wrote it.
    fn find_zfs(&self) -> Option<Signature> {
        const LABEL: u64 = 256 * KIB;
        let end = align_down(self.size, LABEL);
        let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
        let slots = labels
            .into_iter()
            .flatten()
            .flat_map(|label| (0..LABEL / 2 / KIB).map(move |index| label + LABEL / 2 + index * KIB));
        let little = |offset| self.holds(offset, &0x00ba_b10c_u64.to_le_bytes());
        let big = |offset| self.holds(offset, &0x00ba_b10c_u64.to_be_bytes());
        let offset = slots.into_iter().find(|offset| little(*offset) || big(*offset))?;
        Some(Signature { name: "ZFS pool member", offset })
    }

    /// Formats that sign the last blocks of a disk.
    fn find_at_the_end(&self) -> Option<Signature> {
        const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
        let sectors = self.size / 512;
        let candidates = [
            ("GPT partition table (backup)", self.size.checked_sub(512), &b"EFI PART"[..]),
            ("GPT partition table (backup)", self.size.checked_sub(4096), b"EFI PART"),
            ("md RAID member", align_down(self.size, 64 * KIB).checked_sub(64 * KIB), MD),
            ("md RAID member", sectors.checked_sub(16).map(|sector| align_down(sector, 8) * 512), MD),
            ("VHD disk image", self.size.checked_sub(512), b"conectix"),
        ];
        candidates.into_iter().find_map(|(name, offset, bytes)| {
            let offset = offset?;
            self.holds(offset, bytes).then_some(Signature { name, offset })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 8 * MIB + 4096 * 3;

    /// Looks at a disk of zeros with `bytes` at `offset`.
    fn look(offset: u64, bytes: &[u8]) -> Option<Signature> {
        let mut disk = vec![0; SIZE as usize];
        disk[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        let tail = disk.len() - TAIL_LENGTH as usize;
        find_signature(&disk[..HEAD_LENGTH as usize], &disk[tail..], SIZE)
    }

    #[test]
    fn an_empty_disk_and_a_label_of_ours_have_no_foreign_signature() {
        assert_eq!(look(0, &[]), None);
        assert_eq!(look(0, b"VARVE\xffPV"), None);
    }

    #[test]
    fn every_fixed_magic_number_is_found_where_it_belongs_and_not_beside_it() {
        for magic in HEAD {
            let found = Signature { name: magic.name, offset: magic.offset };
            assert_eq!(look(magic.offset, magic.bytes), Some(found), "{}", magic.name);
            assert_eq!(look(magic.offset + 5, magic.bytes), None, "{}", magic.name);
        }
    }

    #[test]
    fn zfs_is_found_by_any_uberblock_of_any_label_in_either_byte_order() {
        let end = align_down(SIZE, 256 * KIB);
        for label in [0, 256 * KIB, end - 512 * KIB, end - 256 * KIB] {
            for (slot, bytes) in [(0, 0x00ba_b10c_u64.to_le_bytes()), (127, 0x00ba_b10c_u64.to_be_bytes())] {
                let offset = label + 128 * KIB + slot * KIB;
                assert_eq!(look(offset, &bytes), Some(Signature { name: "ZFS pool member", offset }));
            }
        }
    }

    #[test]
    fn signatures_at_the_end_are_found() {
        for (back, bytes) in
            [(512, &b"EFI PART"[..]), (4096, b"EFI PART"), (512, b"conectix"), (8192, b"\xfc\x4e\x2b\xa9")]
        {
            assert_eq!(look(SIZE - back, bytes).map(|found| found.offset), Some(SIZE - back));
        }
        let old_md = align_down(SIZE, 64 * KIB) - 64 * KIB;
        assert_eq!(look(old_md, b"\xfc\x4e\x2b\xa9").map(|found| found.name), Some("md RAID member"));
    }

    #[test]
    fn a_file_system_with_a_boot_sector_is_named_as_the_file_system() {
        let mut disk = vec![0; MIB as usize];
        disk[3..11].copy_from_slice(b"NTFS    ");
        disk[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(find_signature(&disk, &disk, MIB).map(|found| found.name), Some("NTFS file system"));
    }

    #[test]
    fn formats_of_images_are_told_from_what_images_hold() {
        let mut head = vec![0; 4096];
        assert_eq!(find_image_format(&head), None);
        head[1080..1082].copy_from_slice(b"\x53\xef");
        head[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(find_image_format(&head), None, "a raw image of a file system");
        head[..4].copy_from_slice(b"QFI\xfb");
        assert_eq!(find_image_format(&head), Some("qcow2 disk image"));
        assert_eq!(find_image_format(b"KDMV"), Some("VMDK disk image"));
        assert_eq!(find_image_format(b"KDM"), None);
    }

    proptest! {
        #[test]
        fn no_disk_however_short_makes_the_search_panic(
            head in proptest::collection::vec(any::<u8>(), 0..3000), size: u64,
        ) {
            let _ = find_signature(&head, &head, head.len() as u64);
            let _ = find_signature(&head, &[], size);
        }
    }
}
