//! Kept pictures of whole screens: what a person would see, letter by letter, where the cursor stands and, if asked for,
//! how each letter looks. `MINKE_BLESS=1` writes them anew; look at the difference before it is committed.
//!
//! What is another at every run (a directory's random letters, how long something took, a spinner) is masked.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tui_screen::{SHOWN_WITHIN, SIZES, Tui};

/// While pictures are written: a screen that has not changed for so long is what is meant.
const STANDS: Duration = Duration::from_millis(700);

/// Whether styles are part of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layers {
    Letters,
    Styles,
}

impl Tui {
    /// At every size the screen becomes the kept picture.
    #[track_caller]
    pub(crate) fn pictures(&mut self, name: &str) {
        self.at_every_size(name, Layers::Letters);
    }

    /// The same with the styles.
    #[track_caller]
    pub(crate) fn coloured_pictures(&mut self, name: &str) {
        self.at_every_size(name, Layers::Styles);
    }

    #[track_caller]
    fn at_every_size(&mut self, name: &str, layers: Layers) {
        // The first comes last, so that the test goes on with a screen that has been seen.
        for (rows, columns) in SIZES.into_iter().rev() {
            self.resize(rows, columns);
            self.compare(name, layers);
        }
    }

    /// The same of what is full of figures that change with every prompt and tool.
    #[track_caller]
    pub(crate) fn pictures_without_figures(&mut self, name: &str) {
        self.figures = false;
        self.pictures(name);
        self.figures = true;
    }

    /// The screen becomes the kept picture of its size.
    #[track_caller]
    pub(crate) fn picture(&mut self, name: &str) {
        self.compare(name, Layers::Letters);
    }

    /// The same with the styles.
    #[track_caller]
    pub(crate) fn coloured_picture(&mut self, name: &str) {
        self.compare(name, Layers::Styles);
    }

    #[track_caller]
    fn compare(&mut self, name: &str, layers: Layers) {
        let (rows, columns) = self.size();
        let file = folder().join(format!("{name}.{columns}x{rows}.txt"));
        if std::env::var_os("MINKE_BLESS").is_some() {
            let shown = self.standing(layers);
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&file, shown).unwrap();
            return;
        }
        if !is_tier_a(name) {
            return;
        }
        let kept = std::fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
        let until = Instant::now() + SHOWN_WITHIN;
        loop {
            let shown = self.shown(layers);
            if shown == kept {
                return;
            }
            let going = self.pty.hear();
            if Instant::now() >= until || !going {
                let shown = self.shown(layers);
                assert!(shown == kept, "{}", difference(&file.display().to_string(), &kept, &shown));
                return;
            }
        }
    }

    /// What is shown when nothing changes any more.
    fn standing(&mut self, layers: Layers) -> String {
        let until = Instant::now() + SHOWN_WITHIN;
        let mut shown = self.shown(layers);
        let mut since = Instant::now();
        while since.elapsed() < STANDS && Instant::now() < until {
            self.pty.hear();
            let now = self.shown(layers);
            if now != shown {
                (shown, since) = (now, Instant::now());
            }
        }
        shown
    }

    fn shown(&mut self, layers: Layers) -> String {
        self.feed();
        let figures = self.figures;
        let screen = self.parser().screen();
        let mut rows = rows(screen);
        for row in &mut rows {
            masked(row);
            if !figures {
                without_figures(row);
            }
        }
        let mut out = letters(&rows);
        if layers == Layers::Styles {
            out.push_str(&styles(&rows));
        }
        let (row, column) = screen.cursor_position();
        out.push_str(&match screen.hide_cursor() {
            true => "[no cursor]\n".to_owned(),
            false => format!("[cursor in line {}, column {}]\n", row + 1, column + 1),
        });
        out
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/screens")
}

/// Both, and the first line in which they differ.
fn difference(name: &str, kept: &str, shown: &str) -> String {
    let same = kept.lines().zip(shown.lines()).take_while(|(kept, shown)| kept == shown).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(nothing)").to_owned();
    format!(
        "{name}: line {} differs\n  kept:  {}\n  shown: {}\n\nkept:\n{kept}\nshown:\n{shown}\nIf it is meant, MINKE_BLESS=1 \
         writes it anew.",
        same + 1,
        line(kept),
        line(shown)
    )
}

