//! The scripted model through its public interface: a script and a prompt produce a stream.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use minke_llm::{
    AttemptHeader, AttemptTrailer, Recording, RecordingWriter, ReplyDecoder, ResolveContext, ScriptedModel,
};
use minke_model::{BlockKind, Model, ModelError, ModelErrorKind, ModelEvent, Prompt, StopReason};
use minke_record::{Item, Purpose, Route};

const CWD: &str = "/somewhere";

fn parse_script(text: &str) -> ScriptedModel {
    ScriptedModel::parse_script("talk.toml", text, Path::new(CWD)).unwrap_or_else(|e| panic!("{e}"))
}

fn test_prompt(items: Vec<Item>, ended_requests: Option<u64>) -> Arc<Prompt> {
    let route = Route { provider: "scripted".into(), model: "talk.toml".into(), scheme: "scripted".into() };
    let items = items.into_iter().map(Arc::new).collect();
    Arc::new(Prompt { system: "be brief".into(), ended_requests, ..Prompt::new(route, items) })
}

fn tool_result(id: &str, content: &str) -> Item {
    Item::ToolResult {
        call_id: id.into(),
        summary: "done".into(),
        content: Some(content.into()),
        is_error: false,
        blob: None,
        images: Vec::new(),
    }
}

fn tool_call(id: &str) -> Item {
    Item::ToolCall { call_id: id.into(), name: "Read".into(), arguments: "{}".into() }
}

/// A collected reply.
#[derive(Debug, Default, PartialEq)]
struct StreamedReply {
    events: Vec<ModelEvent>,
    failure: Option<ModelError>,
}

impl StreamedReply {
    fn delta_texts(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|e| if let ModelEvent::Delta { text, .. } = e { Some(&**text) } else { None })
            .collect()
    }

    fn full_text(&self) -> String {
        self.delta_texts().concat()
    }

    fn stop_reason(&self) -> Option<&StopReason> {
        if let Some(ModelEvent::Done { stop }) = self.events.last() { Some(stop) } else { None }
    }

    fn error_kind(&self) -> Option<ModelErrorKind> {
        self.failure.as_ref().map(|failure| failure.kind)
    }

    fn call_ids(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|e| match e {
                ModelEvent::BlockStart { kind: BlockKind::ToolCall { id, .. }, .. } => Some(&**id),
                _ => None,
            })
            .collect()
    }

    /// Checks the contract of every provider.
    fn check_contract(&self) {
        let mut open = None;
        let mut next = 0;
        let mut done = 0;
        for event in &self.events {
            assert_eq!(done, 0, "an event after the stop: {self:?}");
            match event {
                ModelEvent::BlockStart { index, .. } => {
                    assert_eq!((open, *index), (None, next), "{self:?}");
                    open = Some(*index);
                    next += 1;
                }
                ModelEvent::Delta { index, .. } => assert_eq!(open, Some(*index), "{self:?}"),
                ModelEvent::BlockStop { index, .. } => assert_eq!(open.take(), Some(*index), "{self:?}"),
                ModelEvent::Usage(_) => assert_eq!(open, None, "{self:?}"),
                ModelEvent::Done { .. } => done += 1,
                ModelEvent::Unknown { .. }
                | ModelEvent::StopDetail { .. }
                | ModelEvent::RecordingPart(_)
                | ModelEvent::Recording { .. } => {
                    panic!("an event that no script emits: {self:?}")
                }
            }
        }
        assert_eq!(
            done,
            usize::from(self.failure.is_none()),
            "a reply must end in a stop or in an error: {self:?}"
        );
        assert!(self.failure.is_some() || open.is_none(), "{self:?}");
    }
}

async fn ask_model(model: &ScriptedModel, prompt: &Arc<Prompt>) -> StreamedReply {
    let mut stream = model.stream_reply(prompt.clone());
    let mut reply = StreamedReply::default();
    let mut tape = RecordingWriter::new();
    while let Some(next) = stream.next().await {
        assert!(reply.failure.is_none(), "an error must be the last item");
        match next {
            Ok(ModelEvent::RecordingPart(piece)) => tape.push_part(&piece),
            Ok(event) => reply.events.push(event),
            Err(failure) => reply.failure = Some(failure),
        }
    }
    reply.check_contract();
    check_recording(&reply, tape);
    reply
}

