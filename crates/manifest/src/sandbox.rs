//! `sandbox`: what commands may touch and reach.
//!
//! Here: the keys. Elsewhere: the fence (`exec`), which hosts can be granted (`exec::address`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::form::{Field, Flag, Form, List, Map, Refused, one_of, typed};
use crate::key::section;

section! {
    /// What commands may touch and reach.
    SandboxSection at "sandbox" {
        /// `scope`, or `read_only`: commands and tools write nothing but the pod's own temporary directory.
        mode: SandboxMode = SandboxMode::Scope, ModeWord, Override, Nothing, true;
        /// Which hosts commands and web tools may reach: `off`, `on` (every public one) or a list.
        network: Network = Network::Off, NetworkForm, Override, Nothing, true;
        /// Whether the pod's own temporary directory can be written.
        writable_tmp: bool = true, Flag, Override, Nothing, true;
    }
    besides {
        env: EnvSection;
        /// Protected names that a person lifted, by their absolute paths; only the command line sets it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lifted: Vec<String>;
        /// Broad roots that this pod may write, and of which the user is asked before the first write; the command line
        /// finds them when it makes a session.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        broad_roots: Vec<String>;
    }
}

section! {
    /// The environment of commands, beside what every command gets.
    EnvSection at "sandbox.env" {
        /// Names of variables that are passed on.
        pass: Vec<String> = Vec::new(), List<VariableName>, Override, Nothing, true;
        /// Variables with their values.
        set: BTreeMap<String, String> = BTreeMap::new(), Variables, PerKey, Nothing, true;
    }
    besides {}
}

/// What the fence is compiled from. `off` is no word of a file: only `--unsandboxed` on the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    Scope,
    ReadOnly,
    Off,
}

impl Field for SandboxMode {}

one_of!(
    /// `off` is no word of a key.
    ModeWords reads SandboxMode: "scope", "read_only"
);

/// A mode that a key may say.
pub(crate) struct ModeWord;

impl Form for ModeWord {
    fn word() -> String {
        format!(
            "{}; commands run without a fence only by --unsandboxed on the command line",
            ModeWords::word()
        )
    }

    fn schema() -> Value {
        ModeWords::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        ModeWords::read(value)
    }
}

/// Where to a command may connect, always through the pod's own proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NetworkWritten", into = "NetworkWritten")]
pub enum Network {
    Off,
    /// Every public host.
    On,
    /// `docs.rs`, or `*.example.org` for what is below a name.
    Hosts(Vec<String>),
}

impl Field for Network {}

impl Network {
    /// Hosts that may be reached without a question; `*` is every one.
    pub fn hosts(&self) -> Vec<String> {
        match self {
            Network::Off => Vec::new(),
            Network::On => vec!["*".to_owned()],
            Network::Hosts(hosts) => hosts.clone(),
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::Off => f.write_str("off"),
            Network::On => f.write_str("on, public hosts only"),
            Network::Hosts(hosts) => f.write_str(&hosts.join(", ")),
        }
    }
}

/// A word or a list, as it stands in a file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum NetworkWritten {
    Word(String),
    Hosts(Vec<String>),
}

impl TryFrom<NetworkWritten> for Network {
    type Error = String;
    fn try_from(written: NetworkWritten) -> Result<Network, String> {
        match written {
            NetworkWritten::Word(word) if word == "off" => Ok(Network::Off),
            NetworkWritten::Word(word) if word == "on" => Ok(Network::On),
            NetworkWritten::Word(word) => {
                Err(format!("`{word}` is not a network: use \"off\", \"on\" or a list of hosts"))
            }
            NetworkWritten::Hosts(hosts) => Ok(Network::Hosts(hosts)),
        }
    }
}

impl From<Network> for NetworkWritten {
    fn from(network: Network) -> NetworkWritten {
        match network {
            Network::Off => NetworkWritten::Word("off".to_owned()),
            Network::On => NetworkWritten::Word("on".to_owned()),
            Network::Hosts(hosts) => NetworkWritten::Hosts(hosts),
        }
    }
}

pub(crate) struct NetworkForm;

impl Form for NetworkForm {
    fn word() -> String {
        "off, on, or a list of hosts".to_owned()
    }

    fn schema() -> Value {
        let hosts = json!({ "type": "array", "items": { "type": "string" } });
        json!({ "anyOf": [{ "enum": ["off", "on"] }, hosts] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        typed::<Network>(value).map_err(|_| None)
    }
}

/// The name of a variable.
pub(crate) struct VariableName;

impl VariableName {
    fn check(name: &str) -> Result<(), Refused> {
        if name.is_empty() || name.contains(['=', '\0']) {
            let name = name.escape_debug();
            return Err(Some(format!(
                "`{name}` is no name of a variable: it is not empty and has no `=` and no NUL"
            )));
        }
        Ok(())
    }
}

impl Form for VariableName {
    fn word() -> String {
        "the name of a variable".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[^=\\u0000]+$" })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        VariableName::check(value.as_str().ok_or(None)?)?;
        Ok(value.clone())
    }
}

/// Variables with their values.
pub(crate) struct Variables;

/// What a variable holds; it may be empty.
pub(crate) struct VariableValue;

impl Form for VariableValue {
    fn word() -> String {
        "a text without NUL".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[^\\u0000]*$" })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        match value.as_str() {
            Some(text) if !text.contains('\0') => Ok(value.clone()),
            Some(_) => Err(Some("it holds a NUL, which no variable can".to_owned())),
            None => Err(None),
        }
    }
}

impl Form for Variables {
    fn word() -> String {
        "a table of variables, each with a text".to_owned()
    }

    fn schema() -> Value {
        let mut schema = Map::<VariableValue>::schema();
        schema["propertyNames"] = VariableName::schema();
        schema
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let read = Map::<VariableValue>::read(value)?;
        read.as_object().into_iter().flatten().try_for_each(|(name, _)| VariableName::check(name))?;
        Ok(read)
    }
}
