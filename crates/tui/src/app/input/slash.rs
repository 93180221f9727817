//! Slash commands. An unknown word is sent to the pod, where it may be the name of a workflow or a skill. A
//! word that is similar to a command needs a confirmation, so that a typo does not cost a model request.

use minke_protocol::{Compact, Fork, Method, Set, Undo};
use minke_text::{format_count, format_dollars};
use minke_view::SessionStatus;

use super::super::load_log::LogViewKind;
use super::super::{App, AppEffect, PendingReply};
use crate::app::ScreenStyle;
use crate::backend::BackendRequest;
use crate::keys::Action;

macro_rules! commands {
    ($($variant:ident = $name:literal, $says:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Command { $($variant),+ }

        impl Command {
            pub(crate) const ALL: &'static [Command] = &[$(Command::$variant),+];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Command::$variant => $name),+ }
            }

            pub(crate) fn says(self) -> &'static str {
                match self { $(Command::$variant => $says),+ }
            }
        }
    };
}

commands! {
    Help = "help", "Show keys and commands";
    Model = "model", "Set the model, or choose it from a list";
    Posture = "posture", "Set the posture: plan, deny, ask, auto or full";
    Compact = "compact", "Compact the context; arguments tell what to keep";
    Rewind = "rewind", "Rewind to an earlier input";
    Fork = "fork", "Fork a new session from here";
    Undo = "undo", "Restore the files that the last run changed";
    Diff = "diff", "Show all file changes of this session";
    Context = "context", "Show what fills the context window";
    Tasks = "tasks", "Show the agent's tasks";
    Pods = "pods", "Show the running pods";
    Threads = "threads", "List threads of this directory, search in all";
    Asks = "asks", "List the open questions of all pods";
    Scope = "scope", "Show the pod's scope and sandbox";
    Policy = "policy", "Show the rules, or the decision for a command";
    Skills = "skills", "List the available skills and workflows";
    Mcp = "mcp", "List the MCP servers in use";
    Cost = "cost", "Show tokens and cost";
    Export = "export", "Export as .md, or the log as .jsonl";
    Doctor = "doctor", "Check what this machine supports";
    Settings = "settings", "Change settings, e.g. `/settings mouse on`";
    Theme = "theme", "terminal, dark, light, contrast, none";
    Name = "name", "Rename this session";
    Quit = "quit", "Quit; the pod keeps running";
}

impl App {
    /// Runs the command in the composer, if it is one.
    pub(in crate::app) fn run_slash_command(&mut self) -> bool {
        let text = self.input.composer.text();
        let Some(line) = text.trim().strip_prefix('/') else { return false };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim().to_owned();
        let Some(command) = Command::ALL.iter().find(|command| command.name() == word) else {
            return self.warn_unknown_command(&text, word);
        };
        if self.link.session.is_none() && command.needs_pod() {
            self.output.show_note(format!("/{word} needs a pod: attach to one first"));
            return true;
        }
        self.input.composer.clear_text();
        self.run_command(*command, rest);
        true
    }

    /// Warns once that a word is similar to a command. The second attempt sends it.
    fn warn_unknown_command(&mut self, text: &str, word: &str) -> bool {
        let named = self.input.popup.as_ref().is_some_and(|popup| popup.has_exact_name(word));
        let Some(near) = Command::suggest_command(word).filter(|_| !named) else { return false };
        if self.input.unknown_command.take().is_some_and(|slipped| slipped == text) {
            return false;
        }
        let send = self.style.key_label(Action::Send);
        self.output.show_note(format!(
            "unknown command /{word}; did you mean /{}? {send} again sends it to the pod",
            near.name()
        ));
        self.input.unknown_command = Some(text.to_owned());
        true
    }

