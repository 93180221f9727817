//! `worker`: how the agent works.

use minke_record::Reasoning;

use crate::form::{Some1, Text, Thinking};
use crate::key::section;

section! {
    /// How the agent works.
    WorkerSection at "worker" {
        /// Requests of one run.
        max_turns: u64 = 2_000, Some1, Override, Nothing, true;
        /// Output of one request in tokens; the model's maximum if absent.
        max_tokens: Option<u64> = None, Some1, Override, Nothing, true;
        /// How much the model thinks: an effort in a word or a number of tokens; the provider's own measure if absent.
        reasoning: Option<Reasoning> = None, Thinking, Override, Nothing, true;
        /// How the agent is to work, in place of the usual words.
        instruction: Option<String> = None, Text, Override, Nothing, true;
    }
    besides {}
}
