//! An engine that does one thing after the other and keeps no answers, to try a mapper with.

use crate::Decoder;
use crate::wire::{Extent, Hello, Intent, Message, Numbered, Place, Status, ToEngine, ToMapper, Welcome};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

/// The engine's side of a connection.
pub struct Engine {
    stream: UnixStream,
    decoder: Decoder,
    files: VecDeque<OwnedFd>,
    /// Files that the mapper registered, and whether they may be written.
    devices: BTreeMap<u32, (File, bool)>,
    welcome: Welcome,
    last_number: u64,
    /// What was answered to writes, or trimmed, since the last flush.
    held: Vec<Extent>,
}

impl Engine {
    /// Says hello to a mapper, and what of an earlier connection holds.
    pub fn connect(stream: UnixStream, volume: &str, size: u64, held: &[Extent]) -> io::Result<Self> {
        let mut engine = Self {
            stream,
            decoder: Decoder::default(),
            files: VecDeque::new(),
            devices: BTreeMap::new(),
            welcome: Welcome::default(),
            last_number: 0,
            held: held.to_vec(),
        };
        engine.send(&ToMapper::Hello(Hello {
            volume: volume.to_owned(),
            size,
            block_size: 4096,
            held: u32::try_from(held.len()).map_err(io::Error::other)?,
            devices: Vec::new(),
        }))?;
        for chunk in held.chunks(crate::wire::EXTENTS_MAX) {
            engine.send(&ToMapper::Held(chunk.to_vec()))?;
        }
        loop {
            match engine.receive()?.message {
                ToEngine::Device { number, is_writable } => {
                    let file =
                        engine.files.pop_front().ok_or_else(|| unfit("a device without a descriptor"))?;
                    engine.devices.insert(number, (File::from(file), is_writable));
                }
                ToEngine::Welcome(welcome) => {
                    engine.welcome = welcome;
                    return Ok(engine);
                }
                _ => return Err(unfit("something before the welcome")),
            }
        }
    }

    /// What the mapper said of itself.
    pub fn welcome(&self) -> Welcome {
        self.welcome
    }

    /// What holds although it was not flushed: to be reported to the next connection.
    pub fn held(&self) -> &[Extent] {
        &self.held
    }

    /// Where a range is.
    pub fn ask(&mut self, offset: u64, length: u64, intent: Intent) -> io::Result<Vec<Extent>> {
        let number = self.send(&ToMapper::Map { offset, length, intent })?;
        match self.answer(number)? {
            ToEngine::Mapped(extents) => Ok(extents),
            _ => Err(unfit("no mapping")),
        }
    }

