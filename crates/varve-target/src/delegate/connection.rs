//! The connection to the mapper: made again whenever it is lost.

use super::link::{Connector, Link};
use super::options::InjectedBug;
use super::question::Connection;
use super::question::send;
use super::range_map::{Place, Target};
use super::state::State;
use futures_util::StreamExt;
use futures_util::future::{Either, pending, select};
use futures_util::stream::FuturesUnordered;
use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Extent};
use varve_mapper::Decoder;
use varve_mapper::wire::{
    self, DEVICES_MAX, EXTENTS_MAX, GivenDevice, Hello, Numbered, ToEngine, ToMapper, Welcome,
};

/// Between attempts to connect: this long, and twice as long each time, up to the other.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Most invalidations that wait for requests under way.
const INVALIDATIONS_MAX: usize = 256;

/// Why a connection ended, for the log.
type Ended = String;

/// What came and was not looked at.
struct Input {
    link: Rc<dyn Link>,
    decoder: Decoder,
    devices: VecDeque<Device>,
}

impl Input {
    async fn next(&mut self) -> Result<Numbered<ToEngine>, Ended> {
        loop {
            if let Some(message) = self.decoder.take().map_err(|error| error.to_string())? {
                return Ok(message);
            }
            let received = self.link.receive().await.map_err(|_| "the connection was lost".to_owned())?;
            self.decoder.push(&received.bytes);
            self.devices.extend(received.devices);
            if self.devices.len() > DEVICES_MAX as usize {
                return Err("the mapper sent too many descriptors".to_owned());
            }
        }
    }
}

