//! Enumerations that clients use in methods.

use serde::{Deserialize, Serialize};

/// Defines an enumeration for clients. Unlike the enumerations in events it is closed: a pod refuses an
/// unknown value, because it cannot act on it.
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
    /// The events that a client subscribes to.
    #[derive(Default)]
    pub enum Subscribe {
        /// A snapshot, then all events.
        #[default]
        Full,
        /// All events from now on.
        Tail,
        /// Only replies.
        None,
    }

    /// How an input is handled while a run is active.
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

    /// The kind of completion.
    pub enum CompletionKind { File, Knowledge, Workflow, Skill, Command }

    /// The condition of a `wait`.
    pub enum Until {
        /// No run is active.
        Idle,
        /// An ask is open.
        Ask,
        /// The log has an entry with this number.
        Seq(u64),
    }
}
