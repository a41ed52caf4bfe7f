//! Owned, aligned memory for requests, cut from one bounded arena.
//!
//! A [`Buffer`] is the only owner of its bytes and can be cut in two and joined again without copying; frozen, it
//! becomes [`Bytes`], which can be shared. Both may cross threads. This is the one fenced module of the crate
//! with `unsafe` code; `docs/decisions/0002-buffers.md` says why it is here.
//!
//! Invariants:
//! - BUFFER1. No byte of a chunk belongs to two `Buffer`s, or to a `Buffer` and a `Bytes`, at the same time.
//! - BUFFER2. `start + length <= capacity` of the chunk, whose memory is initialised and lives as long as the chunk.
//! - BUFFER3. A fresh buffer starts at a multiple of 4096 bytes in memory.
//! - BUFFER4. A chunk returns to its arena exactly once, when the last handle to it is dropped.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard};

/// Alignment of every fresh buffer, and the smallest chunk.
const PAGE: usize = 4096;
/// Chunks come in powers of two from one page to `PAGE << (CLASSES - 1)`, 8 MiB.
const CLASSES: usize = 12;

/// A run of memory that an arena hands out.
///
/// # Safety
/// `base` must point to `length` initialised bytes, aligned to 4096, that nothing else touches and that stay valid
/// until the value is dropped.
pub unsafe trait Memory: Send + Sync {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// The number of bytes.
    fn length(&self) -> usize;
}

/// Zeroed, page-aligned memory from the heap.
pub struct HeapMemory {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapMemory {
    /// `length` bytes, rounded up to whole pages.
    pub fn new(length: usize) -> Self {
        let size = length.max(1).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(size, PAGE).expect("a buffer is shorter than the address space");
        // SAFETY: the layout has a size above zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, layout }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: `base` was allocated with this very layout and is freed once, here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the allocation is owned, zeroed, aligned to PAGE and freed only on drop.
unsafe impl Memory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn length(&self) -> usize {
        self.layout.size()
    }
}
// SAFETY: a plain allocation without thread affinity, never reached through a shared reference here.
unsafe impl Send for HeapMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapMemory {}

/// How much of an arena is in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUse {
    /// Size of the arena.
    pub capacity: u64,
    /// Bytes of chunks now held by buffers.
    pub in_use: u64,
    /// Bytes of buffers that did not fit and came from the heap instead, now held.
    pub overflow: u64,
}

/// The bounded memory from which buffers are cut. Cloning shares it.
///
/// Taking a buffer never waits: beyond the bound it comes from the heap and is counted as overflow. What bounds the
/// overflow is that doors limit the bytes they keep in flight, and engines the bytes they copy at once.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<ArenaInner>,
}

struct ArenaInner {
    memory: Box<dyn Memory>,
    state: Mutex<ArenaState>,
}

struct ArenaState {
    free: [Vec<usize>; CLASSES],
    /// Bytes from here on were never handed out.
    fresh: usize,
    usage: ArenaUse,
}

impl Arena {
    /// An arena over `memory`.
    pub fn new(memory: Box<dyn Memory>) -> Self {
        assert!(memory.base().as_ptr().addr().is_multiple_of(PAGE), "BUFFER3: arena memory is page-aligned");
        let usage = ArenaUse { capacity: memory.length() as u64, ..ArenaUse::default() };
        let state = ArenaState { free: Default::default(), fresh: 0, usage };
        Self { inner: Arc::new(ArenaInner { memory, state: Mutex::new(state) }) }
    }

    /// An arena of `length` bytes from the heap.
    pub fn heap(length: usize) -> Self {
        Self::new(Box::new(HeapMemory::new(length)))
    }

    /// A buffer of `length` bytes with unspecified content (bytes of an older buffer, or zeros).
    pub fn take(&self, length: usize) -> Buffer {
        if length == 0 {
            return Buffer::empty();
        }
        let chunk = match class_of(length).and_then(|class| self.cut(class)) {
            Some(chunk) => chunk,
            None => self.overflow(length),
        };
        Buffer { chunk: Some(Arc::new(chunk)), start: 0, length }
    }

    /// A buffer of `length` zeros.
    pub fn take_zeroed(&self, length: usize) -> Buffer {
        let mut buffer = self.take(length);
        buffer.fill(0);
        buffer
    }

    /// A shared copy of `data`.
    pub fn copy(&self, data: &[u8]) -> Bytes {
        let mut buffer = self.take(data.len());
        buffer.copy_from_slice(data);
        buffer.freeze()
    }

    /// What is in use now.
    pub fn usage(&self) -> ArenaUse {
        self.inner.state().usage
    }

