//! The opening view: what there is before a session is attached. Somebody new chooses what to ask first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::App;
use super::list::{Means, Row, thread_rows};
use super::words::one_line;
use crate::paint::Role;

/// Threads and pods that are shown.
const ROWS: usize = 12;

impl App {
    /// What can be chosen here: models for somebody new, else pods that live and threads of this directory.
    fn opening_list(&self) -> Vec<Row> {
        if let Some(found) =
            self.first_run.as_ref().filter(|found| found.model.is_none() && self.model.is_none())
        {
            let row = |model: &crate::outside::ModelLine| Row {
                text: model.reference.clone(),
                aside: model.note.clone(),
                means: Means::Model(model.reference.clone()),
                urgent: false,
            };
            return found.ready.iter().map(row).take(ROWS).collect();
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

    pub(super) fn opening_rows(&self) -> usize {
        self.opening_list().len()
    }

    pub(super) fn choose_opening(&mut self) {
        let rows = self.opening_list();
        match rows.get(self.chosen.min(rows.len().saturating_sub(1))).map(|row| row.means.clone()) {
            Some(Means::Session(session)) => self.join(session),
            Some(Means::Model(reference)) => self.use_model(reference),
            Some(Means::Input(_)) | None => {}
        }
    }

    pub(super) fn draw_opening(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.opening_list();
        self.chosen = self.chosen.min(rows.len().saturating_sub(1));
        let heading = self.theme.style(Role::Heading);
        let dim = self.theme.style(Role::Dim);
        let newcomer =
            self.first_run.as_ref().is_some_and(|found| found.model.is_none()) && self.model.is_none();
        let mut lines = vec![Line::styled("Minke", heading)];
        if newcomer {
            lines.push(Line::styled("Which model is to be asked? Enter chooses; it is remembered.", dim));
            lines.push(Line::styled(
                "`minke login PROVIDER` stores a key; `minke tour` shows what Minke is about.",
                dim,
            ));
        } else {
            lines.push(Line::styled(
                "Say what is to be done, or choose a pod or a thread to go on with.",
                dim,
            ));
        }
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
