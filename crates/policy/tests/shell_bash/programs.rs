//! Real programs with flags that run something: if the program on this machine starts the recorder, no rule
//! for its first words may have allowed the line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use minke_policy::{PolicyContext, PolicyRule, Posture, RuleLayer, RuleSet, SandboxBackend, judge_action};
use minke_record::{Action, Judgement, Scope};

/// The words of the allow rule, and a line that starts `./z` if the machine has the program. `$W` is the
/// directory.
const PROGRAM_LINES: &[(&str, &str)] = &[
    ("tar", "tar cfI x ./z ."),
    ("tar", "tar cIf ./z x ."),
    ("tar", "tar -cI ./z -f x a"),
    ("tar", "tar --use-compress-program=./z -cf x a"),
    ("tar", "tar --use-comp=./z -cf x a"),
    ("tar", "tar --checkpoint=1 --checkpoint-action=exec=./z -cf x a"),
    ("tar", "tar -cf y a; tar --to-command=./z -xf y"),
    ("tar", "tar --rsh-command=./z -cf h:x a"),
    ("gcc", "gcc @resp"),
    ("gcc", "gcc -wrapper ./z -c a.c"),
    ("gcc", "gcc -B. -c a.c"),
    ("gcc", "gcc -B . -c a.c"),
    ("cc", "cc @resp"),
    ("make", "make SHELL=./z"),
    ("make", "make .SHELLFLAGS=-c SHELL=./z"),
    ("make", "make --eval='x: ; ./z' x"),
    ("make", "make --eval='$(shell ./z)' x"),
    ("make", "make -f other"),
    ("sort", "sort -S1b --compress-program=./z big"),
    ("sort", "sort -S1b --compress-prog ./z big"),
    ("split", "split --filter=./z a"),
    ("split", "split --filt ./z a"),
    ("find", "find . -maxdepth 0 -exec ./z ;"),
    ("find", "find . -maxdepth 0 -exec ./z {} +"),
    ("find", "find . -maxdepth 0 -execdir $W/z ';'"),
    ("rg", "rg --pre ./z x a"),
    ("rg", "rg --pre=$W/z x a"),
    ("awk", "awk 'BEGIN { system(\"./z\") }'"),
    ("awk", "awk 'BEGIN { \"./z\" | getline }'"),
    ("awk", "awk 'BEGIN { print | \"./z\" }'"),
    ("sed", "sed 1e./z a"),
    ("sed", "sed 's/.*/.\\/z/e' a"),
    ("git status", "git -c core.fsmonitor=./z status"),
    ("git log", "git -c core.pager=./z -p log"),
    ("git diff", "GIT_EXTERNAL_DIFF=./z git diff"),
    ("git rebase", "git rebase --exec ./z HEAD~1"),
    ("git rebase", "git rebase -x ./z HEAD~1"),
    ("git grep", "git grep -O./z x"),
    ("git grep", "git grep --open-files-in-pager=./z x"),
    ("git fetch", "git fetch --upload-pack=./z ./other"),
    ("git ls-remote", "git ls-remote --upload-pack=./z ./other"),
    ("git clone", "git clone -u ./z ./other y"),
    ("git status", "git -c alias.st='!./z' st"),
    ("git commit", "git -c core.hooksPath=$W/hooks commit --allow-empty -m x"),
    ("git bisect run", "git bisect start; git bisect bad; git bisect good HEAD~1; git bisect run ./z"),
    ("git submodule foreach", "git submodule foreach ./z"),
    ("less", "less --lesskey-src=keys a"),
    ("xargs", "echo a | xargs ./z"),
    ("env", "env ./z"),
    ("env", "env -S ./z"),
    ("timeout", "timeout 5 ./z"),
    ("nice", "nice ./z"),
    ("nohup", "nohup ./z"),
    ("setsid", "setsid -w ./z"),
    ("stdbuf", "stdbuf -o0 ./z"),
    ("prlimit", "prlimit ./z"),
    ("setarch", "setarch x86_64 ./z"),
    ("unshare", "unshare ./z"),
    ("flock", "flock l ./z"),
    ("script", "script -qc ./z out"),
    ("strace", "strace -o t ./z"),
    ("ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2 /bin/sh ./z"),
    ("bash", "BASH_ENV=./z bash -c :"),
    ("ls", "BASH_CMDS[ls]=$W/z; ls"),
    ("ls", "PATH=$W; z"),
    ("ls", "hash -p ./z ls; ls"),
    ("ls", "alias ls=./z\nshopt -s expand_aliases\nls"),
    ("ls", "ls() { ./z; }; ls"),
    ("ls", "command_not_found_handle() { ./z; }; zzz; ls"),
    ("ls", "PS4='$(./z)'; set -x; ls"),
    ("ls", "trap ./z EXIT; ls"),
    ("ls", "trap ./z DEBUG; ls"),
    ("ls", "PROMPT_COMMAND=./z; eval \"$PROMPT_COMMAND\"; ls"),
    ("ls", "exec -a ls ./z"),
    ("ls", "coproc ./z; wait"),
    ("echo", "echo ${x:-$(./z)}"),
    ("echo", "echo $((a[$(./z)0]))"),
    ("echo", "x='a[$(./z)0]'; echo $((x))"),
    ("test", "test -v 'a[$(./z)0]'"),
    ("printf", "printf -v 'a[$(./z)0]' x"),
    ("cat", "cat <(./z)"),
    ("cat", "cat <<EOF\n$(./z)\nEOF"),
    ("python3", "python3 -c 'import os; os.system(\"./z\")'"),
    ("perl", "perl -e 'system(\"./z\")'"),
    ("zip", "zip -T -TT ./z a.zip a"),
    ("man", "man -P ./z ls"),
];

