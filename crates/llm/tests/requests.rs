//! Requests: ours are valid for their scheme and equal recorded ones for the same conversation.
//!
//! The validators (`validators/`) are written from the public formats; the comparison with recorded requests
//! is described in `meaning/`. Loops of several requests are in `tests/loops.rs`.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod common;
mod meaning;
mod validators;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minke_llm::{CachingMode, ProviderErrorKind, ToolUseSupport, WireScheme, build_request};
use minke_model::{Effort, Reasoning};
use minke_record::{Item, Role};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use std::sync::Arc;

use validators::sample_history::{self, SCHEMES};
use validators::{broken_requests, random_histories, validate_request};

/// Random histories for each scheme.
const CASE_COUNT: u32 = 256;

fn request_json(prompt: &minke_model::Prompt, settings: &minke_llm::ModelSettings) -> Value {
    let request = build_request(prompt, settings).unwrap_or_else(|problem| panic!("{problem:?}"));
    serde_json::from_slice(&request.body).unwrap()
}

#[test]
fn a_conversation_with_everything_in_it_is_taken_by_every_scheme_whoever_held_it() {
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        for held_with in SCHEMES {
            let request = request_json(&sample_history::sample_prompt(held_with, &settings), &settings);
            if let Err(wrong) = validate_request(&request, &settings) {
                panic!("{scheme:?}, held with {held_with:?}: {wrong}\n{request:#}");
            }
        }
    }
}

#[test]
fn the_validators_refuse_what_is_broken() {
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let good = request_json(&sample_history::sample_prompt(scheme, &settings), &settings);
        validate_request(&good, &settings).unwrap();
        let breaks = broken_requests::request_breaks(scheme);
        assert!(breaks.len() > 20);
        for (name, damage) in breaks {
            let mut bad = good.clone();
            damage(&mut bad);
            assert_ne!(bad, good, "{scheme:?}: `{name}` breaks nothing");
            assert!(validate_request(&bad, &settings).is_err(), "{scheme:?}: `{name}` passed\n{bad:#}");
        }
    }
}

#[test]
fn any_history_gives_a_request_that_its_scheme_takes() {
    for scheme in SCHEMES {
        let mut runner = test_runner(CASE_COUNT);
        let verdict = runner.run(&random_histories::random_prompts(scheme), |(prompt, settings)| {
            let request = build_request(&prompt, &settings);
            let request = request.map_err(|problem| TestCaseError::fail(format!("{problem:?}")))?;
            let json: Value = serde_json::from_slice(&request.body).unwrap();
            validate_request(&json, &settings)
                .map_err(|wrong| TestCaseError::fail(format!("{wrong}\n{json:#}")))
        });
        if let Err(e) = verdict {
            panic!("{scheme:?}: {e}");
        }
    }
}

/// Provider caches match a prefix of the request: a sent part is sent again byte by byte, except for cache
/// marks.
#[test]
fn a_longer_history_begins_with_the_shorter_one() {
    for scheme in SCHEMES {
        let mut runner = test_runner(CASE_COUNT / 4);
        let verdict = runner.run(&random_histories::random_prompts(scheme), |(prompt, settings)| {
            let mut longer = prompt.clone();
            longer.items.extend([Item::assistant_message("So."), Item::user_message("And?")].map(Arc::new));
            let (short, long) = (request_messages(&prompt, &settings), request_messages(&longer, &settings));
            prop_assert!(long.len() == short.len() + 2);
            prop_assert_eq!(&long[..short.len()], &short[..]);
            Ok(())
        });
        if let Err(e) = verdict {
            panic!("{scheme:?}: {e}");
        }
    }
}

fn test_runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() })
}

/// Returns the messages of a request as text, without cache marks.
fn request_messages(prompt: &minke_model::Prompt, settings: &minke_llm::ModelSettings) -> Vec<String> {
    let mut request = request_json(prompt, settings);
    let key = ["messages", "input", "contents"].into_iter().find(|key| request.get(*key).is_some()).unwrap();
    for message in request[key].as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().into_iter().flatten() {
            block.as_object_mut().unwrap().shift_remove("cache_control");
        }
    }
    request[key].as_array().unwrap().iter().map(Value::to_string).collect()
}

