//! The words of an error: its codes and its message, wherever a provider puts them.
//!
//! Invariant: what is shown has at most `SHOWN_BYTES` bytes and no control characters, so that it cannot do anything to
//! a terminal (`what_is_shown_is_bounded_and_plain`).

use serde_json::Value;

use super::wait;

/// Bytes shown of a provider's own words.
pub(crate) const SHOWN_BYTES: usize = 500;
/// Bytes of a message in which meaning is looked for.
const READ_BYTES: usize = 8 * 1024;
/// How many levels of errors inside errors are looked at: a gateway quotes a provider, who quotes another.
const LEVELS: usize = 6;

/// What an error says.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// Types, codes and statuses, in lower case, one space between them.
    codes: String,
    message: String,
    /// `message`, in lower case.
    said: String,
    /// A status that the error itself names.
    pub(crate) status: Option<u16>,
    /// How long to wait, if it says so.
    pub(crate) wait_ms: Option<u64>,
}

impl Words {
    pub(crate) fn of_body(body: &[u8]) -> Words {
        if let Ok(value) = serde_json::from_slice::<Value>(body) {
            return Words::of_json(&value);
        }
        let text = String::from_utf8_lossy(body.get(..READ_BYTES).unwrap_or(body));
        let mut words = Words::default();
        words.say(if text.trim_start().starts_with('<') { plain(&text) } else { text.into_owned() });
        words.done()
    }

    pub(crate) fn of_json(value: &Value) -> Words {
        let mut words = Words::default();
        words.read(value, LEVELS);
        words.done()
    }

    /// Takes in one level of an error.
    fn read(&mut self, value: &Value, levels: usize) {
        let Some(levels) = levels.checked_sub(1) else { return };
        match value {
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.read(&inner, levels),
                Ok(_) | Err(_) => self.say(text.clone()),
            },
            Value::Array(list) => list.iter().take(1).for_each(|first| self.read(first, levels)),
            Value::Object(fields) => {
                for key in ["type", "code", "status", "reason"] {
                    self.code(fields.get(key));
                }
                for key in ["error", "message", "msg", "detail", "errors", "innererror"] {
                    if let Some(inner) = fields.get(key) {
                        self.read(inner, levels);
                    }
                }
                self.details(fields.get("details"));
                // A gateway that passes on what the provider behind it said.
                if let Some(raw) = fields.get("metadata").and_then(|metadata| metadata.get("raw")) {
                    self.read(raw, levels);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn code(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::String(code)) => {
                self.codes.push(' ');
                self.codes.extend(code.chars().take(100).flat_map(char::to_lowercase));
                self.numbered(code.parse().ok());
            }
            Some(Value::Number(number)) => self.numbered(number.as_u64()),
            _ => {}
        }
    }

    fn numbered(&mut self, number: Option<u64>) {
        let status = number.and_then(|number| u16::try_from(number).ok());
        if let Some(status) = status.filter(|status| (400..600).contains(status)) {
            self.status.get_or_insert(status);
        }
    }

    /// Google's details: among them how long to wait and the reason in one word.
    fn details(&mut self, details: Option<&Value>) {
        for detail in details.and_then(Value::as_array).into_iter().flatten() {
            self.code(detail.get("reason"));
            let delay = detail.get("retryDelay").and_then(Value::as_str);
            if let Some(wait) = delay.and_then(wait::duration_ms) {
                self.wait_ms = Some(wait);
            }
        }
    }

    fn say(&mut self, text: String) {
        if text.trim().is_empty() || self.message.contains(text.as_str()) {
            return;
        }
        if !self.message.is_empty() {
            self.message.push_str(": ");
        }
        self.message.push_str(cut(&text, READ_BYTES));
    }

    fn done(mut self) -> Words {
        self.said = self.message.to_lowercase();
        self.wait_ms = self.wait_ms.or_else(|| wait::in_text(&self.said));
        self
    }

    pub(crate) fn code_has(&self, codes: &[&str]) -> bool {
        codes.iter().any(|code| self.codes.contains(code))
    }

    pub(crate) fn says(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.said.contains(phrase))
    }

    /// The message for a person or, without one, the codes.
    pub(crate) fn shown(&self) -> String {
        let text = if self.message.is_empty() { self.codes.trim() } else { &self.message };
        shown(text)
    }
}

/// Text of a stranger, made fit to be shown: one line, no control characters, bounded.
pub(crate) fn shown(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = cut(&line, SHOWN_BYTES);
    if short.len() == line.len() { line } else { format!("{} …", cut(short, SHOWN_BYTES - " …".len())) }
}

/// The beginning of a text, at most so many bytes of it.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

/// What a page says: its title or, without one, its text.
fn plain(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|at| {
        let from = at + lower.get(at..)?.find('>')? + 1;
        let to = from + lower.get(from..)?.find("</title")?;
        page.get(from..to)
    });
    match title.map(str::trim) {
        Some(title) if !title.is_empty() => title.to_owned(),
        _ => without_tags(page),
    }
}

fn without_tags(page: &str) -> String {
    let mut text = String::new();
    let mut in_tag = false;
    for c in page.chars() {
        match c {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                text.push(' ');
            }
            _ if !in_tag => text.push(c),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_bounded_and_plain() {
        assert_eq!(shown("a\u{1b}[31m\r\n  b"), "a [31m b");
        let long = shown(&"ä".repeat(10_000));
        assert!(long.len() <= SHOWN_BYTES && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn a_page_is_its_title_or_its_text() {
        assert_eq!(plain("<html><head><TITLE lang=en> 502 Bad\nGateway</TITLE>"), "502 Bad\nGateway");
        assert_eq!(shown(&plain("<p>no <b>way</b></p><title></title>")), "no way");
        assert_eq!(shown(&plain("<title>never ends")), "never ends");
    }
}
