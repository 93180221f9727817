//! Commands that run their arguments after options: `sudo`, `env`, `timeout` and similar. An option that is
//! not in the table of a wrapper makes the line uncertain.

use super::super::ShellWord;
use super::super::effects::{CommandEffect, InnerCommand};

/// The syntax of a wrapper up to the command that it runs.
#[derive(Debug, Clone, Copy)]
pub(in crate::shell) struct WrapperSpec {
    pub(in crate::shell) name: &'static str,
    /// Letters of options without a value.
    pub(in crate::shell) flags: &'static str,
    /// Letters of options with a value.
    pub(in crate::shell) valued: &'static str,
    pub(in crate::shell) long: &'static [&'static str],
    pub(in crate::shell) long_valued: &'static [&'static str],
    /// The number of words before the command.
    pub(in crate::shell) operands: usize,
    /// Whether `NAME=value` may precede the command.
    pub(in crate::shell) assigns: bool,
}

impl WrapperSpec {
    pub(in crate::shell) const fn new(name: &'static str) -> WrapperSpec {
        WrapperSpec { name, flags: "", valued: "", long: &[], long_valued: &[], operands: 0, assigns: false }
    }
}

const WRAPPERS: &[WrapperSpec] = &[
    WrapperSpec {
        flags: "AbEHKknPSv",
        valued: "CDghpRrTtUu",
        long: &["non-interactive", "preserve-env", "set-home", "stdin", "background", "reset-timestamp"],
        long_valued: &["user", "group", "chdir", "host", "prompt", "chroot", "command-timeout", "close-from"],
        assigns: true,
        ..WrapperSpec::new("sudo")
    },
    WrapperSpec { flags: "Ln", valued: "Cu", ..WrapperSpec::new("doas") },
    WrapperSpec {
        flags: "i0v",
        valued: "uC",
        long: &["ignore-environment", "null", "debug"],
        long_valued: &["unset", "chdir"],
        assigns: true,
        ..WrapperSpec::new("env")
    },
    WrapperSpec::new("nohup"),
    WrapperSpec {
        flags: "0123456789",
        valued: "n",
        long_valued: &["adjustment"],
        ..WrapperSpec::new("nice")
    },
    WrapperSpec {
        flags: "t",
        valued: "cn",
        long: &["ignore"],
        long_valued: &["class", "classdata"],
        ..WrapperSpec::new("ionice")
    },
    WrapperSpec { flags: "abfioRrv", operands: 1, ..WrapperSpec::new("chrt") },
    WrapperSpec { flags: "ac", long: &["all-tasks", "cpu-list"], operands: 1, ..WrapperSpec::new("taskset") },
    WrapperSpec {
        flags: "fpv",
        valued: "ks",
        long: &["foreground", "preserve-status", "verbose"],
        long_valued: &["kill-after", "signal"],
        operands: 1,
        ..WrapperSpec::new("timeout")
    },
    WrapperSpec { valued: "ioe", long_valued: &["input", "output", "error"], ..WrapperSpec::new("stdbuf") },
    WrapperSpec { flags: "cfw", long: &["ctty", "fork", "wait"], ..WrapperSpec::new("setsid") },
    WrapperSpec { flags: "p", ..WrapperSpec::new("unbuffer") },
    WrapperSpec {
        flags: "apvq",
        valued: "fo",
        long: &["append", "portability", "verbose", "quiet"],
        long_valued: &["format", "output"],
        ..WrapperSpec::new("time")
    },
    WrapperSpec {
        long: &["skip-chdir"],
        long_valued: &["userspec", "groups"],
        operands: 1,
        ..WrapperSpec::new("chroot")
    },
    WrapperSpec {
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
        ..WrapperSpec::new("unshare")
    },
    WrapperSpec {
        flags: "cCdDfFiknqrtTvwxXyYz",
        valued: "aAbeEIoOpPsSuU",
        long: &["follow-forks", "summary", "decode-fds"],
        long_valued: &["trace", "output", "string-limit"],
        ..WrapperSpec::new("strace")
    },
    WrapperSpec { flags: "cCfiLrStTV", valued: "aAbDeFlnopsuwx", ..WrapperSpec::new("ltrace") },
    WrapperSpec::new("busybox"),
    WrapperSpec::new("toybox"),
    WrapperSpec::new("fakeroot"),
    WrapperSpec::new("eatmydata"),
    WrapperSpec::new("catchsegv"),
    WrapperSpec { flags: "dimsut", ..WrapperSpec::new("caffeinate") },
    WrapperSpec { flags: "q", ..WrapperSpec::new("torsocks") },
    WrapperSpec { flags: "q", valued: "f", ..WrapperSpec::new("proxychains4") },
    WrapperSpec { flags: "q", valued: "f", ..WrapperSpec::new("proxychains") },
    WrapperSpec { flags: "aAcnR", valued: "bCDfFHlmopqPSst", ..WrapperSpec::new("rlwrap") },
    WrapperSpec { flags: "acdnprsz", ..WrapperSpec::new("entr") },
    WrapperSpec {
        long: &["nocpu"],
        long_valued: &["cpunodebind", "membind", "physcpubind"],
        valued: "CNm",
        ..WrapperSpec::new("numactl")
    },
];

