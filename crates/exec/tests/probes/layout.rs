//! The files of the world: grants, denied paths in them, secrets, and one directory outside per probe.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::attacker::CANARY;
use crate::probe::SandboxProbe;
use crate::sys::{sys, to_c_string};

/// Masked in every sandbox.
pub(crate) const MASKED_PATHS: [&str; 8] = [
    "home/.ssh",
    "home/.aws",
    "home/.gnupg",
    "home/.mozilla",
    "home/.netrc",
    "home/.config/minke",
    "home/.local/share/minke",
    "runtime",
];
/// Denied for writing; one of them does not exist.
pub(crate) const DENIED_PATHS: [&str; 4] =
    ["work/box/denied", "work/far/denied", "work/pinned/deep/denied", "work/box/later"];
/// Denied for reading.
pub(crate) const HIDDEN_PATHS: [&str; 2] = ["work/box/hidden", "work/box/hidden.txt"];

/// Files that contain the canary.
const SECRET_FILES: [&str; 20] = [
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
/// Other files.
const PLAIN_FILES: [&str; 12] = [
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

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

/// Creates the files of the world.
pub(crate) fn create_layout(base: &Path, probes: &[SandboxProbe]) -> io::Result<()> {
    for probe in probes {
        let dir = base.join("outside").join(probe.name);
        fs::create_dir_all(dir.join("dir"))?;
        write_file(&dir.join("secret"), CANARY)?;
        write_file(&dir.join("victim"), "victim")?;
        write_file(&dir.join("tool"), "#!/bin/sh\nexit 0\n")?;
        fs::set_permissions(dir.join("tool"), fs::Permissions::from_mode(0o755))?;
        if matches!(probe.name, "loader-runs-outside" | "preloaded-library") {
            fs::copy("/bin/cat", dir.join("program"))?;
        }
    }
    fs::create_dir_all(base.join("outside/readlink-outside"))?;
    std::os::unix::fs::symlink(CANARY, base.join("outside/readlink-outside/pointer"))?;
    let marked = base.join("outside/getxattr-outside/marked");
    write_file(&marked, "marked")?;
    // Some file systems do not support these attributes.
    let _ =
        sys!(SYS_setxattr, to_c_string(&marked), to_c_string("user.minke"), CANARY.as_ptr(), CANARY.len(), 0);
    write_file(&base.join("outside/hard-link-of-old/old"), CANARY)?;
    fs::create_dir_all(base.join("work"))?;
    fs::hard_link(base.join("outside/hard-link-of-old/old"), base.join("work/old-link"))?;
    for name in ["inherited-dir", "inherited-file", "inherited-writer", "unix-path-outside"] {
        write_file(&base.join("outside").join(name).join("secret"), CANARY)?;
    }
    for path in SECRET_FILES {
        write_file(&base.join(path), CANARY)?;
    }
    for path in PLAIN_FILES {
        write_file(&base.join(path), "plain\n")?;
    }
    fs::create_dir_all(base.join("runtime/pods/probe/tmp"))?;
    write_file(&base.join("runtime/pods/probe/sandboxes"), "")?;
    // Files of the user: a set-ID program, and a directory that passes its group on to new files.
    write_file(&base.join("work/granted-set-id"), "#!/bin/sh\n")?;
    fs::set_permissions(base.join("work/granted-set-id"), fs::Permissions::from_mode(0o4755))?;
    fs::create_dir_all(base.join("work/granted-shared"))?;
    fs::set_permissions(base.join("work/granted-shared"), fs::Permissions::from_mode(0o2775))?;
    write_file(&base.join("tree/.git"), "gitdir: ../work/.git/worktrees/tree\n")?;
    for repository in ["work", "work/part/lib", "work/led", "work/linked", "work/one/two/three/four/five"] {
        create_repository(&base.join(repository))?;
    }
    create_repositories(&base.join("work"))
}

/// Creates repositories whose settings and links lead git to other paths of the grant.
fn create_repositories(work: &Path) -> io::Result<()> {
    let config = "[core]\n\thooksPath = .husky\n\tfsmonitor = tools/monitor.sh\n[include]\n\tpath = ../shared.cfg\n\
        [includeIf \"onbranch:other\"]\n\tpath = ../missing.cfg\n[filter \"f\"]\n\tclean = python3 tools/clean.py %f\n\
        [diff \"d\"]\n\ttextconv = './tools/textconv' -x\n[alias]\n\tx = !sh tools/alias.sh\n\
        [credential]\n\thelper = !tools/helper.sh\n";
    let led = work.join("led");
    let before = fs::read_to_string(led.join(".git/config"))?;
    write_file(&led.join(".git/config"), &format!("{before}{config}"))?;
    write_file(&led.join("shared.cfg"), "[include]\n\tpath = more/second.cfg\n")?;
    write_file(&led.join("more/second.cfg"), "[user]\n\tname = x\n")?;
    write_file(&led.join(".husky/README"), "plain\n")?;
    for tool in ["monitor.sh", "clean.py", "textconv", "alias.sh"] {
        write_file(&led.join("tools").join(tool), "plain\n")?;
    }
    write_file(&work.join("linked/scripts/pre-commit"), "plain\n")?;
    std::os::unix::fs::symlink("../../scripts/pre-commit", work.join("linked/.git/hooks/pre-commit"))?;
    for dir in ["store", "apart"] {
        write_file(&work.join(dir).join("HEAD"), "ref: refs/heads/main\n")?;
        write_file(&work.join(dir).join("config"), "[core]\n")?;
        for part in ["objects", "refs", "hooks"] {
            fs::create_dir_all(work.join(dir).join(part))?;
        }
    }
    write_file(&work.join("separate/.git"), "gitdir: ../apart\n")?;
    write_file(&work.join("linked/target"), CANARY)?;
    std::os::unix::fs::symlink("../linked/target", work.join("box/link.env"))
}

/// The deny rules of the stage of that name.
pub(crate) const DENY_RULES: [&str; 3] = ["**/rule.env", "box/rules/**", "**/link.env"];

fn create_repository(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let done =
        Command::new("git").args(["init", "-q", "--template="]).arg(path).env("HOME", path).output()?;
    if !done.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    fs::create_dir_all(path.join(".git/hooks"))
}
