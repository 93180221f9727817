//! Reading the sandbox backends of logs and pods of the release 0.1.0.
//!
//! It wrote the backend as a letter (A, A′, B, C, D), in a field `fence`. Its logs stay readable, and
//! an entry that was read is written again byte for byte, because the hash chain covers it
//! (`an_entry_with_the_old_letter_is_rewritten_byte_for_byte`).

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The old letter and the name of each sandbox backend. `off` has always been `off`.
const OLD_LETTERS: [(&str, &str); 5] =
    [("A", "namespaces"), ("A\u{2032}", "bubblewrap"), ("B", "landlock"), ("C", "seatbelt"), ("D", "none")];

/// Returns the name of a sandbox backend that may be an old letter. Other texts stay as they are.
pub fn backend_name(text: &str) -> &str {
    OLD_LETTERS.iter().find(|(letter, _)| *letter == text).map_or(text, |(_, name)| name)
}

/// Deserializes the name of a sandbox backend that may be an old letter.
///
/// # Errors
/// If the value is not a string.
pub fn deserialize_backend<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(backend_name(&text).to_owned())
}

/// The sandbox backend of an entry, if it names one. It is flattened into its struct as the field `sandbox`, or
/// as `fence` with its old letter if it was read from a log of the release 0.1.0.
#[derive(Debug, Clone, Default)]
pub struct LoggedBackend {
    spelling: Option<BackendSpelling>,
}

#[derive(Debug, Clone)]
enum BackendSpelling {
    Name(String),
    /// The text of the field `fence`.
    Old(String),
}

impl LoggedBackend {
    /// No backend: the entry has nothing to do with commands.
    pub const NONE: LoggedBackend = LoggedBackend { spelling: None };

    pub fn new(name: impl Into<String>) -> LoggedBackend {
        LoggedBackend { spelling: Some(BackendSpelling::Name(name.into())) }
    }

    /// Returns the name of the backend, also for an old letter.
    pub fn name(&self) -> Option<&str> {
        Some(match self.spelling.as_ref()? {
            BackendSpelling::Name(name) => name,
            BackendSpelling::Old(letter) => backend_name(letter),
        })
    }
}

/// The spelling does not matter.
impl PartialEq for LoggedBackend {
    fn eq(&self, other: &LoggedBackend) -> bool {
        self.name() == other.name()
    }
}

impl Eq for LoggedBackend {}

impl Serialize for LoggedBackend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields =
            serializer.serialize_struct("LoggedBackend", usize::from(self.spelling.is_some()))?;
        match &self.spelling {
            None => {}
            Some(BackendSpelling::Name(name)) => fields.serialize_field("sandbox", name)?,
            Some(BackendSpelling::Old(letter)) => fields.serialize_field("fence", letter)?,
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for LoggedBackend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LoggedBackend, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            #[serde(default)]
            sandbox: Option<String>,
            #[serde(default)]
            fence: Option<String>,
        }
        let Fields { sandbox, fence } = Fields::deserialize(deserializer)?;
        let spelling = sandbox.map(BackendSpelling::Name).or(fence.map(BackendSpelling::Old));
        Ok(LoggedBackend { spelling })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for LoggedBackend {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LoggedBackend".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": {
                "sandbox": {
                    "type": ["string", "null"],
                    "description": "The sandbox backend: `namespaces`, `bubblewrap`, `landlock`, `seatbelt`, `none` or \
                                    `off`. Logs of 0.1.0 have a letter in `fence` instead.",
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::parse_entry;
    use crate::{Judgement, Kind, PolicyVerdict};

    const OLD_OPENED: &str = r#"{"seq":1,"ts":2,"kind":"opened","epoch":1,"pid":7,"boot_id":"b","host":"h","version":"0.1.0","as":"pod","fence":"A","own":{"allow":[]},"h":"00000000000000000000000000000000"}"#;
    const OLD_RESULT: &str = r#"{"outcome":"allow","layer":"fence","reason":"r","fence":"A′"}"#;

    #[test]
    fn an_entry_with_the_old_letter_is_rewritten_byte_for_byte() {
        let entry = parse_entry(OLD_OPENED).unwrap();
        let Kind::Opened(opened) = &entry.kind else { panic!("{entry:?}") };
        assert_eq!(opened.sandbox.name(), Some("namespaces"));
        assert_eq!(serde_json::to_string(&entry).unwrap(), OLD_OPENED);
        let new = OLD_OPENED.replace(r#""fence":"A""#, r#""sandbox":"landlock""#);
        let entry = parse_entry(&new).unwrap();
        assert_eq!(serde_json::to_string(&entry).unwrap(), new);
        let none = OLD_OPENED.replace(r#""fence":"A","#, "");
        assert_eq!(serde_json::to_string(&parse_entry(&none).unwrap()).unwrap(), none);
    }

    #[test]
    fn a_verdict_with_the_old_letter_equals_one_with_the_name() {
        let old: PolicyVerdict = serde_json::from_str(OLD_RESULT).unwrap();
        assert_eq!(serde_json::to_string(&old).unwrap(), OLD_RESULT);
        let new = PolicyVerdict {
            outcome: Judgement::Allow,
            rule: None,
            layer: Some("fence".to_owned()),
            reason: "r".to_owned(),
            sandbox: LoggedBackend::new("bubblewrap"),
        };
        assert_eq!(old, new);
        let written = serde_json::to_string(&new).unwrap();
        assert!(written.ends_with(r#""sandbox":"bubblewrap"}"#), "{written}");
        assert_eq!(serde_json::from_str::<PolicyVerdict>(&written).unwrap(), new);
    }

    #[test]
    fn every_letter_has_a_name() {
        for (letter, name) in OLD_LETTERS {
            assert_eq!(backend_name(letter), name);
        }
        assert_eq!(backend_name("off"), "off");
        assert_eq!(backend_name("seatbelt"), "seatbelt");
    }
}
