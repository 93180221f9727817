//! The story language. Each line is an action or an assertion.
//!
//! Elsewhere: running stories (`story::run`), killing them (`kill_everywhere`).
//!
//! Before the first action, `with` lines configure the session:
//!
//! ```text
//! with posture ask            the posture for actions without a rule
//! with max_turns 2            other limits of the manifest: max_turns, queue, idle_exit
//! with parent                 a parent pod created this session and its first task
//! with task clean up          the creator queued an input
//! with model none             no model is available
//! with sandbox namespaces     the sandbox backend of commands; default landlock
//! with fallback N             N more models are tried when the first one fails
//! with expires N              asks expire after N seconds
//! with hooks                  hooks at every point; they allow everything until a `hook` line
//! with mandate {JSON}         the session's mandate; with an `objective` it is a job (its acceptance command can be
//!                             `test PATH`: whether the file exists)
//! with budget {JSON}          its budget
//! with may_answer             it may answer asks of its children
//! with children N · with depth N        limits of the tree
//! kills differ: REASON        the context of a killed run may differ from the unkilled one, for this reason
//! ```
//!
//! Actions:
//!
//! ```text
//! user > TEXT                 `run`, mode reject;  user queue > · user steer > · user interrupt >
//! user op=ID > TEXT           the same with an own op_id (else each line has one, so that it can be sent again)
//! model > TEXT                a block of the reply to the open request; consecutive lines form one reply, and a text
//!                             after a call or any other line begins the next reply
//! model > think: TEXT         a block of thinking
//! model > Tool {JSON}         a call: a capitalized word and an object
//! model > begin TEXT          a block without an end: the stream stays open
//! model > begin Tool {"a      the same for a call;  model > begin think: TEXT   the same for a block of thinking
//! model > cut                 the stream breaks;  model > fails busy WHY · model > fails for good WHY
//! model > fails refused WHY   the provider refuses the content of the request
//! model > fails for N s WHY   busy; the provider requests a wait of N seconds
//! model > odd KIND TEXT       a block of an unknown kind
//! model > stop max_tokens     the reply ends for this reason
//! person > pause | resume | cancel | approve | deny WHY | tell TEXT | abort | rename NAME | archive | unarchive | posture WORD
//!          | approve_session | approve_rule | answer_again | grant RULE          `answer_again`: the newest answered ask
//!          | checkpoint ID | call Tool {JSON} | dequeue TEXT | rewind TEXT | shutdown | shutdown after_run | wait idle
//!          | compact | undo | yield
//! notify > TEXT               a note that wakes;  notify quiet > TEXT
//! child N > turn_ended | errored WHY | slept        report number N of a child
//! pod NAME > ends | fails WHY | asks TEXT | says TEXT | spends N | crashes | sleeps | stops | lends NAME
//!                             an action of a spawned child (SpawnPod {"name":…,"write":PATH,"tokens":N,"wait":1};
//!                             `unlucky` never starts); a running pod receives its reports
//! parent away | parent back   whether reports to the parent arrive
//! tools hold                  calls from here on end only on a `tool` line:
//! tool > done TEXT | failed WHY | timed out        the oldest held call ends
//! tools go                    held calls succeed, and calls end immediately again
//! hook WHO > nothing | ask WHY | deny WHY | always WHY | rewrite TEXT | context TEXT | problem TEXT | hang
//!                             the reply of hooks from here on for a tool (`Sh`), an input (`prompt`) or the end of a
//!                             run (`stop`: `deny` the first time, `always` each time); hanging requests are answered
//!                             when the reply changes
//! edit > PATH TEXT            another program changes a file
//! policy > allow|ask|deny WORDS        a rule of the user about commands; `policy > none` removes all
//! clock + N s                 time passes; due timers fire
//! clients N                   the number of connected clients
//! owner gone                  the client that the pod was started for disconnects
//! signal                      SIGTERM
//! crash | power cut           the process dies and a new one boots
//! boot                        a new process after a shutdown
//! disk full | disk wholly full | disk back
//! visit > queue TEXT | rename NAME | approve | deny WHY | archive | checkpoint ID | abandon
//!         | pause | cancel                   an offline edit; the last two for a job without a running pod
//! fork                        a fork at the head; the following lines are about the fork
//! ```
//!
//! Assertions (skipped after a kill, because it may change them):
//!
//! ```text
//! reply < run | queued | ok | input TEXT | call | reached | late | refused CODE
//! log: KIND KIND(detail) …    exactly these entries since the last `log:` or `log…` line
//! log … KIND …                contains these entries in this order
//! pod is idle | running | paused | compacting | stopping | gone
//! activity: model | tool | ask | none        waits on ask
//! context: user TEXT / assistant TEXT / call Tool / result TEXT      a `…` at an end matches anything
//! queue: TEXT, TEXT | empty · queue is held | free · notes: N · asks: N · name: NAME
//! children: NAME lives, NAME crashed … | none      left: N      remaining tokens of the budget
//! job: STATE | STATE after N  the state of the job and its number of retries
//! told: KIND, KIND | nothing  the reports that the parent has received, in order
//! grants: N · offered: WORD, WORD         the options of the oldest open ask
//! verdict: LAYER              of the newest dispatched or refused call
//! rules added: N              rules added to the user's policy
//! ran Tool N                  number of starts of a tool
//! noted: LINE, LINE           the lines that `Note` has written
//! alert < TEXT                an alert since the last check contains this
//! in flight: text TEXT | call TEXT | nothing
//! seen: TEXT                  the text deltas since the last check, joined
//! ```

