//! A tool that changes one file: what Write, Edit and MultiEdit have in common.
//!
//! Elsewhere: what each takes and makes of a file (`edit`, `write`), how a file is changed and what must hold before
//! (`change`).

use std::path::PathBuf;

use minke_record::{Action, Class, ToolSpec};
use minke_tool::{Call, Place, Previewed, Running, Tool, ToolError};

use super::change::{Desk, Make, writes};

/// Which file, and what to make of it, from a call's arguments.
pub(crate) type Checked<M> = fn(&str, &Place) -> Result<(PathBuf, M), ToolError>;

pub(crate) struct Changer<M> {
    pub(crate) desk: Desk,
    pub(crate) spec: fn() -> ToolSpec,
    pub(crate) checked: Checked<M>,
}

impl<M: Make> Tool for Changer<M> {
    fn spec(&self) -> ToolSpec {
        (self.spec)()
    }

    fn class(&self) -> Class {
        Class::Verifiable
    }

    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError> {
        (self.checked)(arguments, place).map(|(path, _)| writes(&path))
    }

    fn preview(
        &self,
        arguments: &str,
        _action: &Action,
        place: &Place,
    ) -> Result<Option<Previewed>, ToolError> {
        let (path, make) = (self.checked)(arguments, place)?;
        self.desk.preview(&path, &make)
    }

    fn run(&self, arguments: &str, call: &Call) -> Running {
        match (self.checked)(arguments, &call.place) {
            Ok((path, make)) => self.desk.run(path, make),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}
