//! Beginnings that are not in the pod's own log or not in its entries: what was said before a fork, texts that lie in
//! blobs, older pages.
//!
//! They are asked for when somebody looks at them, one at a time.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use minke_protocol::{Method, ReadBlob, ReadBlobReply, ReadReply, Refusal, ReplyData, StatusReply};
use minke_record::{ErrorCode, Item};
use minke_view::{BlockId, Prepended};

use super::talk::PAGE;
use super::{App, Pending};
use crate::outside::Question;

/// How much of a long text is shown; all of it is in the log.
const TEXT_BYTES: usize = 64 * 1024;

impl App {
    /// Asks for what is seen and not here.
    pub(super) fn settle_beginnings(&mut self) {
        let Some(talk) = self.talk.as_mut().filter(|talk| talk.is_joined()) else { return };
        if talk.conversation.forked() && !talk.asked_before {
            talk.asked_before = true;
            let session = talk.session;
            self.ask(Question::Before(session), Pending::Before);
        }
        let joined = self.talk.as_mut().filter(|talk| talk.is_joined());
        if let Some(talk) = joined.filter(|talk| talk.conversation.is_partial() && !talk.asked_status) {
            talk.asked_status = true;
            self.send(Method::Status, Pending::Status);
        }
        if self.wants_older() {
            self.read_older();
        }
        let Some((block, blob)) = self.lacking() else { return };
        if let Some(talk) = &mut self.talk {
            talk.asked_texts.insert(block);
        }
        let read = Method::ReadBlob(ReadBlob { blob, offset: 0, limit: TEXT_BYTES });
        self.send(read, Pending::Text(block));
    }

    /// Something is seen that is not here: a tick asks for it.
    pub(super) fn is_lacking(&self) -> bool {
        self.wants_older() || self.lacking().is_some()
    }

    /// The pane has room for what is older: after a compaction or in a fork a pod tells only what follows it.
    fn wants_older(&self) -> bool {
        self.talk.as_ref().is_some_and(|talk| {
            let can = talk.is_joined() && !talk.reading && !talk.full;
            can && talk.pane.short && talk.conversation.older().is_some()
        })
    }

    /// The page before what is there.
    pub(super) fn read_older(&mut self) {
        let Some(talk) = &mut self.talk else { return };
        let first = talk.conversation.older();
        let Some(first) = first.filter(|_| !talk.reading && !talk.full && talk.is_joined()) else { return };
        talk.reading = true;
        let from_seq = first.saturating_sub(talk.page.min(PAGE));
        let limit = usize::try_from(first - from_seq).unwrap_or(usize::MAX);
        let read = minke_protocol::Read { from_seq, limit, kinds: None };
        self.send(Method::Read(read), Pending::Older);
    }

    /// A text that is seen by its name only, and was not asked for.
    fn lacking(&self) -> Option<(BlockId, String)> {
        let talk = self.talk.as_ref().filter(|talk| talk.is_joined())?;
        talk.pane.lacking.iter().find(|(block, _)| !talk.asked_texts.contains(block)).cloned()
    }

    pub(super) fn text_came(&mut self, block: BlockId, data: &ReplyData) {
        let Some(reply) = self.read::<ReadBlobReply>(data) else { return };
        let Ok(bytes) = BASE64_STANDARD.decode(&reply.data) else {
            return self.say("a long text cannot be read: the pod's reply is not base64");
        };
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // A letter may be cut in two at the end.
            Err(e) => {
                std::str::from_utf8(bytes.get(..e.valid_up_to()).unwrap_or_default()).unwrap_or_default()
            }
        };
        if let Some(talk) = &mut self.talk {
            talk.conversation.beginning(block, text);
            talk.asked_texts.remove(&block);
            // Until it is drawn again nobody knows what is lacking.
            talk.pane.lacking.clear();
        }
    }

    /// What it costs and who is below, of a pod that did not tell it from the beginning. Of another moment than what is
    /// held: it is asked again.
    pub(super) fn status_came(&mut self, data: &ReplyData) {
        let Some(reply) = self.read::<StatusReply>(data) else { return };
        if let Some(talk) = &mut self.talk {
            talk.asked_status = talk.conversation.status_of_pod(&reply);
        }
    }

    pub(super) fn before_came(&mut self, items: &[Item]) {
        let Some(talk) = &mut self.talk else { return };
        talk.asked_before = false;
        if talk.conversation.before(items) == Prepended::Full {
            self.say("no more is held here: `minke log export` has what was said before the fork");
        }
    }

    pub(super) fn page_came(&mut self, data: &ReplyData) {
        let reply = self.read::<ReadReply>(data);
        let Some(talk) = &mut self.talk else { return };
        talk.reading = false;
        talk.pane.short = false;
        let Some(reply) = reply else { return };
        match talk.conversation.prepend(&reply.entries) {
            Prepended::Taken { .. } => talk.page = talk.page.saturating_mul(2),
            Prepended::Full => {
                talk.full = true;
                self.say("no more is held here: `minke log show` has what is older");
            }
            // So many entries do not fit a frame, and the newest of them were left out: fewer fit.
            Prepended::DoesNotFit if reply.next_seq.is_some() && talk.page > 1 => {
                talk.page = talk.page.min(PAGE) / 2;
                self.read_older();
            }
            // Not even one entry fits a frame.
            Prepended::DoesNotFit if reply.next_seq.is_some() => {
                talk.full = true;
                self.say("what is older cannot be shown here: `minke log show` has it");
            }
            // It was asked for by another conversation.
            Prepended::DoesNotFit => {}
        }
    }

    /// What was asked of the pod was refused.
    pub(super) fn refused(&mut self, pending: Pending, refusal: &Refusal) {
        match pending {
            Pending::Said { input, .. } => {
                self.composer.put_back(input);
                // Why it is back stays until the person does something about it.
                self.complain(format!("not taken: {}", refusal.message));
            }
            Pending::Completions { .. } => {}
            Pending::Older => {
                if let Some(talk) = &mut self.talk {
                    (talk.reading, talk.full) = (false, true);
                }
                // A pod that has just gone is told of elsewhere, and is asked again when it is back.
                if refusal.code != ErrorCode::TooMany {
                    self.say(format!("what is older cannot be read: {}", refusal.message));
                }
            }
            Pending::Answer { .. } if refusal.code == ErrorCode::NotFound => {
                self.say("that question is not open any more");
            }
            _ => self.say(refusal.message.clone()),
        }
    }
}
