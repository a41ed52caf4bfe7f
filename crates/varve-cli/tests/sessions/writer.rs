//! A client of a volume that knows what it wrote.

use crate::client::Client;
use crate::harness::World;
use std::collections::BTreeMap;

/// A client that knows what it wrote.
pub(crate) struct Writer {
    name: &'static str,
    socket: String,
    client: Client,
    /// The number that each block of 4 KiB holds.
    pub(crate) blocks: BTreeMap<u64, u64>,
    next: u64,
}

impl Writer {
    /// One of the volume or snapshot `name`, which is exported.
    pub(crate) fn new(world: &World, name: &'static str) -> Self {
        let socket = format!("{}.sock", name.replace(['/', '@'], "-"));
        world.ok(&format!("export create {name} --nbd unix:{socket}"));
        let client = Client::new(&world.path(&socket), name);
        Self { name, socket, client, blocks: BTreeMap::new(), next: 1 }
    }

    /// Connects anew, to a daemon that was started again.
    pub(crate) fn reconnect(&mut self, world: &World) {
        self.client = Client::new(&world.path(&self.socket), self.name);
    }

    /// Writes `count` blocks here and there, and makes them durable.
    pub(crate) fn work(&mut self, count: u64) {
        for _ in 0..count {
            let block = self.next.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (self.client.size / 4096);
            self.client.write(block * 4096, &self.next.to_le_bytes().repeat(512)).expect("it is served");
            self.blocks.insert(block, self.next);
            self.next += 1;
        }
        self.client.flush();
    }

    /// Reads all that it wrote.
    pub(crate) fn check(&mut self) {
        for (block, number) in &self.blocks {
            let found = self.client.read(block * 4096, 4096).expect("it is served");
            assert_eq!(found, number.to_le_bytes().repeat(512), "{}: block {block}", self.name);
        }
    }
}
