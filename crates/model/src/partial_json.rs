//! Completes a partial JSON text so that it can be shown while the rest arrives.
//!
//! Only for display: a call runs with the complete text of the model. Invariant: every prefix of a JSON text
//! parses after `close_json` (property test below).

/// Closes open strings, lists, objects, numbers and literals at the end of a prefix of a JSON text. A key
/// without a value gets `null`, a trailing comma is dropped, and an empty text becomes `null`. Other text is
/// returned in some form, which need not be JSON.
pub fn close_json(partial: &str) -> String {
    let mut closer = JsonCloser { out: String::with_capacity(partial.len() + 16), ..JsonCloser::default() };
    for c in partial.chars() {
        closer.push_char(c);
    }
    closer.finish()
}

#[derive(Default)]
struct JsonCloser {
    out: String,
    /// A comma with the space after it until more follows, an incomplete escape, or a number or literal.
    pending: String,
    state: CloserState,
    /// The open containers, outermost first.
    open: Vec<OpenContainer>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum CloserState {
    /// Before a key, a value or a closing bracket.
    #[default]
    BetweenTokens,
    /// After a comma, which is pending.
    AfterComma,
    String,
    Escape,
    /// Inside a number or literal, which is pending.
    Word,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenContainer {
    List,
    Object(MemberState),
}

/// Progress of the current object member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberState {
    None,
    Key,
    Colon,
    Value,
}

impl JsonCloser {
    fn push_char(&mut self, c: char) {
        match self.state {
            CloserState::String => self.push_in_string(c),
            CloserState::Escape => self.push_in_escape(c),
            CloserState::Word if is_word(c) => self.pending.push(c),
            CloserState::AfterComma if c.is_ascii_whitespace() => self.pending.push(c),
            CloserState::Word | CloserState::AfterComma => {
                // A comma before a bracket is invalid JSON, so it is dropped like a trailing one.
                let lost = self.state == CloserState::AfterComma && matches!(c, '}' | ']');
                let held = std::mem::take(&mut self.pending);
                if !lost {
                    self.out.push_str(&held);
                }
                self.state = CloserState::BetweenTokens;
                self.push_between(c);
            }
            CloserState::BetweenTokens => self.push_between(c),
        }
    }

    fn push_between(&mut self, c: char) {
        match c {
            '"' => {
                self.begin_value(true);
                self.state = CloserState::String;
                self.out.push(c);
            }
            '{' | '[' => {
                self.begin_value(false);
                self.open.push(if c == '{' {
                    OpenContainer::Object(MemberState::None)
                } else {
                    OpenContainer::List
                });
                self.out.push(c);
            }
            '}' | ']' => {
                self.open.pop();
                self.out.push(c);
            }
            ',' => {
                if let Some(OpenContainer::Object(member)) = self.open.last_mut() {
                    *member = MemberState::None;
                }
                self.state = CloserState::AfterComma;
                self.pending.push(c);
            }
            ':' => {
                if let Some(OpenContainer::Object(member)) = self.open.last_mut() {
                    *member = MemberState::Colon;
                }
                self.out.push(c);
            }
            c if is_word(c) => {
                self.begin_value(false);
                self.state = CloserState::Word;
                self.pending.push(c);
            }
            c => self.out.push(c),
        }
    }

    /// Starts a key or a value in the innermost container.
    fn begin_value(&mut self, string: bool) {
        if let Some(OpenContainer::Object(member)) = self.open.last_mut() {
            *member = match member {
                MemberState::None if string => MemberState::Key,
                _ => MemberState::Value,
            };
        }
    }

    fn push_in_string(&mut self, c: char) {
        match c {
            '\\' => {
                self.state = CloserState::Escape;
                self.pending.push(c);
            }
            '"' => {
                self.state = CloserState::BetweenTokens;
                self.out.push(c);
            }
            c => self.out.push(c),
        }
    }

    fn push_in_escape(&mut self, c: char) {
        self.pending.push(c);
        if is_complete_escape(&self.pending) {
            self.out.push_str(&std::mem::take(&mut self.pending));
            self.state = CloserState::String;
        }
    }

