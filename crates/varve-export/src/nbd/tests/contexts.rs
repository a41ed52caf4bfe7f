//! A block status of two contexts, byte by byte.

use super::*;
use crate::nbd::DirtyBitmap;
use std::sync::Arc;
use varve_block::Extent;
use varve_nbd::wire::{GREETING_LENGTH, command_flag};

const OPTION_REPLY_MAGIC: [u8; 8] = 0x0003_e889_0455_65a9_u64.to_be_bytes();

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

fn counted(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat()
}

/// A client that agrees on both contexts, and gives bytes as they come.
struct Raw {
    stream: Rc<PipeEnd>,
    arena: Arena,
    come: Vec<u8>,
}

impl Raw {
    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.come.len() < length {
            let (count, buffer) = self.stream.receive(self.arena.take(4096), 0, 1).await;
            self.come.extend_from_slice(&buffer[..count.expect("it is served")]);
        }
        self.come.drain(..length).collect()
    }

    async fn send(&self, bytes: &[u8]) {
        self.stream.send(vec![self.arena.copy(bytes)]).await.expect("it is served");
    }

    async fn agree(&mut self) {
        self.take(GREETING_LENGTH).await;
        let queries = [counted("base:allocation"), counted("qemu:dirty-bitmap:mon")].concat();
        let meta = [counted("data/vm1"), 2_u32.to_be_bytes().to_vec(), queries].concat();
        let go = [counted("data/vm1"), vec![0, 0]].concat();
        self.send(&[&3_u32.to_be_bytes()[..], &option(8, &[]), &option(10, &meta), &option(7, &go)].concat())
            .await;
        loop {
            let head = self.take(20).await;
            assert_eq!(head[..8], OPTION_REPLY_MAGIC);
            let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
            self.take(number(16) as usize).await;
            if (number(8), number(12)) == (7, 1) {
                return;
            }
        }
    }

    /// The chunks of a block status: whether each is the last, its context, and its runs.
    async fn status(&mut self, flags: u16, offset: u64, length: u64) -> Vec<(bool, u32, Vec<(u32, u32)>)> {
        let request = Request { flags, command: Command::BlockStatus, cookie: 9, offset, length };
        self.send(&request.encode(Framing::Structured).expect("short")).await;
        let mut chunks = Vec::new();
        loop {
            let head = self.take(20).await;
            assert_eq!(head[6..8], 5_u16.to_be_bytes(), "a block status");
            let is_last = head[4..6] == 1_u16.to_be_bytes();
            let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four"));
            let payload = self.take(number(&head[16..]) as usize).await;
            let runs = payload[4..].chunks(8).map(|run| (number(run), number(&run[4..]))).collect();
            chunks.push((is_last, number(&payload), runs));
            if is_last {
                return chunks;
            }
        }
    }
}

#[test]
fn the_runs_of_two_contexts_end_at_one_byte() {
    let changed = [(4096, 4096), (12_288, 4096), (1 << 20, 4096)];
    let changed = changed.map(|(offset, length)| Extent::new(offset, length)).to_vec();
    let mut scene = Scene::new();
    scene.export.dirty = Some(Arc::new(DirtyBitmap::new("mon", changed)));
    scene.door.catalog = Rc::new(OneExport(RefCell::new(scene.export.clone())));
    let run = |length, allocation| StatusRun { length, allocation };
    let rest = run(SIZE - 131_072, Allocation::Data);
    *scene.device.runs.borrow_mut() =
        vec![run(65_536, Allocation::Data), run(65_536, Allocation::Hole), rest];
    let (end, ()) = scene.play(pair(1 << 16, 0, 1), async |stream| {
        let mut client = Raw { stream, arena: scene.door.arena.clone(), come: Vec::new() };
        client.agree().await;
        let found = client.status(0, 0, 196_608).await;
        let allocated = vec![(65_536, 0), (65_536, 3), (65_536, 0)];
        let dirty = vec![(4096, 0), (4096, 1), (4096, 0), (4096, 1), (180_224, 0)];
        assert_eq!(found, [(false, 1, allocated), (true, 2, dirty)]);
        let one = client.status(command_flag::REQ_ONE, 8192, 8192).await;
        assert_eq!(one, [(false, 1, vec![(4096, 0)]), (true, 2, vec![(4096, 0)])]);
        let one = client.status(command_flag::REQ_ONE, 61_440, 65_536).await;
        assert_eq!(one, [(false, 1, vec![(4096, 0)]), (true, 2, vec![(4096, 0)])]);
        client.stream.close_writing();
    });
    assert_eq!(end, Ok(()));
}
