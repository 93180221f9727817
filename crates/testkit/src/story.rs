//! The story language: what was said, what followed. One line is one thing that happens or one thing that must hold.
//!
//! Here: the language and its reader. Elsewhere: who plays it (`tell`), who kills it (`kill`).
//!
//! Before the first line that happens, `with` lines set the scene:
//!
//! ```text
//! with posture ask            what the gate does with an action that no rule decides
//! with max_turns 2            any other limit of the manifest: max_turns, queue, idle_exit
//! with parent                 a parent pod made this session, and its first task
//! with task clean up          the creator left an input
//! with model none             there is no model to be had
//! with fence A                the tier that holds commands; B, unless said otherwise
//! with fallback N             there are N more models to ask when the first one fails
//! with expires N              questions expire after so many seconds
//! with hooks                  there are hooks at every point at which they may steer; they say nothing until told to
//! with mandate {JSON}         what the parent allows, as the session's mandate has it; with an `objective` it is a job
//!                             (its acceptance command can be `test PATH`: whether that file is there)
//! with budget {JSON}          what it may spend
//! with may_answer             it may answer its children's questions
//! with children N · with depth N        limits of the tree
//! kills differ: REASON        the context of a killed telling may differ from the unkilled one, and why
//! ```
//!
//! What happens:
//!
//! ```text
//! user > TEXT                 `run`, mode reject;  user queue > · user steer > · user interrupt >
//! user op=ID > TEXT           the same with an op_id of one's own (else each line has one, so that it can be sent again)
//! model > TEXT                a block of the reply to the open request; lines in a row are one reply, and a text
//!                             after a call begins the next reply, as any other line between them does
//! model > think: TEXT         a block of thinking
//! model > Tool {JSON}         a call: a word with a capital letter and an object
//! model > begin TEXT          a block that begins and does not end: the stream stays open
//! model > begin Tool {"a      the same of a call;  model > begin think: TEXT   the same of a block of thinking
//! model > cut                 the stream breaks;  model > fails busy WHY · model > fails for good WHY
//! model > fails refused WHY   the provider does not take what the request says
//! model > fails for N s WHY   busy, and the provider says for how long
//! model > odd KIND TEXT       a block of a kind that nobody knows
//! model > stop max_tokens     the reply ends for this reason
//! person > pause | resume | cancel | approve | deny WHY | tell TEXT | abort | rename NAME | archive | unarchive | posture WORD
//!          | approve_session | approve_rule | answer_again | grant RULE          `answer_again`: the newest answered question
//!          | checkpoint ID | call Tool {JSON} | dequeue TEXT | rewind TEXT | shutdown | shutdown after_run | wait idle
//!          | compact | undo | yield
//! notify > TEXT               a note that wakes;  notify quiet > TEXT
//! child N > turn_ended | errored WHY | slept        report number N of a child
//! pod NAME > ends | fails WHY | asks TEXT | says TEXT | spends N | crashes | sleeps | stops | lends NAME
//!                             a child that was spawned (SpawnPod {"name":…,"write":PATH,"tokens":N,"wait":1}; `unlucky`
//!                             never starts) does something; what it reports, the pod hears when it lives
//! parent away | parent back   whether reports upward arrive
//! tools hold                  calls from here on end when the story says so:
//! tool > done TEXT | failed WHY | timed out        the oldest call that is held ends
//! tools go                    held calls end well, and calls end at once again
//! hook WHO > nothing | ask WHY | deny WHY | always WHY | rewrite TEXT | context TEXT | problem TEXT | hang
//!                             what hooks say from here on of a tool (`Sh`), of an input (`prompt`), of a run that would
//!                             end (`stop`: `deny` the first time, `always` each time); those that hang are answered when
//!                             they say something else
//! edit > PATH TEXT            somebody else changes a file
//! policy > allow|ask|deny WORDS        a rule of the person about commands; `policy > none` takes all back
//! clock + N s                 time passes; timers that are due fire
//! clients N                   how many clients are connected
//! signal                      SIGTERM
//! crash | power cut           the process dies and a new one boots
//! boot                        a new process after a shutdown
//! disk full | disk wholly full | disk back
//! visit > queue TEXT | rename NAME | approve | deny WHY | archive | checkpoint ID | abandon
//!         | pause | cancel                   a job on which no pod lives
//! fork                        a fork at the head; from here on the story is about the fork
//! ```
//!
//! What must hold (not looked at after a kill, because a kill may change it):
//!
//! ```text
//! reply < run | queued | ok | input TEXT | call | reached | late | refused CODE
//! log: KIND KIND(detail) …    exactly these entries since the last `log:` or `log…` line
//! log … KIND …                these among them, in this order
//! pod is idle | running | paused | compacting | stopping | gone
//! activity: model | tool | ask | none        waits on ask
//! context: user TEXT / assistant TEXT / call Tool / result TEXT      a `…` at an end matches anything
//! queue: TEXT, TEXT | empty · queue is held | free · notes: N · asks: N · name: NAME
//! children: NAME lives, NAME crashed … | none      left: N      tokens that can still be spent
//! job: STATE | STATE after N  where the job stands, and after how many retries
//! told: KIND, KIND | nothing  what the parent has heard, in order
//! grants: N · offered: WORD, WORD         the answers to the oldest open question
//! verdict: LAYER              of the newest call that was dispatched or refused
//! rules added: N              rules that the person's policy was to get
//! ran Tool N                  side effects of a tool so far
//! noted: LINE, LINE           what `Note` wrote
//! alert < TEXT                an alert since the last look contains this
//! in flight: text TEXT | call TEXT | nothing
//! seen: TEXT                  the deltas that clients saw since the last look, joined
//! ```

