//! Overlays over the conversation: pods, threads, models, earlier inputs, help.

use minke_protocol::{Method, Rewind, RewindTargets};
use minke_record::{Millis, SessionId};
use minke_text::format_age;
use minke_view::ContextUsage;

use super::super::format::to_one_line;
use super::super::views::list::{ListKind, ListOverlay, ListRow, RowAction, model_row};
use super::super::{App, AppEffect, PendingReply};
use crate::app::{AttachedSession, ListState, SessionLink, UiOutput};
use crate::backend::{BackendRequest, ModelLine, SkillLine};
use crate::event::{KeyPress, KeySymbol};
use crate::keys::{Action, KeyContext};
use crate::panes::{
    self, AsksPane, ContextPane, DiffPane, HelpPane, PodsPane, RowSelection, TasksPane, ThreadRow,
    ThreadsPane,
};

/// Rows per page key.
const PAGE_ROWS: isize = 10;

/// An overlay over the conversation.
pub(in crate::app) enum Overlay {
    Pods(PodsPane),
    Threads(ThreadsPane),
    Help(HelpPane),
    Tasks(TasksPane),
    Diff(Box<DiffPane>),
    Context {
        pane: ContextPane,
        context: Box<ContextUsage>,
    },
    Settings(panes::SettingsPane),
    Asks(AsksPane),
    /// Models, skills, earlier inputs, choices for a locked directory.
    List(ListOverlay),
    Text {
        title: String,
        lines: Vec<String>,
        top: usize,
    },
}

impl Overlay {
    /// Moves by rows or lines; negative is up.
    fn scroll_by(&mut self, steps: isize) {
        match self {
            Overlay::Pods(pane) => pane.move_selection(steps),
            Overlay::Threads(pane) => pane.move_selection(steps),
            Overlay::Help(pane) => pane.move_selection(steps),
            Overlay::Tasks(pane) => pane.scroll_by(steps),
            Overlay::Diff(pane) => pane.scroll_by(steps),
            Overlay::Context { pane, .. } => pane.scroll_by(steps),
            Overlay::Settings(pane) => pane.move_selection(steps),
            // Page keys scroll the card if it does not fit.
            Overlay::Asks(pane) if steps.unsigned_abs() > 1 => pane.scroll_card(steps),
            Overlay::Asks(pane) => pane.move_selection(steps),
            Overlay::List(list) => (0..steps.unsigned_abs()).for_each(|_| list.move_selection(steps > 0)),
            // The end is known after drawing.
            Overlay::Text { top, .. } => *top = top.saturating_add_signed(steps),
        }
    }

    /// Returns the selection of overlays with a text filter.
    fn selection_mut(&mut self) -> Option<&mut RowSelection> {
        match self {
            Overlay::Pods(pane) => Some(pane.selection_mut()),
            Overlay::Threads(pane) => Some(pane.selection_mut()),
            Overlay::Help(pane) => Some(pane.selection_mut()),
            Overlay::Tasks(_)
            | Overlay::Diff(_)
            | Overlay::Context { .. }
            | Overlay::Settings(_)
            | Overlay::Asks(_) => None,
            Overlay::List(_) | Overlay::Text { .. } => None,
        }
    }

    /// Returns the session of the selected row.
    pub(in crate::app) fn selected_session_id(&self) -> Option<SessionId> {
        match self {
            Overlay::Pods(pane) => pane.selected_pod().map(|pod| pod.session),
            Overlay::Threads(pane) => pane.selected_thread().map(|thread| thread.session),
            Overlay::Asks(pane) => pane.selected_row().map(|row| row.session),
            _ => None,
        }
    }
}

