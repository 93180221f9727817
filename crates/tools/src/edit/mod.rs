//! Edit and MultiEdit: replace text in a file.
//!
//! This module has the two tools. Submodules: finding the place of an edit (`replacement`, `loose_match`,
//! `closest`), changing a file and checking the preconditions (`file_change`, `change_tool`, `seen_files`).
//! Class verifiable: the hashes in the preview tell whether a change was applied.
//! Invariant: MultiEdit applies all of its edits or none
//! (`multi_edit_is_all_or_nothing_and_each_edit_works_on_the_one_before`).

mod change_tool;
mod closest;
pub(crate) mod file_change;
mod loose_match;
mod replacement;
pub(crate) mod seen_files;

use std::path::PathBuf;
use std::sync::Arc;

use minke_files::ScopedFiles;
use minke_record::ToolSpec;
use minke_tool::{Tool, ToolContext, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{absolute_file_path, parse_arguments};
use crate::text::TextForm;
use change_tool::FileChangeTool;
use file_change::{FileChange, FileEditor, NewContent, OldContent};
use replacement::TextReplacement;

/// Creates Read, Write, Edit and MultiEdit over these files. They share the record of read files.
pub fn file_tools(files: &Arc<ScopedFiles>) -> Vec<Arc<dyn Tool>> {
    let editor = FileEditor { files: Arc::clone(files), seen: Arc::default() };
    vec![
        Arc::new(FileChangeTool { editor: editor.clone(), spec: edit_spec, parse: parse_edit }),
        Arc::new(FileChangeTool { editor: editor.clone(), spec: multi_edit_spec, parse: parse_multi_edit }),
        Arc::new(crate::read::ReadTool(editor.clone())),
        Arc::new(FileChangeTool { editor, spec: crate::write::write_spec, parse: crate::write::parse_write }),
    ]
}

/// The maximum number of edits of one call.
const MAX_EDITS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MultiEditArguments {
    file_path: String,
    edits: Vec<EditStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditStep {
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: Option<bool>,
}

impl EditStep {
    fn check(&self) -> Result<(), String> {
        if self.old_string == self.new_string {
            return Err("`old_string` and `new_string` are the same: nothing would change".to_owned());
        }
        Ok(())
    }
}

/// The edits of one file, in order.
struct EditSteps {
    steps: Vec<EditStep>,
    /// Whether an error contains the number of the edit.
    is_numbered: bool,
}

impl FileChange for EditSteps {
    const VERB: &'static str = "edit";

    fn check_binary(&self, kind: &str) -> Result<(), String> {
        Err(format!("it is not text but {kind}; change it with a command"))
    }

    fn new_content(&self, old: &OldContent) -> Result<NewContent, String> {
        let (mut text, form, exact) = match old {
            OldContent::Missing => (String::new(), TextForm::NEW, true),
            OldContent::Text(old) => (old.text.clone(), old.form, old.is_exact),
            OldContent::Binary(kind) => return Err(self.check_binary(kind).err().unwrap_or_default()),
        };
        if !exact {
            let why = "its encoding cannot be written back unchanged; convert it first";
            return Err(why.to_owned());
        }
        let mut remarks = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let missing = matches!(old, OldContent::Missing) && index == 0;
            let number = if self.is_numbered {
                format!("edit {} of {}: ", index + 1, self.steps.len())
            } else {
                String::new()
            };
            let (after, remark) = apply_step(&text, step, missing).map_err(|why| format!("{number}{why}"))?;
            text = after;
            remarks.extend(remark.map(|remark| format!("{number}{remark}")));
        }
        Ok(NewContent { text, form, remarks })
    }
}

/// Applies one edit and returns a remark about how it was applied.
fn apply_step(text: &str, step: &EditStep, missing: bool) -> Result<(String, Option<String>), String> {
    let EditStep { old_string: old, new_string: new, replace_all } = step;
    if old.is_empty() {
        return if text.is_empty() {
            Ok((new.clone(), None))
        } else {
            Err("`old_string` is empty, which creates a new file, and this file has content: quote the text to replace, or \
                 use Write"
                .to_owned())
        };
    }
    if missing {
        return Err(
            "there is no such file; check the path, or leave `old_string` empty to create it".to_owned()
        );
    }
    let applied = replacement::apply_replacement(
        text,
        TextReplacement { old, new, all: replace_all.unwrap_or_default() },
    )?;
    let remark = if applied.is_loose {
        let remark_text =
            "`old_string` matched only when ignoring white space; `new_string` was indented like the place";
        Some(remark_text.to_owned())
    } else {
        (applied.replaced > 1).then(|| format!("{} places were replaced", applied.replaced))
    };
    Ok((applied.text, remark))
}

fn parse_edit(arguments: &str, place: &ToolContext) -> Result<(PathBuf, EditSteps), ToolError> {
    let EditArguments { file_path, old_string, new_string, replace_all } =
        parse_arguments("Edit", arguments)?;
    let path = absolute_file_path("file_path", &file_path, &place.cwd)?;
    let step = EditStep { old_string, new_string, replace_all };
    step.check().map_err(ToolError::InvalidArguments)?;
    Ok((path, EditSteps { steps: vec![step], is_numbered: false }))
}

fn parse_multi_edit(arguments: &str, place: &ToolContext) -> Result<(PathBuf, EditSteps), ToolError> {
    let MultiEditArguments { file_path, edits } = parse_arguments("MultiEdit", arguments)?;
    let path = absolute_file_path("file_path", &file_path, &place.cwd)?;
    if edits.is_empty() || edits.len() > MAX_EDITS {
        let message = format!("`edits` has {} edits: give 1 to {MAX_EDITS}", edits.len());
        return Err(ToolError::InvalidArguments(message));
    }
    for (index, step) in edits.iter().enumerate() {
        step.check().map_err(|why| ToolError::InvalidArguments(format!("edit {}: {why}", index + 1)))?;
    }
    Ok((path, EditSteps { steps: edits, is_numbered: true }))
}

fn edit_schema() -> Value {
    json!({
        "old_string": {
            "type": "string",
            "description": "The text to replace, as it is in the file, without Read's line numbers. It must be \
                            unique in the file unless replace_all is set. Empty: creates a new file.",
        },
        "new_string": { "type": "string", "description": "The replacement." },
        "replace_all": { "type": "boolean", "description": "Replace every occurrence. Default: false." },
    })
}

fn file_path_schema() -> Value {
    json!({ "type": "string", "description": "The file: absolute, or relative to the working directory." })
}

fn edit_spec() -> ToolSpec {
    let mut properties = json!({ "file_path": file_path_schema() });
    merge_objects(&mut properties, edit_schema());
    ToolSpec {
        name: "Edit".into(),
        description:
            "Replaces text in a file and shows the diff. Read the file first; if another program has \
                      changed it, read it again. Line endings and encoding stay the same."
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
            "Makes several edits of one file, in order, each on the result of the one before; all of \
                      them or none. Otherwise like Edit."
                .into(),
        schema: json!({
            "type": "object",
            "properties": {
                "file_path": file_path_schema(),
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_EDITS,
                    "items": {
                        "type": "object",
                        "properties": edit_schema(),
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

fn merge_objects(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