#[test]
fn a_history_that_nobody_would_take_is_refused_before_it_is_sent() {
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let refused = |change: fn(&mut Vec<Arc<Item>>), says: &str| {
            let mut prompt = sample_history::sample_prompt(scheme, &settings);
            change(&mut prompt.items);
            let problem = build_request(&prompt, &settings).unwrap_err();
            assert_eq!(problem.kind, ProviderErrorKind::BadRequest);
            assert!(problem.text.contains(says), "{scheme:?}: {}", problem.text);
        };
        refused(Vec::clear, "nothing to ask");
        refused(|items| drop(items.pop()), "ends with the assistant");
        refused(
            |items| {
                items
                    .retain(|item| !matches!(&**item, Item::ToolResult { call_id, .. } if call_id.0 == "two"))
            },
            "`two` of Read has no result",
        );
        refused(
            |items| {
                items.retain(|item| !matches!(&**item, Item::ToolCall { call_id, .. } if call_id.0 == "two"))
            },
            "no such call",
        );
    }
    let scripted = sample_history::scheme_settings(WireScheme::Scripted);
    assert!(
        build_request(&sample_history::sample_prompt(WireScheme::Scripted, &scripted), &scripted).is_err()
    );
}

#[test]
fn the_reasoning_of_another_model_is_left_out() {
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let own = request_json(&sample_history::sample_prompt(scheme, &settings), &settings).to_string();
        let marks = ["c2lnbmVk", "Z0FBQUFB", "cmVkYWN0ZWQ=", "Something else."];
        assert!(marks.iter().any(|mark| own.contains(mark)), "{scheme:?} sends none of its own");
        for other in SCHEMES.into_iter().filter(|other| *other != scheme) {
            let moved = request_json(&sample_history::sample_prompt(other, &settings), &settings).to_string();
            for mark in marks {
                assert!(!moved.contains(mark), "{scheme:?} got {mark} of {other:?}: {moved}");
            }
        }
    }
}

#[test]
fn results_stand_in_the_order_of_their_calls() {
    let texts = ["2 lines", "c.txt: no such file", "the arguments of Bash"];
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let request = request_json(&sample_history::sample_prompt(scheme, &settings), &settings).to_string();
        let places: Vec<_> = texts.iter().map(|text| request.find(text).unwrap()).collect();
        assert!(places.is_sorted(), "{scheme:?}: {places:?}");
        assert!(request.contains("invalid_arguments"), "{scheme:?} lost the model's arguments");
        assert!(request.contains("not shown: its content is missing"), "{scheme:?}");
    }
}

/// A result is sent unchanged: a summary that only repeats its first line is omitted.
#[test]
fn a_result_is_sent_once_whatever_its_summary_repeats() {
    let long = "there is no tool `Frob`; there are: ".to_owned() + &"Read, Write, ".repeat(30);
    let wide = "\u{e9}".repeat(150) + "\nsecond";
    let indented = "  indented\nrest".to_owned();
    let blank = "\n\nfirst after blank lines\nrest".to_owned();
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let first = |text: &str| text.lines().find(|line| !line.trim().is_empty()).unwrap().to_owned();
    let doubled: Vec<(String, String)> = vec![
        ("line one".to_owned(), "line one\nline two".to_owned()),
        ("line one".to_owned(), "line one".to_owned()),
        (cut(&long, 197) + "\u{2026}", long.clone()),
        (cut(&long, 200), long.clone()),
        (cut(&wide, 100), wide.clone()),
        (first(&indented), indented),
        (first(&blank), blank),
    ];
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        for (summary, content) in &doubled {
            let text = result_text(scheme, &settings, summary, Some(content));
            assert_eq!(text, *content, "{scheme:?}");
        }
        // A summary with its own content precedes the content.
        for (summary, content) in
            [("2 lines", "line one\nline two"), ("line", "line one"), ("1 file", "1 file.txt")]
        {
            let text = result_text(scheme, &settings, summary, Some(content));
            assert_eq!(text, format!("{summary}\n{content}"), "{scheme:?}");
        }
        assert_eq!(result_text(scheme, &settings, "line one", None), "line one", "{scheme:?}");
    }
}

