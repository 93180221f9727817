//! Themes map roles to styles.
//!
//! Rendering code uses roles and never colours. `terminal` only uses the sixteen colours of the user's
//! terminal; `none` uses no colours, so information must not depend on colour alone.

use ratatui::style::{Color, Modifier, Style};

use super::ask_card::CardKeys;

/// The role of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StyleRole {
    Text,
    /// Less important than the surrounding text.
    Dim,
    Accent,
    /// Input of the user.
    User,
    Heading,
    Link,
    Quote,
    /// Inline code, commands.
    Code,
    Added,
    Removed,
    /// Changed words in a changed line.
    AddedWord,
    RemovedWord,
    Good,
    Warn,
    Error,
    Key,
    /// The selected row or the focused card.
    Selected,
    Border,
    Keyword,
    Literal,
    Number,
    Comment,
    Function,
    Type,
}

/// The available themes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ThemeName {
    #[default]
    Terminal,
    Dark,
    Light,
    Contrast,
    /// No colours: bold, underline and reverse only.
    None,
}

impl ThemeName {
    pub const ALL: [ThemeName; 5] =
        [ThemeName::Terminal, ThemeName::Dark, ThemeName::Light, ThemeName::Contrast, ThemeName::None];

    pub fn as_str(self) -> &'static str {
        match self {
            ThemeName::Terminal => "terminal",
            ThemeName::Dark => "dark",
            ThemeName::Light => "light",
            ThemeName::Contrast => "contrast",
            ThemeName::None => "none",
        }
    }

    pub fn from_name(name: &str) -> Option<ThemeName> {
        ThemeName::ALL.into_iter().find(|theme| theme.as_str() == name)
    }
}

/// A theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Theme {
    pub name: ThemeName,
    /// For screen readers: labelled lines, no frames, no decoration.
    pub plain: bool,
    /// The keys that cards show.
    pub keys: CardKeys,
}

impl Theme {
    pub fn new(name: ThemeName) -> Theme {
        Theme { name, ..Theme::default() }
    }

    /// The screen-reader mode.
    pub fn screen_reader() -> Theme {
        Theme { name: ThemeName::None, plain: true, ..Theme::default() }
    }

    /// Returns the base style of the screen. Themes with their own colours set the background.
    pub fn base_style(&self) -> Style {
        match self.name {
            ThemeName::Terminal | ThemeName::None => Style::new(),
            ThemeName::Dark => Style::new().fg(DARK.text).bg(DARK.background),
            ThemeName::Light => Style::new().fg(LIGHT.text).bg(LIGHT.background),
            ThemeName::Contrast => Style::new().fg(CONTRAST.text).bg(CONTRAST.background),
        }
    }

    pub fn role_style(&self, role: StyleRole) -> Style {
        match self.name {
            ThemeName::Terminal => terminal_style(role),
            ThemeName::Dark => palette_style(role, &DARK),
            ThemeName::Light => palette_style(role, &LIGHT),
            ThemeName::Contrast => palette_style(role, &CONTRAST).add_modifier(contrast_modifier(role)),
            ThemeName::None => colourless_style(role),
        }
    }

    /// Returns whether to show the colours of command output.
    pub fn shows_output_colours(&self) -> bool {
        self.name != ThemeName::None
    }
}

fn terminal_style(role: StyleRole) -> Style {
    let style = Style::new();
    match role {
        StyleRole::Text => style,
        // Not colour 8, which is the background in some palettes.
        StyleRole::Dim | StyleRole::Comment | StyleRole::Border => style.add_modifier(Modifier::DIM),
        StyleRole::Accent | StyleRole::Link | StyleRole::Type => style.fg(Color::Cyan),
        StyleRole::User => style.fg(Color::Blue).add_modifier(Modifier::BOLD),
        StyleRole::Heading => style.add_modifier(Modifier::BOLD),
        StyleRole::Quote => style.add_modifier(Modifier::ITALIC),
        StyleRole::Code | StyleRole::Function => style.fg(Color::Blue),
        StyleRole::Added | StyleRole::Good | StyleRole::Literal => style.fg(Color::Green),
        StyleRole::Removed | StyleRole::Error => style.fg(Color::Red),
        StyleRole::AddedWord => style.fg(Color::Green).add_modifier(Modifier::REVERSED),
        StyleRole::RemovedWord => style.fg(Color::Red).add_modifier(Modifier::REVERSED),
        StyleRole::Warn | StyleRole::Number => style.fg(Color::Yellow),
        StyleRole::Key => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
        StyleRole::Selected => style.add_modifier(Modifier::REVERSED),
        StyleRole::Keyword => style.fg(Color::Magenta),
    }
}

fn colourless_style(role: StyleRole) -> Style {
    let style = Style::new();
    match role {
        StyleRole::Text
        | StyleRole::Dim
        | StyleRole::Comment
        | StyleRole::Border
        | StyleRole::Type
        | StyleRole::Code
        | StyleRole::Function
        | StyleRole::Added
        | StyleRole::Removed
        | StyleRole::Good
        | StyleRole::Literal
        | StyleRole::Number
        | StyleRole::Keyword
        | StyleRole::Quote => style,
        StyleRole::Accent | StyleRole::User | StyleRole::Heading | StyleRole::Warn | StyleRole::Key => {
            style.add_modifier(Modifier::BOLD)
        }
        StyleRole::Link => style.add_modifier(Modifier::UNDERLINED),
        StyleRole::AddedWord | StyleRole::RemovedWord | StyleRole::Error => {
            style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        }
        StyleRole::Selected => style.add_modifier(Modifier::REVERSED),
    }
}

