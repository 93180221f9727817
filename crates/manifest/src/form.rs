//! Forms: the kinds of values of configuration keys.
//!
//! A form describes its values in words and as JSON Schema, and checks and normalizes a value. Elsewhere: the
//! form of each key (the sections), forms of a single section (there).
//! Invariant: a value that a form accepts fits its schema (`what_is_taken_fits_the_schema`).

use std::collections::BTreeMap;

use minke_record::Reasoning;
use serde_json::{Value, json};

/// Maximum number of entries of a list or map.
pub(crate) const MAX_ENTRIES: usize = 2_000;
/// Maximum size of a text.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 10;

/// Why a value was refused, if there is more to say than the expected form.
pub(crate) type Refused = Option<String>;

/// Calls a function for each path in a value that may be relative.
pub(crate) type Places =
    fn(value: &mut Value, each: &mut dyn FnMut(&mut String) -> Result<(), String>) -> Result<(), String>;

/// A kind of value.
pub(crate) trait Form {
    /// Returns a description that can follow "expected".
    fn word() -> String;
    fn schema() -> Value;
    /// Checks the value and returns its normalized form.
    fn read(value: &Value) -> Result<Value, Refused>;
    /// Calls `each` for paths that may be relative.
    fn places(
        _value: &mut Value,
        _each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        Ok(())
    }
}

/// An integer within a range.
pub(crate) struct WholeForm<const LEAST: u64, const MOST: u64>;
/// Any non-negative integer.
pub(crate) type Count = WholeForm<0, { u64::MAX }>;
/// A positive integer.
pub(crate) type PositiveCount = WholeForm<1, { u64::MAX }>;

impl<const LEAST: u64, const MOST: u64> Form for WholeForm<LEAST, MOST> {
    fn word() -> String {
        match (LEAST, MOST) {
            (0, u64::MAX) => "a non-negative integer".to_owned(),
            (least, u64::MAX) => format!("an integer of at least {least}"),
            (least, most) => format!("an integer from {least} to {most}"),
        }
    }

    fn schema() -> Value {
        let mut schema = json!({ "type": "integer", "minimum": LEAST });
        if MOST != u64::MAX {
            schema["maximum"] = MOST.into();
        }
        schema
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let number = value.as_u64().filter(|number| (LEAST..=MOST).contains(number)).ok_or(None)?;
        Ok(number.into())
    }
}

/// A non-negative number; with `SHARE` at most 1.
pub(crate) struct AmountForm<const SHARE: bool>;

impl<const SHARE: bool> Form for AmountForm<SHARE> {
    fn word() -> String {
        if SHARE { "a number from 0 to 1" } else { "a non-negative number" }.to_owned()
    }

    fn schema() -> Value {
        let mut schema = json!({ "type": "number", "minimum": 0 });
        if SHARE {
            schema["maximum"] = 1.into();
        }
        schema
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0).ok_or(None)?;
        if SHARE && number > 1.0 {
            return Err(None);
        }
        Ok(value.clone())
    }
}

pub(crate) struct FlagForm;

impl Form for FlagForm {
    fn word() -> String {
        "true or false".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "boolean" })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        value.as_bool().map(Value::from).ok_or(None)
    }
}

/// A non-empty text.
pub(crate) struct TextForm;

impl Form for TextForm {
    fn word() -> String {
        "a text".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "string", "minLength": 1 })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let text = value.as_str().ok_or(None)?;
        if text.trim().is_empty() {
            return Err(Some("it is empty".to_owned()));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(Some(format!("it is longer than {MAX_TEXT_BYTES} bytes")));
        }
        Ok(value.clone())
    }
}

/// A path that may be relative.
pub(crate) struct PathForm;

impl Form for PathForm {
    fn word() -> String {
        "a path".to_owned()
    }

    fn schema() -> Value {
        TextForm::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        TextForm::read(value)
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let Value::String(place) = value else { return Ok(()) };
        each(place)
    }
}

/// A list.
pub(crate) struct ListForm<F>(std::marker::PhantomData<F>);

impl<F: Form> Form for ListForm<F> {
    fn word() -> String {
        format!("a list, each entry {}", F::word())
    }