/// Returns the text of the only result in a request.
fn result_text(
    scheme: WireScheme,
    settings: &minke_llm::ModelSettings,
    summary: &str,
    content: Option<&str>,
) -> String {
    let items = vec![
        Item::user_message("look"),
        Item::ToolCall { call_id: "call_0_0".into(), name: "Read".to_owned(), arguments: "{}".into() },
        Item::ToolResult {
            call_id: "call_0_0".into(),
            summary: summary.to_owned(),
            content: content.map(Into::into),
            is_error: false,
            blob: None,
            images: Vec::new(),
        },
    ];
    let mut prompt = minke_model::Prompt::new(
        sample_history::route_for(settings),
        items.into_iter().map(Arc::new).collect(),
    );
    prompt.tools = sample_history::sample_tools();
    let request = request_json(&prompt, settings);
    let place = match scheme {
        WireScheme::Anthropic => "/messages/2/content/0/content",
        WireScheme::OpenaiResponses => "/input/2/output",
        WireScheme::OpenaiChat => "/messages/2/content",
        WireScheme::Gemini => "/contents/2/parts/0/functionResponse/response/output",
        WireScheme::Scripted => panic!("it has no requests"),
    };
    let text = request.pointer(place).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{scheme:?}: no result at {place}: {request:#}")).to_owned()
}

#[test]
fn a_model_without_tools_or_eyes_is_told_in_words() {
    for scheme in SCHEMES {
        let mut settings = sample_history::scheme_settings(scheme);
        settings.capability.tools = ToolUseSupport::None;
        settings.capability.vision = false;
        let request = request_json(&sample_history::sample_prompt(scheme, &settings), &settings);
        validate_request(&request, &settings).unwrap();
        let text = request.to_string();
        assert!(
            text.contains("[I called Read with") && text.contains("[Result of Read]"),
            "{scheme:?}: {text}"
        );
        assert!(text.contains("this model cannot see images"), "{scheme:?}");
    }
}

#[test]
fn marks_stand_where_the_next_request_will_look() {
    let mut settings = sample_history::scheme_settings(WireScheme::Anthropic);
    let prompt = sample_history::sample_prompt(WireScheme::Anthropic, &settings);
    let marked = |request: &Value| {
        let mut marked = Vec::new();
        if request["system"][0].get("cache_control").is_some() {
            marked.push("system".to_owned());
        }
        for (i, message) in request["messages"].as_array().unwrap().iter().enumerate() {
            let blocks = message["content"].as_array().unwrap();
            marked.extend(
                blocks
                    .iter()
                    .enumerate()
                    .filter(|(_, b)| b.get("cache_control").is_some())
                    .map(|(j, _)| format!("{i}.{}", j + 1 - blocks.len())),
            );
        }
        marked
    };
    let request = request_json(&prompt, &settings);
    let last = request["messages"].as_array().unwrap().len() - 1;
    assert_eq!(marked(&request), ["system".to_owned(), format!("{}.0", last - 2), format!("{last}.0")]);
    settings.capability.caching = CachingMode::Explicit(1);
    assert_eq!(marked(&request_json(&prompt, &settings)), [format!("{last}.0")]);
    settings.capability.caching = CachingMode::Auto;
    assert!(marked(&request_json(&prompt, &settings)).is_empty());
}

#[test]
fn how_much_to_think_in_the_words_of_each_scheme() {
    let asked = |scheme: WireScheme, reasoning: Reasoning, adaptive: bool| {
        let mut settings = sample_history::scheme_settings(scheme);
        settings.quirks.adaptive_thinking = adaptive;
        let mut prompt = sample_history::sample_prompt(scheme, &settings);
        prompt.reasoning = Some(reasoning);
        request_json(&prompt, &settings)
    };
    let (effort, budget) = (Reasoning::Effort, Reasoning::Budget);
    let request = asked(WireScheme::Anthropic, effort(Effort::Medium), false);
    assert_eq!(request["thinking"]["budget_tokens"], 8_192);
    let request = asked(WireScheme::Anthropic, budget(1_000_000), false);
    assert_eq!(request["thinking"]["budget_tokens"], 20_000 - 1_024, "room for the answer is left");
    let request = asked(WireScheme::Anthropic, effort(Effort::None), false);
    assert_eq!(request["thinking"]["type"], "disabled");
    let request = asked(WireScheme::Anthropic, budget(5_000), true);
    assert_eq!(request["output_config"]["effort"], "low");
    assert_eq!(request["thinking"]["type"], "adaptive");
    let request = asked(WireScheme::OpenaiResponses, budget(16_384), false);
    assert_eq!(request["reasoning"]["effort"], "high");
    let request = asked(WireScheme::OpenaiChat, effort(Effort::Xhigh), false);
    assert_eq!(request["reasoning_effort"], "xhigh");
    let request = asked(WireScheme::Gemini, effort(Effort::Xhigh), false);
    assert_eq!(request["generationConfig"]["thinkingConfig"]["thinkingLevel"], "HIGH");
}

#[test]
fn thinking_waits_when_the_session_came_here_in_the_middle_of_a_tool_loop() {
    let settings = sample_history::scheme_settings(WireScheme::Anthropic);
    let until_first_results = |held_with| {
        let mut prompt = sample_history::sample_prompt(held_with, &settings);
        prompt.items.truncate(10);
        request_json(&prompt, &settings)
    };
    assert_eq!(until_first_results(WireScheme::Anthropic)["thinking"]["type"], "enabled");
    assert_eq!(until_first_results(WireScheme::Gemini).get("thinking"), None);
}

#[test]
fn addresses_and_headers() {
    let place = |scheme| {
        let settings = sample_history::scheme_settings(scheme);
        let request = build_request(&sample_history::sample_prompt(scheme, &settings), &settings).unwrap();
        (format!("{}/{}", request.version, request.path), request.headers)
    };
    assert_eq!(place(WireScheme::Anthropic).0, "v1/messages");
    assert!(place(WireScheme::Anthropic).1.contains(&("anthropic-version", "2023-06-01".to_owned())));
    assert_eq!(place(WireScheme::OpenaiResponses).0, "v1/responses");
    assert_eq!(place(WireScheme::OpenaiChat).0, "v1/chat/completions");
    assert_eq!(place(WireScheme::Gemini).0, "v1beta/models/gem:streamGenerateContent?alt=sse");
    let mut settings = sample_history::scheme_settings(WireScheme::Gemini);
    settings.model_id = "tunedModels/a?b".to_owned();
    let request =
        build_request(&sample_history::sample_prompt(WireScheme::Gemini, &settings), &settings).unwrap();
    assert_eq!(request.path, "tunedModels/a%3Fb:streamGenerateContent?alt=sse");
}

#[test]
fn a_notice_in_mid_history_has_the_role_that_the_server_knows() {
    let mut settings = sample_history::scheme_settings(WireScheme::OpenaiChat);
    settings.quirks.notice_role = "system".to_owned();
    settings.quirks.reply_after_results = true;
    let request = request_json(&sample_history::sample_prompt(WireScheme::OpenaiChat, &settings), &settings);
    validate_request(&request, &settings).unwrap();
    let messages = request["messages"].as_array().unwrap();
    let notice = messages.iter().position(|m| m["content"] == "A child has finished.").unwrap();
    assert_eq!(messages[notice]["role"], "system");
    assert_eq!(messages[notice - 1]["role"], "assistant", "results are answered first");
    for scheme in [WireScheme::Anthropic, WireScheme::Gemini] {
        let settings = sample_history::scheme_settings(scheme);
        let request = request_json(&sample_history::sample_prompt(scheme, &settings), &settings).to_string();
        assert!(
            request.contains("<system-reminder>\\nA child has finished.\\n</system-reminder>"),
            "{request}"
        );
    }
    let settings = sample_history::scheme_settings(WireScheme::OpenaiResponses);
    let request =
        request_json(&sample_history::sample_prompt(WireScheme::OpenaiResponses, &settings), &settings);
    let input = request["input"].as_array().unwrap();
    assert!(
        input
            .iter()
            .any(|item| item["role"] == "developer" && item["content"][0]["text"] == "A child has finished.")
    );
}

/// Counts of the recorded requests.
#[derive(Default)]
struct RequestTally {
    compared: usize,
    skipped: Vec<String>,
    ignored: BTreeMap<String, usize>,
}

#[test]
fn what_others_sent_and_what_we_would_send_mean_the_same() {
    let mut tally = RequestTally::default();
    let mut wrong = Vec::new();
    for (scheme, folder) in
        SCHEMES.into_iter().zip(["anthropic", "openai-responses", "openai-chat", "gemini"])
    {
        let mut files = Vec::new();
        for ending in ["", "-reframed", "-derived"] {
            files.extend(request_files(&common::provider_fixtures().join(format!("{folder}{ending}"))));
        }
        assert!(!files.is_empty(), "no recorded request of {folder}");
        for file in files {
            if let Err(why) = compare_request(scheme, &file, &mut tally) {
                wrong.push(format!("{}: {why}", file.display()));
            }
        }
    }
    eprintln!("{} recorded requests compared, {} skipped:", tally.compared, tally.skipped.len());
    for line in &tally.skipped {
        eprintln!("  {line}");
    }
    eprintln!("not compared (field: in how many requests):");
    for (field, count) in &tally.ignored {
        eprintln!("  {field}: {count}");
    }
    assert!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tally.compared > 2 * tally.skipped.len(), "too few were compared");
}

