//! Commands whose words hold code in another language, or name a program to run: what they do cannot be told from
//! their first words.

use super::Word;
use super::runs::What;

/// Interpreters and the options behind which code stands.
const INTERPRETERS: &[(&str, &[&str])] = &[
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

/// Options of other programs that name a program, a line or a file to obey.
const OBEY: &[(&str, &[&str])] = &[
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

pub(super) fn what(name: &str, words: &[Word]) -> Option<What> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if let Some((_, options)) = INTERPRETERS.iter().find(|(known, _)| *known == name || *known == plain) {
        return Some(interpreter(name, options, words));
    }
    Some(match plain {
        "awk" | "gawk" | "mawk" | "nawk" => awk(words),
        "sed" | "gsed" => sed(words),
        "vi" | "vim" | "nvim" | "ex" | "view" | "ed" | "nano" | "emacsclient" | "gvim" | "vimdiff" => {
            What::opaque(format!("`{name}` is an editor, which can run commands"))
        }
        "dd" => What::opaque("`dd` writes where its words say"),
        "tar" | "gtar" | "bsdtar" => tar(name, words),
        "yq" | "jq" | "gojq" => query(name, words),
        "cmake" => native(words),
        "make" | "gmake" if words.iter().any(make_setting) => {
            What::opaque("a variable given to `make` can change what it runs")
        }
        _ => {
            let (_, options) = OBEY.iter().find(|(known, _)| *known == name || *known == plain)?;
            obeys(name, options, words)
        }
    })
}

/// Code on the command line, or none and no script: then it comes from standard input.
fn interpreter(name: &str, options: &[&str], words: &[Word]) -> What {
    let mut script = false;
    for word in words.iter().skip(1) {
        let Some(word) = word.known() else {
            return What::opaque(format!("`{name}` is given a word that is not known, which may be code"));
        };
        if has_option(word, options) {
            return What::opaque(format!("`{name}` runs the code that `{word}` gives it"));
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
        What::default()
    } else {
        What::opaque(format!("`{name}` runs the code that comes on its input"))
    }
}

/// Whether a word is one of the options: alone, with a value, or among other letters.
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
            // Long options may be cut short.
            Some(_) => {
                let name = word.split('=').next().unwrap_or(word);
                name.len() > 4 && option.starts_with(name)
            }
            None => word.starts_with(option),
        }
    })
}

fn obeys(name: &str, options: &[&str], words: &[Word]) -> What {
    for word in words.iter().skip(1) {
        match word.known() {
            Some(word) if has_option(word, options) => {
                return What::opaque(format!(
                    "`{name} {word}` can name a program to run or settings to obey"
                ));
            }
            Some("--") => return What::default(),
            _ => {}
        }
    }
    if options.is_empty() {
        What::opaque(format!("`{name}` runs what its words say"))
    } else {
        What::default()
    }
}

/// `tar` takes its letters without a dash, too: `tar cfI x ./z .` packs with `./z`; and an archive with a colon in its name
/// is on another machine, reached by `rsh`.
fn tar(name: &str, words: &[Word]) -> What {
    let first = words.get(1).and_then(Word::known).filter(|word| !word.starts_with('-') && word.is_ascii());
    if let Some(letters) = first.filter(|letters| letters.contains(['I', 'F', 'P', 'C', 'T', 'g', 'X'])) {
        return What::opaque(format!(
            "the letters `{letters}` of `{name}` can name a program to run or another place"
        ));
    }
    let remote =
        |word: &&Word| word.known().is_some_and(|word| word.contains(':') && !word.starts_with("--"));
    if let Some(word) = words.iter().skip(1).find(remote) {
        return What::opaque(format!(
            "`{word}` can be an archive on another machine, which `{name}` reaches by a program"
        ));
    }
    let options = OBEY.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, options)| *options);
    if options.is_empty() { What::default() } else { obeys(name, options, words) }
}

/// What `yq` and `jq` read beside their files: others that the program names, and the environment.
fn query(name: &str, words: &[Word]) -> What {
    let ways =
        ["load", "env(", "envsubst", "$ENV", "env.", "input_filename", "include ", "import ", "system"];
    let reads = |word: &str| {
        let environment =
            word == "env" || word.starts_with("env ") || word.contains("| env") || word.contains("|env");
        environment || ways.iter().any(|way| word.contains(way))
    };
    if let Some(word) = words.iter().skip(1).filter_map(Word::known).find(|word| reads(word)) {
        return What::opaque(format!(
            "the program `{word}` of `{name}` can read other files or the environment"
        ));
    }
    let options = OBEY.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, options)| *options);
    if options.is_empty() { What::default() } else { obeys(name, options, words) }
}

