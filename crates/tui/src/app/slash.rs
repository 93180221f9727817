//! Words after a slash. Only what works has a name here; what is not known goes to the pod as it is, where it may name a
//! workflow or a skill. One that is nearly a command is asked about first: a slip is not what a model is paid for.

use minke_protocol::{Compact, Fork, Method, Set, Undo};

use super::gather::Gathered;
use super::words::{dollars, short};
use super::{App, Do, Pending};
use crate::keys::Action;
use crate::outside::Question;

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
    Help = "help", "keys and commands";
    Model = "model", "the model; alone, a list to choose from";
    Posture = "posture", "what happens to an action that no rule decides: plan, deny, ask, auto, full";
    Compact = "compact", "a shorter context; words after it say what to keep";
    Rewind = "rewind", "back to an earlier input";
    Fork = "fork", "a new session that begins here";
    Undo = "undo", "put back what the last run changed";
    Diff = "diff", "everything that this session has changed";
    Context = "context", "what fills the model's window";
    Tasks = "tasks", "what the agent means to do";
    Pods = "pods", "everybody who lives";
    Threads = "threads", "conversations of this directory, and a search in all";
    Asks = "asks", "every open question of every pod";
    Scope = "scope", "what the pod may touch, and how that is held";
    Policy = "policy", "the rules that hold here; with a command, what would happen to it";
    Skills = "skills", "skills and workflows that can be named here";
    Mcp = "mcp", "servers whose tools are used";
    Cost = "cost", "tokens and money";
    Export = "export", "this conversation as a file: .md, or .jsonl for the log itself";
    Doctor = "doctor", "what this machine gives to pods, and what is missing";
    Settings = "settings", "colours, screen reader, mouse; `/settings mouse on` does it at once";
    Theme = "theme", "terminal, dark, light, contrast, none";
    Name = "name", "another name for this session";
    Quit = "quit", "leave; the pod goes on";
}

impl App {
    /// Does what stands in the composer, if it is a command.
    pub(super) fn slash_command(&mut self) -> bool {
        let text = self.composer.text();
        let Some(line) = text.trim().strip_prefix('/') else { return false };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim().to_owned();
        let Some(command) = Command::ALL.iter().find(|command| command.name() == word) else {
            return self.is_slip(&text, word);
        };
        if self.talk.is_none() && command.needs_pod() {
            self.say(format!("/{word} is about a pod, and none is attached"));
            return true;
        }
        self.composer.clear();
        self.command(*command, rest);
        true
    }

    /// Says once that a word is nearly a command; the second time it is meant.
    fn is_slip(&mut self, text: &str, word: &str) -> bool {
        let named = self.popup.as_ref().is_some_and(|popup| popup.names(word));
        let Some(near) = Command::near(word).filter(|_| !named) else { return false };
        if self.slipped.take().is_some_and(|slipped| slipped == text) {
            return false;
        }
        let send = self.spoken(Action::Send);
        self.say(format!("there is no /{word}: /{}? {send} again says it to the pod", near.name()));
        self.slipped = Some(text.to_owned());
        true
    }

    fn command(&mut self, command: Command, rest: String) {
        let words = Some(rest.clone()).filter(|rest| !rest.is_empty());
        match command {
            Command::Help => self.open_help(),
            Command::Model => match words {
                Some(reference) => self.use_model(reference),
                None => self.ask(Question::Models, Pending::Models),
            },
            Command::Posture => match words {
                Some(posture) => {
                    self.set(Set { posture: Some(posture), ..Set::default() }, "the posture is changed")
                }
                None => {
                    let now =
                        self.talk.as_ref().map(|talk| talk.standing().posture.clone()).unwrap_or_default();
                    self.say(format!(
                        "the posture is `{now}`; /posture plan, deny, ask, auto or full changes it"
                    ));
                }
            },
            Command::Compact => {
                let compact = Method::Compact(Compact { instructions: words });
                self.send(compact, Pending::Told("the context is made shorter"));
            }
            Command::Rewind => self.open_rewind(),
            Command::Fork => self.send(Method::Fork(Fork::default()), Pending::Fork),
            Command::Undo => self.send(Method::Undo(Undo::default()), Pending::Told("undoing the last run")),
            Command::Diff => self.gather(Gathered::Changes),
            Command::Context => self.gather(Gathered::Context),
            Command::Tasks => self.open_tasks(),
            Command::Pods => self.open_pods(),
            Command::Threads => self.open_threads(),
            Command::Asks => self.open_asks(),
            Command::Policy | Command::Skills | Command::Doctor | Command::Export => {
                self.ask_for_page(command, words);
            }
            Command::Scope => self.open_scope(),
            Command::Mcp => self.open_mcp(),
            Command::Cost => self.open_cost(),
            Command::Settings => self.settings_command(&rest),
            Command::Theme => self.change_theme(&rest),
            Command::Name => match words.as_deref().map(str::parse) {
                Some(Ok(name)) => self.set(Set { name: Some(name), ..Set::default() }, "renamed"),
                Some(Err(_)) | None => self.say("/name NAME: letters, digits, `-` and `_`"),
            },
            Command::Quit => self.doing.push(Do::Quit),
        }
    }

