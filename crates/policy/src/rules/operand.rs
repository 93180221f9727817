//! Single arguments of a command: paths in them, plain globs, and programs of `sed` and `awk` that only
//! print.

use crate::shell::ShellWord;

use super::command::is_flag;

/// Returns a path as an absolute one, resolving empty, `.` and `..` components as text.
pub(crate) fn absolute_path(cwd: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { cwd };
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns whether an unknown word is only a glob of names below the working directory.
pub(super) fn is_plain_glob(raw: &str) -> bool {
    let plain = |letter: char| letter.is_alphanumeric() || "._-/*?[]{},+@%".contains(letter);
    raw.contains(['*', '?', '[', '{'])
        && raw.chars().all(plain)
        && !raw.starts_with(['/', '-'])
        && !raw.split(['/', '{', '}', ',']).any(|part| part == "..")
        // `.*` expands to `..` in older shells.
        && !raw.split('/').any(|part| part.starts_with(".*") || part.starts_with(".?"))
}

/// Returns whether an unknown word is a plain glob or a pipe to other commands, which are judged separately.
pub(super) fn is_harmless_word(raw: &str) -> bool {
    let piped = raw.strip_prefix("<(").and_then(|rest| rest.strip_suffix(')'));
    piped.is_some_and(|inside| !inside.contains(['(', ')', '"', '\'', '\\', '`'])) || is_plain_glob(raw)
}

/// Returns whether an unknown word always becomes exactly one word.
pub(super) fn is_single_word(raw: &str) -> bool {
    let quoted = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    raw == "{}" || quoted.is_some_and(|inside| !inside.contains(['@', '"']))
}

/// Returns the paths in a word that could leave the directory: absolute or with `..`, alone or after a flag.
pub(super) fn escaping_paths(word: &str) -> impl Iterator<Item = &str> {
    let glued = word.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters.next().map(|_| letters.as_str())
    });
    let valued = word.split_once('=').map(|(_, value)| value);
    let sent = word.strip_prefix('@');
    let url = word.strip_prefix("file://");
    let listed = word.split([':', ',', '=']).skip(1);
    [Some(word), glued, valued, sent, url].into_iter().flatten().chain(listed).filter(|path| may_escape(path))
}

/// Returns whether a path could leave the directory that it is relative to.
fn may_escape(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..")
}

/// Returns the index of the `sed` or `awk` program among the words, if it only prints.
pub(super) fn plain_program_index(name: &str, rest: &[ShellWord]) -> Option<usize> {
    if name == "sed" { plain_sed_index(rest) } else { plain_awk_index(rest) }
}

fn plain_sed_index(rest: &[ShellWord]) -> Option<usize> {
    let mut first = None;
    let mut words = rest.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let word = word.as_known();
        let Some(flag) = word.filter(|word| is_flag(word)) else {
            if first.is_none() {
                is_plain_sed(word?).then_some(())?;
                first = Some(at);
            }
            continue;
        };
        let letters = flag.strip_prefix('-')?;
        match letters {
            "-quiet" | "-silent" | "-regexp-extended" | "-null-data" | "-unbuffered" | "-posix"
            | "-sandbox" => {}
            "e" => {
                let (at, script) = words.next()?;
                is_plain_sed(script.as_known()?).then_some(())?;
                first = Some(at);
            }
            _ if letters.chars().all(|letter| "nErsuz".contains(letter)) => {}
            _ => return None,
        }
    }
    first
}

fn plain_awk_index(rest: &[ShellWord]) -> Option<usize> {
    let mut words = rest.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let word = word.as_known()?;
        match word {
            "-F" | "-v" => drop(words.next()?.1.as_known()?),
            _ if word.starts_with("-F") || word.starts_with("-v") => {}
            _ if is_flag(word) => return None,
            // Constructs with which an awk program can reach other programs, files or code.
            _ => {
                let ways = ["system", "getline", "|", ">", "@", "printf(", "close", "extension"];
                return (!ways.iter().any(|way| word.contains(way))).then_some(at);
            }
        }
    }
    None
}