pub(crate) mod log;
pub(crate) mod run;

use std::fmt;

/// A parsed story.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    pub name: String,
    pub scene: StoryScene,
    pub lines: Vec<StoryLine>,
}

/// The configuration of a story.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoryScene {
    pub posture: Option<String>,
    pub max_turns: Option<u64>,
    pub queue: Option<u64>,
    pub idle_exit: Option<u64>,
    pub parent: bool,
    pub task: Option<String>,
    pub no_model: bool,
    pub fallbacks: usize,
    pub sandbox: Option<String>,
    pub expires: Option<u64>,
    pub hooks: bool,
    pub mandate: Option<String>,
    pub budget: Option<String>,
    pub may_answer: bool,
    pub children: Option<u64>,
    pub depth: Option<u64>,
    /// Why the context of a killed run may differ.
    pub kills_differ: Option<String>,
}

/// A line with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct StoryLine {
    pub number: usize,
    pub text: String,
    pub action: LineAction,
}

/// The action of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum LineAction {
    User {
        mode: StoryInputMode,
        op: Option<String>,
        text: String,
    },
    Model(Vec<ReplyPiece>),
    Person(String),
    Notify {
        wake: bool,
        text: String,
    },
    Child {
        number: u64,
        what: String,
    },
    Pod {
        name: String,
        what: String,
    },
    Parent {
        away: bool,
    },
    ToolsHold,
    ToolsGo,
    Tool(String),
    Hook {
        who: String,
        what: String,
    },
    Edit {
        path: String,
        text: String,
    },
    Policy(String),
    Clock {
        seconds: u64,
    },
    Clients(usize),
    /// The client that the pod was started for has disconnected.
    OwnerGone,
    Signal,
    Crash {
        power: bool,
    },
    Boot,
    Disk(DiskAction),
    Visit(String),
    Fork,
    Assertion(StoryAssertion),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoryInputMode {
    Reject,
    Queue,
    Steer,
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskAction {
    Full,
    CompletelyFull,
    Restored,
}

/// A part of the model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPiece {
    Text(String),
    Think(String),
    Call { tool: String, arguments: String },
    BeginText(String),
    BeginThink(String),
    BeginCall { tool: String, arguments: String },
    Cut,
    Busy(String),
    BusyFor { seconds: u64, why: String },
    UnknownBlock { kind: String, text: String },
    Permanent(String),
    Refused(String),
    Stop(String),
}

