//! Random valid histories (each call has one result, the last message is not the assistant's) and random
//! models: the request must always be valid for its scheme.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_llm::{
    CachingMode, ModelCapability, ModelSettings, ProviderQuirks, ReasoningKind, ToolUseSupport, WireScheme,
};
use minke_model::{Effort, Prompt, Reasoning};
use minke_record::{CallId, Content, ImageBlob, Item, Purpose, Role};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::sample_history;

pub(crate) fn random_prompts(scheme: WireScheme) -> impl Strategy<Value = (Prompt, ModelSettings)> {
    let settings = random_settings(scheme);
    let reasoning = option::of(prop_oneof![
        select(vec![Effort::None, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh])
            .prop_map(Reasoning::Effort),
        (0_u64..100_000).prop_map(Reasoning::Budget),
    ]);
    let spends = option::of(1_u64..50_000);
    (settings, random_history(scheme), any::<(bool, bool)>(), reasoning, spends).prop_map(
        |(settings, items, (with_tools, with_system), reasoning, max_tokens)| {
            let mut images = BTreeMap::new();
            images.insert("picture".to_owned(), Arc::from(sample_history::PNG));
            let prompt = Prompt {
                route: sample_history::route_for(&settings),
                purpose: Purpose::Turn,
                system: if with_system { "You are careful." } else { " " }.into(),
                tools: if with_tools { sample_history::sample_tools() } else { Arc::default() },
                items: items.into_iter().map(Arc::new).collect(),
                max_tokens,
                reasoning,
                sampling: Default::default(),
                cache_key: Some("session-1".to_owned()),
                images,
                ended_requests: None,
            };
            (prompt, settings)
        },
    )
}

fn random_settings(scheme: WireScheme) -> impl Strategy<Value = ModelSettings> {
    let capability = (
        select(vec![
            ToolUseSupport::None,
            ToolUseSupport::Sequential,
            ToolUseSupport::Parallel,
            ToolUseSupport::Parallel,
        ]),
        select(vec![ReasoningKind::None, ReasoningKind::Effort, ReasoningKind::Budget]),
        any::<bool>(),
        prop_oneof![
            Just(CachingMode::None),
            Just(CachingMode::Auto),
            (0_u32..9).prop_map(CachingMode::Explicit)
        ],
    );
    let quirks = (
        select(vec!["user", "system", "developer"]),
        select(vec!["", "reasoning_content", "reasoning", "reasoning_details"]),
        option::of(select(vec![9_u32])),
        any::<(bool, bool, bool)>(),
    );
    (capability, quirks, option::of(1_u64..100_000)).prop_map(
        move |((tools, reasoning, vision, caching), (notice, field, chars, flags), max_output)| {
            ModelSettings {
                capability: ModelCapability { tools, reasoning, vision, caching, structured_output: false },
                quirks: ProviderQuirks {
                    notice_role: notice.to_owned(),
                    reasoning_field: field.to_owned(),
                    call_id_chars: chars,
                    call_signatures: flags.0,
                    adaptive_thinking: flags.1,
                    reply_after_results: flags.2,
                    ..ProviderQuirks::default()
                },
                max_output,
                ..sample_history::scheme_settings(scheme)
            }
        },
    )
}

/// One part of a reply.
#[derive(Debug, Clone)]
enum HistoryBlock {
    Thought { text: String, seal_kind: u8, author: u8 },
    Text(String),
    Refusal(String),
    Call { id: String, name: String, arguments: String },
}

/// Difficult texts: blank, quoted, long, with multi-byte or control characters.
fn random_text() -> impl Strategy<Value = String> {
    const DIFFICULT_TEXTS: [&str; 12] = [
        "",
        " \n",
        "\u{a0}\u{2003}",
        "word",
        "two words\n",
        "  led by spaces",
        "\"quoted\" \\ and \u{1f40b}\u{301}",
        "\u{0}\u{1b}[31m",
        "</system-reminder>",
        "{\"a\": 1}",
        "error: no such file",
        "\u{2028}\u{feff}",
    ];
    (select(DIFFICULT_TEXTS.to_vec()), 1_usize..4).prop_map(|(text, times)| text.repeat(times))
}

