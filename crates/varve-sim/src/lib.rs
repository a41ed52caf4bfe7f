//! The simulated world: disks with caches that crash, a clock that jumps, a seeded executor, the oracle.
//!
//! A test makes a [`World`] from a seed and a [`SimDisk`], builds the product's own code on the disk's device, and
//! runs it; everything that is left to chance (which task runs first, how long a request takes, when the power fails, which
//! versions of a sector survive) follows from the seed.
//!
//! ```
//! use varve_block::{Durability, MIB};
//! use varve_sim::{CrashAt, SimDisk, World, run_seeds, test_name};
//!
//! run_seeds(test_name!("a_flushed_write_survives"), 100, |seed| {
//!     let world = World::new(seed);
//!     let disk = SimDisk::new(8 * MIB);
//!     let crash = world.random().between(1, 6);
//!     world.schedule_crash(CrashAt::Event(crash)); // the power fails after that many disk events
//!
//!     let (device, arena) = (disk.device(&world), world.arena());
//!     let mut flushed = false;
//!     let ran = world.run_until_crash(async {
//!         device.write(4096, arena.copy(&[7; 512]), Durability::Volatile).await.expect("no faults");
//!         device.flush().await.expect("no faults");
//!         flushed = true;
//!     });
//!     assert_eq!(ran.crashed(), crash <= 4); // a write and a flush, each submitted and completed
//!
//!     // The next boot: the same disk, without what its cache has lost; a new device.
//!     let device = disk.device(&world);
//!     let read = world.run(async { device.read(4096, arena.take(512)).await }).expect("no faults");
//!     assert!(read[0] == 7 || (!flushed && read[0] == 0));
//! });
//! ```
//!
//! A target is tested in the same way, with an [`Oracle`] and a [`Client`] on top of it, through several boots:
//!
//! ```
//! use std::{cell::RefCell, rc::Rc};
//! use varve_block::{Device, KIB};
//! use varve_sim::{Client, CrashAt, Mix, Oracle, SharedOracle, SimDisk, World, run_seeds, test_name};
//!
//! /// Stands for the volume under test: what is built on the disks at each boot.
//! fn activate(disk: Device) -> Device {
//!     disk
//! }
//!
//! run_seeds(test_name!("a_volume_survives_crashes"), 50, |seed| {
//!     let world = World::new(seed);
//!     let disk = SimDisk::new(64 * KIB);
//!     let oracle: SharedOracle = Rc::new(RefCell::new(Oracle::new(1, 64 * KIB)));
//!     let mut random = world.random();
//!     for _boot in 0..3 {
//!         let volume = activate(disk.device(&world));
//!         let client = Client::new(volume, world.arena(), Rc::clone(&oracle));
//!         world.run(client.verify()).expect("no faults");
//!         world.schedule_crash(CrashAt::Event(random.between(1, 100)));
//!         if world.run_until_crash(client.exercise(&Mix::default(), 50, &mut random)).crashed() {
//!             oracle.borrow_mut().crashed();
//!         }
//!     }
//! });
//! ```
//!
//! # The parts
//! - [`World`]: `clock()`, `spawner()`, `arena()`, `random()`; `run`, `run_until_crash`, `schedule_crash`. A
//!   deadlock panics and says what is under way.
//! - [`SimDisk`]: the rule "each sector independently keeps any version since its last flush"; [`FaultPlan`] and
//!   [`FaultBudget`]; images for stale and copied disks; `peek` and `poke` from outside.
//! - [`Oracle`]: what each sector of a volume may hold, before and after crashes; `snapshot`, `grow`, and for
//!   rollbacks `restore`, or `rollback_started` while the volume is in use. [`Client`] drives a device and tells the oracle: `read`, `write`, `zero`, `discard`, `flush`, `verify`,
//!   and `exercise` for random requests, several at a time. After a crash: `oracle.borrow_mut().crashed()`.
//! - [`Holder`]: keeps requests back in front of a device, for as long as a test likes.
//! - [`stream_pair`]: a connection, whose bytes are cut and delayed.
//! - [`LeaveOutZeros`]: a device below which content is left out, and metadata is not.
//! - [`ModelDisk`] with [`measure`] and [`CostMeter`]: exact throughput and amplification in virtual time, in a
//!   [`World::steady`].
//! - [`run_seeds`]: many seeds, counts printed, the command that repeats a failure. [`for_each_crash_point`] and
//!   [`for_each_crash_state`]: every crash of a small scenario. [`caught`]: with how
//!   many seeds a negative control fails, as it must.

mod chance;
mod client;
mod disk;
mod harness;
mod hold;
mod measure;
mod model_disk;
mod oracle;
mod pattern;
mod quiet;
mod random;
mod stream;
mod world;
mod zeros;

pub use chance::{CrashTally, take_tally_of_this_thread};
pub use client::{Client, Mix, SharedOracle};
pub use disk::{DiskCounters, DiskImage, DiskOptions, FaultBudget, FaultPlan, SimDisk, Struck};
pub use harness::{
    CrashStates, TestName, caught, caught_share, for_each_crash_point, for_each_crash_state, run_seeds,
};
pub use hold::{Holder, Holds};
pub use measure::{Amplification, CostMeter, Direction, Load, Measured, Order, measure};
pub use model_disk::ModelDisk;
pub use oracle::{FlushToken, Mismatch, Oracle, ReadToken, RollbackToken, WriteToken};
pub use pattern::{Found, Stamp, fill_sector, identify, patterned};
pub use random::Random;
pub use stream::stream_pair;
pub use world::{CrashAt, CrashKind, Ran, World};
pub use zeros::LeaveOutZeros;

/// Bytes of a sector: the unit that a crash keeps or loses.
pub const SECTOR_SIZE: usize = 512;
