//! Theme: what each thing on the screen is, by name, and how it looks.
//!
//! Whoever draws says a role and never a colour. `terminal` uses only the sixteen colours that the person's own
//! terminal has; `none` uses no colour at all, so nothing may be told by colour alone.

use ratatui::style::{Color, Modifier, Style};

use super::card::CardKeys;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Text,
    /// Less important than the text around it.
    Dim,
    Accent,
    /// What a person said.
    User,
    Heading,
    Link,
    Quote,
    /// Code inside of a sentence, commands.
    Code,
    Added,
    Removed,
    /// The words that differ, inside of a line that differs.
    AddedWord,
    RemovedWord,
    Good,
    Warn,
    Error,
    Key,
    /// The row or the card that has the focus.
    Selected,
    Border,
    Keyword,
    Literal,
    Number,
    Comment,
    Function,
    Type,
}

/// The themes a person can choose.
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

    pub fn named(name: &str) -> Option<ThemeName> {
        ThemeName::ALL.into_iter().find(|theme| theme.as_str() == name)
    }
}

/// A theme: roles to styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Theme {
    pub name: ThemeName,
    /// For screen readers: labelled lines, no frames, no marks that are read aloud for nothing.
    pub plain: bool,
    /// The keys that cards name.
    pub keys: CardKeys,
}

impl Theme {
    pub fn new(name: ThemeName) -> Theme {
        Theme { name, ..Theme::default() }
    }

    /// The screen-reader mode.
    pub fn plain() -> Theme {
        Theme { name: ThemeName::None, plain: true, ..Theme::default() }
    }

    /// How the whole screen looks where nothing is said; themes with colours of their own bring their background.
    pub fn base(&self) -> Style {
        match self.name {
            ThemeName::Terminal | ThemeName::None => Style::new(),
            ThemeName::Dark => Style::new().fg(DARK.text).bg(DARK.ground),
            ThemeName::Light => Style::new().fg(LIGHT.text).bg(LIGHT.ground),
            ThemeName::Contrast => Style::new().fg(CONTRAST.text).bg(CONTRAST.ground),
        }
    }

    pub fn style(&self, role: Role) -> Style {
        match self.name {
            ThemeName::Terminal => terminal(role),
            ThemeName::Dark => coloured(role, &DARK),
            ThemeName::Light => coloured(role, &LIGHT),
            ThemeName::Contrast => coloured(role, &CONTRAST).add_modifier(loud(role)),
            ThemeName::None => colourless(role),
        }
    }

    /// Whether colours of a command's own output may be shown.
    pub fn keeps_colours(&self) -> bool {
        self.name != ThemeName::None
    }
}

fn terminal(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Text => style,
        // Not the eighth colour: palettes exist in which that is the background.
        Role::Dim | Role::Comment | Role::Border => style.add_modifier(Modifier::DIM),
        Role::Accent | Role::Link | Role::Type => style.fg(Color::Cyan),
        Role::User => style.fg(Color::Blue).add_modifier(Modifier::BOLD),
        Role::Heading => style.add_modifier(Modifier::BOLD),
        Role::Quote => style.add_modifier(Modifier::ITALIC),
        Role::Code | Role::Function => style.fg(Color::Blue),
        Role::Added | Role::Good | Role::Literal => style.fg(Color::Green),
        Role::Removed | Role::Error => style.fg(Color::Red),
        Role::AddedWord => style.fg(Color::Green).add_modifier(Modifier::REVERSED),
        Role::RemovedWord => style.fg(Color::Red).add_modifier(Modifier::REVERSED),
        Role::Warn | Role::Number => style.fg(Color::Yellow),
        Role::Key => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
        Role::Selected => style.add_modifier(Modifier::REVERSED),
        Role::Keyword => style.fg(Color::Magenta),
    }
}

fn colourless(role: Role) -> Style {
    let style = Style::new();
    match role {
        Role::Text
        | Role::Dim
        | Role::Comment
        | Role::Border
        | Role::Type
        | Role::Code
        | Role::Function
        | Role::Added
        | Role::Removed
        | Role::Good
        | Role::Literal
        | Role::Number
        | Role::Keyword
        | Role::Quote => style,
        Role::Accent | Role::User | Role::Heading | Role::Warn | Role::Key => {
            style.add_modifier(Modifier::BOLD)
        }
        Role::Link => style.add_modifier(Modifier::UNDERLINED),
        Role::AddedWord | Role::RemovedWord | Role::Error => {
            style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        }
        Role::Selected => style.add_modifier(Modifier::REVERSED),
    }
}

