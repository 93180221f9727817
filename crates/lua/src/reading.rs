//! Reading: a table of the script becomes a value of ours.
//!
//! Here: what a value may be, and its bounds. Only what lies in the tables counts: no metamethod is asked. Elsewhere:
//! which keys there may be (`fields`).
//! Invariant: what is read is bounded in depth, number and size (`every_hostile_text_ends_with_an_error`).

use mlua::{Table, Value as Said};
use serde_json::{Map, Number, Value};

/// How deep tables may lie in each other.
const DEPTH: usize = 16;
/// Values of one recipe.
const VALUES: usize = 4_096;
/// Texts of one recipe together.
const TEXTS_BYTES: usize = 256 * 1024;
/// Letters of one key.
const KEY_CHARS: usize = 128;
/// Beyond this a number has no certain last digit.
const WHOLE_MOST: f64 = 9_007_199_254_740_992.0;

/// What may not stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The dotted path of the key.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn at(path: &str, message: impl Into<String>) -> Refused {
        Refused { path: path.to_owned(), message: message.into() }
    }
}

/// How much may still be read.
pub(crate) struct Reading {
    values: usize,
    bytes: usize,
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading { values: VALUES, bytes: TEXTS_BYTES }
    }

    /// The pairs of a table whose keys are all texts, in their order.
    pub(crate) fn pairs(&mut self, path: &str, table: &Table) -> Result<Vec<(String, Said)>, Refused> {
        let mut pairs = Vec::new();
        for pair in table.pairs::<Said, Said>() {
            let (key, value) =
                pair.map_err(|_| Refused::at(path, format!("`{}` cannot be read", shown(path))))?;
            self.one_more(path)?;
            let key = match key {
                Said::String(key) => self.text(path, &key.as_bytes())?,
                other => {
                    return Err(Refused::at(
                        path,
                        format!(
                            "`{}` has a key that is a {}: keys are texts, or 1, 2, 3 and so on in a list",
                            shown(path),
                            other.type_name()
                        ),
                    ));
                }
            };
            if key.chars().count() > KEY_CHARS {
                return Err(Refused::at(
                    path,
                    format!("`{}` has a key of more than {KEY_CHARS} letters", shown(path)),
                ));
            }
            pairs.push((key, value));
        }
        // The order of a table is nobody's promise.
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(pairs)
    }

    pub(crate) fn value(&mut self, path: &str, said: &Said, depth: usize) -> Result<Value, Refused> {
        self.one_more(path)?;
        match said {
            Said::Nil => Ok(Value::Null),
            Said::Boolean(said) => Ok(Value::Bool(*said)),
            Said::Integer(said) => Ok(Value::from(*said)),
            Said::Number(said) => number(path, *said),
            Said::String(said) => self.text(path, &said.as_bytes()).map(Value::String),
            Said::Table(_) if depth >= DEPTH => Err(Refused::at(
                path,
                format!("`{}` holds tables in tables, more than {DEPTH} deep, or itself", shown(path)),
            )),
            Said::Table(table) => self.table(path, table, depth),
            other => Err(Refused::at(
                path,
                format!(
                    "`{}` is a {}: a recipe holds texts, numbers, booleans and tables of them",
                    shown(path),
                    other.type_name()
                ),
            )),
        }
    }

    fn table(&mut self, path: &str, table: &Table, depth: usize) -> Result<Value, Refused> {
        let length = table.raw_len();
        if length == 0 {
            let pairs = self.pairs(path, table)?;
            let members = pairs.into_iter().map(|(key, value)| {
                let value = self.value(&below(path, &key), &value, depth + 1)?;
                Ok((key, value))
            });
            return members.collect::<Result<Map<_, _>, _>>().map(Value::Object);
        }
        let mut members = Vec::new();
        for number in 1..=length {
            let value = table
                .raw_get::<Said>(number)
                .map_err(|_| Refused::at(path, format!("`{}` cannot be read", shown(path))))?;
            members.push(self.value(&below(path, &number.to_string()), &value, depth + 1)?);
        }
        // Counted with a bound: a list and a map at once is neither.
        if table.pairs::<Said, Said>().take(length + 1).count() != length {
            return Err(Refused::at(
                path,
                format!("`{}` is a list and has other keys too: make it one of both", shown(path)),
            ));
        }
        Ok(Value::Array(members))
    }

    fn one_more(&mut self, path: &str) -> Result<(), Refused> {
        let Some(left) = self.values.checked_sub(1) else {
            return Err(Refused::at(path, format!("the recipe holds more than {VALUES} values")));
        };
        self.values = left;
        Ok(())
    }

    fn text(&mut self, path: &str, bytes: &[u8]) -> Result<String, Refused> {
        let Some(left) = self.bytes.checked_sub(bytes.len()) else {
            return Err(Refused::at(
                path,
                format!("the texts of the recipe hold more than {TEXTS_BYTES} bytes"),
            ));
        };
        self.bytes = left;
        if bytes.contains(&0) {
            return Err(Refused::at(path, format!("`{}` holds a NUL, which no key takes", shown(path))));
        }
        String::from_utf8(bytes.to_vec())
            .map_err(|_| Refused::at(path, format!("`{}` holds a text that is not UTF-8", shown(path))))
    }
}

fn number(path: &str, said: f64) -> Result<Value, Refused> {
    if said.fract() == 0.0 && said.abs() <= WHOLE_MOST {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        return Ok(Value::from(said as i64));
    }
    Number::from_f64(said).map(Value::Number).ok_or_else(|| {
        Refused::at(path, format!("`{}` is {said}, which is no number that can be written", shown(path)))
    })
}

pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A path as errors show it.
pub(crate) fn shown(path: &str) -> String {
    let mut text: String = path.chars().take(KEY_CHARS).flat_map(char::escape_debug).collect();
    if path.chars().nth(KEY_CHARS).is_some() {
        text.push('…');
    }
    if text.is_empty() { "profile".to_owned() } else { text }
}
