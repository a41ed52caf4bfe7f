//! The things of one shard: volumes and pools in use, where their doors lead, and listening sockets.

use super::doors::nbd::NbdSocket;
use super::doors::top::Top;
use super::opened::open_pool::OpenPool;
use super::volume_stack::VolumeStack;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, Notify, Suspended};
use varve_export::nbd::Activity;

/// The things of one shard.
#[derive(Default)]
pub struct ShardState {
    /// Volumes, by identity.
    pub stacks: RefCell<BTreeMap<Uuid, Rc<VolumeStack>>>,
    /// Thin pools, by identity.
    pub pools: RefCell<BTreeMap<Uuid, Rc<OpenPool>>>,
    /// Where doors of volumes lead: kept while a volume is out of use, so that they lead to it when it is in use again.
    pub tops: RefCell<BTreeMap<Uuid, Top>>,
    /// Doors whose requests wait until their volumes are opened anew.
    pub held: RefCell<Vec<Suspended>>,
    /// Volumes that are being opened anew, whose doors wait.
    pub aside: RefCell<BTreeSet<Uuid>>,
    /// They are open, or cannot be used.
    pub resumed: Notify,
    /// Listening NBD sockets, by address.
    pub sockets: RefCell<BTreeMap<String, Rc<NbdSocket>>>,
    /// Which of their exports are active.
    pub activity: Activity,
}

impl ShardState {
    /// Takes away a volume, or all volumes of a pool: they are served no more.
    pub fn take_stacks(&self, subject: Uuid) -> Vec<Rc<VolumeStack>> {
        let is_of = |stack: &Rc<VolumeStack>| stack.id() == subject || stack.pool() == Some(subject);
        let mut stacks = self.stacks.borrow_mut();
        stacks.extract_if(.., |_, stack| is_of(stack)).map(|(_, stack)| stack).collect()
    }

    /// Where the doors of a volume lead: to `base` if it is new.
    pub(super) fn top(&self, volume: Uuid, base: &Device) -> Top {
        self.tops.borrow_mut().entry(volume).or_insert_with(|| Top::new(base)).clone()
    }

    /// The socket that listens at `address`, if it is one of this shard.
    pub fn socket(&self, address: &str) -> Option<Rc<NbdSocket>> {
        self.sockets.borrow().get(address).cloned()
    }
}
