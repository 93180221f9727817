//! Half a JSON text, closed so that it can be shown while the rest is on its way.
//!
//! Only for display: what a call runs with is the text that the model finished. Invariant: every beginning of a JSON
//! text parses after `close_json` (property test below).

/// Closes what is open at the end of a beginning of a JSON text: strings, lists, objects, half numbers and words. A key
/// without its value gets `null`; a comma that nothing follows goes. Nothing at all is `null`. Text that is not the
/// beginning of JSON comes back in some form, not necessarily as JSON.
pub fn close_json(partial: &str) -> String {
    let mut closer = Closer { out: String::with_capacity(partial.len() + 16), ..Closer::default() };
    for c in partial.chars() {
        closer.take(c);
    }
    closer.finish()
}

#[derive(Default)]
struct Closer {
    out: String,
    /// A comma and the space behind it, until something follows; an escape, until it is whole; a word or a number.
    held: String,
    state: State,
    /// What is open, the innermost last.
    open: Vec<Open>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value or a key may begin, or something may end.
    #[default]
    Between,
    /// A comma is held.
    Comma,
    String,
    Escape,
    /// A word or a number is held.
    Word,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    List,
    Object(Member),
}

/// How far the member of an object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    None,
    Key,
    Colon,
    Value,
}

impl Closer {
    fn take(&mut self, c: char) {
        match self.state {
            State::String => self.in_string(c),
            State::Escape => self.in_escape(c),
            State::Word if is_word(c) => self.held.push(c),
            State::Comma if c.is_ascii_whitespace() => self.held.push(c),
            State::Word | State::Comma => {
                // A comma before a bracket is no JSON; it goes like one at the end.
                let lost = self.state == State::Comma && matches!(c, '}' | ']');
                let held = std::mem::take(&mut self.held);
                if !lost {
                    self.out.push_str(&held);
                }
                self.state = State::Between;
                self.between(c);
            }
            State::Between => self.between(c),
        }
    }

    fn between(&mut self, c: char) {
        match c {
            '"' => {
                self.begins(true);
                self.state = State::String;
                self.out.push(c);
            }
            '{' | '[' => {
                self.begins(false);
                self.open.push(if c == '{' { Open::Object(Member::None) } else { Open::List });
                self.out.push(c);
            }
            '}' | ']' => {
                self.open.pop();
                self.out.push(c);
            }
            ',' => {
                if let Some(Open::Object(member)) = self.open.last_mut() {
                    *member = Member::None;
                }
                self.state = State::Comma;
                self.held.push(c);
            }
            ':' => {
                if let Some(Open::Object(member)) = self.open.last_mut() {
                    *member = Member::Colon;
                }
                self.out.push(c);
            }
            c if is_word(c) => {
                self.begins(false);
                self.state = State::Word;
                self.held.push(c);
            }
            c => self.out.push(c),
        }
    }

    /// A key or a value begins in what is open.
    fn begins(&mut self, string: bool) {
        if let Some(Open::Object(member)) = self.open.last_mut() {
            *member = match member {
                Member::None if string => Member::Key,
                _ => Member::Value,
            };
        }
    }

    fn in_string(&mut self, c: char) {
        match c {
            '\\' => {
                self.state = State::Escape;
                self.held.push(c);
            }
            '"' => {
                self.state = State::Between;
                self.out.push(c);
            }
            c => self.out.push(c),
        }
    }

    fn in_escape(&mut self, c: char) {
        self.held.push(c);
        if escape_is_whole(&self.held) {
            self.out.push_str(&std::mem::take(&mut self.held));
            self.state = State::String;
        }
    }

    fn finish(mut self) -> String {
        match self.state {
            State::String | State::Escape => self.out.push('"'),
            State::Word => {
                let word = std::mem::take(&mut self.held);
                self.out.push_str(&whole_word(&word));
            }
            State::Between | State::Comma => {}
        }
        for open in self.open.iter().rev() {
            self.out.push_str(match open {
                Open::List => "]",
                Open::Object(Member::None | Member::Value) => "}",
                Open::Object(Member::Key) => ":null}",
                Open::Object(Member::Colon) => "null}",
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

/// Whether an escape that begins with a backslash needs nothing more. The first half of a pair needs the second.
fn escape_is_whole(escape: &str) -> bool {
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

/// A word or a number that may lack its end.
fn whole_word(word: &str) -> String {
    for whole in ["true", "false", "null"] {
        if whole.starts_with(word) {
            return whole.to_owned();
        }
    }
    let mut number = word.trim_end_matches(['.', 'e', 'E', '+', '-']).to_owned();
    if number.is_empty() {
        number = "0".to_owned();
    }
    // A number that only its missing exponent would have made small enough.
    if number.parse::<f64>().is_ok_and(f64::is_finite) { number } else { "0".to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
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

    /// Written with everything that is not plain as an escape, as some providers write.
    fn escaped(text: &str) -> String {
        let mut units = [0; 2];
        text.chars()
            .map(|c| match c {
                ' '..='~' => c.to_string(),
                '\n' => c.to_string(),
                c => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
            })
            .collect()
    }

    fn check_all_beginnings(text: &str) {
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
        fn every_beginning_of_json_parses(value in value()) {
            let plain = value.to_string();
            check_all_beginnings(&plain);
            check_all_beginnings(&serde_json::to_string_pretty(&value).expect("a value"));
            check_all_beginnings(&escaped(&plain));
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
