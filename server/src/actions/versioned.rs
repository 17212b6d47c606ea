//! Changes that name the version they were made of.

/// What became of such a change.
#[derive(Clone, Debug, PartialEq)]
pub enum VersionedChange<T> {
    Made(T),
    /// Somebody else changed it meanwhile: this is what is there now.
    Stale(T),
}