/// One letter as it is seen; a wide one takes two columns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Letter {
    text: String,
    wide: bool,
    style: String,
}

fn rows(screen: &vt100::Screen) -> Vec<Vec<Letter>> {
    let (rows, columns) = screen.size();
    let letter = |cell: &vt100::Cell| Letter {
        text: if cell.contents().is_empty() { " ".to_owned() } else { cell.contents().to_owned() },
        wide: cell.is_wide(),
        style: style(cell),
    };
    let row = |row: u16| {
        let cells = (0..columns.get()).filter_map(|column| screen.cell(row, column));
        cells.filter(|cell| !cell.is_wide_continuation()).map(letter).collect()
    };
    (0..rows.get()).map(row).collect()
}

/// `bold blue on #ffffff`; nothing for the terminal's own.
fn style(cell: &vt100::Cell) -> String {
    let marks = [
        (cell.bold(), "bold"),
        (cell.dim(), "dim"),
        (cell.italic(), "italic"),
        (cell.underline(), "underlined"),
        (cell.inverse(), "reversed"),
    ];
    let mut words: Vec<String> =
        marks.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()).collect();
    words.extend(colour(cell.fgcolor()));
    words.extend(colour(cell.bgcolor()).map(|ground| format!("on {ground}")));
    words.join(" ")
}