    /// Fills `bytes` from `offset` on.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let extents = self.ask(at, (bytes.len() - done) as u64, Intent::Read)?;
            let extent = *covering(&extents, at)?;
            let length = usize::try_from(extent.offset + extent.length - at).unwrap_or(usize::MAX);
            let rest = &mut bytes[done..];
            let length = length.min(rest.len());
            let part = &mut rest[..length];
            match extent.place {
                Place::Zero => part.fill(0),
                Place::Data { device, offset } => {
                    read_file(self.device(device)?, offset + (at - extent.offset), part)?;
                }
                Place::Error | Place::Copy { .. } => return Err(unfit("no place to read from")),
            }
            done += part.len();
        }
        Ok(())
    }

    /// Writes `data` at `offset`, after what the mapper wants copied first.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let extents = self.ask(at, (data.len() - done) as u64, Intent::Write)?;
            covering(&extents, at)?;
            for extent in extents {
                if let Place::Copy { device, offset, from } = extent.place {
                    self.copy(device, offset, from, extent.length)?;
                }
                self.hold(extent);
                let start = extent.offset.max(at);
                let end = (extent.offset + extent.length).min(offset + data.len() as u64);
                let (Place::Data { device, offset: there } | Place::Copy { device, offset: there, .. }) =
                    extent.place
                else {
                    return Err(unfit("no place to write to"));
                };
                if start < end && start == offset + done as u64 {
                    let part = &data[done..][..usize::try_from(end - start).map_err(io::Error::other)?];
                    self.writable(device)?.write_all_at(part, there + (start - extent.offset))?;
                    done += part.len();
                }
            }
        }
        Ok(())
    }

    /// Frees a range, which the mapper's trim unit divides.
    pub fn trim(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let number = self.send(&ToMapper::Trim { offset, length })?;
        self.expect(number, &ToEngine::Trimmed(Status::Done))?;
        self.held.push(Extent::new(offset, length, Place::Zero));
        Ok(())
    }

    /// Makes all data durable, and then has the mapper make its mapping durable.
    pub fn flush(&mut self) -> io::Result<()> {
        for (file, is_writable) in self.devices.values() {
            if *is_writable {
                file.sync_data()?;
            }
        }
        let number = self.send(&ToMapper::Flush)?;
        self.expect(number, &ToEngine::Flushed(Status::Done))?;
        self.held.clear();
        Ok(())
    }

    /// Tells the mapper that a part of an answer does not hold.
    pub fn fail(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.send(&ToMapper::Failed { offset, length }).map(drop)
    }

    fn hold(&mut self, extent: Extent) {
        if let Place::Data { device, offset } | Place::Copy { device, offset, .. } = extent.place {
            self.held.push(Extent { place: Place::Data { device, offset }, ..extent });
        }
    }

    fn copy(&self, device: u32, offset: u64, from: Option<(u32, u64)>, length: u64) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let mut piece = vec![0; usize::try_from(PIECE.min(length - done)).map_err(io::Error::other)?];
            if let Some((source, start)) = from {
                read_file(self.device(source)?, start + done, &mut piece)?;
            }
            self.writable(device)?.write_all_at(&piece, offset + done)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    fn device(&self, number: u32) -> io::Result<&File> {
        self.devices
            .get(&number)
            .map(|(file, _)| file)
            .ok_or_else(|| unfit("a device that is not registered"))
    }

    fn writable(&self, number: u32) -> io::Result<&File> {
        match self.devices.get(&number) {
            Some((file, true)) => Ok(file),
            _ => Err(unfit("a device that may not be written")),
        }
    }

    fn expect(&mut self, number: u64, wanted: &ToEngine) -> io::Result<()> {
        if self.answer(number)? == *wanted { Ok(()) } else { Err(unfit("that it failed")) }
    }

    /// The answer to message `number`; what the mapper tells unasked is not kept.
    fn answer(&mut self, number: u64) -> io::Result<ToEngine> {
        loop {
            let Numbered { id, message } = self.receive()?;
            match message {
                ToEngine::Mapped(_) if id == 0 => {}
                _ if id == number => return Ok(message),
                _ => return Err(unfit("something that answers no question")),
            }
        }
    }

    fn send(&mut self, message: &ToMapper) -> io::Result<u64> {
        self.last_number += 1;
        let mut bytes = Vec::new();
        message.encode(self.last_number, &mut bytes);
        self.stream.write_all(&bytes).map(|()| self.last_number)
    }

    fn receive(&mut self) -> io::Result<Numbered<ToEngine>> {
        loop {
            if let Some(message) = self.decoder.take().map_err(io::Error::other)? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let received =
                rustix::net::recvmsg(&self.stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.files.extend(files);
                }
            }
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.decoder.push(&bytes[..received.bytes]);
        }
    }
}

fn covering(extents: &[Extent], at: u64) -> io::Result<&Extent> {
    let found = extents.iter().find(|extent| extent.offset <= at && at - extent.offset < extent.length);
    found.ok_or_else(|| unfit("an answer without the byte that was asked for"))
}

/// Fills `bytes`; behind the file's end are zeros.
fn read_file(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    bytes[done..].fill(0);
    Ok(())
}

fn unfit(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the mapper sent {what}"))
}
