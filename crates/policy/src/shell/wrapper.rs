//! Commands that run their arguments behind options: `sudo`, `env`, `timeout` and their like. A wrapper with an option that is not in its row cannot be looked through, so the line is unsure.

use super::Word;
use super::runs::{Inner, What};

/// How the words of a wrapper are read up to the command that it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// Letters of options without a value.
    pub(super) flags: &'static str,
    /// Letters of options with one.
    pub(super) valued: &'static str,
    pub(super) long: &'static [&'static str],
    pub(super) long_valued: &'static [&'static str],
    /// How many words stand before the command.
    pub(super) operands: usize,
    /// Whether `NAME=value` may stand before the command.
    pub(super) assigns: bool,
}

impl Spec {
    pub(super) const fn new(name: &'static str) -> Spec {
        Spec { name, flags: "", valued: "", long: &[], long_valued: &[], operands: 0, assigns: false }
    }
}

const SPECS: &[Spec] = &[
    Spec {
        flags: "AbEHKknPSv",
        valued: "CDghpRrTtUu",
        long: &["non-interactive", "preserve-env", "set-home", "stdin", "background", "reset-timestamp"],
        long_valued: &["user", "group", "chdir", "host", "prompt", "chroot", "command-timeout", "close-from"],
        assigns: true,
        ..Spec::new("sudo")
    },
    Spec { flags: "Ln", valued: "Cu", ..Spec::new("doas") },
    Spec {
        flags: "i0v",
        valued: "uC",
        long: &["ignore-environment", "null", "debug"],
        long_valued: &["unset", "chdir"],
        assigns: true,
        ..Spec::new("env")
    },
    Spec::new("nohup"),
    Spec { flags: "0123456789", valued: "n", long_valued: &["adjustment"], ..Spec::new("nice") },
    Spec {
        flags: "t",
        valued: "cn",
        long: &["ignore"],
        long_valued: &["class", "classdata"],
        ..Spec::new("ionice")
    },
    Spec { flags: "abfioRrv", operands: 1, ..Spec::new("chrt") },
    Spec { flags: "ac", long: &["all-tasks", "cpu-list"], operands: 1, ..Spec::new("taskset") },
    Spec {
        flags: "fpv",
        valued: "ks",
        long: &["foreground", "preserve-status", "verbose"],
        long_valued: &["kill-after", "signal"],
        operands: 1,
        ..Spec::new("timeout")
    },
    Spec { valued: "ioe", long_valued: &["input", "output", "error"], ..Spec::new("stdbuf") },
    Spec { flags: "cfw", long: &["ctty", "fork", "wait"], ..Spec::new("setsid") },
    Spec { flags: "p", ..Spec::new("unbuffer") },
    Spec {
        flags: "apvq",
        valued: "fo",
        long: &["append", "portability", "verbose", "quiet"],
        long_valued: &["format", "output"],
        ..Spec::new("time")
    },
    Spec { long: &["skip-chdir"], long_valued: &["userspec", "groups"], operands: 1, ..Spec::new("chroot") },
    Spec {
        flags: "imnpuUCTfrc",
        valued: "SGRw",
        long: &[
            "mount",
            "uts",
            "ipc",
            "net",
            "pid",
            "user",
            "cgroup",
            "time",
            "fork",
            "map-root-user",
            "map-current-user",
            "mount-proc",
            "keep-caps",
        ],
        long_valued: &["setuid", "setgid", "root", "wd"],
        ..Spec::new("unshare")
    },
    Spec {
        flags: "cCdDfFiknqrtTvwxXyYz",
        valued: "aAbeEIoOpPsSuU",
        long: &["follow-forks", "summary", "decode-fds"],
        long_valued: &["trace", "output", "string-limit"],
        ..Spec::new("strace")
    },
    Spec { flags: "cCfiLrStTV", valued: "aAbDeFlnopsuwx", ..Spec::new("ltrace") },
    Spec::new("busybox"),
    Spec::new("toybox"),
    Spec::new("fakeroot"),
    Spec::new("eatmydata"),
    Spec::new("catchsegv"),
    Spec { flags: "dimsut", ..Spec::new("caffeinate") },
    Spec { flags: "q", ..Spec::new("torsocks") },
    Spec { flags: "q", valued: "f", ..Spec::new("proxychains4") },
    Spec { flags: "q", valued: "f", ..Spec::new("proxychains") },
    Spec { flags: "aAcnR", valued: "bCDfFHlmopqPSst", ..Spec::new("rlwrap") },
    Spec { flags: "acdnprsz", ..Spec::new("entr") },
    Spec {
        long: &["nocpu"],
        long_valued: &["cpunodebind", "membind", "physcpubind"],
        valued: "CNm",
        ..Spec::new("numactl")
    },
];