/// Every reply of this suite is recorded. Decoding the recording returns the reply, each block in one piece.
fn check_recording(reply: &StreamedReply, tape: RecordingWriter) {
    let recording = Recording::parse(&tape.finish().expect("it was recorded")).expect("it reads back");
    let [attempt] = &recording.attempts[..] else { panic!("one attempt: {recording:?}") };
    let head: AttemptHeader = serde_json::from_str(&attempt.header).expect("the head is JSON");
    let foot: AttemptTrailer =
        serde_json::from_str(attempt.trailer.as_ref().expect("it has ended")).expect("the foot is JSON");
    assert_eq!(foot.problem.as_ref().map(ModelError::from), reply.failure);
    let mut decoder = ReplyDecoder::new(head.settings.scheme);
    let mut read = Vec::new();
    decoder.push_bytes(&attempt.bytes, &mut read).expect("it can be decoded");
    let end = decoder.finish(&mut read);
    assert_eq!(end.is_ok(), reply.failure.is_none(), "{end:?}");
    let mut said: Vec<ModelEvent> = Vec::new();
    for event in &reply.events {
        match (said.last_mut(), event) {
            (_, ModelEvent::Delta { text, .. }) if text.is_empty() => {}
            (Some(ModelEvent::Delta { text, .. }), ModelEvent::Delta { text: more, .. }) => {
                text.push_str(more)
            }
            _ => said.push(event.clone()),
        }
    }
    assert_eq!(read, said);
}

/// Returns the reply to the n-th request of a session.
async fn nth_reply(model: &ScriptedModel, ended: u64) -> StreamedReply {
    ask_model(model, &test_prompt(vec![Item::user_message("hi")], Some(ended))).await
}

