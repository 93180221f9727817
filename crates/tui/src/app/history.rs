//! Loads missing history on demand: messages before a fork, texts in blobs, older pages.
//!
//! Only requests visible items, one at a time.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use minke_protocol::{Method, ReadBlob, ReadBlobReply, ReadReply, Refusal, ReplyData, StatusReply};
use minke_record::{ErrorCode, Item};
use minke_view::{BlockId, PrependResult};

use super::session::PAGE_ENTRIES;
use super::{App, PendingReply};
use crate::app::{SessionLink, UiOutput};
use crate::backend::BackendRequest;

/// Limit for the displayed part of a long text; the log has the rest.
const MAX_TEXT_BYTES: usize = 64 * 1024;

impl SessionLink {
    /// Requests the visible items that are missing.
    pub(in crate::app) fn request_missing(&mut self, output: &mut UiOutput) {
        let Some(attached) = self.session.as_mut().filter(|talk| talk.is_joined()) else { return };
        if attached.conversation.needs_fork_history() && !attached.requested_fork_history {
            attached.requested_fork_history = true;
            let session = attached.session;
            output.ask_backend(BackendRequest::ForkHistory(session), PendingReply::ForkHistory);
        }
        let joined = self.session.as_mut().filter(|talk| talk.is_joined());
        if let Some(talk) =
            joined.filter(|attached| attached.conversation.is_partial() && !attached.requested_status)
        {
            talk.requested_status = true;
            self.send_method(output, Method::Status, PendingReply::Status);
        }
        if self.needs_older_page() {
            self.request_older_page(output);
        }
        let Some((block, blob)) = self.missing_text() else { return };
        if let Some(attached) = &mut self.session {
            attached.requested_texts.insert(block);
        }
        let read = Method::ReadBlob(ReadBlob { blob, offset: 0, limit: MAX_TEXT_BYTES });
        self.send_method(output, read, PendingReply::Text(block));
    }

    /// Returns whether a visible text is missing; the next tick requests it.
    pub(in crate::app) fn is_text_missing(&self) -> bool {
        self.needs_older_page() || self.missing_text().is_some()
    }

    /// Returns whether the pane has space for older entries. After a compaction or in a fork a pod only sends
    /// later ones.
    pub(in crate::app) fn needs_older_page(&self) -> bool {
        self.session.as_ref().is_some_and(|attached| {
            let can = attached.is_joined() && !attached.is_reading_page && !attached.is_full;
            can && attached.pane.has_room && attached.conversation.older_seq().is_some()
        })
    }

    /// Requests the page before the oldest entry.
    pub(in crate::app) fn request_older_page(&mut self, output: &mut UiOutput) {
        let Some(talk) = &mut self.session else { return };
        let first = talk.conversation.older_seq();
        let Some(first) = first.filter(|_| !talk.is_reading_page && !talk.is_full && talk.is_joined()) else {
            return;
        };
        talk.is_reading_page = true;
        let from_seq = first.saturating_sub(talk.page_size.min(PAGE_ENTRIES));
        let limit = usize::try_from(first - from_seq).unwrap_or(usize::MAX);
        let read = minke_protocol::Read { from_seq, limit, kinds: None };
        self.send_method(output, Method::Read(read), PendingReply::OlderPage);
    }

    /// Returns a visible text that is missing and was not requested.
    pub(in crate::app) fn missing_text(&self) -> Option<(BlockId, String)> {
        let attached = self.session.as_ref().filter(|talk| talk.is_joined())?;
        attached
            .pane
            .missing_texts
            .iter()
            .find(|(block, _)| !attached.requested_texts.contains(block))
            .cloned()
    }

    pub(in crate::app) fn apply_text(&mut self, output: &mut UiOutput, block: BlockId, data: &ReplyData) {
        let Some(reply) = output.parse_reply::<ReadBlobReply>(data) else { return };
        let Ok(bytes) = BASE64_STANDARD.decode(&reply.data) else {
            return output.show_note("could not read a long text: the pod's reply is not base64");
        };
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // The last character may be cut in two.
            Err(e) => {
                std::str::from_utf8(bytes.get(..e.valid_up_to()).unwrap_or_default()).unwrap_or_default()
            }
        };
        if let Some(attached) = &mut self.session {
            attached.conversation.set_text_start(block, text);
            attached.requested_texts.remove(&block);
            // The next frame determines the missing texts again.
            attached.pane.missing_texts.clear();
        }
    }

    /// Applies cost and children from the status of a pod that did not send its first entries. Requests it
    /// again if it belongs to another position.
    pub(in crate::app) fn apply_pod_status(&mut self, output: &mut UiOutput, data: &ReplyData) {
        let Some(reply) = output.parse_reply::<StatusReply>(data) else { return };
        if let Some(attached) = &mut self.session {
            attached.requested_status = attached.conversation.apply_pod_status(&reply);
        }
    }

    pub(in crate::app) fn apply_fork_history(&mut self, output: &mut UiOutput, items: &[Item]) {
        let Some(talk) = &mut self.session else { return };
        talk.requested_fork_history = false;
        if talk.conversation.prepend_fork_history(items) == PrependResult::Full {
            output.show_note(
                "the memory limit is reached: `minke log export` prints the messages before the fork",
            );
        }
    }

    pub(in crate::app) fn apply_older_page(&mut self, output: &mut UiOutput, data: &ReplyData) {
        let reply = output.parse_reply::<ReadReply>(data);
        let Some(attached) = &mut self.session else { return };
        attached.is_reading_page = false;
        attached.pane.has_room = false;
        let Some(reply) = reply else { return };
        match attached.conversation.prepend_page(&reply.entries) {
            PrependResult::Prepended { .. } => attached.page_size = attached.page_size.saturating_mul(2),
            PrependResult::Full => {
                attached.is_full = true;
                output.show_note("the memory limit is reached: `minke log show` prints older entries");
            }
            // The page did not fit a frame and its newest entries are missing, so request fewer.
            PrependResult::DoesNotFit if reply.next_seq.is_some() && attached.page_size > 1 => {
                attached.page_size = attached.page_size.min(PAGE_ENTRIES) / 2;
                self.request_older_page(output);
            }
            // Not even one entry fits a frame.
            PrependResult::DoesNotFit if reply.next_seq.is_some() => {
                attached.is_full = true;
                output.show_note("could not show older entries: use `minke log show`");
            }
            // The reply belongs to another conversation.
            PrependResult::DoesNotFit => {}
        }
    }
}

impl App {
    /// Handles a refused request.
    pub(super) fn handle_refusal(&mut self, pending: PendingReply, refusal: &Refusal) {
        match pending {
            PendingReply::Input { input, .. } => {
                self.input.composer.restore_input(input);
                // The reason remains visible until the next key.
                self.output.show_error(format!("refused: {}", refusal.message));
            }
            PendingReply::Completions { .. } => {}
            PendingReply::OlderPage => {
                if let Some(attached) = &mut self.link.session {
                    (attached.is_reading_page, attached.is_full) = (false, true);
                }
                // A disconnected pod is reported elsewhere, and the request is repeated after the reconnect.
                if refusal.code != ErrorCode::TooMany {
                    self.output.show_note(format!("could not read older entries: {}", refusal.message));
                }
            }
            PendingReply::Answer { .. } if refusal.code == ErrorCode::NotFound => {
                self.output.show_note("this question is no longer open");
            }
            _ => self.output.show_note(refusal.message.clone()),
        }
    }
}
