//! Real wrappers with real options, before a program that records its arguments.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use minke_policy::shell;

use crate::matches_call;

/// Wrappers that are tested if this machine has them.
const WRAPPER_PROGRAMS: &[&str] = &[
    "env", "timeout", "nice", "nohup", "stdbuf", "setsid", "xargs", "find", "flock", "ionice", "taskset",
    "chrt", "bash", "sh", "dash", "sudo", "time", "watch", "script", "busybox", "strace",
];

/// Lines, and whether they must be certain.
const WRAPPER_LINES: &[(&str, bool)] = &[
    ("env seen a", true),
    ("env - seen a", true),
    ("env -i seen a", true),
    ("env -i LANG=C seen a 'b c'", true),
    ("env -u HOME seen a", true),
    ("env -uHOME seen a", true),
    ("env --unset=HOME -- seen a", true),
    ("env --unset HOME seen a", true),
    ("env -C . seen a", true),
    ("env --chdir=. seen a", true),
    ("env TZ=UTC LANG=C seen -x", true),
    ("env -S 'seen a b'", false),
    ("env -vS 'seen a b'", false),
    ("env --split-string='seen a'", false),
    ("env --ignore-signal=INT seen a", false),
    ("timeout 5 seen a", true),
    ("timeout 5s seen -k 1", true),
    ("timeout -k 1 5 seen a", true),
    ("timeout -k1 5 seen a", true),
    ("timeout -s KILL 5 seen a", true),
    ("timeout --signal=KILL 5 seen a", true),
    ("timeout --signal KILL -k 1 5 seen a", true),
    ("timeout --foreground 5 seen a", true),
    ("timeout --preserve-status 5 -- seen a", true),
    ("timeout -- 5 seen a", true),
    ("nice seen a", true),
    ("nice -n 3 seen a", true),
    ("nice -n3 seen a", true),
    ("nice -3 seen a", true),
    ("nice --adjustment=3 seen a", true),
    ("nice --adjustment 3 seen a", true),
    ("nohup seen a", true),
    ("stdbuf -oL seen a", true),
    ("stdbuf -o L -e0 seen a", true),
    ("stdbuf --output=L seen a", true),
    ("setsid -w seen a", true),
    ("setsid --wait seen a", true),
    ("echo a b | xargs seen", true),
    ("echo a b | xargs -n 1 seen x", true),
    ("echo a b | xargs -n1 -t seen x", true),
    ("echo a | xargs -I{} seen x{}y {}", true),
    ("echo a | xargs -I % seen %", true),
    ("echo a | xargs --replace=% seen %", true),
    ("echo a | xargs -0 -r seen", true),
    ("echo a | xargs --max-args=1 --no-run-if-empty seen", true),
    ("echo a | xargs -i seen {}", false),
    ("echo a | xargs sh -c 'seen b'", true),
    ("echo a | xargs -d , seen", true),
    ("echo a | xargs -P 2 -L 1 seen", true),
    ("find . -maxdepth 0 -exec seen {} \\;", true),
    ("find . -maxdepth 0 -exec seen {} +", true),
    ("find . -maxdepth 0 -execdir seen x{}y \\;", true),
    ("find . -maxdepth 0 -exec seen 1 \\; -exec seen 2 ';'", true),
    ("find . -maxdepth 0 -exec sh -c 'seen b' \\;", true),
    ("find . -maxdepth 0 -ok seen {} \\; </dev/null", true),
    ("flock lock seen a", true),
    ("flock -n lock seen a", true),
    ("flock -w 1 lock seen a", true),
    ("flock lock -c 'seen a; seen b'", true),
    ("flock -x -c 'seen a' lock", true),
    ("ionice -c 3 seen a", true),
    ("ionice -c3 seen a", true),
    ("taskset 1 seen a", true),
    ("taskset -c 0 seen a", true),
    ("bash -c 'seen a'", true),
    ("bash -ec 'seen a; seen b' x y", true),
    ("bash -e -c 'seen a'", true),
    ("bash -c -e 'seen a'", true),
    ("bash -o pipefail -c 'seen a'", true),
    ("bash -o posix -c 'seen a'", false),
    ("bash +x -c 'seen a'", true),
    ("bash --norc -c 'seen a'", true),
    ("bash -c -- 'seen a'", true),
    ("bash -O extglob -c 'seen a'", false),
    ("sh -c 'seen \"$1\"' x y", true),
    ("sh -ec 'seen a'", true),
    ("dash -c 'seen a; seen b'", true),
    ("bash <<< 'seen a'", true),
    ("bash <<'EOF'\nseen a\nseen b\nEOF", true),
    ("bash -s a b <<'EOF'\nseen \"$1\"\nEOF", true),
    ("echo seen a | bash", false),
    ("env nice -n 1 timeout 5 bash -c 'env seen a'", true),
    ("command env seen a", true),
    ("exec env seen a", true),
    ("exec -a other seen a", true),
    ("exec -c seen a", true),
    ("command -p env >/dev/null; seen a", true),
    ("time seen a", true),
    ("time -p seen a", true),
    ("trap 'seen a' EXIT", true),
    ("eval seen a '&&' seen b", true),
    ("eval 'seen a' ';' 'seen b'", true),
    ("sh -c 'echo $'\\''a'\\''; seen b'", false),
];

