//! A configuration with one provider, and a request to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use minke_llm::{Around, ModelRequest, Recording, Resolved, TapeWriter, resolve};
use minke_model::{Failure, ModelEvent, Prompt, Tape, TokenUsage};
use minke_record::Item;

pub(crate) const KEY: &str = "sk-planted-0123456789abcdef";

/// A whole reply in the chat format: two pieces of text, usage, an orderly end.
pub(crate) const REPLY: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":500,\
    \"prompt_tokens_details\":{\"cached_tokens\":400}}}\n\n\
    data: [DONE]\n\n";

/// A configuration directory with one provider, `test`, and what a request to it needs.
pub(crate) struct World {
    dir: tempfile::TempDir,
    env: Arc<Mutex<BTreeMap<String, String>>>,
}

impl World {
    pub(crate) fn new(base_url: &str, more: &str) -> World {
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
        let world = World { dir, env };
        world.set("TEST_KEY", KEY);
        world
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        self.env.lock().unwrap().insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn around(&self) -> Around {
        let env = Arc::clone(&self.env);
        let look = move |name: &str| env.lock().unwrap().get(name).cloned();
        Around::here(Path::new("/"), Some(self.dir.path().to_owned())).with_env(look)
    }

    pub(crate) fn resolve(&self, reference: &str) -> Resolved {
        resolve(&ModelRequest::from(reference), &self.around()).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) async fn ask(&self) -> Reply {
        ask(&self.resolve("test/priced")).await
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) failure: Option<Failure>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        let piece = |event: &ModelEvent| match event {
            ModelEvent::Delta { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(piece).collect()
    }

    pub(crate) fn usage(&self) -> &TokenUsage {
        let usage = |event: &'_ ModelEvent| matches!(event, ModelEvent::Usage(_));
        match self.events.iter().rfind(|event| usage(event)) {
            Some(ModelEvent::Usage(usage)) => usage,
            _ => panic!("no usage: {self:?}"),
        }
    }

    pub(crate) fn failed(&self) -> &Failure {
        self.failure.as_ref().unwrap_or_else(|| panic!("it did not fail: {self:?}"))
    }

    pub(crate) fn tapes(&self) -> Vec<&Tape> {
        self.events
            .iter()
            .filter_map(|e| if let ModelEvent::Tape(tape) = e { Some(tape) } else { None })
            .collect()
    }

    pub(crate) fn recording(&self) -> Recording {
        let mut writer = TapeWriter::new();
        self.tapes().into_iter().for_each(|tape| writer.push(tape));
        Recording::read(&writer.finish().unwrap()).unwrap()
    }

    /// Nothing of it holds the key, whole or in pieces that a reader would put together.
    pub(crate) fn shows(&self, secret: &str) -> bool {
        let bytes: Vec<u8> = self
            .tapes()
            .iter()
            .flat_map(|tape| match tape {
                Tape::Bytes(bytes) => bytes.clone(),
                _ => Vec::new(),
            })
            .collect();
        let all = format!("{:?} {} {}", self, self.text(), String::from_utf8_lossy(&bytes));
        all.contains(secret)
    }
}

pub(crate) async fn ask(resolved: &Resolved) -> Reply {
    let prompt = Prompt {
        system: "be brief".into(),
        ..Prompt::new(resolved.route.clone(), vec![Arc::new(Item::user("hello"))])
    };
    let mut stream = resolved.model.ask(Arc::new(prompt));
    let mut reply = Reply::default();
    let gather = async {
        while let Some(event) = stream.next().await {
            assert!(reply.failure.is_none(), "something follows a failure");
            assert!(
                !matches!(reply.events.last(), Some(ModelEvent::Done { .. })),
                "something follows the end"
            );
            match event {
                Ok(event) => reply.events.push(event),
                Err(failure) => reply.failure = Some(failure),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gather).await.expect("the stream ends");
    let done = matches!(reply.events.last(), Some(ModelEvent::Done { .. }));
    assert!(done != reply.failure.is_some(), "it ends with `Done` or with one failure: {reply:?}");
    reply
}
