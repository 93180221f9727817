//! Marks that a decoder writes into the history and that the request builder of the same format reads.

/// Marks a signature that belongs to no call, in the field for encrypted reasoning of other schemes. It is
/// sent back in a separate part.
pub(crate) const OWN_PART_MARK: &str = "part";
