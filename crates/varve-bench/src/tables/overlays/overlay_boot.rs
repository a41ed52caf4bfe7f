//! The boot table of 2006 again: a virtual machine boots for the first time from a raw volume and from copy-on-write overlays,
//! over NBD, and makes its keys. `tests/vm/vm` is the machine.

use crate::prelude::*;
use crate::programs::varve::uri;
use crate::tables::overlays::overlay::{Bench, Disk, MEDIUM, Taken, VOLUME, part, timed};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// The machine, from the root of the tree.
const MACHINE: &str = "tests/vm/vm";
/// Keys that take the same time in each boot; how long RSA takes is a matter of luck.
const KEYS: &str = "vm.keys=ed25519,ecdsa";
/// Lines of the console that an error shows.
const ERROR_LINES: usize = 4;
/// Bytes of the image, at most.
const IMAGE_BYTES: u64 = 256 << 20;
/// How many times the seconds of a raw volume a boot may take. In 2006 it was 27 s for 26 s.
const GOAL: f64 = 1.02;
const DISKS: [Disk; 6] =
    [Disk::Linear, Disk::ThinOverRaw, Disk::ThinOverQcow2, Disk::Image, Disk::QemuRaw, Disk::QemuOverlay];

/// Boots in memory; each round is kept as soon as it is there.
pub(crate) fn measure(options: &Options, _: Medium, sheet: &mut Sheet) -> Outcome<()> {
    if let Err(Failed(reason)) = vm(&["prepare"]) {
        eprintln!("boot: left out: {reason}");
        return Ok(());
    }
    let make = |path: &Path| {
        let path = path.to_string_lossy();
        if options.is_quick() { vm(&["root", &path]) } else { vm(&["root", &path, "--kernel"]) }
    };
    let bench = Bench::start(options, MEDIUM, IMAGE_BYTES, make)?;
    let about = "QEMU with software emulation, Debian's cloud kernel, over NBD: keys are made, and the files of all packages \
                 verified";
    let mut part = part("First boot", about, options);
    for round in 0..options.runs() {
        for disk in turns(&DISKS, round) {
            let outcome = boot_from(&bench, disk);
            eprintln!("boot: {}: {outcome:.2?}", disk.name());
            disk.record(&mut part, GOAL, &outcome);
        }
        sheet.keep(&part)?;
    }
    part.tell();
    bench.varve.stop()
}

fn boot_from(bench: &Bench, disk: Disk) -> Outcome<Taken> {
    if matches!(disk, Disk::QemuRaw | Disk::QemuOverlay) {
        let (server, uri) = bench.serve_by_qemu(disk)?;
        let taken = boot(bench, server.pid(), &uri);
        server.stop()?;
        return taken;
    }
    bench.make(disk)?;
    let socket = bench.varve.export(VOLUME)?;
    let taken = boot(bench, bench.varve.pid(), &uri(&socket));
    bench.remove(disk)?;
    taken
}

/// One boot from `uri`: the time until the last line of the console, and the requests of the guest.
fn boot(bench: &Bench, pid: u32, uri: &str) -> Outcome<Taken> {
    let report = bench.place.path().join("report.json");
    let told = report.to_string_lossy();
    let mut seconds = f64::NAN;
    let taken = timed(&[pid], || {
        vm(&["boot", "--disk", uri, "--append", KEYS, "--report", &told])?;
        let text = fs::read_to_string(&report).of(&told)?;
        let (took, requests) = read_report(&text).ok_or_else(|| format!("{told}: {text}"))?;
        seconds = took;
        Ok(requests)
    })?;
    Ok(Taken { seconds, ..taken })
}

/// Seconds of the run, and requests of its first disk.
fn read_report(text: &str) -> Option<(f64, u64)> {
    let report: Value = serde_json::from_str(text).ok()?;
    let disk = report.get("disks")?.get(0)?;
    let requests = ["reads", "writes", "flushes", "discards"].iter().map(|name| disk.get(name)?.as_u64());
    Some((report.get("seconds")?.as_f64()?, requests.sum::<Option<u64>>()?))
}

/// Runs the script of the machine; its last lines are the error.
fn vm(words: &[&str]) -> Outcome<()> {
    let output = Command::new(MACHINE)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .of(format!("{MACHINE}, which is found from the root of the tree"))?;
    if output.status.success() {
        return Ok(());
    }
    let all = [output.stdout, output.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    let lines: Vec<&str> = all.lines().collect();
    Err(lines[lines.len().saturating_sub(ERROR_LINES)..].join("; ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_time_and_requests_of_the_first_disk() {
        let text = r#"{"seconds": 6.25, "status": 0, "disks": [
            {"name": "vda", "reads": 800, "writes": 40, "flushes": 8, "discards": 1}, {"name": "vdb", "reads": 7}]}"#;
        assert_eq!(read_report(text), Some((6.25, 849)));
        assert_eq!(read_report(&text.replace("flushes", "other")), None);
        assert_eq!(read_report(r#"{"seconds": 6.25, "status": 0, "disks": []}"#), None);
    }
}
