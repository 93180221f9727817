//! What a hook said, read: a verdict in JSON, or variables for a command.
//!
//! Invariant: what cannot be read whole is no verdict (`nothing_but_a_whole_verdict_counts`): a misspelt key would
//! otherwise be a silent yes.

use std::collections::BTreeMap;

use minke_record::Judgement;
use serde_json::Value;

use crate::event::Event;
use crate::near::unknown;

/// The longest reason that is kept, and the longest context of one hook.
pub const REASON_CHARS: usize = 2_000;
pub const CONTEXT_CHARS: usize = 8_000;
/// The longest value of a variable, and all of them together.
pub const VALUE_BYTES: usize = 32 * 1024;
pub const ENV_BYTES: usize = 256 * 1024;
/// The most variables.
const ENV_MOST: usize = 512;

const KEYS: [&str; 5] = ["decision", "reason", "updated_input", "context", "text"];

/// What a hook said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    pub decision: Option<Judgement>,
    pub reason: Option<String>,
    /// New arguments of a call as JSON text, or the new text of a prompt.
    pub rewritten: Option<String>,
    pub context: Option<String>,
    pub env: BTreeMap<String, String>,
}

/// Reads what a hook of an event said. Nothing is no objection.
pub(crate) fn read(event: Event, said: &[u8]) -> Result<Verdict, String> {
    let said = std::str::from_utf8(said).map_err(|_| "it said something that is no UTF-8".to_owned())?;
    if said.trim().is_empty() {
        return Ok(Verdict::default());
    }
    if event == Event::ShellEnv {
        return Ok(Verdict { env: variables(said)?, ..Verdict::default() });
    }
    let value: Value = serde_json::from_str(said.trim())
        .map_err(|error| format!("it said {}, which is no verdict: {error}", shown(said)))?;
    let Value::Object(mut object) = value else {
        return Err(format!("it said {}, and a verdict is a JSON object", shown(said)));
    };
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("its verdict: {}", unknown("key", key, &KEYS)));
    }
    let mut verdict = Verdict {
        decision: decision(event, object.remove("decision"))?,
        reason: text("reason", object.remove("reason"), REASON_CHARS)?,
        context: text("context", object.remove("context"), CONTEXT_CHARS)?,
        ..Verdict::default()
    };
    match object.remove("updated_input") {
        None | Some(Value::Null) => {}
        Some(_) if !matches!(event, Event::BeforeTool | Event::PodSpawn) => {
            return Err(format!("`updated_input` has no meaning at `{event}`"));
        }
        Some(Value::Object(input)) => verdict.rewritten = Some(Value::Object(input).to_string()),
        Some(_) => return Err("`updated_input` is a JSON object, the whole input of the call".to_owned()),
    }
    match object.remove("text") {
        None | Some(Value::Null) => {}
        Some(_) if event != Event::UserPrompt => return Err(format!("`text` has no meaning at `{event}`")),
        Some(Value::String(text)) if !text.trim().is_empty() => verdict.rewritten = Some(text),
        Some(_) => return Err("`text` is the new prompt, and it cannot be empty".to_owned()),
    }
    Ok(verdict)
}

fn decision(event: Event, value: Option<Value>) -> Result<Option<Judgement>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "allow" => Ok(Some(Judgement::Allow)),
            "deny" => Ok(Some(Judgement::Deny)),
            "ask" if event.may_ask() => Ok(Some(Judgement::Ask)),
            "ask" => Err(format!("`ask` has no meaning at `{event}`: say allow or deny")),
            other => Err(format!("its verdict: {}", unknown("decision", other, &["allow", "ask", "deny"]))),
        },
        Some(_) => Err("`decision` is allow, ask or deny".to_owned()),
    }
}

fn text(key: &str, value: Option<Value>, most: usize) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(cut(&text, most)).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("`{key}` is a text")),
    }
}