/// High contrast says with weight what others say with a quieter colour.
fn loud(role: Role) -> Modifier {
    match role {
        Role::Error | Role::Warn | Role::Keyword | Role::Accent => Modifier::BOLD,
        Role::Link => Modifier::UNDERLINED,
        Role::Text
        | Role::Dim
        | Role::Comment
        | Role::Border
        | Role::Type
        | Role::Code
        | Role::Function
        | Role::Added
        | Role::Removed
        | Role::Good
        | Role::Literal
        | Role::Number
        | Role::Quote
        | Role::User
        | Role::Heading
        | Role::Key
        | Role::AddedWord
        | Role::RemovedWord
        | Role::Selected => Modifier::empty(),
    }
}

/// The colours of a theme that brings its own.
struct Palette {
    ground: Color,
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

const fn rgb(hex: u32) -> Color {
    Color::Rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const DARK: Palette = Palette {
    ground: rgb(0x1b1f27),
    text: rgb(0xd8dee9),
    dim: rgb(0x7b8494),
    accent: rgb(0x7fc8d8),
    user: rgb(0x8fb8f0),
    code: rgb(0x9ecbff),
    added: rgb(0x8fd19e),
    removed: rgb(0xf08f8f),
    added_word: (rgb(0x10240f), rgb(0x8fd19e)),
    removed_word: (rgb(0x2b0d0d), rgb(0xf08f8f)),
    warn: rgb(0xe8c07a),
    error: rgb(0xff7b7b),
    keyword: rgb(0xcba6f7),
    literal: rgb(0xa6d189),
    number: rgb(0xefb080),
    selected: (rgb(0xffffff), rgb(0x34405a)),
};

const LIGHT: Palette = Palette {
    ground: rgb(0xffffff),
    text: rgb(0x24292f),
    dim: rgb(0x6a737d),
    accent: rgb(0x0b6b7d),
    user: rgb(0x0b4fb3),
    code: rgb(0x0550ae),
    added: rgb(0x116329),
    removed: rgb(0xa40e26),
    added_word: (rgb(0x0a3d18), rgb(0xaceebb)),
    removed_word: (rgb(0x6b0a18), rgb(0xffcecb)),
    warn: rgb(0x8a5a00),
    error: rgb(0xc11d2e),
    keyword: rgb(0x8250df),
    literal: rgb(0x116329),
    number: rgb(0x953800),
    selected: (rgb(0x000000), rgb(0xcfe2ff)),
};

const CONTRAST: Palette = Palette {
    ground: rgb(0x000000),
    text: rgb(0xffffff),
    dim: rgb(0xd0d0d0),
    accent: rgb(0x00ffff),
    user: rgb(0x6fb7ff),
    code: rgb(0x9fd0ff),
    added: rgb(0x00ff5f),
    removed: rgb(0xff8f8f),
    added_word: (rgb(0x000000), rgb(0x00ff5f)),
    removed_word: (rgb(0x000000), rgb(0xff8f8f)),
    warn: rgb(0xffff00),
    error: rgb(0xff6f6f),
    keyword: rgb(0xff9fff),
    literal: rgb(0x00ff5f),
    number: rgb(0xffd75f),
    selected: (rgb(0x000000), rgb(0xffff00)),
};

fn coloured(role: Role, p: &Palette) -> Style {
    let style = Style::new();
    let pair = |(fg, bg): (Color, Color)| style.fg(fg).bg(bg);
    match role {
        Role::Text => style.fg(p.text),
        Role::Dim | Role::Comment | Role::Border => style.fg(p.dim),
        Role::Accent | Role::Link | Role::Type => style.fg(p.accent),
        Role::User => style.fg(p.user).add_modifier(Modifier::BOLD),
        Role::Heading => style.fg(p.text).add_modifier(Modifier::BOLD),
        Role::Quote => style.fg(p.text).add_modifier(Modifier::ITALIC),
        Role::Code | Role::Function => style.fg(p.code),
        Role::Added | Role::Good => style.fg(p.added),
        Role::Removed => style.fg(p.removed),
        Role::AddedWord => pair(p.added_word),
        Role::RemovedWord => pair(p.removed_word),
        Role::Warn => style.fg(p.warn),
        Role::Error => style.fg(p.error),
        Role::Key => style.fg(p.accent).add_modifier(Modifier::BOLD),
        Role::Selected => pair(p.selected),
        Role::Keyword => style.fg(p.keyword),
        Role::Literal => style.fg(p.literal),
        Role::Number => style.fg(p.number),
    }
}
