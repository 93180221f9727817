//! Snapshots of whole screens: the text, the cursor position and, optionally, the style of each character.
//! `MINKE_BLESS=1` rewrites them; review the difference before you commit it.
//!
//! Text that differs in every run (random characters of a directory, durations, a spinner) is masked.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tui::screen::{SCREEN_SIZES, SCREEN_TIMEOUT, TuiTerminal};

/// How long a screen must be unchanged before its snapshot is written.
const STABLE_FOR: Duration = Duration::from_millis(700);

/// Whether styles are part of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SnapshotLayers {
    Text,
    Styles,
}

impl TuiTerminal {
    /// Waits until the screen matches its snapshot, at every size.
    #[track_caller]
    pub(crate) fn check_snapshots(&mut self, name: &str) {
        self.check_every_size(name, SnapshotLayers::Text);
    }

    /// The same with styles.
    #[track_caller]
    pub(crate) fn check_colour_snapshots(&mut self, name: &str) {
        self.check_every_size(name, SnapshotLayers::Styles);
    }

    #[track_caller]
    fn check_every_size(&mut self, name: &str, layers: SnapshotLayers) {
        // The first size comes last, so that the test continues with it.
        for (rows, columns) in SCREEN_SIZES.into_iter().rev() {
            self.resize_terminal(rows, columns);
            self.compare_snapshot(name, layers);
        }
    }

    /// The same for a screen with numbers that change with every prompt and tool.
    #[track_caller]
    pub(crate) fn check_masked_snapshots(&mut self, name: &str) {
        self.show_figures = false;
        self.check_snapshots(name);
        self.show_figures = true;
    }

    /// Waits until the screen matches the snapshot of its size.
    #[track_caller]
    pub(crate) fn check_snapshot(&mut self, name: &str) {
        self.compare_snapshot(name, SnapshotLayers::Text);
    }

    /// The same with styles.
    #[track_caller]
    pub(crate) fn check_colour_snapshot(&mut self, name: &str) {
        self.compare_snapshot(name, SnapshotLayers::Styles);
    }

    #[track_caller]
    fn compare_snapshot(&mut self, name: &str, layers: SnapshotLayers) {
        let (rows, columns) = self.screen_size();
        let file = snapshot_dir().join(format!("{name}.{columns}x{rows}.txt"));
        if std::env::var_os("MINKE_BLESS").is_some() {
            let shown = self.wait_until_stable(layers);
            std::fs::create_dir_all(snapshot_dir()).unwrap();
            std::fs::write(&file, shown).unwrap();
            return;
        }
        if !is_namespaces_backend(name) {
            return;
        }
        let kept = std::fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
        let until = Instant::now() + SCREEN_TIMEOUT;
        loop {
            let shown = self.render_layers(layers);
            if shown == kept {
                return;
            }
            let going = self.pty.read_output();
            if Instant::now() >= until || !going {
                let shown = self.render_layers(layers);
                assert!(shown == kept, "{}", describe_difference(&file.display().to_string(), &kept, &shown));
                return;
            }
        }
    }

    /// Returns the screen when it no longer changes.
    fn wait_until_stable(&mut self, layers: SnapshotLayers) -> String {
        let until = Instant::now() + SCREEN_TIMEOUT;
        let mut shown = self.render_layers(layers);
        let mut since = Instant::now();
        while since.elapsed() < STABLE_FOR && Instant::now() < until {
            self.pty.read_output();
            let now = self.render_layers(layers);
            if now != shown {
                (shown, since) = (now, Instant::now());
            }
        }
        shown
    }

    fn render_layers(&mut self, layers: SnapshotLayers) -> String {
        self.parse_output();
        let figures = self.show_figures;
        let screen = self.screen_parser().screen();
        let mut rows = screen_cells(screen);
        for row in &mut rows {
            mask_figures(row);
            if !figures {
                mask_numbers(row);
            }
        }
        let mut out = cells_text(&rows);
        if layers == SnapshotLayers::Styles {
            out.push_str(&style_map(&rows));
        }
        let (row, column) = screen.cursor_position();
        out.push_str(&match screen.hide_cursor() {
            true => "[no cursor]\n".to_owned(),
            false => format!("[cursor in line {}, column {}]\n", row + 1, column + 1),
        });
        out
    }
}

fn snapshot_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/screens")
}

/// Returns both versions, and the first line that differs.
fn describe_difference(name: &str, kept: &str, shown: &str) -> String {
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

/// One character on the screen; a wide one takes two columns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SnapshotCell {
    text: String,
    wide: bool,
    style: String,
}

fn screen_cells(screen: &vt100::Screen) -> Vec<Vec<SnapshotCell>> {
    let (rows, columns) = screen.size();
    let letter = |cell: &vt100::Cell| SnapshotCell {
        text: if cell.contents().is_empty() { " ".to_owned() } else { cell.contents().to_owned() },
        wide: cell.is_wide(),
        style: cell_style(cell),
    };
    let row = |row: u16| {
        let cells = (0..columns.get()).filter_map(|column| screen.cell(row, column));
        cells.filter(|cell| !cell.is_wide_continuation()).map(letter).collect()
    };
    (0..rows.get()).map(row).collect()
}

