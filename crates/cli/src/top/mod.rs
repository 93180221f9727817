//! `minke top`: the tree of live pods, all the time, with keys to sort, attach, send and stop.
//!
//! Here: the loop and what keys do. Elsewhere: the picture (`view`), the terminal (`terminal`), what is known of a pod
//! (`family`). A key does what the command of that name does, by running it: there is no second way to reach a pod.
//! Invariant: however it ends, the terminal is as it was (`top_shows_the_tree_and_leaves_the_terminal_as_it_was`).

mod terminal;
mod view;

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use minke_client::Home;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::family::{Family, Folds, Reach};
use crate::screen::Screen;
use terminal::{Key, Keys, Terminal};
use view::{Mode, Sort, View};

/// How often it is looked who lives and what they do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a message may be that is typed here.
const TYPED_CHARS: usize = 2_000;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// What it is sorted by
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
}

pub(crate) async fn run(top: Top, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if screen.json || !around.stdin_terminal || !around.stdout_terminal {
        return crate::ps::tree(around, screen);
    }
    let home = around.home()?;
    let mut watch = Watch {
        home: &home,
        folds: Folds::default(),
        family: Family::default(),
        view: View::new(top.sort),
        doing: None,
    };
    watch.look()?;
    watch.stay().await
}

/// What a key has begun.
type Doing = JoinHandle<std::io::Result<std::process::Output>>;

struct Watch<'a> {
    home: &'a Home,
    folds: Folds,
    family: Family,
    view: View,
    doing: Option<Doing>,
}

/// What happens next.
enum Next {
    Stay,
    Leave,
    /// Another program has the terminal for a while.
    Attach(String),
}

