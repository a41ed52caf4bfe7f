//! The six loads of bonnie on a file: bytes one by one and in blocks, written, rewritten and read, and seeks.

use crate::prelude::*;
use crate::programs::mounted::run;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Result as IoResult, Write};
use std::os::unix::fs::FileExt;

/// Names of the loads, in the order in which they run.
pub(crate) const LOADS: [&str; 6] =
    ["write bytes", "rewrite blocks", "write blocks", "read bytes", "read blocks", "seeks"];

/// Bytes of a block.
const BLOCK: usize = 8 << 10;

/// Runs all loads on a file of `size` bytes in `directory`, which is removed then; bytes a second of each, `seeks` blocks of
/// the last. What was written is on the disk when a load ends, and what is read comes from there.
pub(crate) fn speeds(directory: &Path, size: u64, seeks: u64) -> Outcome<[f64; 6]> {
    let path = directory.join("bonnie");
    let timed = |bytes: u64, load: &dyn Fn(&Path) -> IoResult<()>| {
        forget(&path)?;
        let watch = Watch::start();
        load(&path).of(path.display())?;
        Ok::<f64, Failed>(bytes as f64 / watch.seconds())
    };
    let speeds = [
        timed(size, &|path| write_bytes(path, size))?,
        timed(size, &|path| rewrite(path, size))?,
        timed(size, &|path| write_blocks(path, size))?,
        timed(size, &|path| read_bytes(path))?,
        timed(size, &|path| read_blocks(path, size))?,
        timed(seeks * BLOCK as u64, &|path| seek(path, size, seeks))?,
    ];
    fs::remove_file(&path).of(path.display())?;
    Ok(speeds)
}

/// Has the system forget the content of a file that it has in memory; what is in none needs no forgetting.
fn forget(path: &Path) -> Outcome<()> {
    if !path.exists() {
        return Ok(());
    }
    run("dd", &[&format!("if={}", path.display()), "iflag=nocache", "count=0", "status=none"])
}

fn create(path: &Path) -> IoResult<File> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    File::create(path)
}

fn write_bytes(path: &Path, size: u64) -> IoResult<()> {
    let mut file = BufWriter::with_capacity(BLOCK, create(path)?);
    for byte in 0..size {
        file.write_all(&[byte.to_le_bytes()[0]])?;
    }
    file.flush()?;
    file.get_ref().sync_all()
}

fn rewrite(path: &Path, size: u64) -> IoResult<()> {
    let (file, mut block) = (open(path)?, [0; BLOCK]);
    for at in (0..size).step_by(BLOCK) {
        change(&file, &mut block, at)?;
    }
    file.sync_all()
}

fn write_blocks(path: &Path, size: u64) -> IoResult<()> {
    let (file, mut block) = (create(path)?, [7; BLOCK]);
    for at in (0..size).step_by(BLOCK) {
        block[..8].copy_from_slice(&at.to_le_bytes());
        file.write_all_at(&block, at)?;
    }
    file.sync_all()
}

fn read_bytes(path: &Path) -> IoResult<()> {
    let mut sum = 0_u64;
    for byte in BufReader::with_capacity(BLOCK, File::open(path)?).bytes() {
        sum = sum.wrapping_add(u64::from(byte?));
    }
    std::hint::black_box(sum);
    Ok(())
}

fn read_blocks(path: &Path, size: u64) -> IoResult<()> {
    let (file, mut block) = (File::open(path)?, [0; BLOCK]);
    for at in (0..size).step_by(BLOCK) {
        file.read_exact_at(&mut block, at)?;
    }
    Ok(())
}

/// Reads blocks at random, and writes each tenth of them again.
fn seek(path: &Path, size: u64, seeks: u64) -> IoResult<()> {
    let (file, mut block, mut noise) = (open(path)?, [0; BLOCK], Noise(20_060_810));
    for number in 0..seeks {
        let at = noise.next() % (size / BLOCK as u64) * BLOCK as u64;
        match number % 10 {
            0 => change(&file, &mut block, at)?,
            _ => file.read_exact_at(&mut block, at)?,
        }
    }
    file.sync_all()
}

fn open(path: &Path) -> IoResult<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn change(file: &File, block: &mut [u8; BLOCK], at: u64) -> IoResult<()> {
    file.read_exact_at(block, at)?;
    block[0] = block[0].wrapping_add(1);
    file.write_all_at(block, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs_and_the_file_is_gone_then() {
        let directory = tempfile::tempdir().expect("a directory");
        let speeds = speeds(directory.path(), 1 << 20, 30).expect("it runs");
        assert!(speeds.iter().all(|speed| speed.is_finite() && *speed > 0.0), "{speeds:?}");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_rewrite_changes_a_byte_of_each_block_and_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let size = 3 * BLOCK as u64;
        write_bytes(&path, size).expect("written");
        rewrite(&path, size).expect("rewritten");
        let content = fs::read(&path).expect("there");
        let changed = (0..content.len()).filter(|at| usize::from(content[*at]) != *at % 256);
        assert_eq!(changed.collect::<Vec<_>>(), [0, BLOCK, 2 * BLOCK]);
    }
}
