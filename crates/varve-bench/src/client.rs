//! A plain NBD client that writes a given list of places once, which no general load generator can be told.

use crate::first_touch::Load;
use crate::place::Noise;
use crate::watch::Watch;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_nbd::client::{Event, Handshake, Session, Step, Wish};
use varve_nbd::{Command, Request};

/// A connection to an export.
pub(crate) struct Client {
    stream: UnixStream,
    session: Session,
    /// Received and not yet understood.
    input: Vec<u8>,
    next_cookie: u64,
    noise: Vec<u8>,
}

impl Client {
    /// Connects to the export that is alone behind `socket`.
    pub(crate) fn connect(socket: &Path) -> Result<Self, String> {
        let complain = |error: std::io::Error| format!("{}: {error}", socket.display());
        let mut stream = UnixStream::connect(socket).map_err(complain)?;
        let wish = Wish {
            name: String::new(),
            extended_headers: false,
            structured_replies: false,
            allocation: false,
        };
        let mut handshake = Handshake::new(wish);
        let mut input = Vec::new();
        let connected = loop {
            let mut output = Vec::new();
            let (used, step) = handshake.feed(&input, &mut output);
            input.drain(..used);
            stream.write_all(&output).map_err(complain)?;
            match step {
                Step::Ready(connected) => break connected,
                Step::Failed(error) => return Err(error.to_string()),
                Step::More => receive(&mut stream, &mut input)?,
            }
        };
        let mut noise = vec![0; 1 << 20];
        Noise(1).fill(&mut noise);
        let session = Session::new(connected.framing, connected.allocation);
        Ok(Self { stream, session, input, next_cookie: 1, noise })
    }

    fn submit(&mut self, command: Command, offset: u64, length: usize) -> Result<(), String> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = Request { flags: 0, command, cookie, offset, length: length as u64 };
        let head = self.session.submit(&request).map_err(|error| format!("{error:?}"))?;
        let data = if command == Command::Write { &self.noise[..length] } else { &[] };
        let message = [&head[..], data].concat();
        self.stream.write_all(&message).map_err(|error| format!("sending: {error}"))
    }

    /// Waits until one more request is answered, and says which.
    fn wait(&mut self) -> Result<u64, String> {
        loop {
            let (used, event) = self.session.feed(&self.input).map_err(|error| error.to_string())?;
            self.input.drain(..used);
            match event {
                Event::Done { cookie, result } => {
                    let failed = |error| format!("a request failed: {error:?}");
                    return result.map(|()| cookie).map_err(failed);
                }
                Event::More(_) => receive(&mut self.stream, &mut self.input)?,
                other => return Err(format!("an unexpected reply: {other:?}")),
            }
        }
    }

    /// Writes `load` at `start` and flushes; says how many bytes a second that made.
    pub(crate) fn write(&mut self, load: &Load, start: u64, length: u64) -> Result<f64, String> {
        let places = load.places(start, length);
        let watch = Watch::start();
        for (index, offset) in places.iter().enumerate() {
            if index >= load.depth {
                self.wait()?;
            }
            self.submit(Command::Write, *offset, load.block)?;
        }
        for _ in 0..places.len().min(load.depth) {
            self.wait()?;
        }
        self.submit(Command::Flush, 0, 0)?;
        self.wait()?;
        Ok((places.len() * load.block) as f64 / watch.seconds())
    }

    /// Discards `length` bytes at each of `places`, `depth` at a time.
    pub(crate) fn trim(
        &mut self,
        places: impl Iterator<Item = u64>,
        length: usize,
        depth: usize,
    ) -> Result<(), String> {
        let mut flying = 0;
        for place in places {
            if flying == depth {
                self.wait()?;
                flying -= 1;
            }
            self.submit(Command::Trim, place, length)?;
            flying += 1;
        }
        (0..flying).try_for_each(|_| self.wait().map(drop))
    }

    /// Writes `block` bytes to random places of the first `length` bytes, `depth` at a time, until `stop` says so;
    /// returns how many microseconds each took.
    pub(crate) fn write_until(
        &mut self,
        block: usize,
        depth: usize,
        length: u64,
        stop: &AtomicBool,
    ) -> Result<Vec<f64>, String> {
        let (mut places, mut latencies) = (Noise(20_060_810), Vec::new());
        let mut flying = HashMap::new();
        while !stop.load(Ordering::Relaxed) || !flying.is_empty() {
            while flying.len() < depth && !stop.load(Ordering::Relaxed) {
                flying.insert(self.next_cookie, Watch::start());
                let place = places.next() % (length / block as u64) * block as u64;
                self.submit(Command::Write, place, block)?;
            }
            if !flying.is_empty() {
                let cookie = self.wait()?;
                let watch = flying.remove(&cookie).ok_or("an answer that nobody waits for")?;
                latencies.push(watch.seconds() * 1e6);
            }
        }
        Ok(latencies)
    }
}

fn receive(stream: &mut UnixStream, input: &mut Vec<u8>) -> Result<(), String> {
    let mut space = [0; 4096];
    match stream.read(&mut space) {
        Ok(0) => Err("the server closed the connection".to_owned()),
        Ok(count) => {
            input.extend_from_slice(&space[..count]);
            Ok(())
        }
        Err(error) => Err(format!("receiving: {error}")),
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server notices a closed connection too; this is only the polite way.
        let _ = self.submit(Command::Disconnect, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first_touch::{CHUNK, LOADS};
    use crate::peers::{Cache, Peer};
    use crate::place::Place;

    /// Against nbdkit, where it is installed.
    #[test]
    fn every_place_is_written_once_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let file = place.file("disk", 8 << 20).expect("a file");
        let before = std::fs::read(&file).expect("a file");
        let server = match Peer::Nbdkit.start(Cache::Buffered, &file, place.path()) {
            Ok((server, _)) => server,
            Err(reason) => return assert_eq!(reason, "not installed"),
        };
        let mut client = Client::connect(&place.path().join("nbdkit.sock")).expect("a connection");
        let (start, length) = (1 << 20, 4 << 20);
        let speed = client.write(&LOADS[2], start, length).expect("written");
        assert!(speed > 0.0);
        drop((client, server));
        let after = std::fs::read(&file).expect("a file");
        let mut noise = vec![0; LOADS[2].block];
        Noise(1).fill(&mut noise);
        let changed: Vec<u64> = (0..after.len() / 4096)
            .filter(|block| before[block * 4096..][..4096] != after[block * 4096..][..4096])
            .map(|block| block as u64 * 4096)
            .collect();
        let mut places = LOADS[2].places(start, length);
        places.sort_unstable();
        assert_eq!(changed, places);
        assert_eq!(changed.len() as u64, length / CHUNK);
        assert!(
            changed.iter().all(|at| after[usize::try_from(*at).expect("an index")..].starts_with(&noise))
        );
    }
}