fn request_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".request.json"));
    files.sort();
    files
}

fn compare_request(scheme: WireScheme, file: &Path, tally: &mut RequestTally) -> Result<(), String> {
    let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).map_err(|e| e.to_string())?;
    let read = if is_refused_request(file) {
        Err("the provider refused it with 400: not a valid example".to_owned())
    } else {
        meaning::read_meaning(scheme, &recorded)
    };
    let theirs = match read {
        Ok(theirs) => theirs,
        Err(why) => {
            tally.skipped.push(format!("{}: {why}", file.file_name().unwrap().to_string_lossy()));
            return Ok(());
        }
    };
    let (prompt, settings) = meaning::to_prompt(scheme, &theirs);
    let request = build_request(&prompt, &settings).map_err(|problem| format!("{problem:?}"))?;
    let request: Value = serde_json::from_slice(&request.body).unwrap();
    validate_request(&request, &settings)?;
    let ours = meaning::read_meaning(scheme, &request)?;
    tally.compared += 1;
    for field in &theirs.ignored_fields {
        *tally.ignored.entry(field.clone()).or_default() += 1;
    }
    meaning::first_difference(&theirs, &ours).map_or(Ok(()), Err)
}

fn is_refused_request(file: &Path) -> bool {
    let expected = file.to_string_lossy().replace(".request.json", ".expected.json");
    let expected: Value =
        std::fs::read(expected).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
    expected["error"]["status"] == 400
}

/// The pod adds a `continue` item. Without it, this crate returns the error, not the provider.
#[test]
fn kept_words_of_a_broken_reply_are_followed_by_a_continue_item() {
    let settings = sample_history::scheme_settings(WireScheme::Anthropic);
    let mut prompt = sample_history::sample_prompt(WireScheme::Anthropic, &settings);
    prompt.items = vec![Arc::new(Item::user_message("Hi")), Arc::new(Item::assistant_message("Hel"))];
    assert!(build_request(&prompt, &settings).is_err());
    prompt.items.push(Arc::new(Item::message(Role::System, "Go on.")));
    validate_request(&request_json(&prompt, &settings), &settings).unwrap();
}