/// Returns `bold blue on #ffffff`; empty for the terminal's default.
fn cell_style(cell: &vt100::Cell) -> String {
    let marks = [
        (cell.bold(), "bold"),
        (cell.dim(), "dim"),
        (cell.italic(), "italic"),
        (cell.underline(), "underlined"),
        (cell.inverse(), "reversed"),
    ];
    let mut words: Vec<String> =
        marks.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()).collect();
    words.extend(colour_name(cell.fgcolor()));
    words.extend(colour_name(cell.bgcolor()).map(|ground| format!("on {ground}")));
    words.join(" ")
}

fn colour_name(colour: vt100::Color) -> Option<String> {
    const COLOUR_NAMES: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(number) => Some(match COLOUR_NAMES.get(usize::from(number)) {
            Some(name) => (*name).to_owned(),
            None => format!("colour {number}"),
        }),
        vt100::Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

fn cells_text(rows: &[Vec<SnapshotCell>]) -> String {
    let line = |row: &Vec<SnapshotCell>| {
        let text: String = row.iter().map(|letter| letter.text.as_str()).collect();
        text.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns a map of the same size with a sign for each style, and a legend. The most frequent style is a
/// blank.
fn style_map(rows: &[Vec<SnapshotCell>]) -> String {
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

/// Prefix of a world's directory, and the number of random characters after it.
const WORLD_DIR_PREFIX: &str = "/minke-";
const WORLD_DIR_SUFFIX_CHARS: usize = 6;

/// Masks of varying text: `9` replaces a number. The first match is used.
const FIGURE_MASKS: [(&str, &str); 9] = [
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

fn mask_figures(row: &mut Vec<SnapshotCell>) {
    mask_world_dir(row);
    for (pattern, instead) in FIGURE_MASKS {
        apply_mask(row, pattern, instead);
    }
}

/// Masks the random characters of a world's directory, also when they are cut off.
fn mask_world_dir(row: &mut [SnapshotCell]) {
    let mut at = 0;
    while let Some(long) = row.get(at..).and_then(|rest| {
        (0..rest.len()).find(|from| match_pattern(&rest[*from..], WORLD_DIR_PREFIX).is_some())
    }) {
        at += long + WORLD_DIR_PREFIX.len();
        let own = row[at..].iter_mut().take(WORLD_DIR_SUFFIX_CHARS);
        let is_own = |letter: &&mut SnapshotCell| letter.text.chars().all(|c| c.is_ascii_alphanumeric());
        own.take_while(is_own).for_each(|letter| letter.text = "#".to_owned());
    }
}

/// Masks numbers, keeping their width; a bar gets the shortest length.
fn mask_numbers(row: &mut [SnapshotCell]) {
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

fn apply_mask(row: &mut Vec<SnapshotCell>, pattern: &str, instead: &str) {
    let mut at = 0;
    while at < row.len() {
        let Some(long) = match_pattern(&row[at..], pattern) else {
            at += 1;
            continue;
        };
        let new: Vec<char> = instead.chars().collect();
        let model = row[at].clone();
        let letter = |text: char| SnapshotCell { text: text.to_string(), ..model.clone() };
        // In a table, the text behind keeps its column; at the right edge, it moves.
        let gap = vec![letter(' '); long.saturating_sub(new.len())];
        let behind = row.get(at + long).is_some_and(|next| next.text == " ");
        let told: Vec<SnapshotCell> = new.iter().map(|text| letter(*text)).collect();
        let is_time = instead == "now";
        let put: Vec<SnapshotCell> = match (is_time, behind) {
            (true, true) => told.into_iter().chain(gap).collect(),
            (true, false) => gap.into_iter().chain(told).collect(),
            (false, _) => told,
        };
        let many = put.len();
        row.splice(at..at + long, put);
        at += many;
    }
}

/// Returns the number of characters that the pattern matches.
fn match_pattern(row: &[SnapshotCell], pattern: &str) -> Option<usize> {
    let is_digit = |letter: &SnapshotCell| letter.text.chars().all(|c| c.is_ascii_digit());
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
        include_str!("panes.rs"),
        include_str!("child_pods.rs"),
        include_str!("navigation.rs"),
        include_str!("conversation.rs"),
        include_str!("turns.rs"),
        include_str!("views.rs"),
    ];
    for file in std::fs::read_dir(snapshot_dir()).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = file.split('.').next().unwrap_or_default();
        let quoted = format!("\"{name}\"");
        assert!(tests.iter().any(|test| test.contains(&quoted)), "no test uses the snapshot {file}");
    }
}

/// Snapshots name the sandbox and its effects. With another backend they are skipped with a message.
fn is_namespaces_backend(picture: &str) -> bool {
    static BACKEND: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        let helper = minke_exec::sandbox::HelperBinary::from_path(env!("CARGO_BIN_EXE_minke"));
        minke_exec::probe::best_backend_with(&helper).as_str().to_owned()
    });
    if backend != "namespaces" {
        assert!(
            std::env::var_os("MINKE_NO_SKIP").is_none(),
            "{picture} needs the sandbox backend `namespaces`, this is {backend}"
        );
        eprintln!(
            "SKIPPED: the snapshot {picture}: the sandbox is {backend}, and that of the snapshots namespaces"
        );
    }
    backend == "namespaces"
}