/// An assertion.
#[derive(Debug, Clone, PartialEq)]
pub enum StoryAssertion {
    Reply(String),
    Log {
        exact: bool,
        kinds: Vec<String>,
    },
    Phase(String),
    Activity(String),
    WaitsOn(String),
    Context(Vec<String>),
    Queue(Vec<String>),
    QueueHeld(bool),
    Notes(usize),
    Asks(usize),
    Grants(usize),
    Children(Vec<String>),
    ParentReceived(Vec<String>),
    TokensLeft(u64),
    /// The state of the job and its retries.
    Job(String, Option<u32>),
    AskOptions(Vec<String>),
    Verdict(String),
    RulesAdded(usize),
    Name(String),
    ToolRuns {
        tool: String,
        times: u64,
    },
    NoteLines(Vec<String>),
    Alert(String),
    InFlight(String),
    SeenText(String),
}

/// A line that is not in the language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryParseError {
    pub story: String,
    pub line: usize,
    pub text: String,
    pub why: String,
}

impl fmt::Display for StoryParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "story `{}`, line {}: {}: `{}`; the language is described at the top of testkit's `story`",
            self.story, self.line, self.why, self.text
        )
    }
}

impl std::error::Error for StoryParseError {}

impl Story {
    pub fn parse(name: &str, text: &str) -> Result<Story, StoryParseError> {
        let mut story = Story { name: name.to_owned(), scene: StoryScene::default(), lines: Vec::new() };
        let mut joins = false;
        for (at, raw) in text.lines().enumerate() {
            let (number, line) = (at + 1, raw.trim());
            let bad = |why: String| StoryParseError {
                story: name.to_owned(),
                line: number,
                text: line.to_owned(),
                why,
            };
            if line.starts_with('#') {
                continue;
            }
            if line.is_empty() {
                joins = false;
                continue;
            }
            if parse_scene_line(&mut story.scene, line).map_err(bad)? {
                continue;
            }
            if let Some(said) = model_text(line) {
                let piece = parse_piece(said.trim()).map_err(bad)?;
                match story.lines.last_mut() {
                    Some(StoryLine { action: LineAction::Model(pieces), text, .. })
                        if joins && continues_reply(pieces, &piece) =>
                    {
                        pieces.push(piece);
                        text.push_str(" | ");
                        text.push_str(said.trim());
                    }
                    _ => story.lines.push(StoryLine {
                        number,
                        text: line.to_owned(),
                        action: LineAction::Model(vec![piece]),
                    }),
                }
                joins = true;
                continue;
            }
            joins = false;
            let action = parse_action(line).map_err(bad)?;
            story.lines.push(StoryLine { number, text: line.to_owned(), action });
        }
        Ok(story)
    }
}

/// Returns the text of a `model >` line.
fn model_text(line: &str) -> Option<&str> {
    line.strip_prefix("model")?.trim_start().strip_prefix('>')
}

/// Returns whether a piece continues the reply of the previous pieces.
fn continues_reply(pieces: &[ReplyPiece], next: &ReplyPiece) -> bool {
    let ended = pieces.last().is_some_and(|last| {
        matches!(
            last,
            ReplyPiece::Cut
                | ReplyPiece::Busy(_)
                | ReplyPiece::BusyFor { .. }
                | ReplyPiece::Permanent(_)
                | ReplyPiece::Refused(_)
                | ReplyPiece::Stop(_)
        )
    });
    let after_call = matches!(pieces.last(), Some(ReplyPiece::Call { .. }));
    let speaks = matches!(
        next,
        ReplyPiece::Text(_) | ReplyPiece::Think(_) | ReplyPiece::BeginText(_) | ReplyPiece::BeginThink(_)
    );
    !(ended || after_call && speaks)
}

