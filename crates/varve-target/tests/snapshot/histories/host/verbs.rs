//! What a history does to a store besides reading and writing: snapshots made and removed, volumes resized, rolled back.

use super::*;

impl Boot<'_> {
    pub(super) async fn manage(&self, random: &mut Random, in_use: &[String]) {
        let pause = std::time::Duration::from_micros(random.below(1500));
        self.host.world.clock().sleep(pause).await;
        for _ in 0..random.below(4) {
            self.reclaim(random.between(1, 6)).await;
        }
        let is_used = |name: &String| in_use.contains(name) || self.written.borrow().contains(name);
        let free: Vec<String> = self.names().into_iter().filter(|name| !is_used(name)).collect();
        if self.host.rollbacks.is_some() && !free.is_empty() && random.chance(1, 2) {
            return self.begin_rollback(random.pick::<String>(&free)).await;
        }
        if self.host.removals && random.chance(2, 3) {
            return match free.first() {
                Some(oldest) if random.chance(1, 2) => self.remove(oldest, random.fork()).await,
                Some(_) if random.chance(1, 2) => {
                    self.remove(random.pick::<String>(&free), random.fork()).await;
                }
                _ if self.names().len() < 6 => self.create(random).await,
                _ => {}
            };
        }
        match random.below(12) {
            10 if random.chance(1, 2) => self.empty_origin(random).await,
            10 => self.resize_origin(random).await,
            0..=3 if self.names().len() < 6 => self.create(random).await,
            4..=5 if !free.is_empty() => self.remove(random.pick::<String>(&free), random.fork()).await,
            6 if !free.is_empty() => self.set_flags(random.pick::<String>(&free), random.fork()).await,
            7 => self.grow_store(random),
            9 => self.retune(random).await,
            11 if !free.is_empty() => self.rename(random.pick::<String>(&free)).await,
            8 if !free.is_empty() => self.begin_rollback(random.pick::<String>(&free)).await,
            _ => {}
        }
    }

    /// Another budget and another way to write metadata, in the middle of everything.
    pub(super) async fn retune(&self, random: &mut Random) {
        let (bytes, policy) = (*random.pick(&[0, 32 * KIB, 64 << 20]), *random.pick(&CachePolicy::ALL));
        self.store.set_metadata_order(*random.pick(&[MetadataOrder::Logged, MetadataOrder::WriteThrough]));
        self.store.set_cache(bytes, policy).await;
    }

    pub(super) async fn create(&self, random: &mut Random) {
        let volume = {
            let mut model = self.host.model.borrow_mut();
            model.volumes += 1;
            model.volumes
        };
        let new = NewSnapshot {
            name: format!("s{volume}.{}", "x".repeat(if self.host.refusals.is_some() { 100 } else { 0 })),
            read_only: random.chance(1, 6),
            held: random.chance(1, 6),
        };
        let frozen: Result<Frozen, StoreError> = self.store.freeze().await;
        if self.is_fault(&frozen) {
            return;
        }
        let frozen = frozen.expect("no faults");
        let oracle = {
            let model = self.host.model.borrow();
            let mut origin = model.origin.borrow_mut();
            let flush = origin.flush_started();
            origin.flush_finished(flush); // SNAPSHOT6
            Rc::new(RefCell::new(origin.snapshot(volume)))
        };
        let doubt = Doubt::Create(new.name.clone(), Rc::clone(&oracle), new.clone());
        self.host.model.borrow_mut().doubts.push(doubt);
        let pending = frozen.create(&new).expect("a new name");
        drop(frozen);
        let created = pending.commit().await;
        if self.is_fault(&created) {
            return;
        }
        self.resolve(|doubt| matches!(doubt, Doubt::Create(name, ..) if *name == new.name));
        match created {
            Ok(id) => {
                let known = Known { id, oracle, held: new.held, read_only: new.read_only };
                self.host.model.borrow_mut().snapshots.insert(new.name, known);
            }
            Err(error) => {
                assert_eq!(error, StoreError::NoSpace);
                self.host.refusals.into_iter().for_each(|refusals| count(&refusals.0));
            }
        }
    }

    pub(super) async fn remove(&self, name: &str, mut random: Random) {
        let (id, held) = {
            let model = self.host.model.borrow();
            (model.snapshots[name].id, model.snapshots[name].held)
        };
        if held {
            let refused = self.store.remove(id).await;
            assert!(self.is_fault(&refused) || refused == Err(StoreError::Held), "{refused:?}");
            return;
        }
        let is_target = self.store.rollback_status().is_some_and(|status| status.snapshot == id);
        self.host.model.borrow_mut().doubts.push(Doubt::Remove(name.to_owned()));
        let removed = match random.below(4) {
            0 => self.store.remove(id).await,
            _ => self.store.begin_removal(id).await,
        };
        if is_target && removed == Err(StoreError::Busy) {
            self.resolve(|doubt| matches!(doubt, Doubt::Remove(_)));
            return; // ROLLBACK2
        }
        if self.is_fault(&removed) {
            return;
        }
        removed.expect("a removal works in a full store too");
        self.resolve(|doubt| matches!(doubt, Doubt::Remove(_)));
        self.host.model.borrow_mut().snapshots.remove(name);
    }

    pub(super) async fn set_flags(&self, name: &str, mut random: Random) {
        let id = self.host.model.borrow().snapshots[name].id;
        let (read_only, held) = (random.chance(1, 3), random.chance(1, 3));
        self.host.model.borrow_mut().doubts.push(Doubt::Flags(name.to_owned()));
        let set = self.store.set_flags(id, read_only, held).await;
        if self.is_fault(&set) {
            return;
        }
        set.expect("there is always space for this");
        self.resolve(|doubt| matches!(doubt, Doubt::Flags(_)));
        let mut model = self.host.model.borrow_mut();
        let known = model.snapshots.get_mut(name).expect("known");
        (known.read_only, known.held) = (read_only, held);
    }

    /// To a longer name, or back.
    pub(super) async fn rename(&self, name: &str) {
        let id = self.host.model.borrow().snapshots[name].id;
        let to = name.strip_suffix(".renamed").map_or_else(|| format!("{name}.renamed"), str::to_owned);
        self.host.model.borrow_mut().doubts.push(Doubt::Rename(name.to_owned(), to.clone()));
        let renamed = self.store.rename(id, &to).await;
        if self.is_fault(&renamed) {
            return;
        }
        self.resolve(|doubt| matches!(doubt, Doubt::Rename(..)));
        match renamed {
            Ok(()) => self.host.model.borrow_mut().rename(name, &to),
            Err(error) => assert_eq!(error, StoreError::NoSpace, "no faults"),
        }
    }

    /// Makes zeros of all of the origin, or discards it.
    pub(super) async fn empty_origin(&self, random: &mut Random) {
        let client = self.origin_client();
        let whole = Extent::new(0, self.top.device().shape().size);
        let emptied = match random.below(2) {
            0 => client.zero(whole, ZeroOptions::default()).await,
            _ => client.discard(whole).await,
        };
        self.tolerate(Some(emptied));
    }

    pub(super) fn grow_store(&self, random: &mut Random) {
        let size = {
            let mut model = self.host.model.borrow_mut();
            model.store_size = (model.store_size + random.between(1, 40) * 4 * KIB).min(STORE_SIZE_MAX);
            model.store_size
        };
        assert!(size <= STORE_SIZE_MAX);
        self.store.grown(self.host.store_device()).expect("it grows");
    }

    /// Gives the origin another size in the midst of everything: larger, with zeros behind its end, or smaller.
    pub(super) async fn resize_origin(&self, random: &mut Random) {
        let old = self.host.model.borrow().origin.borrow().size();
        // Clients that hang may still be at what is to be cut off in a later round.
        let shrinks =
            self.host.stalls.is_none() && self.store.rollback_status().is_none() && random.chance(1, 2);
        let step = random.between(1, 5) * 4 * KIB;
        let size = if shrinks { old.saturating_sub(step).max(16 * KIB) } else { old + step };
        let size = size.min(ORIGIN_SIZE_MAX);
        if size > old && !self.clear(Extent::between(old, size)).await {
            return;
        }
        let suspended = self.top.suspend().await;
        match self.store.origin_resized(self.host.origin_of(size)) {
            Ok(()) => {}
            // It would be smaller than its newest snapshot.
            Err(StoreError::Misfit(_)) if size < old => return,
            Err(error) => panic!("it has another size: {error}"),
        }
        self.has_shrunk.set(self.has_shrunk.get() || size < old);
        let arena = self.host.world.arena();
        suspended.replace(accept_unaligned_shown(self.store.origin(), arena, self.shown.clone()));
        let model = self.host.model.borrow();
        let mut oracle = model.origin.borrow_mut();
        if size < old {
            oracle.cut(size);
        } else {
            oracle.grow(size);
        }
        count(if size < old { &SHRUNK } else { &GROWN });
    }

    /// Makes zeros of what the origin is to get; whether that was done. It may have belonged to it before.
    pub(super) async fn clear(&self, extent: Extent) -> bool {
        let options = ZeroOptions { durability: Durability::Durable, ..ZeroOptions::default() };
        self.host.origin_disk.device(&self.host.world).zero(extent, options).await.is_ok()
    }

    /// Begins to roll the origin back, while clients use it.
    pub(super) async fn begin_rollback(&self, name: &str) {
        let id = self.host.model.borrow().snapshots[name].id;
        // What the snapshot holds should be known as well as can be.
        let client = self.client(name);
        if client.flush().await.is_err() || client.verify().await.is_err() {
            return;
        }
        if self.store.rollback_status().is_some() {
            let refused = self.store.begin_rollback(id).await;
            assert!(self.is_fault(&refused) || refused == Err(StoreError::Busy), "{refused:?}");
            return;
        }
        let token = {
            let model = self.host.model.borrow();
            let mut origin = model.origin.borrow_mut();
            origin.rollback_started(&model.snapshots[name].oracle.borrow())
        };
        self.host.model.borrow_mut().doubts.push(Doubt::Rollback(token));
        // What is read to be merged with less than a block is written before the origin shows something else.
        let alone = self.shown.exchange().await;
        let is_newest = self.store.list().last().is_some_and(|newest| newest.id == id);
        let is_written = self.store.snapshot_bytes().get(&id).is_some_and(|bytes| bytes.written > 0);
        let begun = self.store.begin_rollback(id).await;
        drop(alone);
        if self.is_fault(&begun) {
            return;
        }
        self.resolve(|doubt| matches!(doubt, Doubt::Rollback(_)));
        let model = self.host.model.borrow();
        match begun {
            Ok(()) => {
                model.origin.borrow_mut().rollback_finished(token);
                self.rolled_back.set((is_newest && !is_written).then_some((id, false)));
                self.host.rollbacks.into_iter().for_each(|rollbacks| count(&rollbacks.begun));
            }
            Err(error) => {
                assert_eq!(error, StoreError::NoSpace);
                model.origin.borrow_mut().rollback_undone(token);
            }
        }
    }

    /// Some batches of the rollback under way, if there is one.
    pub(super) async fn restore_some(&self, random: &mut Random) {
        for _ in 0..random.below(5) {
            let pause = std::time::Duration::from_micros(random.below(700));
            self.host.world.clock().sleep(pause).await;
            let bytes = *random.pick(&[1, 8 * KIB, 64 * KIB]);
            let before = self.store.rollback_status();
            let more = self.store.continue_rollback(bytes).await;
            if self.is_fault(&more) {
                return;
            }
            match more {
                Ok(more) => {
                    let over = |(target, is_over)| (target, is_over || (!more && before.is_some()));
                    self.rolled_back.set(self.rolled_back.get().map(over));
                    let rollbacks = self.host.rollbacks.filter(|_| before.is_some());
                    rollbacks.into_iter().for_each(|rollbacks| {
                        count(if more { &rollbacks.batches } else { &rollbacks.ended });
                    });
                }
                Err(error) => {
                    assert_eq!(error, StoreError::NoSpace);
                    self.has_been_full.set(true);
                }
            }
        }
    }
}
