//! Scripts: which words of a shell line name files that it would run, so that an approval can be bound to their content.
//!
//! Here: words only, resolved against every directory in which the line may stand. Elsewhere: which of the paths are
//! files, and their content (the driver).
//! A path that names no file costs nothing, and a file too many costs one more question; a file that is missed would run
//! unseen. So every word in the place of a program or script is a candidate, in each directory that the line enters.
//! What a script itself loads, and what a build tool compiles, is not looked for.
//! Invariant: `every_way_to_name_a_script_names_it` in tests/scripts.rs.

use super::{Command, Line, Word, base_name, read};

/// The directories in which a line may stand that are followed.
const DIRS: usize = 16;
/// The candidates of one line at most; a line with more counts as one whose scripts are not known.
const CANDIDATES: usize = 2_048;

/// What a line may run from files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    /// Absolute paths in the place of a program, a script or a file that a runner reads by itself.
    pub named: Vec<String>,
    /// Absolute paths of other words: they count if the file can be executed.
    pub maybe: Vec<String>,
    /// Names without a directory, looked up in `PATH`.
    pub programs: Vec<String>,
    /// Words in the place of a program or script that are known only when the line runs.
    pub unknown: Vec<String>,
}

/// Interpreters by the beginning of their names: a version may follow.
const INTERPRETERS: [&str; 58] = [
    "sh",
    "bash",
    "dash",
    "ash",
    "ksh",
    "mksh",
    "zsh",
    "yash",
    "rbash",
    "fish",
    "csh",
    "tcsh",
    "elvish",
    "nu",
    "xonsh",
    "pwsh",
    "osh",
    "busybox",
    "source",
    ".",
    "python",
    "pypy",
    "ipython",
    "node",
    "nodejs",
    "deno",
    "bun",
    "tsx",
    "ts-node",
    "perl",
    "ruby",
    "irb",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "expect",
    "Rscript",
    "R",
    "julia",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "sed",
    "java",
    "groovy",
    "guile",
    "racket",
    "octave",
    "runghc",
    "elixir",
    "escript",
    "go",
    "bats",
    "gdb",
    "osascript",
];
/// Runners with the files that they read from their directory by themselves.
const RUNNERS: [(&str, &[&str]); 17] = [
    ("make", &["GNUmakefile", "makefile", "Makefile"]),
    ("gmake", &["GNUmakefile", "makefile", "Makefile"]),
    ("bmake", &["BSDmakefile", "makefile", "Makefile"]),
    ("just", &["justfile", ".justfile", "Justfile", "JUSTFILE"]),
    ("task", &["Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml"]),
    ("rake", &["Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb"]),
    ("npm", &["package.json"]),
    ("npx", &["package.json"]),
    ("pnpm", &["package.json"]),
    ("yarn", &["package.json"]),
    ("bun", &["package.json"]),
    ("deno", &["deno.json", "deno.jsonc", "package.json"]),
    ("invoke", &["tasks.py"]),
    ("nox", &["noxfile.py"]),
    ("tox", &["tox.ini", "pyproject.toml"]),
    ("gulp", &["gulpfile.js"]),
    ("grunt", &["Gruntfile.js"]),
];
/// Options that name the directory in which a program works.
const DIRECTORY_OPTIONS: [&str; 7] =
    ["-C", "--directory", "--prefix", "--cwd", "--chdir", "--dir", "--working-directory"];
/// What a word of an interpreter may mean beside the file of that name: a directory or a module with an entry.
const ENTRIES: [&str; 5] = ["/__main__.py", "/index.js", ".js", ".py", ".sh"];

