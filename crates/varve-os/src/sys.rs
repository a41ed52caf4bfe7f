//! The system calls that have no safe wrapper: mapping memory, block device controls, locks of bytes, adopting descriptors.
#![allow(unsafe_code)]

use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use varve_block::Extent;

/// `_IO(0x12, 119)`.
const BLKDISCARD: libc::c_ulong = 0x1277;
/// `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
/// `_IO(0x12, 97)`.
const BLKFLSBUF: libc::c_ulong = 0x1261;
/// `_IO(0x12, 94)`.
const BLKROGET: libc::c_ulong = 0x125e;

/// Anonymous, zeroed, private memory; unmapped on drop.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes, a multiple of the page size; `huge` asks for explicit huge pages (then of 2 MiB).
    pub(crate) fn new(length: usize, huge: bool) -> Result<Self, Errno> {
        let extra = if huge { libc::MAP_HUGETLB } else { 0 };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(last_error());
        }
        let base = NonNull::new(address.cast::<u8>()).expect("a mapping that succeeded is not at null");
        Ok(Self { base, length })
    }

    /// Asks for transparent huge pages; whether the kernel agreed.
    pub(crate) fn advise_huge(&self) -> bool {
        // SAFETY: the range is exactly this mapping; the advice changes no content.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.length, libc::MADV_HUGEPAGE) == 0 }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once, here, by its only owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

// SAFETY: the mapping is plain memory without thread affinity; access to its bytes is the arena's concern.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

/// Locks one byte for reading, for as long as this open file description lives: no other can lock it for writing then.
pub(crate) fn lock_byte(file: &File, offset: i64) -> Result<(), Errno> {
    file_lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, offset).map(drop)
}

/// Whether another open file description has locked a byte, in whatever way.
pub(crate) fn is_byte_locked(file: &File, offset: i64) -> Result<bool, Errno> {
    let in_the_way = file_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, offset)?;
    Ok(in_the_way != libc::F_UNLCK)
}

/// A command on a lock of one byte; the kind of lock that the kernel answers.
fn file_lock(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    offset: i64,
) -> Result<libc::c_int, Errno> {
    let l_type = libc::c_short::try_from(kind).expect("a kind of lock is a small number");
    let l_whence = libc::c_short::try_from(libc::SEEK_SET).expect("it is zero");
    let mut lock = libc::flock { l_type, l_whence, l_start: offset, l_len: 1, l_pid: 0 };
    // SAFETY: the descriptor is open, and `lock` is a whole structure that these commands read and answer in.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if answer < 0 { Err(last_error()) } else { Ok(libc::c_int::from(lock.l_type)) }
}

/// Capacity of a block device in bytes.
pub(crate) fn block_device_size(file: &File) -> Result<u64, Errno> {
    let mut size = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 through the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) })?;
    Ok(size)
}

/// Whether a block device is marked read-only.
pub(crate) fn block_device_read_only(file: &File) -> Result<bool, Errno> {
    let mut flag: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int through the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKROGET, &raw mut flag) })?;
    Ok(flag != 0)
}

/// Discards an extent of a block device; waits.
pub(crate) fn block_device_discard(file: &File, extent: Extent) -> Result<(), Errno> {
    let range = [extent.offset, extent.length];
    // SAFETY: BLKDISCARD reads two u64 through the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) })
}

/// Writes back and drops what the page cache holds of a block device; waits. Only for administrators.
pub(crate) fn block_device_drop_cache(file: &File) -> Result<(), Errno> {
    // SAFETY: BLKFLSBUF takes no argument.
    check(unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) })
}

/// The number of the group of this host that has this name, if there is one. May ask a directory server, and wait for it.
pub(crate) fn group_called(name: &str) -> Result<Option<u32>, Errno> {
    let Ok(name) = std::ffi::CString::new(name) else { return Ok(None) };
    let mut names = vec![0 as libc::c_char; 1 << 10];
    loop {
        let mut group = std::mem::MaybeUninit::<libc::group>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are valid for the call, and the length is that of the memory for names.
        let error = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                group.as_mut_ptr(),
                names.as_mut_ptr(),
                names.len(),
                &raw mut found,
            )
        };
        match error {
            libc::ERANGE if names.len() < 1 << 24 => names.resize(names.len() * 4, 0),
            0 if found.is_null() => return Ok(None),
            // SAFETY: it points to `group`, which was filled.
            0 => return Ok(Some(unsafe { (*found).gr_gid })),
            // What different sources of names say of one that they do not know.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            _ => return Err(Errno::from_raw_os_error(error)),
        }
    }
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
