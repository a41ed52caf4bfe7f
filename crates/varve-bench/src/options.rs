//! What a run is asked to do.

use crate::programs::peers::Cache;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where files lie and how they are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Medium {
    /// Memory (tmpfs), through the page cache.
    Memory,
    /// Disk, past the page cache.
    DiskDirect,
    /// Disk, through the page cache.
    DiskBuffered,
}

impl Medium {
    /// Its name in the tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Medium::Memory => "memory",
            Medium::DiskDirect => "disk, direct",
            Medium::DiskBuffered => "disk, buffered",
        }
    }

    /// How servers reach files on it.
    pub(crate) fn cache(self) -> Cache {
        match self {
            Medium::Memory | Medium::DiskBuffered => Cache::Buffered,
            Medium::DiskDirect => Cache::Direct,
        }
    }
}

/// The options of every measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// See that everything works: one short round on small files; the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Rounds; medians are of this many.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seconds of each run of fio.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// A directory in memory.
    #[arg(long = "dir", value_name = "MEM_DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// A directory on a disk.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk: PathBuf,
    /// Only these media.
    #[arg(long, value_enum, value_delimiter = ',')]
    media: Vec<Medium>,
    /// Only loads whose names contain this, such as "random read"; of snapshots, only parts such as "distance";
    /// of thin volumes also "volumes" and "scale"; of boots "boot" and "copy".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The program under measurement [default: varve beside this program].
    #[arg(long, value_name = "FILE")]
    varve: Option<PathBuf>,
}

impl Options {
    /// Whether this is only to see that everything works.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// Rounds of the layer table, which are short.
    pub(crate) fn layer_rounds(&self) -> usize {
        if self.quick { 3 } else { 3 * self.runs() }
    }

    /// Rounds of first touches through the daemon, which are short.
    pub(crate) fn touch_rounds(&self, medium: Medium) -> usize {
        match medium {
            _ if self.quick => 1,
            Medium::Memory => 3 * self.runs(),
            Medium::DiskDirect | Medium::DiskBuffered => 2 * self.runs(),
        }
    }

    /// Rounds.
    pub(crate) fn runs(&self) -> usize {
        if self.quick { 1 } else { usize::from(self.runs) }
    }

    /// Time of one run of fio.
    pub(crate) fn duration(&self) -> Duration {
        if self.quick { Duration::from_millis(300) } else { Duration::from_secs(u64::from(self.seconds)) }
    }

    /// The program under measurement.
    pub(crate) fn varve(&self) -> PathBuf {
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("varve");
        self.varve.clone().unwrap_or_else(beside)
    }

    /// Where files of `medium` lie.
    pub(crate) fn directory(&self, medium: Medium) -> &Path {
        match medium {
            Medium::Memory => &self.memory,
            Medium::DiskDirect | Medium::DiskBuffered => &self.disk,
        }
    }

    /// Bytes that fio works on.
    pub(crate) fn size(&self, medium: Medium) -> u64 {
        match medium {
            _ if self.quick => 64 << 20,
            Medium::DiskDirect => 2 << 30,
            Medium::Memory | Medium::DiskBuffered => 1 << 30,
        }
    }

    /// Bytes that each load of first touches writes to through the daemon.
    pub(crate) fn region(&self) -> u64 {
        if self.quick { 8 << 20 } else { 64 << 20 }
    }

    /// Whether `medium` is wanted.
    pub(crate) fn has(&self, medium: Medium) -> bool {
        self.media.is_empty() || self.media.contains(&medium)
    }

    /// Whether the load of this name is wanted.
    pub(crate) fn wants(&self, load: &str) -> bool {
        self.only.as_ref().is_none_or(|part| load.contains(part.as_str()))
    }
}