/// The files that a line may run.
pub fn scripts(line: &str, cwd: &str) -> Scripts {
    let line_read = read(line);
    let mut search = Search {
        dirs: vec![cwd.to_owned()],
        lost: false,
        relative: false,
        full: false,
        found: Scripts::default(),
    };
    for command in &line_read.commands {
        search.follow(command);
    }
    for command in &line_read.commands {
        search.command(command);
    }
    search.input(&line_read);
    if line_read.unsure.is_some() {
        // What the reading gave up on is taken apart without it: any part may name what runs.
        let parts = line.split(|c: char| c.is_whitespace() || "'\"`$(){}[];|&<>=,:".contains(c));
        parts.for_each(|part| search.name(part, true));
    }
    search.end()
}

struct Search {
    /// Where the line may stand.
    dirs: Vec<String>,
    /// It may also stand where nobody knows.
    lost: bool,
    /// A word in the place of a script is relative.
    relative: bool,
    /// There were more words than are looked at.
    full: bool,
    found: Scripts,
}

impl Search {
    /// The directories that a command enters, or has its program enter.
    fn follow(&mut self, command: &Command) {
        let enters = matches!(command.name(), Some("cd" | "pushd" | "chdir" | "popd"));
        let mut option = enters;
        for word in command.words.iter().skip(1) {
            match word {
                Word::Known(word) if DIRECTORY_OPTIONS.contains(&word.as_str()) => option = true,
                Word::Known(word) if word.starts_with('-') => {
                    if let Some((name, dir)) = word.split_once('=')
                        && DIRECTORY_OPTIONS.contains(&name)
                    {
                        self.enter(dir);
                    }
                }
                Word::Known(word) if option => {
                    self.enter(word);
                    option = enters;
                }
                Word::Unknown { .. } if option => {
                    self.lost = true;
                    option = enters;
                }
                Word::Known(_) | Word::Unknown { .. } => {}
            }
        }
        // Without a word they go home, or back.
        self.lost |= enters && command.words.len() < 2;
    }

    fn enter(&mut self, dir: &str) {
        let entered: Vec<String> = self.dirs.iter().map(|from| join(from, dir)).collect();
        for dir in entered {
            if !self.dirs.contains(&dir) {
                if self.dirs.len() >= DIRS {
                    self.lost = true;
                    return;
                }
                self.dirs.push(dir);
            }
        }
    }

    fn command(&mut self, command: &Command) {
        for value in command.assignments.iter().filter_map(|(_, value)| value.known()) {
            // `BASH_ENV`, `LD_PRELOAD`, `NODE_OPTIONS` …: a file may be any part of it.
            value.split([' ', ':', '=', ',']).for_each(|part| self.name(part, true));
        }
        let Some((program, rest)) = command.words.split_first() else { return };
        let Some(name) = program.known() else {
            return self.found.unknown.push(program.to_string());
        };
        if name.contains('/') {
            self.name(name, false);
        } else if !name.is_empty() {
            self.found.programs.push(name.to_owned());
        }
        let base = base_name(name);
        if is_interpreter(base) {
            self.script(base, rest);
        }
        if let Some((_, files)) = RUNNERS.iter().find(|(runner, _)| *runner == base) {
            files.iter().for_each(|file| self.name(file, true));
            self.script(base, rest);
        }
        for word in rest.iter().filter_map(Word::known) {
            word.split([' ', '=', ',', ':', '@']).for_each(|part| self.maybe(part));
            self.maybe(word);
        }
    }

