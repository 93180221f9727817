//! Fields: the allowed content of a recipe.
//!
//! Here: the allowed fields, and the rejection of hidden permissions: scope rules, absolute paths, pod names,
//! secrets. Elsewhere: the manifest keys and their types (`manifest`). Invariant: a profile only computes and
//! grants nothing (`a_recipe_holds_no_authority`).

use serde_json::Value;

use crate::recipe::is_slug;
use crate::table_reader::{RecipeFieldError, child_path, display_path};

/// All fields of a profile, in the order of the documentation.
pub const PROFILE_FIELDS: [&str; 15] = [
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
/// The longest description in characters. Descriptions appear in a list that a model reads.
const MAX_DESCRIPTION_CHARS: usize = 300;
const MAX_SELECTOR_CHARS: usize = 128;
/// Keys whose texts are words or patterns, not paths: a leading slash has no meaning.
const NON_PATH_KEYS: [&str; 5] =
    ["worker.instruction", "worker.language", "worker.stop_sequences", "permissions.rule", "model.base_url"];
/// Keys whose value would be a secret.
const SECRET_KEYS: [&str; 8] =
    ["api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer"];
/// Prefixes of the last word in the name of a secret variable.
const SECRET_VARIABLES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"];

/// Returns an error if the field is unknown.
pub(crate) fn check_field_name(field: &str) -> Result<(), RecipeFieldError> {
    if PROFILE_FIELDS.contains(&field) {
        return Ok(());
    }
    let reason = match field {
        "pod" => "a profile cannot set the name and limits of a pod".to_owned(),
        "hooks" | "host" | "tui" | "mandate" => {
            format!("`{field}` belongs to the user's own settings")
        }
        "manifest" | "config" => {
            "a profile contains the sections themselves, not a whole manifest".to_owned()
        }
        _ => match minke_text::suggest_name(field, PROFILE_FIELDS) {
            Some(suggestion) => format!("the nearest field is `{suggestion}`"),
            None => format!("there are {}", PROFILE_FIELDS.join(", ")),
        },
    };
    Err(RecipeFieldError::new(
        field,
        format!("`{}` is not a field of a profile: {reason}", display_path(field)),
    ))
}

pub(crate) fn parse_slug(value: &Value) -> Result<String, RecipeFieldError> {
    match value.as_str() {
        Some(slug) if is_slug(slug) => Ok(slug.to_owned()),
        _ => Err(RecipeFieldError::new(
            "slug",
            "`slug` must be 1 to 64 of a-z, 0-9 and `-`, with no `-` first, last or twice in a row",
        )),
    }
}

pub(crate) fn parse_description(value: &Value) -> Result<String, RecipeFieldError> {
    let fits = |text: &&str| {
        !text.trim().is_empty()
            && text.chars().count() <= MAX_DESCRIPTION_CHARS
            && !text.contains(char::is_control)
    };
    value.as_str().filter(fits).map(|text| text.trim().to_owned()).ok_or_else(|| {
        RecipeFieldError::new(
            "description",
            format!("`description` must be one line of at most {MAX_DESCRIPTION_CHARS} characters"),
        )
    })
}

pub(crate) fn parse_extends(value: &Value) -> Result<String, RecipeFieldError> {
    let fits = |text: &&str| {
        !text.trim().is_empty()
            && text.chars().count() <= MAX_SELECTOR_CHARS
            && !text.contains(|c: char| c.is_control() || c == '/')
    };
    value.as_str().filter(fits).map(|text| text.trim().to_owned()).ok_or_else(|| {
        RecipeFieldError::new(
            "extends",
            "`extends` names a registered profile, for example \"builtin:coder\"; it is never a path",
        )
    })
}

/// Checks everything below one field.
pub(crate) fn check_value(path: &str, value: &Value) -> Result<(), RecipeFieldError> {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let here = child_path(path, key);
                check_secret(path, &here, key, member)?;
                check_value(&here, member)?;
            }
            Ok(())
        }
        Value::Array(members) => members
            .iter()
            .zip(1..)
            .try_for_each(|(member, number)| check_value(&child_path(path, &number.to_string()), member)),
        Value::String(text) => check_path(path, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_path(path: &str, text: &str) -> Result<(), RecipeFieldError> {
    let free = NON_PATH_KEYS
        .iter()
        .any(|free| path.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
    let begin = text.trim_start();
    if free || !(begin.starts_with('/') || begin.starts_with('~')) {
        return Ok(());
    }
    Err(RecipeFieldError::new(
        path,
        format!(
            "`{}` is an absolute path: a profile must name files relative to its own directory",
            display_path(path)
        ),
    ))
}

fn check_secret(parent: &str, path: &str, key: &str, member: &Value) -> Result<(), RecipeFieldError> {
    let variable = parent == "sandbox.env.set"
        && key
            .rsplit('_')
            .next()
            .is_some_and(|word| SECRET_VARIABLES.contains(&word.to_ascii_uppercase().as_str()));
    let held = member.is_string() && SECRET_KEYS.contains(&key.to_ascii_lowercase().as_str());
    let auth = path == "model.auth" && member.as_str().is_some_and(|text| text != "none");
    if !variable && !held && !auth {
        return Ok(());
    }
    Err(RecipeFieldError::new(
        path,
        format!(
            "`{}` would hold a secret: a profile says at most where one is, for example model.auth = {{ api_key = {{ env \
             = \"NAME\" }} }}, and sandbox.env.pass passes a variable on",
            display_path(path)
        ),
    ))
}
