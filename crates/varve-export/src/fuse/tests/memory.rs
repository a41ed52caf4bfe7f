//! A sparse volume in memory behind a thread of its own, as a shard is.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use varve_block::{
    Access, Allocation, Buffer, Done, Durability, Extent, Io, IoError, Outcome, Portal, Shape, StatusRun,
    Submit,
};

const PAGE: u64 = 4096;

/// What the volume holds and what was asked of it.
#[derive(Default)]
pub(super) struct Store {
    pages: BTreeMap<u64, Vec<u8>>,
    pub(super) flushes: u64,
    pub(super) durable_writes: u64,
    pub(super) unmaps: u64,
    pub(super) plain_zeros: u64,
    /// Every request fails with this.
    pub(super) failure: Option<IoError>,
}

/// The test's handle to the volume.
#[derive(Clone)]
pub(super) struct Memory {
    store: Arc<Mutex<Store>>,
    sender: Sender<Box<dyn FnOnce() + Send>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        #[expect(clippy::disallowed_methods, reason = "the test's own shard")]
        std::thread::spawn(move || receiver.into_iter().for_each(|work| work()));
        Self { store: Arc::default(), sender }
    }

    pub(super) fn portal(&self, size: u64, access: Access) -> Portal {
        let shape =
            Shape { discard: true, fast_zero: true, optimal_size: 4096, access, ..Shape::new(size, 1) };
        Portal::new(shape, Arc::new(self.clone()))
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no test panics while it looks")
    }

    fn run(&self, work: impl FnOnce(&mut Store) + Send + 'static) {
        let store = Arc::clone(&self.store);
        self.sender
            .send(Box::new(move || work(&mut store.lock().expect("no test panics while it looks"))))
            .expect("the shard lives as long as a handle");
    }
}

impl Submit for Memory {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        self.run(move |store| done(store.answer(io)));
    }

    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        self.run(move |store| done(Ok(store.status(extent))));
    }
}

impl Store {
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    fn answer(&mut self, io: Io) -> Outcome {
        if let Some(error) = self.failure {
            return Err(error);
        }
        match io {
            Io::Read { offset, mut buffer } => {
                self.read(offset, &mut buffer);
                return Ok(buffer);
            }
            Io::Write { offset, data, durability } => {
                self.durable_writes += u64::from(durability == Durability::Durable);
                self.write(offset, &data);
            }
            Io::Zero { extent, options } => {
                if options.unmap {
                    self.unmaps += 1;
                } else {
                    self.plain_zeros += 1;
                }
                self.zero(extent);
            }
            Io::Discard { .. } => panic!("FUSE3: a hole must read as zeros, so nothing may be discarded"),
            Io::Flush => self.flushes += 1,
        }
        Ok(Buffer::empty())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (page, part) in Extent::new(offset, buffer.len() as u64).pieces(PAGE) {
            let target = &mut buffer[index(part.offset - offset)..index(part.end() - offset)];
            match self.pages.get(&page) {
                Some(data) => {
                    let from = index(part.offset - page * PAGE);
                    target.copy_from_slice(&data[from..from + target.len()]);
                }
                None => target.fill(0),
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, part) in Extent::new(offset, data.len() as u64).pieces(PAGE) {
            let source = &data[index(part.offset - offset)..index(part.end() - offset)];
            let from = index(part.offset - page * PAGE);
            let stored = self.pages.entry(page).or_insert_with(|| vec![0; index(PAGE)]);
            stored[from..from + source.len()].copy_from_slice(source);
        }
    }

    fn zero(&mut self, extent: Extent) {
        let whole = extent.align_in(PAGE);
        let doomed: Vec<u64> =
            self.pages.range(whole.offset / PAGE..whole.end() / PAGE).map(|(page, _)| *page).collect();
        doomed.iter().for_each(|page| drop(self.pages.remove(page)));
        let edges = [
            Extent::between(extent.offset, whole.offset.max(extent.offset)),
            Extent::between(whole.end().max(extent.offset), extent.end()),
        ];
        for (page, part) in edges.into_iter().flat_map(|edge| edge.pieces(PAGE)) {
            if let Some(data) = self.pages.get_mut(&page) {
                data[index(part.offset - page * PAGE)..index(part.end() - page * PAGE)].fill(0);
            }
        }
    }

    /// At most sixteen runs at a time, so that the door has to ask again.
    fn status(&self, extent: Extent) -> Vec<StatusRun> {
        let mut runs: Vec<StatusRun> = Vec::new();
        for (page, part) in extent.pieces(PAGE) {
            let data = self.pages.contains_key(&page);
            let allocation = if data { Allocation::Data } else { Allocation::Hole };
            match runs.last_mut() {
                Some(run) if run.allocation == allocation => run.length += part.length,
                _ => runs.push(StatusRun { length: part.length, allocation }),
            }
            if runs.len() > 16 {
                runs.pop();
                break;
            }
        }
        runs
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("it fits in memory")
}