    /// Where the arena's memory is, for registration with the kernel: base address and length.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        (self.inner.memory.base(), self.inner.memory.length())
    }

    fn cut(&self, class: usize) -> Option<Chunk> {
        let size = PAGE << class;
        let mut state = self.inner.state();
        let offset = match state.free[class].pop() {
            Some(offset) => offset,
            None if state.fresh + size <= self.inner.memory.length() => {
                state.fresh += size;
                state.fresh - size
            }
            None => return None,
        };
        state.usage.in_use += size as u64;
        drop(state);
        // SAFETY: offset + size <= length of the memory (checked when it was cut from `fresh`).
        let base = unsafe { self.inner.memory.base().add(offset) };
        Some(Chunk {
            base,
            capacity: size,
            home: Home::Arena { arena: Arc::clone(&self.inner), offset, class },
        })
    }

    fn overflow(&self, length: usize) -> Chunk {
        let memory = HeapMemory::new(length);
        let (base, capacity) = (memory.base(), memory.length());
        self.inner.state().usage.overflow += capacity as u64;
        Chunk { base, capacity, home: Home::Heap { _memory: memory, arena: Arc::clone(&self.inner) } }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({:?})", self.usage())
    }
}

impl ArenaInner {
    fn state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn class_of(length: usize) -> Option<usize> {
    let pages = length.div_ceil(PAGE).next_power_of_two();
    let class = pages.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// Memory that buffers share out among themselves; goes home when the last of them is dropped.
struct Chunk {
    base: NonNull<u8>,
    capacity: usize,
    home: Home,
}

enum Home {
    Arena { arena: Arc<ArenaInner>, offset: usize, class: usize },
    Heap { _memory: HeapMemory, arena: Arc<ArenaInner> },
}

// SAFETY: a chunk is only a place; access to its bytes is settled by BUFFER1.
unsafe impl Send for Chunk {}
// SAFETY: as for `Send`.
unsafe impl Sync for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &self.home {
            Home::Arena { arena, offset, class } => {
                let mut state = arena.state();
                state.usage.in_use -= self.capacity as u64;
                state.free[*class].push(*offset);
            }
            Home::Heap { arena, .. } => arena.state().usage.overflow -= self.capacity as u64,
        }
    }
}

/// Bytes with one owner.
pub struct Buffer {
    chunk: Option<Arc<Chunk>>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// No bytes at all; allocates nothing.
    pub const fn empty() -> Self {
        Self { chunk: None, start: 0, length: 0 }
    }

    /// Number of bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Cuts off and returns the bytes from `at` on; `self` keeps those before.
    pub fn split_off(&mut self, at: usize) -> Buffer {
        assert!(at <= self.length);
        let rest = Buffer { chunk: self.chunk.clone(), start: self.start + at, length: self.length - at };
        self.length = at;
        rest
    }

    /// Joins what [`Buffer::split_off`] cut. Without copying, unless a device answered with a buffer of its own.
    pub fn join(&mut self, rest: Buffer) {
        if rest.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = rest;
            return;
        }
        let (Some(mine), Some(theirs)) = (&self.chunk, &rest.chunk) else { return };
        if Arc::ptr_eq(mine, theirs) && self.start + self.length == rest.start {
            self.length += rest.length;
            return;
        }
        let (Home::Arena { arena, .. } | Home::Heap { arena, .. }) = &mine.home;
        let mut whole = Arena { inner: Arc::clone(arena) }.take(self.length + rest.length);
        let (first, second) = whole.split_at_mut(self.length);
        first.copy_from_slice(self);
        second.copy_from_slice(&rest);
        *self = whole;
    }

    /// Drops the bytes from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Makes the bytes immutable and shareable, without copying.
    pub fn freeze(self) -> Bytes {
        Bytes { chunk: self.chunk, start: self.start, length: self.length }
    }

    fn pointer(&self) -> NonNull<u8> {
        pointer(self.chunk.as_deref(), self.start)
    }
}

