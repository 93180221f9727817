//! Arguments in pieces: values that arrive one by one with their paths.
//!
//! Invariant: paths from a provider build a value of limited depth and size (`paths_are_bounded`).

use serde_json::{Map, Value};

use super::wire::PartialArg;

/// The deepest path.
const MAX_PATH_STEPS: usize = 64;
/// The highest list index.
const MAX_LIST_INDEX: usize = 10_000;

/// The arguments of one call so far.
#[derive(Debug, Default)]
pub(super) struct PartialArguments {
    values: Map<String, Value>,
    /// The path of an incomplete text.
    growing_path: Option<String>,
}

impl PartialArguments {
    /// Applies one piece. Returns an error for an invalid path.
    pub(super) fn apply_piece(&mut self, piece: PartialArg) -> Result<(), String> {
        let told =
            |why: &str| format!("the argument path `{}` {why}", super::super::preview_text(&piece.json_path));
        let steps = parse_path(&piece.json_path).ok_or_else(|| told("cannot be read"))?;
        let grows = self.growing_path.as_ref() == Some(&piece.json_path);
        self.growing_path = (piece.will_continue == Some(true)).then(|| piece.json_path.clone());
        let value = match (piece.string_value, piece.number_value, piece.bool_value) {
            (Some(text), ..) => Value::String(text),
            (_, Some(number), _) => number,
            (.., Some(value)) => Value::Bool(value),
            _ if piece.null_value => Value::Null,
            _ => return Ok(()),
        };
        let place = self.value_at(&steps).ok_or_else(|| told("leads nowhere"))?;
        match (place, value) {
            (Value::String(text), Value::String(more)) if grows => text.push_str(&more),
            (place, value) => *place = value,
        }
        Ok(())
    }

    /// Returns the arguments as JSON, or as invalid JSON if they are incomplete.
    pub(super) fn into_json(self, complete: bool) -> String {
        let mut text = Value::Object(self.values).to_string();
        if !complete {
            text.pop();
        }
        text
    }

    fn value_at(&mut self, steps: &[PathStep]) -> Option<&mut Value> {
        let (PathStep::Key(first), rest) = steps.split_first()? else { return None };
        let mut at = self.values.entry(first.clone()).or_insert(Value::Null);
        for step in rest {
            at = match step {
                PathStep::Key(name) => {
                    if at.is_null() {
                        *at = Value::Object(Map::new());
                    }
                    at.as_object_mut()?.entry(name.clone()).or_insert(Value::Null)
                }
                PathStep::Index(place) => {
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
enum PathStep {
    Key(String),
    Index(usize),
}

/// Parses a JSON path of plain names and indices: `$.a.b[0]['c d']`.
fn parse_path(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == MAX_PATH_STEPS {
            return None;
        }
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at_checked(end)?;
            if name.is_empty() {
                return None;
            }
            steps.push(PathStep::Key(name.to_owned()));
            rest = after;
        } else {
            let inner = rest.strip_prefix('[')?;
            let (step, after) = parse_bracketed(inner)?;
            steps.push(step);
            rest = after.strip_prefix(']')?;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// Parses the text in brackets: a quoted name or an index.
fn parse_bracketed(inner: &str) -> Option<(PathStep, &str)> {
    let quote = inner.chars().next()?;
    if quote != '\'' && quote != '"' {
        let (digits, _) = inner.split_once(']')?;
        let place: usize = digits.parse().ok().filter(|place| *place < MAX_LIST_INDEX)?;
        return Some((PathStep::Index(place), inner.strip_prefix(digits)?));
    }
    let mut name = String::new();
    let mut chars = inner.strip_prefix(quote)?.chars();
    loop {
        match chars.next()? {
            '\\' => name.push(chars.next()?),
            c if c == quote => return Some((PathStep::Key(name), chars.as_str())),
            c => name.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_piece(json: &str) -> PartialArg {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn pieces_become_arguments() {
        let mut partial = PartialArguments::default();
        for json in [
            r#"{"jsonPath":"$.list[0].name","stringValue":"ap","willContinue":true}"#,
            r#"{"jsonPath":"$.list[0].name","stringValue":"ple"}"#,
            r#"{"jsonPath":"$.list[0].price","numberValue":3}"#,
            r#"{"jsonPath":"$.list[1]['odd \\'key\\'.x']","boolValue":true}"#,
            r#"{"jsonPath":"$.none","nullValue":"NULL_VALUE"}"#,
            r#"{"jsonPath":"$.gone","nullValue":null}"#,
            r#"{"jsonPath":"$.list[0].name","willContinue":true}"#,
        ] {
            partial.apply_piece(parse_piece(json)).unwrap();
        }
        let text = r#"{"list":[{"name":"apple","price":3},{"odd 'key'.x":true}],"none":null,"gone":null}"#;
        assert_eq!(partial.into_json(true), text);
    }

    #[test]
    fn a_text_that_is_said_again_is_not_added() {
        let mut partial = PartialArguments::default();
        for _ in 0..2 {
            partial.apply_piece(parse_piece(r#"{"jsonPath":"$.a","stringValue":"x"}"#)).unwrap();
        }
        assert_eq!(partial.into_json(true), r#"{"a":"x"}"#);
    }

    #[test]
    fn what_is_not_complete_is_no_json() {
        let mut partial = PartialArguments::default();
        partial.apply_piece(parse_piece(r#"{"jsonPath":"$.a","stringValue":"x"}"#)).unwrap();
        assert!(serde_json::from_str::<Value>(&partial.into_json(false)).is_err());
        assert!(serde_json::from_str::<Value>(&PartialArguments::default().into_json(false)).is_err());
    }

    #[test]
    fn paths_are_bounded() {
        let deep = format!("${}", ".a".repeat(MAX_PATH_STEPS + 1));
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
            assert!(PartialArguments::default().apply_piece(arg).is_err(), "{path}");
        }
        let mut partial = PartialArguments::default();
        partial.apply_piece(parse_piece(r#"{"jsonPath":"$.a","numberValue":1}"#)).unwrap();
        assert!(
            partial.apply_piece(parse_piece(r#"{"jsonPath":"$.a.b","numberValue":1}"#)).is_err(),
            "a number has no fields"
        );
    }
}