#[tokio::test]
async fn a_turn_thinks_then_speaks_then_calls() {
    let model = parse_script(
        r#"
        [[turn]]
        thinking = "Hm."
        text = ["I will ", "read."]
        [[turn.call]]
        tool = "Read"
        args = { file_path = "{{cwd}}/a", n = [1, "{{prompt}}"] }
        [[turn.call]]
        tool = "Write"
        raw = "{not json"
        id = "mine"
        "#,
    );
    let reply = nth_reply(&model, 0).await;
    let arguments = format!(r#"{{"file_path":"{CWD}/a","n":[1,"hi"]}}"#);
    assert_eq!(reply.delta_texts(), ["Hm.", "I will ", "read.", arguments.as_str(), "{not json"]);
    assert_eq!(reply.stop_reason(), Some(&StopReason::ToolUse));
    assert_eq!(reply.call_ids(), ["call_0_1_1", "mine"]);
    // (8 of the system prompt + 2 of the input + 3) / 4, and the output / 4
    let usage =
        reply.events.iter().find_map(|e| if let ModelEvent::Usage(u) = e { Some(u) } else { None }).unwrap();
    let said = reply.full_text().len() as u64;
    assert_eq!((usage.input, usage.output, usage.cost_usd), (3, said.div_ceil(4), Some(0.0)));
}

#[tokio::test]
async fn texts_are_cut_into_chunks_of_characters() {
    let model = parse_script("chunk = 3\n[[turn]]\ntext = 'äöüxyz!'\n[[turn]]\nchunk = 5\ntext = 'äöüxyz!'");
    assert_eq!(nth_reply(&model, 0).await.delta_texts(), ["äöü", "xyz", "!"]);
    assert_eq!(nth_reply(&model, 1).await.delta_texts(), ["äöüxy", "z!"]);
}

#[tokio::test]
async fn the_same_prompt_gets_the_same_turn() {
    let text = "[[turn]]\ntext = 'a'\nrepeat = 2\n[[turn]]\ntext = 'b'\n[[turn]]\nerror = { status = 400, message = 'no' }\n[[turn]]\ntext = 'c'";
    let model = parse_script(text);
    let said = |reply: &StreamedReply| {
        reply.failure.as_ref().map_or_else(|| reply.full_text(), |f| f.message.clone())
    };
    // In any order and with any instance: a restarted pod continues at the right turn.
    for ended in [4, 0, 3, 1, 2] {
        let wanted = ["a", "a", "b", "no", "c"][usize::try_from(ended).unwrap()];
        assert_eq!(said(&nth_reply(&model, ended).await), wanted, "{ended}");
        assert_eq!(said(&nth_reply(&parse_script(text), ended).await), wanted, "{ended}");
    }
    let over = nth_reply(&model, 5).await;
    assert_eq!(over.error_kind(), Some(ModelErrorKind::Permanent));
    assert!(over.failure.unwrap().message.contains("talk.toml has no turn left after 5 replies"));
}

#[tokio::test]
async fn a_new_process_goes_on_at_the_right_turn() {
    let text = "[[turn]]\ntext = 'one'\n[[turn]]\ntext = 'two'\n[[turn]]\ntext = 'three'";
    let mut items = vec![Item::user_message("hi")];
    for wanted in ["one", "two", "three"] {
        let reply = ask_model(&parse_script(text), &test_prompt(items.clone(), None)).await;
        assert_eq!(reply.full_text(), wanted);
        items.extend([Item::assistant_message(reply.full_text()), Item::user_message("continue")]);
    }
}

#[tokio::test]
async fn outside_a_session_an_unbroken_row_of_the_assistants_items_is_one_reply() {
    let model = parse_script("[[turn]]\ntext = '0'\n[[turn]]\ntext = '1'\n[[turn]]\ntext = '2'");
    let items = [
        Item::user_message("hi"),
        Item::assistant_message("text"),
        tool_call("a"),
        tool_call("b"),
        tool_result("a", "x"),
        tool_result("b", "y"),
        tool_call("c"),
        tool_result("c", "z"),
    ];
    for (length, wanted) in [(1, "0"), (6, "1"), (8, "2")] {
        let reply = ask_model(&model, &test_prompt(items[..length].to_vec(), None)).await;
        assert_eq!(reply.full_text(), wanted, "{length} items");
    }
}

#[tokio::test]
async fn an_error_lasts_its_attempts_and_then_the_script_goes_on() {
    let text = "[[turn]]\nerror = { status = 529, message = 'busy', retry_after_s = 1, times = 2 }\n[[turn]]\ntext = 'a'";
    let model = parse_script(text);
    for _ in 0..2 {
        let failure = nth_reply(&model, 0).await.failure.unwrap();
        assert_eq!((failure.kind, failure.status), (ModelErrorKind::Transient, Some(529)));
        assert_eq!(failure.retry_after_ms, Some(1_000));
    }
    assert_eq!(nth_reply(&model, 0).await.full_text(), "a");
    // A new process makes a new request, so its attempts start at 0.
    assert!(nth_reply(&parse_script(text), 0).await.failure.is_some());
}

#[tokio::test]
async fn statuses_are_sorted_like_a_providers() {
    for (error, kind) in [
        ("status = 429", ModelErrorKind::Transient),
        ("status = 401", ModelErrorKind::Permanent),
        ("status = 400, kind = 'too_long'", ModelErrorKind::ContextTooLong),
        ("kind = 'permanent'", ModelErrorKind::Permanent),
    ] {
        let model = parse_script(&format!("[[turn]]\nerror = {{ message = 'x', {error} }}"));
        assert_eq!(nth_reply(&model, 0).await.error_kind(), Some(kind), "{error}");
    }
}

#[tokio::test]
async fn a_stream_is_cut_after_its_blocks_or_inside_the_last_one() {
    let model = parse_script(
        "[[turn]]\ntext = 'whole'\ncut = true\n[[turn]]\ntext = 'fine'\ncut_after = 6\nchunk = 4\n[[turn.call]]\ntool = 'Write'\nargs = { line = 'x' }\n[[turn]]\ncut = true",
    );
    let whole = nth_reply(&model, 0).await;
    assert!(matches!(whole.events.last(), Some(ModelEvent::BlockStop { index: 0, .. })));
    assert_eq!(whole.error_kind(), Some(ModelErrorKind::Interrupted));
    let half = nth_reply(&model, 1).await;
    assert_eq!(half.delta_texts(), ["fine", "{\"li", "ne"]);
    assert!(matches!(half.events.last(), Some(ModelEvent::Delta { index: 1, .. })), "{half:?}");
    assert_eq!(half.error_kind(), Some(ModelErrorKind::Interrupted));
    let nothing = nth_reply(&model, 2).await;
    assert!(nothing.events.is_empty() && nothing.error_kind() == Some(ModelErrorKind::Interrupted));
}

#[tokio::test]
async fn expect_and_when_look_at_the_last_text() {
    let model = parse_script(
        "[[turn]]\nexpect = 'hello'\ntext = 'plain'\n[[turn]]\nwhen = 'no such file'\ntext = 'matched'\n[[turn]]\ntext = 'last'",
    );
    let at = async |items: Vec<Item>| {
        let ended = items.iter().filter(|item| matches!(item, Item::ToolCall { .. })).count() as u64;
        ask_model(&model, &test_prompt(items, Some(ended))).await
    };
    assert_eq!(at(vec![Item::user_message("well hello")]).await.full_text(), "plain");
    let refused = at(vec![Item::user_message("good bye")]).await.failure.unwrap();
    assert_eq!(refused.kind, ModelErrorKind::Permanent);
    assert!(refused.message.contains("turn 1") && refused.message.contains("`hello`"), "{}", refused.message);
    assert!(refused.message.contains("`good bye`"), "{}", refused.message);
    let mut items = vec![Item::user_message("hello"), tool_call("a"), tool_result("a", "no such file: x")];
    assert_eq!(at(items.clone()).await.full_text(), "matched");
    items.extend([tool_call("b"), tool_result("b", "no such file: y")]);
    assert_eq!(at(items).await.full_text(), "last", "the matching turn is used up");
}

#[tokio::test]
async fn a_loop_starts_over() {
    let model = parse_script("loop = true\n[[turn]]\ntext = 'a'\n[[turn]]\ntext = 'b'");
    for ended in 0..7 {
        assert_eq!(nth_reply(&model, ended).await.full_text(), if ended % 2 == 0 { "a" } else { "b" });
    }
}

#[tokio::test]
async fn call_ids_never_repeat_in_a_session() {
    let model = parse_script(
        "loop = true\n[[turn]]\n[[turn.call]]\ntool = 'Read'\n[[turn.call]]\ntool = 'Read'\nid = 'x'",
    );
    let mut items = vec![Item::user_message("hi")];
    let mut seen = std::collections::BTreeSet::new();
    for ended in [0, 1, 1, 1, 2] {
        // The request was killed twice after its calls were stored: no end, and more items.
        let reply = ask_model(&model, &test_prompt(items.clone(), Some(ended))).await;
        for id in reply.call_ids() {
            assert!(seen.insert(id.to_owned()), "{id} again");
            items.extend([tool_call(id), tool_result(id, "")]);
        }
    }
    assert_eq!(seen.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn waits_take_the_time_they_say() {
    let model = parse_script(
        "[[turn]]\ndelay_ms = 100\npace_ms = 10\ntext = ['a', 'b', 'c']\n[[turn]]\ndelay_ms = 7\nerror = { status = 500, message = 'x' }",
    );
    let start = tokio::time::Instant::now();
    nth_reply(&model, 0).await;
    assert_eq!(start.elapsed(), Duration::from_millis(130));
    let start = tokio::time::Instant::now();
    assert!(nth_reply(&model, 1).await.failure.is_some());
    assert_eq!(start.elapsed(), Duration::from_millis(7));
}

#[tokio::test]
async fn many_pieces_leave_room_for_others() {
    let model = parse_script("[[turn]]\nsteps = [{ text = 'tick ', repeat = 20000 }]");
    let others = tokio::spawn(async {
        let mut turns = 0u32;
        loop {
            tokio::task::yield_now().await;
            turns += 1;
            if turns == 50 {
                return turns;
            }
        }
    });
    let reply = nth_reply(&model, 0).await;
    assert_eq!(reply.delta_texts().len(), 20_000);
    assert!(others.is_finished(), "no other task ran while the reply streamed");
}

#[tokio::test]
async fn titles_and_compactions_use_no_turn() {
    let model = parse_script("[[turn]]\ntext = 'a'");
    let mut title = test_prompt(vec![Item::user_message("name this thread")], Some(9));
    Arc::make_mut(&mut title).purpose = Purpose::Title;
    assert_eq!(ask_model(&model, &title).await.full_text(), "name this thread");
}

#[tokio::test]
async fn a_value_that_is_not_there_is_told() {
    let model = parse_script("[[turn]]\ntext = '{{result}}'");
    let failure = nth_reply(&model, 0).await.failure.unwrap();
    assert!(failure.message.contains("there is no tool result yet"), "{}", failure.message);
}

#[test]
fn a_bad_script_is_refused_with_file_line_and_key() {
    let cases = [
        ("[[turn]]\ntext = 'a'\n\n[[turn]]\ntxt = 'b'", "line 5", "unknown key `txt`: did you mean `text`?"),
        ("[[turn]]\ntext = 'a'\n[[turn.call]]\ntool = 'X'\nargz = {}", "line 5", "did you mean `args`?"),
        ("zzzzzzz = 1", "line 1", "unknown key `zzzzzzz`. Known here: chunk, loop, turn"),
        ("[[turn]]\ntext = 7", "line 2", "a text, or a list"),
        ("[[turn]]\ntext = 'a", "line 2", ""),
        ("", "talk.toml: ", "has 0 turns"),
        ("[[turn]]\ntext = 'a'\n[[turn]]\ndelay_ms = 5", "line 3", "turn 2: says nothing"),
        ("[[turn]]\ntext = 'a'\ncut = true\nstop = 'end_turn'", "line 1", "ends twice"),
        ("[[turn]]\ntext = '{{nam}}'", "line 1", "`{{nam}}` is unknown"),
        ("[[turn]]\n[[turn.call]]\ntool = 'X'\nargs = { a = [{ b = '{{x}}' }] }", "line 1", "`{{x}}`"),
        ("[[turn]]\n[[turn.call]]\ntool = 'X'\nargs = { day = 2020-01-01 }", "line 1", "no dates"),
        ("[[turn]]\nsteps = [{ text = 'a', delay_ms = 3 }]", "line 1", "a step is one of"),
        ("[[turn]]\nsteps = [{ error = { message = 'a' } }, { text = 'b' }]", "line 1", "continues after"),
        ("[[turn]]\ntext = 'a'\nsteps = [{ text = 'b' }]", "line 1", "`steps` replaces"),
        ("[[turn]]\ncut_after = 3", "line 1", "`cut_after` needs"),
        ("[[turn]]\ntext = 'a'\nrepeat = 0", "line 1", "`repeat` is 0"),
        ("chunk = 0\n[[turn]]\ntext = 'a'", "line 2", "`chunk` is 0"),
        ("[[turn]]\ntext = 'a'\ndelay_ms = 600001", "line 1", "the longest wait"),
        ("[[turn]]\nerror = { message = 'a', times = 0 }", "line 1", "`error.times` is 0"),
        ("[[turn]]\nsteps = [{ text = 'a', repeat = 4294967295 }]", "line 1", "more than 1000000"),
        ("[[turn]]\nerror = { message = 'a', kind = 'odd' }", "line 2", "odd"),
    ];
    for (text, place, problem) in cases {
        let Err(e) = ScriptedModel::parse_script("talk.toml", text, Path::new(CWD)) else {
            panic!("accepted: {text}")
        };
        let shown = e.to_string();
        assert!(
            shown.contains("talk.toml") && shown.contains(place) && shown.contains(problem),
            "{text}\n{shown}"
        );
    }
}

#[test]
fn a_script_that_cannot_be_read_is_named() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("none.toml");
    let e = ScriptedModel::load_file(&path, home.path()).unwrap_err();
    assert!(e.to_string().contains(&path.display().to_string()), "{e}");
    std::fs::write(&path, "x".repeat(5 << 20)).unwrap();
    let e = ScriptedModel::load_file(&path, home.path()).unwrap_err();
    assert!(e.to_string().contains("longer than"), "{e}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(ScriptedModel::load_file(&path, home.path()).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_demonstration_notes_then_reads_then_ends() {
    let model = minke_llm::resolve_model(&"scripted:demo".into(), &ResolveContext::for_process(CWD, None))
        .unwrap()
        .model;
    let mut called = Vec::new();
    let mut stops = Vec::new();
    for ended in 0..3 {
        let mut stream = model.stream_reply(test_prompt(vec![Item::user_message("hi")], Some(ended)));
        while let Some(event) = stream.next().await {
            match event.unwrap() {
                ModelEvent::BlockStart { kind: BlockKind::ToolCall { name, .. }, .. } => called.push(name),
                ModelEvent::Done { stop } => stops.push(stop),
                _ => {}
            }
        }
    }
    assert_eq!(called, ["Bash", "Read", "Bash"]);
    assert_eq!(stops, [StopReason::ToolUse, StopReason::ToolUse, StopReason::EndTurn]);
}

#[tokio::test]
async fn a_script_may_be_json() {
    let toml = "chunk = 3\n[[turn]]\nthinking = 'Hm.'\ntext = ['I ', 'read.']\n[[turn.call]]\ntool = 'Read'\nargs = { n = [1, '{{prompt}}'] }\n[[turn]]\nerror = { status = 529, message = 'busy' }\n[[pod.a.turn]]\ntext = 'x'";
    let json = r#" {"chunk": 3, "turn": [
        {"thinking": "Hm.", "text": ["I ", "read."], "call": [{"tool": "Read", "args": {"n": [1, "{{prompt}}"]}}]},
        {"error": {"status": 529, "message": "busy"}}],
        "pod": {"a": {"turn": [{"text": "x"}]}}}"#;
    for ended in 0..2 {
        assert_eq!(nth_reply(&parse_script(toml), ended).await, nth_reply(&parse_script(json), ended).await);
    }
    let named = ScriptedModel::parse_script("talk.json", "[[turn]]\ntext = 'a'", Path::new(CWD));
    assert!(named.unwrap_err().to_string().starts_with("the script talk.json, line 1: "), "by its name");
}

#[tokio::test]
async fn each_pod_plays_its_own_turns() {
    let text = "[[turn]]\ntext = 'plain'\n[[pod.scout.turn]]\ntext = 'scout'\n[[pod.scout.turn]]\nexpect = 'never'\ntext = 'b'";
    let of = |pod: Option<&str>| parse_script(text).with_pod(pod.map(str::to_owned));
    assert_eq!(nth_reply(&of(None), 0).await.full_text(), "plain");
    assert_eq!(nth_reply(&of(Some("other")), 0).await.full_text(), "plain");
    assert_eq!(nth_reply(&of(Some("scout")), 0).await.full_text(), "scout");
    let failed = async |pod, ended| nth_reply(&of(Some(pod)), ended).await.failure.unwrap().message;
    assert!(failed("scout", 1).await.contains("turn 2 of the pod scout, expected"));
    assert!(failed("scout", 2).await.contains("no turn left for the pod scout after 2 replies"));
    assert!(failed("other", 1).await.contains("no turn left after 1 replies"));
}

#[tokio::test]
async fn a_pod_finds_its_turns_by_the_name_that_resolution_is_given() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tree.json");
    std::fs::write(
        &file,
        r#"{"turn": [{"text": "plain"}], "pod": {"scout": {"turn": [{"text": "scout"}]}}}"#,
    )
    .unwrap();
    let reference = format!("scripted:{}", file.display());
    for (around, wanted) in [
        (ResolveContext::for_process(CWD, None), "plain"),
        (ResolveContext::for_process(CWD, None).for_pod("scout"), "scout"),
        (ResolveContext::for_process(CWD, None).for_pod("other"), "plain"),
    ] {
        let model = minke_llm::resolve_model(&reference.as_str().into(), &around).unwrap().model;
        let mut stream = model.stream_reply(test_prompt(vec![Item::user_message("hi")], Some(0)));
        let mut said = String::new();
        while let Some(event) = stream.next().await {
            if let ModelEvent::Delta { text, .. } = event.unwrap() {
                said.push_str(&text);
            }
        }
        assert_eq!(said, wanted, "{around:?}");
    }
}

