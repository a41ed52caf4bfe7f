//! A plain NBD client that does what no general load generator can do: it writes a given list of places once, times
//! single requests beside a flood, and floods.

use crate::first_touch::Load;
use crate::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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
    /// What is not looked at is received here.
    scratch: Vec<u8>,
}

impl Client {
    /// Connects to the export that is alone behind `socket`.
    pub(crate) fn connect(socket: &Path) -> Outcome<Self> {
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
                Step::Failed(error) => return Err(error.into()),
                Step::More => receive(&mut stream, &mut input)?,
            }
        };
        let mut noise = vec![0; 1 << 20];
        Noise(1).fill(&mut noise);
        let session = Session::new(connected.framing, connected.allocation);
        Ok(Self { stream, session, input, next_cookie: 1, noise, scratch: vec![0; 256 << 10] })
    }

    /// The head of the next request.
    fn head(&mut self, command: Command, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = Request { flags: 0, command, cookie, offset, length: length as u64 };
        Ok(self.session.submit(&request).map_err(|error| format!("{error:?}"))?.to_vec())
    }

    fn submit(&mut self, command: Command, offset: u64, length: usize) -> Outcome<()> {
        let head = self.head(command, offset, length)?;
        let data = if command == Command::Write { &self.noise[..length] } else { &[] };
        let message = [&head[..], data].concat();
        self.send(&message)
    }

    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.stream.write_all(message).of("sending")
    }

    /// The next request that is answered by what has been received.
    fn answered(&mut self) -> Outcome<Option<u64>> {
        loop {
            let (used, event) = self.session.feed(&self.input)?;
            self.input.drain(..used);
            match event {
                Event::Done { cookie, result } => {
                    result.map_err(|error| format!("a request failed: {error:?}"))?;
                    return Ok(Some(cookie));
                }
                Event::More(_) => return Ok(None),
                Event::Data { length, .. } => self.skip(length)?,
                other => return Err(format!("an unexpected reply: {other:?}").into()),
            }
        }
    }

    /// Waits until one more request is answered, and says which.
    fn wait(&mut self) -> Outcome<u64> {
        loop {
            if let Some(cookie) = self.answered()? {
                return Ok(cookie);
            }
            receive(&mut self.stream, &mut self.input)?;
        }
    }

    /// Takes `length` bytes of a read and forgets them.
    fn skip(&mut self, length: u64) -> Outcome<()> {
        let mut left = usize::try_from(length).expect("a read's length is an index");
        loop {
            let there = left.min(self.input.len());
            self.input.drain(..there);
            left -= there;
            if left == 0 {
                return Ok(());
            }
            if left < self.scratch.len() {
                receive(&mut self.stream, &mut self.input)?;
            } else {
                left -= read_some(&mut self.stream, &mut self.scratch)?;
            }
        }
    }

    /// Reads `length` bytes at each of `places`, one after the other, until `duration` is over; says how many microseconds
    /// each read took.
    pub(crate) fn read_alone(
        &mut self,
        mut places: impl Iterator<Item = u64>,
        length: usize,
        duration: Duration,
    ) -> Outcome<Vec<f64>> {
        let (mut latencies, watch) = (Vec::new(), Watch::start());
        while watch.elapsed() < duration {
            let start = Watch::start();
            self.submit(Command::Read, places.next().unwrap_or(0), length)?;
            self.wait()?;
            latencies.push(start.seconds() * 1e6);
        }
        Ok(latencies)
    }

    /// Keeps `depth` requests of `length` bytes in flight until `stop` says so, and counts them; new ones are sent together
    /// with all others that there is room for.
    pub(crate) fn flood(
        &mut self,
        (command, length, depth): (Command, usize, usize),
        mut places: impl Iterator<Item = u64>,
        stop: &AtomicBool,
    ) -> Outcome<u64> {
        let data = if command == Command::Write { vec![0x5a; length] } else { Vec::new() };
        let (mut flying, mut done, mut message) = (0, 0, Vec::new());
        loop {
            let stopped = stop.load(Ordering::Relaxed);
            if stopped && flying == 0 {
                return Ok(done);
            }
            while !stopped && flying < depth {
                message.extend(self.head(command, places.next().unwrap_or(0), length)?);
                if data.len() >= self.scratch.len() {
                    self.send(&message)?;
                    message.clear();
                    self.send(&data)?;
                } else {
                    message.extend_from_slice(&data);
                }
                flying += 1;
            }
            self.send(&message)?;
            message.clear();
            let answered = self.take_answers()?;
            flying -= answered;
            done += answered as u64;
        }
    }

    /// Waits for at least one answer, takes all that have come, and says how many they are.
    fn take_answers(&mut self) -> Outcome<usize> {
        self.wait()?;
        let mut answered = 1;
        while self.answered()?.is_some() {
            answered += 1;
        }
        Ok(answered)
    }

    /// Writes `load` at `start` and flushes; says how many bytes a second that made.
    pub(crate) fn write(&mut self, load: &Load, start: u64, length: u64) -> Outcome<f64> {
        let (places, watch) = (load.places(start, length), Watch::start());
        self.write_places(places.iter().copied(), load.block, load.depth)?;
        self.flush()?;
        Ok((places.len() * load.block) as f64 / watch.seconds())
    }

    /// Writes `length` bytes at each of `places`, `depth` at a time.
    pub(crate) fn write_places(
        &mut self,
        places: impl Iterator<Item = u64>,
        length: usize,
        depth: usize,
    ) -> Outcome<()> {
        let mut flying = 0;
        for place in places {
            if flying == depth {
                self.wait()?;
                flying -= 1;
            }
            self.submit(Command::Write, place, length)?;
            flying += 1;
        }
        (0..flying).try_for_each(|_| self.wait().map(drop))
    }

    /// Makes all that was written durable.
    pub(crate) fn flush(&mut self) -> Outcome<()> {
        self.submit(Command::Flush, 0, 0)?;
        self.wait().map(drop)
    }

    /// Waits until one more request is answered, but no longer than `patience`; says which.
    fn wait_a_while(&mut self, patience: Duration) -> Outcome<Option<u64>> {
        if let Some(cookie) = self.answered()? {
            return Ok(Some(cookie));
        }
        let timeout = Timespec::try_from(patience).map_err(|_| "patience without end")?;
        let mut streams = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut streams, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) => receive(&mut self.stream, &mut self.input).map(|()| None),
            Err(error) => Err(format!("waiting: {error}").into()),
        }
    }

    /// Writes `block` bytes to a random place of the first `length` bytes each `period`, whether the earlier writes are
    /// answered or not, until `stop` says so; returns by how many microseconds each was done after it was due.
    pub(crate) fn write_until(
        &mut self,
        block: usize,
        period: Duration,
        length: u64,
        stop: &AtomicBool,
    ) -> Outcome<Vec<f64>> {
        let (mut places, mut latencies, mut flying) = (Noise(20_060_810), Vec::new(), HashMap::new());
        let (watch, mut due) = (Watch::start(), Duration::ZERO);
        loop {
            let stopped = stop.load(Ordering::Relaxed);
            if stopped && flying.is_empty() {
                return Ok(latencies);
            }
            while !stopped && due <= watch.elapsed() && flying.len() < FLYING_MAX {
                flying.insert(self.next_cookie, due);
                let place = places.next() % (length / block as u64) * block as u64;
                self.submit(Command::Write, place, block)?;
                due += period;
            }
            let patience = due.saturating_sub(watch.elapsed()).max(Duration::from_micros(10));
            if let Some(cookie) = self.wait_a_while(patience)? {
                let due = flying.remove(&cookie).ok_or("an answer that nobody waits for")?;
                latencies.push((watch.elapsed() - due).as_secs_f64() * 1e6);
            }
        }
    }
}