fn parse_scene_line(scene: &mut StoryScene, line: &str) -> Result<bool, String> {
    if let Some(why) = line.strip_prefix("kills differ:") {
        scene.kills_differ = Some(why.trim().to_owned());
        return Ok(true);
    }
    let Some(rest) = line.strip_prefix("with ") else { return Ok(false) };
    let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = || value.parse::<u64>().map_err(|_| format!("`{key}` needs a number"));
    match key {
        "posture" => scene.posture = Some(value.to_owned()),
        "sandbox" => scene.sandbox = Some(value.to_owned()),
        "max_turns" => scene.max_turns = Some(number()?),
        "queue" => scene.queue = Some(number()?),
        "expires" => scene.expires = Some(number()?),
        "hooks" => scene.hooks = true,
        "mandate" => scene.mandate = Some(value.to_owned()),
        "budget" => scene.budget = Some(value.to_owned()),
        "may_answer" => scene.may_answer = true,
        "children" => scene.children = Some(number()?),
        "depth" => scene.depth = Some(number()?),
        "idle_exit" => scene.idle_exit = Some(number()?),
        "parent" => scene.parent = true,
        "task" => scene.task = Some(value.to_owned()),
        "model" if value == "none" => scene.no_model = true,
        "fallback" => scene.fallbacks = value.parse().map_err(|e| format!("{value}: {e}"))?,
        _ => return Err("no such scene".to_owned()),
    }
    Ok(true)
}

fn parse_piece(said: &str) -> Result<ReplyPiece, String> {
    if said == "cut" {
        return Ok(ReplyPiece::Cut);
    }
    if let Some(why) = said.strip_prefix("fails busy") {
        return Ok(ReplyPiece::Busy(why.trim().to_owned()));
    }
    if let Some(why) = said.strip_prefix("fails refused") {
        return Ok(ReplyPiece::Refused(why.trim().to_owned()));
    }
    if let Some(why) = said.strip_prefix("fails for good") {
        return Ok(ReplyPiece::Permanent(why.trim().to_owned()));
    }
    if let Some(rest) = said.strip_prefix("fails for ") {
        let (seconds, why) = rest.split_once(" s ").ok_or("`fails for N s WHY`")?;
        let seconds = seconds.parse().map_err(|e| format!("{seconds}: {e}"))?;
        return Ok(ReplyPiece::BusyFor { seconds, why: why.to_owned() });
    }
    if let Some(odd) = said.strip_prefix("odd ") {
        let (kind, text) = odd.split_once(' ').unwrap_or((odd, ""));
        return Ok(ReplyPiece::UnknownBlock { kind: kind.to_owned(), text: text.to_owned() });
    }
    if let Some(reason) = said.strip_prefix("stop ") {
        return Ok(ReplyPiece::Stop(reason.trim().to_owned()));
    }
    if let Some(text) = said.strip_prefix("think: ") {
        return Ok(ReplyPiece::Think(text.to_owned()));
    }
    if let Some(begun) = said.strip_prefix("begin ") {
        if let Some(thought) = begun.strip_prefix("think: ") {
            return Ok(ReplyPiece::BeginThink(thought.to_owned()));
        }
        return Ok(match parse_call(begun) {
            Some((tool, arguments)) => ReplyPiece::BeginCall { tool, arguments },
            None => ReplyPiece::BeginText(begun.to_owned()),
        });
    }
    if said.is_empty() {
        return Err("the model says nothing".to_owned());
    }
    Ok(match parse_call(said) {
        Some((tool, arguments)) => ReplyPiece::Call { tool, arguments },
        None => ReplyPiece::Text(said.to_owned()),
    })
}

