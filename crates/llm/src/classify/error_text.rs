//! The text of an error: its codes and its message, in any body of a provider.
//!
//! Invariant: the shown text has at most `MAX_SHOWN_BYTES` bytes and no control characters, so it cannot
//! control a terminal (`what_is_shown_is_bounded_and_plain`).

use serde_json::Value;

use super::retry_delay;

/// The most bytes of the provider's text that are shown.
pub(crate) const MAX_SHOWN_BYTES: usize = 500;
/// The most bytes of a message that are searched.
const MAX_SEARCHED_BYTES: usize = 8 * 1024;
/// The deepest nesting of errors that is searched: a gateway may quote a provider that quotes another one.
const MAX_NESTING: usize = 6;

/// The text of an error.
#[derive(Debug, Default)]
pub(crate) struct ErrorText {
    /// Types, codes and statuses, in lower case, separated by spaces.
    codes: String,
    message: String,
    /// `message` in lower case.
    lowercase_message: String,
    /// A status inside the error.
    pub(crate) status: Option<u16>,
    /// A retry delay inside the error.
    pub(crate) wait_ms: Option<u64>,
}

impl ErrorText {
    pub(crate) fn from_body(body: &[u8]) -> ErrorText {
        if let Ok(value) = serde_json::from_slice::<Value>(body) {
            return ErrorText::from_json(&value);
        }
        let text = String::from_utf8_lossy(body.get(..MAX_SEARCHED_BYTES).unwrap_or(body));
        let mut words = ErrorText::default();
        words.set_message(if text.trim_start().starts_with('<') {
            html_to_text(&text)
        } else {
            text.into_owned()
        });
        words.finish()
    }

    pub(crate) fn from_json(value: &Value) -> ErrorText {
        let mut words = ErrorText::default();
        words.read_level(value, MAX_NESTING);
        words.finish()
    }

    /// Reads one level of an error.
    fn read_level(&mut self, value: &Value, levels: usize) {
        let Some(levels) = levels.checked_sub(1) else { return };
        match value {
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.read_level(&inner, levels),
                Ok(_) | Err(_) => self.set_message(text.clone()),
            },
            Value::Array(list) => list.iter().take(1).for_each(|first| self.read_level(first, levels)),
            Value::Object(fields) => {
                for key in ["type", "code", "status", "reason"] {
                    self.add_code(fields.get(key));
                }
                for key in ["error", "message", "msg", "detail", "errors", "innererror"] {
                    if let Some(inner) = fields.get(key) {
                        self.read_level(inner, levels);
                    }
                }
                self.read_details(fields.get("details"));
                // A gateway includes the error of the provider behind it.
                if let Some(raw) = fields.get("metadata").and_then(|metadata| metadata.get("raw")) {
                    self.read_level(raw, levels);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_code(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::String(code)) => {
                self.codes.push(' ');
                self.codes.extend(code.chars().take(100).flat_map(char::to_lowercase));
                self.set_numeric_status(code.parse().ok());
            }
            Some(Value::Number(number)) => self.set_numeric_status(number.as_u64()),
            _ => {}
        }
    }

    fn set_numeric_status(&mut self, number: Option<u64>) {
        let status = number.and_then(|number| u16::try_from(number).ok());
        if let Some(status) = status.filter(|status| (400..600).contains(status)) {
            self.status.get_or_insert(status);
        }
    }

    /// Reads Google's `details`, which contain the retry delay and the reason.
    fn read_details(&mut self, details: Option<&Value>) {
        for detail in details.and_then(Value::as_array).into_iter().flatten() {
            self.add_code(detail.get("reason"));
            let delay = detail.get("retryDelay").and_then(Value::as_str);
            if let Some(wait) = delay.and_then(retry_delay::parse_duration_ms) {
                self.wait_ms = Some(wait);
            }
        }
    }

    fn set_message(&mut self, text: String) {
        if text.trim().is_empty() || self.message.contains(text.as_str()) {
            return;
        }
        if !self.message.is_empty() {
            self.message.push_str(": ");
        }
        self.message.push_str(minke_text::cut_to_bytes(&text, MAX_SEARCHED_BYTES));
    }

    fn finish(mut self) -> ErrorText {
        self.lowercase_message = self.message.to_lowercase();
        self.wait_ms = self.wait_ms.or_else(|| retry_delay::find_in_text(&self.lowercase_message));
        self
    }

    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        codes.iter().any(|code| self.codes.contains(code))
    }

    pub(crate) fn has_phrase(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.lowercase_message.contains(phrase))
    }

    /// Returns the message for the user, or the codes if there is none.
    pub(crate) fn display_text(&self) -> String {
        let text = if self.message.is_empty() { self.codes.trim() } else { &self.message };
        sanitize_text(text)
    }
}

/// Sanitizes untrusted text: one line, no control characters, limited length.
pub(crate) fn sanitize_text(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = minke_text::cut_to_bytes(&line, MAX_SHOWN_BYTES);
    if short.len() == line.len() {
        line
    } else {
        format!("{} …", minke_text::cut_to_bytes(short, MAX_SHOWN_BYTES - " …".len()))
    }
}

/// Returns the title of an HTML page, or its text.
fn html_to_text(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|at| {
        let from = at + lower.get(at..)?.find('>')? + 1;
        let to = from + lower.get(from..)?.find("</title")?;
        page.get(from..to)
    });
    match title.map(str::trim) {
        Some(title) if !title.is_empty() => title.to_owned(),
        _ => strip_tags(page),
    }
}

fn strip_tags(page: &str) -> String {
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
        assert_eq!(sanitize_text("a\u{1b}[31m\r\n  b"), "a [31m b");
        let long = sanitize_text(&"ä".repeat(10_000));
        assert!(long.len() <= MAX_SHOWN_BYTES && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn a_page_is_its_title_or_its_text() {
        assert_eq!(html_to_text("<html><head><TITLE lang=en> 502 Bad\nGateway</TITLE>"), "502 Bad\nGateway");
        assert_eq!(sanitize_text(&html_to_text("<p>no <b>way</b></p><title></title>")), "no way");
        assert_eq!(sanitize_text(&html_to_text("<title>never ends")), "never ends");
    }
}