    /// The words of an interpreter up to its script: the first that no option stands before. What an option is given
    /// counts, too, since it may be a file that is loaded first.
    fn script(&mut self, name: &str, words: &[Word]) {
        let mut behind_option = false;
        for word in words {
            let Some(word) = word.known() else {
                return self.found.unknown.push(format!("{name} {word}"));
            };
            if let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) {
                if let Some((_, value)) = option.split_once('=') {
                    self.script_named(value);
                }
                // A value may be glued to a letter: `-r./x`.
                if let Some(value) = option.get(1..).filter(|value| value.contains(['/', '.'])) {
                    self.script_named(value);
                }
                behind_option = true;
                continue;
            }
            self.script_named(word);
            // `go run x.go`, `deno run x.ts`: their verb is no script.
            let verb = !word.contains(['.', '/']) && matches!(name, "go" | "deno" | "bun" | "busybox");
            if !behind_option && !verb {
                return;
            }
            behind_option = false;
        }
    }

    fn script_named(&mut self, word: &str) {
        self.name(word, true);
        for entry in ENTRIES {
            self.name(&format!("{}{entry}", word.trim_end_matches('/')), true);
        }
        if word.contains('.') && !word.contains('/') {
            // A module of Python.
            let module = word.replace('.', "/");
            self.name(&format!("{module}.py"), true);
            self.name(&format!("{module}/__main__.py"), true);
        }
    }

    /// What shells and interpreters are given on their input: a file, or what other commands of the line print.
    fn input(&mut self, line: &Line) {
        let interprets = |command: &Command| command.name().is_some_and(is_interpreter);
        if !line.commands.iter().any(interprets) {
            return;
        }
        for redirect in line.redirects.iter().filter(|redirect| !redirect.writes) {
            match &redirect.target {
                Word::Known(path) => self.name(path, true),
                Word::Unknown { raw, .. } => {
                    // In a line that changes its directory a known name counts as unknown.
                    self.name(raw, true);
                    if raw.contains(['$', '`', '*', '?', '[', '~']) {
                        self.found.unknown.push(format!("< {raw}"));
                    }
                }
            }
        }
        let fed = |command: &Command| {
            let operand = |word: &Word| word.known().is_none_or(|word| !word.starts_with('-'));
            interprets(command) && !command.words.iter().skip(1).any(operand)
        };
        if line.commands.iter().any(fed) {
            for command in line.commands.iter().filter(|command| !fed(command)) {
                for word in command.words.iter().skip(1) {
                    match word.known() {
                        Some(word) => self.name(word, true),
                        None => self.found.unknown.push(word.to_string()),
                    }
                }
            }
        }
    }

    /// A path; a bare name counts only where a file of the directory can be meant.
    fn name(&mut self, word: &str, bare: bool) {
        if !word.is_empty() && (bare || word.contains('/')) && !word.starts_with('-') {
            self.relative |= !word.starts_with('/');
            self.add(word, |found| &mut found.named);
        }
    }

    fn maybe(&mut self, word: &str) {
        if !word.is_empty() && !word.starts_with('-') {
            self.add(word, |found| &mut found.maybe);
        }
    }

    fn add(&mut self, word: &str, list: impl Fn(&mut Scripts) -> &mut Vec<String>) {
        if self.full || word.contains('\0') {
            return;
        }
        for path in self.dirs.iter().map(|dir| join(dir, word)).collect::<Vec<_>>() {
            if self.found.named.len() + self.found.maybe.len() >= CANDIDATES {
                self.full = true;
                return;
            }
            let list = list(&mut self.found);
            if !list.contains(&path) {
                list.push(path);
            }
        }
    }

    fn end(mut self) -> Scripts {
        let found = &mut self.found;
        found.maybe.retain(|path| !found.named.contains(path));
        if self.full {
            found.unknown.push("… (more words than are looked at)".to_owned());
        }
        if self.lost && self.relative {
            found.unknown.push("… (in a directory that is known only when the line runs)".to_owned());
        }
        for list in [&mut found.programs, &mut found.unknown] {
            list.sort();
            list.dedup();
        }
        self.found
    }
}

/// Whether a program runs files that it is given, whatever version its name ends with.
fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let plain = if plain.is_empty() { name } else { plain };
    INTERPRETERS.contains(&plain) || INTERPRETERS.contains(&name)
}

/// A path below a directory, without empty and `.` parts. `..` is kept: a link may stand before it.
fn join(dir: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{dir}/{path}") };
    let parts: Vec<&str> = whole.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("/{}", parts.join("/"))
}
