//! `minke log show`: entries one by one, for people; with `--json` the objects of the log.

use clap::Args;
use minke_record::{Entry, Item, Kind};
use minke_session::ScanEnd;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::log::{chosen, each_entry};
use crate::screen::Screen;
use crate::transcript::said;

/// The longest piece of an entry's content on its line.
const CONTENT_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A live pod's name, a session's id, or a name that a session had (default: the newest session)
    session: Option<String>,
    /// Begin at this entry
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    from: u64,
    /// Only entries of this kind; may be given several times
    #[arg(long)]
    kind: Vec<String>,
}

pub(crate) fn run(show: &Show, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if let Some(unknown) = show.kind.iter().find(|kind| !Kind::NAMES.contains(&kind.as_str())) {
        return Err(Failure::usage(format!("`{unknown}` is no kind of entry"))
            .hint(format!("one of {}", Kind::NAMES.join(", "))));
    }
    let home = around.home()?;
    let session = chosen(&home, show.session.as_deref())?;
    let reader = home.store.reader(session)?;
    let end = each_entry(&*reader, show.from, |sealed| {
        let wanted = show.kind.is_empty() || show.kind.iter().any(|kind| kind == sealed.entry.kind.name());
        match (wanted, screen.json) {
            (false, _) => Ok(()),
            (true, true) => screen.json_line(&sealed.line),
            (true, false) => screen.line(&line(&sealed.entry)),
        }
    })?;
    // Reading that begins behind damage does not meet it.
    let end = match (end, show.from) {
        (ScanEnd::Clean { .. }, 1..) => reader.damage()?.map_or(ScanEnd::Stopped, ScanEnd::Damaged),
        (end, _) => end,
    };
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(Exit::Done),
        ScanEnd::Damaged(damage) => {
            Err(Failure::new(Exit::Failed, &damage).code("damaged").hint(damage.hint(session)))
        }
    }
}

/// `17 12:30:01.250 tool_result  done: added one line`
pub(crate) fn line(entry: &Entry) -> String {
    let seconds = entry.ts / 1_000;
    let (hour, minute, second, millis) =
        (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60, entry.ts % 1_000);
    let content: String =
        content(entry).chars().take(CONTENT_CHARS).map(|c| if c == '\n' { ' ' } else { c }).collect();
    let more = if entry.more { "+" } else { " " };
    let name = entry.kind.name();
    let line =
        format!("{:>6}{more} {hour:02}:{minute:02}:{second:02}.{millis:03}  {name:<15} {content}", entry.seq);
    line.trim_end().to_owned()
}

/// What an entry says, in a few words.
fn content(entry: &Entry) -> String {
    match &entry.kind {
        Kind::SessionStart(e) => format!("{} in {} ({})", e.name, e.cwd, e.version),
        Kind::Opened(e) => format!("epoch {} by process {} as {}", e.epoch, e.pid, e.holder),
        Kind::SegmentStart(e) => format!("segment {} ({})", e.segment, e.reason),
        Kind::Invoke(e) => format!("{} (attempt {})", e.trigger, e.attempt),
        Kind::UserInput(e) => said(&e.segments),
        Kind::QueuedInput(e) => said(&e.segments),
        Kind::Dequeued(e) => e.why.to_string(),
        Kind::SystemEntry(e) => format!("{}: {}", e.item.kind, e.item.body.show()),
        Kind::LlmCall(e) => {
            format!("request {} to {}/{}, turn {}", e.call, e.route.provider, e.route.model, e.turn)
        }
        Kind::AssistantItem(e) => item(&e.item),
        Kind::LlmUsage(e) => format!("{} in, {} out", e.input, e.output),
        Kind::LlmEnd(e) => e.outcome.to_string(),
        Kind::ToolDispatch(e) => format!("{} {} ({})", e.tool, e.call_id, e.class),
        Kind::ToolResult(e) => format!("{}: {}", e.outcome, item(&e.item)),
        Kind::TurnEnd(e) => format!("turn {} {} ({})", e.turn, e.result, e.stop_reason),
        Kind::RunCompleted(e) => format!("{} {}", e.result, e.reason.as_deref().unwrap_or_default()),
        Kind::RunErrored(e) => format!("{}: {}", e.code, e.message),
        Kind::Ask(e) => format!("{} {}", e.ask, e.subject.text.as_deref().unwrap_or_default()),
        Kind::Answer(e) => e.decision.to_string(),
        Kind::Alert(e) => format!("{}: {}", e.level, e.message),
        Kind::StateChange(e) => format!("{} {}", e.state, e.reason.as_deref().unwrap_or_default()),
        Kind::Renamed(e) => e.name.to_string(),
        Kind::ConfigChanged(e) => format!("{} = {}", e.key, e.value),
        Kind::Rewound(e) => format!("to {}", e.to_seq),
        _ => String::new(),
    }
}

fn item(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => crate::exec::json::message_text(content),
        Item::Reasoning { text, .. } if text.is_empty() => "(what the provider wants back)".to_owned(),
        Item::Reasoning { text, .. } => format!("(thinking) {}", text.show()),
        Item::ToolCall { name, arguments, .. } => format!("{name} {}", arguments.show()),
        Item::ToolResult { summary, .. } => summary.clone(),
        Item::Unknown => "(an item of a later version)".to_owned(),
    }
}
