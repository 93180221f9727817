//! Protected names: present or missing, replaced, renamed, with a renamed parent directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::attacker::AttackContext;
use crate::probe::{DocumentedGap, ProbeOutcome, SandboxProbe, TestedRestriction, attack_probe, outcome_of};

pub(super) const PROBES: &[SandboxProbe] = &[
    protected_name("git-config-append", "openat O_APPEND", |g| {
        use std::io::Write;
        let opened = fs::OpenOptions::new().append(true).open(g.path_in_work(".git/config"));
        outcome_of(opened.and_then(|mut file| file.write_all(b"[core]\n\tfsmonitor = planted\n")))
    }),
    protected_name("git-config-by-git", "execve git", |g| {
        let done = Command::new("git")
            .arg("-C")
            .arg(g.path_in_work(""))
            .args(["config", "core.editor", "planted"])
            .output();
        match done {
            Ok(done) if done.status.success() => ProbeOutcome::Succeeded("set".to_owned()),
            Ok(done) => ProbeOutcome::Stopped(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => outcome_of(err),
        }
    }),
    protected_name("git-config-replace", "rename", |g| {
        outcome_of(
            fs::write(g.own_path("bait"), "planted")
                .and_then(|()| fs::rename(g.own_path("bait"), g.path_in_work(".git/config"))),
        )
    })
    .run_alone(),
    protected_name("git-config-unlink", "unlink", |g| {
        outcome_of(fs::remove_file(g.path_in_work(".git/config")))
    })
    .run_alone(),
    protected_name("git-hook-create", "openat O_CREAT", |g| {
        plant_name(&g.path_in_work(".git/hooks/pre-commit"))
    }),
    protected_name("git-hooks-rename", "rename", |g| {
        outcome_of(fs::rename(g.path_in_work(".git/hooks"), g.own_path("hooks")))
    })
    .run_alone(),
    protected_name("git-dir-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.path_in_work(".git"), g.own_path("git"))
            .and_then(|()| fs::create_dir(g.path_in_work(".git")))
            .and_then(|()| fs::write(g.path_in_work(".git/config"), "planted"));
        outcome_of(done)
    })
    .run_alone(),
    protected_name("git-dir-exchange", "renameat2 RENAME_EXCHANGE", |g| {
        use crate::sys::{sys, to_c_string};
        let made = fs::create_dir_all(g.own_path("git/hooks"))
            .and_then(|()| try_plant_name(&g.own_path("git/hooks/pre-commit")));
        if let Err(error) = made {
            return ProbeOutcome::Unclear(error.to_string());
        }
        let (ours, theirs) = (to_c_string(g.own_path("git")), to_c_string(g.path_in_work(".git")));
        outcome_of(sys!(SYS_renameat2, libc::AT_FDCWD, ours, libc::AT_FDCWD, theirs, libc::RENAME_EXCHANGE))
    })
    .run_alone(),
    protected_name("git-hook-by-link", "linkat", |g| {
        let done = try_plant_name(&g.own_path("bait"))
            .and_then(|()| fs::hard_link(g.own_path("bait"), g.path_in_work(".git/hooks/post-merge")));
        outcome_of(done)
    }),
    protected_name("nested-git-hook", "openat O_CREAT", |g| {
        plant_name(&g.path_in_work("part/lib/.git/hooks/pre-commit"))
    }),
    protected_name("nested-git-config", "openat O_WRONLY", |g| {
        outcome_of(fs::OpenOptions::new().append(true).open(g.path_in_work("part/lib/.git/config")))
    }),
    protected_name("nested-parent-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.path_in_work("part"), g.own_path("part"))
            .and_then(|()| fs::create_dir_all(g.path_in_work("part/lib/.git/hooks")))
            .and_then(|()| try_plant_name(&g.path_in_work("part/lib/.git/hooks/pre-commit")));
        outcome_of(done)
    })
    .run_alone(),
    protected_name("git-config-linked-out", "linkat, openat", |g| {
        let done = fs::hard_link(g.path_in_work(".git/config"), g.own_path("config"))
            .and_then(|()| fs::OpenOptions::new().append(true).open(g.own_path("config")));
        outcome_of(done)
    }),
    protected_name("worktree-file-write", "openat O_WRONLY", |g| {
        outcome_of(fs::OpenOptions::new().append(true).open(g.path_to("tree/.git")))
    }),
    protected_name("worktree-file-replace", "rename", |g| {
        let bait = g.path_to("tree/bait");
        outcome_of(
            fs::write(&bait, "gitdir: planted\n").and_then(|()| fs::rename(bait, g.path_to("tree/.git"))),
        )
    }),
    protected_name("git-made-at-root", "execve git", |g| {
        // The owner of the repository decides what git runs in it.
        match Command::new("git").args(["init", "-q", g.fact_text("tmp_grant")]).output() {
            Ok(done) if done.status.success() => ProbeOutcome::Succeeded("made".to_owned()),
            Ok(done) => ProbeOutcome::Stopped(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => outcome_of(err),
        }
    }),
    protected_name("minke-dir", "mkdir", |g| outcome_of(fs::create_dir(g.path_in_work(".minke")))),
    protected_name("minke-config", "mkdir, openat O_CREAT", |g| {
        outcome_of(
            fs::create_dir_all(g.path_in_work(".minke/x"))
                .and_then(|()| try_plant_name(&g.path_in_work(".minke/config.toml"))),
        )
    }),
    protected_name("mcp-json-linked", "symlink", |g| {
        outcome_of(symlink("file", g.path_in_work(".mcp.json")))
    }),
    protected_name("mcp-json", "openat O_CREAT", |g| plant_name(&g.path_in_work(".mcp.json"))),
    protected_name("mcp-json-renamed-in", "rename", |g| {
        outcome_of(
            try_plant_name(&g.own_path("bait"))
                .and_then(|()| fs::rename(g.own_path("bait"), g.path_in_work(".mcp.json"))),
        )
    }),
    protected_name("claude-dir-renamed-in", "rename", |g| {
        outcome_of(
            fs::create_dir(g.own_path("dir"))
                .and_then(|()| fs::rename(g.own_path("dir"), g.path_in_work(".claude"))),
        )
    }),
    protected_name("claude-settings", "mkdir, openat O_CREAT", |g| {
        outcome_of(
            fs::create_dir_all(g.path_in_work(".claude/x"))
                .and_then(|()| try_plant_name(&g.path_in_work(".claude/settings.json"))),
        )
    }),
    protected_name("agents-existing", "openat O_CREAT", |g| plant_name(&g.path_in_work(".agents/planted"))),
    protected_name("git-commondir", "openat O_CREAT", |g| plant_name(&g.path_in_work(".git/commondir"))),
    protected_name("git-config-worktree", "openat O_CREAT", |g| {
        plant_name(&g.path_in_work(".git/config.worktree"))
    }),
    protected_name("bashrc", "openat O_CREAT", |g| plant_name(&g.path_in_work(".bashrc"))),
    protected_name("bashrc-by-shell", "execve bash, openat", |g| {
        let done = Command::new("bash")
            .arg("-c")
            .arg("echo planted >> \"$0\"")
            .arg(g.path_in_work(".bashrc"))
            .output();
        match done {
            Ok(done) if done.status.success() => ProbeOutcome::Succeeded("appended".to_owned()),
            Ok(done) => ProbeOutcome::Stopped(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => outcome_of(err),
        }
    }),
    protected_name("zshrc", "openat O_CREAT", |g| plant_name(&g.path_in_work(".zshrc"))),
    protected_name("profile", "openat O_CREAT", |g| plant_name(&g.path_in_work(".profile"))),
    protected_name("ssh-keys", "mkdir, openat O_CREAT", |g| {
        outcome_of(
            fs::create_dir_all(g.path_in_work(".ssh"))
                .and_then(|()| try_plant_name(&g.path_in_work(".ssh/authorized_keys"))),
        )
    }),
    protected_name("vscode-settings", "mkdir, openat O_CREAT", |g| {
        outcome_of(
            fs::create_dir_all(g.path_in_work(".vscode"))
                .and_then(|()| try_plant_name(&g.path_in_work(".vscode/settings.json"))),
        )
    }),
    protected_name("envrc", "openat O_CREAT", |g| plant_name(&g.path_in_work(".envrc"))),
    protected_name("vimrc", "symlink", |g| outcome_of(symlink("file", g.path_in_work(".vimrc")))),
    protected_name("opencode-json", "openat O_CREAT", |g| plant_name(&g.path_in_work("opencode.json"))),
    protected_name("nested-mcp-json", "openat O_CREAT", |g| {
        plant_name(&g.path_in_work("part/lib/.mcp.json"))
    }),
    protected_name("nested-claude", "mkdir", |g| {
        outcome_of(fs::create_dir(g.path_in_work("part/lib/.claude")))
    }),
];

const fn protected_name(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    attack_probe(name, call, TestedRestriction::Names, run).left_by_landlock(DocumentedGap::Names)
}

fn plant_name(path: &Path) -> ProbeOutcome {
    outcome_of(try_plant_name(path))
}

fn try_plant_name(path: &Path) -> std::io::Result<()> {
    fs::write(path, "planted\n")
}