    fn run_command(&mut self, command: Command, rest: String) {
        let words = Some(rest.clone()).filter(|rest| !rest.is_empty());
        match command {
            Command::Help => self.lists.open_help(&self.style, self.setup.settings.vi),
            Command::Model => match words {
                Some(reference) => self.set_model(reference),
                None => self.output.ask_backend(BackendRequest::Models, PendingReply::Models),
            },
            Command::Posture => match words {
                Some(posture) => {
                    self.send_setting(Set { posture: Some(posture), ..Set::default() }, "posture changed")
                }
                None => {
                    let now = self
                        .link
                        .session
                        .as_ref()
                        .map(|attached| attached.session_status().posture.clone())
                        .unwrap_or_default();
                    self.output.show_note(format!(
                        "the posture is `{now}`; change it with /posture plan, deny, ask, auto or full"
                    ));
                }
            },
            Command::Compact => {
                let compact = Method::Compact(Compact { instructions: words });
                self.link.send_method(
                    &mut self.output,
                    compact,
                    PendingReply::Confirmation("compacting the context"),
                );
            }
            Command::Rewind => self.link.open_rewind(&mut self.output),
            Command::Fork => {
                self.link.send_method(&mut self.output, Method::Fork(Fork::default()), PendingReply::Fork)
            }
            Command::Undo => self.link.send_method(
                &mut self.output,
                Method::Undo(Undo::default()),
                PendingReply::Confirmation("undoing the last run"),
            ),
            Command::Diff => self.link.load_log(&mut self.output, LogViewKind::Changes),
            Command::Context => self.link.load_log(&mut self.output, LogViewKind::Context),
            Command::Tasks => self.lists.open_tasks(&mut self.output, self.link.session.as_ref()),
            Command::Pods => self.lists.open_pods(&mut self.output),
            Command::Threads => self.lists.open_threads(&mut self.output),
            Command::Asks => self.open_inbox(),
            Command::Policy | Command::Skills | Command::Doctor | Command::Export => {
                self.request_page(command, words);
            }
            Command::Scope => self.open_status_page("Scope", |status, style| scope_page(style, status)),
            Command::Mcp => self.open_status_page("MCP servers", |status, _| server_page(status)),
            Command::Cost => self.open_status_page("Cost", |status, _| cost_page(status)),
            Command::Settings => self.run_settings_command(&rest),
            Command::Theme => self.run_settings_command(&format!("theme {rest}")),
            Command::Name => match words.as_deref().map(str::parse) {
                Some(Ok(name)) => self.send_setting(Set { name: Some(name), ..Set::default() }, "renamed"),
                Some(Err(_)) | None => self.output.show_note("/name NAME: letters, digits, `-` and `_`"),
            },
            Command::Quit => self.output.effects.push(AppEffect::Quit),
        }
    }

    /// Requests a page from the backend.
    fn request_page(&mut self, command: Command, words: Option<String>) {
        let session = self.link.session.as_ref().map(|attached| attached.session);
        let question = match (command, session) {
            (Command::Policy, session) => BackendRequest::Policy { session, line: words },
            (Command::Skills, session) => BackendRequest::Skills(session),
            (Command::Export, Some(session)) => BackendRequest::Export { session, file: words },
            (Command::Export, None) => return,
            (_, _) => {
                self.output.show_note("checking this machine");
                BackendRequest::Doctor
            }
        };
        self.output.ask_backend(question, PendingReply::TextView);
    }

    fn send_setting(&mut self, set: Set, word: &'static str) {
        self.link.send_method(&mut self.output, Method::Set(Box::new(set)), PendingReply::Confirmation(word));
    }

    /// Sets the model of the attached session, or of new sessions if there is none.
    pub(in crate::app) fn set_model(&mut self, reference: String) {
        if self.link.session.is_some() {
            self.send_setting(Set { model: Some(reference), ..Set::default() }, "model changed");
            return;
        }
        self.output.show_note(format!("new sessions use {reference}"));
        self.output.ask_backend(BackendRequest::SetModel(reference.clone()), PendingReply::ListChange);
        if let Some(found) = &mut self.lists.first_run {
            found.model = Some(reference.clone());
        }
        self.lists.model = Some(reference);
    }

