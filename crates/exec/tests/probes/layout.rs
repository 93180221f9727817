//! The files of the world: grants, what is denied in them, secrets, and for each probe a directory outside of its own.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::inside::CANARY;
use crate::probe::Probe;
use crate::sys::{c, sys};

/// Covered in every fence.
pub(crate) const MASKED: [&str; 8] = [
    "home/.ssh",
    "home/.aws",
    "home/.gnupg",
    "home/.mozilla",
    "home/.netrc",
    "home/.config/minke",
    "home/.local/share/minke",
    "runtime",
];
/// Denied for writing; one of them is not there.
pub(crate) const DENIED: [&str; 4] =
    ["work/box/denied", "work/far/denied", "work/pinned/deep/denied", "work/box/later"];
/// Denied for reading.
pub(crate) const HIDDEN: [&str; 2] = ["work/box/hidden", "work/box/hidden.txt"];

/// Files that hold the canary.
const SECRETS: [&str; 20] = [
    "outside/victim-file",
    "flat/sub/inner",
    "home/.ssh/id_ed25519",
    "home/.aws/credentials",
    "home/.gnupg/private-keys-v1.d/key",
    "home/.mozilla/firefox/p/logins.json",
    "home/.netrc",
    "home/.config/minke/config.toml",
    "home/.config/minke/secrets/anthropic",
    "home/.local/share/minke/sessions/s/log",
    "runtime/scope.json",
    "runtime/pods/other/tmp/file",
    "runtime/pods/other/output/1.txt",
    "runtime/pods/probe/lease",
    "work/box/hidden/file",
    "work/box/hidden.txt",
    "work/box/rule.env",
    "work/other/deep/rule.env",
    "reads/rule.env",
    "work/box/rules/a/file",
];
/// Others.
const PLAIN: [&str; 12] = [
    "home/notes",
    "reads/file",
    "runtime/pods/probe/output/1.txt",
    "work/file",
    "work/gone",
    "work/.agents/skill.md",
    "work/box/denied/file",
    "work/box/denied/gone",
    "work/box/denied/mode",
    "work/far/denied/file",
    "tree/file",
    "work/pinned/deep/denied/file",
];

fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

/// The files of the world.
pub(crate) fn lay_out(base: &Path, probes: &[Probe]) -> io::Result<()> {
    for probe in probes {
        let dir = base.join("outside").join(probe.name);
        fs::create_dir_all(dir.join("dir"))?;
        put(&dir.join("secret"), CANARY)?;
        put(&dir.join("victim"), "victim")?;
        put(&dir.join("tool"), "#!/bin/sh\nexit 0\n")?;
        fs::set_permissions(dir.join("tool"), fs::Permissions::from_mode(0o755))?;
        if matches!(probe.name, "loader-runs-outside" | "preloaded-library") {
            fs::copy("/bin/cat", dir.join("program"))?;
        }
    }
    fs::create_dir_all(base.join("outside/readlink-outside"))?;
    std::os::unix::fs::symlink(CANARY, base.join("outside/readlink-outside/pointer"))?;
    let marked = base.join("outside/getxattr-outside/marked");
    put(&marked, "marked")?;
    // Where the file system has no such attributes there is nothing to ask for.
    let _ = sys!(SYS_setxattr, c(&marked), c("user.minke"), CANARY.as_ptr(), CANARY.len(), 0);
    put(&base.join("outside/hard-link-of-old/old"), CANARY)?;
    fs::create_dir_all(base.join("work"))?;
    fs::hard_link(base.join("outside/hard-link-of-old/old"), base.join("work/old-link"))?;
    for name in ["inherited-dir", "inherited-file", "inherited-writer", "unix-path-outside"] {
        put(&base.join("outside").join(name).join("secret"), CANARY)?;
    }
    for path in SECRETS {
        put(&base.join(path), CANARY)?;
    }
    for path in PLAIN {
        put(&base.join(path), "plain\n")?;
    }
    fs::create_dir_all(base.join("runtime/pods/probe/tmp"))?;
    put(&base.join("runtime/pods/probe/fences"), "")?;
    // What the user made before: a program with the right to run as its owner, and a directory that hands its group down.
    put(&base.join("work/granted-set-id"), "#!/bin/sh\n")?;
    fs::set_permissions(base.join("work/granted-set-id"), fs::Permissions::from_mode(0o4755))?;
    fs::create_dir_all(base.join("work/granted-shared"))?;
    fs::set_permissions(base.join("work/granted-shared"), fs::Permissions::from_mode(0o2775))?;
    put(&base.join("tree/.git"), "gitdir: ../work/.git/worktrees/tree\n")?;
    for repository in ["work", "work/part/lib", "work/led", "work/linked", "work/one/two/three/four/five"] {
        repository_at(&base.join(repository))?;
    }
    lead(&base.join("work"))
}

/// Repositories whose settings and links lead git to other places of the grant.
fn lead(work: &Path) -> io::Result<()> {
    let config = "[core]\n\thooksPath = .husky\n\tfsmonitor = tools/monitor.sh\n[include]\n\tpath = ../shared.cfg\n\
        [includeIf \"onbranch:other\"]\n\tpath = ../missing.cfg\n[filter \"f\"]\n\tclean = python3 tools/clean.py %f\n\
        [diff \"d\"]\n\ttextconv = './tools/textconv' -x\n[alias]\n\tx = !sh tools/alias.sh\n\
        [credential]\n\thelper = !tools/helper.sh\n";
    let led = work.join("led");
    let before = fs::read_to_string(led.join(".git/config"))?;
    put(&led.join(".git/config"), &format!("{before}{config}"))?;
    put(&led.join("shared.cfg"), "[include]\n\tpath = more/second.cfg\n")?;
    put(&led.join("more/second.cfg"), "[user]\n\tname = x\n")?;
    put(&led.join(".husky/README"), "plain\n")?;
    for tool in ["monitor.sh", "clean.py", "textconv", "alias.sh"] {
        put(&led.join("tools").join(tool), "plain\n")?;
    }
    put(&work.join("linked/scripts/pre-commit"), "plain\n")?;
    std::os::unix::fs::symlink("../../scripts/pre-commit", work.join("linked/.git/hooks/pre-commit"))?;
    for dir in ["store", "apart"] {
        put(&work.join(dir).join("HEAD"), "ref: refs/heads/main\n")?;
        put(&work.join(dir).join("config"), "[core]\n")?;
        for part in ["objects", "refs", "hooks"] {
            fs::create_dir_all(work.join(dir).join(part))?;
        }
    }
    put(&work.join("separate/.git"), "gitdir: ../apart\n")?;
    put(&work.join("linked/target"), CANARY)?;
    std::os::unix::fs::symlink("../linked/target", work.join("box/link.env"))
}

/// The rules that deny paths, in the stage of that name.
pub(crate) const RULES: [&str; 3] = ["**/rule.env", "box/rules/**", "**/link.env"];

fn repository_at(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let done =
        Command::new("git").args(["init", "-q", "--template="]).arg(path).env("HOME", path).output()?;
    if !done.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    fs::create_dir_all(path.join(".git/hooks"))
}