use std::fmt;

/// A story, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    pub name: String,
    pub scene: Scene,
    pub lines: Vec<Line>,
}

/// What was there before the story began.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scene {
    pub posture: Option<String>,
    pub max_turns: Option<u64>,
    pub queue: Option<u64>,
    pub idle_exit: Option<u64>,
    pub parent: bool,
    pub task: Option<String>,
    pub no_model: bool,
    pub fallbacks: usize,
    pub fence: Option<String>,
    pub expires: Option<u64>,
    pub hooks: bool,
    pub mandate: Option<String>,
    pub budget: Option<String>,
    pub may_answer: bool,
    pub children: Option<u64>,
    pub depth: Option<u64>,
    /// Why a killed telling may end with another context.
    pub kills_differ: Option<String>,
}

/// One line, with its number in the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub number: usize,
    pub text: String,
    pub does: Does,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub enum Does {
    User {
        mode: Mode,
        op: Option<String>,
        text: String,
    },
    Model(Vec<Piece>),
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
    /// The client that the pod was started for is gone.
    OwnerGone,
    Signal,
    Crash {
        power: bool,
    },
    Boot,
    Disk(DiskWord),
    Visit(String),
    Fork,
    Must(Must),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Reject,
    Queue,
    Steer,
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskWord {
    Full,
    WhollyFull,
    Back,
}

/// A piece of the model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Think(String),
    Call { tool: String, arguments: String },
    BeginText(String),
    BeginThink(String),
    BeginCall { tool: String, arguments: String },
    Cut,
    Busy(String),
    BusyFor { seconds: u64, why: String },
    Odd { kind: String, text: String },
    ForGood(String),
    Refused(String),
    Stop(String),
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Must {
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
    Held(bool),
    Notes(usize),
    Asks(usize),
    Grants(usize),
    Children(Vec<String>),
    Told(Vec<String>),
    Left(u64),
    /// The state of the job, and its retries.
    Job(String, Option<u32>),
    Offered(Vec<String>),
    Verdict(String),
    Added(usize),
    Name(String),
    Ran {
        tool: String,
        times: u64,
    },
    Noted(Vec<String>),
    Alert(String),
    InFlight(String),
    Seen(String),
}

/// A line that is not in the language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadStory {
    pub story: String,
    pub line: usize,
    pub text: String,
    pub why: String,
}

