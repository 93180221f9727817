//! Protected names: there or not yet, replaced, moved, with the directory above them moved.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::inside::Ground;
use crate::probe::{Probe, Rest, Seen, Wall, probe, tried};

pub(super) const PROBES: &[Probe] = &[
    name("git-config-append", "openat O_APPEND", |g| {
        use std::io::Write;
        let opened = fs::OpenOptions::new().append(true).open(g.work(".git/config"));
        tried(opened.and_then(|mut file| file.write_all(b"[core]\n\tfsmonitor = planted\n")))
    }),
    name("git-config-by-git", "execve git", |g| {
        let done =
            Command::new("git").arg("-C").arg(g.work("")).args(["config", "core.editor", "planted"]).output();
        match done {
            Ok(done) if done.status.success() => Seen::Done("set".to_owned()),
            Ok(done) => Seen::Held(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => tried(err),
        }
    }),
    name("git-config-replace", "rename", |g| {
        tried(
            fs::write(g.own("bait"), "planted")
                .and_then(|()| fs::rename(g.own("bait"), g.work(".git/config"))),
        )
    })
    .alone(),
    name("git-config-unlink", "unlink", |g| tried(fs::remove_file(g.work(".git/config")))).alone(),
    name("git-hook-create", "openat O_CREAT", |g| plant(&g.work(".git/hooks/pre-commit"))),
    name("git-hooks-rename", "rename", |g| tried(fs::rename(g.work(".git/hooks"), g.own("hooks")))).alone(),
    name("git-dir-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.work(".git"), g.own("git"))
            .and_then(|()| fs::create_dir(g.work(".git")))
            .and_then(|()| fs::write(g.work(".git/config"), "planted"));
        tried(done)
    })
    .alone(),
    name("git-dir-exchange", "renameat2 RENAME_EXCHANGE", |g| {
        use crate::sys::{c, sys};
        let made =
            fs::create_dir_all(g.own("git/hooks")).and_then(|()| plant_io(&g.own("git/hooks/pre-commit")));
        if let Err(error) = made {
            return Seen::Unclear(error.to_string());
        }
        let (ours, theirs) = (c(g.own("git")), c(g.work(".git")));
        tried(sys!(SYS_renameat2, libc::AT_FDCWD, ours, libc::AT_FDCWD, theirs, libc::RENAME_EXCHANGE))
    })
    .alone(),
    name("git-hook-by-link", "linkat", |g| {
        let done = plant_io(&g.own("bait"))
            .and_then(|()| fs::hard_link(g.own("bait"), g.work(".git/hooks/post-merge")));
        tried(done)
    }),
    name("nested-git-hook", "openat O_CREAT", |g| plant(&g.work("part/lib/.git/hooks/pre-commit"))),
    name("nested-git-config", "openat O_WRONLY", |g| {
        tried(fs::OpenOptions::new().append(true).open(g.work("part/lib/.git/config")))
    }),
    name("nested-parent-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.work("part"), g.own("part"))
            .and_then(|()| fs::create_dir_all(g.work("part/lib/.git/hooks")))
            .and_then(|()| plant_io(&g.work("part/lib/.git/hooks/pre-commit")));
        tried(done)
    })
    .alone(),
    name("git-config-linked-out", "linkat, openat", |g| {
        let done = fs::hard_link(g.work(".git/config"), g.own("config"))
            .and_then(|()| fs::OpenOptions::new().append(true).open(g.own("config")));
        tried(done)
    }),
    name("worktree-file-write", "openat O_WRONLY", |g| {
        tried(fs::OpenOptions::new().append(true).open(g.at("tree/.git")))
    }),
    name("worktree-file-replace", "rename", |g| {
        let bait = g.at("tree/bait");
        tried(fs::write(&bait, "gitdir: planted\n").and_then(|()| fs::rename(bait, g.at("tree/.git"))))
    }),
    name("git-made-at-root", "execve git", |g| {
        // Whoever makes the repository decides what git runs in it.
        match Command::new("git").args(["init", "-q", g.fact("tmp_grant")]).output() {
            Ok(done) if done.status.success() => Seen::Done("made".to_owned()),
            Ok(done) => Seen::Held(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => tried(err),
        }
    }),
    name("minke-dir", "mkdir", |g| tried(fs::create_dir(g.work(".minke")))),
    name("minke-config", "mkdir, openat O_CREAT", |g| {
        tried(fs::create_dir_all(g.work(".minke/x")).and_then(|()| plant_io(&g.work(".minke/config.toml"))))
    }),
    name("mcp-json-linked", "symlink", |g| tried(symlink("file", g.work(".mcp.json")))),
    name("mcp-json", "openat O_CREAT", |g| plant(&g.work(".mcp.json"))),
    name("mcp-json-renamed-in", "rename", |g| {
        tried(plant_io(&g.own("bait")).and_then(|()| fs::rename(g.own("bait"), g.work(".mcp.json"))))
    }),
    name("claude-dir-renamed-in", "rename", |g| {
        tried(fs::create_dir(g.own("dir")).and_then(|()| fs::rename(g.own("dir"), g.work(".claude"))))
    }),
    name("claude-settings", "mkdir, openat O_CREAT", |g| {
        tried(
            fs::create_dir_all(g.work(".claude/x")).and_then(|()| plant_io(&g.work(".claude/settings.json"))),
        )
    }),
    name("agents-existing", "openat O_CREAT", |g| plant(&g.work(".agents/planted"))),
    name("git-commondir", "openat O_CREAT", |g| plant(&g.work(".git/commondir"))),
    name("git-config-worktree", "openat O_CREAT", |g| plant(&g.work(".git/config.worktree"))),
    name("bashrc", "openat O_CREAT", |g| plant(&g.work(".bashrc"))),
    name("bashrc-by-shell", "execve bash, openat", |g| {
        let done =
            Command::new("bash").arg("-c").arg("echo planted >> \"$0\"").arg(g.work(".bashrc")).output();
        match done {
            Ok(done) if done.status.success() => Seen::Done("appended".to_owned()),
            Ok(done) => Seen::Held(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            err => tried(err),
        }
    }),
    name("zshrc", "openat O_CREAT", |g| plant(&g.work(".zshrc"))),
    name("profile", "openat O_CREAT", |g| plant(&g.work(".profile"))),
    name("ssh-keys", "mkdir, openat O_CREAT", |g| {
        tried(fs::create_dir_all(g.work(".ssh")).and_then(|()| plant_io(&g.work(".ssh/authorized_keys"))))
    }),
    name("vscode-settings", "mkdir, openat O_CREAT", |g| {
        tried(fs::create_dir_all(g.work(".vscode")).and_then(|()| plant_io(&g.work(".vscode/settings.json"))))
    }),
    name("envrc", "openat O_CREAT", |g| plant(&g.work(".envrc"))),
    name("vimrc", "symlink", |g| tried(symlink("file", g.work(".vimrc")))),
    name("opencode-json", "openat O_CREAT", |g| plant(&g.work("opencode.json"))),
    name("nested-mcp-json", "openat O_CREAT", |g| plant(&g.work("part/lib/.mcp.json"))),
    name("nested-claude", "mkdir", |g| tried(fs::create_dir(g.work("part/lib/.claude")))),
];

const fn name(name: &'static str, call: &'static str, run: fn(&Ground) -> Seen) -> Probe {
    probe(name, call, Wall::Names, run).left_by_b(Rest::Names)
}

fn plant(path: &Path) -> Seen {
    tried(plant_io(path))
}

fn plant_io(path: &Path) -> std::io::Result<()> {
    fs::write(path, "planted\n")
}