fn prepare_dir(work: &Path, log: &Path) {
    let write = |name: &str, text: &str, mode: u32| {
        let path = work.join(name);
        std::fs::write(&path, text).expect("a file is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
    };
    let recorder = format!("#!/bin/sh\necho ran >> '{}'\n", log.display());
    std::fs::create_dir_all(work.join("hooks")).expect("a directory");
    for name in ["z", "cc1", "as", "hooks/pre-commit"] {
        write(name, &recorder, 0o755);
    }
    write("a", "x\ny\n", 0o644);
    write("a.c", "int main(void) { return 0; }\n", 0o644);
    write("resp", "-wrapper ./z -c a.c\n", 0o644);
    write("Makefile", "all:\n\techo hi\n", 0o644);
    write("other", "all:\n\t./z\n", 0o644);
    write("keys", "#env\nLESSOPEN=|./z %s\n", 0o644);
    write("big", &"a line of text\n".repeat(50_000), 0o644);
}

fn run_line(line: &str, work: &Path) {
    // Stop a program that waits for input; the log has everything that it started until then.
    let ended = Command::new("timeout")
        .args(["-k", "1", "10", "/bin/bash", "--norc", "--noprofile", "-c", line])
        .current_dir(work)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", work)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@b")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@b")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ended.expect("timeout starts");
}

fn is_allowed(words: &str, line: &str) -> bool {
    let rules = format!(
        "rule = [{}, {}]",
        PolicyRule::for_command(Judgement::Allow, words).to_toml_line(),
        OTHER_RULES
    );
    let (rules, _) = RuleSet::parse(RuleLayer::User, "policy.toml", &rules).expect("the rules are good");
    let scope = Scope::writable("/w");
    let context = PolicyContext {
        rules: &rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    let line = line.replace("$W", "/w");
    judge_action(&context, &Action { command: Some(line), side_effects: true, ..Action::default() }).outcome
        == Judgement::Allow
}

/// Further rules of a careful user.
const OTHER_RULES: &str = r#"{ action = "allow", command = "echo" }, { action = "allow", command = "set" },
    { action = "allow", command = "wait" }, { action = "allow", command = "trap" }, { action = "allow", command = "true" }"#;

#[test]
fn what_real_programs_start_by_a_flag_no_rule_has_vouched_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (work, log) = (directory.path().join("work"), directory.path().join("log"));
    let (mut started, mut wrong) = (0, Vec::new());
    for (words, line) in PROGRAM_LINES {
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir(&work).expect("a directory to work in");
        prepare_dir(&work, &log);
        std::fs::write(&log, "").expect("the log is emptied");
        if words.starts_with("git") {
            run_line(
                "git init -q .; git add a; git commit -qm 1; git commit -q --allow-empty -m 2; echo more >> a",
                &work,
            );
        }
        run_line(&line.replace("$W", work.to_str().expect("text")), &work);
        let ran = !std::fs::read_to_string(&log).expect("the log").is_empty();
        started += usize::from(ran);
        // The verdict is the same whether the machine has the program or not.
        if is_allowed(words, line) {
            wrong.push(format!(
                "{line:?} is allowed by a rule for `{words}`{}",
                if ran { ", and it ran" } else { "" }
            ));
        }
        if !ran {
            eprintln!("did not start the recorder here: {line:?}");
        }
    }
    eprintln!("{} lines, {started} started the recorder on this machine", PROGRAM_LINES.len());
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        started * 2 > PROGRAM_LINES.len(),
        "only {started} of {} lines started the recorder: the test is too weak",
        PROGRAM_LINES.len()
    );
}
