//! A tool that changes one file: the common part of Write, Edit and MultiEdit.
//!
//! `edit` and `write` parse the arguments and compute the content; `file_change` applies the change and
//! checks its preconditions.

use std::path::PathBuf;

use minke_record::{Action, Class, ToolSpec};
use minke_tool::{CallPreview, Tool, ToolContext, ToolError, ToolFuture, ToolInvocation};

use super::file_change::{FileChange, FileEditor, write_action};

/// Parses the arguments of a call to a path and a change.
pub(crate) type ParseChange<M> = fn(&str, &ToolContext) -> Result<(PathBuf, M), ToolError>;

pub(crate) struct FileChangeTool<M> {
    pub(crate) editor: FileEditor,
    pub(crate) spec: fn() -> ToolSpec,
    pub(crate) parse: ParseChange<M>,
}

impl<M: FileChange> Tool for FileChangeTool<M> {
    fn spec(&self) -> ToolSpec {
        (self.spec)()
    }

    fn class(&self) -> Class {
        Class::Verifiable
    }

    fn prepare(&self, arguments: &str, place: &ToolContext) -> Result<Action, ToolError> {
        (self.parse)(arguments, place).map(|(path, _)| write_action(&path))
    }

    fn preview(
        &self,
        arguments: &str,
        _action: &Action,
        place: &ToolContext,
    ) -> Result<Option<CallPreview>, ToolError> {
        let (path, change) = (self.parse)(arguments, place)?;
        self.editor.preview(&path, &change)
    }

    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture {
        match (self.parse)(arguments, &call.context) {
            Ok((path, make)) => self.editor.run_change(path, make),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}
