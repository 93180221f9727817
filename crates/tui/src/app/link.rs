//! The connection to a session: the attached one, or the one that is being joined or created.

use minke_record::InputSegment;

use super::pod_actions::BlockedInput;
use super::session::AttachedSession;

/// The attached session and the session that is being joined or created.
#[derive(Default)]
pub(super) struct SessionLink {
    pub(super) session: Option<AttachedSession>,
    /// A session that is being joined or created.
    pub(super) joining: Option<String>,
    /// The first input of a session that is being created.
    pub(super) launch_input: Option<Vec<InputSegment>>,
    /// An input whose directory is locked by another pod.
    pub(super) blocked_input: Option<BlockedInput>,
}