/// What a wrapper with plain options runs, if the name is one.
pub(super) fn what(name: &str, words: &[Word]) -> Option<What> {
    let spec = SPECS.iter().find(|spec| spec.name == name)?;
    Some(skip(spec, words))
}

/// Looks through the options of a wrapper to the command that it runs.
pub(super) fn skip(spec: &Spec, words: &[Word]) -> What {
    match reach(spec, words) {
        Ok((at, assignments)) => {
            let rest = words.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return What::default();
            }
            let label = spec.name.to_owned();
            let inner = Inner::Words { words: rest.to_vec(), assignments, label };
            What { inner: vec![inner], ..What::default() }
        }
        Err(reason) => guess(spec.name, words).and_unsure(reason),
    }
}

/// What a wrapper that is not understood probably runs: everything from the first word that is no option.
pub(super) fn guess(name: &str, words: &[Word]) -> What {
    let rest = words.get(1..).unwrap_or_default();
    let at = rest
        .iter()
        .position(|word| word.known().is_some_and(|word| !word.starts_with('-') && !word.contains('=')));
    What::words(at.and_then(|at| rest.get(at..)).unwrap_or_default(), name)
}

pub(super) type Reached = (usize, Vec<(String, Word)>);

/// The place of the command behind a wrapper's options, and what is assigned for it.
pub(super) fn reach(spec: &Spec, words: &[Word]) -> Result<Reached, String> {
    let mut at = options(spec, words)?;
    let mut assignments = Vec::new();
    while spec.assigns
        && let Some(Word::Known(word)) = words.get(at)
        && let Some((name, value)) = word.split_once('=')
    {
        assignments.push((name.to_owned(), Word::Known(value.to_owned())));
        at += 1;
    }
    for _ in 0..spec.operands {
        if words.get(at).is_some_and(|word| word.known().is_none()) {
            return Err(unknown_word(spec.name, words.get(at)));
        }
        at += 1;
    }
    if let Some(Word::Unknown { raw, .. }) = words.get(at)
        && spec.assigns
    {
        return Err(format!("`{}` is given `{raw}`, which is not known", spec.name));
    }
    Ok((at, assignments))
}

fn unknown_word(name: &str, word: Option<&Word>) -> String {
    let word = word.map(Word::to_string).unwrap_or_default();
    format!("`{name}` is given `{word}`, which is not known before the line runs")
}

/// The place behind the options.
fn options(spec: &Spec, words: &[Word]) -> Result<usize, String> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(word) = word.known() else { return Err(unknown_word(spec.name, words.get(at))) };
        let strange = || format!("`{}` has an option that is not known here: {word}", spec.name);
        if word == "--" {
            return Ok(at + 1);
        }
        if word == "-" {
            // `env -` is `env -i`; no other wrapper takes it.
            if spec.name != "env" {
                return Err(strange());
            }
            at += 1;
            continue;
        }
        let mut takes = false;
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            takes = spec.long_valued.contains(&name) && value.is_none();
            let fits = spec.long_valued.contains(&name) || spec.long.contains(&name);
            if !fits {
                return Err(strange());
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let mut letters = letters.chars();
            while let Some(letter) = letters.next() {
                if spec.valued.contains(letter) {
                    takes = letters.as_str().is_empty();
                    break;
                }
                if !spec.flags.contains(letter) {
                    return Err(strange());
                }
            }
        } else {
            return Ok(at);
        }
        if takes && words.get(at + 1).is_some_and(|word| word.known().is_none()) {
            return Err(unknown_word(spec.name, words.get(at + 1)));
        }
        at += if takes { 2 } else { 1 };
    }
    Ok(at)
}
