//! A log that tests write entry by entry, and a conversation as text to compare with.

use minke_record::{Entry, line};
use minke_view::{Block, BlockBody, CallState, Conversation, InputState, NoticeKind};
use serde_json::{Value, json};

pub(crate) const RUN: &str = "01970000-0000-7000-8000-000000000005";
pub(crate) const CHILD: &str = "01970000-0000-7000-8000-00000000000c";
pub(crate) const ASK: &str = "01970000-0000-7000-8000-0000000000aa";
pub(crate) const QUEUED: &str = "01970000-0000-7000-8000-0000000000bb";

/// Entries in order. Number and time follow from the index.
pub(crate) struct LogBuilder {
    pub(crate) entries: Vec<Entry>,
    /// The run of the following entries.
    pub(crate) run: String,
}

impl Default for LogBuilder {
    fn default() -> LogBuilder {
        LogBuilder { entries: Vec::new(), run: RUN.to_owned() }
    }
}

impl LogBuilder {
    pub(crate) fn add_entry(&mut self, kind: Value) -> &mut LogBuilder {
        let seq = self.entries.len();
        let mut object = json!({ "seq": seq, "ts": 1_000 + seq, "run": self.run });
        let fields = object.as_object_mut().expect("it is one");
        fields.extend(kind.as_object().expect("a kind is an object").clone());
        fields.insert("h".to_owned(), json!("0".repeat(32)));
        let text = object.to_string();
        self.entries.push(line::parse_entry(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
        self
    }

    pub(crate) fn with_session_start() -> LogBuilder {
        let mut log = LogBuilder::default();
        log.add_entry(json!({
            "kind": "session_start", "session": "01970000-0000-7000-8000-000000000001", "format": 1,
            "version": "0", "name": "alpha", "created_by": { "actor": "person" }, "cwd": "/w", "workspace": "/w",
            "manifest": {}, "scope": { "allow": [] },
        }));
        log.add_entry(json!({
            "kind": "opened", "epoch": 1, "pid": 1, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
        }));
        log
    }

    pub(crate) fn add_run(&mut self) -> &mut LogBuilder {
        self.add_entry(json!({ "kind": "invoke", "trigger": "user_send", "by": user_actor(), "attempt": 1 }))
    }

    pub(crate) fn add_input(&mut self, text: &str) -> &mut LogBuilder {
        let segments = json!([{ "kind": "text", "content": text }]);
        self.add_run().add_entry(json!({ "kind": "user_input", "segments": segments, "from": user_actor() }))
    }

    pub(crate) fn add_llm_call(&mut self, call: u64) -> &mut LogBuilder {
        self.add_entry(json!({
            "kind": "llm_call", "call": call, "turn": call, "purpose": "turn", "request_hash": "r", "builder": 1,
            "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
            "reserved": { "input": 1, "output": 1 },
        }))
    }

    pub(crate) fn add_item(&mut self, call: u64, item: Value) -> &mut LogBuilder {
        self.add_entry(json!({ "kind": "assistant_item", "call": call, "item": item }))
    }

    pub(crate) fn add_reply(&mut self, call: u64, text: &str) -> &mut LogBuilder {
        self.add_item(call, message_json(text))
    }

    pub(crate) fn add_llm_end(&mut self, call: u64) -> &mut LogBuilder {
        self.add_entry(json!({
            "kind": "llm_usage", "call": call, "input": 10, "output": 5, "cache_read": 100, "cost_usd": 0.5,
        }));
        self.add_entry(json!({ "kind": "llm_end", "call": call, "outcome": "done", "attempts": 1 }))
    }

    pub(crate) fn end_run(&mut self, result: &str) -> &mut LogBuilder {
        self.add_entry(json!({ "kind": "run_completed", "result": result, "reason": "because" }))
    }

    pub(crate) fn fold_entries(&self) -> Conversation {
        let mut conversation = Conversation::new();
        self.entries.iter().for_each(|entry| conversation.apply_entry(entry));
        conversation
    }

    pub(crate) fn block_lines(&self) -> Vec<String> {
        conversation_lines(&self.fold_entries())
    }
}

pub(crate) fn user_actor() -> Value {
    json!({ "actor": "person", "surface": "tui" })
}

pub(crate) fn message_json(text: &str) -> Value {
    json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] })
}

