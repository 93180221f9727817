//! `minke top`: a live view of the pod tree, with keys to sort, attach, send and stop.
//!
//! Here: the main loop and the keys. Elsewhere: rendering (`view`), the terminal (`terminal`), facts about
//! pods (`pod_tree`). A key runs the command of that name, so there is only one implementation of each
//! operation.
//! Invariant: the terminal is always restored (`top_shows_the_tree_and_leaves_the_terminal_as_it_was`).

mod terminal;
mod view;

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use minke_client::UserHome;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::{PodTreeView, StateCache, TreeExtent};
use terminal::{KeyDecoder, RawTerminal, TerminalKey};
use view::{InputMode, SortKey, TopView};

/// How often the tree is refreshed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of a typed message.
const MAX_TYPED_CHARS: usize = 2_000;

/// Watch live pods as a tree: sort, attach, send, stop
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Sort by this column
    #[arg(long, value_enum, default_value_t)]
    sort: SortKey,
}

pub(crate) async fn run(
    top: TopArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    if output.json || !context.stdin_terminal || !context.stdout_terminal {
        return crate::commands::watch::ps::print_tree(context, output);
    }
    let home = context.open_home()?;
    let mut app = TopApp {
        home: &home,
        state_cache: StateCache::default(),
        tree: PodTreeView::default(),
        view: TopView::new(top.sort),
        running_command: None,
    };
    app.refresh()?;
    app.run_loop().await
}

/// A command that a key has started.
type RunningCommand = JoinHandle<std::io::Result<std::process::Output>>;

struct TopApp<'a> {
    home: &'a UserHome,
    state_cache: StateCache,
    tree: PodTreeView,
    view: TopView,
    running_command: Option<RunningCommand>,
}

/// Result of one step of the main loop.
enum LoopStep {
    Continue,
    Quit,
    /// Give the terminal to another program.
    Attach(String),
}