/// Returns the text attributes with which the high-contrast theme expresses a role.
fn contrast_modifier(role: StyleRole) -> Modifier {
    match role {
        StyleRole::Error | StyleRole::Warn | StyleRole::Keyword | StyleRole::Accent => Modifier::BOLD,
        StyleRole::Link => Modifier::UNDERLINED,
        StyleRole::Text
        | StyleRole::Dim
        | StyleRole::Comment
        | StyleRole::Border
        | StyleRole::Type
        | StyleRole::Code
        | StyleRole::Function
        | StyleRole::Added
        | StyleRole::Removed
        | StyleRole::Good
        | StyleRole::Literal
        | StyleRole::Number
        | StyleRole::Quote
        | StyleRole::User
        | StyleRole::Heading
        | StyleRole::Key
        | StyleRole::AddedWord
        | StyleRole::RemovedWord
        | StyleRole::Selected => Modifier::empty(),
    }
}

/// The colours of a theme.
struct ThemePalette {
    background: Color,
    text: Color,
    dim: Color,
    accent: Color,
    user: Color,
    code: Color,
    added: Color,
    removed: Color,
    added_word: (Color, Color),
    removed_word: (Color, Color),
    warn: Color,
    error: Color,
    keyword: Color,
    literal: Color,
    number: Color,
    selected: (Color, Color),
}

const fn rgb_color(hex: u32) -> Color {
    Color::Rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const DARK: ThemePalette = ThemePalette {
    background: rgb_color(0x1b1f27),
    text: rgb_color(0xd8dee9),
    dim: rgb_color(0x7b8494),
    accent: rgb_color(0x7fc8d8),
    user: rgb_color(0x8fb8f0),
    code: rgb_color(0x9ecbff),
    added: rgb_color(0x8fd19e),
    removed: rgb_color(0xf08f8f),
    added_word: (rgb_color(0x10240f), rgb_color(0x8fd19e)),
    removed_word: (rgb_color(0x2b0d0d), rgb_color(0xf08f8f)),
    warn: rgb_color(0xe8c07a),
    error: rgb_color(0xff7b7b),
    keyword: rgb_color(0xcba6f7),
    literal: rgb_color(0xa6d189),
    number: rgb_color(0xefb080),
    selected: (rgb_color(0xffffff), rgb_color(0x34405a)),
};

const LIGHT: ThemePalette = ThemePalette {
    background: rgb_color(0xffffff),
    text: rgb_color(0x24292f),
    dim: rgb_color(0x6a737d),
    accent: rgb_color(0x0b6b7d),
    user: rgb_color(0x0b4fb3),
    code: rgb_color(0x0550ae),
    added: rgb_color(0x116329),
    removed: rgb_color(0xa40e26),
    added_word: (rgb_color(0x0a3d18), rgb_color(0xaceebb)),
    removed_word: (rgb_color(0x6b0a18), rgb_color(0xffcecb)),
    warn: rgb_color(0x8a5a00),
    error: rgb_color(0xc11d2e),
    keyword: rgb_color(0x8250df),
    literal: rgb_color(0x116329),
    number: rgb_color(0x953800),
    selected: (rgb_color(0x000000), rgb_color(0xcfe2ff)),
};

const CONTRAST: ThemePalette = ThemePalette {
    background: rgb_color(0x000000),
    text: rgb_color(0xffffff),
    dim: rgb_color(0xd0d0d0),
    accent: rgb_color(0x00ffff),
    user: rgb_color(0x6fb7ff),
    code: rgb_color(0x9fd0ff),
    added: rgb_color(0x00ff5f),
    removed: rgb_color(0xff8f8f),
    added_word: (rgb_color(0x000000), rgb_color(0x00ff5f)),
    removed_word: (rgb_color(0x000000), rgb_color(0xff8f8f)),
    warn: rgb_color(0xffff00),
    error: rgb_color(0xff6f6f),
    keyword: rgb_color(0xff9fff),
    literal: rgb_color(0x00ff5f),
    number: rgb_color(0xffd75f),
    selected: (rgb_color(0x000000), rgb_color(0xffff00)),
};

fn palette_style(role: StyleRole, p: &ThemePalette) -> Style {
    let style = Style::new();
    let pair = |(fg, bg): (Color, Color)| style.fg(fg).bg(bg);
    match role {
        StyleRole::Text => style.fg(p.text),
        StyleRole::Dim | StyleRole::Comment | StyleRole::Border => style.fg(p.dim),
        StyleRole::Accent | StyleRole::Link | StyleRole::Type => style.fg(p.accent),
        StyleRole::User => style.fg(p.user).add_modifier(Modifier::BOLD),
        StyleRole::Heading => style.fg(p.text).add_modifier(Modifier::BOLD),
        StyleRole::Quote => style.fg(p.text).add_modifier(Modifier::ITALIC),
        StyleRole::Code | StyleRole::Function => style.fg(p.code),
        StyleRole::Added | StyleRole::Good => style.fg(p.added),
        StyleRole::Removed => style.fg(p.removed),
        StyleRole::AddedWord => pair(p.added_word),
        StyleRole::RemovedWord => pair(p.removed_word),
        StyleRole::Warn => style.fg(p.warn),
        StyleRole::Error => style.fg(p.error),
        StyleRole::Key => style.fg(p.accent).add_modifier(Modifier::BOLD),
        StyleRole::Selected => pair(p.selected),
        StyleRole::Keyword => style.fg(p.keyword),
        StyleRole::Literal => style.fg(p.literal),
        StyleRole::Number => style.fg(p.number),
    }
}
