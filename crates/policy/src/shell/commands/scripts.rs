//! Scripts: finds the words of a shell line that name files it would run, so that an approval can cover their
//! content.
//!
//! This module works on words only and resolves them against every directory that the line may be in. The
//! driver finds the existing files and reads them. A path that names no file has no effect, and one file too
//! many costs one more approval request; a missed file would run unseen. So every word in the place of a
//! program or script is a candidate in each directory. Files that a script itself loads, or that a build tool
//! compiles, are not searched.
//! Invariant: `every_way_to_name_a_script_names_it` in tests/scripts.rs.

use super::super::{ShellCommand, ShellLine, ShellWord, base_name, parse_shell_line};

/// The maximum number of directories that are tracked for a line.
const MAX_DIRECTORIES: usize = 16;
/// The maximum number of candidates of a line; with more its scripts are unknown.
const MAX_CANDIDATES: usize = 2_048;

/// The files that a line may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptFiles {
    /// Absolute paths in the place of a program, a script or a file that a runner reads automatically.
    pub named: Vec<String>,
    /// Absolute paths of other words: they count if the file is executable.
    pub possible: Vec<String>,
    /// Names without a directory, to be looked up in `PATH`.
    pub programs: Vec<String>,
    /// Words in the place of a program or script that are known only at run time.
    pub unknown: Vec<String>,
}

