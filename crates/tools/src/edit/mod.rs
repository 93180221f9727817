//! Edit and MultiEdit: replace text in a file.
//!
//! Here: the two tools. Elsewhere: where an edit applies (`matching`, `loose`, `closest`), how a file is changed and what
//! must hold before (`change`, `changer`, `known`).
//! Class verifiable: the hashes in the preview say whether a change happened.
//! Invariant: MultiEdit does all of its edits or none
//! (`multi_edit_is_all_or_nothing_and_each_edit_works_on_the_one_before`).

pub(crate) mod change;
mod changer;
mod closest;
pub(crate) mod known;
mod loose;
mod matching;

use std::path::PathBuf;
use std::sync::Arc;

use minke_files::Files;
use minke_record::ToolSpec;
use minke_tool::{Place, Tool, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{absolute_file, parse};
use crate::text::Form;
use change::{Desk, Make, New, Old};
use changer::Changer;
use matching::Wanted;

/// Read, Write, Edit and MultiEdit over these files. They share what has been read.
pub fn file_tools(files: &Arc<Files>) -> Vec<Arc<dyn Tool>> {
    let desk = Desk { files: Arc::clone(files), known: Arc::default() };
    vec![
        Arc::new(Changer { desk: desk.clone(), spec: edit_spec, checked: checked_edit }),
        Arc::new(Changer { desk: desk.clone(), spec: multi_edit_spec, checked: checked_multi_edit }),
        Arc::new(crate::read::Read(desk.clone())),
        Arc::new(Changer { desk, spec: crate::write::spec, checked: crate::write::checked }),
    ]
}

/// The most edits of one call: more are a new file.
const EDITS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    file_path: String,
    edits: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

impl Step {
    fn check(&self) -> Result<(), String> {
        if self.old_string == self.new_string {
            return Err("`old_string` and `new_string` are the same: nothing would change".to_owned());
        }
        Ok(())
    }
}

/// Edits of one file, in their order.
struct Steps {
    steps: Vec<Step>,
    /// Whether an error should say which.
    numbered: bool,
}

impl Make for Steps {
    const VERB: &'static str = "edit";

    fn suits(&self, kind: &str) -> Result<(), String> {
        Err(format!("it is not text but {kind}; change it with a command"))
    }

    fn make(&self, old: &Old) -> Result<New, String> {
        let (mut text, form, exact) = match old {
            Old::Missing => (String::new(), Form::NEW, true),
            Old::Text(old) => (old.text.clone(), old.form, old.exact),
            Old::Binary(kind) => return Err(self.suits(kind).err().unwrap_or_default()),
        };
        if !exact {
            let why = "it is not written in an encoding that can be written back unchanged; convert it first";
            return Err(why.to_owned());
        }
        let mut remarks = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let missing = matches!(old, Old::Missing) && index == 0;
            let number = if self.numbered {
                format!("edit {} of {}: ", index + 1, self.steps.len())
            } else {
                String::new()
            };
            let (after, remark) = apply(&text, step, missing).map_err(|why| format!("{number}{why}"))?;
            text = after;
            remarks.extend(remark.map(|remark| format!("{number}{remark}")));
        }
        Ok(New { text, form, remarks })
    }
}

/// One step, and what should be said about how it was done.
fn apply(text: &str, step: &Step, missing: bool) -> Result<(String, Option<String>), String> {
    let Step { old_string: old, new_string: new, replace_all } = step;
    if old.is_empty() {
        return if text.is_empty() {
            Ok((new.clone(), None))
        } else {
            Err("`old_string` is empty, which makes a new file, and this one has content: quote what is to be \
                 replaced, or use Write"
                .to_owned())
        };
    }
    if missing {
        return Err(
            "there is no such file; check the path, or leave `old_string` empty to make it".to_owned()
        );
    }
    let applied = matching::apply(text, Wanted { old, new, all: replace_all.unwrap_or_default() })?;
    let remark = if applied.loosely {
        let how = "`old_string` matched only without regard to white space; `new_string` was indented like the place";
        Some(how.to_owned())
    } else {
        (applied.places > 1).then(|| format!("{} places were replaced", applied.places))
    };
    Ok((applied.text, remark))
}

fn checked_edit(arguments: &str, place: &Place) -> Result<(PathBuf, Steps), ToolError> {
    let One { file_path, old_string, new_string, replace_all } = parse("Edit", arguments)?;
    let path = absolute_file("file_path", &file_path, &place.cwd)?;
    let step = Step { old_string, new_string, replace_all };
    step.check().map_err(ToolError::Invalid)?;
    Ok((path, Steps { steps: vec![step], numbered: false }))
}

fn checked_multi_edit(arguments: &str, place: &Place) -> Result<(PathBuf, Steps), ToolError> {
    let Many { file_path, edits } = parse("MultiEdit", arguments)?;
    let path = absolute_file("file_path", &file_path, &place.cwd)?;
    if edits.is_empty() || edits.len() > EDITS {
        let what = format!("`edits` has {} edits: give 1 to {EDITS}", edits.len());
        return Err(ToolError::Invalid(what));
    }
    for (index, step) in edits.iter().enumerate() {
        step.check().map_err(|why| ToolError::Invalid(format!("edit {}: {why}", index + 1)))?;
    }
    Ok((path, Steps { steps: edits, numbered: true }))
}

fn edit_properties() -> Value {
    json!({
        "old_string": {
            "type": "string",
            "description": "The text to replace, as it is in the file, without Read's line numbers. It must be \
                            unique in the file unless replace_all is set. Empty: makes a new file.",
        },
        "new_string": { "type": "string", "description": "What comes in its place." },
        "replace_all": { "type": "boolean", "description": "Replace every occurrence. Default: false." },
    })
}

fn file_path() -> Value {
    json!({ "type": "string", "description": "The file: absolute, or relative to the working directory." })
}

fn edit_spec() -> ToolSpec {
    let mut properties = json!({ "file_path": file_path() });
    merge(&mut properties, edit_properties());
    ToolSpec {
        name: "Edit".into(),
        description:
            "Replaces text in a file and shows the diff. Read the file first; after somebody else has \
                      changed it, read it again. Line ends and encoding are kept."
                .into(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": ["file_path", "old_string", "new_string"],
            "additionalProperties": false,
        }),
    }
}

fn multi_edit_spec() -> ToolSpec {
    ToolSpec {
        name: "MultiEdit".into(),
        description:
            "Makes several edits of one file, in order, each on what the one before it left; all of \
                      them or none. Otherwise like Edit."
                .into(),
        schema: json!({
            "type": "object",
            "properties": {
                "file_path": file_path(),
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": EDITS,
                    "items": {
                        "type": "object",
                        "properties": edit_properties(),
                        "required": ["old_string", "new_string"],
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["file_path", "edits"],
            "additionalProperties": false,
        }),
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
