//! How long a request for a history of 2,000 items takes, per scheme. The limit is 5 ms (`docs/providers.md`).

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use minke_llm::{Caching, Capability, Quirks, ReasoningKind, Scheme, Settings, ToolUse, build};
use minke_model::{Effort, Prompt, Reasoning};
use minke_record::{Item, Purpose, Route, ToolSpec};
use serde_json::json;

const ITEMS: usize = 2_000;

/// Rounds of a coding session: thinking, a word, two calls, two results of about 1 KiB.
fn history() -> Vec<Arc<Item>> {
    let line = "    let found = lines.iter().position(|line| line.contains(\"needle\"));\n";
    let mut items = vec![Arc::new(Item::user("Find it."))];
    let mut number = 0;
    while items.len() < ITEMS {
        number += 1;
        let by = Some("p/m".to_owned());
        let signature = Some("c2lnbmVk".repeat(40).into());
        let thought = Item::Reasoning {
            text: "Where could that be? I look.".into(),
            summary: vec!["Looking".to_owned()],
            encrypted: signature.clone(),
            signature,
            by,
        };
        items.extend([thought, Item::assistant("I look into two files.")].map(Arc::new));
        for side in ["a", "b"] {
            items.push(Arc::new(Item::ToolCall {
                call_id: format!("call_{number}{side}").as_str().into(),
                name: "Read".to_owned(),
                arguments: format!(r#"{{"file_path": "src/{number}{side}.rs", "limit": 40}}"#).into(),
            }));
        }
        for side in ["b", "a"] {
            items.push(Arc::new(Item::ToolResult {
                call_id: format!("call_{number}{side}").as_str().into(),
                summary: "14 lines".to_owned(),
                content: Some(line.repeat(14).into()),
                is_error: false,
                blob: None,
            }));
        }
    }
    items
}

fn requests(c: &mut Criterion) {
    let tools = ["Bash", "Edit", "Grep", "Read", "Write"].map(|name| ToolSpec {
        name: name.to_owned(),
        description: "What it does, at some length. ".repeat(20),
        schema: json!({"type": "object", "properties": {"file_path": {"type": "string"}}}),
    });
    let prompt = Prompt {
        route: Route { provider: "p".to_owned(), model: "m".to_owned(), scheme: String::new() },
        purpose: Purpose::Turn,
        system: "You are careful. ".repeat(500).into(),
        tools: Arc::new(tools.to_vec()),
        items: history(),
        max_tokens: None,
        reasoning: Some(Reasoning::Effort(Effort::Medium)),
        cache_key: None,
        images: BTreeMap::new(),
        ended: None,
    };
    let mut group = c.benchmark_group("build 2,000 items");
    for scheme in [Scheme::Anthropic, Scheme::OpenaiResponses, Scheme::OpenaiChat, Scheme::Gemini] {
        let settings = Settings {
            scheme,
            provider: "p".to_owned(),
            model_id: "m".to_owned(),
            max_output: Some(64_000),
            capability: Capability {
                tools: ToolUse::Parallel,
                reasoning: ReasoningKind::Effort,
                vision: true,
                caching: Caching::Explicit(4),
                structured_output: false,
            },
            quirks: Quirks { reasoning_field: "reasoning_content".to_owned(), ..Quirks::default() },
        };
        group.bench_function(format!("{scheme:?}"), |b| {
            b.iter(|| black_box(build(black_box(&prompt), &settings)).map(|request| request.body.len()));
        });
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
