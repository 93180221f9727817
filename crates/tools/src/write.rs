//! Write: a file's whole content, new or in the place of the old.
//!
//! Class verifiable. An existing file keeps mode, owner, byte order mark, encoding and, if the new text has only LF, its
//! line ends (`a_replaced_file_keeps_what_the_text_does_not_say`).

use std::path::PathBuf;

use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Previewed, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::json;

use crate::arguments::{absolute, parse};
use crate::edit::change::{Desk, Make, New, Old, writes};
use crate::text::{Coding, Ending, Form};

pub(crate) struct Write(pub(crate) Desk);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    file_path: String,
    content: String,
}

struct Content(String);

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

fn checked(arguments: &str, place: &Place) -> Result<(PathBuf, Content), ToolError> {
    let Arguments { file_path, content } = parse("Write", arguments)?;
    Ok((absolute("file_path", &file_path, &place.cwd)?, Content(content)))
}

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
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

    fn class(&self) -> Class {
        Class::Verifiable
    }

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        checked(arguments, place).map(|(path, _)| writes(&path))
    }

    fn preview(
        &self,
        arguments: &str,
        _action: &Action,
        place: &Place,
    ) -> Result<Option<Previewed>, ToolError> {
        let (path, content) = checked(arguments, place)?;
        self.0.preview(&path, &content)
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        match checked(arguments, &call.place) {
            Ok((path, content)) => self.0.run(path, content),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}
