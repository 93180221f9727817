//! Random histories that keep our contract (each call has one result, the last word is not the assistant's), and random
//! models: whatever they are, the request must be one that its scheme takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_llm::{Caching, Capability, Quirks, ReasoningKind, Scheme, Settings, ToolUse};
use minke_model::{Effort, Prompt, Reasoning};
use minke_record::{CallId, Content, ImageBlob, Item, Purpose, Role};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::story;

pub(crate) fn prompts(scheme: Scheme) -> impl Strategy<Value = (Prompt, Settings)> {
    let settings = settings(scheme);
    let reasoning = option::of(prop_oneof![
        select(vec![Effort::None, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh])
            .prop_map(Reasoning::Effort),
        (0_u64..100_000).prop_map(Reasoning::Budget),
    ]);
    let spends = option::of(1_u64..50_000);
    (settings, history(scheme), any::<(bool, bool)>(), reasoning, spends).prop_map(
        |(settings, items, (with_tools, with_system), reasoning, max_tokens)| {
            let mut images = BTreeMap::new();
            images.insert("picture".to_owned(), Arc::from(story::PNG));
            let prompt = Prompt {
                route: story::route(&settings),
                purpose: Purpose::Turn,
                system: if with_system { "You are careful." } else { " " }.into(),
                tools: if with_tools { story::tools() } else { Arc::default() },
                items: items.into_iter().map(Arc::new).collect(),
                max_tokens,
                reasoning,
                sampling: Default::default(),
                cache_key: Some("session-1".to_owned()),
                images,
                ended: None,
            };
            (prompt, settings)
        },
    )
}

fn settings(scheme: Scheme) -> impl Strategy<Value = Settings> {
    let capability = (
        select(vec![ToolUse::None, ToolUse::Sequential, ToolUse::Parallel, ToolUse::Parallel]),
        select(vec![ReasoningKind::None, ReasoningKind::Effort, ReasoningKind::Budget]),
        any::<bool>(),
        prop_oneof![Just(Caching::None), Just(Caching::Auto), (0_u32..9).prop_map(Caching::Explicit)],
    );
    let quirks = (
        select(vec!["user", "system", "developer"]),
        select(vec!["", "reasoning_content", "reasoning", "reasoning_details"]),
        option::of(select(vec![9_u32])),
        any::<(bool, bool, bool)>(),
    );
    (capability, quirks, option::of(1_u64..100_000)).prop_map(
        move |((tools, reasoning, vision, caching), (notice, field, chars, flags), max_output)| Settings {
            capability: Capability { tools, reasoning, vision, caching, structured_output: false },
            quirks: Quirks {
                notice_role: notice.to_owned(),
                reasoning_field: field.to_owned(),
                call_id_chars: chars,
                call_signatures: flags.0,
                adaptive_thinking: flags.1,
                reply_after_results: flags.2,
                ..Quirks::default()
            },
            max_output,
            ..story::settings(scheme)
        },
    )
}

/// What happens between two words of the user.
#[derive(Debug, Clone)]
enum Block {
    Thought { text: String, sealed: u8, by: u8 },
    Text(String),
    Refusal(String),
    Call { id: String, name: String, arguments: String },
}

/// Texts that have made trouble somewhere: blank, quoted, long, of many bytes a character, with control characters.
fn text() -> impl Strategy<Value = String> {
    const TEXTS: [&str; 12] = [
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
    (select(TEXTS.to_vec()), 1_usize..4).prop_map(|(text, times)| text.repeat(times))
}

fn block() -> impl Strategy<Value = Block> {
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
        text(),
    ];
    prop_oneof![
        (text(), 0_u8..4, 0_u8..4).prop_map(|(text, sealed, by)| Block::Thought { text, sealed, by }),
        text().prop_map(Block::Text),
        text().prop_map(Block::Refusal),
        (ids, names, arguments).prop_map(|(id, name, arguments)| Block::Call { id, name, arguments }),
    ]
}

/// What comes of a call: when, summary, content, whether it is an error, what it shows.
type Outcome = (u16, String, Option<String>, bool, Vec<ImageBlob>);

/// One reply, what comes of its calls, and what is said between that and after.
fn round() -> impl Strategy<Value = (Vec<Block>, Vec<Outcome>, Vec<Item>)> {
    let images = vec(image(), 0..3);
    let results = vec((any::<u16>(), text(), option::of(text()), any::<bool>(), images), 5);
    (vec(block(), 0..5), results, vec(told(), 0..3))
}

/// An image that is there or not, of a type that all, some or no schemes take.
fn image() -> impl Strategy<Value = ImageBlob> {
    (select(vec!["picture", "lost"]), select(vec!["image/png", "image/gif", "image/bmp"]))
        .prop_map(|(blob, media_type)| ImageBlob { blob: blob.to_owned(), media_type: media_type.to_owned() })
}

fn told() -> impl Strategy<Value = Item> {
    prop_oneof![
        text().prop_map(Item::user),
        text().prop_map(|text| Item::message(Role::System, text)),
        (image(), text()).prop_map(|(ImageBlob { blob, media_type }, text)| Item::Message {
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

fn history(scheme: Scheme) -> impl Strategy<Value = Vec<Item>> {
    (vec(told(), 0..3), vec(round(), 0..5)).prop_map(move |(first, rounds)| {
        let mut items = first;
        for (blocks, results, others) in rounds {
            let mut answers: Vec<(u16, Item)> = Vec::new();
            let mut used: Vec<String> = Vec::new();
            for (i, block) in blocks.into_iter().enumerate() {
                items.push(match block {
                    Block::Thought { text, sealed, by } => thought(scheme, text, sealed, by),
                    Block::Text(text) => Item::assistant(text),
                    Block::Refusal(text) => Item::Message {
                        role: Role::Assistant,
                        content: vec![Content::Refusal { text: text.into() }],
                    },
                    Block::Call { id, name, arguments } => {
                        // Ids of one reply are unique; the decoders see to it.
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
        items.push(Item::user("Go on."));
        items
    })
}

fn thought(scheme: Scheme, text: String, sealed: u8, by: u8) -> Item {
    let me = story::settings(scheme);
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
