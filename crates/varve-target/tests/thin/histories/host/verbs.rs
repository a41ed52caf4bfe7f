//! What a history does to a pool besides reading and writing: volumes and snapshots made, removed, resized, rolled back.

use super::*;
use std::future::poll_fn;
use std::pin::pin;

impl Boot<'_> {
    pub(super) async fn manage(&self, random: &mut Random, busy: &[String]) {
        let pause = Duration::from_micros(random.below(1500));
        self.host.world.clock().sleep(pause).await;
        let idle: Vec<String> = self.names().into_iter().filter(|name| !busy.contains(name)).collect();
        let room = self.names().len() < if self.host.kind == Kind::Wide { 6 } else { 12 };
        // What is changed as a whole may be in use meanwhile; but not where a fault can leave open whether it was changed.
        let all = if self.host.is_faulty() { idle.clone() } else { self.names() };
        if self.host.kind == Kind::Trash && random.chance(2, 3) {
            return self.trash(random, busy).await;
        }
        match random.below(23) {
            0..=1 if room => self.create(random).await,
            2..=6 if room && !self.names().is_empty() => self.snapshot(random).await,
            7..=8 if !idle.is_empty() => self.remove(random.pick::<String>(&idle)).await,
            9 | 22 if all.len() > 1 => self.roll_back(&all, busy, random).await,
            10 if !all.is_empty() => self.empty(random.pick::<String>(&all), busy).await,
            11 if !all.is_empty() => self.resize(random.pick::<String>(&all), busy, random.fork()).await,
            12 => self.grow_pool(random),
            13 => {
                let written = self.pool.checkpoint().await;
                assert!(self.is_fault(&written) || written.is_ok(), "in a full pool too: {written:?}");
            }
            14..=15 => {
                let removal = self.pool.remove_some(random.between(1, 6)).await;
                assert!(
                    self.is_fault(&removal) || removal.is_ok(),
                    "removals go on in a full pool: {removal:?}"
                );
            }
            16 if !busy.is_empty() => self.look(random.pick::<String>(busy), &self.names(), random).await,
            17 if !idle.is_empty() => self.look(random.pick::<String>(&idle), &self.names(), random).await,
            18 => self.retune(random),
            19..=21 if !self.names().is_empty() => {
                let names = self.names();
                self.flatten(random.pick::<String>(&names), random).await;
            }
            _ if self.names().is_empty() => self.create(random).await,
            _ => {}
        }
    }

    /// Another budget and another way to write metadata, in the middle of everything.
    pub(super) fn retune(&self, random: &mut Random) {
        let (bytes, policy) = (*random.pick(&[0, 32 * KIB, 1 << 20]), *random.pick(&CachePolicy::ALL));
        self.pool.set_cache(bytes, policy);
        self.pool.set_metadata_order(*random.pick(&[MetadataOrder::Logged, MetadataOrder::WriteThrough]));
    }

    /// Questions that walk through maps while clients are at work.
    pub(super) async fn look(&self, name: &str, names: &[String], random: &mut Random) {
        let id = self.id(name);
        let mapped = || self.pool.info(id).map(|volume| volume.mapped_bytes);
        // In a pool that needs room the walk may begin again, at any instant at which it goes on.
        let (mut asked, mut instants) = (pin!(self.pool.volume_space(id)), BTreeSet::new());
        let space = poll_fn(|context| {
            instants.insert(mapped());
            asked.as_mut().poll(context)
        });
        let Some(space) = self.walked(space.await) else { return };
        let sum = Some(space.exclusive + space.shared);
        assert!(instants.contains(&sum), "{space:?} is of none of the instants: {instants:?}");
        let other = self.id(random.pick::<String>(names));
        let Some(differing) = self.walked(self.pool.diff(id, other).await) else { return };
        assert!(id != other || differing.is_empty(), "nothing differs from itself: {differing:?}");
    }

    /// What a walk found. It finds nothing where the disk fails, and in a pool so full that others need the room that it keeps.
    fn walked<T>(&self, outcome: Result<T, PoolError>) -> Option<T> {
        let is_over = self.is_fault(&outcome) || matches!(outcome, Err(PoolError::NoSpace));
        (!is_over).then(|| outcome.expect("they are there"))
    }

    pub(super) fn new_name(&self) -> (String, u16) {
        let mut model = self.host.model.borrow_mut();
        model.count += 1;
        (format!("v{}", model.count), model.count)
    }

    pub(super) fn enter(&self, name: &str, known: Known) {
        self.host.model.borrow_mut().volumes.insert(name.to_owned(), known);
    }

    pub(super) fn resolve(&self, resolves: impl Fn(&Doubt) -> bool) -> Option<Doubt> {
        let mut model = self.host.model.borrow_mut();
        let index = model.doubts.iter().position(resolves)?;
        Some(model.doubts.remove(index))
    }

    pub(super) async fn create(&self, random: &mut Random) {
        let (name, number) = self.new_name();
        let largest = if self.host.kind == Kind::Wide { 1000 } else { 130 };
        let mut bytes = random.between(1, largest) * 4 * KIB;
        let mut oracle = self.host.model.borrow().nothing.snapshot(number);
        let mut origin = None;
        if random.chance(1, 3) {
            (oracle, origin) = self.over_origin(number, random);
            bytes = bytes.max(ORIGIN.bytes);
        }
        oracle.grow(bytes);
        let new = NewVolume { name: name.clone(), bytes, origin };
        let oracle = Rc::new(RefCell::new(oracle));
        // The id is not known before: it is looked up when the doubt is resolved.
        let creating = self.pool.create(&new);
        let doubt = Doubt::Create(
            name.clone(),
            Known { id: 0, snapshot_of: None, oracle: Rc::clone(&oracle), read_only: false },
        );
        self.host.model.borrow_mut().doubts.push(doubt);
        let created = creating.await;
        if self.is_fault(&created) {
            return;
        }
        let id = created.expect("there is always space for this");
        self.host.attach_origin(&self.pool);
        assert!(self.resolve(|doubt| matches!(doubt, Doubt::Create(other, _) if *other == name)).is_some());
        self.enter(&name, Known { id, snapshot_of: None, oracle, read_only: false });
    }

    /// A volume over some of the origin: what it shows, and how much of it.
    pub(super) fn over_origin(&self, number: u16, random: &mut Random) -> (Oracle, Option<Origin>) {
        let mut oracle = self.host.model.borrow().origin.snapshot(number);
        let bytes = random.between(1, ORIGIN.bytes / (4 * KIB)) * 4 * KIB;
        if bytes < ORIGIN.bytes {
            let behind = oracle.zero_started(Extent::between(bytes, ORIGIN.bytes));
            oracle.write_finished(behind, Durability::Durable);
        }
        (oracle, Some(Origin { bytes, ..ORIGIN }))
    }

    /// A few batches, or until the volume needs no origin any more; its content does not change.
    pub(super) async fn flatten(&self, name: &str, random: &mut Random) {
        for _ in 0..random.between(1, 30) {
            let flattened = self.pool.flatten_some(self.id(name)).await;
            if self.is_fault(&flattened) {
                return;
            }
            match flattened {
                Ok(Some(_)) => {}
                Ok(None) | Err(PoolError::NoSpace) => return,
                Err(error) => panic!("no faults: {error}"),
            }
        }
    }

    pub(super) async fn snapshot(&self, random: &mut Random) {
        let names = self.names();
        let source = random.pick(&names).clone();
        let read_only = random.chance(1, 5);
        let snapshot_of = self.host.model.borrow().volumes[&source].snapshot_of.or(Some(self.id(&source)));
        let frozen = self.pool.freeze(self.id(&source)).await.expect("it is there");
        let mut refused = false;
        let mut made = Vec::new();
        // Several clones of one instant are alike.
        for _ in 0..random.between(1, 3) {
            let (name, number) = self.new_name();
            let mut oracle = {
                let model = self.host.model.borrow();
                model.volumes[&source].oracle.borrow().snapshot(number)
            };
            // If it is there after a crash, it is there with all of its content.
            let flush = oracle.flush_started();
            oracle.flush_finished(flush);
            let oracle = Rc::new(RefCell::new(oracle));
            let cloned = frozen.snapshot(&name, read_only);
            if self.is_fault(&cloned) {
                refused = true;
                break;
            }
            let id = cloned.expect("a new name");
            let known = Known { id, snapshot_of, oracle: Rc::clone(&oracle), read_only };
            self.host.model.borrow_mut().doubts.push(Doubt::Create(name.clone(), known));
            made.push(name);
        }
        let oracle = Rc::clone(&self.host.model.borrow().volumes[&source].oracle);
        let token = oracle.borrow_mut().flush_started();
        drop(frozen);
        let committed = self.pool.commit().await;
        if self.is_fault(&committed) || refused {
            return;
        }
        committed.expect("there is always space for this");
        oracle.borrow_mut().flush_finished(token);
        for name in made {
            let doubt = self.resolve(|doubt| matches!(doubt, Doubt::Create(other, _) if *other == name));
            let Some(Doubt::Create(_, known)) = doubt else { panic!("it was in doubt") };
            self.pairs.borrow_mut().push([source.clone(), name.clone()]);
            self.enter(&name, known);
        }
    }

    pub(super) async fn remove(&self, name: &str) {
        self.host.model.borrow_mut().doubts.push(Doubt::Remove(name.to_owned()));
        let removed = self.pool.remove(self.id(name)).await;
        if self.is_fault(&removed) {
            return;
        }
        removed.expect("a removal works in a full pool too");
        assert!(self.resolve(|doubt| matches!(doubt, Doubt::Remove(other) if other == name)).is_some());
        self.tops.borrow_mut().remove(&self.id(name));
        let mut model = self.host.model.borrow_mut();
        model.volumes.remove(name);
        model.trashed.remove(name);
    }

    pub(super) async fn roll_back(&self, names: &[String], busy: &[String], random: &mut Random) {
        let (name, source) = (random.pick(names).clone(), random.pick(names).clone());
        if name == source || self.host.model.borrow().volumes[&name].read_only {
            return;
        }
        let (id, other) = (self.id(&name), self.id(&source));
        // Of the source, so that it is known what the volume becomes.
        let (suspended, _still) = (self.top(&name).suspend().await, self.top(&source).suspend().await);
        let size = |name: &str| self.host.model.borrow().volumes[name].oracle.borrow().size();
        let bytes = if random.chance(1, 2) { size(&name) } else { size(&source) };
        {
            let mut model = self.host.model.borrow_mut();
            let before = model.volumes[&name].oracle.borrow().snapshot(1);
            let mark = self.pool.rollback_mark(id).expect("it is there");
            let rollback = RollBack { source: source.clone(), before, mark, bytes };
            model.doubts.push(Doubt::RollBack(name.clone(), Box::new(rollback)));
        }
        let rolled_back = self.pool.roll_back_in_size(id, other, bytes).await;
        if self.is_fault(&rolled_back) {
            return;
        }
        rolled_back.expect("there is always space for this");
        let doubt = self.resolve(|doubt| matches!(doubt, Doubt::RollBack(..)));
        let Some(Doubt::RollBack(_, rollback)) = doubt else { panic!("it was in doubt") };
        let model = self.host.model.borrow();
        let mut target = model.volumes[&name].oracle.borrow_mut();
        let size_before = target.size();
        rollback.apply(&mut target, &model.volumes[&source].oracle.borrow());
        self.replaced(&name, &suspended, target.size() < size_before);
        count_if(busy.contains(&name), &self.host.counts.rolled_back);
        for mut oracle in [target, model.volumes[&source].oracle.borrow_mut()] {
            let flush = oracle.flush_started();
            oracle.flush_finished(flush);
        }
    }

    /// The device of a volume that has changed as a whole, perhaps its size too.
    pub(super) fn replaced(&self, name: &str, suspended: &Suspended, shrunk: bool) {
        self.has_shrunk.set(self.has_shrunk.get() || shrunk);
        suspended.replace(self.unaligned(self.id(name)));
    }

    pub(super) async fn empty(&self, name: &str, busy: &[String]) {
        let id = self.id(name);
        if self.pool.list().iter().any(|volume| volume.id == id && volume.origin.is_some()) {
            return; // A volume with an origin is not emptied in one go.
        }
        let _suspended = self.top(name).suspend().await;
        count_if(busy.iter().any(|other| other == name), &self.host.counts.emptied);
        let oracle = Rc::clone(&self.host.model.borrow().volumes[name].oracle);
        let whole = Extent::new(0, oracle.borrow().size());
        let token = oracle.borrow_mut().zero_started(whole);
        let emptied = self.pool.empty(self.id(name)).await;
        if self.is_fault(&emptied) {
            return oracle.borrow_mut().write_failed(token);
        }
        emptied.expect("there is always space for this");
        oracle.borrow_mut().write_finished(token, Durability::Durable);
    }

    pub(super) async fn resize(&self, name: &str, busy: &[String], mut random: Random) {
        let suspended = self.top(name).suspend().await;
        let oracle = Rc::clone(&self.host.model.borrow().volumes[name].oracle);
        let (old, shrinks) = (oracle.borrow().size(), random.chance(1, 2));
        let step = random.between(1, 4 + old / (16 * KIB)) * 4 * KIB;
        let size = if shrinks { old.saturating_sub(step).max(4 * KIB) } else { old + step };
        // What is to be cut off becomes zeros before the size changes.
        let cut = (size < old).then(|| oracle.borrow_mut().zero_started(Extent::between(size, old)));
        self.host.model.borrow_mut().doubts.push(Doubt::Resize(name.to_owned(), size));
        let resized = self.pool.resize(self.id(name), size).await;
        if self.is_fault(&resized) {
            return cut.into_iter().for_each(|cut| oracle.borrow_mut().write_failed(cut));
        }
        resized.expect("there is always space for this");
        self.resolve(|doubt| matches!(doubt, Doubt::Resize(..)));
        set_size(&mut oracle.borrow_mut(), size);
        self.replaced(name, &suspended, size < old);
        let counts = self.host.counts;
        let counter = if size < old { &counts.shrunk } else { &counts.grown };
        count_if(busy.iter().any(|other| other == name), counter);
    }

    pub(super) fn grow_pool(&self, random: &mut Random) {
        {
            let mut model = self.host.model.borrow_mut();
            model.pool_size = (model.pool_size + random.between(1, 60) * 4 * KIB).min(POOL_SIZE_MAX);
        }
        self.pool.grown(self.host.device()).expect("it grows");
    }

    /// It has the new size, or the old one.
    pub(super) fn resolve_resize(&self, name: &str, size: u64) {
        let model = self.host.model.borrow();
        let Some(known) = model.volumes.get(name) else { return };
        let found = self.pool.list().into_iter().find(|volume| volume.id == known.id).expect("it is there");
        let mut oracle = known.oracle.borrow_mut();
        if found.bytes == size {
            set_size(&mut oracle, size);
        }
    }

    /// The mark tells whether it has happened, and then it has as a whole.
    pub(super) async fn resolve_rollback(&self, name: &str, rollback: &RollBack) {
        let mark = self.pool.rollback_mark(self.id(name)).expect("it is there");
        if mark == rollback.mark {
            let model = self.host.model.borrow();
            return model.volumes[name].oracle.borrow_mut().restore(&rollback.before);
        }
        let mut expected = self.content(&rollback.source).await;
        expected.resize(usize::try_from(rollback.bytes).expect("small"), 0);
        assert!(self.content(name).await == expected, "a rollback happens as a whole");
        let model = self.host.model.borrow();
        let source = model.volumes[&rollback.source].oracle.borrow();
        rollback.apply(&mut model.volumes[name].oracle.borrow_mut(), &source);
    }

    /// Into the trash, out of it, or given up with its snapshots.
    async fn trash(&self, random: &mut Random, busy: &[String]) {
        let volumes: Vec<String> = {
            let model = self.host.model.borrow();
            let own = model.volumes.iter().filter(|(_, known)| known.snapshot_of.is_none());
            own.map(|(name, _)| name.clone()).collect()
        };
        if volumes.is_empty() {
            return;
        }
        let name = random.pick::<String>(&volumes);
        let (id, is_trashed) = (self.id(name), self.host.model.borrow().trashed.contains(name));
        let own = self.with_snapshots(name);
        if is_trashed && random.chance(2, 3) && !own.iter().any(|own| busy.contains(own)) {
            return self.give_up(name, own).await;
        }
        self.host.model.borrow_mut().doubts.push(Doubt::Trash(name.clone()));
        let removed = random.below(9);
        let changed = match is_trashed {
            true => self.pool.rename(id, name).await,
            false => self.pool.trash().put(id, Trashed { removed, until: removed + 1 }).await,
        };
        if self.is_fault(&changed) {
            return;
        }
        changed.expect("there is always space for this");
        assert!(self.resolve(|doubt| matches!(doubt, Doubt::Trash(_))).is_some());
        self.resolve_trash(name.clone());
        assert_eq!(self.host.model.borrow().trashed.contains(name), !is_trashed);
        count(&self.host.counts.trashed);
    }

    async fn give_up(&self, name: &str, own: Vec<String>) {
        let doubts = own.iter().cloned().map(Doubt::Remove);
        self.host.model.borrow_mut().doubts.extend(doubts);
        let given_up = self.pool.trash().give_up(self.id(name)).await;
        if self.is_fault(&given_up) {
            return;
        }
        given_up.expect("a removal works in a full pool too");
        for name in own {
            assert!(self.resolve(|doubt| matches!(doubt, Doubt::Remove(other) if *other == name)).is_some());
            self.tops.borrow_mut().remove(&self.id(&name));
            let mut model = self.host.model.borrow_mut();
            model.volumes.remove(&name);
            model.trashed.remove(&name);
        }
        count(&self.host.counts.given_up);
    }

    fn with_snapshots(&self, name: &str) -> Vec<String> {
        let (id, model) = (self.id(name), self.host.model.borrow());
        let own = model.volumes.iter().filter(|(_, known)| known.id == id || known.snapshot_of == Some(id));
        own.map(|(name, _)| name.clone()).collect()
    }

    /// It is where it is found.
    pub(super) fn resolve_trash(&self, name: String) {
        let found =
            self.pool.list().into_iter().find(|volume| volume.name == name && volume.trashed.is_some());
        let mut model = self.host.model.borrow_mut();
        match found {
            Some(_) => model.trashed.insert(name),
            None => model.trashed.remove(&name),
        };
    }
}