impl TopApp<'_> {
    async fn run_loop(&mut self) -> Result<ExitKind, CliError> {
        let mut signals = TerminalSignals::listen()?;
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminal = RawTerminal::enter()?;
        let mut keys = KeyDecoder::default();
        loop {
            terminal.draw_frame(&self.view.render_frame(&self.tree, terminal.size()?))?;
            let next = tokio::select! {
                typed = terminal.next_input() => match typed {
                    None => LoopStep::Quit,
                    Some(bytes) => self.handle_keys(keys.decode(&bytes)),
                },
                _ = ticks.tick() => {
                    self.refresh()?;
                    LoopStep::Continue
                }
                done = command_result(&mut self.running_command) => {
                    self.running_command = None;
                    self.view.set_status(&done);
                    self.refresh()?;
                    LoopStep::Continue
                }
                _ = signals.resized.recv() => LoopStep::Continue,
                _ = signals.terminate.recv() => return Ok(ExitKind::Signal),
                _ = signals.hangup.recv() => return Ok(ExitKind::Signal),
                _ = signals.interrupt.recv() => LoopStep::Quit,
            };
            match next {
                LoopStep::Continue => {}
                LoopStep::Quit => return Ok(ExitKind::Success),
                LoopStep::Attach(session) => {
                    drop(terminal);
                    self.attach_to(&session);
                    // The interrupt that ended it was not meant for this program.
                    signals.reset_interrupt()?;
                    terminal = RawTerminal::enter()?;
                    self.refresh()?;
                }
            }
        }
    }

    fn refresh(&mut self) -> Result<(), CliError> {
        self.tree = PodTreeView::load(self.home, TreeExtent::WithEndedPods, &mut self.state_cache)?;
        self.view.apply_tree(&mut self.tree);
        Ok(())
    }

    fn handle_keys(&mut self, pressed: Vec<TerminalKey>) -> LoopStep {
        for key in pressed {
            let next = match &self.view.mode {
                InputMode::Browsing => self.handle_browse_key(key),
                InputMode::Typing(text) => self.handle_typing_key(text.clone(), key),
                InputMode::ConfirmingStop => self.handle_confirm_key(key),
            };
            if !matches!(next, LoopStep::Continue) {
                return next;
            }
        }
        LoopStep::Continue
    }

    fn handle_browse_key(&mut self, key: TerminalKey) -> LoopStep {
        match key {
            TerminalKey::Char('q') | TerminalKey::Interrupt | TerminalKey::Escape => return LoopStep::Quit,
            TerminalKey::Down | TerminalKey::Char('j') => self.view.move_selection(&self.tree, 1),
            TerminalKey::Up | TerminalKey::Char('k') => self.view.move_selection(&self.tree, -1),
            TerminalKey::Char('a') | TerminalKey::Enter => match self.view.selected_node(&self.tree) {
                Some(node) => return LoopStep::Attach(format!("s_{}", node.session)),
                None => self.view.set_status("no pod is selected"),
            },
            TerminalKey::Char('m') => self.view.enter_mode(&self.tree, InputMode::Typing(String::new())),
            TerminalKey::Char('x') => self.view.enter_mode(&self.tree, InputMode::ConfirmingStop),
            TerminalKey::Char(letter) => {
                if let Some(sort) = SortKey::from_key(letter) {
                    self.view.sort_by(sort);
                    self.view.apply_tree(&mut self.tree);
                }
            }
            TerminalKey::Backspace => {}
        }
        LoopStep::Continue
    }

    fn handle_typing_key(&mut self, mut text: String, key: TerminalKey) -> LoopStep {
        match key {
            TerminalKey::Escape | TerminalKey::Interrupt => self.view.mode = InputMode::Browsing,
            TerminalKey::Enter => {
                self.view.mode = InputMode::Browsing;
                if !text.trim().is_empty() {
                    self.run_for_selected(&["send"], &["--", &text]);
                }
            }
            TerminalKey::Backspace => {
                text.pop();
                self.view.mode = InputMode::Typing(text);
            }
            TerminalKey::Char(letter) => {
                if text.chars().count() < MAX_TYPED_CHARS {
                    text.push(letter);
                }
                self.view.mode = InputMode::Typing(text);
            }
            TerminalKey::Up | TerminalKey::Down => {}
        }
        LoopStep::Continue
    }

    fn handle_confirm_key(&mut self, key: TerminalKey) -> LoopStep {
        self.view.mode = InputMode::Browsing;
        if key == TerminalKey::Char('y') {
            self.run_for_selected(&["stop", "--tree"], &[]);
        }
        LoopStep::Continue
    }

    /// Runs a command for the selected pod and shows its result.
    fn run_for_selected(&mut self, words: &[&str], more: &[&str]) {
        let Some(node) = self.view.selected_node(&self.tree) else { return };
        if self.running_command.is_some() {
            self.view.set_status("the last command is still running");
            return;
        }
        let mut command = match own_command() {
            Ok(command) => command,
            Err(e) => return self.view.set_status(&format!("could not find the path of this program: {e}")),
        };
        command.args(words).arg(format!("s_{}", node.session)).args(more).stdin(Stdio::null());
        self.view.set_status(&format!("{} {} …", words.join(" "), node.name));
        self.running_command = Some(tokio::task::spawn_blocking(move || command.output()));
    }

    fn attach_to(&mut self, session: &str) {
        let said = match own_command().and_then(|mut command| command.args(["attach", session]).status()) {
            Ok(status) if status.success() => String::new(),
            Ok(status) => format!("attach: {status}"),
            Err(e) => format!("could not start attach: {e}"),
        };
        self.view.set_status(&said);
    }
}

/// Returns a command for this program, even after an upgrade has replaced its file.
fn own_command() -> std::io::Result<Command> {
    if cfg!(target_os = "linux") {
        return Ok(Command::new("/proc/self/exe"));
    }
    Ok(Command::new(std::env::current_exe()?))
}

/// Returns the first line that a command prints. Never returns if no command runs.
async fn command_result(running: &mut Option<RunningCommand>) -> String {
    let Some(doing) = running else { return std::future::pending().await };
    match doing.await {
        Ok(Ok(output)) => {
            let status = [output.stderr, output.stdout].concat();
            String::from_utf8_lossy(&status).lines().next().unwrap_or("done").to_owned()
        }
        Ok(Err(e)) => format!("could not start it: {e}"),
        Err(e) => format!("it was aborted: {e}"),
    }
}

/// Signals that must not end the program before the terminal is restored.
struct TerminalSignals {
    resized: Signal,
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl TerminalSignals {
    fn listen() -> Result<TerminalSignals, CliError> {
        Ok(TerminalSignals {
            resized: listen_for(SignalKind::window_change())?,
            terminate: listen_for(SignalKind::terminate())?,
            hangup: listen_for(SignalKind::hangup())?,
            interrupt: listen_for(SignalKind::interrupt())?,
        })
    }

    fn reset_interrupt(&mut self) -> Result<(), CliError> {
        self.interrupt = listen_for(SignalKind::interrupt())?;
        Ok(())
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|e| CliError::new(ExitKind::Failed, "could not listen for signals").with_reason(e))
}
