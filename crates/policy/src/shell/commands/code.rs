//! Commands whose arguments contain code in another language or name a program to run. Their first words do
//! not determine their effect.

use super::super::ShellWord;
use super::super::effects::CommandEffect;

/// Interpreters, with the options that take inline code.
const INTERPRETER_OPTIONS: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("ipython", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("irb", &["-e"]),
    ("node", &["-e", "--eval", "-p", "--print", "-r", "--require", "--import"]),
    ("nodejs", &["-e", "--eval", "-p", "--print", "-r", "--require"]),
    ("bun", &["-e", "--eval", "-p", "--print"]),
    ("deno", &["eval"]),
    ("php", &["-r", "-B", "-R", "-E", "-d"]),
    ("lua", &["-e", "-l"]),
    ("luajit", &["-e"]),
    ("julia", &["-e", "-E", "--eval"]),
    ("Rscript", &["-e"]),
    ("R", &["-e"]),
    ("tclsh", &[]),
    ("osascript", &["-e"]),
    ("groovy", &["-e"]),
    ("scala", &["-e"]),
    ("ghc", &["-e"]),
    ("swift", &["-e"]),
    ("erl", &["-eval"]),
    ("elixir", &["-e", "--eval"]),
    ("emacs", &["--eval", "-eval", "--execute", "-l", "--load", "-f", "--funcall", "--script"]),
    ("sqlite3", &["-cmd", "-init"]),
    ("psql", &["-c", "-f", "--command"]),
    ("mysql", &["-e", "--execute"]),
    ("gnuplot", &["-e"]),
    ("octave", &["--eval"]),
    ("guile", &["-c"]),
    ("racket", &["-e"]),
    ("sbcl", &["--eval"]),
    ("clojure", &["-e"]),
    ("jshell", &[]),
    ("bc", &[]),
    ("dc", &["-e"]),
    ("m4", &[]),
];

