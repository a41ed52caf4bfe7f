//! An NBD client that takes every answer, and none that does not come.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;

const REQUEST: u32 = 0x2560_9513;
/// A request that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(90);

/// A connection to one export.
pub(crate) struct Client {
    stream: UnixStream,
    /// Bytes of the export.
    pub(crate) size: u64,
}

impl Client {
    /// Connects to the export `name` at `socket`; `None` if it is not served.
    pub(crate) fn connect(socket: &Path, name: &str) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).ok()?;
        let length = u32::try_from(name.len()).expect("short");
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend([1_u32.to_be_bytes(), length.to_be_bytes()].concat());
        hello.extend(name.as_bytes());
        stream.write_all(&hello).ok()?;
        let mut export = [0; 10];
        stream.read_exact(&mut export).ok()?;
        Some(Self { stream, size: u64::from_be_bytes(export[..8].try_into().expect("eight bytes")) })
    }

    /// Sends a request and takes its answer, an error too; fails if there is none.
    pub(crate) fn request(&mut self, kind: u16, offset: u64, length: u32) -> Result<(), String> {
        self.ask(kind, offset, length)
            .map_err(|error| format!("no answer to request {kind} at {offset}: {error}"))
    }

    fn ask(&mut self, kind: u16, offset: u64, length: u32) -> io::Result<()> {
        let mut request = REQUEST.to_be_bytes().to_vec();
        request.extend([0_u16.to_be_bytes(), kind.to_be_bytes()].concat());
        request.extend([7_u64.to_be_bytes(), offset.to_be_bytes()].concat());
        request.extend(length.to_be_bytes());
        let bytes = usize::try_from(length).expect("short");
        if kind == WRITE {
            request.resize(request.len() + bytes, (offset >> 12).to_le_bytes()[0] | 1);
        }
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        if kind == READ && reply[4..8] == [0; 4] {
            self.stream.read_exact(&mut vec![0; bytes])?;
        }
        Ok(())
    }
}
