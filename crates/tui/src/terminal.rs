//! Takes over the terminal and restores it, also after a panic.
//!
//! Each frame is written at once inside of a synchronized update, so that no partial frame is visible.
//! Invariant: the terminal is restored however the program ends, except by SIGKILL
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

/// Assumed size if the terminal does not report one.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Whether the terminal is taken over; read by the panic hook of any thread.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

type SharedBuffer = Rc<RefCell<Vec<u8>>>;

/// Collects the output until the frame is complete.
struct FrameWriter(SharedBuffer);

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal, taken over.
pub(crate) struct Terminal {
    terminal: ratatui::Terminal<CrosstermBackend<FrameWriter>>,
    output: SharedBuffer,
    mouse: bool,
    cursor_shape: CursorShape,
    terminal_size: Rect,
}

/// The cursor shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CursorShape {
    /// The default of the terminal.
    #[default]
    Default,
    /// Between two letters.
    Bar,
    /// On a letter.
    Block,
    /// The next key replaces the letter.
    Underline,
}

impl CursorShape {
    fn cursor_style(self) -> cursor::SetCursorStyle {
        match self {
            CursorShape::Default => cursor::SetCursorStyle::DefaultUserShape,
            CursorShape::Bar => cursor::SetCursorStyle::SteadyBar,
            CursorShape::Block => cursor::SetCursorStyle::SteadyBlock,
            CursorShape::Underline => cursor::SetCursorStyle::SteadyUnderScore,
        }
    }
}

impl Terminal {
    /// Takes over the terminal, and installs a panic hook that restores it before printing the panic.
    pub(crate) fn enter(mouse: bool) -> io::Result<Terminal> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore_terminal();
            report(info);
        }));
        let output = SharedBuffer::default();
        let size = terminal_size();
        let drawing = new_backend(&output, size)?;
        let mut terminal = Terminal {
            terminal: drawing,
            output,
            mouse,
            cursor_shape: CursorShape::Default,
            terminal_size: size,
        };
        terminal.take_over()?;
        Ok(terminal)
    }

    /// Takes over the terminal again after another program has used it.
    pub(crate) fn take_over(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        IS_ACTIVE.store(true, Ordering::SeqCst);
        let mut out = io::stdout();
        // Terminals ignore unknown keyboard flags; querying support would cost a round trip.
        execute!(
            out,
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableFocusChange,
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES),
            cursor::Hide
        )
        .inspect_err(|_| restore_terminal())?;
        if self.mouse {
            execute!(out, EnableMouseCapture)?;
        }
        self.clear_screen()
    }

    /// Restores the terminal for another program.
    pub(crate) fn release(&mut self) {
        self.cursor_shape = CursorShape::Default;
        restore_terminal();
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

    /// Draws the next frame completely with a new backend. The library's own method would query the cursor
    /// position and wait for the terminal.
    pub(crate) fn clear_screen(&mut self) -> io::Result<()> {
        self.terminal_size = terminal_size();
        self.terminal = new_backend(&self.output, self.terminal_size)?;
        let mut output = self.output.borrow_mut();
        output.clear();
        queue!(&mut *output, ResetColor, Clear(ClearType::All))
    }

    /// Draws a frame and sets the cursor shape.
    pub(crate) fn draw_frame(
        &mut self,
        shape: CursorShape,
        draw: impl FnOnce(&mut Frame<'_>),
    ) -> io::Result<()> {
        if terminal_size() != self.terminal_size {
            self.clear_screen()?;
        }
        self.terminal.draw(draw)?;
        if self.cursor_shape != shape {
            self.cursor_shape = shape;
            queue!(&mut *self.output.borrow_mut(), shape.cursor_style())?;
        }
        let output = std::mem::take(&mut *self.output.borrow_mut());
        if output.is_empty() {
            return Ok(());
        }
        let mut whole = Vec::with_capacity(output.len() + 32);
        queue!(whole, BeginSynchronizedUpdate)?;
        whole.extend_from_slice(&output);
        queue!(whole, EndSynchronizedUpdate)?;
        let mut out = io::stdout().lock();
        out.write_all(&whole)?;
        out.flush()
    }

    /// Works around a defect of the event library: keys that arrive together with a resize remain unread
    /// until the next key. Setting the modes again triggers another event.
    pub(crate) fn restart_input(&self) -> io::Result<()> {
        let modes = tcgetattr(io::stdin())?;
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &modes)?)
    }

    /// Writes a command to the terminal between two frames.
    pub(crate) fn execute(&mut self, command: impl crossterm::Command) -> io::Result<()> {
        execute!(io::stdout(), command)
    }
}

fn new_backend(
    output: &SharedBuffer,
    size: Rect,
) -> io::Result<ratatui::Terminal<CrosstermBackend<FrameWriter>>> {
    let options = TerminalOptions { viewport: Viewport::Fixed(size) };
    ratatui::Terminal::with_options(CrosstermBackend::new(FrameWriter(output.clone())), options)
}

/// Returns the size of the terminal on stdout, not of the parent's terminal.
fn terminal_size() -> Rect {
    let (columns, rows) = match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => DEFAULT_SIZE,
    };
    Rect { x: 0, y: 0, width: columns, height: rows }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Restores the terminal once: a second time would move the cursor back and overwrite the panic message.
/// Errors are ignored, because the terminal is gone then.
fn restore_terminal() {
    if !IS_ACTIVE.swap(false, Ordering::SeqCst) {
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
        CursorShape::Default.cursor_style(),
        cursor::Show,
        LeaveAlternateScreen
    ));
    drop(disable_raw_mode());
}