/// Options of other programs that name a program, a command line or a file with settings.
const PROGRAM_OPTIONS: &[(&str, &[&str])] = &[
    (
        "tar",
        &[
            "--to-command",
            "--checkpoint-action",
            "-I",
            "--use-compress-program",
            "-F",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
        ],
    ),
    ("bsdtar", &["--use-compress-program"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("scp", &["-S", "-o", "-F"]),
    ("sftp", &["-S", "-o", "-F", "-b"]),
    ("man", &["-P", "--pager", "-H", "--html"]),
    ("rg", &["--pre", "--hostname-bin"]),
    ("ag", &["--pager"]),
    ("bat", &["--pager"]),
    ("delta", &["--pager"]),
    ("sort", &["--compress-program"]),
    ("split", &["--filter"]),
    ("zip", &["-TT", "--unzip-command"]),
    ("wget", &["--use-askpass", "--execute", "-e", "--config"]),
    ("curl", &["-K", "--config"]),
    ("make", &["--eval", "-E"]),
    ("gmake", &["--eval", "-E"]),
    ("cargo", &["--config"]),
    ("go", &["-exec", "-toolexec", "-vettool", "-overlay"]),
    ("gcc", &["-wrapper", "-B", "-fplugin", "-specs"]),
    ("cc", &["-wrapper", "-B", "-fplugin", "-specs"]),
    ("clang", &["-fplugin", "-load", "-B"]),
    ("rustc", &["-C", "--codegen"]),
    ("npm", &["--script-shell", "--node-options", "--prefix"]),
    ("pip", &["--global-option", "--config-settings", "--index-url", "--extra-index-url"]),
    ("ip", &["-b", "-batch"]),
    ("tcpdump", &["-z"]),
    ("dpkg", &["--pre-invoke", "--post-invoke"]),
    ("apt", &["-o"]),
    ("apt-get", &["-o"]),
    ("jq", &["-L", "-f", "--from-file"]),
    ("hyperfine", &[]),
    ("gh", &["alias"]),
    ("entr", &[]),
    ("chezmoi", &[]),
    ("nix-shell", &["--run", "--command"]),
    ("nix", &["-c", "--command", "--run"]),
    ("vagrant", &["-c"]),
    ("less", &["+", "-k", "--lesskey-file", "-o", "-O", "-p"]),
    ("more", &["+"]),
];

pub(in crate::shell) fn code_effect(name: &str, words: &[ShellWord]) -> Option<CommandEffect> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if let Some((_, options)) =
        INTERPRETER_OPTIONS.iter().find(|(known, _)| *known == name || *known == plain)
    {
        return Some(interpreter_effect(name, options, words));
    }
    Some(match plain {
        "awk" | "gawk" | "mawk" | "nawk" => awk_effect(words),
        "sed" | "gsed" => sed_effect(words),
        "vi" | "vim" | "nvim" | "ex" | "view" | "ed" | "nano" | "emacsclient" | "gvim" | "vimdiff" => {
            CommandEffect::opaque(format!("`{name}` is an editor, which can run commands"))
        }
        "dd" => CommandEffect::opaque("`dd` writes to the file that its arguments name"),
        "tar" | "gtar" | "bsdtar" => tar_effect(name, words),
        "yq" | "jq" | "gojq" => query_effect(name, words),
        "cmake" => cmake_effect(words),
        "make" | "gmake" if words.iter().any(is_make_setting) => {
            CommandEffect::opaque("a variable given to `make` can change what it runs")
        }
        _ => {
            let (_, options) = PROGRAM_OPTIONS.iter().find(|(known, _)| *known == name || *known == plain)?;
            program_option_effect(name, options, words)
        }
    })
}

/// An interpreter runs inline code, a script, or code from standard input.
fn interpreter_effect(name: &str, options: &[&str], words: &[ShellWord]) -> CommandEffect {
    let mut script = false;
    for word in words.iter().skip(1) {
        let Some(word) = word.as_known() else {
            return CommandEffect::opaque(format!("`{name}` gets an unknown word, which may be code"));
        };
        if has_option(word, options) {
            return CommandEffect::opaque(format!("`{name}` runs the code after `{word}`"));
        }
        if !word.starts_with('-') {
            script = !word.starts_with("/dev/") && !word.starts_with("/proc/");
            break;
        }
        if matches!(word, "--version" | "-V" | "-v" | "--help" | "-h" | "-m") {
            script = true;
            break;
        }
    }
    if script {
        CommandEffect::default()
    } else {
        CommandEffect::opaque(format!("`{name}` runs code from its standard input"))
    }
}

/// Returns whether a word is one of the options: alone, with a value, or in a group of letters.
fn has_option(word: &str, options: &[&str]) -> bool {
    options.iter().any(|option| {
        if word == *option || word.strip_prefix(option).is_some_and(|rest| rest.starts_with('=')) {
            return true;
        }
        match option.strip_prefix('-') {
            Some(letter) if letter.len() == 1 => {
                word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
            }
            Some(long) if !long.starts_with('-') => false,
            // Long options may be abbreviated.
            Some(_) => {
                let name = word.split('=').next().unwrap_or(word);
                name.len() > 4 && option.starts_with(name)
            }
            None => word.starts_with(option),
        }
    })
}

fn program_option_effect(name: &str, options: &[&str], words: &[ShellWord]) -> CommandEffect {
    for word in words.iter().skip(1) {
        match word.as_known() {
            Some(word) if has_option(word, options) => {
                return CommandEffect::opaque(format!(
                    "`{name} {word}` can name a program to run or settings to obey"
                ));
            }
            Some("--") => return CommandEffect::default(),
            _ => {}
        }
    }
    if options.is_empty() {
        CommandEffect::opaque(format!("`{name}` runs its arguments"))
    } else {
        CommandEffect::default()
    }
}

/// `tar` also takes its letters without a dash: `tar cfI x ./z .` compresses with `./z`. An archive with a
/// colon in its name is on another machine and reached with `rsh`.
fn tar_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let first =
        words.get(1).and_then(ShellWord::as_known).filter(|word| !word.starts_with('-') && word.is_ascii());
    if let Some(letters) = first.filter(|letters| letters.contains(['I', 'F', 'P', 'C', 'T', 'g', 'X'])) {
        return CommandEffect::opaque(format!(
            "the letters `{letters}` of `{name}` can name a program to run or another directory"
        ));
    }
    let remote =
        |word: &&ShellWord| word.as_known().is_some_and(|word| word.contains(':') && !word.starts_with("--"));
    if let Some(word) = words.iter().skip(1).find(remote) {
        return CommandEffect::opaque(format!(
            "`{word}` can be an archive on another machine, which `{name}` reaches with a program"
        ));
    }
    let options =
        PROGRAM_OPTIONS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, options)| *options);
    if options.is_empty() { CommandEffect::default() } else { program_option_effect(name, options, words) }
}

/// `yq` and `jq` can also read files that their program text names, and the environment.
fn query_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let ways =
        ["load", "env(", "envsubst", "$ENV", "env.", "input_filename", "include ", "import ", "system"];
    let reads = |word: &str| {
        let environment =
            word == "env" || word.starts_with("env ") || word.contains("| env") || word.contains("|env");
        environment || ways.iter().any(|way| word.contains(way))
    };
    if let Some(word) = words.iter().skip(1).filter_map(ShellWord::as_known).find(|word| reads(word)) {
        return CommandEffect::opaque(format!(
            "the program `{word}` of `{name}` can read other files or the environment"
        ));
    }
    let options =
        PROGRAM_OPTIONS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, options)| *options);
    if options.is_empty() { CommandEffect::default() } else { program_option_effect(name, options, words) }
}