    fn schema() -> Value {
        json!({ "type": "array", "items": F::schema(), "maxItems": MAX_ENTRIES })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        // Lua has only tables, so an empty list arrives as an empty table.
        if value.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Value::Array(Vec::new()));
        }
        let entries = value.as_array().ok_or(None)?;
        if entries.len() > MAX_ENTRIES {
            return Err(Some(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let read = entries.iter().zip(1..).map(|(entry, number)| {
            F::read(entry).map_err(|why| match why {
                Some(why) => Some(format!("entry {number}: {why}")),
                None => Some(format!("entry {number} is not {}", F::word())),
            })
        });
        Ok(Value::Array(read.collect::<Result<_, _>>()?))
    }

    fn places(
        value: &mut Value,
        each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        let entries = value.as_array_mut().into_iter().flatten();
        entries.into_iter().try_for_each(|entry| F::places(entry, each))
    }
}

/// A table with names chosen by the user.
pub(crate) struct MapForm<F>(std::marker::PhantomData<F>);

impl<F: Form> Form for MapForm<F> {
    fn word() -> String {
        format!("a table of names, each with {}", F::word())
    }

    fn schema() -> Value {
        json!({ "type": "object", "additionalProperties": F::schema(), "maxProperties": MAX_ENTRIES })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let entries = value.as_object().ok_or(None)?;
        if entries.len() > MAX_ENTRIES {
            return Err(Some(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let read = entries.iter().map(|(name, entry)| match F::read(entry) {
            Ok(entry) => Ok((name.clone(), entry)),
            Err(Some(why)) => Err(Some(format!("`{}`: {why}", name.escape_debug()))),
            Err(None) => Err(Some(format!("`{}` is not {}", name.escape_debug(), F::word()))),
        });
        // Sorted like the maps of the manifest.
        let sorted = read.collect::<Result<BTreeMap<String, Value>, Refused>>()?;
        Ok(Value::Object(sorted.into_iter().collect()))
    }
}

/// Seconds, as a number or as `"30m"`.
pub(crate) struct SecondsForm;

impl SecondsForm {
    const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 60 * 60), ('d', 24 * 60 * 60)];

    fn parse_with_unit(text: &str) -> Option<u64> {
        let mut letters = text.chars();
        let unit = letters.next_back()?;
        let (_, seconds) = SecondsForm::UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
        letters.as_str().parse::<u64>().ok()?.checked_mul(seconds)
    }
}

impl Form for SecondsForm {
    fn word() -> String {
        "a number of seconds, or a text such as \"45s\", \"30m\", \"12h\" or \"7d\"".to_owned()
    }

    fn schema() -> Value {
        json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+[smhd]$" }] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let seconds = value.as_u64().or_else(|| SecondsForm::parse_with_unit(value.as_str()?)).ok_or(None)?;
        Ok(seconds.into())
    }
}

/// Parses seconds: a number, or a text such as `10m`.
pub fn parse_seconds(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| SecondsForm::parse_with_unit(text))
}

/// A table that another crate parses (`llm`).
pub(crate) struct TableForm;

impl Form for TableForm {
    fn word() -> String {
        "a table".to_owned()
    }

    fn schema() -> Value {
        json!({ "type": "object" })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        value.is_object().then(|| value.clone()).ok_or(None)
    }
}

/// The reasoning effort of a model.
pub(crate) struct ReasoningForm;

impl Form for ReasoningForm {
    fn word() -> String {
        "none, minimal, low, medium, high, xhigh, or a number of tokens".to_owned()
    }

    fn schema() -> Value {
        let words = ["none", "minimal", "low", "medium", "high", "xhigh"];
        json!({ "anyOf": [{ "enum": words }, { "type": "integer", "minimum": 0 }] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        typed::<Reasoning>(value).map_err(|_| None)
    }
}

/// Parses a value with a type and returns it as the type serializes it.
pub(crate) fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(
    value: &Value,
) -> Result<Value, Refused> {
    let read: T = serde_json::from_value(value.clone()).map_err(|e| Some(e.to_string()))?;
    serde_json::to_value(read).map_err(|e| Some(e.to_string()))
}

/// One of several words that a type parses.
macro_rules! one_of {
    ($(#[$meta:meta])* $name:ident reads $type:ty: $($word:literal),+) => {
        $(#[$meta])*
        pub(crate) struct $name;

        impl $crate::form::Form for $name {
            fn word() -> String {
                const WORDS: &[&str] = &[$(concat!("`", $word, "`")),+];
                match WORDS {
                    [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
                    words => words.concat(),
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),+] })
            }

            fn read(value: &serde_json::Value) -> Result<serde_json::Value, $crate::form::Refused> {
                match value.as_str() {
                    $(Some($word))|+ => $crate::form::typed::<$type>(value),
                    _ => Err(None),
                }
            }
        }
    };
}

pub(crate) use one_of;

/// A field of a section: whether it is unset and omitted when serialized.
pub(crate) trait Field {
    fn is_absent(&self) -> bool {
        false
    }
}

impl<T> Field for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl Field for u64 {}
impl Field for String {}
impl Field for bool {}
impl Field for Vec<String> {}
impl Field for BTreeMap<String, String> {}
impl Field for BTreeMap<String, u64> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}