/// Parses `Tool {…`: a capitalized word and a text that begins with a brace.
pub(crate) fn parse_call(said: &str) -> Option<(String, String)> {
    let (word, rest) = said.split_once(' ')?;
    let capital = word.chars().next().is_some_and(char::is_uppercase);
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (capital && plain && rest.starts_with('{')).then(|| (word.to_owned(), rest.to_owned()))
}

fn parse_action(line: &str) -> Result<LineAction, String> {
    if let Some((who, what)) = line.split_once(" > ")
        && let Some(does) = parse_actor_line(who.trim(), what.trim())?
    {
        return Ok(does);
    }
    Ok(match line {
        "tools hold" => LineAction::ToolsHold,
        "tools go" => LineAction::ToolsGo,
        "signal" => LineAction::Signal,
        "owner gone" => LineAction::OwnerGone,
        "crash" => LineAction::Crash { power: false },
        "power cut" => LineAction::Crash { power: true },
        "boot" => LineAction::Boot,
        "fork" => LineAction::Fork,
        "parent away" => LineAction::Parent { away: true },
        "parent back" => LineAction::Parent { away: false },
        "disk full" => LineAction::Disk(DiskAction::Full),
        "disk wholly full" => LineAction::Disk(DiskAction::CompletelyFull),
        "disk back" => LineAction::Disk(DiskAction::Restored),
        _ => match line.strip_prefix("clock + ") {
            Some(time) => LineAction::Clock { seconds: parse_number(time.trim_end_matches('s'))? },
            None => match line.strip_prefix("clients ") {
                Some(count) => {
                    LineAction::Clients(usize::try_from(parse_number(count)?).unwrap_or(usize::MAX))
                }
                None => LineAction::Assertion(parse_assertion(line)?),
            },
        },
    })
}

fn parse_actor_line(who: &str, what: &str) -> Result<Option<LineAction>, String> {
    let what = what.to_owned();
    Ok(Some(match who.split_once(' ').unwrap_or((who, "")) {
        ("user", how) => {
            let (mut mode, mut op) = (StoryInputMode::Reject, None);
            for word in how.split_whitespace() {
                match word {
                    "queue" => mode = StoryInputMode::Queue,
                    "steer" => mode = StoryInputMode::Steer,
                    "interrupt" => mode = StoryInputMode::Interrupt,
                    _ => op = Some(word.strip_prefix("op=").ok_or("no such mode")?.to_owned()),
                }
            }
            LineAction::User { mode, op, text: what }
        }
        ("person", "") => LineAction::Person(what),
        ("notify", "") => LineAction::Notify { wake: true, text: what },
        ("notify", "quiet") => LineAction::Notify { wake: false, text: what },
        ("child", count) => LineAction::Child { number: parse_number(count)?, what },
        ("pod", name) if !name.is_empty() => LineAction::Pod { name: name.to_owned(), what },
        ("hook", who) if !who.is_empty() => LineAction::Hook { who: who.to_owned(), what },
        ("edit", "") => {
            let (path, text) = what.split_once(' ').ok_or("`edit > PATH TEXT`")?;
            LineAction::Edit { path: path.to_owned(), text: text.to_owned() }
        }
        ("policy", "") => LineAction::Policy(what),
        ("tool", "") => LineAction::Tool(what),
        ("visit", "") => LineAction::Visit(what),
        _ => return Ok(None),
    }))
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number"))
}

