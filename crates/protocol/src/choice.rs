//! Choices: words that a client picks from in its methods.

use serde::{Deserialize, Serialize};

/// Words that a client chooses from. Unlike the words of events these are closed: a pod cannot act on one that it does
/// not know, so it refuses it by name.
macro_rules! choices {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident $(($ty:ty))?),+ $(,)? })+) => {
        $($(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vmeta])* $variant $(($ty))?),+ })+
    };
}

choices! {
    /// What a client wants to see.
    #[derive(Default)]
    pub enum Subscribe {
        /// A snapshot, then everything.
        #[default]
        Full,
        /// Everything from now.
        Tail,
        /// Replies only.
        None,
    }

    /// What happens to an input when a run is already going on.
    #[derive(Default)]
    pub enum RunMode {
        #[default]
        Reject,
        Queue,
        Steer,
        Interrupt,
    }

    #[derive(Default)]
    pub enum ShutdownMode {
        AfterRun,
        #[default]
        Now,
    }

    /// What is completed.
    pub enum CompletionKind { File, Knowledge, Workflow, Skill, Command }

    /// What a `wait` waits for.
    pub enum Until {
        /// No run is open.
        Idle,
        /// A question is open.
        Ask,
        /// The log has an entry of this number.
        Seq(u64),
    }
}
