//! What was seen live and what is read from the log are the same in the end, however the live news came.

use minke_protocol::{
    Block, CommandEvent, CommandNews, CommandOutput, CommandStatus, Delta, Event, Frame, InFlight, LlmRetry,
    OpenCommand, OutputStream, ToolCallArgsDelta, ToolCallStart, events,
};
use minke_record::{CallId, Content, Entry, Item, Kind, LlmCall, Text};
use minke_view::Conversation;
use proptest::prelude::*;

use crate::chance::{self, Chance};
use crate::log::*;
use crate::pages::plain;

/// What a pod sends of a log: before each block its pieces, while a command runs what it says.
pub(crate) fn sent(entries: &[Entry], chance: &mut Chance) -> Vec<Frame> {
    let mut out = Vec::new();
    // What is open, for those who come in the middle.
    let mut flight = InFlight::default();
    for (at, entry) in entries.iter().enumerate() {
        match &entry.kind {
            Kind::LlmCall(call) => begun(call, &entries[at + 1..], chance, &mut flight, &mut out),
            Kind::AssistantItem(e) => {
                let fits = |block: &Block| match (block, &e.item) {
                    (Block::Text { .. }, Item::Message { .. }) => true,
                    (Block::Thinking { .. }, Item::Reasoning { .. }) => true,
                    (Block::ToolCall { id, .. }, Item::ToolCall { call_id, .. }) => id == call_id,
                    _ => false,
                };
                match flight.blocks.iter().position(fits) {
                    Some(open) => {
                        grow_to_end(&mut flight.blocks[open], &e.item, chance, &mut out);
                        flight.blocks.remove(open);
                    }
                    None if chance.one_in(4) => {}
                    None => {
                        let mut block = empty(&e.item, &mut out);
                        grow_to_end(&mut block, &e.item, chance, &mut out);
                    }
                }
            }
            Kind::LlmEnd(_) => flight.blocks.clear(),
            Kind::Opened(_) => flight = InFlight::default(),
            _ => {}
        }
        out.extend(events(entry).into_iter().map(|event| match event {
            Event::Entry(_) => Frame::one(event),
            event => Frame { event, place: minke_protocol::Place::Logged { seq: entry.seq }, run: None },
        }));
        match &entry.kind {
            Kind::ToolDispatch(e) if e.action.command.is_some() => {
                command(&e.call_id, chance, &mut flight, &mut out);
            }
            Kind::ToolResult(_) => flight.commands.clear(),
            _ => {}
        }
        if chance.one_in(10) {
            out.push(Frame::one(Event::InFlight(flight.clone())));
        }
    }
    out
}

/// Calls that begin before the blocks around them have ended; perhaps one that is never written to its end.
fn begun(call: &LlmCall, after: &[Entry], chance: &mut Chance, flight: &mut InFlight, out: &mut Vec<Frame>) {
    if chance.one_in(5) {
        let (wait_ms, error) = (10, "busy".to_owned());
        let retry = LlmRetry {
            llm_call: call.call,
            failed_attempt: 1,
            max_attempts: 3,
            wait_ms,
            status: None,
            error,
        };
        out.push(live(Event::LlmRetry(retry)));
    }
    for entry in after.iter().take_while(|entry| !matches!(entry.kind, Kind::LlmEnd(_))) {
        if let Kind::AssistantItem(e) = &entry.kind
            && matches!(e.item, Item::ToolCall { .. })
            && chance.one_in(3)
        {
            flight.blocks.push(empty(&e.item, out));
        }
    }
    if chance.one_in(6) {
        let item =
            Item::ToolCall { call_id: "dropped".into(), name: "Bash".to_owned(), arguments: Text::default() };
        flight.blocks.push(empty(&item, out));
    }
}

fn live(event: Event) -> Frame {
    Frame::live(event, 0, None)
}

fn empty(item: &Item, out: &mut Vec<Frame>) -> Block {
    match item {
        Item::Reasoning { .. } => {
            out.push(live(Event::ThinkingStart));
            Block::Thinking { text: String::new() }
        }
        Item::ToolCall { call_id, name, .. } => {
            out.push(live(Event::ToolCallStart(ToolCallStart { id: call_id.clone(), name: name.clone() })));
            Block::ToolCall { id: call_id.clone(), name: name.clone(), arguments: String::new() }
        }
        _ => Block::Text { text: String::new() },
    }
}

