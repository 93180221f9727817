//! Parses the answer of a hook: a verdict in JSON, or variables for a command.
//!
//! Invariant: an answer that cannot be parsed completely is not a verdict
//! (`nothing_but_a_whole_verdict_counts`): a misspelled key would otherwise be a silent approval.

use std::collections::BTreeMap;

use minke_record::Judgement;
use serde_json::Value;

use crate::event::HookEvent;
use crate::suggest::unknown_message;

/// The maximum length of a reason, and of the context of one hook.
pub const MAX_REASON_CHARS: usize = 2_000;
pub const MAX_CONTEXT_CHARS: usize = 8_000;
/// The maximum length of one variable, and of all together.
pub const MAX_VALUE_BYTES: usize = 32 * 1024;
pub const MAX_ENV_BYTES: usize = 256 * 1024;
/// The maximum number of variables.
const MAX_VARIABLES: usize = 512;

const VERDICT_KEYS: [&str; 5] = ["decision", "reason", "updated_input", "context", "text"];

/// The parsed answer of a hook.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookDecision {
    pub decision: Option<Judgement>,
    pub reason: Option<String>,
    /// New arguments of a call as JSON text, or the new text of a prompt.
    pub rewritten: Option<String>,
    pub context: Option<String>,
    pub env: BTreeMap<String, String>,
}

/// Parses the answer of a hook. An empty answer is no objection.
pub(crate) fn parse_verdict(event: HookEvent, reply: &[u8]) -> Result<HookDecision, String> {
    let said = std::str::from_utf8(reply).map_err(|_| "its output is not UTF-8".to_owned())?;
    if said.trim().is_empty() {
        return Ok(HookDecision::default());
    }
    if event == HookEvent::ShellEnv {
        return Ok(HookDecision { env: parse_variables(said)?, ..HookDecision::default() });
    }
    let value: Value = serde_json::from_str(said.trim())
        .map_err(|error| format!("its output {} is not a verdict: {error}", excerpt_of(said)))?;
    let Value::Object(mut object) = value else {
        return Err(format!("its output {} is not a verdict: expected a JSON object", excerpt_of(said)));
    };
    if let Some(key) = object.keys().find(|key| !VERDICT_KEYS.contains(&key.as_str())) {
        return Err(format!("its verdict: {}", unknown_message("key", key, &VERDICT_KEYS)));
    }
    let mut verdict = HookDecision {
        decision: parse_decision(event, object.remove("decision"))?,
        reason: parse_text("reason", object.remove("reason"), MAX_REASON_CHARS)?,
        context: parse_text("context", object.remove("context"), MAX_CONTEXT_CHARS)?,
        ..HookDecision::default()
    };
    match object.remove("updated_input") {
        None | Some(Value::Null) => {}
        Some(_) if !matches!(event, HookEvent::BeforeTool | HookEvent::PodSpawn) => {
            return Err(format!("`updated_input` has no meaning at `{event}`"));
        }
        Some(Value::Object(input)) => verdict.rewritten = Some(Value::Object(input).to_string()),
        Some(_) => {
            return Err("`updated_input` must be a JSON object with the whole input of the call".to_owned());
        }
    }
    match object.remove("text") {
        None | Some(Value::Null) => {}
        Some(_) if event != HookEvent::UserPrompt => {
            return Err(format!("`text` has no meaning at `{event}`"));
        }
        Some(Value::String(text)) if !text.trim().is_empty() => verdict.rewritten = Some(text),
        Some(_) => return Err("`text` is the new prompt and must not be empty".to_owned()),
    }
    Ok(verdict)
}

fn parse_decision(event: HookEvent, value: Option<Value>) -> Result<Option<Judgement>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "allow" => Ok(Some(Judgement::Allow)),
            "deny" => Ok(Some(Judgement::Deny)),
            "ask" if event.can_ask() => Ok(Some(Judgement::Ask)),
            "ask" => Err(format!("`ask` has no meaning at `{event}`: use allow or deny")),
            other => {
                Err(format!("its verdict: {}", unknown_message("decision", other, &["allow", "ask", "deny"])))
            }
        },
        Some(_) => Err("`decision` must be allow, ask or deny".to_owned()),
    }
}

fn parse_text(key: &str, value: Option<Value>, limit: usize) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(truncate_chars(&text, limit)).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("`{key}` must be a string")),
    }
}

