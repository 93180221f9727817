//! The start screen before a session is attached. New users choose a model first.

use minke_record::Millis;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::App;
use super::super::format::to_one_line;
use super::super::views::list::{ListRow, RowAction, model_row, thread_rows};
use crate::app::{ListState, ScreenStyle};
use crate::backend::ModelLine;
use crate::paint::StyleRole;

/// Limit for displayed threads and pods.
const MAX_ROWS: usize = 12;

impl ListState {
    /// Returns whether no model is available.
    pub(in crate::app) fn needs_model(&self) -> bool {
        self.first_run.as_ref().is_some_and(|found| found.model.is_none()) && self.model.is_none()
    }

    /// Returns the rows: models for new users, else running pods and threads of this directory.
    pub(in crate::app) fn start_rows(&self, now: Millis) -> Vec<ListRow> {
        if let Some(found) = self.first_run.as_ref().filter(|_| self.needs_model()) {
            let tour = ListRow {
                text: "minke tour".to_owned(),
                detail: "guided demo: no key, no network".to_owned(),
                action: RowAction::Tour,
                urgent: false,
            };
            // A model without requirements comes after configured ones and before those that need a setup.
            let demo = |model: &&ModelLine| model.reference.starts_with("scripted:");
            let mut rows: Vec<ListRow> = found
                .ready_models
                .iter()
                .filter(|model| !demo(model))
                .take(MAX_ROWS)
                .map(model_row)
                .collect();
            rows.extend(self.local_models.iter().take(MAX_ROWS).map(model_row));
            rows.extend(found.ready_models.iter().filter(demo).map(model_row));
            rows.push(tour);
            rows.extend(found.missing_keys.iter().map(model_row));
            return rows;
        }
        let living = self.pods.iter().filter(|pod| pod.is_live);
        let pods = living.clone().map(|pod| ListRow {
            text: format!("{:<16}  {}", pod.name, to_one_line(&format!("{} {}", pod.state, pod.activity))),
            detail: if pod.asks > 0 { format!("asks {}", pod.asks) } else { "running".to_owned() },
            action: RowAction::Session(pod.session),
            urgent: pod.asks > 0,
        });
        let mut rows: Vec<ListRow> = pods.collect();
        rows.sort_by_key(|row| !row.urgent);
        let sleeping =
            self.threads.iter().filter(|thread| !living.clone().any(|pod| pod.session == thread.session));
        let sleeping: Vec<_> = sleeping.cloned().collect();
        rows.extend(thread_rows(&sleeping, now));
        rows.truncate(MAX_ROWS);
        rows
    }

    /// Changes the rows and preserves the selection.
    pub(in crate::app) fn keep_selection(&mut self, now: Millis, change: impl FnOnce(&mut ListState)) {
        let action = self.start_rows(now).get(self.selected_row).map(|row| row.action.clone());
        change(self);
        let at = self.start_rows(now).iter().position(|row| Some(&row.action) == action.as_ref());
        self.selected_row = at.unwrap_or(self.selected_row);
    }

    pub(in crate::app) fn start_row_count(&self, now: Millis) -> usize {
        self.start_rows(now).len()
    }

    pub(in crate::app) fn draw_start_screen(
        &mut self,
        style: &ScreenStyle,
        now: Millis,
        shows_selection: bool,
        frame: &mut Frame<'_>,
        area: Rect,
    ) {
        let rows = self.start_rows(now);
        self.selected_row = self.selected_row.min(rows.len().saturating_sub(1));
        let heading = style.theme.role_style(StyleRole::Heading);
        let dim = style.theme.role_style(StyleRole::Dim);
        let newcomer = self.needs_model();
        let mut lines = vec![Line::styled("Minke", heading)];
        let says = match (newcomer, area.width >= 70) {
            (true, true) => "Choose a model. Enter selects and saves it.",
            (true, false) => "Choose a model.",
            (false, true) => "Describe a task, or choose a pod or a thread to continue.",
            (false, false) => "Describe a task, or choose.",
        };
        lines.push(Line::styled(says, dim));
        lines.push(Line::default());
        let many = u16::try_from(lines.len()).unwrap_or(0).min(area.height);
        for (y, line) in (area.y..area.y + many).zip(lines) {
            frame.render_widget(line, Rect { y, height: 1, ..area });
        }
        let rest = Rect { y: area.y + many, height: area.height - many, ..area };
        let rows: Vec<&ListRow> = rows.iter().collect();
        let at = shows_selection.then_some(self.selected_row);
        style.draw_rows(&rows, at, frame, rest);
    }
}

impl App {
    pub(in crate::app) fn choose_start_row(&mut self) {
        let rows = self.lists.start_rows(self.output.now);
        if let Some(row) = rows.get(self.lists.selected_row.min(rows.len().saturating_sub(1))) {
            self.run_row_action(row.action.clone());
        }
    }
}
