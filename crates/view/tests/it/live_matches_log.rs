//! Live events and the log produce the same blocks in the end, in whatever order the events arrive.

use minke_protocol::{
    CommandEvent, CommandOutput, CommandStatus, CommandUpdate, Delta, Event, Frame, InFlight, LlmRetry,
    OpenCommand, OutputStream, StreamingBlock, ToolCallArgsDelta, ToolCallStart, entry_events,
};
use minke_record::{CallId, Content, Entry, Item, Kind, LlmCall, Text};
use minke_view::Conversation;
use proptest::prelude::*;

use crate::log_builder::*;
use crate::pages::without_versions;
use crate::random_log::{self, SeededRng};

/// The frames that a pod sends for a log: the pieces before each block, and the output while a command runs.
pub(crate) fn sent_frames(entries: &[Entry], rng: &mut SeededRng) -> Vec<Frame> {
    let mut out = Vec::new();
    // Open items, for clients that join in the middle.
    let mut flight = InFlight::default();
    for (at, entry) in entries.iter().enumerate() {
        match &entry.kind {
            Kind::LlmCall(call) => write_calls(call, &entries[at + 1..], rng, &mut flight, &mut out),
            Kind::AssistantItem(e) => {
                let fits = |block: &StreamingBlock| match (block, &e.item) {
                    (StreamingBlock::Text { .. }, Item::Message { .. }) => true,
                    (StreamingBlock::Thinking { .. }, Item::Reasoning { .. }) => true,
                    (StreamingBlock::ToolCall { id, .. }, Item::ToolCall { call_id, .. }) => id == call_id,
                    _ => false,
                };
                match flight.blocks.iter().position(fits) {
                    Some(open) => {
                        grow_block(&mut flight.blocks[open], &e.item, rng, &mut out);
                        flight.blocks.remove(open);
                    }
                    None if rng.is_one_in(4) => {}
                    None => {
                        let mut block = open_block(&e.item, &mut out);
                        grow_block(&mut block, &e.item, rng, &mut out);
                    }
                }
            }
            Kind::LlmEnd(_) => flight.blocks.clear(),
            Kind::Opened(_) => flight = InFlight::default(),
            _ => {}
        }
        out.extend(entry_events(entry).into_iter().map(|event| match event {
            Event::Entry(_) => Frame::new_direct(event),
            event => {
                Frame { event, position: minke_protocol::EventPosition::Logged { seq: entry.seq }, run: None }
            }
        }));
        match &entry.kind {
            Kind::ToolDispatch(e) if e.action.command.is_some() => {
                command_frames(&e.call_id, rng, &mut flight, &mut out);
            }
            Kind::ToolResult(_) => flight.commands.clear(),
            _ => {}
        }
        if rng.is_one_in(10) {
            out.push(Frame::new_direct(Event::InFlight(flight.clone())));
        }
    }
    out
}

/// Calls that start before the surrounding blocks end; one of them may never be completed.
fn write_calls(
    call: &LlmCall,
    after: &[Entry],
    rng: &mut SeededRng,
    flight: &mut InFlight,
    out: &mut Vec<Frame>,
) {
    if rng.is_one_in(5) {
        let (wait_ms, error) = (10, "busy".to_owned());
        let retry = LlmRetry {
            llm_call: call.call,
            failed_attempt: 1,
            max_attempts: 3,
            wait_ms,
            status: None,
            error,
        };
        out.push(live_frame(Event::LlmRetry(retry)));
    }
    for entry in after.iter().take_while(|entry| !matches!(entry.kind, Kind::LlmEnd(_))) {
        if let Kind::AssistantItem(e) = &entry.kind
            && matches!(e.item, Item::ToolCall { .. })
            && rng.is_one_in(3)
        {
            flight.blocks.push(open_block(&e.item, out));
        }
    }
    if rng.is_one_in(6) {
        let item =
            Item::ToolCall { call_id: "dropped".into(), name: "Bash".to_owned(), arguments: Text::default() };
        flight.blocks.push(open_block(&item, out));
    }
}

fn live_frame(event: Event) -> Frame {
    Frame::new_live(event, 0, None)
}

fn open_block(item: &Item, out: &mut Vec<Frame>) -> StreamingBlock {
    match item {
        Item::Reasoning { .. } => {
            out.push(live_frame(Event::ThinkingStart));
            StreamingBlock::Thinking { text: String::new() }
        }
        Item::ToolCall { call_id, name, .. } => {
            out.push(live_frame(Event::ToolCallStart(ToolCallStart {
                id: call_id.clone(),
                name: name.clone(),
            })));
            StreamingBlock::ToolCall { id: call_id.clone(), name: name.clone(), arguments: String::new() }
        }
        _ => StreamingBlock::Text { text: String::new() },
    }
}