/// `NAME=value` lines.
fn parse_variables(reply: &str) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    let mut bytes = 0;
    for (number, line) in reply.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = number + 1;
        // A value may be a secret: no part of it is shown.
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {number} of its output is not NAME=value"));
        };
        if !is_variable_name(name) {
            return Err(format!("line {number} of its output does not start with a variable name"));
        }
        if is_unsafe_name(name) {
            return Err(format!(
                "it sets {name}, which hooks must not set: it changes what programs load or run"
            ));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(format!(
                "its value of {name} has {} bytes, more than {MAX_VALUE_BYTES}",
                value.len()
            ));
        }
        if value.contains('\0') {
            return Err(format!("its value of {name} contains a NUL"));
        }
        bytes += line.len();
        all.insert(name.to_owned(), value.to_owned());
    }
    if bytes > MAX_ENV_BYTES || all.len() > MAX_VARIABLES {
        return Err(format!("it sets more than {MAX_VARIABLES} variables or {MAX_ENV_BYTES} bytes"));
    }
    Ok(all)
}

fn is_variable_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Variables that make a loader or shell run code other than the judged command, and those that the sandbox
/// sets itself. `PATH` is allowed: tool chains need it, and its programs run in the same sandbox.
fn is_unsafe_name(name: &str) -> bool {
    const UNSAFE_NAMES: [&str; 22] = [
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
    UNSAFE_NAMES.contains(&upper.as_str())
        || (upper.starts_with("LD_") && upper != "LD_LIBRARY_PATH")
        || ["DYLD_", "BASH_FUNC_", "MINKE_"].iter().any(|prefix| upper.starts_with(prefix))
}

/// The start of an invalid text, for a message.
pub(crate) fn excerpt_of(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 80;
    let line = text.trim();
    let mut begin: String = line.escape_debug().take(MAX_EXCERPT_CHARS).collect();
    if begin.len() < line.len() {
        begin.push('…');
    }
    format!("`{begin}`")
}

/// Truncates to a number of characters, with an ellipsis.
pub(crate) fn truncate_chars(text: &str, limit: usize) -> String {
    minke_text::shorten_to_chars(text.trim(), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_prompt_verdict(reply: &str) -> Result<HookDecision, String> {
        parse_verdict(HookEvent::BeforeTool, reply.as_bytes())
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
            assert!(parse_prompt_verdict(bad).is_err(), "{bad}");
        }
        assert!(
            parse_prompt_verdict("{\"decison\":\"deny\"}").unwrap_err().contains("did you mean `decision`?")
        );
        assert!(parse_verdict(HookEvent::BeforeTool, b"\xff\xfe").is_err());
        assert!(parse_verdict(HookEvent::BeforeStop, b"{\"decision\":\"ask\"}").is_err());
        assert!(parse_verdict(HookEvent::UserPrompt, b"{\"updated_input\":{}}").is_err());
        assert!(parse_verdict(HookEvent::UserPrompt, b"{\"text\":\" \"}").is_err());
    }

    #[test]
    fn verdicts_are_read() {
        assert_eq!(parse_prompt_verdict(" \n"), Ok(HookDecision::default()));
        assert_eq!(parse_prompt_verdict("{}"), Ok(HookDecision::default()));
        let read = parse_prompt_verdict(
            "{\"decision\":\"ask\",\"reason\":\"r\",\"context\":\"c\",\"updated_input\":{\"a\":1}}",
        );
        let read = read.unwrap();
        assert_eq!(read.decision, Some(Judgement::Ask));
        assert_eq!(read.rewritten.as_deref(), Some("{\"a\":1}"));
        let long = format!("{{\"reason\":\"{}\"}}", "é".repeat(MAX_REASON_CHARS + 5));
        assert_eq!(
            parse_prompt_verdict(&long).unwrap().reason.unwrap().chars().count(),
            MAX_REASON_CHARS + 1
        );
    }

    #[test]
    fn variables_are_checked() {
        let env = |reply: &str| parse_verdict(HookEvent::ShellEnv, reply.as_bytes());
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
        let secret = env(&format!("A={}", "s3cret".repeat(MAX_VALUE_BYTES))).unwrap_err();
        assert!(!secret.contains("s3cret"), "{secret}");
        let many: String = (0..600).map(|n| format!("V{n}=1\n")).collect();
        assert!(env(&many).is_err());
    }
}
