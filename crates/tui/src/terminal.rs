//! The terminal itself: taken over while it is held, and as it was before when it is let go, also by a panic.
//!
//! A frame is written at once, between the marks of a synchronized update, so that no half of it is seen.
//! Invariant: however the program ends, short of being killed, the terminal is as it was
//! (`a_signal_gives_the_terminal_back`, `a_panic_gives_the_terminal_back_and_can_be_read`).

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::style::ResetColor;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, TerminalOptions, Viewport};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};

/// What is drawn where the terminal does not say how large it is.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Whether the terminal is ours now; a panic asks from anywhere.
static HELD: AtomicBool = AtomicBool::new(false);

type Drawn = Rc<RefCell<Vec<u8>>>;

/// What is drawn waits here until the frame is whole.
struct Held(Drawn);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal, held.
pub(crate) struct Terminal {
    drawing: ratatui::Terminal<CrosstermBackend<Held>>,
    drawn: Drawn,
    mouse: bool,
    shape: Shape,
    size: Rect,
}

/// What the cursor looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    /// As the person's terminal has it.
    #[default]
    Own,
    /// Between two letters.
    Bar,
    /// On a letter.
    Block,
    /// A letter is about to be put in the place of this one.
    Line,
}

impl Shape {
    fn style(self) -> cursor::SetCursorStyle {
        match self {
            Shape::Own => cursor::SetCursorStyle::DefaultUserShape,
            Shape::Bar => cursor::SetCursorStyle::SteadyBar,
            Shape::Block => cursor::SetCursorStyle::SteadyBlock,
            Shape::Line => cursor::SetCursorStyle::SteadyUnderScore,
        }
    }
}

impl Terminal {
    /// Takes it over. What a panic says is to be read, so the terminal is let go before it says it.
    pub(crate) fn enter(mouse: bool) -> io::Result<Terminal> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let_go();
            report(info);
        }));
        let drawn = Drawn::default();
        let size = size();
        let drawing = fresh(&drawn, size)?;
        let mut terminal = Terminal { drawing, drawn, mouse, shape: Shape::Own, size };
        terminal.take()?;
        Ok(terminal)
    }

    /// Takes it over again, after somebody else had it.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        HELD.store(true, Ordering::SeqCst);
        let mut out = io::stdout();
        // Terminals that do not know the flags for keys pass over them; asking first would cost a wait.
        execute!(
            out,
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableFocusChange,
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES),
            cursor::Hide
        )
        .inspect_err(|_| let_go())?;
        if self.mouse {
            execute!(out, EnableMouseCapture)?;
        }
        self.clear()
    }

    /// Lets somebody else have it.
    pub(crate) fn give(&mut self) {
        self.shape = Shape::Own;
        let_go();
    }

    pub(crate) fn set_mouse(&mut self, mouse: bool) -> io::Result<()> {
        if self.mouse != mouse {
            self.mouse = mouse;
            return if mouse {
                execute!(io::stdout(), EnableMouseCapture)
            } else {
                execute!(io::stdout(), DisableMouseCapture)
            };
        }
        Ok(())
    }

    /// The next frame is drawn in full. A new one knows of nothing that is on the screen; the library's own way would ask
    /// the terminal where its cursor is, and wait for an answer.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.size = size();
        self.drawing = fresh(&self.drawn, self.size)?;
        let mut drawn = self.drawn.borrow_mut();
        drawn.clear();
        queue!(&mut *drawn, ResetColor, Clear(ClearType::All))
    }

    /// Shows a frame, with the cursor in this shape.
    pub(crate) fn show(&mut self, shape: Shape, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if size() != self.size {
            self.clear()?;
        }
        self.drawing.draw(draw)?;
        if self.shape != shape {
            self.shape = shape;
            queue!(&mut *self.drawn.borrow_mut(), shape.style())?;
        }
        let drawn = std::mem::take(&mut *self.drawn.borrow_mut());
        if drawn.is_empty() {
            return Ok(());
        }
        let mut whole = Vec::with_capacity(drawn.len() + 32);
        queue!(whole, BeginSynchronizedUpdate)?;
        whole.extend_from_slice(&drawn);
        queue!(whole, EndSynchronizedUpdate)?;
        let mut out = io::stdout().lock();
        out.write_all(&whole)?;
        out.flush()
    }

    /// Keys that came together with a change of size are left unread by the library until the next key comes: it looks at
    /// one of the two, and is not told a second time of the other. Setting the modes that are set tells it again.
    pub(crate) fn listen_again(&self) -> io::Result<()> {
        let modes = tcgetattr(io::stdin())?;
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &modes)?)
    }

    /// Words for the terminal itself, between two frames.
    pub(crate) fn tell(&mut self, command: impl crossterm::Command) -> io::Result<()> {
        execute!(io::stdout(), command)
    }
}

fn fresh(drawn: &Drawn, size: Rect) -> io::Result<ratatui::Terminal<CrosstermBackend<Held>>> {
    let options = TerminalOptions { viewport: Viewport::Fixed(size) };
    ratatui::Terminal::with_options(CrosstermBackend::new(Held(drawn.clone())), options)
}

/// As the terminal on stdout says; that of somebody else who started this is of no interest.
fn size() -> Rect {
    let (columns, rows) = match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => DEFAULT_SIZE,
    };
    Rect { x: 0, y: 0, width: columns, height: rows }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let_go();
    }
}

/// Once: a second time the cursor would go back to where it was, and what a panic has said be overwritten. If even this
/// fails the terminal is gone, and nobody is left to be told.
fn let_go() {
    if !HELD.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    drop(execute!(
        out,
        EndSynchronizedUpdate,
        DisableMouseCapture,
        PopKeyboardEnhancementFlags,
        DisableFocusChange,
        DisableBracketedPaste,
        Shape::Own.style(),
        cursor::Show,
        LeaveAlternateScreen
    ));
    drop(disable_raw_mode());
}