impl fmt::Display for BadStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "story `{}`, line {}: {}: `{}`; the language is described at the top of testkit's `story`",
            self.story, self.line, self.why, self.text
        )
    }
}

impl std::error::Error for BadStory {}

impl Story {
    pub fn read(name: &str, text: &str) -> Result<Story, BadStory> {
        let mut story = Story { name: name.to_owned(), scene: Scene::default(), lines: Vec::new() };
        let mut joins = false;
        for (at, raw) in text.lines().enumerate() {
            let (number, line) = (at + 1, raw.trim());
            let bad =
                |why: String| BadStory { story: name.to_owned(), line: number, text: line.to_owned(), why };
            if line.starts_with('#') {
                continue;
            }
            if line.is_empty() {
                joins = false;
                continue;
            }
            if scene(&mut story.scene, line).map_err(bad)? {
                continue;
            }
            if let Some(said) = of_model(line) {
                let piece = piece(said.trim()).map_err(bad)?;
                match story.lines.last_mut() {
                    Some(Line { does: Does::Model(pieces), text, .. }) if joins && fits(pieces, &piece) => {
                        pieces.push(piece);
                        text.push_str(" | ");
                        text.push_str(said.trim());
                    }
                    _ => story.lines.push(Line {
                        number,
                        text: line.to_owned(),
                        does: Does::Model(vec![piece]),
                    }),
                }
                joins = true;
                continue;
            }
            joins = false;
            let does = does(line).map_err(bad)?;
            story.lines.push(Line { number, text: line.to_owned(), does });
        }
        Ok(story)
    }
}

/// What the model says in a line; the sign may stand further right.
fn of_model(line: &str) -> Option<&str> {
    line.strip_prefix("model")?.trim_start().strip_prefix('>')
}

/// Whether a piece belongs to the reply that the pieces before it began.
fn fits(pieces: &[Piece], next: &Piece) -> bool {
    let ended = pieces.last().is_some_and(|last| {
        matches!(
            last,
            Piece::Cut
                | Piece::Busy(_)
                | Piece::BusyFor { .. }
                | Piece::ForGood(_)
                | Piece::Refused(_)
                | Piece::Stop(_)
        )
    });
    let after_call = matches!(pieces.last(), Some(Piece::Call { .. }));
    let speaks =
        matches!(next, Piece::Text(_) | Piece::Think(_) | Piece::BeginText(_) | Piece::BeginThink(_));
    !(ended || after_call && speaks)
}

