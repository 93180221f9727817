//! The built-in profiles, and the beginning of one that a person writes.

/// A profile that needs no file.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    /// As its text says (`a_builtin_says_what_is_listed`), so that a list needs no evaluation.
    pub(crate) description: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const BUILTIN: [Builtin; 5] = [
    Builtin {
        name: "default",
        description: "the usual instruction, nothing else changed",
        text: include_str!("builtin/default.lua"),
    },
    Builtin {
        name: "coder",
        description: "changes code in small, checked steps",
        text: include_str!("builtin/coder.lua"),
    },
    Builtin {
        name: "reviewer",
        description: "reads a change and reports what is wrong with it; writes nothing",
        text: include_str!("builtin/reviewer.lua"),
    },
    Builtin {
        name: "explorer",
        description: "finds out how something works and where it is; writes nothing",
        text: include_str!("builtin/explorer.lua"),
    },
    Builtin {
        name: "planner",
        description: "turns a task into a plan that somebody else can carry out; changes nothing",
        text: include_str!("builtin/planner.lua"),
    },
];

/// What `minke profile new` writes; `NAME` is put in.
pub const STARTER: &str = include_str!("builtin/starter.lua");