#[tokio::test]
async fn a_turn_answers_requests_of_its_purpose() {
    let text = "[[turn]]\npurpose = 'compaction'\ntext = 'first'\n[[turn]]\ntext = 'plain'\n[[turn]]\npurpose = 'compaction'\nerror = { status = 529, message = 'busy' }\ntext = 'second'\n[[pod.a.turn]]\ntext = 'x'";
    let asked = |purpose, ended| {
        let mut asked = test_prompt(vec![Item::user_message("make it short")], Some(ended));
        Arc::make_mut(&mut asked).purpose = purpose;
        asked
    };
    let model = parse_script(text);
    assert_eq!(ask_model(&model, &asked(Purpose::Turn, 0)).await.full_text(), "plain");
    assert!(ask_model(&model, &asked(Purpose::Turn, 1)).await.failure.is_some(), "there is one plain turn");
    assert_eq!(ask_model(&model, &asked(Purpose::Compaction, 0)).await.full_text(), "first");
    // The same counts with another purpose are another request, whose attempts start at 0.
    assert_eq!(ask_model(&model, &asked(Purpose::Title, 1)).await.full_text(), "make it short");
    assert_eq!(
        ask_model(&model, &asked(Purpose::Compaction, 1)).await.error_kind(),
        Some(ModelErrorKind::Transient)
    );
    assert_eq!(ask_model(&model, &asked(Purpose::Compaction, 1)).await.full_text(), "second");
    assert_eq!(
        ask_model(&model, &asked(Purpose::Compaction, 2)).await.full_text(),
        "make it short",
        "none is left"
    );
    let pod = parse_script(text).with_pod(Some("a".into()));
    assert_eq!(
        ask_model(&pod, &asked(Purpose::Compaction, 0)).await.full_text(),
        "make it short",
        "the pod has none"
    );
}

