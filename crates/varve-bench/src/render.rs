//! Turns stored results into a document and pictures; measures nothing.

mod arrays;
mod bonnie;
mod cache;
mod cache_times;
mod cost;
mod distance;
mod figures;
mod images;
mod layers;
mod management;
mod nbd;
mod neighbour;
mod overlay;
mod snapshots;
mod summary;
pub(crate) mod thin;

use crate::results::Results;
use std::fs;
use std::path::Path;

/// Writes the document, and the pictures into `plots` beside it.
pub(crate) fn render(results: &Results, document: &Path, plots: &Path) -> Result<(), String> {
    let complain = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(plots).map_err(|error| complain(plots, error))?;
    let pictures = [
        nbd::pictures(results),
        snapshots::pictures(results),
        bonnie::pictures(results),
        cost::pictures(results),
        distance::pictures(results),
        cache::pictures(results),
        cache_times::pictures(results),
        management::pictures(results),
    ];
    for (name, picture) in pictures.into_iter().flatten() {
        let path = plots.join(name);
        fs::write(&path, picture).map_err(|error| complain(&path, error))?;
    }
    fs::write(document, text(results)).map_err(|error| complain(document, error))
}

/// The document. Pictures are expected in `plots/`.
fn text(results: &Results) -> String {
    let mut text = String::from(HEAD);
    text.push_str(&summary::text(results));
    text.push_str(&nbd::text(results));
    text.push_str(&arrays::text(results));
    text.push_str(&images::text(results));
    text.push_str(&neighbour::text(results));
    text.push_str(&overlay::text(results));
    text.push_str(&snapshots::text(results));
    text.push_str(&bonnie::text(results));
    text.push_str(&cost::text(results));
    text.push_str(&distance::text(results));
    text.push_str(&cache::text(results));
    text.push_str(&cache_times::text(results));
    text.push_str(&management::text(results));
    text.push_str(&thin::text(results));
    text.push_str(&layers::text(results));
    text.push_str(TAIL);
    text
}

const HEAD: &str = "\
# Benchmarks

This page is written by `make bench`; do not edit it. Everybody is measured in turn, round after round, on one
machine, and every comparison is the median of the ratios of the rounds, with the smallest and the largest in brackets.
Absolute figures depend on the machine; ratios less so. On a machine with few cores the load generator and the server
share them, as a virtual machine and its storage do.

";

const TAIL: &str = "\
## How to run it again

```
make bench                                        # everything, then this page
target/release/varve-bench all --quick            # see that everything works; the figures mean nothing
target/release/varve-bench nbd --media memory     # one part: memory, disk-direct, disk-buffered
target/release/varve-bench nbd --only 'random'    # loads by name; the other rows stay
target/release/varve-bench snapshots              # all of it, about a quarter of an hour
target/release/varve-bench snapshots --only 'cache:'       # the loads of ESnap's figures, a few minutes
target/release/varve-bench snapshots --only 'model disk'   # one part: cost, distance, cache, management, first touches
target/release/varve-bench snapshots --only bonnie         # through ext4, as root
target/release/varve-bench thin                   # thin volumes beside thick ones, and pools at their limits
target/release/varve-bench thin --only scale      # one part: volumes, scale, scale: depth, or loads by name
target/release/varve-bench arrays                 # mirrors and ddraid beside one raw member
target/release/varve-bench arrays --only work     # one part: loads, unthrottled, exact (in virtual time), ratios (as well), or work (rebuild, move)
target/release/varve-bench images                 # qcow2 beside QEMU, chains, volumes with a mapper
target/release/varve-bench images --only chains   # one part: mappers, chains, thin, opening, peers
target/release/varve-bench neighbour              # reads of a volume beside floods on another one
target/release/varve-bench neighbour --only trims # floods by name; the other rows stay
target/release/varve-bench boot                   # boots and copies on copy-on-write images; copies need root
target/release/varve-bench boot --only copy       # one part: boot, copy
target/release/varve-bench layers
target/release/varve-bench render                 # this page and its pictures from docs/plots/results.json
```

fio with its nbd engine is needed, and of the other servers those that are to be compared:
`apt-get install fio nbdkit nbd-server qemu-utils qemu-system-common`; for boots
`qemu-system-x86`. `--runs`, `--seconds`, `--dir` (a directory in
memory) and `--disk` (a directory on a disk) change what their names say. Nothing else should run meanwhile.
";

#[cfg(test)]
mod tests;