impl Watch<'_> {
    async fn stay(&mut self) -> Result<Exit, Failure> {
        let mut signals = Signals::listen()?;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminal = Terminal::enter()?;
        let mut keys = Keys::default();
        loop {
            terminal.show(&self.view.frame(&self.family, terminal.size()?))?;
            let next = tokio::select! {
                typed = terminal.typed() => match typed {
                    None => Next::Leave,
                    Some(bytes) => self.press(keys.take(&bytes)),
                },
                _ = ticks.tick() => {
                    self.look()?;
                    Next::Stay
                }
                done = done(&mut self.doing) => {
                    self.doing = None;
                    self.view.say(&done);
                    self.look()?;
                    Next::Stay
                }
                _ = signals.resized.recv() => Next::Stay,
                _ = signals.end.recv() => return Ok(Exit::Signal),
                _ = signals.hangup.recv() => return Ok(Exit::Signal),
                _ = signals.interrupt.recv() => Next::Leave,
            };
            match next {
                Next::Stay => {}
                Next::Leave => return Ok(Exit::Done),
                Next::Attach(session) => {
                    drop(terminal);
                    self.attach(&session);
                    // Leaving it was meant for it alone.
                    signals.forget_interrupt()?;
                    terminal = Terminal::enter()?;
                    self.look()?;
                }
            }
        }
    }

    fn look(&mut self) -> Result<(), Failure> {
        self.family = Family::look(self.home, Reach::Remembered, &mut self.folds)?;
        self.view.settle(&mut self.family);
        Ok(())
    }

    fn press(&mut self, pressed: Vec<Key>) -> Next {
        for key in pressed {
            let next = match &self.view.mode {
                Mode::Watching => self.watching(key),
                Mode::Typing(text) => self.typing(text.clone(), key),
                Mode::Stopping => self.stopping(key),
            };
            if !matches!(next, Next::Stay) {
                return next;
            }
        }
        Next::Stay
    }

    fn watching(&mut self, key: Key) -> Next {
        match key {
            Key::Char('q') | Key::Interrupt | Key::Escape => return Next::Leave,
            Key::Down | Key::Char('j') => self.view.move_by(&self.family, 1),
            Key::Up | Key::Char('k') => self.view.move_by(&self.family, -1),
            Key::Char('a') | Key::Enter => match self.view.selected(&self.family) {
                Some(member) => return Next::Attach(format!("s_{}", member.session)),
                None => self.view.say("nobody is selected"),
            },
            Key::Char('m') => self.view.begin(&self.family, Mode::Typing(String::new())),
            Key::Char('x') => self.view.begin(&self.family, Mode::Stopping),
            Key::Char(letter) => {
                if let Some(sort) = Sort::by_key(letter) {
                    self.view.sort_by(sort);
                    self.view.settle(&mut self.family);
                }
            }
            Key::Backspace => {}
        }
        Next::Stay
    }

    fn typing(&mut self, mut text: String, key: Key) -> Next {
        match key {
            Key::Escape | Key::Interrupt => self.view.mode = Mode::Watching,
            Key::Enter => {
                self.view.mode = Mode::Watching;
                if !text.trim().is_empty() {
                    self.order(&["send"], &["--", &text]);
                }
            }
            Key::Backspace => {
                text.pop();
                self.view.mode = Mode::Typing(text);
            }
            Key::Char(letter) => {
                if text.chars().count() < TYPED_CHARS {
                    text.push(letter);
                }
                self.view.mode = Mode::Typing(text);
            }
            Key::Up | Key::Down => {}
        }
        Next::Stay
    }

    fn stopping(&mut self, key: Key) -> Next {
        self.view.mode = Mode::Watching;
        if key == Key::Char('y') {
            self.order(&["stop", "--tree"], &[]);
        }
        Next::Stay
    }

    /// Runs a command about the selected pod, and shows what it says.
    fn order(&mut self, words: &[&str], more: &[&str]) {
        let Some(member) = self.view.selected(&self.family) else { return };
        if self.doing.is_some() {
            self.view.say("one thing at a time: the last order is still under way");
            return;
        }
        let mut command = match ourselves() {
            Ok(command) => command,
            Err(e) => return self.view.say(&format!("this program's own file cannot be found: {e}")),
        };
        command.args(words).arg(format!("s_{}", member.session)).args(more).stdin(Stdio::null());
        self.view.say(&format!("{} {} …", words.join(" "), member.name));
        self.doing = Some(tokio::task::spawn_blocking(move || command.output()));
    }

    fn attach(&mut self, session: &str) {
        let said = match ourselves().and_then(|mut command| command.args(["attach", session]).status()) {
            Ok(status) if status.success() => String::new(),
            Ok(status) => format!("attach: {status}"),
            Err(e) => format!("attach cannot be started: {e}"),
        };
        self.view.say(&said);
    }
}

/// This program, even if an upgrade has put another file in its place since.
fn ourselves() -> std::io::Result<Command> {
    if cfg!(target_os = "linux") {
        return Ok(Command::new("/proc/self/exe"));
    }
    Ok(Command::new(std::env::current_exe()?))
}

/// The first thing that an order said; never, if there is none.
async fn done(doing: &mut Option<Doing>) -> String {
    let Some(doing) = doing else { return std::future::pending().await };
    match doing.await {
        Ok(Ok(output)) => {
            let said = [output.stderr, output.stdout].concat();
            String::from_utf8_lossy(&said).lines().next().unwrap_or("done").to_owned()
        }
        Ok(Err(e)) => format!("it could not be started: {e}"),
        Err(e) => format!("it was given up: {e}"),
    }
}

/// Signals that must not end it with the terminal changed.
struct Signals {
    resized: Signal,
    end: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, Failure> {
        Ok(Signals {
            resized: hear(SignalKind::window_change())?,
            end: hear(SignalKind::terminate())?,
            hangup: hear(SignalKind::hangup())?,
            interrupt: hear(SignalKind::interrupt())?,
        })
    }

    fn forget_interrupt(&mut self) -> Result<(), Failure> {
        self.interrupt = hear(SignalKind::interrupt())?;
        Ok(())
    }
}

fn hear(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e))
}
