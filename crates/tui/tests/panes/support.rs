//! A screen in memory, and golden files.

use std::path::PathBuf;

use minke_tui::paint::Theme;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The sizes of all golden screens.
pub(crate) const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 12)];

/// Returns the text of a screen of this size without trailing blanks.
pub(crate) fn screen_text((width, height): (u16, u16), draw: impl FnOnce(&mut Buffer, Rect)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory takes it");
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(frame.buffer_mut(), area);
        })
        .expect("memory takes it");
    buffer_text(terminal.backend().buffer())
}

/// Returns the text of a buffer.
pub(crate) fn buffer_text(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let mut out = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer.cell((x, y)).map(ratatui::buffer::Cell::symbol).unwrap_or(" ");
            line.push_str(symbol);
            x += u16::try_from(unicode_width::UnicodeWidthStr::width(symbol)).unwrap_or(1).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n"
}

/// Compares a pane at every size, and once for screen readers, with its golden files.
pub(crate) fn assert_golden(name: &str, mut draw: impl FnMut(&mut Buffer, Rect, &Theme)) {
    for (width, height) in SIZES {
        let shown = screen_text((width, height), |buf, area| draw(buf, area, &Theme::default()));
        compare_golden(&format!("pane-{name}-{width}x{height}"), &shown);
    }
    let shown = screen_text(SIZES[0], |buf, area| draw(buf, area, &Theme::screen_reader()));
    compare_golden(&format!("pane-{name}-plain"), &shown);
}

pub(crate) fn compare_golden(name: &str, shown: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        std::fs::write(&file, shown).expect("golden files can be written");
        return;
    }
    let expected = std::fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
    assert_eq!(shown, expected, "{name}: if this is intended, rewrite it with MINKE_BLESS=1");
}