/// `cmake --build` passes the arguments after `--` to `make` or `ninja`.
fn cmake_effect(words: &[ShellWord]) -> CommandEffect {
    let handed = words.iter().skip_while(|word| word.as_known() != Some("--")).skip(1);
    let plain = |word: &str| {
        matches!(word, "-k" | "-s" | "-v" | "VERBOSE=1")
            || word.strip_prefix("-j").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            || word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    for word in handed {
        if !word.as_known().is_some_and(plain) {
            return CommandEffect::opaque(format!(
                "`{word}` is an argument for the build program, where it can change the commands that run"
            ));
        }
    }
    CommandEffect::default()
}

fn is_make_setting(word: &ShellWord) -> bool {
    let text = match word {
        ShellWord::Known(text) | ShellWord::Unknown { raw: text, .. } => text,
    };
    text.split_once('=').is_some_and(|(name, _)| {
        let name = name.trim_end_matches([':', '+', '?', '!']);
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
            && !name.starts_with('-')
            && !matches!(name, "V" | "VERBOSE" | "DEBUG" | "RELEASE")
    })
}

/// An awk program without files, pipes and `system` only prints.
fn awk_effect(words: &[ShellWord]) -> CommandEffect {
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let Some(word) = word.as_known() else {
            return CommandEffect::opaque("`awk` runs a program that is known only at run time");
        };
        match word {
            "-F" | "-v" => {
                rest.next();
            }
            _ if word.starts_with("-F") || (word.starts_with("-v") && word.len() > 2) => {}
            _ if word.starts_with('-') => {
                return CommandEffect::opaque(format!("`awk {word}` may take its program from a file"));
            }
            program => {
                let odd = ["system", "getline", "|", ">", "@", "close", "printf >", "include", "ENVIRON"];
                return match odd.iter().find(|odd| program.contains(**odd)) {
                    Some(odd) => CommandEffect::opaque(format!(
                        "the program of `awk` contains `{odd}`, which can run commands or write files"
                    )),
                    None => CommandEffect::default(),
                };
            }
        }
    }
    CommandEffect::default()
}

/// Sed scripts that only print, delete, quit or replace. All others may write files or run commands.
fn sed_effect(words: &[ShellWord]) -> CommandEffect {
    let mut scripts = Vec::new();
    let mut rest = words.iter().skip(1);
    let mut explicit = false;
    let mut first = None;
    while let Some(word) = rest.next() {
        match word.as_known() {
            Some("-e" | "--expression") => {
                explicit = true;
                scripts.push(rest.next().and_then(ShellWord::as_known));
            }
            Some(word) if word.starts_with("--expression=") => {
                explicit = true;
                scripts.push(word.split_once('=').map(|(_, script)| script));
            }
            Some("-f" | "--file") => return CommandEffect::opaque("`sed -f` takes its script from a file"),
            Some(word) if has_sed_script(word) => {
                return CommandEffect::opaque(format!(
                    "`sed {word}` contains a script in an unsupported form"
                ));
            }
            Some(word) if word.starts_with('-') && word.len() > 1 => {}
            word if first.is_none() => first = Some(word),
            _ => {}
        }
    }
    if !explicit && let Some(first) = first {
        scripts.push(first);
    }
    for script in scripts {
        match script {
            None => return CommandEffect::opaque("the script of `sed` is known only at run time"),
            Some(script) if !is_plain_sed(script) => {
                return CommandEffect::opaque("the script of `sed` may write files or run commands");
            }
            Some(_) => {}
        }
    }
    CommandEffect::default()
}

/// Returns whether an option of sed contains a script or the name of one, in a group of letters.
fn has_sed_script(word: &str) -> bool {
    let letters = word.starts_with('-') && !word.starts_with("--") && !word.starts_with("-i");
    word.starts_with("--file") || (letters && word.contains(['f', 'e']))
}

/// `[address[,address]][!]` and one of `p d q = G h H g x n N D P`, or `s/…/…/flags` without `e` and `w`.
fn is_plain_sed(script: &str) -> bool {
    let script = script.trim();
    if script.contains(['\n', '{', '}']) {
        return false;
    }
    let Some(rest) = skip_sed_addresses(script) else { return false };
    let rest = rest.trim_start_matches([' ', '!']);
    let mut letters = rest.chars();
    match letters.next() {
        Some('p' | 'd' | 'q' | '=' | 'G' | 'h' | 'H' | 'g' | 'x' | 'n' | 'N' | 'D' | 'P') => {
            letters.as_str().trim().is_empty()
        }
        Some('s') => is_plain_substitution(letters.as_str()),
        _ => false,
    }
}

fn is_plain_substitution(rest: &str) -> bool {
    let mut letters = rest.chars();
    let Some(mark) = letters.next().filter(|c| c.is_ascii_punctuation() && *c != '\\') else { return false };
    let mut left = 2;
    let mut escaped = false;
    for c in letters.by_ref() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A bracket may contain the delimiter, so this form is not plain.
            '[' if mark != '/' => return false,
            c if c == mark => {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    left == 0 && letters.as_str().trim().chars().all(|c| c.is_ascii_digit() || "gpIiMm".contains(c))
}

/// Returns the text after the addresses of a sed command.
fn skip_sed_addresses(script: &str) -> Option<&str> {
    let mut rest = script;
    loop {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '$' | '~' | '+'));
        rest = match digits.strip_prefix('/') {
            Some(pattern) if digits.len() == rest.len() => {
                let end = pattern.find('/')?;
                let inner = pattern.get(..end)?;
                if inner.contains(['\\', '[']) {
                    return None;
                }
                pattern.get(end + 1..)?.trim_start_matches('I')
            }
            _ => digits,
        };
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some(rest),
        }
    }
}
