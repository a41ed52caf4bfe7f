//! What a request costs in memory: a remap allocates nothing of its own.

#![allow(unsafe_code)]

use futures_executor::block_on;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::Poll;
use varve_block::{Arena, BlockDevice, Buffer, Checked, Completion, Device, Durability, Shape, Switch};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers flushes at once, and everything else when it is polled a second time.
struct Slow;

impl BlockDevice for Slow {
    fn shape(&self) -> Shape {
        Shape::new(1 << 20, 512)
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if io.extent().is_empty() {
            return Completion::done();
        }
        let mut asked = false;
        Completion::pending(std::future::poll_fn(move |context| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(Ok(Buffer::empty()));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// How often memory is asked for while a write to `device`, and a flush of it, are carried out.
fn allocations(device: &Device) -> usize {
    let data = Arena::heap(1 << 16).copy(&[7; 4096]);
    let write = || device.write(4096, data.clone(), Durability::Volatile);
    block_on(write()).expect("no faults"); // What is made once is made.
    let before = ALLOCATIONS.get();
    block_on(write()).expect("no faults");
    block_on(device.flush()).expect("no faults");
    ALLOCATIONS.get() - before
}

#[test]
fn a_remap_allocates_nothing() {
    let below = Device::new(Slow);
    let own = allocations(&below);
    assert_eq!(own, 1, "the future of the write");
    assert_eq!(allocations(&Switch::new(below).device()), own, "a switch");
}