pub(crate) fn thinking_json(text: &str) -> Value {
    json!({ "kind": "reasoning", "text": text, "summary": [] })
}

pub(crate) fn tool_call_json(id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "kind": "tool_call", "call_id": id, "name": name, "arguments": arguments.to_string() })
}

pub(crate) fn dispatch_json(id: &str, tool: &str, action: &Value) -> Value {
    json!({
        "kind": "tool_dispatch", "call_id": id, "tool": tool, "class": "once", "action": action,
        "verdict": { "outcome": "allow", "reason": "r", "sandbox": "landlock" },
    })
}

pub(crate) fn result_json(id: &str, summary: &str, content: &str, outcome: &str) -> Value {
    let item = json!({ "kind": "tool_result", "call_id": id, "summary": summary, "content": content });
    json!({ "kind": "tool_result", "item": item, "outcome": outcome })
}

pub(crate) fn ask_json(id: &str, call: &str) -> Value {
    json!({
        "kind": "ask", "id": id, "ask": "approval", "options": ["approved", "denied"],
        "subject": { "call_id": call, "digest": "d", "tool": "Bash", "text": "$ rm -r build", "cwd": "/w" },
    })
}

/// Returns one line per block.
pub(crate) fn conversation_lines(conversation: &Conversation) -> Vec<String> {
    conversation.blocks().iter().map(block_line).collect()
}

fn block_line(block: &Block) -> String {
    let live = if block.id.live { "~" } else { "" };
    let text = match &block.body {
        BlockBody::Input(said) => {
            let how = match said.state {
                InputState::Delivered => "",
                InputState::Steered => " (steered)",
                InputState::Rewound => " (left)",
            };
            format!("{}{how}: {}", said.sender, said.text)
        }
        BlockBody::Reply(words) => format!("reply{}: {}", if words.open { "…" } else { "" }, words.text),
        BlockBody::Thinking(words) => {
            format!("thinking{}: {}", if words.open { "…" } else { "" }, words.text)
        }
        BlockBody::CallCard(call) => {
            let state = match &call.state {
                CallState::Streaming => "written".to_owned(),
                CallState::Pending => "waiting".to_owned(),
                CallState::AwaitingAnswer(_) => "asked".to_owned(),
                CallState::Running => "running".to_owned(),
                CallState::RunEndNotice(outcome) => outcome.to_string(),
            };
            let exit = call.exit.map(|exit| format!(" exit {exit}")).unwrap_or_default();
            let by = call.caller.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("call{by}: {} {} [{state}{exit}] {}", call.tool, call.subject, call.output.text)
        }
        BlockBody::Ask(card) => {
            let pod = card.pod.as_ref().map(|pod| format!(" of {pod}")).unwrap_or_default();
            let answer = card
                .answer
                .as_ref()
                .map(|answer| format!(" → {} by {}", answer.decision, answer.answered_by));
            let open = if card.closed { "" } else { " (open)" };
            let text = card.ask.subject.text.as_deref().unwrap_or_default();
            format!("ask{pod}{open}: {text}{}", answer.unwrap_or_default())
        }
        BlockBody::Child(card) => format!("child {}: {}", card.name, card.status_text),
        BlockBody::NoticeLine(notice) => {
            let kind = match &notice.kind {
                NoticeKind::Alert(level) => level.as_str().to_owned(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            format!("{kind}: {}", notice.text)
        }
        BlockBody::RunEnd(ended) => {
            let on = if ended.resumable { " (resumable)" } else { "" };
            format!("ended {}{on}: {}", ended.result, ended.reason)
        }
    };
    format!("{live}{text}").trim_end().to_owned()
}
