//! The pane of the agent's tasks and its goal.

use minke_record::TaskStatus;
use minke_view::{SessionStatus, TaskRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::list_frame::{self, ListFrame};
use crate::paint::{Clean, LinePrefix, StyleRole, StyledText, Theme, WrapMode, wrap_line};

/// The pane and its scroll position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TasksPane {
    top_row: usize,
}

impl TasksPane {
    pub fn scroll_by(&mut self, lines: isize) {
        self.top_row = self.top_row.saturating_add_signed(lines);
    }

    /// Draws the tasks of a session.
    pub fn draw_pane(&mut self, buf: &mut Buffer, area: Rect, status: &SessionStatus, theme: &Theme) {
        let tasks = &status.tasks;
        let done = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let detail = if tasks.is_empty() { String::new() } else { format!("{done} of {} done", tasks.len()) };
        let list_frame = ListFrame { title: "Tasks", detail, theme };
        let area = list_frame.draw_title(buf, area);
        let mut lines = Vec::new();
        if let Some(goal) = &status.goal {
            lines.extend(labelled_lines("goal: ", goal, area.width, theme));
        }
        if let Some(progress) = &status.progress {
            lines.extend(labelled_lines("progress: ", progress, area.width, theme));
        }
        if tasks.is_empty() && lines.is_empty() {
            return list_frame.draw_empty(buf, area, "the agent has no tasks");
        }
        if !lines.is_empty() && !tasks.is_empty() {
            lines.push(Line::default());
        }
        for task in tasks {
            lines.extend(task_lines(task, area.width, theme));
        }
        self.top_row = self.top_row.min(lines.len().saturating_sub(area.height.into()));
        list_frame::draw_lines(buf, area, &lines, self.top_row);
    }
}

fn labelled_lines(label: &'static str, text: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let before = LinePrefix {
        first: vec![StyledText::from_static(label, theme.role_style(StyleRole::Dim))],
        rest: Vec::new(),
    };
    wrap_line(
        &[StyledText::new(Clean::from_prose_line(text), theme.role_style(StyleRole::Accent))],
        width,
        &before,
        WrapMode::Words,
    )
}

fn task_lines(task: &TaskRow, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, word, role) = match &task.status {
        TaskStatus::Completed => ("[x] ", "done: ", StyleRole::Dim),
        TaskStatus::InProgress => ("[>] ", "in progress: ", StyleRole::Accent),
        TaskStatus::Pending => ("[ ] ", "pending: ", StyleRole::Text),
        TaskStatus::Deleted | TaskStatus::Other(_) => ("[?] ", "unknown: ", StyleRole::Dim),
    };
    let mark = if theme.plain { word } else { mark };
    let style = theme.role_style(role);
    let before = LinePrefix {
        first: vec![StyledText::from_static(mark, style)],
        rest: vec![StyledText::from_static("    ", style)],
    };
    wrap_line(
        &[StyledText::new(Clean::from_prose_line(&task.subject), style)],
        width,
        &before,
        WrapMode::Words,
    )
}