#[test]
fn a_bad_json_script_is_refused_with_file_line_and_key() {
    let cases = [
        ("{\n\"turn\": [\n{\"text\": \"a\"},\n{\n\"txt\": 1}]}", "line 5", "did you mean `text`?"),
        ("{\n\"turns\": []}", "line 2", "unknown key `turns`: did you mean `turn`?"),
        ("{\n\"turn\": [{\"text\": \"a\"},\n\n{\"delay_ms\": 5}]}", "line 4", "turn 2: says nothing"),
        ("{\"turn\": [{\"text\": \"a\"}]", "line 1", "EOF"),
        ("{}", "talk.toml: ", "has 0 turns"),
    ];
    let more = [
        ("[[pod.scout.turn]]\ndelay_ms = 5", "line 1", "turn 1 of the pod scout: says nothing"),
        ("[[pod.'a/b'.turn]]\ntext = 'a'", "talk.toml: ", "`pod.a/b`: no pod can have this name"),
        ("[[pod.scout.turns]]\ntext = 'a'", "line 1", "did you mean `turn`?"),
        ("[[turn]]\npurpose = 'song'\ntext = 'a'", "line 2", "`compaction`"),
    ];
    for (text, place, problem) in cases.into_iter().chain(more) {
        let Err(e) = ScriptedModel::parse_script("talk.toml", text, Path::new(CWD)) else {
            panic!("accepted: {text}")
        };
        let shown = e.to_string();
        assert!(shown.contains(place) && shown.contains(problem), "{text}\n{shown}");
    }
}