/// What `cmake --build` hands to `make` or `ninja` behind `--`.
fn native(words: &[Word]) -> What {
    let handed = words.iter().skip_while(|word| word.known() != Some("--")).skip(1);
    let plain = |word: &str| {
        matches!(word, "-k" | "-s" | "-v" | "VERBOSE=1")
            || word.strip_prefix("-j").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            || word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    for word in handed {
        if !word.known().is_some_and(plain) {
            return What::opaque(format!(
                "`{word}` is for the program that builds, where it can change what runs"
            ));
        }
    }
    What::default()
}

fn make_setting(word: &Word) -> bool {
    let text = match word {
        Word::Known(text) | Word::Unknown { raw: text, .. } => text,
    };
    text.split_once('=').is_some_and(|(name, _)| {
        let name = name.trim_end_matches([':', '+', '?', '!']);
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
            && !name.starts_with('-')
            && !matches!(name, "V" | "VERBOSE" | "DEBUG" | "RELEASE")
    })
}

/// An awk program that only prints is what it looks like; one with files, pipes or `system` is not.
fn awk(words: &[Word]) -> What {
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let Some(word) = word.known() else {
            return What::opaque("`awk` runs a program that is not known before the line runs");
        };
        match word {
            "-F" | "-v" => {
                rest.next();
            }
            _ if word.starts_with("-F") || (word.starts_with("-v") && word.len() > 2) => {}
            _ if word.starts_with('-') => {
                return What::opaque(format!("`awk {word}` may take its program from a file"));
            }
            program => {
                let odd = ["system", "getline", "|", ">", "@", "close", "printf >", "include", "ENVIRON"];
                return match odd.iter().find(|odd| program.contains(**odd)) {
                    Some(odd) => What::opaque(format!(
                        "the program of `awk` holds `{odd}`, with which it can run commands or write files"
                    )),
                    None => What::default(),
                };
            }
        }
    }
    What::default()
}

/// Scripts of sed that only print, delete, quit or replace; all others may write files or run commands.
fn sed(words: &[Word]) -> What {
    let mut scripts = Vec::new();
    let mut rest = words.iter().skip(1);
    let mut explicit = false;
    let mut first = None;
    while let Some(word) = rest.next() {
        match word.known() {
            Some("-e" | "--expression") => {
                explicit = true;
                scripts.push(rest.next().and_then(Word::known));
            }
            Some(word) if word.starts_with("--expression=") => {
                explicit = true;
                scripts.push(word.split_once('=').map(|(_, script)| script));
            }
            Some("-f" | "--file") => return What::opaque("`sed -f` takes its script from a file"),
            Some(word) if sed_holds_script(word) => {
                return What::opaque(format!("`sed {word}` holds a script in a way that is not read here"));
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
            None => return What::opaque("the script of `sed` is not known before the line runs"),
            Some(script) if !plain_sed(script) => {
                return What::opaque("the script of `sed` may write files or run commands");
            }
            Some(_) => {}
        }
    }
    What::default()
}

/// Whether an option of sed holds a script or the name of one, together with other letters.
fn sed_holds_script(word: &str) -> bool {
    let letters = word.starts_with('-') && !word.starts_with("--") && !word.starts_with("-i");
    word.starts_with("--file") || (letters && word.contains(['f', 'e']))
}

/// `[address[,address]][!]` and one of `p d q = G h H g x n N D P`, or `s/…/…/flags` without `e` and `w`.
fn plain_sed(script: &str) -> bool {
    let script = script.trim();
    if script.contains(['\n', '{', '}']) {
        return false;
    }
    let Some(rest) = sed_addresses(script) else { return false };
    let rest = rest.trim_start_matches([' ', '!']);
    let mut letters = rest.chars();
    match letters.next() {
        Some('p' | 'd' | 'q' | '=' | 'G' | 'h' | 'H' | 'g' | 'x' | 'n' | 'N' | 'D' | 'P') => {
            letters.as_str().trim().is_empty()
        }
        Some('s') => sed_substitution(letters.as_str()),
        _ => false,
    }
}

fn sed_substitution(rest: &str) -> bool {
    let mut letters = rest.chars();
    let Some(mark) = letters.next().filter(|c| c.is_ascii_punctuation() && *c != '\\') else { return false };
    let mut left = 2;
    let mut escaped = false;
    for c in letters.by_ref() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A bracket may hold the mark; who writes that is asked.
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

/// What stands behind the addresses of a sed command.
fn sed_addresses(script: &str) -> Option<&str> {
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