    fn finish(mut self) -> String {
        match self.state {
            CloserState::String | CloserState::Escape => self.out.push('"'),
            CloserState::Word => {
                let word = std::mem::take(&mut self.pending);
                self.out.push_str(&complete_word(&word));
            }
            CloserState::BetweenTokens | CloserState::AfterComma => {}
        }
        for open in self.open.iter().rev() {
            self.out.push_str(match open {
                OpenContainer::List => "]",
                OpenContainer::Object(MemberState::None | MemberState::Value) => "}",
                OpenContainer::Object(MemberState::Key) => ":null}",
                OpenContainer::Object(MemberState::Colon) => "null}",
            });
        }
        if self.out.trim().is_empty() {
            self.out.push_str("null");
        }
        self.out
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')
}

/// Returns whether an escape is complete. The first half of a surrogate pair needs the second.
fn is_complete_escape(escape: &str) -> bool {
    let unit = |at: usize| -> Option<u32> {
        let digits: String = escape.chars().skip(at + 2).take(4).collect();
        (digits.len() == 4).then(|| u32::from_str_radix(&digits, 16).ok())?
    };
    let length = escape.chars().count();
    if escape.chars().nth(1) != Some('u') {
        return true;
    }
    let first_of_pair = unit(0).is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
    if first_of_pair { length >= 12 } else { length >= 6 }
}

/// Completes a number or literal.
fn complete_word(word: &str) -> String {
    for whole in ["true", "false", "null"] {
        if whole.starts_with(word) {
            return whole.to_owned();
        }
    }
    let mut number = word.trim_end_matches(['.', 'e', 'E', '+', '-']).to_owned();
    if number.is_empty() {
        number = "0".to_owned();
    }
    // A number that is finite only with its missing exponent.
    if number.parse::<f64>().is_ok_and(f64::is_finite) { number } else { "0".to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn json_values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "(?s).{0,10}".prop_map(Value::from),
            "[\\\\\"{}\\[\\],:\u{1f600}é\n\u{1}]{0,10}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("(?s).{0,6}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Escapes everything outside ASCII, as some providers do.
    fn escape_non_ascii(text: &str) -> String {
        let mut units = [0; 2];
        text.chars()
            .map(|c| match c {
                ' '..='~' => c.to_string(),
                '\n' => c.to_string(),
                c => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
            })
            .collect()
    }

    fn check_all_prefixes(text: &str) {
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let beginning = text.split_at(at).0;
            let closed = close_json(beginning);
            if let Err(e) = serde_json::from_str::<Value>(&closed) {
                panic!("{beginning:?} was closed as {closed:?}: {e}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_beginning_of_json_parses(value in json_values()) {
            let plain = value.to_string();
            check_all_prefixes(&plain);
            check_all_prefixes(&serde_json::to_string_pretty(&value).expect("a value"));
            check_all_prefixes(&escape_non_ascii(&plain));
            let whole: Value = serde_json::from_str(&plain).expect("written by serde");
            prop_assert_eq!(serde_json::from_str::<Value>(&close_json(&plain)).expect("whole"), whole);
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            close_json(&text);
        }
    }

    #[test]
    fn what_is_there_is_shown() {
        for (beginning, shown) in [
            ("", json!(null)),
            ("{", json!({})),
            (r#"{"path": "src/ma"#, json!({ "path": "src/ma" })),
            (r#"{"path": "a", "#, json!({ "path": "a" })),
            (r#"{"path": "a", "li"#, json!({ "path": "a", "li": null })),
            (r#"{"lines": [1, 2"#, json!({ "lines": [1, 2] })),
            (r#"{"lines": [1, 2,"#, json!({ "lines": [1, 2] })),
            (r#"{"on": tr"#, json!({ "on": true })),
            (r#"{"n": -"#, json!({ "n": 0 })),
            (r#"{"n": 1.5e"#, json!({ "n": 1.5 })),
            (r#"{"n": 1.5e-"#, json!({ "n": 1.5 })),
            (r#"{"t": "a\"#, json!({ "t": "a" })),
            (r#"{"t": "a\ud83d\ude"#, json!({ "t": "a" })),
            (r#"{"t": "a\ud83d\ude00"#, json!({ "t": "a😀" })),
        ] {
            let closed = close_json(beginning);
            let value: Value = serde_json::from_str(&closed).unwrap_or_else(|e| panic!("{closed}: {e}"));
            assert_eq!(value, shown, "{beginning}");
        }
    }
}