/// Returns the code blocks of a page in a language.
fn code_blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    page.split(&format!("```{language}\n")).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test]
async fn every_example_of_the_documentation_plays() {
    let page = include_str!("../../../docs/reference/scripted.md");
    let (toml, json) = (code_blocks(page, "toml"), code_blocks(page, "json"));
    assert!(toml.len() >= 5 && !json.is_empty(), "the page has lost its examples");
    // A turn that fails only a few times is used together with the next one.
    let requests = |block: &str, turn: &str| block.matches(turn).count() - block.matches("times = ").count();
    let purposes = page.matches("\npurpose = ").count();
    let mut plays = Vec::new();
    for block in &toml {
        let plain = requests(block, "[[turn]]") - block.matches("\npurpose = ").count();
        plays.push((*block, None, plain));
        plays.push((*block, Some("scout"), block.matches("[[pod.scout.turn]]").count()));
    }
    plays.extend(json.iter().flat_map(|block| [(*block, None, 3), (*block, Some("scout"), 3)]));
    assert_eq!(
        (purposes, plays.iter().filter(|(_, pod, count)| pod.is_some() && *count > 0).count()),
        (1, 2)
    );
    for (block, pod, count) in plays {
        let model = parse_script(block).with_pod(pod.map(str::to_owned));
        for ended in 0..count as u64 {
            let items =
                vec![Item::user_message("the weather"), tool_call("a"), tool_result("a", "from a script")];
            let reply = ask_model(&model, &test_prompt(items, Some(ended))).await;
            let ours = reply.failure.as_ref().is_some_and(|f| f.message.contains("talk.toml"));
            assert!(!ours, "{block}\nrequest {ended} of {pod:?}: {reply:?}");
        }
    }
}
