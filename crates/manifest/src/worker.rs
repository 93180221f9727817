//! `worker`: how the agent works.

use minke_record::Reasoning;

use crate::form::{Amount, List, Some1, Text, Thinking};
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
        /// The language in which the agent speaks; the person's own if absent.
        language: Option<String> = None, Text, Override, Set, true;
        /// How freely words are picked; the provider's own measure if absent.
        temperature: Option<f64> = None, Amount<false>, Override, Nothing, true;
        /// Words are picked from the likeliest that make up this share; the provider's own if absent.
        top_p: Option<f64> = None, Amount<true>, Override, Nothing, true;
        /// Words are picked from so many of the likeliest; the provider's own if absent.
        top_k: Option<u64> = None, Some1, Override, Nothing, true;
        /// Texts at which the model stops.
        stop_sequences: Vec<String> = Vec::new(), List<Text>, Override, Nothing, true;
        /// How the agent is to work, in place of the usual words.
        instruction: Option<String> = None, Text, Override, Nothing, true;
    }
    besides {}
}
