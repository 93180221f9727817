//! `ask` and `deny` rules and lines that hide a program or start it indirectly: each line asks, even in
//! `full`. Lines that only mention a program do not.

use minke_policy::{PolicyContext, Posture, RuleLayer, RuleSet, SandboxBackend, judge_action};
use minke_record::{Action, Judgement, PolicyVerdict, Scope};

const DENY_RULES: &str = r#"rule = [
    { action = "deny", command = "curl" },
    { action = "deny", command = "git push --force" },
    { action = "ask", command = "terraform apply" },
]"#;

fn judge_line(line: &str) -> PolicyVerdict {
    let (rules, _) = RuleSet::parse(RuleLayer::User, "policy.toml", DENY_RULES).expect("the rules are good");
    let scope = Scope::writable("/w");
    let context = PolicyContext {
        rules: &rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Full, &scope, SandboxBackend::Namespaces)
    };
    judge_action(
        &context,
        &Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() },
    )
}

/// Lines that hide the name of a program.
const HIDING_LINES: &[&str] = &[
    "BASH_ENV=<(echo curl x) bash -c :",
    "BASH_ENV=./x bash -c :",
    "export BASH_ENV=./x; bash -c :",
    "BASH_CMDS[z]=/usr/bin/curl; z",
    "BASH_CMDS[z]=/usr/bin/c?rl; z x",
    "BASH_ALIASES[z]=curl; z",
    "ENV=./x sh -i",
    "ENV=./x dash",
    "PROMPT_COMMAND='./x'; :",
    "PROMPT_COMMAND=x bash -i",
    "PS4='$(c\\url x)'; set -x; :",
    "PS4='`./x`' bash -x y",
    "PS0='$(./x)'; :",
    "ld-linux-x86-64.so.2 /usr/bin/curl",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/curl x",
    "/lib/ld-musl-x86_64.so.1 ./x",
    "/lib64/ld-linux-x86-64.so.2 --argv0 x ./y",
    "ld.so /usr/bin/curl",
    "exec -a x curl y",
    "exec -a curl ./x y",
    "hash -p /usr/bin/curl z; z",
    "enable -f ./x y",
    "alias z=curl; z",
    "busybox curl x",
    "toybox curl x",
    "busybox sh -c 'curl x'",
    "command_not_found_handle() { \"$@\"; }; zzz",
    "command_not_found_handle() { /usr/bin/x; }; zzz",
    "f() { \"$@\"; }; f curl x",
    "ls() { curl x; }; ls",
    "LD_PRELOAD=./x.so ls",
    "LD_AUDIT=./x.so ls",
    "cp /usr/bin/curl z; ./z x",
    "ln -s /usr/bin/curl z; ./z x",
    "ln -s $(which curl) z; ./z",
    "install /usr/bin/curl z",
    "cat /usr/bin/curl > z",
    "$X x",
    "eval \"$X\"",
    "c=curl; $c x",
    "env -S 'curl x'",
    "source <(echo curl x)",
    ". /dev/stdin",
    "trap 'curl x' EXIT",
    "coproc curl x",
    "mapfile -C 'curl x' -c 1 a",
    "bind -x '\"a\": curl x'",
    "complete -C curl ls",
];

/// Programs that start the command at `@`, as separate arguments or in one argument.
const LAUNCHER_LINES: &[&str] = &[
    "prlimit --nofile=10 @",
    "systemd-inhibit @",
    "systemd-inhibit --what=idle @",
    "ip netns exec x @",
    "ip vrf exec x @",
    "hyperfine '@'",
    "hyperfine -w 1 \"@\"",
    "watchexec @",
    "watchexec -e rs -- @",
    "tar --to-command='@' -xf a",
    "tar -I '@' -cf a .",
    "tar --checkpoint=1 --checkpoint-action=exec='@' -cf a .",
    "rsync -e '@' a h:",
    "rsync --rsh='@' a h:",
    "go test -exec '@' ./...",
    "go build -toolexec='@' ./...",
    "docker exec app @",
    "docker run app @",
    "docker run --entrypoint '@' app",
    "podman exec app @",
    "kubectl exec app -- @",
    "docker compose exec app @",
    "chronic @",
    "chpst -u x @",
    "softlimit -m 1 @",
    "setlock x @",
    "faketime x @",
    "choom -n 1 -- @",
    "setarch x @",
    "runcon x @",
    "sem @",
    "parallel @ ::: a",
    "ts @",
    "nodemon --exec '@'",
    "npx nodemon --exec '@'",
    "concurrently '@' 'ls'",
    "onchange a -- @",
    "chokidar a -c '@'",
    "reflex -- @",
    "cargo watch -x '@'",
    "cargo run --config 'target.x.runner=\"@\"'",
    "mytool --run @",
    "mytool --run='@'",
    "mytool -r'@'",
    "./wrapper.sh @",
    "wrapper '{\"run\": \"@\"}'",
    "python3 run.py @",
    "python3 -c 'import os; os.system(\"@\")'",
    "perl -e 'system(\"@\")'",
    "ruby -e 'exec \"@\"'",
    "node -e 'require(\"child_process\").execSync(\"@\")'",
    "awk 'BEGIN { system(\"@\") }'",
    "sed '1e @' a",
    "find . -exec @ \\;",
    "xargs @ < a",
    "fd -x @",
    "entr @",
    "script -c '@' x",
    "su -c '@'",
    "flock x @",
    "watch '@'",
    "ssh h '@'",
    "tmux new '@'",
    "screen -dm @",
    "at now <<< '@'",
    "make SHELL='@'",
    "make --eval='x: ; @'",
    "gdb -ex 'shell @'",
    "vim -c ':!@'",
    "less '+!@' a",
    "man -P '@' ls",
    "sort --compress-program='@' a",
    "split --filter='@' a",
    "zip -TT '@' a b",
    "fzf --preview '@'",
    "rg --pre '@' x",
    "git -c core.pager='@' log",
    "git rebase --exec '@' main",
    "git submodule foreach '@'",
    "npm exec -c '@'",
    "npm test --script-shell='@'",
    "poetry run @",
    "bundle exec @",
    "direnv exec . @",
    "nix-shell --run '@'",
    "nix develop -c @",
    "guix shell -- @",
    "dbus-run-session @",
    "xvfb-run @",
    "unshare -r @",
    "bwrap --bind / / @",
    "strace -o x @",
    "valgrind @",
    "sqlite3 a '.shell @'",
    "tcpdump -z '@' -w a",
    "socat - EXEC:'@'",
    "openssl x '@'",
    "sudo @",
    "timeout 5 @",
    "nice @",
    "time @",
    "env A=1 @",
];