/// The pieces of a block; some are lost on the way.
fn grow_to_end(block: &mut Block, item: &Item, chance: &mut Chance, out: &mut Vec<Frame>) {
    let whole = match item {
        Item::Message { content, .. } => match content.first() {
            Some(Content::Text { text: Text::Here(text) }) => text,
            _ => return,
        },
        Item::Reasoning { text: Text::Here(text), .. } => text,
        Item::ToolCall { arguments: Text::Here(text), .. } => text,
        _ => return,
    };
    let mut rest = whole.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(1 + chance.below(rest.len())));
        let text = piece.to_owned();
        let event = match block {
            Block::Text { text: all } => {
                all.push_str(piece);
                Event::TextDelta(Delta { text })
            }
            Block::Thinking { text: all } => {
                all.push_str(piece);
                Event::ThinkingDelta(Delta { text })
            }
            Block::ToolCall { id, arguments, .. } => {
                arguments.push_str(piece);
                Event::ToolCallArgsDelta(ToolCallArgsDelta { id: id.clone(), json: text })
            }
            Block::Unknown => return,
        };
        if !chance.one_in(5) {
            out.push(live(event));
        }
        rest = after;
    }
}

fn command(call: &CallId, chance: &mut Chance, flight: &mut InFlight, out: &mut Vec<Frame>) {
    let mut tell = |news| {
        let event = CommandEvent { command_id: "x".to_owned(), call_id: call.clone(), news: Some(news) };
        out.push(live(Event::Command(event)));
    };
    tell(CommandNews::Started { command: "make\nall".into(), cwd: "/w".to_owned() });
    let mut output = Vec::new();
    for at in 0..chance.below(4) as u64 {
        let stream = if chance.one_in(2) { OutputStream::Stdout } else { OutputStream::Stderr };
        let piece = CommandOutput { stream, start: at * 4, end: at * 4 + 4, text: "abc\n".to_owned() };
        output.push(piece.clone());
        tell(CommandNews::Output(piece));
    }
    if chance.one_in(3) {
        tell(CommandNews::Ended { status: CommandStatus::Completed, exit_code: Some(2) });
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
        let mut chance = Chance::new(seed);
        let runs = 1 + chance.below(5);
        let log = chance::log(&mut chance, runs);
        let replayed = log.fold();
        let mut watched = Conversation::new();
        for frame in sent(&log.entries, &mut chance) {
            watched.frame(&frame, 5);
            in_order(&watched)?;
        }
        // A call that has no result may have said something; the log does not know.
        let silent = |conversation: &Conversation| {
            let mut blocks = plain(conversation);
            for block in &mut blocks {
                if let minke_view::Body::Call(call) = &mut block.body
                    && !matches!(call.state, minke_view::CallState::Ended(_))
                {
                    call.output = minke_view::Tail::default();
                    call.exit = None;
                }
            }
            blocks
        };
        prop_assert_eq!(silent(&watched), silent(&replayed));
        let (mut a, b) = (watched.standing().clone(), replayed.standing());
        a.retry = None;
        prop_assert_eq!(&a, b);
        prop_assert_eq!(watched.position(), replayed.position());
    }

    #[test]
    fn what_changed_is_told(seed: u64) {
        let mut chance = Chance::new(seed);
        let runs = 1 + chance.below(3);
        let log = chance::log(&mut chance, runs);
        let mut watched = Conversation::new();
        let mut drawn: Vec<minke_view::Block> = Vec::new();
        for frame in sent(&log.entries, &mut chance) {
            watched.frame(&frame, 5);
            let Some(from) = watched.changed() else {
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

/// Settled blocks by their ids, then what is live; no id twice.
fn in_order(conversation: &Conversation) -> Result<(), TestCaseError> {
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
    let mut chance = Chance::new(7);
    let log = chance::log(&mut chance, 30);
    let mut watched = Conversation::new();
    for frame in sent(&log.entries, &mut chance) {
        watched.frame(&frame, 5);
        in_order(&watched).expect("it is in order");
    }
    assert!(watched.blocks().len() > 50, "{}", words(&watched).len());
}
