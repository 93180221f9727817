//! `worker`: how the agent works.

use std::collections::BTreeMap;

use minke_record::Reasoning;

use crate::form::{Amount, List, Map, Some1, Text, Thinking, Whole};
use crate::key::section;

/// No tool puts more into the context.
const OUTPUT_MOST: u64 = 64 << 10;
/// What all references of one input may hold together.
const UPLOAD_MOST: u64 = 4 << 20;
/// The asset that holds the usual words.
pub const INSTRUCTION: &str = "$minke/default";

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
        /// How the agent is to work: a prompt asset (`$minke/…`, `$user/…`, `$workspace/…`), or words that do not begin
        /// with `$`.
        instruction: String = INSTRUCTION.to_owned(), Text, Override, Nothing, true;
    }
    besides {
        tool_output: ToolOutputSection;
        file_upload: FileUploadSection;
    }
}

section! {
    /// What the model is given of a tool's result; the rest is kept as a file that it can read.
    ToolOutputSection at "worker.tool_output" {
        /// Bytes of one result that stand in the context.
        default_max_bytes: u64 = OUTPUT_MOST, Whole<1, OUTPUT_MOST>, Override, Nothing, true;
        /// The same for single tools, by their names.
        per_tool: BTreeMap<String, u64> = BTreeMap::new(), Map<Whole<1, OUTPUT_MOST>>, PerKey, Nothing, true;
    }
    besides {}
}

impl ToolOutputSection {
    /// What a tool may put into the context.
    pub fn max_bytes(&self, tool: &str) -> u64 {
        self.per_tool.get(tool).copied().unwrap_or(self.default_max_bytes)
    }
}

section! {
    /// Files that an input refers to.
    FileUploadSection at "worker.file_upload" {
        /// Bytes of one `@path` that the model is given.
        max_bytes: u64 = 256 << 10, Whole<1, UPLOAD_MOST>, Override, Nothing, true;
    }
    besides {}
}
