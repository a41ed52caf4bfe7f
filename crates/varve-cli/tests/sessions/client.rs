//! The least that an NBD client can be: one request after the other, for tests that write what they later compare.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

fn header(kind: u16, offset: u64, length: usize) -> Vec<u8> {
    let mut request = REQUEST.to_be_bytes().to_vec();
    request.extend([0_u16.to_be_bytes(), kind.to_be_bytes()].concat());
    request.extend([7_u64.to_be_bytes(), offset.to_be_bytes()].concat());
    request.extend(u32::try_from(length).expect("short").to_be_bytes());
    request
}

/// A connection to one export.
pub(crate) struct Client {
    stream: UnixStream,
    /// Bytes of the export.
    pub(crate) size: u64,
}

impl Client {
    /// Connects to the export `name` at `socket`.
    pub(crate) fn new(socket: &Path, name: &str) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the daemon listens");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let length = u32::try_from(name.len()).expect("short");
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend([1_u32.to_be_bytes(), length.to_be_bytes()].concat());
        hello.extend(name.as_bytes());
        stream.write_all(&hello).expect("it listens");
        let mut export = [0; 10];
        stream.read_exact(&mut export).expect("the export is there");
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Self { stream, size }
    }

    /// Sends the first `part` bytes of a write.
    pub(crate) fn begin_write(&mut self, offset: u64, data: &[u8], part: usize) {
        let all = [header(1, offset, data.len()), data.to_vec()].concat();
        self.stream.write_all(&all[..part]).expect("it listens");
    }

    /// Sends what is left after so many bytes; the server's error number if it refuses.
    pub(crate) fn end_write(&mut self, data: &[u8], part: usize) -> Result<(), u32> {
        let all = [header(1, 0, data.len()), data.to_vec()].concat();
        self.stream.write_all(&all[part..]).expect("it listens");
        self.answer(0).map(drop)
    }

    /// Sends a read; its answer is to be fetched.
    pub(crate) fn begin_read(&mut self, offset: u64, length: usize) {
        self.stream.write_all(&header(0, offset, length)).expect("it listens");
    }

    /// Fetches the answer of a read; does `pause` before each MiB of it.
    pub(crate) fn end_read(&mut self, length: usize, pause: impl Fn()) -> Vec<u8> {
        self.answer(0).expect("it can be read");
        let mut content = vec![0; length];
        for part in content.chunks_mut(1 << 20) {
            pause();
            self.stream.read_exact(part).expect("it answers");
        }
        content
    }

    /// The error number of the server, or the data of a read.
    fn request(&mut self, kind: u16, offset: u64, length: usize, data: &[u8]) -> Result<Vec<u8>, u32> {
        let request = header(kind, offset, length);
        self.stream.write_all(&request).and_then(|()| self.stream.write_all(data)).expect("it listens");
        self.answer(if kind == 0 { length } else { 0 })
    }

    fn answer(&mut self, length: usize) -> Result<Vec<u8>, u32> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("it answers");
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0), REPLY);
        if word(4) != 0 {
            return Err(word(4));
        }
        let mut content = vec![0; length];
        self.stream.read_exact(&mut content).expect("it answers");
        Ok(content)
    }

    /// Writes; the server's error number if it refuses.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.request(1, offset, data.len(), data).map(drop)
    }

    /// Has everything that was written made durable.
    pub(crate) fn flush(&mut self) {
        self.request(3, 0, 0, &[]).expect("it can be flushed");
    }

    /// Reads; the server's error number if it refuses.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.request(0, offset, length, &[])
    }

    /// Discards; the server's error number if it refuses.
    pub(crate) fn discard(&mut self, offset: u64, length: usize) -> Result<(), u32> {
        self.request(4, offset, length, &[]).map(drop)
    }

    /// Fills `length` bytes from `offset` on with `value`, a MiB at a time.
    pub(crate) fn fill(&mut self, offset: u64, length: u64, value: u8) -> Result<(), u32> {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let step = (end - at).min(1 << 20);
            self.write(at, &vec![value; usize::try_from(step).expect("short")])?;
            at += step;
        }
        Ok(())
    }

    /// All of the export.
    pub(crate) fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while (all.len() as u64) < self.size {
            let step = (self.size - all.len() as u64).min(1 << 20);
            let length = usize::try_from(step).expect("short");
            all.extend(self.request(0, all.len() as u64, length, &[]).expect("it can be read"));
        }
        all
    }
}