/// The pieces of a block; some are lost.
fn grow_block(block: &mut StreamingBlock, item: &Item, rng: &mut SeededRng, out: &mut Vec<Frame>) {
    let whole = match item {
        Item::Message { content, .. } => match content.first() {
            Some(Content::Text { text: Text::Inline(text) }) => text,
            _ => return,
        },
        Item::Reasoning { text: Text::Inline(text), .. } => text,
        Item::ToolCall { arguments: Text::Inline(text), .. } => text,
        _ => return,
    };
    let mut rest = whole.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(1 + rng.next_below(rest.len())));
        let text = piece.to_owned();
        let event = match block {
            StreamingBlock::Text { text: all } => {
                all.push_str(piece);
                Event::TextDelta(Delta { text })
            }
            StreamingBlock::Thinking { text: all } => {
                all.push_str(piece);
                Event::ThinkingDelta(Delta { text })
            }
            StreamingBlock::ToolCall { id, arguments, .. } => {
                arguments.push_str(piece);
                Event::ToolCallArgsDelta(ToolCallArgsDelta { id: id.clone(), json: text })
            }
            StreamingBlock::Unknown => return,
        };
        if !rng.is_one_in(5) {
            out.push(live_frame(event));
        }
        rest = after;
    }
}

fn command_frames(call: &CallId, chance: &mut SeededRng, flight: &mut InFlight, out: &mut Vec<Frame>) {
    let mut tell = |update| {
        let event = CommandEvent { command_id: "x".to_owned(), call_id: call.clone(), news: Some(update) };
        out.push(live_frame(Event::Command(event)));
    };
    tell(CommandUpdate::Started { command: "make\nall".into(), cwd: "/w".to_owned() });
    let mut output = Vec::new();
    for at in 0..chance.next_below(4) as u64 {
        let stream = if chance.is_one_in(2) { OutputStream::Stdout } else { OutputStream::Stderr };
        let piece = CommandOutput { stream, start: at * 4, end: at * 4 + 4, text: "abc\n".to_owned() };
        output.push(piece.clone());
        tell(CommandUpdate::Output(piece));
    }
    if chance.is_one_in(3) {
        tell(CommandUpdate::Ended { status: CommandStatus::Completed, exit_code: Some(2) });
    }
    flight.commands = vec![OpenCommand {
        command_id: "x".to_owned(),
        call_id: call.clone(),
        command: "make\nall".into(),
        cwd: "/w".to_owned(),
        output,
    }];
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn live_and_replay_give_the_same_blocks(seed: u64) {
        let mut rng = SeededRng::new(seed);
        let runs = 1 + rng.next_below(5);
        let log = random_log::random_log(&mut rng, runs);
        let replayed = log.fold_entries();
        let mut watched = Conversation::new();
        for frame in sent_frames(&log.entries, &mut rng) {
            watched.apply_frame(&frame, 5);
            check_order(&watched)?;
        }
        // A call without a result may have produced output that is not in the log.
        let silent = |conversation: &Conversation| {
            let mut blocks = without_versions(conversation);
            for block in &mut blocks {
                if let minke_view::BlockBody::CallCard(call) = &mut block.body
                    && !matches!(call.state, minke_view::CallState::RunEndNotice(_))
                {
                    call.output = minke_view::TextTail::default();
                    call.exit = None;
                }
            }
            blocks
        };
        prop_assert_eq!(silent(&watched), silent(&replayed));
        let (mut a, b) = (watched.status().clone(), replayed.status());
        a.retry = None;
        prop_assert_eq!(&a, b);
        prop_assert_eq!(watched.position(), replayed.position());
    }

    #[test]
    fn what_changed_is_told(seed: u64) {
        let mut rng = SeededRng::new(seed);
        let runs = 1 + rng.next_below(3);
        let log = random_log::random_log(&mut rng, runs);
        let mut watched = Conversation::new();
        let mut drawn: Vec<minke_view::Block> = Vec::new();
        for frame in sent_frames(&log.entries, &mut rng) {
            watched.apply_frame(&frame, 5);
            let Some(from) = watched.take_changed() else {
                prop_assert_eq!(&drawn[..], watched.blocks());
                continue;
            };
            prop_assert!(from <= drawn.len());
            drawn.truncate(from);
            drawn.extend_from_slice(&watched.blocks()[from..]);
            prop_assert_eq!(&drawn[..], watched.blocks());
        }
    }
}

/// Settled blocks are sorted by id, followed by live blocks; no id appears twice.
fn check_order(conversation: &Conversation) -> Result<(), TestCaseError> {
    let ids: Vec<_> = conversation.blocks().iter().map(|block| block.id).collect();
    let settled = ids.iter().take_while(|id| !id.live).count();
    prop_assert!(ids[..settled].is_sorted(), "{ids:?}");
    prop_assert!(ids[settled..].iter().all(|id| id.live), "{ids:?}");
    let mut seen = std::collections::BTreeSet::new();
    prop_assert!(ids.iter().all(|id| seen.insert(*id)), "{ids:?}");
    Ok(())
}

#[test]
fn the_list_stays_in_order() {
    let mut rng = SeededRng::new(7);
    let log = random_log::random_log(&mut rng, 30);
    let mut watched = Conversation::new();
    for frame in sent_frames(&log.entries, &mut rng) {
        watched.apply_frame(&frame, 5);
        check_order(&watched).expect("it is in order");
    }
    assert!(watched.blocks().len() > 50, "{}", conversation_lines(&watched).len());
}
