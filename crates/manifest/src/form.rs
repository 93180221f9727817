//! Forms: the kinds of values that keys have.
//!
//! Here: for each kind what it is in words, how a value is checked and brought into the form that is kept, and its JSON
//! Schema. Elsewhere: which key has which form (the sections), forms that only one section knows (there).
//! Invariant: what a form takes, its schema takes (`what_is_taken_fits_the_schema`).

use std::collections::BTreeMap;

use minke_record::Reasoning;
use serde_json::{Value, json};

/// The most entries of a list or a map.
pub(crate) const ENTRIES_MOST: usize = 2_000;
/// The longest text of a key, in bytes.
pub(crate) const TEXT_MOST: usize = 64 << 10;

/// Why a value was not taken, where more is to be said than what would be.
pub(crate) type Refused = Option<String>;

/// Shows each path in a value to whoever knows against what it is relative.
pub(crate) type Places =
    fn(value: &mut Value, each: &mut dyn FnMut(&mut String) -> Result<(), String>) -> Result<(), String>;

/// A kind of value.
pub(crate) trait Form {
    /// What it is, so that "give …" can stand before it.
    fn word() -> String;
    fn schema() -> Value;
    /// The value as it is kept.
    fn read(value: &Value) -> Result<Value, Refused>;
    /// Paths in it that may be relative.
    fn places(
        _value: &mut Value,
        _each: &mut dyn FnMut(&mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        Ok(())
    }
}

/// A whole number between two.
pub(crate) struct Whole<const LEAST: u64, const MOST: u64>;
/// Any whole number that is not below 0.
pub(crate) type Count = Whole<0, { u64::MAX }>;
/// At least one.
pub(crate) type Some1 = Whole<1, { u64::MAX }>;

impl<const LEAST: u64, const MOST: u64> Form for Whole<LEAST, MOST> {
    fn word() -> String {
        match (LEAST, MOST) {
            (0, u64::MAX) => "a whole number that is not below 0".to_owned(),
            (least, u64::MAX) => format!("a whole number of at least {least}"),
            (least, most) => format!("a whole number from {least} to {most}"),
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

/// A number of at least 0; with `SHARE` at most 1.
pub(crate) struct Amount<const SHARE: bool>;

impl<const SHARE: bool> Form for Amount<SHARE> {
    fn word() -> String {
        if SHARE { "a number from 0 to 1" } else { "a number that is not below 0" }.to_owned()
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

pub(crate) struct Flag;

impl Form for Flag {
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

/// A text of one line or more; not an empty one.
pub(crate) struct Text;

impl Form for Text {
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
        if text.len() > TEXT_MOST {
            return Err(Some(format!("it is longer than {TEXT_MOST} bytes")));
        }
        Ok(value.clone())
    }
}

/// A path, which may be relative.
pub(crate) struct Place;

impl Form for Place {
    fn word() -> String {
        "a path".to_owned()
    }

    fn schema() -> Value {
        Text::schema()
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        Text::read(value)
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
pub(crate) struct List<F>(std::marker::PhantomData<F>);

impl<F: Form> Form for List<F> {
    fn word() -> String {
        format!("a list, each entry {}", F::word())
    }

    fn schema() -> Value {
        json!({ "type": "array", "items": F::schema(), "maxItems": ENTRIES_MOST })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        // Profiles have one kind of table, so an empty list is an empty table there.
        if value.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Value::Array(Vec::new()));
        }
        let entries = value.as_array().ok_or(None)?;
        if entries.len() > ENTRIES_MOST {
            return Err(Some(format!("it has more than {ENTRIES_MOST} entries")));
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

/// A table whose names are the person's own.
pub(crate) struct Map<F>(std::marker::PhantomData<F>);

impl<F: Form> Form for Map<F> {
    fn word() -> String {
        format!("a table of names, each with {}", F::word())
    }

    fn schema() -> Value {
        json!({ "type": "object", "additionalProperties": F::schema(), "maxProperties": ENTRIES_MOST })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let entries = value.as_object().ok_or(None)?;
        if entries.len() > ENTRIES_MOST {
            return Err(Some(format!("it has more than {ENTRIES_MOST} entries")));
        }
        let read = entries.iter().map(|(name, entry)| match F::read(entry) {
            Ok(entry) => Ok((name.clone(), entry)),
            Err(Some(why)) => Err(Some(format!("`{}`: {why}", name.escape_debug()))),
            Err(None) => Err(Some(format!("`{}` is not {}", name.escape_debug(), F::word()))),
        });
        // Sorted, as the maps of the manifest are.
        let sorted = read.collect::<Result<BTreeMap<String, Value>, Refused>>()?;
        Ok(Value::Object(sorted.into_iter().collect()))
    }
}

/// Seconds, as a number or as `"30m"`.
pub(crate) struct Seconds;

impl Seconds {
    const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 60 * 60), ('d', 24 * 60 * 60)];

    fn of(text: &str) -> Option<u64> {
        let mut letters = text.chars();
        let unit = letters.next_back()?;
        let (_, seconds) = Seconds::UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
        letters.as_str().parse::<u64>().ok()?.checked_mul(seconds)
    }
}

impl Form for Seconds {
    fn word() -> String {
        "a number of seconds, or a text such as \"45s\", \"30m\", \"12h\" or \"7d\"".to_owned()
    }

    fn schema() -> Value {
        json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9]+[smhd]$" }] })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let seconds = value.as_u64().or_else(|| Seconds::of(value.as_str()?)).ok_or(None)?;
        Ok(seconds.into())
    }
}

/// Seconds from what a person wrote: a number, or a text such as `10m`.
pub fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| Seconds::of(text))
}

/// A table that somebody else reads (`llm`).
pub(crate) struct Table;

impl Form for Table {
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

/// How much a model is to think.
pub(crate) struct Thinking;

impl Form for Thinking {
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

/// A value that a type reads, in the form that the type writes.
pub(crate) fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(
    value: &Value,
) -> Result<Value, Refused> {
    let read: T = serde_json::from_value(value.clone()).map_err(|e| Some(e.to_string()))?;
    serde_json::to_value(read).map_err(|e| Some(e.to_string()))
}

/// One of some words, which a type knows.
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

/// A field of a section: whether it says nothing, and is left out of what is written.
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
