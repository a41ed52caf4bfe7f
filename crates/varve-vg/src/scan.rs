//! From disks to groups: whose they are, what they say, and everything that is wrong, by name. Reads only.

use crate::disks::disk::{self, Disk, ReadProblem, Reading};
use crate::disks::free_disk::FreeDisk;
use crate::election::{Replica, Undecided, elect};
use crate::model::TextError;
use crate::open::OpenGroup;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::Arena;

/// What a set of disks holds.
pub struct Survey {
    /// Groups that can be opened; nothing was written to them yet.
    pub groups: Vec<OpenGroup>,
    /// Groups that cannot.
    pub refused: Vec<RefusedGroup>,
    /// Physical volumes that belong to no group.
    pub unassigned: Vec<FreeDisk>,
    /// Disks that cannot be used.
    pub problems: Vec<DiskProblem>,
}

/// A disk that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskProblem {
    /// Its label or ring.
    #[error("{path}: {problem}")]
    Read {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        problem: ReadProblem,
    },
    /// Several disks say that they are the same one: a copy, or one disk by two paths.
    #[error("{} carry the same label ({id}): one is a copy of another, or one disk has two paths", paths.join(" and "))]
    Duplicate {
        /// What the labels say.
        id: Uuid,
        /// Where they are.
        paths: Vec<String>,
    },
}

/// A group that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedGroup {
    /// What it is.
    pub id: Uuid,
    /// Its disks.
    pub paths: Vec<String>,
    /// Why.
    pub problem: GroupProblem,
}

/// Why a group cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupProblem {
    /// No disk holds a whole description.
    #[error("no disk of the group holds a whole description")]
    NoDescription,
    /// The disks were used apart.
    #[error("its disks were changed apart from each other: {}", sides_text(sides))]
    Divergent {
        /// The paths of the disks that agree with each other.
        sides: Vec<Vec<String>>,
    },
    /// The description cannot be read by this program.
    #[error(transparent)]
    Text(TextError),
    /// Only disks are here that have left the group, or were left out of it.
    #[error("the disks that it counts on are missing: {}", paths.join(", "))]
    Left {
        /// Where these were last.
        paths: Vec<String>,
    },
    /// The description is whole, and cannot be true.
    #[error("its description contradicts itself: {0}")]
    Contradiction(&'static str),
    /// Two disks carry the same label.
    #[error("two of its disks carry the same label ({0})")]
    Duplicate(Uuid),
}

impl DiskProblem {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Read { path, problem: ReadProblem::NoLabel } => {
                format!(
                    "if it was one, stop the daemon and `varve repair PATH…` of all disks of its group; else \
                    `varve pv create {path}` makes it one, and destroys what it holds"
                )
            }
            Self::Read { path, problem: ReadProblem::Truncated { .. } } => {
                format!("bring {path} back to its size; nothing was written to it")
            }
            Self::Read { problem: ReadProblem::Label(_), .. } => {
                "stop the daemon; `varve repair PATH…` of all disks of its group makes the label anew".into()
            }
            Self::Read { path, .. } => format!("`varve check {path}` tells more; nothing was written to it"),
            Self::Duplicate { paths, .. } => {
                let path = paths.first().map_or("PATH", String::as_str);
                format!("detach all but the right one, then `varve pv scan {path}`")
            }
        }
    }
}

impl GroupProblem {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::NoDescription => {
                "stop the daemon; `varve repair PATH…` of all of its disks makes it again from their last MiB, or \
                `varve restore FILE PATH…` from a backup"
                    .into()
            }
            Self::Divergent { .. } => {
                "decide which side is right, detach the others, and `varve vg reduce VG --missing`; then \
                `varve pv create --yes -n PATH` of each of the others says what a new label destroys"
                    .into()
            }
            Self::Text(TextError::Newer(_)) => "use the newer varve that wrote it".into(),
            Self::Text(TextError::Older(_) | TextError::WorkOfOlder(_)) => {
                "use the older varve that wrote it".into()
            }
            Self::Text(_) => {
                "nothing was written to its disks; report this with what `varve check PATH…` says".into()
            }
            Self::Left { paths } => {
                let paths = paths.join(" ");
                format!(
                    "attach them, then `varve pv scan {paths}`; `varve pv create --yes -n` of those that are here says what a new label destroys"
                )
            }
            Self::Contradiction(_) => "attach all of its disks, then `varve pv scan PATH…`".into(),
            Self::Duplicate(_) => "detach the copy, then `varve pv scan PATH` of the right disk".into(),
        }
    }
}