/// Returns the effect of a wrapper, if the name is one.
pub(in crate::shell) fn wrapper_effect(name: &str, words: &[ShellWord]) -> Option<CommandEffect> {
    let spec = WRAPPERS.iter().find(|spec| spec.name == name)?;
    Some(wrapped_effect(spec, words))
}

/// Skips the options of a wrapper and returns the command that it runs.
pub(in crate::shell) fn wrapped_effect(spec: &WrapperSpec, words: &[ShellWord]) -> CommandEffect {
    match find_wrapped_command(spec, words) {
        Ok((at, assignments)) => {
            let rest = words.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return CommandEffect::default();
            }
            let label = spec.name.to_owned();
            let inner = InnerCommand::Words { words: rest.to_vec(), assignments, label };
            CommandEffect { inner: vec![inner], ..CommandEffect::default() }
        }
        Err(reason) => guess_effect(spec.name, words).with_uncertain(reason),
    }
}

/// Returns the probable command of a wrapper with unknown syntax: everything from the first operand.
pub(in crate::shell) fn guess_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let rest = words.get(1..).unwrap_or_default();
    let at = rest
        .iter()
        .position(|word| word.as_known().is_some_and(|word| !word.starts_with('-') && !word.contains('=')));
    CommandEffect::run_words(at.and_then(|at| rest.get(at..)).unwrap_or_default(), name)
}

pub(in crate::shell) type WrappedCommand = (usize, Vec<(String, ShellWord)>);

/// Returns the index of the command after the options of a wrapper, and its assignments.
pub(in crate::shell) fn find_wrapped_command(
    spec: &WrapperSpec,
    words: &[ShellWord],
) -> Result<WrappedCommand, String> {
    let mut at = skip_options(spec, words)?;
    let mut assignments = Vec::new();
    while spec.assigns
        && let Some(ShellWord::Known(word)) = words.get(at)
        && let Some((name, value)) = word.split_once('=')
    {
        assignments.push((name.to_owned(), ShellWord::Known(value.to_owned())));
        at += 1;
    }
    for _ in 0..spec.operands {
        if words.get(at).is_some_and(|word| word.as_known().is_none()) {
            return Err(unknown_word_reason(spec.name, words.get(at)));
        }
        at += 1;
    }
    if let Some(ShellWord::Unknown { raw, .. }) = words.get(at)
        && spec.assigns
    {
        return Err(format!("`{}` gets `{raw}`, which is unknown", spec.name));
    }
    Ok((at, assignments))
}

fn unknown_word_reason(name: &str, word: Option<&ShellWord>) -> String {
    let word = word.map(ShellWord::to_string).unwrap_or_default();
    format!("`{name}` gets `{word}`, which is known only at run time")
}

/// Returns the index after the options.
fn skip_options(spec: &WrapperSpec, words: &[ShellWord]) -> Result<usize, String> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(word) = word.as_known() else { return Err(unknown_word_reason(spec.name, words.get(at))) };
        let strange = || format!("`{}` has an unknown option: {word}", spec.name);
        if word == "--" {
            return Ok(at + 1);
        }
        if word == "-" {
            // `env -` is `env -i`; no other wrapper accepts it.
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
        if takes && words.get(at + 1).is_some_and(|word| word.as_known().is_none()) {
            return Err(unknown_word_reason(spec.name, words.get(at + 1)));
        }
        at += if takes { 2 } else { 1 };
    }
    Ok(at)
}