fn link_tools(directory: &Path) -> PathBuf {
    let bin = directory.join("bin");
    std::fs::create_dir(&bin).expect("a directory for programs");
    for tool in WRAPPER_PROGRAMS.iter().chain(&["echo", "cat"]) {
        for place in ["/usr/bin", "/bin"] {
            let real = Path::new(place).join(tool);
            if real.exists() && !bin.join(tool).exists() {
                symlink(real, bin.join(tool)).expect("a link to a real wrapper");
            }
        }
    }
    let log = directory.join("log");
    let seen =
        format!("#!/bin/sh\nprintf '%s\\037' seen \"$@\" >> '{0}'; printf '\\036' >> '{0}'\n", log.display());
    std::fs::write(bin.join("seen"), seen).expect("the recorder is written");
    std::fs::set_permissions(bin.join("seen"), std::fs::Permissions::from_mode(0o755)).expect("it may run");
    bin
}

#[test]
fn real_wrappers_run_what_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bin = link_tools(directory.path());
    let work = directory.path().join("work");
    std::fs::create_dir(&work).expect("a directory to work in");
    let log = directory.path().join("log");
    let (mut ran, mut skipped) = (0, 0);
    let mut faults = String::new();
    for (line, sure) in WRAPPER_LINES {
        let read = shell::parse_shell_line(line);
        if read.uncertain_reason.is_none() != *sure {
            faults.push_str(&format!(
                "{line:?} should be {}: {:?}\n",
                if *sure { "sure" } else { "unsure" },
                read.uncertain_reason
            ));
        }
        std::fs::write(&log, "").expect("the log is emptied");
        let status = Command::new("timeout")
            .args(["20", "/bin/bash", "--norc", "--noprofile", "-c", line])
            .current_dir(&work)
            .env_clear()
            .env("PATH", &bin)
            .env("HOME", &work)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if status.is_err() {
            skipped += 1;
            continue;
        }
        let logged = std::fs::read_to_string(&log).expect("the log");
        for call in logged.split_terminator('\x1e') {
            let call: Vec<String> = call.trim_end_matches('\x1f').split('\x1f').map(str::to_owned).collect();
            ran += 1;
            let listed = read.commands.iter().any(|command| matches_call(&command.words, &call));
            if !listed && read.uncertain_reason.is_none() {
                faults.push_str(&format!(
                    "{line:?} ran {call:?}, which is not in {:?}\n",
                    read.command_texts()
                ));
            }
        }
    }
    eprintln!("{} lines, {ran} calls seen, {skipped} skipped", WRAPPER_LINES.len());
    assert!(faults.is_empty(), "{faults}");
    assert!(ran >= WRAPPER_LINES.len() / 2, "only {ran} calls were seen");
}
