//! A machine that is connected: its messages, answered; its memory and its queues, as it sets them up.
//!
//! Invariant VSESSION1: when a session has ended none of its queues is served, and nothing of it is in flight.

use super::config::{PROTOCOL_FEATURES, QUEUES_MAX, RING_EVENTS, RING_INDIRECT, features, part};
use super::connection::{Connection, End, Received, send};
use super::in_flight::{self, InFlightMemory};
use super::memory::{Memory, REGIONS_MAX};
use super::message::{self, InFlightArea, Message, QueueAddresses, protocol};
use super::queue::{Bells, Machine, Queue};
use super::ring::{Ring, SIZE_MAX};
use crate::bell::{Bell, Spawn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

/// What an answer carries.
struct Reply {
    body: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// What is known of a queue.
#[derive(Default)]
struct Setup {
    size: u16,
    addresses: Option<QueueAddresses>,
    base: u16,
    is_enabled: bool,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    served: Option<Arc<Queue>>,
}

/// A session.
pub(super) struct Session<'a> {
    connection: &'a Connection<'a>,
    machine: Arc<Machine>,
    spawn: Spawn,
    features: u64,
    protocol: u64,
    queues: Vec<Setup>,
    in_flight: Option<InFlightMemory>,
    /// Where messages from here go.
    channel: Option<OwnedFd>,
}

fn refused(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

fn number(value: u64) -> Option<Reply> {
    Some(Reply { body: value.to_le_bytes().to_vec(), descriptor: None })
}

fn single(mut descriptors: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    match (descriptors.pop(), descriptors.is_empty()) {
        (Some(descriptor), true) => Ok(descriptor),
        _ => Err(refused("the message comes with one descriptor")),
    }
}

impl<'a> Session<'a> {
    /// Nothing is set up yet.
    pub(super) fn new(connection: &'a Connection<'a>, machine: Arc<Machine>, spawn: Spawn) -> Self {
        Self {
            connection,
            machine,
            spawn,
            features: 0,
            protocol: 0,
            queues: Vec::new(),
            in_flight: None,
            channel: None,
        }
    }

    /// Answers one message, which has begun to come.
    pub(super) fn answer_next(&mut self) -> Result<(), End> {
        let Received { header, message, descriptors } = self.connection.receive()?;
        let wants_reply = header.needs_reply && self.protocol & protocol::REPLY_ACK != 0;
        let handled = self.handle(message, descriptors);
        match handled {
            Ok(Some(Reply { body, descriptor })) => {
                let reply = message::reply(header.kind, &body);
                self.connection.send(&reply, descriptor.as_ref().map(AsFd::as_fd))
            }
            Ok(None) if wants_reply => {
                self.connection.send(&message::reply(header.kind, &0_u64.to_le_bytes()), None)
            }
            Ok(None) => Ok(()),
            Err(error) if wants_reply => {
                tracing::warn!(target: "varve::vhost", socket = %self.machine.path.display(), %error,
                    "message {} was refused", header.kind);
                self.connection.send(&message::reply(header.kind, &1_u64.to_le_bytes()), None)
            }
            Err(error) => Err(End::Failed(format!("message {}: {error}", header.kind))),
        }
    }

    fn handle(&mut self, message: Message, descriptors: Vec<OwnedFd>) -> io::Result<Option<Reply>> {
        match message {
            Message::GetFeatures => return Ok(number(features(self.machine.requests.shape()))),
            Message::GetProtocolFeatures => return Ok(number(protocol::ALL)),
            Message::GetQueueCount => return Ok(number(QUEUES_MAX.into())),
            Message::GetMemorySlots => return Ok(number(REGIONS_MAX as u64)),
            Message::GetConfig { offset, length, flags } => {
                let content = part(self.machine.requests.shape(), offset, length).unwrap_or_default();
                let body = message::config(offset, flags, &content);
                return Ok(Some(Reply { body, descriptor: None }));
            }
            Message::GetInFlight { area, length } => return self.make_in_flight(area, length).map(Some),
            Message::GetQueueBase { queue } => {
                let base = self.stop(queue)?;
                let setup = self.setup(queue)?;
                setup.kick = None;
                let body = message::queue_base(queue, base);
                return Ok(Some(Reply { body, descriptor: None }));
            }
            Message::SetOwner => {}
            Message::SetFeatures(acked) => {
                if acked & !features(self.machine.requests.shape()) != 0 {
                    return Err(refused("it wants features that were not offered"));
                }
                self.features = acked;
            }
            Message::SetProtocolFeatures(acked) => self.protocol = acked & protocol::ALL,
            Message::ResetOwner | Message::ResetDevice => self.reset(),
            Message::SetInFlight(area) => {
                self.in_flight = Some(InFlightMemory::map(area, single(descriptors)?)?);
            }
            Message::SetBackendChannel => self.channel = Some(single(descriptors)?),
            Message::SetConfig => return Err(refused("nothing of the configuration can be written")),
            Message::Other(kind) => return Err(refused(&format!("message {kind} was not offered"))),
            Message::SetMemory(_) | Message::AddRegion(_) | Message::RemoveRegion(_) => {
                self.set_memory(message, descriptors)?;
            }
            Message::SetQueueSize { .. }
            | Message::SetQueueAddresses { .. }
            | Message::SetQueueBase { .. }
            | Message::SetKick { .. }
            | Message::SetCall { .. }
            | Message::SetError { .. }
            | Message::EnableQueue { .. } => self.set_queue(message, descriptors)?,
        }
        Ok(None)
    }

    fn set_memory(&self, message: Message, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let memory = match message {
            Message::SetMemory(regions) => {
                if regions.len() != descriptors.len() {
                    return Err(refused("each region of memory comes with a descriptor"));
                }
                let mut pairs = regions.into_iter().zip(descriptors);
                pairs.try_fold(Memory::default(), |memory, (region, file)| memory.with(region, file))?
            }
            Message::AddRegion(region) => self.machine.memory().with(region, single(descriptors)?)?,
            Message::RemoveRegion(region) => {
                let without = self.machine.memory().without(region);
                without.ok_or_else(|| refused("there is no such region of memory"))?
            }
            other => unreachable!("{other:?} is no message about memory"),
        };
        *self.machine.memory.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(memory);
        Ok(())
    }

    fn set_queue(&mut self, message: Message, mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut descriptor = |is_there: bool| match is_there {
            true => single(std::mem::take(&mut descriptors)).map(Some),
            false => Ok(None),
        };
        match message {
            Message::SetQueueSize { queue, size } => {
                let size = u16::try_from(size).ok();
                let size = size.filter(|size| size.is_power_of_two() && *size <= SIZE_MAX);
                self.idle(queue)?.size = size.ok_or_else(|| refused("a queue has no such size"))?;
            }
            Message::SetQueueAddresses { queue, addresses } => {
                self.idle(queue)?.addresses = Some(addresses);
            }
            Message::SetQueueBase { queue, base } => {
                let base = u16::try_from(base).map_err(|_| refused("an index has 16 bits"))?;
                self.idle(queue)?.base = base;
            }
            Message::SetCall { queue, has_descriptor } => {
                let call = descriptor(has_descriptor)?;
                let setup = self.setup(queue)?;
                if let Some(served) = &setup.served {
                    served.set_call(bell(call.as_ref())?);
                }
                setup.call = call;
            }
            Message::SetError { queue, has_descriptor } => {
                self.setup(queue)?.error = descriptor(has_descriptor)?;
            }
            Message::SetKick { queue, has_descriptor } => {
                let kick = descriptor(has_descriptor)?;
                let kick = kick.ok_or_else(|| refused("a queue without a kick is not served"))?;
                let base = self.stop(queue)?;
                let setup = self.setup(queue)?;
                (setup.kick, setup.base) = (Some(kick), base);
                self.start(queue)?;
            }
            Message::EnableQueue { queue, enable } => {
                self.setup(queue)?.is_enabled = enable;
                match enable {
                    true => self.start(queue)?,
                    false => self.setup(queue)?.base = self.stop(queue)?,
                }
            }
            other => unreachable!("{other:?} is no message about a queue"),
        }
        Ok(())
    }

    fn setup(&mut self, queue: u32) -> io::Result<&mut Setup> {
        let index = usize::try_from(queue).ok().filter(|index| *index < usize::from(QUEUES_MAX));
        let index = index.ok_or_else(|| refused("there is no such queue"))?;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Setup::default);
        }
        Ok(&mut self.queues[index])
    }

    /// A queue that is not served.
    fn idle(&mut self, queue: u32) -> io::Result<&mut Setup> {
        let setup = self.setup(queue)?;
        if setup.served.is_some() { Err(refused("the queue is in use")) } else { Ok(setup) }
    }

    /// Has a queue served, once all of it is known.
    fn start(&mut self, queue: u32) -> io::Result<()> {
        let needs_enabling = self.features & PROTOCOL_FEATURES != 0;
        let (features, spawn) = (self.features, self.spawn);
        let (machine, in_flight) = (Arc::clone(&self.machine), self.in_flight.clone());
        let setup = self.setup(queue)?;
        let is_enabled = setup.is_enabled || !needs_enabling;
        let (Some(kick), Some(addresses), true, None) =
            (&setup.kick, setup.addresses, is_enabled && setup.size > 0, &setup.served)
        else {
            return Ok(());
        };
        let memory = machine.memory();
        let guest = |user: u64| {
            let address = memory.guest_address(user);
            address.map_err(|_| refused("a queue is outside of the machine's memory"))
        };
        let ring = Ring {
            size: setup.size,
            descriptors: guest(addresses.descriptors)?,
            available: guest(addresses.available)?,
            used: guest(addresses.used)?,
            has_events: features & RING_EVENTS != 0,
            has_indirect: features & RING_INDIRECT != 0,
        };
        let number = u16::try_from(queue).expect("at most QUEUES_MAX");
        let marks = in_flight.map(|memory| {
            let marks = memory.queue(number, setup.size);
            marks.ok_or_else(|| refused("the memory for what is in flight has no such queue"))
        });
        let bells = Bells {
            kick: Bell::of(kick.try_clone()?)?,
            call: bell(setup.call.as_ref())?,
            error: bell(setup.error.as_ref())?,
        };
        let from = (setup.base, marks.transpose()?);
        setup.served = Some(Queue::start(&machine, number, ring, bells, from, spawn)?);
        Ok(())
    }

    /// Has a queue served no more (VQUEUE2 of `queue.rs`); where it goes on.
    fn stop(&mut self, queue: u32) -> io::Result<u16> {
        let setup = self.setup(queue)?;
        if let Some(served) = setup.served.take() {
            setup.base = served.stop();
        }
        Ok(setup.base)
    }

    fn reset(&mut self) {
        self.stop_all();
        self.queues.clear();
    }

    /// No queue is served, and nothing is in flight, afterwards (VSESSION1).
    fn stop_all(&mut self) {
        for queue in 0..QUEUES_MAX.min(u16::try_from(self.queues.len()).unwrap_or(QUEUES_MAX)) {
            let _ = self.stop(queue.into()); // It is one of them.
        }
    }

    fn make_in_flight(&self, wanted: InFlightArea, length: usize) -> io::Result<Reply> {
        if wanted.queues == 0
            || wanted.queues > QUEUES_MAX
            || wanted.queue_size == 0
            || wanted.queue_size > SIZE_MAX
        {
            return Err(refused("there are no such queues"));
        }
        let (area, file) = in_flight::make(wanted.queues, wanted.queue_size)?;
        Ok(Reply { body: message::in_flight(area, length), descriptor: Some(file) })
    }

    /// Tells the machine that its disk has another size.
    pub(super) fn tell_change(&self) {
        let Some(channel) = &self.channel else { return };
        // A machine that does not read learns the size when it asks.
        let sent = send(channel, &message::config_changed(), None, || Err(End::Left));
        tracing::debug!(target: "varve::vhost", socket = %self.machine.path.display(), ?sent, "told of the size");
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn bell(descriptor: Option<&OwnedFd>) -> io::Result<Option<Bell>> {
    descriptor.map(|descriptor| Bell::of(descriptor.try_clone()?)).transpose()
}