impl Survey {
    /// The names that more than one group has, and the ids of those groups. Such groups are distinguished by their ids;
    /// `varve vg rename ID NEW` ends it.
    pub fn names_twice(&self) -> Vec<(String, Vec<Uuid>)> {
        let mut names: BTreeMap<&str, Vec<Uuid>> = BTreeMap::new();
        for open in &self.groups {
            names.entry(open.group().name()).or_default().push(open.group().id());
        }
        let twice = names.into_iter().filter(|(_, ids)| ids.len() > 1);
        twice.map(|(name, ids)| (name.to_owned(), ids)).collect()
    }
}

/// Reads the labels and rings of `disks` and puts the groups together.
pub async fn scan(disks: Vec<Disk>, arena: &Arena) -> Survey {
    let reads = disks.into_iter().map(|disk| async {
        let path = disk.path.clone();
        disk::read(disk, arena).await.map_err(|problem| DiskProblem::Read { path, problem })
    });
    let mut survey =
        Survey { groups: Vec::new(), refused: Vec::new(), unassigned: Vec::new(), problems: Vec::new() };
    let mut by_id: BTreeMap<Uuid, Vec<Reading>> = BTreeMap::new();
    for read in join_all(reads).await {
        match read {
            Ok(reading) => by_id.entry(reading.label.pv).or_default().push(reading),
            Err(problem) => survey.problems.push(problem),
        }
    }
    let mut groups: BTreeMap<Uuid, Vec<Reading>> = BTreeMap::new();
    let mut unassigned = Vec::new();
    for (id, mut readings) in by_id {
        if readings.len() > 1 {
            survey.refuse_copies(id, &readings);
            continue;
        }
        let Some(reading) = readings.pop() else { continue };
        match reading.label.vg {
            Some(vg) => groups.entry(vg).or_default().push(reading),
            None => unassigned.push(reading),
        }
    }
    for (id, readings) in groups {
        survey.assemble(id, readings, &mut unassigned, arena);
    }
    let free = unassigned.into_iter().map(|reading| FreeDisk { disk: reading.disk, label: reading.label });
    survey.unassigned = free.collect();
    survey
}

impl Survey {
    fn refuse_copies(&mut self, id: Uuid, copies: &[Reading]) {
        let paths: Vec<String> = copies.iter().map(|copy| copy.disk.path.clone()).collect();
        let mut groups: Vec<Uuid> = copies.iter().filter_map(|copy| copy.label.vg).collect();
        groups.dedup();
        for group in groups {
            let problem = GroupProblem::Duplicate(id);
            self.refused.push(RefusedGroup { id: group, paths: paths.clone(), problem });
        }
        self.problems.push(DiskProblem::Duplicate { id, paths });
    }

    fn assemble(
        &mut self,
        id: Uuid,
        mut readings: Vec<Reading>,
        unassigned: &mut Vec<Reading>,
        arena: &Arena,
    ) {
        let paths: Vec<String> = readings.iter().map(|reading| reading.disk.path.clone()).collect();
        if self.refused.iter().any(|refused| refused.id == id) {
            return;
        }
        let mut replicas = replicas(&readings, id);
        let mut election = elect(&replicas);
        if let Ok(found) = &election {
            // A crash while the group was made: the disk is listed, and its label does not know it yet.
            let listed = |reading: &mut Reading| found.group.counts_on(reading.label.pv);
            let adopted: Vec<Reading> = unassigned.extract_if(.., listed).collect();
            if !adopted.is_empty() {
                readings.extend(adopted);
                replicas = self::replicas(&readings, id);
                election = elect(&replicas);
            }
        }
        assert_eq!(replicas.len(), readings.len(), "every disk has its say");
        let path_of = |pv: &Uuid| {
            let reading = readings.iter().find(|reading| reading.label.pv == *pv);
            reading.map_or_else(String::new, |reading| reading.disk.path.clone())
        };
        let problem = match election {
            Ok(election) => {
                assert_eq!(election.group.id(), id, "the version that was elected is of this group");
                self.groups.push(OpenGroup::assembled(election, replicas, readings, arena.clone()));
                return;
            }
            Err(Undecided::Nothing) => GroupProblem::NoDescription,
            Err(Undecided::Text(error)) => GroupProblem::Text(error),
            Err(Undecided::Left(paths)) => GroupProblem::Left { paths },
            Err(Undecided::Contradiction(what)) => GroupProblem::Contradiction(what),
            Err(Undecided::Divergent(sides)) => {
                let named = sides.iter().map(|side| side.iter().map(path_of).collect());
                GroupProblem::Divergent { sides: named.collect() }
            }
        };
        self.refused.push(RefusedGroup { id, paths, problem });
    }
}

fn replicas(readings: &[Reading], vg: Uuid) -> Vec<Replica> {
    let replica = |reading: &Reading| Replica { pv: reading.label.pv, ring: reading.find(vg) };
    readings.iter().map(replica).collect()
}

fn sides_text(sides: &[Vec<String>]) -> String {
    let sides: Vec<_> = sides.iter().map(|side| side.join(", ")).collect();
    sides.join(" against ")
}
