//! Parsing shell lines: tables by feature and by published bypass, the fixtures, 100,000 mutated lines, and
//! the speed. `shell_bash` compares with a real bash.

#![expect(clippy::disallowed_methods, reason = "the test measures time")]

use std::time::Instant;

use minke_policy::shell::{self, MAX_COMMANDS, MAX_LINE_BYTES, ShellLine, ShellWord};
use serde_json::Value;

const FEATURES: &str = include_str!("data/shell-features.txt");
const BYPASSES: &str = include_str!("data/shell-bypasses.txt");
const POLICY: &str = include_str!("data/shell-policy.json");
const CORPUS: &str = include_str!("data/shell-corpus.json");

/// The number of mutated lines.
const MUTATED_LINES: usize = 100_000;
/// The lines per second that a release build must parse.
const MIN_LINES_PER_SECOND: f64 = 10_000.0;

/// A row of a table: the line, and the expected result.
struct ShellTableRow {
    feature: &'static str,
    line: String,
    expected: &'static str,
}

fn parse_table(table: &'static str) -> Vec<ShellTableRow> {
    let mut feature = "";
    let mut written = None;
    let mut rows = Vec::new();
    for text in table.lines() {
        if let Some(name) = text.strip_prefix("## ") {
            feature = name;
        } else if let Some(expected) = text.strip_prefix("  ") {
            let line = unescape(written.take().expect("a line precedes its expected result"));
            rows.push(ShellTableRow { feature, line, expected });
        } else if !text.is_empty() {
            assert!(written.replace(text).is_none(), "no result is expected for the line before {text}");
        }
    }
    assert!(written.is_none());
    rows
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next().expect("a character follows the backslash") {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '0' => out.push('\0'),
            'u' => {
                let hex: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                let number = u32::from_str_radix(&hex, 16).expect("a number in base 16");
                out.push(char::from_u32(number).expect("a character"));
            }
            c => out.push(c),
        }
    }
    out
}

fn describe_line(line: &ShellLine) -> String {
    let commands: Vec<String> = line
        .commands
        .iter()
        .map(|command| {
            let mark = if command.opaque_reason.is_some() { "~ " } else { "" };
            format!("{mark}{}", command.display_text())
        })
        .collect();
    let sure = if line.uncertain_reason.is_some() { "unsure" } else { "sure  " };
    format!("{sure} {}", commands.join(" ▸ "))
}