impl App {
    pub(in crate::app) fn handle_overlay_key(&mut self, key: KeyPress) {
        if self.handle_inbox_key(key) {
            return;
        }
        let action = self.style.keys.action_for(KeyContext::List, key);
        let Some(overlay) = &mut self.lists.overlay else { return };
        match action {
            Some(Action::Up | Action::LineUp) => overlay.scroll_by(-1),
            Some(Action::Down | Action::LineDown) => overlay.scroll_by(1),
            Some(Action::PageUp) => overlay.scroll_by(-PAGE_ROWS),
            Some(Action::PageDown) => overlay.scroll_by(PAGE_ROWS),
            Some(Action::Close) => self.lists.overlay = None,
            Some(Action::Choose) => self.choose_overlay_row(),
            Some(Action::ForkIt) => {
                self.lists.request_for_selected(&mut self.output, self.setup.read_only, BackendRequest::Fork)
            }
            Some(Action::StopIt) => {
                self.lists.request_for_selected(&mut self.output, self.setup.read_only, BackendRequest::Stop)
            }
            Some(Action::PauseIt) => self.lists.pause_or_resume(&mut self.output, self.setup.read_only),
            Some(Action::ArchiveIt) => self.lists.toggle_archived(&mut self.output, self.setup.read_only),
            Some(Action::MessageIt) => self.message_selected(),
            Some(Action::RenameIt) => self.rename_selected(),
            Some(Action::Asks) => self.open_inbox(),
            Some(Action::Pods) => self.lists.open_pods(&mut self.output),
            Some(Action::Threads) => self.lists.open_threads(&mut self.output),
            Some(Action::Tasks) => self.lists.open_tasks(&mut self.output, self.link.session.as_ref()),
            Some(Action::Help) => self.lists.open_help(&self.style, self.setup.settings.vi),
            Some(action @ (Action::Leave | Action::Suspend | Action::Redraw)) => self.run_action(action, key),
            Some(Action::Left) => self.turn_sideways(false),
            Some(Action::Right) => self.turn_sideways(true),
            // Only a space changes the value, and no letter closes the settings accidentally.
            _ if matches!(overlay, Overlay::Settings(_)) => {
                if key.typed_letter() == Some(' ') {
                    self.cycle_setting(true);
                }
            }
            _ => self.lists.handle_filter_key(&mut self.output, key),
        }
    }

    /// Switches to another file or value.
    fn turn_sideways(&mut self, forward: bool) {
        match &mut self.lists.overlay {
            Some(Overlay::Diff(pane)) => pane.move_file(if forward { 1 } else { -1 }),
            Some(Overlay::Settings(_)) => self.cycle_setting(forward),
            _ => {}
        }
    }

    fn choose_overlay_row(&mut self) {
        if let Some(session) = self.lists.overlay.as_ref().and_then(Overlay::selected_session_id) {
            self.lists.overlay = None;
            return self.join_session(session);
        }
        match &mut self.lists.overlay {
            Some(Overlay::Settings(_)) => self.cycle_setting(true),
            Some(Overlay::List(_)) => self.choose_list_row(),
            _ => self.lists.overlay = None,
        }
    }

    fn choose_list_row(&mut self) {
        let Some(Overlay::List(list)) = self.lists.close_overlay() else { return };
        let Some(row) = list.selected_row() else { return };
        match (row.action.clone(), list.kind) {
            (RowAction::Input(seq), ListKind::Rewind { head }) => {
                let rewind = Rewind { to_seq: seq, expected_head: head };
                self.link.send_method(&mut self.output, Method::Rewind(rewind), PendingReply::Rewind);
            }
            (means, _) => self.run_row_action(means),
        }
    }

    /// Performs the action of a row in a list or the start screen.
    pub(in crate::app) fn run_row_action(&mut self, means: RowAction) {
        match means {
            RowAction::Session(session) => self.join_session(session),
            RowAction::Model(reference) => self.set_model(reference),
            RowAction::Skill(name) => {
                self.input.focus = super::super::AppFocus::Composer;
                let draft = self.input.composer.to_draft();
                let text = format!("/{name} {}", draft.text);
                self.input.composer.set_draft(crate::composer::ComposerDraft { text, ..draft });
            }
            RowAction::WorkAt(place) => self.launch_at(place),
            RowAction::Holder(session) => self.join_scope_holder(session),
            RowAction::Tour => {
                let token = self.output.new_token(PendingReply::TextView);
                self.output.effects.push(AppEffect::Tour { token });
            }
            RowAction::SetupHint(how) => self.output.show_error(how),
            RowAction::Input(_) => {}
        }
    }
}

impl ListState {
    /// Adds pasted text to the filter.
    pub(in crate::app) fn add_filter_text(&mut self, output: &mut UiOutput, text: &str) {
        text.chars()
            .filter(|letter| !letter.is_control())
            .for_each(|letter| self.handle_filter_key(output, KeyPress::from_letter(letter)));
    }

    pub(in crate::app) fn handle_filter_key(&mut self, output: &mut UiOutput, key: KeyPress) {
        let Some(overlay) = &mut self.overlay else { return };
        let rubbed = key.symbol == KeySymbol::Backspace;
        if !rubbed && key.typed_letter().is_none() {
            return;
        }
        if let Overlay::List(list) = overlay {
            match key.typed_letter() {
                Some(letter) => list.filter.push(letter),
                None => drop(list.filter.pop()),
            }
            list.selected = 0;
            return;
        }
        if matches!(overlay, Overlay::Asks(_)) {
            return;
        }
        // A text overlay has no filter; a letter closes it.
        let Some(selection) = overlay.selection_mut() else {
            self.overlay = None;
            return;
        };
        match key.typed_letter() {
            Some(letter) => selection.push_filter_char(letter),
            None => selection.pop_filter_char(),
        }
        let words = selection.filter().to_owned();
        if matches!(overlay, Overlay::Threads(_)) {
            output.request_threads(words);
        }
    }

