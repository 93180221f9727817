//! A configuration with one provider, and a request to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use minke_llm::{ModelRequest, Recording, RecordingWriter, ResolveContext, ResolvedModel, resolve_model};
use minke_model::{ModelError, ModelEvent, Prompt, RecordingPart, TokenUsage};
use minke_record::Item;

pub(crate) const KEY: &str = "sk-planted-0123456789abcdef";

/// A complete reply in the chat format: two pieces of text, usage, a normal end.
pub(crate) const REPLY: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":500,\
    \"prompt_tokens_details\":{\"cached_tokens\":400}}}\n\n\
    data: [DONE]\n\n";

/// A configuration directory with one provider, `test`, and the inputs of a request to it.
pub(crate) struct ProviderFixture {
    dir: tempfile::TempDir,
    env: Arc<Mutex<BTreeMap<String, String>>>,
}

impl ProviderFixture {
    pub(crate) fn new(base_url: &str, more: &str) -> ProviderFixture {
        let dir = tempfile::tempdir().unwrap();
        let providers = format!(
            "[test]\nscheme = \"openai_chat\"\nbase_url = \"{base_url}\"\n\
             auth = {{ api_key = {{ env = \"TEST_KEY\" }} }}\n{more}\n"
        );
        std::fs::write(dir.path().join("providers.toml"), providers).unwrap();
        let models = "[\"test/priced\"]\nprices = { input = 1, output = 2, cache_read = 0.5 }\n\
                      [\"test/half-priced\"]\nprices = { input = 1, output = 2 }\n";
        std::fs::write(dir.path().join("models.toml"), models).unwrap();
        let env = Arc::new(Mutex::new(BTreeMap::new()));
        let world = ProviderFixture { dir, env };
        world.set_env("TEST_KEY", KEY);
        world
    }

    pub(crate) fn set_env(&self, name: &str, value: &str) {
        self.env.lock().unwrap().insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn resolve_context(&self) -> ResolveContext {
        let env = Arc::clone(&self.env);
        let look = move |name: &str| env.lock().unwrap().get(name).cloned();
        ResolveContext::for_process(Path::new("/"), Some(self.dir.path().to_owned())).with_env(look)
    }

    pub(crate) fn resolve_model(&self, reference: &str) -> ResolvedModel {
        resolve_model(&ModelRequest::from(reference), &self.resolve_context())
            .unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) async fn ask_model(&self) -> CollectedReply {
        ask_model(&self.resolve_model("test/priced")).await
    }
}

#[derive(Debug, Default)]
pub(crate) struct CollectedReply {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) failure: Option<ModelError>,
}

impl CollectedReply {
    pub(crate) fn reply_text(&self) -> String {
        let piece = |event: &ModelEvent| match event {
            ModelEvent::Delta { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(piece).collect()
    }

    pub(crate) fn reply_usage(&self) -> &TokenUsage {
        let usage = |event: &'_ ModelEvent| matches!(event, ModelEvent::Usage(_));
        match self.events.iter().rfind(|event| usage(event)) {
            Some(ModelEvent::Usage(usage)) => usage,
            _ => panic!("no usage: {self:?}"),
        }
    }

    pub(crate) fn expect_failure(&self) -> &ModelError {
        self.failure.as_ref().unwrap_or_else(|| panic!("unexpected success: {self:?}"))
    }

    pub(crate) fn recording_parts(&self) -> Vec<&RecordingPart> {
        self.events
            .iter()
            .filter_map(|e| if let ModelEvent::RecordingPart(tape) = e { Some(tape) } else { None })
            .collect()
    }

    pub(crate) fn read_recording(&self) -> Recording {
        let mut writer = RecordingWriter::new();
        self.recording_parts().into_iter().for_each(|tape| writer.push_part(tape));
        Recording::parse(&writer.finish().unwrap()).unwrap()
    }

    /// Returns whether the reply contains the key, complete or in pieces that a reader would join.
    pub(crate) fn leaks_secret(&self, secret: &str) -> bool {
        let bytes: Vec<u8> = self
            .recording_parts()
            .iter()
            .flat_map(|tape| match tape {
                RecordingPart::Bytes(bytes) => bytes.clone(),
                _ => Vec::new(),
            })
            .collect();
        let all = format!("{:?} {} {}", self, self.reply_text(), String::from_utf8_lossy(&bytes));
        all.contains(secret)
    }
}

pub(crate) async fn ask_model(resolved: &ResolvedModel) -> CollectedReply {
    let prompt = Prompt {
        system: "be brief".into(),
        ..Prompt::new(resolved.route.clone(), vec![Arc::new(Item::user_message("hello"))])
    };
    let mut stream = resolved.model.stream_reply(Arc::new(prompt));
    let mut reply = CollectedReply::default();
    let gather = async {
        while let Some(event) = stream.next().await {
            assert!(reply.failure.is_none(), "something follows a failure");
            assert!(!matches!(reply.events.last(), Some(ModelEvent::Done { .. })), "an event after the end");
            match event {
                Ok(event) => reply.events.push(event),
                Err(failure) => reply.failure = Some(failure),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gather).await.expect("the stream ends");
    let done = matches!(reply.events.last(), Some(ModelEvent::Done { .. }));
    assert!(done != reply.failure.is_some(), "the stream must end with `Done` or with one error: {reply:?}");
    reply
}
