//! `sandbox`: access of commands to files and network.
//!
//! Elsewhere: the sandbox (`exec`), which hosts can be granted (`exec::address`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::form::{Field, FlagForm, Form, ListForm, MapForm, Refused, one_of, typed};
use crate::key::section;

section! {
    /// Access of commands to files and network.
    SandboxSection at "sandbox" {
        /// `scope`, or `read_only`: commands and tools can write only to the pod's temporary directory.
        mode: SandboxMode = SandboxMode::Scope, ModeWord, Override, Nothing, true;
        /// Hosts that commands and web tools may reach: `off`, `on` (every public one) or a list.
        network: NetworkPolicy = NetworkPolicy::Off, NetworkForm, Override, Nothing, true;
        /// Whether the pod's temporary directory is writable.
        writable_tmp: bool = true, FlagForm, Override, Nothing, true;
    }
    besides {
        env: EnvSection;
        /// Protected paths that the user has unlocked; only the command line sets it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lifted: Vec<String>;
        /// Broad roots that this pod may write after an approval of the user; the command line sets them for
        /// a new session.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        broad_roots: Vec<String>;
    }
}

section! {
    /// The environment of commands, in addition to the default variables.
    EnvSection at "sandbox.env" {
        /// Names of variables that are passed on.
        pass: Vec<String> = Vec::new(), ListForm<VariableName>, Override, Nothing, true;
        /// Variables with values.
        set: BTreeMap<String, String> = BTreeMap::new(), Variables, PerKey, Nothing, true;
    }
    besides {}
}

/// The mode of the sandbox. `off` cannot be set in a file, only with `--unsandboxed` on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    Scope,
    ReadOnly,
    Off,
}

impl Field for SandboxMode {}

one_of!(
    /// `off` cannot be set in a file.
    ModeWords reads SandboxMode: "scope", "read_only"
);

/// A mode that a key can have.
pub(crate) struct ModeWord;

impl Form for ModeWord {
    fn word() -> String {
        format!(
            "{}; commands run without a sandbox only with --unsandboxed on the command line",
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

/// Hosts that commands may connect to, always through the pod's proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NetworkWritten", into = "NetworkWritten")]
pub enum NetworkPolicy {
    Off,
    /// Every public host.
    On,
    /// `docs.rs`, or `*.example.org` for subdomains.
    Hosts(Vec<String>),
}

impl Field for NetworkPolicy {}

impl NetworkPolicy {
    /// Returns the hosts that need no approval; `*` means every host.
    pub fn allowed_hosts(&self) -> Vec<String> {
        match self {
            NetworkPolicy::Off => Vec::new(),
            NetworkPolicy::On => vec!["*".to_owned()],
            NetworkPolicy::Hosts(hosts) => hosts.clone(),
        }
    }
}

impl std::fmt::Display for NetworkPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NetworkPolicy::Off => f.write_str("off"),
            NetworkPolicy::On => f.write_str("on, public hosts only"),
            NetworkPolicy::Hosts(hosts) => f.write_str(&hosts.join(", ")),
        }
    }
}

/// The value in a file: a word or a list.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum NetworkWritten {
    Word(String),
    Hosts(Vec<String>),
}

impl TryFrom<NetworkWritten> for NetworkPolicy {
    type Error = String;
    fn try_from(written: NetworkWritten) -> Result<NetworkPolicy, String> {
        match written {
            NetworkWritten::Word(word) if word == "off" => Ok(NetworkPolicy::Off),
            NetworkWritten::Word(word) if word == "on" => Ok(NetworkPolicy::On),
            NetworkWritten::Word(word) => {
                Err(format!("`{word}` is not a network: use \"off\", \"on\" or a list of hosts"))
            }
            NetworkWritten::Hosts(hosts) => Ok(NetworkPolicy::Hosts(hosts)),
        }
    }
}

impl From<NetworkPolicy> for NetworkWritten {
    fn from(network: NetworkPolicy) -> NetworkWritten {
        match network {
            NetworkPolicy::Off => NetworkWritten::Word("off".to_owned()),
            NetworkPolicy::On => NetworkWritten::Word("on".to_owned()),
            NetworkPolicy::Hosts(hosts) => NetworkWritten::Hosts(hosts),
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
        typed::<NetworkPolicy>(value).map_err(|_| None)
    }
}

/// The name of a variable.
pub(crate) struct VariableName;

impl VariableName {
    fn validate_name(name: &str) -> Result<(), Refused> {
        if name.is_empty() || name.contains(['=', '\0']) {
            let name = name.escape_debug();
            return Err(Some(format!(
                "`{name}` is not a variable name: it must not be empty or contain `=` or NUL"
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
        VariableName::validate_name(value.as_str().ok_or(None)?)?;
        Ok(value.clone())
    }
}

/// Variables with values.
pub(crate) struct Variables;

/// The value of a variable; it may be empty.
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
            Some(_) => Err(Some("it contains a NUL".to_owned())),
            None => Err(None),
        }
    }
}

impl Form for Variables {
    fn word() -> String {
        "a table of variables, each with a text".to_owned()
    }

    fn schema() -> Value {
        let mut schema = MapForm::<VariableValue>::schema();
        schema["propertyNames"] = VariableName::schema();
        schema
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let read = MapForm::<VariableValue>::read(value)?;
        read.as_object().into_iter().flatten().try_for_each(|(name, _)| VariableName::validate_name(name))?;
        Ok(read)
    }
}
