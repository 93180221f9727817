//! Paint: from blocks to lines of cells, without a terminal: Markdown, code, diffs, cards, colours.
//!
//! Every text from outside becomes a [`Clean`] first, and only [`wrap`] makes spans, from nothing else. What was drawn
//! is kept in [`Drawn`].

mod block;
mod call;
mod card;
mod code;
mod diff;
mod drawn;
mod harmless;
mod letters;
mod markdown;
mod output;
mod plain;
mod stream;
mod table;
mod theme;
mod wrap;

pub use block::{block, spaced};
pub use card::CardKeys;
pub use code::warm;
pub use diff::{ROWS, counts, diff};
pub use drawn::Drawn;
pub use harmless::Clean;
pub use stream::Stream;
pub use theme::{Role, Theme, ThemeName};
pub use wrap::{Before, Break, Piece, columns, cut, indent, room, width_of, wrap};
