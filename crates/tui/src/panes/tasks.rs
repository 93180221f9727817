//! Tasks: the agent's plan, and what it goes on for.

use minke_record::TaskStatus;
use minke_view::{Standing, TaskRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::sheet::{self, Sheet};
use crate::paint::{Before, Break, Clean, Piece, Role, Theme, wrap};

/// How far the list is scrolled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tasks {
    top: usize,
}

impl Tasks {
    pub fn by(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines);
    }

    /// Draws the tasks that a session's standing tells.
    pub fn draw(&mut self, buf: &mut Buffer, area: Rect, standing: &Standing, theme: &Theme) {
        let tasks = &standing.tasks;
        let done = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let aside = if tasks.is_empty() { String::new() } else { format!("{done} of {} done", tasks.len()) };
        let sheet = Sheet { title: "Tasks", aside, theme };
        let area = sheet.begin(buf, area);
        let mut lines = Vec::new();
        if let Some(goal) = &standing.goal {
            lines.extend(labelled("goal: ", goal, area.width, theme));
        }
        if let Some(progress) = &standing.progress {
            lines.extend(labelled("progress: ", progress, area.width, theme));
        }
        if tasks.is_empty() && lines.is_empty() {
            return sheet.nothing(buf, area, "the agent has written down no tasks");
        }
        if !lines.is_empty() && !tasks.is_empty() {
            lines.push(Line::default());
        }
        for task in tasks {
            lines.extend(row(task, area.width, theme));
        }
        self.top = self.top.min(lines.len().saturating_sub(area.height.into()));
        sheet::lines(buf, area, &lines, self.top);
    }
}

fn labelled(label: &'static str, text: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let before = Before { first: vec![Piece::own(label, theme.style(Role::Dim))], rest: Vec::new() };
    wrap(&[Piece::new(Clean::line(text), theme.style(Role::Accent))], width, &before, Break::Words)
}

fn row(task: &TaskRow, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, word, role) = match &task.status {
        TaskStatus::Completed => ("[x] ", "done: ", Role::Dim),
        TaskStatus::InProgress => ("[>] ", "under way: ", Role::Accent),
        TaskStatus::Pending => ("[ ] ", "to do: ", Role::Text),
        TaskStatus::Deleted | TaskStatus::Other(_) => ("[?] ", "unknown: ", Role::Dim),
    };
    let mark = if theme.plain { word } else { mark };
    let style = theme.style(role);
    let before = Before { first: vec![Piece::own(mark, style)], rest: vec![Piece::own("    ", style)] };
    wrap(&[Piece::new(Clean::line(&task.subject), style)], width, &before, Break::Words)
}
