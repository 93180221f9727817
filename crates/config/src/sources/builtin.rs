//! The built-in profiles, and the template for a new profile.

/// A profile that is embedded in the program.
pub(crate) struct BuiltinProfile {
    pub(crate) name: &'static str,
    /// Copy of the description in `text` (`a_builtin_says_what_is_listed`), so that a list needs no
    /// evaluation.
    pub(crate) description: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const BUILTIN_PROFILES: [BuiltinProfile; 5] = [
    BuiltinProfile {
        name: "default",
        description: "the default instruction, no other changes",
        text: include_str!("builtin/default.lua"),
    },
    BuiltinProfile {
        name: "coder",
        description: "changes code in small, checked steps",
        text: include_str!("builtin/coder.lua"),
    },
    BuiltinProfile {
        name: "reviewer",
        description: "reviews a change and reports problems; writes nothing",
        text: include_str!("builtin/reviewer.lua"),
    },
    BuiltinProfile {
        name: "explorer",
        description: "investigates how the code works and where it is; writes nothing",
        text: include_str!("builtin/explorer.lua"),
    },
    BuiltinProfile {
        name: "planner",
        description: "turns a task into a plan for another agent; changes nothing",
        text: include_str!("builtin/planner.lua"),
    },
];

/// Template for `minke profile new`, which replaces `NAME`.
pub const STARTER: &str = include_str!("builtin/starter.lua");
