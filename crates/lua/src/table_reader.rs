//! Converts a table of the script into a JSON value.
//!
//! Here: the allowed values and their limits. Reads only raw members and calls no metamethod. Elsewhere: the
//! allowed keys (`fields`). Invariant: the result is limited in depth, count and size
//! (`every_hostile_text_ends_with_an_error`).

use mlua::{Table, Value as Said};
use serde_json::{Map, Number, Value};

/// The deepest nesting of tables.
const MAX_TABLE_DEPTH: usize = 16;
/// The most values in one recipe.
const MAX_VALUES: usize = 4_096;
/// The largest total size of all texts of one recipe.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// The longest key in characters.
const MAX_KEY_CHARS: usize = 128;
/// The largest number up to which every integer is exact.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A value that is not allowed, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecipeFieldError {
    /// The dotted path of the key.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl RecipeFieldError {
    pub(crate) fn new(path: &str, message: impl Into<String>) -> RecipeFieldError {
        RecipeFieldError { path: path.to_owned(), message: message.into() }
    }
}

/// Reads values and counts them against the limits.
pub(crate) struct TableReader {
    values: usize,
    bytes: usize,
}

impl TableReader {
    pub(crate) fn new() -> TableReader {
        TableReader { values: MAX_VALUES, bytes: MAX_TEXT_BYTES }
    }

    /// Returns the pairs of a table with text keys, sorted by key.
    pub(crate) fn read_pairs(
        &mut self,
        path: &str,
        table: &Table,
    ) -> Result<Vec<(String, Said)>, RecipeFieldError> {
        let mut pairs = Vec::new();
        for pair in table.pairs::<Said, Said>() {
            let (key, value) = pair.map_err(|_| {
                RecipeFieldError::new(path, format!("`{}` cannot be read", display_path(path)))
            })?;
            self.count_value(path)?;
            let key = match key {
                Said::String(key) => self.read_text(path, &key.as_bytes())?,
                other => {
                    return Err(RecipeFieldError::new(
                        path,
                        format!(
                            "`{}` has a key that is a {}: keys must be texts, or 1, 2, 3 and so on in a list",
                            display_path(path),
                            other.type_name()
                        ),
                    ));
                }
            };
            if key.chars().count() > MAX_KEY_CHARS {
                return Err(RecipeFieldError::new(
                    path,
                    format!("`{}` has a key of more than {MAX_KEY_CHARS} characters", display_path(path)),
                ));
            }
            pairs.push((key, value));
        }
        // The iteration order of a table is not defined.
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(pairs)
    }

    pub(crate) fn read_value(
        &mut self,
        path: &str,
        lua_value: &Said,
        depth: usize,
    ) -> Result<Value, RecipeFieldError> {
        self.count_value(path)?;
        match lua_value {
            Said::Nil => Ok(Value::Null),
            Said::Boolean(said) => Ok(Value::Bool(*said)),
            Said::Integer(said) => Ok(Value::from(*said)),
            Said::Number(said) => read_number(path, *said),
            Said::String(lua_value) => self.read_text(path, &lua_value.as_bytes()).map(Value::String),
            Said::Table(_) if depth >= MAX_TABLE_DEPTH => Err(RecipeFieldError::new(
                path,
                format!(
                    "`{}` contains itself or tables nested more than {MAX_TABLE_DEPTH} deep",
                    display_path(path)
                ),
            )),
            Said::Table(table) => self.read_table(path, table, depth),
            other => Err(RecipeFieldError::new(
                path,
                format!(
                    "`{}` is a {}: a recipe may contain texts, numbers, booleans and tables of them",
                    display_path(path),
                    other.type_name()
                ),
            )),
        }
    }

    fn read_table(&mut self, path: &str, table: &Table, depth: usize) -> Result<Value, RecipeFieldError> {
        let length = table.raw_len();
        if length == 0 {
            let pairs = self.read_pairs(path, table)?;
            let members = pairs.into_iter().map(|(key, value)| {
                let value = self.read_value(&child_path(path, &key), &value, depth + 1)?;
                Ok((key, value))
            });
            return members.collect::<Result<Map<_, _>, _>>().map(Value::Object);
        }
        let mut members = Vec::new();
        for number in 1..=length {
            let value = table.raw_get::<Said>(number).map_err(|_| {
                RecipeFieldError::new(path, format!("`{}` cannot be read", display_path(path)))
            })?;
            members.push(self.read_value(&child_path(path, &number.to_string()), &value, depth + 1)?);
        }
        // Stop after one member too many: a table that is both a list and a map is invalid.
        if table.pairs::<Said, Said>().take(length + 1).count() != length {
            return Err(RecipeFieldError::new(
                path,
                format!(
                    "`{}` is a list and has other keys too: make it a list or a table with keys",
                    display_path(path)
                ),
            ));
        }
        Ok(Value::Array(members))
    }

    fn count_value(&mut self, path: &str) -> Result<(), RecipeFieldError> {
        let Some(left) = self.values.checked_sub(1) else {
            return Err(RecipeFieldError::new(
                path,
                format!("the recipe contains more than {MAX_VALUES} values"),
            ));
        };
        self.values = left;
        Ok(())
    }

    fn read_text(&mut self, path: &str, bytes: &[u8]) -> Result<String, RecipeFieldError> {
        let Some(left) = self.bytes.checked_sub(bytes.len()) else {
            return Err(RecipeFieldError::new(
                path,
                format!("the texts of the recipe have more than {MAX_TEXT_BYTES} bytes"),
            ));
        };
        self.bytes = left;
        if bytes.contains(&0) {
            return Err(RecipeFieldError::new(
                path,
                format!("`{}` contains a NUL, which is not allowed", display_path(path)),
            ));
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| {
            RecipeFieldError::new(path, format!("`{}` contains a text that is not UTF-8", display_path(path)))
        })
    }
}

fn read_number(path: &str, lua_value: f64) -> Result<Value, RecipeFieldError> {
    if lua_value.fract() == 0.0 && lua_value.abs() <= MAX_SAFE_INTEGER {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        return Ok(Value::from(lua_value as i64));
    }
    Number::from_f64(lua_value).map(Value::Number).ok_or_else(|| {
        RecipeFieldError::new(
            path,
            format!("`{}` is {lua_value}, which is not a valid number", display_path(path)),
        )
    })
}

pub(crate) fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Formats a path for error messages.
pub(crate) fn display_path(path: &str) -> String {
    let mut text: String = path.chars().take(MAX_KEY_CHARS).flat_map(char::escape_debug).collect();
    if path.chars().nth(MAX_KEY_CHARS).is_some() {
        text.push('…');
    }
    if text.is_empty() { "profile".to_owned() } else { text }
}
