//! The output of the UI: effects, outstanding requests and the footer message.

use std::collections::BTreeMap;

use minke_record::Millis;

use super::{AppEffect, PendingReply};

/// Effects that the main loop performs, the requests that wait for a reply, and the message of the footer.
#[derive(Default)]
pub(super) struct UiOutput {
    pub(super) now: Millis,
    pub(super) effects: Vec<AppEffect>,
    pub(super) pending: BTreeMap<u64, PendingReply>,
    pub(super) last_token: u64,
    /// The message and the time at which it appeared.
    pub(super) footer_message: Option<(String, Millis)>,
    /// The screen has changed since it was drawn.
    pub(super) dirty: bool,
}
