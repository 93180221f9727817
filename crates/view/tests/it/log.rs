//! A log for tests, written entry by entry; and a conversation in words, to compare it with.

use minke_record::{Entry, line};
use minke_view::{Block, Body, CallState, Conversation, NoticeKind, Saying};
use serde_json::{Value, json};

pub(crate) const RUN: &str = "01970000-0000-7000-8000-000000000005";
pub(crate) const CHILD: &str = "01970000-0000-7000-8000-00000000000c";
pub(crate) const ASK: &str = "01970000-0000-7000-8000-0000000000aa";
pub(crate) const QUEUED: &str = "01970000-0000-7000-8000-0000000000bb";

/// Entries in order; numbers and times are given by their places.
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    /// The run that is written about.
    pub(crate) run: String,
}

impl Default for Log {
    fn default() -> Log {
        Log { entries: Vec::new(), run: RUN.to_owned() }
    }
}

impl Log {
    pub(crate) fn add(&mut self, kind: Value) -> &mut Log {
        let seq = self.entries.len();
        let mut object = json!({ "seq": seq, "ts": 1_000 + seq, "run": self.run });
        let fields = object.as_object_mut().expect("it is one");
        fields.extend(kind.as_object().expect("a kind is an object").clone());
        fields.insert("h".to_owned(), json!("0".repeat(32)));
        let text = object.to_string();
        self.entries.push(line::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")));
        self
    }

    pub(crate) fn begins() -> Log {
        let mut log = Log::default();
        log.add(json!({
            "kind": "session_start", "session": "01970000-0000-7000-8000-000000000001", "format": 1,
            "version": "0", "name": "alpha", "created_by": { "actor": "person" }, "cwd": "/w", "workspace": "/w",
            "manifest": {}, "scope": { "allow": [] },
        }));
        log.add(json!({
            "kind": "opened", "epoch": 1, "pid": 1, "boot_id": "b", "host": "h", "version": "0", "as": "pod",
        }));
        log
    }

    pub(crate) fn run(&mut self) -> &mut Log {
        self.add(json!({ "kind": "invoke", "trigger": "user_send", "by": person(), "attempt": 1 }))
    }

    pub(crate) fn says(&mut self, text: &str) -> &mut Log {
        let segments = json!([{ "kind": "text", "content": text }]);
        self.run().add(json!({ "kind": "user_input", "segments": segments, "from": person() }))
    }

    pub(crate) fn asks_model(&mut self, call: u64) -> &mut Log {
        self.add(json!({
            "kind": "llm_call", "call": call, "turn": call, "purpose": "turn", "request_hash": "r", "builder": 1,
            "route": { "provider": "scripted", "model": "m", "scheme": "scripted" },
            "reserved": { "input": 1, "output": 1 },
        }))
    }

    pub(crate) fn model(&mut self, call: u64, item: Value) -> &mut Log {
        self.add(json!({ "kind": "assistant_item", "call": call, "item": item }))
    }

    pub(crate) fn replies(&mut self, call: u64, text: &str) -> &mut Log {
        self.model(call, message(text))
    }

    pub(crate) fn model_ends(&mut self, call: u64) -> &mut Log {
        self.add(json!({
            "kind": "llm_usage", "call": call, "input": 10, "output": 5, "cache_read": 100, "cost_usd": 0.5,
        }));
        self.add(json!({ "kind": "llm_end", "call": call, "outcome": "done", "attempts": 1 }))
    }

    pub(crate) fn ends(&mut self, result: &str) -> &mut Log {
        self.add(json!({ "kind": "run_completed", "result": result, "reason": "because" }))
    }

    pub(crate) fn fold(&self) -> Conversation {
        let mut conversation = Conversation::new();
        self.entries.iter().for_each(|entry| conversation.entry(entry));
        conversation
    }

    pub(crate) fn words(&self) -> Vec<String> {
        words(&self.fold())
    }
}

pub(crate) fn person() -> Value {
    json!({ "actor": "person", "surface": "tui" })
}

pub(crate) fn message(text: &str) -> Value {
    json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] })
}

pub(crate) fn thinking(text: &str) -> Value {
    json!({ "kind": "reasoning", "text": text, "summary": [] })
}

pub(crate) fn tool_call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "kind": "tool_call", "call_id": id, "name": name, "arguments": arguments.to_string() })
}

pub(crate) fn dispatch(id: &str, tool: &str, action: &Value) -> Value {
    json!({
        "kind": "tool_dispatch", "call_id": id, "tool": tool, "class": "once", "action": action,
        "verdict": { "outcome": "allow", "reason": "r", "fence": "full" },
    })
}

pub(crate) fn result(id: &str, summary: &str, content: &str, outcome: &str) -> Value {
    let item = json!({ "kind": "tool_result", "call_id": id, "summary": summary, "content": content });
    json!({ "kind": "tool_result", "item": item, "outcome": outcome })
}

pub(crate) fn ask(id: &str, call: &str) -> Value {
    json!({
        "kind": "ask", "id": id, "ask": "approval", "options": ["approved", "denied"],
        "subject": { "call_id": call, "digest": "d", "tool": "Bash", "text": "$ rm -r build", "cwd": "/w" },
    })
}

/// Every block as a line.
pub(crate) fn words(conversation: &Conversation) -> Vec<String> {
    conversation.blocks().iter().map(in_words).collect()
}

fn in_words(block: &Block) -> String {
    let live = if block.id.live { "~" } else { "" };
    let text = match &block.body {
        Body::Said(said) => {
            let how = match said.state {
                Saying::Said => "",
                Saying::Steered => " (steered)",
                Saying::Left => " (left)",
            };
            format!("{}{how}: {}", said.who, said.text)
        }
        Body::Reply(words) => format!("reply{}: {}", if words.open { "…" } else { "" }, words.text),
        Body::Thinking(words) => format!("thinking{}: {}", if words.open { "…" } else { "" }, words.text),
        Body::Call(call) => {
            let state = match &call.state {
                CallState::Written => "written".to_owned(),
                CallState::Waiting => "waiting".to_owned(),
                CallState::Asked(_) => "asked".to_owned(),
                CallState::Running => "running".to_owned(),
                CallState::Ended(outcome) => outcome.to_string(),
            };
            let exit = call.exit.map(|exit| format!(" exit {exit}")).unwrap_or_default();
            let by = call.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("call{by}: {} {} [{state}{exit}] {}", call.tool, call.about, call.output.text)
        }
        Body::Ask(card) => {
            let pod = card.pod.as_ref().map(|pod| format!(" of {pod}")).unwrap_or_default();
            let answer =
                card.answer.as_ref().map(|answer| format!(" → {} by {}", answer.decision, answer.by));
            let open = if card.closed { "" } else { " (open)" };
            let text = card.ask.subject.text.as_deref().unwrap_or_default();
            format!("ask{pod}{open}: {text}{}", answer.unwrap_or_default())
        }
        Body::Child(card) => format!("child {}: {}", card.name, card.told),
        Body::Notice(notice) => {
            let kind = match &notice.kind {
                NoticeKind::Alert(level) => level.as_str().to_owned(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            format!("{kind}: {}", notice.text)
        }
        Body::Ended(ended) => {
            let on = if ended.resumable { " (resumable)" } else { "" };
            format!("ended {}{on}: {}", ended.result, ended.reason)
        }
    };
    format!("{live}{text}").trim_end().to_owned()
}
