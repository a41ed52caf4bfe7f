//! Which mutants a round is to have, and how they are judged.

/// What is mutated if no file is named.
const ROOMS: [&str; 7] = [
    "crates/varve-target/src/snapshot",
    "crates/varve-target/src/thin",
    "crates/varve-target/src/pdata",
    "crates/varve-vg/src",
    "crates/varve-block/src",
    "crates/varve-os/src",
    "crates/varve-export/src/nbd",
];
/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) sample: usize,
    /// One sample is drawn for each.
    pub(super) seeds: Vec<u64>,
    pub(super) jobs: usize,
    /// Only run the tests of the package that a mutant lies in.
    pub(super) near: bool,
    /// Only say which mutants there would be.
    pub(super) list: bool,
    /// Only these mutants of the sample; all if empty.
    pub(super) only: Vec<u32>,
    /// Files or folders, from the root of the tree.
    pub(super) files: Vec<String>,
}

impl Options {
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            sample: 120,
            seeds: Vec::new(),
            jobs: 1,
            near: false,
            list: false,
            only: Vec::new(),
            files: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, String> {
                let value = words.next().and_then(|value| value.parse().ok());
                value.ok_or_else(|| format!("{word} needs a number"))
            };
            match *word {
                "--sample" => options.sample = number()? as usize,
                "--seed" => options.seeds.push(number()?),
                "--only" => options.only.push(u32::try_from(number()?).map_err(|error| error.to_string())?),
                "--jobs" => options.jobs = (number()? as usize).max(1),
                "--near" => options.near = true,
                "--list" => options.list = true,
                option if option.starts_with('-') => return Err(format!("there is no option {option}")),
                file => options.files.push(file.trim_end_matches('/').to_owned()),
            }
        }
        if options.seeds.is_empty() {
            options.seeds.push(1);
        }
        if options.files.is_empty() {
            options.files = ROOMS.map(str::to_owned).to_vec();
        }
        Ok(options)
    }
}