    /// What the program around knows.
    fn ask_for_page(&mut self, command: Command, words: Option<String>) {
        let session = self.talk.as_ref().map(|talk| talk.session);
        let question = match (command, session) {
            (Command::Policy, session) => Question::Policy { session, line: words },
            (Command::Skills, session) => Question::Skills(session),
            (Command::Export, Some(session)) => Question::Export { session, file: words },
            (Command::Export, None) => return,
            (_, _) => {
                self.say("looking at this machine");
                Question::Doctor
            }
        };
        self.ask(question, Pending::Shown);
    }

    fn set(&mut self, set: Set, word: &'static str) {
        self.send(Method::Set(Box::new(set)), Pending::Told(word));
    }

    /// With a session: for it. Without: for those that are begun here.
    pub(super) fn use_model(&mut self, reference: String) {
        if self.talk.is_some() {
            self.set(Set { model: Some(reference), ..Set::default() }, "the model is changed");
            return;
        }
        self.say(format!("new sessions ask {reference}"));
        self.ask(Question::SetModel(reference.clone()), Pending::Changed);
        if let Some(found) = &mut self.first_run {
            found.model = Some(reference.clone());
        }
        self.model = Some(reference);
    }

    /// Where the session that is attached works.
    pub(crate) fn working_directory(&self) -> Option<&str> {
        self.talk.as_ref()?.standing().greeting.as_ref().map(|greeting| greeting.cwd.as_str())
    }

    fn open_scope(&mut self) {
        let Some(talk) = &self.talk else { return };
        let standing = talk.standing();
        let mut lines = Vec::new();
        if let Some(greeting) = &standing.greeting {
            lines.push(format!("works in   {}", self.homely(&greeting.cwd)));
            lines.extend(scope_lines(&self.homely(&greeting.scope_summary)));
            lines.push(format!("fence      {}", greeting.fence));
            lines.push(format!("posture    {}", standing.posture));
            lines.push(format!("tools      {}", greeting.tools.join(", ")));
            lines.extend(greeting.notices.iter().map(|notice| format!("note       {notice}")));
        }
        self.open_text("Scope", lines);
    }

    fn open_mcp(&mut self) {
        let Some(talk) = &self.talk else { return };
        let servers = &talk.standing().servers;
        let line = |server: &minke_view::Server| {
            let error = server.error.as_deref().unwrap_or_default();
            format!("{:<20} {:<10} {error}", server.name, server.status.as_str())
        };
        let lines = match servers.is_empty() {
            true => vec!["no MCP server is used here".to_owned()],
            false => servers.iter().map(line).collect(),
        };
        self.open_text("MCP servers", lines);
    }

    fn open_cost(&mut self) {
        let Some(talk) = &self.talk else { return };
        let standing = talk.standing();
        let tokens = standing.tokens;
        let cost = standing.cost_micros.map_or_else(|| "not known: a price is missing".to_owned(), dollars);
        let lines = vec![
            format!("input       {}", short(tokens.input)),
            format!("  cached    {}", short(tokens.cache_read)),
            format!("output      {}", short(tokens.output)),
            format!("cost        {cost}"),
            format!("pods below  {}", dollars(standing.children_cost_micros)),
            match tokens.window {
                0 => format!("context     {}", short(tokens.context)),
                window => format!("context     {} of {}", short(tokens.context), short(window)),
            },
        ];
        self.open_text("Cost", lines);
    }
}

/// What the pod tells its model of its scope, one path a line.
fn scope_lines(summary: &str) -> Vec<String> {
    let mut label = "may touch".to_owned();
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
    /// The command that was meant, where one or two letters are wrong.
    fn near(word: &str) -> Option<Command> {
        let far = |command: &Command| strsim::osa_distance(command.name(), word);
        let nearest = Command::ALL.iter().copied().min_by_key(far)?;
        let most = if nearest.name().len() > 5 { 2 } else { 1 };
        (far(&nearest) <= most && word.len() > 2).then_some(nearest)
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
