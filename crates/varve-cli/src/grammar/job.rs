//! `varve job`: the verbs of long work.

use super::Change;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// List jobs.
    #[command(visible_alias = "ls")]
    List,
    /// Show a job.
    Show {
        /// The job.
        id: String,
    },
    /// Wait until a job has ended.
    Wait {
        /// The job.
        id: String,
    },
    /// End a job; what it did so far is kept.
    Cancel {
        /// The job.
        id: String,
        #[command(flatten)]
        change: Change,
    },
}