    /// Opens a page about the attached session.
    fn open_status_page(&mut self, title: &str, page: fn(&SessionStatus, &ScreenStyle) -> Vec<String>) {
        let Some(attached) = &self.link.session else { return };
        let lines = page(attached.session_status(), &self.style);
        self.lists.open_text(title, lines);
    }

    /// Returns the working directory of the attached session.
    pub(crate) fn working_directory(&self) -> Option<&str> {
        self.link.session.as_ref()?.session_status().greeting.as_ref().map(|greeting| greeting.cwd.as_str())
    }
}

fn scope_page(style: &ScreenStyle, status: &SessionStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(greeting) = &status.greeting {
        lines.push(format!("directory  {}", style.abbreviate_paths(&greeting.cwd)));
        lines.extend(scope_lines(&style.abbreviate_paths(&greeting.scope_summary)));
        lines.push(format!("sandbox    {}", greeting.sandbox));
        lines.push(format!("posture    {}", status.posture));
        lines.push(format!("tools      {}", greeting.tools.join(", ")));
        lines.extend(greeting.notices.iter().map(|notice| format!("note       {notice}")));
    }
    lines
}

fn server_page(status: &SessionStatus) -> Vec<String> {
    let servers = &status.servers;
    let line = |server: &minke_view::McpServerRow| {
        let error = server.error.as_deref().unwrap_or_default();
        format!("{:<20} {:<10} {error}", server.name, server.status.as_str())
    };
    match servers.is_empty() {
        true => vec!["no MCP servers in use".to_owned()],
        false => servers.iter().map(line).collect(),
    }
}

fn cost_page(status: &SessionStatus) -> Vec<String> {
    let tokens = status.tokens;
    let cost = status.cost_micros.map_or_else(|| "unknown: a price is missing".to_owned(), format_dollars);
    let lines = vec![
        format!("input       {}", format_count(tokens.input)),
        format!("  cached    {}", format_count(tokens.cache_read)),
        format!("output      {}", format_count(tokens.output)),
        format!("cost        {cost}"),
        format!("children    {}", format_dollars(status.children_cost_micros)),
        match tokens.context_window {
            0 => format!("context     {}", format_count(tokens.context_tokens)),
            window => {
                format!("context     {} of {}", format_count(tokens.context_tokens), format_count(window))
            }
        },
    ];
    lines
}

/// Formats the scope summary for the model, one path per line.
fn scope_lines(summary: &str) -> Vec<String> {
    let mut label = "scope".to_owned();
    let mut lines = Vec::new();
    for line in summary.lines() {
        match line.trim_start().strip_prefix("- ") {
            Some(path) => lines.push(format!("{:<10} {path}", std::mem::take(&mut label))),
            None => label = line.trim_end_matches(':').to_lowercase(),
        }
    }
    lines
}

impl Command {
    /// Returns the most similar command with one or two different letters.
    fn suggest_command(word: &str) -> Option<Command> {
        let name = minke_text::nearest_name(word, Command::ALL.iter().map(|command| command.name()), 2)?;
        let is_near = name.len() > 5 || minke_text::edit_distance(name, word) <= 1;
        Command::ALL.iter().copied().find(|command| command.name() == name && is_near && word.len() > 2)
    }

    fn needs_pod(self) -> bool {
        match self {
            Command::Help
            | Command::Model
            | Command::Pods
            | Command::Threads
            | Command::Asks
            | Command::Policy
            | Command::Skills
            | Command::Doctor
            | Command::Settings
            | Command::Theme
            | Command::Quit => false,
            Command::Posture
            | Command::Compact
            | Command::Rewind
            | Command::Fork
            | Command::Undo
            | Command::Diff
            | Command::Context
            | Command::Tasks
            | Command::Export
            | Command::Scope
            | Command::Mcp
            | Command::Cost
            | Command::Name => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn there_are_no_more_commands_than_a_person_can_remember() {
        assert!(Command::ALL.len() <= 25);
    }
}