/// Most writes that wait for an answer: less than the sockets hold, so that neither side waits for the other to read.
const FLYING_MAX: usize = 16;

fn receive(stream: &mut UnixStream, input: &mut Vec<u8>) -> Outcome<()> {
    let mut space = [0; 16 << 10];
    let count = read_some(stream, &mut space)?;
    input.extend_from_slice(&space[..count]);
    Ok(())
}

fn read_some(stream: &mut UnixStream, space: &mut [u8]) -> Outcome<usize> {
    let count = stream.read(space).of("receiving")?;
    if count == 0 { Err("the server closed the connection".into()) } else { Ok(count) }
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
    use crate::programs::peers::{Cache, Peer};
    use crate::programs::place::Place;

    /// Against nbdkit, where it is installed: an open load writes what is due and nothing else, and ends on command.
    #[test]
    fn an_open_load_keeps_its_time() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let file = place.file("disk", 1 << 20).expect("a file");
        let _server = match Peer::Nbdkit.start(Cache::Buffered, &file, place.path()) {
            Ok((server, _)) => server,
            Err(reason) => return assert_eq!(reason.0, "not installed"),
        };
        let mut client = Client::connect(&place.path().join("nbdkit.sock")).expect("a connection");
        let (stop, watch) = (AtomicBool::new(false), Watch::start());
        let latencies = std::thread::scope(|scope| {
            let writer = scope.spawn(|| client.write_until(4096, Duration::from_millis(2), 1 << 20, &stop));
            pause(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("no panic").expect("written")
        });
        let most = watch.seconds() * 500.0 + 2.0;
        assert!(latencies.len() > 5 && (latencies.len() as f64) < most, "{}", latencies.len());
        assert!(latencies.iter().all(|latency| *latency > 0.0));
    }

    /// Against nbdkit, where it is installed.
    #[test]
    fn every_place_is_written_once_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let place = Place::new(parent.path(), 1 << 20).expect("a place");
        let file = place.file("disk", 8 << 20).expect("a file");
        let before = std::fs::read(&file).expect("a file");
        let server = match Peer::Nbdkit.start(Cache::Buffered, &file, place.path()) {
            Ok((server, _)) => server,
            Err(reason) => return assert_eq!(reason.0, "not installed"),
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
