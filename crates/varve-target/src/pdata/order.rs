//! When the nodes of maps are written: behind a log, or with every change.

/// When the nodes of a store's or pool's maps are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MetadataOrder {
    /// Later: a change counts when the log says so.
    #[default]
    Logged,
    /// With every batch: a change counts when the maps on the disk say so.
    WriteThrough,
}

impl MetadataOrder {
    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            MetadataOrder::Logged => "logged",
            MetadataOrder::WriteThrough => "write-through",
        }
    }

    /// The order of that name.
    pub fn from_name(name: &str) -> Option<MetadataOrder> {
        [MetadataOrder::Logged, MetadataOrder::WriteThrough].into_iter().find(|order| order.name() == name)
    }
}