/// Returns whether a `sed` script has only addresses, `p`, `d`, `q`, `=` and substitutions that neither write
/// nor run.
fn is_plain_sed(script: &str) -> bool {
    let mut rest = script.chars().peekable();
    loop {
        while rest.next_if(|letter| letter.is_whitespace() || *letter == ';').is_some() {}
        if rest.peek().is_none() {
            return true;
        }
        if skip_plain_sed_command(&mut rest).is_none() {
            return false;
        }
    }
}

/// Skips one plain command at the start of a script.
fn skip_plain_sed_command(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<()> {
    // An address: numbers, `$`, `,`, `~`, `+`, `!`, and patterns between slashes.
    while let Some(letter) = rest.peek().copied() {
        match letter {
            '0'..='9' | '$' | ',' | '~' | '+' | '!' | ' ' => drop(rest.next()),
            '/' => {
                rest.next();
                skip_until(rest, '/')?;
            }
            _ => break,
        }
    }
    match rest.next()? {
        'p' | 'd' | 'q' | '=' => {}
        's' => {
            let delimiter = rest.next().filter(|letter| letter.is_ascii_punctuation() && *letter != '\\')?;
            skip_until(rest, delimiter)?;
            skip_until(rest, delimiter)?;
            while rest.next_if(|flag| matches!(flag, 'g' | 'p' | 'i' | 'I' | '0'..='9')).is_some() {}
        }
        _ => return None,
    }
    // Only the end of the command may follow.
    while rest.next_if_eq(&' ').is_some() {}
    matches!(rest.peek(), None | Some(';' | '\n')).then_some(())
}

/// Skips past the next unescaped delimiter. Returns `None` at a newline or a character set, which are not
/// plain.
fn skip_until(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, delimiter: char) -> Option<()> {
    loop {
        match rest.next()? {
            letter if letter == delimiter => return Some(()),
            '\\' => drop(rest.next()?),
            // Inside a set the delimiter has no meaning, and implementations differ.
            '[' | '\n' => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_that_print_are_plain() {
        for plain in
            ["1,20p", "$p", "5q", "/foo/d", "s/a/b/", "s/a/b/g;s|c|d|", "1!p", "s,a,b,gI", "/a/,/b/p", "$="]
        {
            assert!(is_plain_sed(plain), "{plain}");
        }
        for other in [
            "e",
            "1e id",
            "w out",
            "s/a/b/e",
            "s/a/b/w out",
            "s/a/b/gw out",
            "r /etc/passwd",
            "1r x",
            "R x",
            "W x",
            "s/a/b/\ne",
            "{e\n}",
            "s\\a\\b\\",
            "s/[/]e/",
            "y/a/b/",
            "a text",
            "s/a/b/;e",
            "p e",
            "s/a/b/g e",
        ] {
            assert!(!is_plain_sed(other), "{other}");
        }
    }

    #[test]
    fn paths_are_found_behind_flags() {
        let found = |word: &'static str| escaping_paths(word).map(str::to_owned).collect::<Vec<String>>();
        for away in [
            "/etc/x",
            "../x",
            "a/../../x",
            "-I/usr",
            "--out=/x",
            "--out=../x",
            "@/etc/passwd",
            "if=/dev/sda",
            "x:/y",
        ] {
            assert!(!found(away).is_empty(), "{away}");
        }
        for here in ["a", "a/b", "--all", "-p", "a..b", "HEAD~1..HEAD", "x=y", "..a"] {
            assert!(found(here).is_empty(), "{here}");
        }
    }

    #[test]
    fn a_spelling_is_worked_out() {
        assert_eq!(absolute_path("/w", "a/./b/../c"), "/w/a/c");
        assert_eq!(absolute_path("/w", "../../x"), "/x");
        assert_eq!(absolute_path("/w", "/a//b/"), "/a/b");
    }
}
