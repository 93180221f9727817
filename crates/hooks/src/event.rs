//! Events: what a hook can be called for, and what each of them carries.
//!
//! Elsewhere: what is told of each (`payload` at a point that is asked, `map` from the log).

/// What a hook is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    SessionStart,
    UserPrompt,
    BeforeTool,
    AfterTool,
    Ask,
    BeforeStop,
    RunEnd,
    PodSpawn,
    PodEnd,
    Compact,
    Job,
    ShellEnv,
    /// All that API clients know as lifecycle: responses, calls, approvals, jobs, and frames, in their order.
    Lifecycle,
}

impl Event {
    pub const ALL: [Event; 13] = [
        Event::SessionStart,
        Event::UserPrompt,
        Event::BeforeTool,
        Event::AfterTool,
        Event::Ask,
        Event::BeforeStop,
        Event::RunEnd,
        Event::PodSpawn,
        Event::PodEnd,
        Event::Compact,
        Event::Job,
        Event::ShellEnv,
        Event::Lifecycle,
    ];

    /// As `hooks.toml` writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Event::SessionStart => "session_start",
            Event::UserPrompt => "user_prompt",
            Event::BeforeTool => "before_tool",
            Event::AfterTool => "after_tool",
            Event::Ask => "ask",
            Event::BeforeStop => "before_stop",
            Event::RunEnd => "run_end",
            Event::PodSpawn => "pod_spawn",
            Event::PodEnd => "pod_end",
            Event::Compact => "compact",
            Event::Job => "job",
            Event::ShellEnv => "shell_env",
            Event::Lifecycle => "lifecycle",
        }
    }

    pub fn parse(word: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.as_str() == word)
    }

    /// Whether a hook may say something that counts.
    pub fn steers(self) -> bool {
        matches!(
            self,
            Event::UserPrompt | Event::BeforeTool | Event::BeforeStop | Event::PodSpawn | Event::ShellEnv
        )
    }

    /// Whether it has a tool and paths, which `when` can look at.
    pub fn has_tool(self) -> bool {
        matches!(self, Event::BeforeTool | Event::AfterTool | Event::Ask)
    }

    /// Whether it can be read from the log afterwards: the environment of a command is not kept.
    pub fn observable(self) -> bool {
        self != Event::ShellEnv
    }

    /// Whether a hook may answer `ask`: there must be a call that a person can be asked about.
    pub(crate) fn may_ask(self) -> bool {
        matches!(self, Event::BeforeTool | Event::PodSpawn)
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
