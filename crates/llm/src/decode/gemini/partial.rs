//! Arguments in pieces: values that come one by one, each with its path.
//!
//! Invariant: what a stranger's paths can build is bounded in depth and size (`paths_are_bounded`).

use serde_json::{Map, Value};

use super::wire::PartialArg;

/// Levels of a path.
const PATH_STEPS: usize = 64;
/// The highest place in a list.
const LIST_PLACES: usize = 10_000;

/// The arguments of one call, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct Partial {
    values: Map<String, Value>,
    /// The path of a text of which more follows.
    growing: Option<String>,
}

impl Partial {
    /// Takes in one piece. A path that cannot be followed is told.
    pub(super) fn add(&mut self, piece: PartialArg) -> Result<(), String> {
        let told =
            |why: &str| format!("the argument path `{}` {why}", super::super::preview(&piece.json_path));
        let steps = steps(&piece.json_path).ok_or_else(|| told("cannot be read"))?;
        let grows = self.growing.as_ref() == Some(&piece.json_path);
        self.growing = (piece.will_continue == Some(true)).then(|| piece.json_path.clone());
        let value = match (piece.string_value, piece.number_value, piece.bool_value) {
            (Some(text), ..) => Value::String(text),
            (_, Some(number), _) => number,
            (.., Some(value)) => Value::Bool(value),
            _ if piece.null_value => Value::Null,
            _ => return Ok(()),
        };
        let place = self.place(&steps).ok_or_else(|| told("leads nowhere"))?;
        match (place, value) {
            (Value::String(text), Value::String(more)) if grows => text.push_str(&more),
            (place, value) => *place = value,
        }
        Ok(())
    }

    /// The arguments as JSON. If they are not complete, as something that is none.
    pub(super) fn text(self, complete: bool) -> String {
        let mut text = Value::Object(self.values).to_string();
        if !complete {
            text.pop();
        }
        text
    }

    fn place(&mut self, steps: &[Step]) -> Option<&mut Value> {
        let (Step::Name(first), rest) = steps.split_first()? else { return None };
        let mut at = self.values.entry(first.clone()).or_insert(Value::Null);
        for step in rest {
            at = match step {
                Step::Name(name) => {
                    if at.is_null() {
                        *at = Value::Object(Map::new());
                    }
                    at.as_object_mut()?.entry(name.clone()).or_insert(Value::Null)
                }
                Step::Place(place) => {
                    if at.is_null() {
                        *at = Value::Array(Vec::new());
                    }
                    let list = at.as_array_mut()?;
                    if list.len() <= *place {
                        list.resize(place + 1, Value::Null);
                    }
                    list.get_mut(*place)?
                }
            };
        }
        Some(at)
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Name(String),
    Place(usize),
}

/// The steps of a JSON path with plain names and places: `$.a.b[0]['c d']`.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == PATH_STEPS {
            return None;
        }
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at_checked(end)?;
            if name.is_empty() {
                return None;
            }
            steps.push(Step::Name(name.to_owned()));
            rest = after;
        } else {
            let inner = rest.strip_prefix('[')?;
            let (step, after) = bracketed(inner)?;
            steps.push(step);
            rest = after.strip_prefix(']')?;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// What stands in brackets: a quoted name or a place.
fn bracketed(inner: &str) -> Option<(Step, &str)> {
    let quote = inner.chars().next()?;
    if quote != '\'' && quote != '"' {
        let (digits, _) = inner.split_once(']')?;
        let place: usize = digits.parse().ok().filter(|place| *place < LIST_PLACES)?;
        return Some((Step::Place(place), inner.strip_prefix(digits)?));
    }
    let mut name = String::new();
    let mut chars = inner.strip_prefix(quote)?.chars();
    loop {
        match chars.next()? {
            '\\' => name.push(chars.next()?),
            c if c == quote => return Some((Step::Name(name), chars.as_str())),
            c => name.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(json: &str) -> PartialArg {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn pieces_become_arguments() {
        let mut partial = Partial::default();
        for json in [
            r#"{"jsonPath":"$.list[0].name","stringValue":"ap","willContinue":true}"#,
            r#"{"jsonPath":"$.list[0].name","stringValue":"ple"}"#,
            r#"{"jsonPath":"$.list[0].price","numberValue":3}"#,
            r#"{"jsonPath":"$.list[1]['odd \\'key\\'.x']","boolValue":true}"#,
            r#"{"jsonPath":"$.none","nullValue":"NULL_VALUE"}"#,
            r#"{"jsonPath":"$.gone","nullValue":null}"#,
            r#"{"jsonPath":"$.list[0].name","willContinue":true}"#,
        ] {
            partial.add(piece(json)).unwrap();
        }
        let text = r#"{"list":[{"name":"apple","price":3},{"odd 'key'.x":true}],"none":null,"gone":null}"#;
        assert_eq!(partial.text(true), text);
    }

    #[test]
    fn a_text_that_is_said_again_is_not_added() {
        let mut partial = Partial::default();
        for _ in 0..2 {
            partial.add(piece(r#"{"jsonPath":"$.a","stringValue":"x"}"#)).unwrap();
        }
        assert_eq!(partial.text(true), r#"{"a":"x"}"#);
    }

    #[test]
    fn what_is_not_complete_is_no_json() {
        let mut partial = Partial::default();
        partial.add(piece(r#"{"jsonPath":"$.a","stringValue":"x"}"#)).unwrap();
        assert!(serde_json::from_str::<Value>(&partial.text(false)).is_err());
        assert!(serde_json::from_str::<Value>(&Partial::default().text(false)).is_err());
    }

    #[test]
    fn paths_are_bounded() {
        let deep = format!("${}", ".a".repeat(PATH_STEPS + 1));
        let odd = [
            "",
            "$",
            "a",
            "$.",
            "$..a",
            "$[0]",
            "$.a[",
            "$.a[x]",
            "$.a['b",
            "$.a[99999999]",
            "$.a[-1]",
            &deep,
        ];
        for path in odd {
            let arg =
                PartialArg { json_path: path.to_owned(), bool_value: Some(true), ..PartialArg::default() };
            assert!(Partial::default().add(arg).is_err(), "{path}");
        }
        let mut partial = Partial::default();
        partial.add(piece(r#"{"jsonPath":"$.a","numberValue":1}"#)).unwrap();
        assert!(
            partial.add(piece(r#"{"jsonPath":"$.a.b","numberValue":1}"#)).is_err(),
            "a number has no fields"
        );
    }
}
