//! The events that hooks subscribe to, and their data.
//!
//! Elsewhere: the data of each event (`payload` for questions, `mapper` for log events).

/// The event of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookEvent {
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
    /// The lifecycle events of the API in order: responses, calls, approvals, jobs, and frames.
    Lifecycle,
}

impl HookEvent {
    pub const ALL: [HookEvent; 13] = [
        HookEvent::SessionStart,
        HookEvent::UserPrompt,
        HookEvent::BeforeTool,
        HookEvent::AfterTool,
        HookEvent::Ask,
        HookEvent::BeforeStop,
        HookEvent::RunEnd,
        HookEvent::PodSpawn,
        HookEvent::PodEnd,
        HookEvent::Compact,
        HookEvent::Job,
        HookEvent::ShellEnv,
        HookEvent::Lifecycle,
    ];

    /// The name in `hooks.toml`.
    pub fn as_str(self) -> &'static str {
        match self {
            HookEvent::SessionStart => "session_start",
            HookEvent::UserPrompt => "user_prompt",
            HookEvent::BeforeTool => "before_tool",
            HookEvent::AfterTool => "after_tool",
            HookEvent::Ask => "ask",
            HookEvent::BeforeStop => "before_stop",
            HookEvent::RunEnd => "run_end",
            HookEvent::PodSpawn => "pod_spawn",
            HookEvent::PodEnd => "pod_end",
            HookEvent::Compact => "compact",
            HookEvent::Job => "job",
            HookEvent::ShellEnv => "shell_env",
            HookEvent::Lifecycle => "lifecycle",
        }
    }

    pub fn from_name(word: &str) -> Option<HookEvent> {
        HookEvent::ALL.into_iter().find(|event| event.as_str() == word)
    }

    /// Whether the verdict of a hook has an effect.
    pub fn can_steer(self) -> bool {
        matches!(
            self,
            HookEvent::UserPrompt
                | HookEvent::BeforeTool
                | HookEvent::BeforeStop
                | HookEvent::PodSpawn
                | HookEvent::ShellEnv
        )
    }

    /// Whether the event has a tool and paths for `when`.
    pub fn has_tool(self) -> bool {
        matches!(self, HookEvent::BeforeTool | HookEvent::AfterTool | HookEvent::Ask)
    }

    /// Whether the event can be read from the log afterwards: the environment of a command is not logged.
    pub fn is_observable(self) -> bool {
        self != HookEvent::ShellEnv
    }

    /// Whether a hook may answer `ask`: there must be a call that the user can approve.
    pub(crate) fn can_ask(self) -> bool {
        matches!(self, HookEvent::BeforeTool | HookEvent::PodSpawn)
    }
}

impl std::fmt::Display for HookEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