fn pointer(chunk: Option<&Chunk>, start: usize) -> NonNull<u8> {
    match chunk {
        // SAFETY: BUFFER2: start is inside the chunk, or one past its end when there are no bytes.
        Some(chunk) => unsafe { chunk.base.add(start) },
        None => NonNull::dangling(),
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: BUFFER1 and BUFFER2: the bytes are initialised, alive as long as the chunk, and ours alone.
        unsafe { slice::from_raw_parts(self.pointer().as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: BUFFER1 and BUFFER2, and `&mut self` excludes any other access through this handle.
        unsafe { slice::from_raw_parts_mut(self.pointer().as_ptr(), self.length) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.length)
    }
}

/// Bytes that are shared and can no longer change.
#[derive(Clone)]
pub struct Bytes {
    chunk: Option<Arc<Chunk>>,
    start: usize,
    length: usize,
}

impl Bytes {
    /// No bytes at all.
    pub const fn empty() -> Self {
        Self { chunk: None, start: 0, length: 0 }
    }

    /// Number of bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The `length` bytes from `start` on, shared.
    pub fn slice(&self, start: usize, length: usize) -> Bytes {
        assert!(start.checked_add(length).is_some_and(|end| end <= self.length));
        Bytes { chunk: self.chunk.clone(), start: self.start + start, length }
    }

    /// The bytes before `at` and those from it on.
    pub fn split_at(self, at: usize) -> (Bytes, Bytes) {
        (self.slice(0, at), self.slice(at, self.length - at))
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: BUFFER1 and BUFFER2: these bytes cannot change, and the chunk keeps them alive.
        unsafe { slice::from_raw_parts(pointer(self.chunk.as_deref(), self.start).as_ptr(), self.length) }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_and_join_keep_content_and_disjointness() {
        let arena = Arena::heap(1 << 20);
        let mut whole = arena.take_zeroed(10_000);
        let mut rest = whole.split_off(4096);
        whole.fill(1);
        rest.fill(2);
        assert!(whole.iter().all(|byte| *byte == 1), "BUFFER1");
        whole.join(rest);
        assert_eq!(whole.len(), 10_000);
        assert_eq!((whole[4095], whole[4096]), (1, 2));
    }

    #[test]
    fn memory_goes_home_once_and_is_reused() {
        let arena = Arena::heap(64 << 10);
        let first = arena.take(5000);
        let address = first.as_ptr();
        assert_eq!(arena.usage().in_use, 8192);
        let bytes = first.freeze();
        let copy = bytes.slice(1, 10);
        drop(bytes);
        assert_eq!(arena.usage().in_use, 8192, "BUFFER4: a slice keeps the chunk");
        drop(copy);
        assert_eq!(arena.usage().in_use, 0);
        assert_eq!(arena.take(5000).as_ptr(), address);
    }

    #[test]
    fn beyond_the_bound_the_heap_serves_and_is_counted() {
        let arena = Arena::heap(8192);
        let held: Vec<_> = (0..4).map(|_| arena.take(4096)).collect();
        assert_eq!(arena.usage(), ArenaUse { capacity: 8192, in_use: 8192, overflow: 8192 });
        assert!(held.iter().all(|buffer| buffer.as_ptr().addr().is_multiple_of(PAGE)), "BUFFER3");
        drop(held);
        assert_eq!(arena.usage().overflow, 0);
    }

    #[test]
    fn what_is_larger_than_the_largest_chunk_comes_from_the_heap() {
        let largest = PAGE << (CLASSES - 1);
        let arena = Arena::heap(2 * largest);
        let within = arena.take(largest);
        assert_eq!(arena.usage().in_use, largest as u64);
        let beyond = arena.take(largest + 1);
        assert_eq!((within.len(), beyond.len()), (largest, largest + 1));
        assert_eq!(arena.usage().in_use, largest as u64, "BUFFER2: no chunk holds it");
        assert_eq!(arena.usage().overflow, (largest + PAGE) as u64);
    }

    #[test]
    fn a_truncated_buffer_keeps_its_first_bytes_and_never_grows() {
        let arena = Arena::heap(1 << 16);
        let mut buffer = arena.take_zeroed(10);
        buffer[..4].copy_from_slice(b"four");
        buffer.truncate(4);
        assert_eq!(&buffer[..], b"four");
        buffer.truncate(10);
        assert_eq!(&buffer[..], b"four", "BUFFER2");
    }

    #[test]
    fn buffers_cross_threads() {
        let arena = Arena::heap(1 << 16);
        let bytes = arena.copy(b"varve");
        let other = bytes.clone();
        let sum: u32 = std::thread::scope(|scope| {
            scope.spawn(move || other.iter().map(|byte| u32::from(*byte)).sum()).join().expect("no panic")
        });
        assert_eq!(sum, bytes.iter().map(|byte| u32::from(*byte)).sum());
    }

    #[test]
    fn strangers_are_joined_by_copying() {
        let arena = Arena::heap(1 << 16);
        let [mut one, mut other] = [1, 2].map(|byte| {
            let mut buffer = arena.take(512);
            buffer.fill(byte);
            buffer
        });
        other.truncate(100);
        one.join(other);
        assert_eq!(one[..], [&[1; 512][..], &[2; 100]].concat());
    }
}
