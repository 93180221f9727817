//! The opening view: what there is before a session is attached. Somebody new chooses what to ask first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::App;
use super::list::{Means, Row, model_row, thread_rows};
use super::words::one_line;
use crate::outside::ModelLine;
use crate::paint::Role;

/// Threads and pods that are shown.
const ROWS: usize = 12;

impl App {
    /// Whether it is known that nobody could be asked.
    pub(super) fn lacks_model(&self) -> bool {
        self.first_run.as_ref().is_some_and(|found| found.model.is_none()) && self.model.is_none()
    }

    /// What can be chosen here: models for somebody new, else pods that live and threads of this directory.
    fn opening_list(&self) -> Vec<Row> {
        if let Some(found) = self.first_run.as_ref().filter(|_| self.lacks_model()) {
            let tour = Row {
                text: "minke tour".to_owned(),
                aside: "see what it is about: no key, no network".to_owned(),
                means: Means::Tour,
                urgent: false,
            };
            // What needs nothing else comes after what was set up, and before what is still to be set up.
            let demo = |model: &&ModelLine| model.reference.starts_with("scripted:");
            let mut rows: Vec<Row> =
                found.ready.iter().filter(|model| !demo(model)).take(ROWS).map(model_row).collect();
            rows.extend(self.local.iter().take(ROWS).map(model_row));
            rows.extend(found.ready.iter().filter(demo).map(model_row));
            rows.push(tour);
            rows.extend(found.missing.iter().map(model_row));
            return rows;
        }
        let living = self.pods.iter().filter(|pod| pod.live);
        let pods = living.clone().map(|pod| Row {
            text: format!("{:<16}  {}", pod.name, one_line(&format!("{} {}", pod.state, pod.activity))),
            aside: if pod.asks > 0 { format!("asks {}", pod.asks) } else { "lives".to_owned() },
            means: Means::Session(pod.session),
            urgent: pod.asks > 0,
        });
        let mut rows: Vec<Row> = pods.collect();
        rows.sort_by_key(|row| !row.urgent);
        let sleeping =
            self.threads.iter().filter(|thread| !living.clone().any(|pod| pod.session == thread.session));
        let sleeping: Vec<_> = sleeping.cloned().collect();
        rows.extend(thread_rows(&sleeping, self.now));
        rows.truncate(ROWS);
        rows
    }

    /// Rows come and go: the chosen one stays chosen.
    pub(super) fn keep_chosen(&mut self, change: impl FnOnce(&mut App)) {
        let means = self.opening_list().get(self.chosen).map(|row| row.means.clone());
        change(self);
        let at = self.opening_list().iter().position(|row| Some(&row.means) == means.as_ref());
        self.chosen = at.unwrap_or(self.chosen);
    }

    pub(super) fn opening_rows(&self) -> usize {
        self.opening_list().len()
    }

    pub(super) fn choose_opening(&mut self) {
        let rows = self.opening_list();
        if let Some(row) = rows.get(self.chosen.min(rows.len().saturating_sub(1))) {
            self.do_meant(row.means.clone());
        }
    }

    pub(super) fn draw_opening(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.opening_list();
        self.chosen = self.chosen.min(rows.len().saturating_sub(1));
        let heading = self.theme.style(Role::Heading);
        let dim = self.theme.style(Role::Dim);
        let newcomer = self.lacks_model();
        let mut lines = vec![Line::styled("Minke", heading)];
        let says = match (newcomer, area.width >= 70) {
            (true, true) => "Which model is to be asked? Enter chooses; it is remembered.",
            (true, false) => "Which model is to be asked?",
            (false, true) => "Say what is to be done, or choose a pod or a thread to go on with.",
            (false, false) => "Say what is to be done, or choose.",
        };
        lines.push(Line::styled(says, dim));
        lines.push(Line::default());
        let many = u16::try_from(lines.len()).unwrap_or(0).min(area.height);
        for (y, line) in (area.y..area.y + many).zip(lines) {
            frame.render_widget(line, Rect { y, height: 1, ..area });
        }
        let rest = Rect { y: area.y + many, height: area.height - many, ..area };
        let rows: Vec<&Row> = rows.iter().collect();
        let at = self.composer.is_empty().then_some(self.chosen);
        self.draw_rows(&rows, at, frame, rest);
    }
}