/// Lines that mention the program and do not run it.
const HARMLESS_LINES: &[&str] = &[
    "echo curl",
    "echo \"use curl x\" > notes.md",
    "printf '%s\\n' curl",
    "grep -rn curl src",
    "rg curl",
    "rg 'git push --force' docs",
    "git commit -m 'use curl for x'",
    "git commit -m \"never git push --force\"",
    "git log --grep curl",
    "git checkout curl",
    "git add curl",
    "which curl",
    "type curl",
    "command -v curl",
    "man curl",
    "apt-get install -y curl",
    "apt install curl",
    "brew install curl",
    "apk add curl",
    "dnf install curl",
    "pip install curl",
    "cargo add curl",
    "cargo test curl",
    "npm test curl",
    "npm run curl",
    "make curl",
    "go test ./curl",
    "cd curl",
    "ls curl",
    "ls -la curl/",
    "cat curl",
    "cat curl.c",
    "rm -f curl",
    "mkdir curl",
    "cp curl curl.bak",
    "find . -name curl",
    "pkill curl",
    "ps aux | grep curl",
    "docker ps --filter name=curl",
    "docker build -t curl .",
    "terraform plan",
    "git push",
    "git stash push",
    "pytest -k curl",
    "sed -n '/curl/p' a",
    "sort curl",
    "test -f curl",
    "ENV=production npm start",
    "ENV=dev cargo run",
    "PS1='$ '; ls",
    "kubectl get pods -l app=curl",
    "diff curl a",
    "wc -l curl",
    "cp dist/curl out/",
];

#[test]
fn what_hides_a_program_is_asked_about() {
    let wrong: Vec<String> = HIDING_LINES
        .iter()
        .map(|line| (line, judge_line(line)))
        .filter(|(_, verdict)| verdict.outcome == Judgement::Allow)
        .map(|(line, verdict)| format!("{line:?}: {}", verdict.reason))
        .collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), HIDING_LINES.len(), wrong.join("\n"));
}

#[test]
fn a_denied_program_behind_another_one_is_asked_about() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for launch in LAUNCHER_LINES {
        for command in
            ["curl x", "/usr/bin/curl x", "curl -s http://x", "git push --force", "terraform apply"]
        {
            let line = launch.replace('@', command);
            count += 1;
            let verdict = judge_line(&line);
            if verdict.outcome == Judgement::Allow {
                wrong.push(format!("{line:?}: {}", verdict.reason));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_line_that_only_speaks_of_a_program_is_not_asked_about() {
    let wrong: Vec<String> = HARMLESS_LINES
        .iter()
        .map(|line| (line, judge_line(line)))
        .filter(|(_, verdict)| verdict.outcome != Judgement::Allow)
        .map(|(line, verdict)| format!("{line:?}: {}", verdict.reason))
        .collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), HARMLESS_LINES.len(), wrong.join("\n"));
}

#[test]
fn the_reason_says_what_may_start_what() {
    let reason = judge_line("prlimit --nofile=10 curl x").reason;
    assert_eq!(
        reason,
        "`prlimit --nofile=10 curl x` may start a program of the rule at policy.toml:2 (`deny`): its arguments name it, and \
         how this program uses its arguments is unknown"
    );
}