fn parse_assertion(line: &str) -> Result<StoryAssertion, String> {
    let list = |text: &str, by: &str| -> Vec<String> {
        text.split(by).map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let kinds = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect();
    let count = |text: &str| parse_number(text).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    for (prefix, make) in [
        ("reply <", StoryAssertion::Reply as fn(String) -> StoryAssertion),
        ("pod is", StoryAssertion::Phase),
        ("activity:", StoryAssertion::Activity),
        ("waits on", StoryAssertion::WaitsOn),
        ("name:", StoryAssertion::Name),
        ("verdict:", StoryAssertion::Verdict),
        ("alert <", StoryAssertion::Alert),
        ("in flight:", StoryAssertion::InFlight),
        ("seen:", StoryAssertion::SeenText),
    ] {
        if let Some(rest) = line.strip_prefix(prefix) {
            return Ok(make(rest.trim().to_owned()));
        }
    }
    if let Some(rest) = line.strip_prefix("log:") {
        return Ok(StoryAssertion::Log { exact: true, kinds: kinds(rest) });
    }
    if let Some(rest) = line.strip_prefix("log …") {
        return Ok(StoryAssertion::Log { exact: false, kinds: kinds(rest) });
    }
    if let Some(rest) = line.strip_prefix("context:") {
        return Ok(StoryAssertion::Context(list(rest, " / ")));
    }
    if let Some(rest) = line.strip_prefix("queue:") {
        let items = if rest.trim() == "empty" { Vec::new() } else { list(rest, ",") };
        return Ok(StoryAssertion::Queue(items));
    }
    if let Some(rest) = line.strip_prefix("noted:") {
        let items = if rest.trim() == "nothing" { Vec::new() } else { list(rest, ",") };
        return Ok(StoryAssertion::NoteLines(items));
    }
    for (prefix, make) in [
        ("children:", StoryAssertion::Children as fn(Vec<String>) -> StoryAssertion),
        ("told:", StoryAssertion::ParentReceived as fn(Vec<String>) -> StoryAssertion),
    ] {
        if let Some(rest) = line.strip_prefix(prefix) {
            let none = matches!(rest.trim(), "none" | "nothing");
            return Ok(make(if none { Vec::new() } else { list(rest, ",") }));
        }
    }
    if let Some(rest) = line.strip_prefix("job:") {
        let (state, retries) = match rest.trim().split_once(" after ") {
            Some((state, retries)) => (state, Some(parse_number(retries)?)),
            None => (rest.trim(), None),
        };
        let retries = retries.map(u32::try_from).transpose().map_err(|e| e.to_string())?;
        return Ok(StoryAssertion::Job(state.to_owned(), retries));
    }
    if let Some(rest) = line.strip_prefix("left:") {
        return Ok(StoryAssertion::TokensLeft(parse_number(rest)?));
    }
    match line {
        "queue is held" => return Ok(StoryAssertion::QueueHeld(true)),
        "queue is free" => return Ok(StoryAssertion::QueueHeld(false)),
        _ => {}
    }
    if let Some(rest) = line.strip_prefix("notes:") {
        return Ok(StoryAssertion::Notes(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("asks:") {
        return Ok(StoryAssertion::Asks(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("grants:") {
        return Ok(StoryAssertion::Grants(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("rules added:") {
        return Ok(StoryAssertion::RulesAdded(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("offered:") {
        return Ok(StoryAssertion::AskOptions(list(rest, ",")));
    }
    if let Some(rest) = line.strip_prefix("ran ") {
        let (tool, times) = rest.split_once(' ').ok_or("`ran Tool N`")?;
        return Ok(StoryAssertion::ToolRuns { tool: tool.to_owned(), times: parse_number(times)? });
    }
    Err("not a line of the story language".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart() {
        let story = Story::parse(
            "x",
            "user > hi\nmodel > I look.\nmodel > Read {\"path\":\"a\"}\nmodel > Read {\"path\":\"b\"}\nmodel > Done.",
        )
        .unwrap();
        let replies: Vec<usize> = story
            .lines
            .iter()
            .filter_map(|line| match &line.action {
                LineAction::Model(pieces) => Some(pieces.len()),
                _ => None,
            })
            .collect();
        assert_eq!(replies, [3, 1]);
    }

    #[test]
    fn a_line_outside_the_language_is_named() {
        let error = Story::parse("x", "user > hi\npod was idle").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("pod was idle"));
        assert!(Story::parse("x", "with colour blue").is_err());
        assert!(Story::parse("x", "clock + soon").is_err());
    }
}