impl State {
    /// Connects, and listens to the mapper, again and again; never ends.
    pub(super) async fn keep_connected(&self, connector: &dyn Connector) {
        let mut pause = PAUSE.0;
        loop {
            if let Ok(link) = connector.connect().await {
                let begun = self.clock.now();
                let ended = self.converse(Rc::from(link)).await;
                tracing::warn!(volume = %self.options.name, reason = %ended, "the mapper is away");
                self.ended.replace(Some(ended));
                let has_lasted = self.clock.now().since(begun) >= PAUSE.1;
                if self.lose_connection() && has_lasted {
                    pause = PAUSE.0; // One that ends at once again and again is not asked more often.
                }
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Greets the mapper and does what it says, until the connection is lost.
    async fn converse(&self, link: Rc<dyn Link>) -> Ended {
        let mut input = Input { link, decoder: Decoder::default(), devices: VecDeque::new() };
        let connection = match self.greet(&mut input).await {
            Ok(connection) => connection,
            Err(ended) => return ended,
        };
        tracing::info!(volume = %self.options.name, "the mapper is there");
        self.connection.replace(Some(connection.clone()));
        self.silent_since.set(None);
        self.has_failed.set(false);
        self.changed.notify_all();
        let mut drains = FuturesUnordered::new();
        loop {
            let waiting = drains.len();
            assert!(waiting <= INVALIDATIONS_MAX, "DELEGATE4: {waiting} invalidations wait");
            let next = async {
                // A mapper that invalidates without end is not listened to meanwhile.
                if waiting < INVALIDATIONS_MAX { input.next().await } else { pending().await }
            };
            let drained = async {
                if waiting == 0 { pending().await } else { drains.next().await.expect("one is there") }
            };
            let message = match select(pin!(next), pin!(drained)).await {
                Either::Left((message, _)) => message,
                Either::Right((number, _)) => {
                    send(&connection, number, &ToMapper::Invalidated);
                    continue;
                }
            };
            let Numbered { id, message } = match message {
                Ok(message) => message,
                Err(ended) => return ended,
            };
            match message {
                ToEngine::Invalidate { offset, length, access } => {
                    let end = offset.saturating_add(length).min(self.shape.size);
                    let extent = Extent::between(offset.min(end), end);
                    let extent = extent.align_out(u64::from(self.shape.block_size));
                    let drain = self.invalidate(extent, access);
                    let is_late = !self.has(InjectedBug::AcknowledgeAtOnce);
                    drains.push(async move {
                        if is_late {
                            drain.await;
                        }
                        id
                    });
                }
                other => {
                    if let Err(ended) = self.hear(&connection, &mut input, id, other) {
                        return ended;
                    }
                }
            }
        }
    }

    fn hear(
        &self,
        connection: &Connection,
        input: &mut Input,
        id: u64,
        message: ToEngine,
    ) -> Result<(), Ended> {
        let out_of_order = || Err("the mapper sent a message that does not fit here".to_owned());
        match message {
            ToEngine::Mapped(extents) => self.mapped(connection, id, &extents),
            ToEngine::Device { number, is_writable } => self.add_file(input, number, is_writable)?,
            ToEngine::Flushed(status) | ToEngine::Trimmed(status) => {
                if !self.status_came(id, status) {
                    return out_of_order();
                }
            }
            ToEngine::Welcome(_) | ToEngine::Invalidate { .. } => return out_of_order(),
        }
        Ok(())
    }

    /// Sends the hello and the answers that hold (DELEGATE6), and waits for the mapper's welcome.
    async fn greet(&self, input: &mut Input) -> Result<Connection, Ended> {
        // The copies of the last connection's answers end first, so that those that succeeded are reported.
        self.landing.drained().await;
        assert!(self.connection.borrow().is_none(), "DELEGATE6: one connection at a time");
        let given = u32::try_from(self.options.devices.len()).expect("few devices");
        self.targets.borrow_mut().retain(|number, _| *number < given);
        let held = if self.has(InjectedBug::ForgetHeld) { Vec::new() } else { self.held() };
        let mut bytes = Vec::new();
        let number = self.next_number();
        wire::Message::encode(&ToMapper::Hello(self.hello(held.len())), number, &mut bytes);
        for chunk in held.chunks(EXTENTS_MAX) {
            wire::Message::encode(&ToMapper::Held(chunk.to_vec()), number, &mut bytes);
        }
        input.link.send(bytes);
        let welcome = varve_block::timeout(&self.clock, self.options.answer_wait, self.welcomed(input)).await;
        let welcome = welcome.ok_or("the mapper does not answer the hello")??;
        self.is_persistent.set(welcome.is_persistent);
        if !welcome.keeps_answers {
            self.cache.borrow_mut().clear_flushed();
            self.drain().await;
        }
        Ok(Connection { link: Rc::clone(&input.link), number, welcome })
    }

    async fn welcomed(&self, input: &mut Input) -> Result<Welcome, Ended> {
        loop {
            match input.next().await?.message {
                ToEngine::Welcome(welcome) => {
                    let is_whole = welcome.trim_unit == 0 || welcome.trim_unit >= self.shape.block_size;
                    let refused = "the mapper's trim unit is smaller than a block".to_owned();
                    return if is_whole { Ok(welcome) } else { Err(refused) };
                }
                ToEngine::Device { number, is_writable } => self.add_file(input, number, is_writable)?,
                _ => return Err("the mapper sent something before it answered the hello".to_owned()),
            }
        }
    }

    fn hello(&self, held: usize) -> Hello {
        let device = |(name, device): &(String, Device)| GivenDevice {
            size: device.shape().size,
            is_writable: device.shape().access == varve_block::Access::ReadWrite,
            name: name.clone(),
        };
        Hello {
            volume: self.options.name.clone(),
            size: self.shape.size,
            block_size: self.shape.block_size,
            held: u32::try_from(held).expect("REMAP3: few ranges"),
            devices: self.options.devices.iter().map(device).collect(),
        }
    }

    fn held(&self) -> Vec<wire::Extent> {
        let held = self.cache.borrow().held();
        let said = |(extent, access, place): (Extent, wire::Access, Place)| {
            let place = match place {
                Place::Data { target, offset } => wire::Place::Data { device: target.number, offset },
                Place::Zero => wire::Place::Zero,
            };
            wire::Extent { access, ..wire::Extent::new(extent.offset, extent.length, place) }
        };
        held.into_iter().map(said).collect()
    }

    /// A file whose descriptor came from the mapper may be named from now on (DELEGATE1).
    fn add_file(&self, input: &mut Input, number: u32, is_writable: bool) -> Result<(), Ended> {
        let device = input.devices.pop_front().ok_or("a device came without a descriptor")?;
        let mut targets = self.targets.borrow_mut();
        if number >= DEVICES_MAX || targets.contains_key(&number) {
            return Err(format!("device {number} cannot be registered: the number is taken or too high"));
        }
        if device.shape().block_size > self.shape.block_size {
            return Err(format!("device {number} has larger blocks than the volume"));
        }
        let target = Target { number, device, is_writable, was_written: Cell::new(false) };
        let before = targets.insert(number, Rc::new(target));
        assert!(before.is_none(), "DELEGATE1: a number is one device");
        Ok(())
    }

    /// Sends a message about question `number` if the connection on which it was asked is there: a mapper that has come back
    /// since did not give that answer (DELEGATE8).
    pub(super) fn send(&self, number: u64, message: &ToMapper) {
        assert!(number <= self.last_number.get(), "DELEGATE8: the question was sent");
        if let Some(connection) = &*self.connection.borrow()
            && connection.number < number
        {
            send(connection, number, message);
        }
    }
}
