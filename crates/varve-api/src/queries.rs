//! What can be asked for: the queries of requests that only show something.

use serde::{Deserialize, Serialize};

macro_rules! queries {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
            }
        )*
    };
}

queries! {
    /// Which volumes or pools are listed.
    struct InGroup {
        /// Only those of this group.
        group: Option<String>,
    }

    /// Which snapshots are listed.
    struct OfVolume {
        /// Only those of this volume.
        volume: Option<String>,
    }

    /// Which states are compared.
    struct Between {
        /// `VG/LV@SNAP` or `VG/LV`.
        from: String,
        /// Another state of the same volume, or any other of the same pool; the volume of the snapshot if not given.
        to: Option<String>,
    }

    /// Which bytes are asked for.
    struct ByteRange {
        /// The first byte, as a size; the first of the volume if not given.
        offset: Option<String>,
        /// How many, as a size; all behind it if not given.
        length: Option<String>,
    }

    /// How long a request waits.
    struct Timeout {
        /// Milliseconds; a minute if not given, and at most.
        timeout_ms: Option<u64>,
    }
}