    /// Returns the search words.
    pub(in crate::app) fn search_words(&mut self) -> String {
        let selection = self
            .overlay
            .as_mut()
            .filter(|overlay| matches!(overlay, Overlay::Threads(_)))
            .and_then(Overlay::selection_mut);
        selection.map(|pick| pick.filter().to_owned()).unwrap_or_default()
    }

    pub(in crate::app) fn open_pods(&mut self, output: &mut UiOutput) {
        self.overlay = Some(Overlay::Pods(PodsPane::new(self.pods.clone())));
        output.ask_backend(BackendRequest::Pods, PendingReply::Pods);
    }

    pub(in crate::app) fn open_threads(&mut self, output: &mut UiOutput) {
        self.overlay = Some(Overlay::Threads(ThreadsPane::new(self.threads.clone())));
        output.request_threads(String::new());
    }

    pub(in crate::app) fn show_rewind(&mut self, output: &mut UiOutput, targets: RewindTargets) {
        if targets.targets.is_empty() {
            output.show_note("no earlier input to rewind to");
            return;
        }
        let row = |target: &minke_protocol::RewindTarget| ListRow {
            text: to_one_line(&target.preview),
            detail: target.warning.clone().unwrap_or_else(|| format_age(target.ts, output.now)),
            action: RowAction::Input(target.seq),
            urgent: target.warning.is_some(),
        };
        // The newest first, which is the most likely choice.
        let rows = targets.targets.iter().rev().map(row).collect();
        self.overlay = Some(Overlay::List(ListOverlay::new(ListKind::Rewind { head: targets.head }, rows)));
    }

    /// Shows available models first. Models of local servers are added when the servers respond.
    pub(in crate::app) fn show_models(&mut self, output: &mut UiOutput, mut models: Vec<ModelLine>) {
        models.sort_by_key(|model| !model.is_ready);
        let rows = models.iter().map(model_row).collect();
        self.overlay = Some(Overlay::List(ListOverlay::new(ListKind::Models, rows)));
        output.ask_backend(BackendRequest::LocalModels, PendingReply::LocalModels);
    }

    pub(in crate::app) fn show_local_models(&mut self, now: Millis, found: Vec<ModelLine>) {
        if let Some(Overlay::List(list)) = &mut self.overlay
            && list.kind == ListKind::Models
        {
            list.insert_ready(found.iter().map(model_row).collect());
        }
        self.keep_selection(now, |lists| lists.local_models = found);
    }

    pub(in crate::app) fn show_skills(&mut self, output: &mut UiOutput, skills: Vec<SkillLine>) {
        if skills.is_empty() {
            output.show_note("no skills or workflows available");
            return;
        }
        let row = |skill: SkillLine| ListRow {
            text: format!("/{:<20}  {}", skill.name, to_one_line(&skill.description)),
            detail: skill.source,
            action: RowAction::Skill(skill.name),
            urgent: false,
        };
        let rows = skills.into_iter().map(row).collect();
        self.overlay = Some(Overlay::List(ListOverlay::new(ListKind::Skills, rows)));
    }

    /// Ignores a response for outdated search words.
    pub(in crate::app) fn show_threads(&mut self, threads: Vec<ThreadRow>, words: &str) {
        let current = self.search_words() == words;
        if words.is_empty() {
            self.threads = threads.clone();
        }
        if let Some(Overlay::Threads(pane)) = &mut self.overlay
            && current
        {
            pane.set_rows(threads, !words.is_empty());
        }
    }

    pub(in crate::app) fn refresh_pods(&mut self) {
        if let Some(Overlay::Pods(pane)) = &mut self.overlay {
            pane.set_rows(self.pods.clone());
        }
    }

    pub(in crate::app) fn open_text(&mut self, title: &str, lines: Vec<String>) {
        self.overlay = Some(Overlay::Text { title: title.to_owned(), lines, top: 0 });
    }

    pub(in crate::app) fn open_tasks(&mut self, output: &mut UiOutput, session: Option<&AttachedSession>) {
        if session.is_some() {
            self.overlay = Some(Overlay::Tasks(TasksPane::default()));
        } else {
            output.show_note("tasks belong to a session: attach to one first");
        }
    }
}

impl UiOutput {
    pub(in crate::app) fn request_threads(&mut self, words: String) {
        let question = BackendRequest::Threads { words: words.clone(), everywhere: !words.trim().is_empty() };
        self.ask_backend(question, PendingReply::Threads { words });
    }
}

impl SessionLink {
    pub(in crate::app) fn open_rewind(&mut self, output: &mut UiOutput) {
        if self.session.is_some() {
            self.send_method(output, Method::RewindTargets, PendingReply::RewindTargets);
        }
    }
}