fn random_block() -> impl Strategy<Value = HistoryBlock> {
    let ids = prop_oneof![
        Just("0".to_owned()),
        Just("functions.Read:0".to_owned()),
        Just(String::new()),
        (1_usize..70, any::<u16>()).prop_map(|(longest, number)| {
            let id = format!("call_{number}").repeat(8);
            id.chars().take(longest).collect()
        }),
    ];
    let names = select(vec!["Read", "Bash", "", "a.b c", "d\u{e9}j\u{e0}", "mcp__x__y"]);
    let names = (names, select(vec![1_usize, 1, 1, 30])).prop_map(|(name, times)| name.repeat(times));
    let arguments = prop_oneof![
        Just(r#"{"file_path": "a"}"#.to_owned()),
        Just(String::new()),
        Just("{\"a\": [1, 2".to_owned()),
        Just("[1]".to_owned()),
        Just(r#"{"a": "\ud800"}"#.to_owned()),
        Just(r#"{"a": "\ud83d\ude00"}"#.to_owned()),
        random_text(),
    ];
    prop_oneof![
        (random_text(), 0_u8..4, 0_u8..4).prop_map(|(text, seal_kind, author)| HistoryBlock::Thought {
            text,
            seal_kind,
            author
        }),
        random_text().prop_map(HistoryBlock::Text),
        random_text().prop_map(HistoryBlock::Refusal),
        (ids, names, arguments).prop_map(|(id, name, arguments)| HistoryBlock::Call { id, name, arguments }),
    ]
}

/// The outcome of a call: position, summary, content, error flag, images.
type CallOutcome = (u16, String, Option<String>, bool, Vec<ImageBlob>);

/// One reply, the outcomes of its calls, and the messages until the next one.
fn random_round() -> impl Strategy<Value = (Vec<HistoryBlock>, Vec<CallOutcome>, Vec<Item>)> {
    let images = vec(random_image(), 0..3);
    let results = vec((any::<u16>(), random_text(), option::of(random_text()), any::<bool>(), images), 5);
    (vec(random_block(), 0..5), results, vec(random_message(), 0..3))
}

/// An existing or missing image, of a type that all, some or no schemes accept.
fn random_image() -> impl Strategy<Value = ImageBlob> {
    (select(vec!["picture", "lost"]), select(vec!["image/png", "image/gif", "image/bmp"]))
        .prop_map(|(blob, media_type)| ImageBlob { blob: blob.to_owned(), media_type: media_type.to_owned() })
}

fn random_message() -> impl Strategy<Value = Item> {
    prop_oneof![
        random_text().prop_map(Item::user_message),
        random_text().prop_map(|text| Item::message(Role::System, text)),
        (random_image(), random_text()).prop_map(|(ImageBlob { blob, media_type }, text)| Item::Message {
            role: Role::User,
            content: vec![
                Content::Image { blob, media_type },
                Content::Text { text: text.into() },
                Content::Unknown,
            ],
        }),
        Just(Item::Unknown),
    ]
}

fn random_history(scheme: WireScheme) -> impl Strategy<Value = Vec<Item>> {
    (vec(random_message(), 0..3), vec(random_round(), 0..5)).prop_map(move |(first, rounds)| {
        let mut items = first;
        for (blocks, results, others) in rounds {
            let mut answers: Vec<(u16, Item)> = Vec::new();
            let mut used: Vec<String> = Vec::new();
            for (i, block) in blocks.into_iter().enumerate() {
                items.push(match block {
                    HistoryBlock::Thought { text, seal_kind, author } => {
                        reasoning_item(scheme, text, seal_kind, author)
                    }
                    HistoryBlock::Text(text) => Item::assistant_message(text),
                    HistoryBlock::Refusal(text) => Item::Message {
                        role: Role::Assistant,
                        content: vec![Content::Refusal { text: text.into() }],
                    },
                    HistoryBlock::Call { id, name, arguments } => {
                        // Ids of one reply are unique, which the decoders guarantee.
                        let id = if used.contains(&id) { format!("{id}-{i}") } else { id };
                        used.push(id.clone());
                        let (order, summary, content, is_error, images) = results[i].clone();
                        let content = content.map(Into::into);
                        let call_id = CallId(id.clone());
                        answers.push((
                            order,
                            Item::ToolResult { call_id, summary, content, is_error, blob: None, images },
                        ));
                        Item::ToolCall { call_id: CallId(id), name, arguments: arguments.into() }
                    }
                });
            }
            answers.extend(others.into_iter().enumerate().map(|(i, item)| (i as u16 * 20_000, item)));
            answers.sort_by_key(|(order, _)| *order);
            items.extend(answers.into_iter().map(|(_, item)| item));
        }
        items.push(Item::user_message("Continue."));
        items
    })
}

fn reasoning_item(scheme: WireScheme, text: String, sealed: u8, by: u8) -> Item {
    let me = sample_history::scheme_settings(scheme);
    let signature = matches!(sealed, 1 | 3).then(|| "c2lnbmVk".into());
    let encrypted =
        matches!(sealed, 2 | 3).then(|| r#"[{"type":"reasoning.encrypted","data":"eA=="}]"#.into());
    let by = match by {
        0 => None,
        1 => Some("somebody/else".to_owned()),
        _ => Some(format!("{}/{}", me.provider, me.model_id)),
    };
    let summary = if sealed == 2 { vec![text.clone()] } else { Vec::new() };
    Item::Reasoning { text: text.into(), summary, signature, encrypted, by }
}
