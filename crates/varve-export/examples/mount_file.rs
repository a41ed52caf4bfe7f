//! Offers one file or block device as a FUSE file: `mount_file DISK FILE [direct|buffered]`, until standard input ends.
//!
//! The smallest whole server: what the daemon does, without volumes. Good for trying the door and measuring it.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use varve_block::accept_unaligned;
use varve_export::fuse::{FuseDoor, FuseOptions};
use varve_os::{CacheMode, DiskFile, DiskOptions, Shards, ShardsConfig};

fn serve(disk: &str, file: &str, cache: CacheMode) -> Result<(), Box<dyn std::error::Error>> {
    let disk = DiskFile::open(disk, DiskOptions { cache, ..DiskOptions::default() })?;
    let shards = Shards::start(&ShardsConfig::default())?;
    let portal = shards.handle(0).run_and_wait(async move |context| {
        let device = accept_unaligned(context.disk(&disk), context.arena());
        context.portal(&device)
    })?;
    let mut door = FuseDoor::open(portal, shards.arena(), Path::new(file), &FuseOptions::default())?;
    println!("ready: {}", door.path().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", door.counters());
    door.close()?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (disk, file, cache) = match words.as_slice() {
        [disk, file] | [disk, file, "direct"] => (disk, file, CacheMode::Direct),
        [disk, file, "buffered"] => (disk, file, CacheMode::Buffered),
        _ => {
            eprintln!("usage: mount_file DISK FILE [direct|buffered]");
            return ExitCode::from(2);
        }
    };
    match serve(disk, file, cache) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mount_file: {error}");
            ExitCode::FAILURE
        }
    }
}