/// The names of interpreters; a version may follow.
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
/// Runners with the files that they read automatically from their directory.
const RUNNER_FILES: [(&str, &[&str]); 17] = [
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
/// Options that name the working directory of a program.
const DIRECTORY_OPTIONS: [&str; 7] =
    ["-C", "--directory", "--prefix", "--cwd", "--chdir", "--dir", "--working-directory"];
/// Suffixes for arguments of interpreters that are a directory or a module instead of a file.
const ENTRY_SUFFIXES: [&str; 5] = ["/__main__.py", "/index.js", ".js", ".py", ".sh"];

/// Returns the files that a line may run.
pub fn find_scripts(line: &str, cwd: &str) -> ScriptFiles {
    let line_read = parse_shell_line(line);
    let mut search = ScriptSearch {
        dirs: vec![cwd.to_owned()],
        directory_unknown: false,
        has_relative: false,
        is_full: false,
        files: ScriptFiles::default(),
    };
    for command in &line_read.commands {
        search.follow_directories(command);
    }
    for command in &line_read.commands {
        search.scan_command(command);
    }
    search.scan_input(&line_read);
    if line_read.uncertain_reason.is_some() {
        // The parser gave up, so any part of the text may name a script.
        let parts = line.split(|c: char| c.is_whitespace() || "'\"`$(){}[];|&<>=,:".contains(c));
        parts.for_each(|part| search.add_named(part, true));
    }
    search.finish()
}

struct ScriptSearch {
    /// The directories that the line may be in.
    dirs: Vec<String>,
    /// The line may also be in an unknown directory.
    directory_unknown: bool,
    /// A word in the place of a script is relative.
    has_relative: bool,
    /// The limit of candidates was reached.
    is_full: bool,
    files: ScriptFiles,
}

impl ScriptSearch {
    /// Records the directories that a command changes into, or that its program changes into.
    fn follow_directories(&mut self, command: &ShellCommand) {
        let enters = matches!(command.program_name(), Some("cd" | "pushd" | "chdir" | "popd"));
        let mut option = enters;
        for word in command.words.iter().skip(1) {
            match word {
                ShellWord::Known(word) if DIRECTORY_OPTIONS.contains(&word.as_str()) => option = true,
                ShellWord::Known(word) if word.starts_with('-') => {
                    if let Some((name, dir)) = word.split_once('=')
                        && DIRECTORY_OPTIONS.contains(&name)
                    {
                        self.enter_directory(dir);
                    }
                }
                ShellWord::Known(word) if option => {
                    self.enter_directory(word);
                    option = enters;
                }
                ShellWord::Unknown { .. } if option => {
                    self.directory_unknown = true;
                    option = enters;
                }
                ShellWord::Known(_) | ShellWord::Unknown { .. } => {}
            }
        }
        // Without an argument they go to the home or previous directory.
        self.directory_unknown |= enters && command.words.len() < 2;
    }

    fn enter_directory(&mut self, dir: &str) {
        let entered: Vec<String> = self.dirs.iter().map(|from| join_path(from, dir)).collect();
        for dir in entered {
            if !self.dirs.contains(&dir) {
                if self.dirs.len() >= MAX_DIRECTORIES {
                    self.directory_unknown = true;
                    return;
                }
                self.dirs.push(dir);
            }
        }
    }

    fn scan_command(&mut self, command: &ShellCommand) {
        for value in command.assignments.iter().filter_map(|(_, value)| value.as_known()) {
            // `BASH_ENV`, `LD_PRELOAD`, `NODE_OPTIONS` …: any part may be a file.
            value.split([' ', ':', '=', ',']).for_each(|part| self.add_named(part, true));
        }
        let Some((program, rest)) = command.words.split_first() else { return };
        let Some(name) = program.as_known() else {
            return self.files.unknown.push(program.to_string());
        };
        if name.contains('/') {
            self.add_named(name, false);
        } else if !name.is_empty() {
            self.files.programs.push(name.to_owned());
        }
        let base = base_name(name);
        if is_interpreter(base) {
            self.scan_script_words(base, rest);
        }
        if let Some((_, files)) = RUNNER_FILES.iter().find(|(runner, _)| *runner == base) {
            files.iter().for_each(|file| self.add_named(file, true));
            self.scan_script_words(base, rest);
        }
        for word in rest.iter().filter_map(ShellWord::as_known) {
            word.split([' ', '=', ',', ':', '@']).for_each(|part| self.add_possible(part));
            self.add_possible(word);
        }
    }

    /// Adds the arguments of an interpreter up to its script, which is the first word not after an option.
    /// Values of options count too, because they may be files that are loaded first.
    fn scan_script_words(&mut self, name: &str, words: &[ShellWord]) {
        let mut behind_option = false;
        for word in words {
            let Some(word) = word.as_known() else {
                return self.files.unknown.push(format!("{name} {word}"));
            };
            if let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) {
                if let Some((_, value)) = option.split_once('=') {
                    self.add_script(value);
                }
                // The value may follow its letter directly: `-r./x`.
                if let Some(value) = option.get(1..).filter(|value| value.contains(['/', '.'])) {
                    self.add_script(value);
                }
                behind_option = true;
                continue;
            }
            self.add_script(word);
            // `go run x.go`, `deno run x.ts`: the verb is not a script.
            let verb = !word.contains(['.', '/']) && matches!(name, "go" | "deno" | "bun" | "busybox");
            if !behind_option && !verb {
                return;
            }
            behind_option = false;
        }
    }

    fn add_script(&mut self, word: &str) {
        self.add_named(word, true);
        for entry in ENTRY_SUFFIXES {
            self.add_named(&format!("{}{entry}", word.trim_end_matches('/')), true);
        }
        if word.contains('.') && !word.contains('/') {
            // A Python module.
            let module = word.replace('.', "/");
            self.add_named(&format!("{module}.py"), true);
            self.add_named(&format!("{module}/__main__.py"), true);
        }
    }

    /// Adds the input of shells and interpreters: a file, or the output of other commands of the line.
    fn scan_input(&mut self, line: &ShellLine) {
        let interprets = |command: &ShellCommand| command.program_name().is_some_and(is_interpreter);
        if !line.commands.iter().any(interprets) {
            return;
        }
        for redirect in line.redirects.iter().filter(|redirect| !redirect.writes) {
            match &redirect.target {
                ShellWord::Known(path) => self.add_named(path, true),
                ShellWord::Unknown { raw, .. } => {
                    // In a line that changes its directory a known name counts as unknown.
                    self.add_named(raw, true);
                    if raw.contains(['$', '`', '*', '?', '[', '~']) {
                        self.files.unknown.push(format!("< {raw}"));
                    }
                }
            }
        }
        let fed = |command: &ShellCommand| {
            let operand = |word: &ShellWord| word.as_known().is_none_or(|word| !word.starts_with('-'));
            interprets(command) && !command.words.iter().skip(1).any(operand)
        };
        if line.commands.iter().any(fed) {
            for command in line.commands.iter().filter(|command| !fed(command)) {
                for word in command.words.iter().skip(1) {
                    match word.as_known() {
                        Some(word) => self.add_named(word, true),
                        None => self.files.unknown.push(word.to_string()),
                    }
                }
            }
        }
    }

    /// Adds a path; a bare name counts only where it can be a file of the directory.
    fn add_named(&mut self, word: &str, bare: bool) {
        if !word.is_empty() && (bare || word.contains('/')) && !word.starts_with('-') {
            self.has_relative |= !word.starts_with('/');
            self.add_candidate(word, |files| &mut files.named);
        }
    }

    fn add_possible(&mut self, word: &str) {
        if !word.is_empty() && !word.starts_with('-') {
            self.add_candidate(word, |found| &mut found.possible);
        }
    }

    fn add_candidate(&mut self, word: &str, list: impl Fn(&mut ScriptFiles) -> &mut Vec<String>) {
        if self.is_full || word.contains('\0') {
            return;
        }
        for path in self.dirs.iter().map(|dir| join_path(dir, word)).collect::<Vec<_>>() {
            if self.files.named.len() + self.files.possible.len() >= MAX_CANDIDATES {
                self.is_full = true;
                return;
            }
            let list = list(&mut self.files);
            if !list.contains(&path) {
                list.push(path);
            }
        }
    }

    fn finish(mut self) -> ScriptFiles {
        let files = &mut self.files;
        files.possible.retain(|path| !files.named.contains(path));
        if self.is_full {
            files.unknown.push("… (more words than are checked)".to_owned());
        }
        if self.directory_unknown && self.has_relative {
            files.unknown.push("… (in a directory that is known only at run time)".to_owned());
        }
        for list in [&mut files.programs, &mut files.unknown] {
            list.sort();
            list.dedup();
        }
        self.files
    }
}

/// Returns whether a program runs script files, ignoring a version in its name.
fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let plain = if plain.is_empty() { name } else { plain };
    INTERPRETERS.contains(&plain) || INTERPRETERS.contains(&name)
}

/// Joins paths and removes empty and `.` components. Keeps `..`, because it may follow a symbolic link.
fn join_path(dir: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{dir}/{path}") };
    let parts: Vec<&str> = whole.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    format!("/{}", parts.join("/"))
}
