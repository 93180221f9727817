//! Renders blocks as styled lines without a terminal: Markdown, code, diffs, cards, themes.
//!
//! External text is converted to [`Clean`] first, and only [`wrap_line`] creates spans from it. [`PaintCache`]
//! caches rendered lines.

mod ascii;
mod ask_card;
mod block;
mod cache;
mod call_block;
mod code;
mod diff;
mod incremental;
mod markdown;
mod output;
mod plain;
mod sanitize;
mod table;
mod theme;
mod wrap;

pub use ask_card::CardKeys;
pub use block::{block_lines, needs_gap};
pub use cache::PaintCache;
pub use code::load_grammars;
pub use diff::{MAX_DIFF_ROWS, count_changes, diff_lines};
pub use incremental::MarkdownStream;
pub use sanitize::Clean;
pub use theme::{StyleRole, Theme, ThemeName};
pub use wrap::{
    LinePrefix, StyledText, WrapMode, line_width, prefix_lines, remaining_width, text_columns, truncate_line,
    wrap_line,
};