fn check_table(table: &'static str) -> Vec<ShellTableRow> {
    let rows = parse_table(table);
    let mut wrong = String::new();
    for row in &rows {
        let described = describe_line(&shell::parse_shell_line(&row.line));
        if described.trim_end() != row.expected.trim_end() {
            wrong.push_str(&format!(
                "[{}] {:?}\n  is   {described}\n  not  {}\n",
                row.feature, row.line, row.expected
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    rows
}

#[test]
fn each_feature_is_read_as_its_table_says() {
    let rows = check_table(FEATURES);
    let mut features: Vec<&str> = rows.iter().map(|row| row.feature).collect();
    features.dedup();
    for feature in &features {
        let lines = rows.iter().filter(|row| row.feature == *feature).count();
        assert!(lines >= 10, "{feature} has only {lines} lines");
    }
    assert!(features.len() >= 25, "only {} features", features.len());
    eprintln!("{} features, {} lines", features.len(), rows.len());
}

#[test]
fn published_bypasses_show_what_they_hide() {
    let rows = check_table(BYPASSES);
    for row in rows {
        let read = shell::parse_shell_line(&row.line);
        // A hidden command must be visible in some way: as a removal, or as an unknown command.
        let removes = read.commands.iter().any(|command| command.program_name() == Some("rm"));
        let opaque = read.commands.iter().any(|command| command.opaque_reason.is_some());
        let plain = row.feature.starts_with("only the first")
            || row.line.starts_with("echo ")
            || !row.line.contains("rm");
        assert!(
            removes || opaque || read.uncertain_reason.is_some() || plain,
            "{:?} looks harmless",
            row.line
        );
    }
}

#[test]
fn fixtures_show_at_least_the_commands_that_were_found_in_them() {
    for (name, text) in [("policy", POLICY), ("corpus", CORPUS)] {
        let fixtures: Vec<Value> = serde_json::from_str(text).expect("the fixture is JSON");
        let mut sure = 0;
        for row in &fixtures {
            let line = row["command"].as_str().expect("a line");
            let read = shell::parse_shell_line(line);
            sure += usize::from(read.uncertain_reason.is_none());
            let malformed = row["bash_syntax_ok"] == false || row["effect"] == "malformed";
            assert!(!malformed || read.uncertain_reason.is_some(), "{name}: malformed and sure: {line:?}");
            if row["tree_sitter_error"] == true || row["bash_syntax_ok"] == false {
                continue;
            }
            for wanted in row["commands"].as_array().expect("commands").iter().filter_map(Value::as_str) {
                let seen = read.commands.iter().any(|command| is_same_name(command.words.first(), wanted));
                assert!(
                    seen || read.uncertain_reason.is_some(),
                    "{name}: {wanted:?} is missing in {:?} of {line:?}",
                    read.command_texts()
                );
            }
        }
        eprintln!("{name}: {} lines, {sure} sure", fixtures.len());
        assert!(sure * 2 > fixtures.len(), "{name}: only {sure} are sure");
    }
}

/// Returns whether a command has the given name, which is written as in the line.
fn is_same_name(word: Option<&ShellWord>, wanted: &str) -> bool {
    match word {
        Some(ShellWord::Unknown { raw, .. }) => raw == wanted,
        Some(ShellWord::Known(name)) => {
            let plain: String = wanted.chars().filter(|c| !"'\"\\".contains(*c)).collect();
            name == wanted
                || *name == plain
                || shell::parse_shell_line(wanted).commands.first().and_then(|c| c.words.first()) == word
        }
        None => false,
    }
}

#[test]
fn a_row_that_is_not_read_only_shows_more_than_reading() {
    let fixtures: Vec<Value> = serde_json::from_str(POLICY).expect("the fixture is JSON");
    let readers =
        ["cat", "ls", "echo", "git", "grep", "head", "tail", "wc", "true", "test", "[", "printf", "cd", ":"];
    for row in fixtures.iter().filter(|row| row["effect"] != "read-only") {
        let line = row["command"].as_str().expect("a line");
        let read = shell::parse_shell_line(line);
        let only_readers = read.commands.iter().all(|command| {
            command.opaque_reason.is_none()
                && command.program_name().is_some_and(|name| readers.contains(&name) && name != "git")
        });
        let harmless = only_readers && read.redirects.is_empty() && read.uncertain_reason.is_none();
        let elsewhere = line.contains("/etc")
            || line.contains("..")
            || line.contains('~')
            || line.contains("$HOME")
            || line.contains("/");
        assert!(!harmless || elsewhere, "{line:?} looks harmless: {:?}", read.command_texts());
    }
}

#[test]
fn bounds_make_a_line_unsure_and_hide_nothing_before_them() {
    let many = format!("{}rm x", "true; ".repeat(60));
    let read = shell::parse_shell_line(&many);
    assert!(read.uncertain_reason.is_none(), "{:?}", read.uncertain_reason);
    assert!(
        read.commands.last().is_some_and(|command| command.program_name() == Some("rm")),
        "the last of 61 is seen"
    );
    let more = format!("rm x; {}", "true; ".repeat(MAX_COMMANDS + 1));
    let read = shell::parse_shell_line(&more);
    assert!(read.uncertain_reason.is_some_and(|reason| reason.contains("commands")));
    assert_eq!(read.commands[0].program_name(), Some("rm"));
    let long = format!("echo {}", "a".repeat(MAX_LINE_BYTES));
    assert!(shell::parse_shell_line(&long).uncertain_reason.is_some_and(|reason| reason.contains("bytes")));
    for deep in [
        format!("{}rm x{}", "echo $(".repeat(500), ")".repeat(500)),
        format!("{}rm x{}", "( ".repeat(500), ")".repeat(500)),
        format!("{}rm x", "sudo ".repeat(50)),
        format!("{}1{}", "$((".repeat(500), "))".repeat(500)),
        format!("echo {}", "${x:-".repeat(5000)),
        "if ".repeat(5000),
        "[[ ".repeat(5000),
        "{ ".repeat(5000),
        "f() ".repeat(5000),
        "\"$(".repeat(5000),
        "`".repeat(5000),
        "coproc ".repeat(5000),
        "function f { ".repeat(5000),
        "case x in x) ".repeat(3000),
        "! ".repeat(5000),
        "time ".repeat(5000),
        "<(".repeat(5000),
        "a=(".repeat(5000),
        "eval ".repeat(5000),
        "cat <<A ".repeat(5000),
    ] {
        let read = shell::parse_shell_line(&deep);
        assert!(read.uncertain_reason.is_some(), "{} is sure", deep.chars().take(30).collect::<String>());
    }
}

/// A deterministic random number generator.
struct LineRng(u64);

impl LineRng {
    fn next_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

fn collect_lines() -> Vec<String> {
    let mut lines: Vec<String> =
        parse_table(FEATURES).into_iter().chain(parse_table(BYPASSES)).map(|row| row.line).collect();
    for text in [POLICY, CORPUS] {
        let fixtures: Vec<Value> = serde_json::from_str(text).expect("the fixture is JSON");
        lines.extend(fixtures.iter().filter_map(|row| row["command"].as_str()).map(str::to_owned));
    }
    lines
}

#[test]
fn spoiled_lines_are_read_without_fault() {
    let lines = collect_lines();
    let odd: Vec<char> = "'\"`$(){}[]<>|&;\\\n\t #!*?=~-+:,@%^/aZ09é日\u{202e}\r\0\u{a0}".chars().collect();
    let mut rng = LineRng(0x5eed_0005);
    let start = Instant::now();
    let mut sure = 0;
    for round in 0..MUTATED_LINES {
        let mut text: Vec<char> = lines[rng.next_below(lines.len())].chars().collect();
        if rng.next_below(3) == 0 {
            let other: Vec<char> = lines[rng.next_below(lines.len())].chars().collect();
            let at = rng.next_below(text.len() + 1);
            text.splice(at..at, other);
        }
        for _ in 0..rng.next_below(5) {
            let at = rng.next_below(text.len() + 1);
            match rng.next_below(3) {
                0 if at < text.len() => drop(text.remove(at)),
                1 if at < text.len() => text[at] = odd[rng.next_below(odd.len())],
                _ => text.insert(at, odd[rng.next_below(odd.len())]),
            }
        }
        let line: String = text.into_iter().collect();
        let read = shell::parse_shell_line(&line);
        if round % 16 == 0 {
            assert_eq!(read, shell::parse_shell_line(&line), "two readings of {line:?} differ");
        }
        assert!(read.commands.len() <= MAX_COMMANDS);
        for shown in read.command_texts() {
            assert!(!shown.chars().any(char::is_control), "{shown:?} of {line:?} does not show as it is");
        }
        if read.uncertain_reason.is_none() {
            sure += 1;
            assert!(!line.contains(['\r', '\0', '\u{202e}']), "{line:?} is sure");
            assert!(
                read.commands
                    .iter()
                    .all(|command| command.words.first().is_some_and(|w| w.as_known().is_some()))
            );
        }
    }
    eprintln!("{MUTATED_LINES} spoiled lines in {:?}, {sure} sure", start.elapsed());
    assert!(sure > MUTATED_LINES / 20);
}

#[test]
fn what_is_shown_reads_as_the_same_words() {
    let mut tried = 0;
    for line in collect_lines() {
        for command in shell::parse_shell_line(&line).commands {
            let plain = |word: &ShellWord| {
                word.as_known().is_some_and(|word| word.chars().all(|c| c.is_ascii() && !c.is_control()))
            };
            if !command.assignments.is_empty() || !command.words.iter().all(plain) {
                continue;
            }
            let bare = shell::ShellCommand { enclosing: Vec::new(), ..command.clone() };
            let shown = bare.display_text();
            if shown.starts_with(|c: char| "[{!".contains(c))
                || matches!(command.program_name(), Some("time" | "coproc" | "fi" | "in"))
            {
                continue;
            }
            let read = shell::parse_shell_line(&shown);
            let same = read.commands.first().is_some_and(|again| again.words == command.words);
            assert!(same, "{shown:?} reads as {:?}", read.commands.first());
            tried += 1;
        }
    }
    assert!(tried > 500, "only {tried} were tried");
}

#[test]
fn ordinary_lines_are_read_fast() {
    let lines: Vec<String> = collect_lines().into_iter().filter(|line| line.len() < 200).collect();
    for line in &lines {
        shell::parse_shell_line(line);
    }
    let start = Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        for line in &lines {
            std::hint::black_box(shell::parse_shell_line(std::hint::black_box(line)));
        }
    }
    let a_second = (rounds * lines.len()) as f64 / start.elapsed().as_secs_f64();
    eprintln!(
        "{a_second:.0} lines a second ({} build)",
        if cfg!(debug_assertions) { "dev" } else { "release" }
    );
    assert!(cfg!(debug_assertions) || a_second >= MIN_LINES_PER_SECOND, "only {a_second:.0} lines a second");
}