fn scene(scene: &mut Scene, line: &str) -> Result<bool, String> {
    if let Some(why) = line.strip_prefix("kills differ:") {
        scene.kills_differ = Some(why.trim().to_owned());
        return Ok(true);
    }
    let Some(rest) = line.strip_prefix("with ") else { return Ok(false) };
    let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = || value.parse::<u64>().map_err(|_| format!("`{key}` needs a number"));
    match key {
        "posture" => scene.posture = Some(value.to_owned()),
        "fence" => scene.fence = Some(value.to_owned()),
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

fn piece(said: &str) -> Result<Piece, String> {
    if said == "cut" {
        return Ok(Piece::Cut);
    }
    if let Some(why) = said.strip_prefix("fails busy") {
        return Ok(Piece::Busy(why.trim().to_owned()));
    }
    if let Some(why) = said.strip_prefix("fails refused") {
        return Ok(Piece::Refused(why.trim().to_owned()));
    }
    if let Some(why) = said.strip_prefix("fails for good") {
        return Ok(Piece::ForGood(why.trim().to_owned()));
    }
    if let Some(rest) = said.strip_prefix("fails for ") {
        let (seconds, why) = rest.split_once(" s ").ok_or("`fails for N s WHY`")?;
        let seconds = seconds.parse().map_err(|e| format!("{seconds}: {e}"))?;
        return Ok(Piece::BusyFor { seconds, why: why.to_owned() });
    }
    if let Some(odd) = said.strip_prefix("odd ") {
        let (kind, text) = odd.split_once(' ').unwrap_or((odd, ""));
        return Ok(Piece::Odd { kind: kind.to_owned(), text: text.to_owned() });
    }
    if let Some(reason) = said.strip_prefix("stop ") {
        return Ok(Piece::Stop(reason.trim().to_owned()));
    }
    if let Some(text) = said.strip_prefix("think: ") {
        return Ok(Piece::Think(text.to_owned()));
    }
    if let Some(begun) = said.strip_prefix("begin ") {
        if let Some(thought) = begun.strip_prefix("think: ") {
            return Ok(Piece::BeginThink(thought.to_owned()));
        }
        return Ok(match call(begun) {
            Some((tool, arguments)) => Piece::BeginCall { tool, arguments },
            None => Piece::BeginText(begun.to_owned()),
        });
    }
    if said.is_empty() {
        return Err("the model says nothing".to_owned());
    }
    Ok(match call(said) {
        Some((tool, arguments)) => Piece::Call { tool, arguments },
        None => Piece::Text(said.to_owned()),
    })
}

/// `Tool {…`: a word that begins with a capital letter, and what begins with a brace.
pub(crate) fn call(said: &str) -> Option<(String, String)> {
    let (word, rest) = said.split_once(' ')?;
    let capital = word.chars().next().is_some_and(char::is_uppercase);
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (capital && plain && rest.starts_with('{')).then(|| (word.to_owned(), rest.to_owned()))
}

fn does(line: &str) -> Result<Does, String> {
    if let Some((who, what)) = line.split_once(" > ")
        && let Some(does) = said(who.trim(), what.trim())?
    {
        return Ok(does);
    }
    Ok(match line {
        "tools hold" => Does::ToolsHold,
        "tools go" => Does::ToolsGo,
        "signal" => Does::Signal,
        "owner gone" => Does::OwnerGone,
        "crash" => Does::Crash { power: false },
        "power cut" => Does::Crash { power: true },
        "boot" => Does::Boot,
        "fork" => Does::Fork,
        "parent away" => Does::Parent { away: true },
        "parent back" => Does::Parent { away: false },
        "disk full" => Does::Disk(DiskWord::Full),
        "disk wholly full" => Does::Disk(DiskWord::WhollyFull),
        "disk back" => Does::Disk(DiskWord::Back),
        _ => match line.strip_prefix("clock + ") {
            Some(time) => Does::Clock { seconds: number(time.trim_end_matches('s'))? },
            None => match line.strip_prefix("clients ") {
                Some(count) => Does::Clients(usize::try_from(number(count)?).unwrap_or(usize::MAX)),
                None => Does::Must(must(line)?),
            },
        },
    })
}

fn said(who: &str, what: &str) -> Result<Option<Does>, String> {
    let what = what.to_owned();
    Ok(Some(match who.split_once(' ').unwrap_or((who, "")) {
        ("user", how) => {
            let (mut mode, mut op) = (Mode::Reject, None);
            for word in how.split_whitespace() {
                match word {
                    "queue" => mode = Mode::Queue,
                    "steer" => mode = Mode::Steer,
                    "interrupt" => mode = Mode::Interrupt,
                    _ => op = Some(word.strip_prefix("op=").ok_or("no such mode")?.to_owned()),
                }
            }
            Does::User { mode, op, text: what }
        }
        ("person", "") => Does::Person(what),
        ("notify", "") => Does::Notify { wake: true, text: what },
        ("notify", "quiet") => Does::Notify { wake: false, text: what },
        ("child", count) => Does::Child { number: number(count)?, what },
        ("pod", name) if !name.is_empty() => Does::Pod { name: name.to_owned(), what },
        ("hook", who) if !who.is_empty() => Does::Hook { who: who.to_owned(), what },
        ("edit", "") => {
            let (path, text) = what.split_once(' ').ok_or("`edit > PATH TEXT`")?;
            Does::Edit { path: path.to_owned(), text: text.to_owned() }
        }
        ("policy", "") => Does::Policy(what),
        ("tool", "") => Does::Tool(what),
        ("visit", "") => Does::Visit(what),
        _ => return Ok(None),
    }))
}

fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number"))
}

fn must(line: &str) -> Result<Must, String> {
    let list = |text: &str, by: &str| -> Vec<String> {
        text.split(by).map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let kinds = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect();
    let count = |text: &str| number(text).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    for (prefix, make) in [
        ("reply <", Must::Reply as fn(String) -> Must),
        ("pod is", Must::Phase),
        ("activity:", Must::Activity),
        ("waits on", Must::WaitsOn),
        ("name:", Must::Name),
        ("verdict:", Must::Verdict),
        ("alert <", Must::Alert),
        ("in flight:", Must::InFlight),
        ("seen:", Must::Seen),
    ] {
        if let Some(rest) = line.strip_prefix(prefix) {
            return Ok(make(rest.trim().to_owned()));
        }
    }
    if let Some(rest) = line.strip_prefix("log:") {
        return Ok(Must::Log { exact: true, kinds: kinds(rest) });
    }
    if let Some(rest) = line.strip_prefix("log …") {
        return Ok(Must::Log { exact: false, kinds: kinds(rest) });
    }
    if let Some(rest) = line.strip_prefix("context:") {
        return Ok(Must::Context(list(rest, " / ")));
    }
    if let Some(rest) = line.strip_prefix("queue:") {
        let items = if rest.trim() == "empty" { Vec::new() } else { list(rest, ",") };
        return Ok(Must::Queue(items));
    }
    if let Some(rest) = line.strip_prefix("noted:") {
        let items = if rest.trim() == "nothing" { Vec::new() } else { list(rest, ",") };
        return Ok(Must::Noted(items));
    }
    for (prefix, make) in [
        ("children:", Must::Children as fn(Vec<String>) -> Must),
        ("told:", Must::Told as fn(Vec<String>) -> Must),
    ] {
        if let Some(rest) = line.strip_prefix(prefix) {
            let none = matches!(rest.trim(), "none" | "nothing");
            return Ok(make(if none { Vec::new() } else { list(rest, ",") }));
        }
    }
    if let Some(rest) = line.strip_prefix("job:") {
        let (state, retries) = match rest.trim().split_once(" after ") {
            Some((state, retries)) => (state, Some(number(retries)?)),
            None => (rest.trim(), None),
        };
        let retries = retries.map(u32::try_from).transpose().map_err(|e| e.to_string())?;
        return Ok(Must::Job(state.to_owned(), retries));
    }
    if let Some(rest) = line.strip_prefix("left:") {
        return Ok(Must::Left(number(rest)?));
    }
    match line {
        "queue is held" => return Ok(Must::Held(true)),
        "queue is free" => return Ok(Must::Held(false)),
        _ => {}
    }
    if let Some(rest) = line.strip_prefix("notes:") {
        return Ok(Must::Notes(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("asks:") {
        return Ok(Must::Asks(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("grants:") {
        return Ok(Must::Grants(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("rules added:") {
        return Ok(Must::Added(count(rest)?));
    }
    if let Some(rest) = line.strip_prefix("offered:") {
        return Ok(Must::Offered(list(rest, ",")));
    }
    if let Some(rest) = line.strip_prefix("ran ") {
        let (tool, times) = rest.split_once(' ').ok_or("`ran Tool N`")?;
        return Ok(Must::Ran { tool: tool.to_owned(), times: number(times)? });
    }
    Err("not a line of the story language".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart() {
        let story = Story::read(
            "x",
            "user > hi\nmodel > I look.\nmodel > Read {\"path\":\"a\"}\nmodel > Read {\"path\":\"b\"}\nmodel > Done.",
        )
        .unwrap();
        let replies: Vec<usize> = story
            .lines
            .iter()
            .filter_map(|line| match &line.does {
                Does::Model(pieces) => Some(pieces.len()),
                _ => None,
            })
            .collect();
        assert_eq!(replies, [3, 1]);
    }

    #[test]
    fn a_line_outside_the_language_is_named() {
        let error = Story::read("x", "user > hi\npod was idle").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("pod was idle"));
        assert!(Story::read("x", "with colour blue").is_err());
        assert!(Story::read("x", "clock + soon").is_err());
    }
}
