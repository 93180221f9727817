//! Write: a file's whole content, new or in the place of the old.
//!
//! Class verifiable. An existing file keeps mode, owner, byte order mark, encoding and, if the new text has only LF, its
//! line ends (`a_replaced_file_keeps_what_the_text_does_not_say`).

use std::path::PathBuf;

use minke_record::ToolSpec;
use minke_tool::{Place, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute_file, parse};
use crate::edit::change::{Make, New, Old};
use crate::text::{Coding, Ending, Form};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    file_path: String,
    content: String,
}

pub(crate) struct Content(String);

impl Make for Content {
    const VERB: &'static str = "write";

    fn make(&self, old: &Old) -> Result<New, String> {
        let Content(content) = self;
        let mut form = match old {
            // An empty file has no form to keep.
            Old::Text(old) if !old.text.is_empty() || old.form.mark => old.form,
            Old::Text(_) | Old::Missing | Old::Binary(_) => Form::NEW,
        };
        if form.coding == Coding::Utf8AndBytes {
            form.coding = Coding::Utf8;
        }
        let text = match content.strip_prefix('\u{feff}') {
            Some(rest) => {
                form.mark = true;
                rest
            }
            None => content.as_str(),
        };
        let text = match form.ending {
            Ending::Lf => text.to_owned(),
            _ if text.contains('\r') => text.to_owned(),
            ending => text.replace('\n', ending.as_str()),
        };
        Ok(New { text, form, remarks: Vec::new() })
    }
}

pub(crate) fn checked(arguments: &str, place: &Place) -> Result<(PathBuf, Content), ToolError> {
    let Arguments { file_path, content } = parse("Write", arguments)?;
    Ok((absolute_file("file_path", &file_path, &place.cwd)?, Content(content)))
}

pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: "Write".into(),
        description:
            "Writes a whole file, making it and its directories if they are missing. An existing file \
                      must have been read before; to change a part of one, use Edit."
                .into(),
        schema: json!({
            "type": "object",
            "properties": {
                "file_path": {
                    "type": "string",
                    "description": "The file: absolute, or relative to the working directory.",
                },
                "content": { "type": "string", "description": "All that the file is to hold." },
            },
            "required": ["file_path", "content"],
            "additionalProperties": false,
        }),
    }
}
