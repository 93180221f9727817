//! Fields: what a recipe may hold.
//!
//! Here: the allowed fields, and what would be authority in disguise: rules of a scope, absolute paths, what names a pod,
//! secrets. Elsewhere: whether a key exists and what it takes (`manifest`).
//! Invariant: a profile computes and grants nothing (`a_recipe_holds_no_authority`).

use serde_json::Value;

use crate::reading::{Refused, below, shown};
use crate::recipe::is_slug;

/// All fields of a profile, as the page lists them.
pub const FIELDS: [&str; 15] = [
    "slug",
    "description",
    "extends",
    "model",
    "worker",
    "scope",
    "sandbox",
    "permissions",
    "compaction",
    "budget",
    "session",
    "web",
    "memory",
    "skills",
    "mcp",
];
/// Letters of a description: it stands in a list of many, before a model.
const DESCRIPTION_CHARS: usize = 300;
const SELECTOR_CHARS: usize = 128;
/// Keys whose texts are words or patterns, not places: a slash at their beginning means nothing.
const FREE: [&str; 5] =
    ["worker.instruction", "worker.language", "worker.stop_sequences", "permissions.rule", "model.base_url"];
/// Keys that would hold a secret.
const SECRET_KEYS: [&str; 8] =
    ["api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer"];
/// How the last word of a variable's name begins that holds one.
const SECRET_VARIABLES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"];

/// Whether there is such a field.
pub(crate) fn known(field: &str) -> Result<(), Refused> {
    if FIELDS.contains(&field) {
        return Ok(());
    }
    let reason = match field {
        "pod" => "what a pod is called and its limits are not a profile's to say".to_owned(),
        "hooks" | "host" | "tui" | "mandate" => {
            format!("`{field}` is the person's own and no part of a profile")
        }
        "manifest" | "config" => "a profile gives the sections themselves, not a whole manifest".to_owned(),
        _ => match nearest(field) {
            Some(near) => format!("the nearest field is `{near}`"),
            None => format!("there are {}", FIELDS.join(", ")),
        },
    };
    Err(Refused::at(field, format!("`{}` is no field of a profile: {reason}", shown(field))))
}

fn nearest(field: &str) -> Option<&'static str> {
    let near = |other: &&str| strsim::damerau_levenshtein(other, field);
    FIELDS.into_iter().min_by_key(near).filter(|found| near(found) <= found.len().div_ceil(2))
}

pub(crate) fn slug(value: &Value) -> Result<String, Refused> {
    match value.as_str() {
        Some(slug) if is_slug(slug) => Ok(slug.to_owned()),
        _ => Err(Refused::at(
            "slug",
            "`slug` is 1 to 64 of a-z, 0-9 and `-`, with no `-` first, last or twice in a row",
        )),
    }
}

pub(crate) fn description(value: &Value) -> Result<String, Refused> {
    let fits = |text: &&str| {
        !text.trim().is_empty()
            && text.chars().count() <= DESCRIPTION_CHARS
            && !text.contains(char::is_control)
    };
    value.as_str().filter(fits).map(|text| text.trim().to_owned()).ok_or_else(|| {
        Refused::at(
            "description",
            format!("`description` is one line of text with at most {DESCRIPTION_CHARS} letters"),
        )
    })
}

pub(crate) fn extends(value: &Value) -> Result<String, Refused> {
    let fits = |text: &&str| {
        !text.trim().is_empty()
            && text.chars().count() <= SELECTOR_CHARS
            && !text.contains(|c: char| c.is_control() || c == '/')
    };
    value.as_str().filter(fits).map(|text| text.trim().to_owned()).ok_or_else(|| {
        Refused::at(
            "extends",
            "`extends` names a registered profile, for example \"builtin:coder\"; it is never a path",
        )
    })
}

/// Everything below one field.
pub(crate) fn check(path: &str, value: &Value) -> Result<(), Refused> {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let here = below(path, key);
                secret(path, &here, key, member)?;
                check(&here, member)?;
            }
            Ok(())
        }
        Value::Array(members) => members
            .iter()
            .zip(1..)
            .try_for_each(|(member, number)| check(&below(path, &number.to_string()), member)),
        Value::String(text) => place(path, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn place(path: &str, text: &str) -> Result<(), Refused> {
    let free = FREE
        .iter()
        .any(|free| path.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
    let begin = text.trim_start();
    if free || !(begin.starts_with('/') || begin.starts_with('~')) {
        return Ok(());
    }
    Err(Refused::at(
        path,
        format!(
            "`{}` is an absolute path: a profile is used in many places and names files from its own directory",
            shown(path)
        ),
    ))
}

fn secret(around: &str, path: &str, key: &str, member: &Value) -> Result<(), Refused> {
    let variable = around == "sandbox.env.set"
        && key
            .rsplit('_')
            .next()
            .is_some_and(|word| SECRET_VARIABLES.contains(&word.to_ascii_uppercase().as_str()));
    let held = member.is_string() && SECRET_KEYS.contains(&key.to_ascii_lowercase().as_str());
    let auth = path == "model.auth" && member.as_str().is_some_and(|text| text != "none");
    if !variable && !held && !auth {
        return Ok(());
    }
    Err(Refused::at(
        path,
        format!(
            "`{}` would hold a secret: a profile says at most where one is, for example model.auth = {{ api_key = {{ env \
             = \"NAME\" }} }}, and sandbox.env.pass passes a variable on",
            shown(path)
        ),
    ))
}
