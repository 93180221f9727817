//! `worker`: the behavior of the agent.

use std::collections::BTreeMap;

use minke_record::Reasoning;

use crate::form::{AmountForm, ListForm, MapForm, PositiveCount, ReasoningForm, TextForm, WholeForm};
use crate::key::section;

/// Maximum size of a tool result in the context.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// Maximum total size of the references of one input.
const MAX_UPLOAD_BYTES: u64 = 4 << 20;
/// The asset with the default instruction.
pub const DEFAULT_INSTRUCTION: &str = "$minke/default";

section! {
    /// The behavior of the agent.
    WorkerSection at "worker" {
        /// Maximum number of requests of one run.
        max_turns: u64 = 2_000, PositiveCount, Override, Nothing, true;
        /// Maximum output of one request in tokens; the model's maximum if absent.
        max_tokens: Option<u64> = None, PositiveCount, Override, Nothing, true;
        /// The reasoning effort of the model, as a word or a number of tokens; the provider's default if
        /// absent.
        reasoning: Option<Reasoning> = None, ReasoningForm, Override, Nothing, true;
        /// The language of the agent; the user's language if absent.
        language: Option<String> = None, TextForm, Override, Set, true;
        /// The sampling temperature; the provider's default if absent.
        temperature: Option<f64> = None, AmountForm<false>, Override, Nothing, true;
        /// Sample from the likeliest tokens with this total probability; the provider's default if absent.
        top_p: Option<f64> = None, AmountForm<true>, Override, Nothing, true;
        /// Sample from this number of the likeliest tokens; the provider's default if absent.
        top_k: Option<u64> = None, PositiveCount, Override, Nothing, true;
        /// Texts at which the model stops.
        stop_sequences: Vec<String> = Vec::new(), ListForm<TextForm>, Override, Nothing, true;
        /// The instruction for the agent: a prompt asset (`$minke/…`, `$user/…`, `$workspace/…`), or text that does not begin
        /// with `$`.
        instruction: String = DEFAULT_INSTRUCTION.to_owned(), TextForm, Override, Nothing, true;
    }
    besides {
        tool_output: ToolOutputSection;
        file_upload: FileUploadSection;
    }
}

section! {
    /// The part of a tool result that the model gets; the rest is stored as a readable file.
    ToolOutputSection at "worker.tool_output" {
        /// Maximum size of one result in the context.
        default_max_bytes: u64 = MAX_OUTPUT_BYTES, WholeForm<1, MAX_OUTPUT_BYTES>, Override, Nothing, true;
        /// The same for single tools, by name.
        per_tool: BTreeMap<String, u64> = BTreeMap::new(), MapForm<WholeForm<1, MAX_OUTPUT_BYTES>>, PerKey, Nothing, true;
    }
    besides {}
}

impl ToolOutputSection {
    /// Returns the size limit for a tool.
    pub fn max_bytes(&self, tool: &str) -> u64 {
        self.per_tool.get(tool).copied().unwrap_or(self.default_max_bytes)
    }
}

section! {
    /// Files that an input refers to.
    FileUploadSection at "worker.file_upload" {
        /// Maximum size of one `@path` for the model.
        max_bytes: u64 = 256 << 10, WholeForm<1, MAX_UPLOAD_BYTES>, Override, Nothing, true;
    }
    besides {}
}
