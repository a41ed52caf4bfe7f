//! First touches as they are met in use: the real daemon over NBD.
//!
//! For each number of snapshots there is a volume of its own, written in full, with its snapshots and a little
//! written between them. In each round every volume gets one more snapshot, which makes every write the first to its
//! chunk again, and loses the newest of before; then each load runs over a region of its own.

use crate::first_touch::{CHUNK, COUNTS, LOADS, Load, record};
use crate::prelude::*;
use crate::programs::client::Client;
use crate::programs::varve::Varve;
use crate::tables::snapshot::stage::MARGIN;

/// Writes a volume in full before its first snapshot.
const FILL: Load = Load { name: "fill", block: 1 << 20, depth: 8, random: false };
/// Writes a little between two snapshots.
const TOUCH: Load = Load { name: "touch", block: 4 << 10, depth: 1, random: false };

/// A volume with a number of snapshots.
pub(in crate::tables) struct Subject {
    pub(in crate::tables) name: String,
    pub(in crate::tables) snapshots: u32,
    /// Number of the next snapshot; those of before are there, but for what was removed from among the newest.
    next: u32,
    pub(in crate::tables) client: Client,
}

impl Subject {
    /// Makes the volume and its snapshots.
    pub(in crate::tables) fn make(varve: &Varve, size: u64, snapshots: u32) -> Outcome<Self> {
        let name = format!("origin{snapshots}");
        varve.create_volume(&name, size)?;
        let mut client = Client::connect(&varve.export(&name)?)?;
        client.write(&FILL, 0, size)?;
        for snapshot in 0..snapshots {
            varve.create_snapshot(&name, &format!("s{snapshot}"))?;
            let place = size - MARGIN + u64::from(snapshot) * TOUCH.block as u64 % (MARGIN - CHUNK);
            client.write(&TOUCH, place, CHUNK)?;
        }
        Ok(Self { name, snapshots, next: snapshots, client })
    }

    /// Makes every write the first to its chunk again, with as many snapshots as before.
    fn renew(&mut self, varve: &Varve) -> Outcome<()> {
        if self.snapshots == 0 {
            return Ok(());
        }
        varve.create_snapshot(&self.name, &format!("s{}", self.next))?;
        let job = varve.remove_snapshot(&self.name, &format!("s{}", self.next - 1))?;
        varve.wait_for_job(&job)?;
        self.next += 1;
        Ok(())
    }

    /// Bytes a second of each load.
    fn speeds(&mut self, region: u64) -> Outcome<Vec<f64>> {
        let one = |(index, load)| self.client.write(load, index as u64 * region, region);
        LOADS.iter().enumerate().map(one).collect()
    }
}

/// Measures one medium; each round is kept as soon as it is there. Round 0 lets the exception stores grow to the
/// size that they need, and does not count.
pub(crate) fn measure(options: &Options, medium: Medium, sheet: &mut Sheet) -> Outcome<()> {
    let parent = options.directory(medium);
    let (region, rounds) = (options.region(), options.touch_rounds(medium));
    let size = region * LOADS.len() as u64 + MARGIN;
    // The volume, what its two newest snapshots keep, and room for the store to grow in steps.
    let disk = COUNTS.len() as u64 * (4 * size + (64 << 20));
    let varve = Varve::on(options, medium, disk, &[])?;
    let mut subjects = Vec::new();
    for snapshots in COUNTS {
        subjects.push(Subject::make(&varve, size, snapshots)?);
        eprintln!("first touches, {}: {snapshots} snapshots are there", medium.name());
    }
    let description = format!(
        "the daemon over NBD on {}, {}, {} MiB a load, {rounds} rounds",
        file_system(parent),
        if medium == Medium::DiskDirect { "direct I/O" } else { "buffered" },
        region >> 20
    );
    let mut part = Part::new("first touches", medium.name(), description);
    for round in 0..=rounds {
        for turn in 0..subjects.len() {
            let index = (turn + round) % subjects.len();
            let subject = &mut subjects[index];
            subject.renew(&varve)?;
            let speeds = subject.speeds(region)?;
            if round > 0 {
                record(&mut part, subject.snapshots, &speeds);
            }
        }
        if round > 0 {
            sheet.keep(&part)?;
        }
    }
    drop(subjects);
    varve.stop()
}
