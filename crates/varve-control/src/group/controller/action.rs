//! What a controller does.

use uuid::Uuid;

/// A small change of what is served, or a question to what is served. Each may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Asks the shards how what they serve stands to what the text says.
    Compare,
    /// Closes a volume that is served elsewhere than the text says.
    Close(Uuid),
    /// Serves a volume as large as the text says.
    Extend(Uuid),
    /// Forgets volumes that the text does not have.
    Forget,
    /// Lets the group give extents away again: no request is under way to what was closed.
    EndDraining,
    /// Takes a mapped volume out of use that lacks a device.
    CutOff(Uuid),
    /// Makes room in the memory for metadata for all that is about to be taken into use.
    ReserveMemory,
    /// Takes a volume into use.
    Activate(Uuid),
    /// Opens the origins of thin volumes.
    AttachOrigins,
    /// Protects the snapshots that are origins, and no others.
    HoldOrigins,
    /// Divides the memory for metadata among what is in use.
    DivideMemory,
    /// Asks the pools for their volumes, which get names that the group does not have yet.
    ListThinVolumes,
    /// The group is served: what waited for that may begin.
    NoteServed,
    /// Gives exports the names that their volumes have.
    RenameExports,
    /// Completes or takes back snapshots of one instant that were cut short.
    ResolveSets,
    /// Gives up what was in the trash for its time.
    EmptyTrash(Vec<Uuid>),
    /// Begins the jobs of arrays that fill members or make them equal.
    FollowArrays,
    /// Resumes, retries or erases a job of the text.
    Job(u64),
    /// Asks a volume or pool what it holds that goes on, and resumes that.
    Ask(Uuid),
    /// Has the groups converge that decide of jobs and sets in this one.
    WakeCoordinators,
    /// Finds the exports that are down.
    ListExports,
    /// Opens an export.
    OpenExport(String),
    /// Redirects the exports of a volume or pool to what serves it now.
    Redirect(Uuid),
}
