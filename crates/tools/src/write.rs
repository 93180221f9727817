//! Write: writes the whole content of a new or existing file.
//!
//! Class verifiable. An existing file keeps its mode, owner, byte order mark, encoding and, if the new text
//! has only LF, its line endings (`a_replaced_file_keeps_what_the_text_does_not_say`).

use std::path::PathBuf;

use minke_record::ToolSpec;
use minke_tool::{ToolContext, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute_file_path, parse_arguments};
use crate::edit::file_change::{FileChange, NewContent, OldContent};
use crate::text::{LineEnding, TextCoding, TextForm};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    file_path: String,
    content: String,
}

pub(crate) struct WriteContent(String);

impl FileChange for WriteContent {
    const VERB: &'static str = "write";

    fn new_content(&self, old: &OldContent) -> Result<NewContent, String> {
        let WriteContent(content) = self;
        let mut form = match old {
            // An empty file has no encoding or line endings to keep.
            OldContent::Text(old) if !old.text.is_empty() || old.form.has_bom => old.form,
            OldContent::Text(_) | OldContent::Missing | OldContent::Binary(_) => TextForm::NEW,
        };
        if form.coding == TextCoding::Utf8AndBytes {
            form.coding = TextCoding::Utf8;
        }
        let text = match content.strip_prefix('\u{feff}') {
            Some(rest) => {
                form.has_bom = true;
                rest
            }
            None => content.as_str(),
        };
        let text = match form.ending {
            LineEnding::Lf => text.to_owned(),
            _ if text.contains('\r') => text.to_owned(),
            ending => text.replace('\n', ending.as_str()),
        };
        Ok(NewContent { text, form, remarks: Vec::new() })
    }
}

pub(crate) fn parse_write(
    arguments: &str,
    place: &ToolContext,
) -> Result<(PathBuf, WriteContent), ToolError> {
    let WriteArguments { file_path, content } = parse_arguments("Write", arguments)?;
    Ok((absolute_file_path("file_path", &file_path, &place.cwd)?, WriteContent(content)))
}

pub(crate) fn write_spec() -> ToolSpec {
    ToolSpec {
        name: "Write".into(),
        description:
            "Writes a whole file; creates it and its directories if they are missing. An existing file \
                      must have been read before; to change a part of a file, use Edit."
                .into(),
        schema: json!({
            "type": "object",
            "properties": {
                "file_path": {
                    "type": "string",
                    "description": "The file: absolute, or relative to the working directory.",
                },
                "content": { "type": "string", "description": "The whole content of the file." },
            },
            "required": ["file_path", "content"],
            "additionalProperties": false,
        }),
    }
}
