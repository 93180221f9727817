//! `minke log show`: one line per entry; with `--json` the objects of the log.

use clap::Args;
use minke_record::{Entry, Item, Kind};
use minke_session::ScanEnd;

use crate::commands::sessions::log::{for_each_entry, resolve_session};
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::transcript::input_text;

/// Maximum length of an entry's summary.
const MAX_SUMMARY_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct LogShowArgs {
    /// Name of a live pod, or id or name of a session (default: the newest)
    session: Option<String>,
    /// Start at this entry
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    from: u64,
    /// Show only entries of this kind; repeatable
    #[arg(long)]
    kind: Vec<String>,
}

pub(crate) fn run(
    show: &LogShowArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    if let Some(unknown) = show.kind.iter().find(|kind| !Kind::NAMES.contains(&kind.as_str())) {
        return Err(CliError::usage(format!("`{unknown}` is not a kind of entry"))
            .with_hint(format!("one of {}", Kind::NAMES.join(", "))));
    }
    let home = context.open_home()?;
    let session = resolve_session(&home, show.session.as_deref())?;
    let reader = home.store.open_reader(session)?;
    let end = for_each_entry(&*reader, show.from, |sealed| {
        let wanted = show.kind.is_empty() || show.kind.iter().any(|kind| kind == sealed.entry.kind.name());
        match (wanted, output.json) {
            (false, _) => Ok(()),
            (true, true) => output.print_json_line(&sealed.line),
            (true, false) => output.print_line(&entry_line(&sealed.entry)),
        }
    })?;
    // A scan that starts after the damage does not report it.
    let end = match (end, show.from) {
        (ScanEnd::Clean { .. }, 1..) => reader.find_damage()?.map_or(ScanEnd::Stopped, ScanEnd::Damaged),
        (end, _) => end,
    };
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(ExitKind::Success),
        ScanEnd::Damaged(damage) => {
            Err(CliError::new(ExitKind::Failed, &damage).with_code("damaged").with_hint(damage.hint(session)))
        }
    }
}

/// `17 12:30:01.250 tool_result  done: added one line`
pub(crate) fn entry_line(entry: &Entry) -> String {
    let seconds = entry.ts / 1_000;
    let (hour, minute, second, millis) =
        (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60, entry.ts % 1_000);
    let content: String = entry_summary(entry)
        .chars()
        .take(MAX_SUMMARY_CHARS)
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    let more = if entry.more { "+" } else { " " };
    let name = entry.kind.name();
    let line =
        format!("{:>6}{more} {hour:02}:{minute:02}:{second:02}.{millis:03}  {name:<15} {content}", entry.seq);
    line.trim_end().to_owned()
}

/// Returns a short summary of an entry.
fn entry_summary(entry: &Entry) -> String {
    match &entry.kind {
        Kind::SessionStart(e) => format!("{} in {} ({})", e.name, e.cwd, e.version),
        Kind::Opened(e) => format!("epoch {} by process {} as {}", e.epoch, e.pid, e.holder),
        Kind::SegmentStart(e) => format!("segment {} ({})", e.segment, e.reason),
        Kind::Invoke(e) => format!("{} (attempt {})", e.trigger, e.attempt),
        Kind::UserInput(e) => input_text(&e.segments),
        Kind::QueuedInput(e) => input_text(&e.segments),
        Kind::Dequeued(e) => e.why.to_string(),
        Kind::SystemEntry(e) => format!("{}: {}", e.item.kind, e.item.body.display_text()),
        Kind::LlmCall(e) => {
            format!("request {} to {}/{}, turn {}", e.call, e.route.provider, e.route.model, e.turn)
        }
        Kind::AssistantItem(e) => item_summary(&e.item),
        Kind::LlmUsage(e) => format!("{} in, {} out", e.input, e.output),
        Kind::LlmEnd(e) => e.outcome.to_string(),
        Kind::ToolDispatch(e) => format!("{} {} ({})", e.tool, e.call_id, e.class),
        Kind::ToolResult(e) => format!("{}: {}", e.outcome, item_summary(&e.item)),
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

fn item_summary(item: &Item) -> String {
    match item {
        Item::Message { content, .. } => crate::commands::run::exec::json::message_text(content),
        Item::Reasoning { text, .. } if text.is_empty() => "(data for the provider)".to_owned(),
        Item::Reasoning { text, .. } => format!("(thinking) {}", text.display_text()),
        Item::ToolCall { name, arguments, .. } => format!("{name} {}", arguments.display_text()),
        Item::ToolResult { summary, .. } => summary.clone(),
        Item::Unknown => "(an item of a later version)".to_owned(),
    }
}
