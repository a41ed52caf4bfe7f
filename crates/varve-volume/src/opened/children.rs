//! What a volume or pool has open, and what it is closed with: its gate, arrays, image and mapper.
//!
//! Invariants:
//! - OPENED1. What is open below a volume or pool belongs to it alone, and is closed or dropped with it: nothing else on the shard owns it.
//! - OPENED2. The shard finds what is open by its id from the beginning of the opening to the end of the closing.

use super::arrays::{Arrays, OpenArray};
use super::mappers::Mapper;
use super::open_images::OpenImage;
use crate::doors::gate::Gate;
use crate::host::Host;
use crate::lifecycle::health::{Health, drop_quietly};
use crate::spec::{Accepts, ActivationSpec, MapperDevice};
use futures_util::future::{AbortHandle, abortable};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use uuid::Uuid;
use varve_block::IoError;

/// What a volume or pool has open.
pub(crate) struct Opened {
    /// The volume or pool.
    pub(crate) id: Uuid,
    pub(crate) host: Host,
    /// Below all that is served of it.
    pub(crate) gate: Gate,
    /// Whether something in it has panicked.
    pub(crate) health: Health,
    /// As [`ActivationSpec::accepts`], until it is served.
    pub(crate) accepts: Cell<Accepts>,
    /// Its arrays, those of its stores included.
    pub(crate) arrays: Arrays,
    /// The image in which it is, if it is in one.
    pub(crate) image: RefCell<Option<OpenImage>>,
    /// The program that maps it, if one does.
    pub(crate) mapper: Mapper,
}

/// What is open on a shard, by the ids of the volumes and pools (OPENED2). It owns nothing (OPENED1).
#[derive(Default)]
pub(crate) struct Index(RefCell<BTreeMap<Uuid, Weak<Opened>>>);

impl Opened {
    /// Of a volume or pool that is taken into use; nothing is open yet.
    pub(crate) fn new(host: &Host, spec: &ActivationSpec, health: &Health) -> Rc<Self> {
        let imported = |device: &MapperDevice| (device.name.clone(), host.import(&device.portal));
        Rc::new(Self {
            id: spec.node.id,
            host: host.clone(),
            gate: Gate::default(),
            health: health.clone(),
            accepts: Cell::new(spec.accepts),
            arrays: Arrays::default(),
            image: RefCell::default(),
            mapper: Mapper::new(spec.devices.iter().map(imported).collect()),
        })
    }

    /// Runs `task`, a panic of which is the volume's, until its end or until it is aborted.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let (task, handle) = abortable(self.health.contain(Box::pin(task)));
        self.host.spawner().spawn(async move {
            let _ = task.await;
        });
        handle
    }

    /// Closes what is open, of which nothing is used any more; what was acknowledged is durable afterwards, unless an array says that it
    /// is not. Nothing gets through the gate from then on.
    pub(crate) async fn close(&self) -> Result<(), IoError> {
        let (volume, mut closed) = (self.id, Ok(()));
        for array in self.arrays.take() {
            closed = closed.and(array.close().await);
        }
        if let Err(error) = closed {
            tracing::warn!(%volume, %error, "an array could not be closed in order");
        }
        if let Err(failure) = self.close_image().await {
            tracing::warn!(%volume, %failure, "an image could not be closed in order");
        }
        self.mapper.close();
        self.gate.close();
        closed
    }

    /// Drops what is open, in which something has panicked: nothing of it is touched again.
    pub(crate) fn abandon(&self) {
        self.gate.close();
        drop_quietly((self.arrays.take(), self.image.take()));
        self.mapper.close();
    }
}

impl Index {
    /// What a volume or pool has open is found from now on.
    pub(crate) fn insert(&self, opened: &Rc<Opened>) {
        self.0.borrow_mut().insert(opened.id, Rc::downgrade(opened));
    }

    /// What is open of a volume or pool.
    pub(crate) fn get(&self, id: Uuid) -> Option<Rc<Opened>> {
        self.0.borrow().get(&id).and_then(Weak::upgrade)
    }

    /// All that is open.
    pub(crate) fn all(&self) -> Vec<Rc<Opened>> {
        let mut known = self.0.borrow_mut();
        known.retain(|_, opened| opened.strong_count() > 0);
        known.values().filter_map(Weak::upgrade).collect()
    }

    /// An array, whatever it is of: that of a volume or pool has the id of that.
    pub(crate) fn array(&self, id: Uuid) -> Option<Rc<OpenArray>> {
        let own = self.get(id).and_then(|opened| opened.arrays.get(id));
        own.or_else(|| self.all().iter().find_map(|opened| opened.arrays.get(id)))
    }
}