fn colour(colour: vt100::Color) -> Option<String> {
    const NAMES: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(number) => Some(match NAMES.get(usize::from(number)) {
            Some(name) => (*name).to_owned(),
            None => format!("colour {number}"),
        }),
        vt100::Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

fn letters(rows: &[Vec<Letter>]) -> String {
    let line = |row: &Vec<Letter>| {
        let text: String = row.iter().map(|letter| letter.text.as_str()).collect();
        text.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A map of the same size with a sign for each style, and what the signs mean. The most frequent style is a blank.
fn styles(rows: &[Vec<Letter>]) -> String {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for letter in rows.iter().flatten() {
        match all.iter_mut().find(|(style, _)| *style == letter.style) {
            Some((_, many)) => *many += 1,
            None => all.push((&letter.style, 1)),
        }
    }
    let common = all.iter().rev().max_by_key(|(_, many)| *many).map_or("", |(style, _)| *style);
    let others: Vec<&str> = all.iter().map(|(style, _)| *style).filter(|style| *style != common).collect();
    let sign = |style: &str| {
        let at = others.iter().position(|other| *other == style);
        at.map_or(' ', |at| char::from(b'a' + u8::try_from(at).unwrap_or(25).min(25)))
    };
    let mut out = "[styles]\n".to_owned();
    for row in rows {
        let line: String =
            row.iter().flat_map(|letter| vec![sign(&letter.style); 1 + usize::from(letter.wide)]).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let told =
        |style: &str| if style.is_empty() { "as the terminal is".to_owned() } else { style.to_owned() };
    out.push_str(&format!("[blank] {}\n", told(common)));
    for style in &others {
        out.push_str(&format!("[{}] {}\n", sign(style), told(style)));
    }
    out
}

/// What a world's directory begins with, and how many letters follow.
const OWN: &str = "/minke-";
const OWN_LETTERS: usize = 6;

/// What differs from run to run: `9` stands for a number. The first that fits is taken.
const MASKS: [(&str, &str); 9] = [
    ("again in 9 s", "again in # s"),
    (" 9ms ", " #ms "),
    (" 9.9s ", " #ms "),
    ("9s ago", "now"),
    ("9m ago", "now"),
    ("◐", "◐"),
    ("◓", "◐"),
    ("◑", "◐"),
    ("◒", "◐"),
];

fn masked(row: &mut Vec<Letter>) {
    without_own_letters(row);
    for (pattern, instead) in MASKS {
        mask(row, pattern, instead);
    }
}

/// The letters of a world's directory that no other one has, also where not all of them are seen.
fn without_own_letters(row: &mut [Letter]) {
    let mut at = 0;
    while let Some(long) =
        row.get(at..).and_then(|rest| (0..rest.len()).find(|from| fits(&rest[*from..], OWN).is_some()))
    {
        at += long + OWN.len();
        let own = row[at..].iter_mut().take(OWN_LETTERS);
        let is_own = |letter: &&mut Letter| letter.text.chars().all(|c| c.is_ascii_alphanumeric());
        own.take_while(is_own).for_each(|letter| letter.text = "#".to_owned());
    }
}

/// Numbers are as wide as they were; a bar is as long as the shortest.
fn without_figures(row: &mut [Letter]) {
    if !row.iter().any(|letter| letter.text == "%") {
        return;
    }
    let mut bar = false;
    for letter in row {
        let digit = letter.text.chars().all(|c| c.is_ascii_digit() || c == '.');
        match letter.text.as_str() {
            "█" if bar => letter.text = " ".to_owned(),
            "█" => bar = true,
            _ if digit => letter.text = "#".to_owned(),
            _ => {}
        }
    }
}

fn mask(row: &mut Vec<Letter>, pattern: &str, instead: &str) {
    let mut at = 0;
    while at < row.len() {
        let Some(long) = fits(&row[at..], pattern) else {
            at += 1;
            continue;
        };
        let new: Vec<char> = instead.chars().collect();
        let model = row[at].clone();
        let letter = |text: char| Letter { text: text.to_string(), ..model.clone() };
        // In a table what stands behind stays where it is; at the right edge what stands there does.
        let gap = vec![letter(' '); long.saturating_sub(new.len())];
        let behind = row.get(at + long).is_some_and(|next| next.text == " ");
        let told: Vec<Letter> = new.iter().map(|text| letter(*text)).collect();
        let is_time = instead == "now";
        let put: Vec<Letter> = match (is_time, behind) {
            (true, true) => told.into_iter().chain(gap).collect(),
            (true, false) => gap.into_iter().chain(told).collect(),
            (false, _) => told,
        };
        let many = put.len();
        row.splice(at..at + long, put);
        at += many;
    }
}

/// How many letters of the row the pattern takes.
fn fits(row: &[Letter], pattern: &str) -> Option<usize> {
    let is_digit = |letter: &Letter| letter.text.chars().all(|c| c.is_ascii_digit());
    let mut at = 0;
    for wanted in pattern.chars() {
        let many = match wanted {
            '9' => row[at..].iter().take_while(|letter| is_digit(letter)).count(),
            _ => usize::from(row.get(at).is_some_and(|letter| letter.text == wanted.to_string())),
        };
        if many == 0 {
            return None;
        }
        at += many;
    }
    Some(at)
}

#[test]
fn every_kept_picture_is_looked_for_by_a_test() {
    let tests = [
        include_str!("tui_beside.rs"),
        include_str!("tui_family.rs"),
        include_str!("tui_reach.rs"),
        include_str!("tui_talk.rs"),
        include_str!("tui_turns.rs"),
        include_str!("tui_views.rs"),
    ];
    for file in std::fs::read_dir(folder()).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = file.split('.').next().unwrap_or_default();
        let quoted = format!("\"{name}\"");
        assert!(tests.iter().any(|test| test.contains(&quoted)), "{file} is a picture of nothing");
    }
}

/// Pictures name the fence and what follows from it. Where it is another one they are skipped, visibly.
fn is_tier_a(picture: &str) -> bool {
    static TIER: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let tier = TIER.get_or_init(|| {
        let helper = minke_exec::fence::Helper::at(env!("CARGO_BIN_EXE_minke"));
        minke_exec::probe::best_tier_with(&helper).as_str().to_owned()
    });
    if tier != "A" {
        assert!(
            std::env::var_os("MINKE_NO_SKIP").is_none(),
            "{picture} needs a fence of tier A, this is {tier}"
        );
        eprintln!("SKIPPED: the picture {picture}: the fence is {tier}, and that of the pictures A");
    }
    tier == "A"
}