/// `NAME=value` lines.
fn variables(said: &str) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    let mut bytes = 0;
    for (number, line) in said.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = number + 1;
        // A value may be a secret: no part of it is repeated.
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {number} of what it said is not NAME=value"));
        };
        if !is_name(name) {
            return Err(format!("line {number} of what it said does not begin with the name of a variable"));
        }
        if is_refused(name) {
            return Err(format!(
                "it sets {name}, which no hook may: it would change what programs load or run"
            ));
        }
        if value.len() > VALUE_BYTES {
            return Err(format!("its value of {name} has {} bytes and may have {VALUE_BYTES}", value.len()));
        }
        if value.contains('\0') {
            return Err(format!("its value of {name} holds a NUL"));
        }
        bytes += line.len();
        all.insert(name.to_owned(), value.to_owned());
    }
    if bytes > ENV_BYTES || all.len() > ENV_MOST {
        return Err(format!("its variables are more than {ENV_MOST}, or more than {ENV_BYTES} bytes"));
    }
    Ok(all)
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Names by which a loader or a shell is made to run something else before, or instead of, what was judged; and those
/// that the fence sets itself. `PATH` is not among them: tool chains are found by it, and what it names runs in the
/// same fence.
fn is_refused(name: &str) -> bool {
    const NAMES: [&str; 22] = [
        "BASH_ENV",
        "ENV",
        "IFS",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PROMPT_COMMAND",
        "BASH_LOADABLES_PATH",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "GIT_SSH_COMMAND",
        "TMPDIR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "HOME",
    ];
    let upper = name.to_ascii_uppercase();
    NAMES.contains(&upper.as_str())
        || (upper.starts_with("LD_") && upper != "LD_LIBRARY_PATH")
        || ["DYLD_", "BASH_FUNC_", "MINKE_"].iter().any(|prefix| upper.starts_with(prefix))
}

/// The beginning of a text that nobody understood, for a message.
pub(crate) fn shown(text: &str) -> String {
    const CHARS: usize = 80;
    let line = text.trim();
    let mut begin: String = line.escape_debug().take(CHARS).collect();
    if begin.len() < line.len() {
        begin.push('…');
    }
    format!("`{begin}`")
}

/// At most so many characters, and a sign if there were more.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(said: &str) -> Result<Verdict, String> {
        read(Event::BeforeTool, said.as_bytes())
    }

    #[test]
    fn nothing_but_a_whole_verdict_counts() {
        for bad in [
            "no",
            "[]",
            "null",
            "\"deny\"",
            "{\"decision\":\"deny\"",
            "{\"decison\":\"deny\"}",
            "{\"decision\":\"denied\"}",
            "{\"decision\":true}",
            "{\"decision\":\"allow\"} trailing",
            "{\"reason\":3}",
            "{\"updated_input\":[]}",
            "{\"text\":\"only for prompts\"}",
            "{\"decision\":\"deny\",\"decision2\":1}",
        ] {
            assert!(verdict(bad).is_err(), "{bad}");
        }
        assert!(verdict("{\"decison\":\"deny\"}").unwrap_err().contains("did you mean `decision`?"));
        assert!(read(Event::BeforeTool, b"\xff\xfe").is_err());
        assert!(read(Event::BeforeStop, b"{\"decision\":\"ask\"}").is_err());
        assert!(read(Event::UserPrompt, b"{\"updated_input\":{}}").is_err());
        assert!(read(Event::UserPrompt, b"{\"text\":\" \"}").is_err());
    }

    #[test]
    fn verdicts_are_read() {
        assert_eq!(verdict(" \n"), Ok(Verdict::default()));
        assert_eq!(verdict("{}"), Ok(Verdict::default()));
        let read =
            verdict("{\"decision\":\"ask\",\"reason\":\"r\",\"context\":\"c\",\"updated_input\":{\"a\":1}}");
        let read = read.unwrap();
        assert_eq!(read.decision, Some(Judgement::Ask));
        assert_eq!(read.rewritten.as_deref(), Some("{\"a\":1}"));
        let long = format!("{{\"reason\":\"{}\"}}", "é".repeat(REASON_CHARS + 5));
        assert_eq!(verdict(&long).unwrap().reason.unwrap().chars().count(), REASON_CHARS + 1);
    }

    #[test]
    fn variables_are_checked() {
        let env = |said: &str| read(Event::ShellEnv, said.as_bytes());
        let good = env("A=1\n\nPATH=/x:/y\n_b2=with = sign\nEMPTY=\n").unwrap().env;
        assert_eq!(good.get("_b2").map(String::as_str), Some("with = sign"));
        assert_eq!(good.len(), 4);
        for bad in [
            "LD_PRELOAD=/x",
            "ld_audit=/x",
            "BASH_ENV=/x",
            "1A=2",
            "A B=1",
            "=1",
            "no sign",
            "TMPDIR=/",
            "MINKE_X=1",
        ] {
            assert!(env(bad).is_err(), "{bad}");
        }
        assert!(env("LD_LIBRARY_PATH=/opt/lib").is_ok());
        let secret = env(&format!("A={}", "s3cret".repeat(VALUE_BYTES))).unwrap_err();
        assert!(!secret.contains("s3cret"), "{secret}");
        let many: String = (0..600).map(|n| format!("V{n}=1\n")).collect();
        assert!(env(&many).is_err());
    }
}
