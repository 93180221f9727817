//! Where git is led to outside of protected names: hooks, included configurations, programs of settings, linked hooks, bare
//! repositories, and `.git` files.

use std::fs;
use std::path::Path;

use crate::inside::Ground;
use crate::probe::{Probe, Rest, Seen, Wall, probe, tried};

pub(super) const PROBES: &[Probe] = &[
    led("led-hooks-path", "openat O_CREAT", |g| plant(&g.work("led/.husky/pre-commit"))),
    led("led-hooks-path-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.work("led/.husky"), g.own("husky"))
            .and_then(|()| fs::create_dir(g.work("led/.husky")))
            .and_then(|()| plant_io(&g.work("led/.husky/pre-commit")));
        tried(done)
    })
    .alone(),
    led("led-include", "openat O_APPEND", |g| append(&g.work("led/shared.cfg"))),
    led("led-include-of-include", "openat O_APPEND", |g| append(&g.work("led/more/second.cfg"))),
    led("led-include-if-missing", "openat O_CREAT", |g| plant(&g.work("led/missing.cfg"))),
    led("led-fsmonitor", "openat O_APPEND", |g| append(&g.work("led/tools/monitor.sh"))),
    led("led-fsmonitor-replace", "rename", |g| {
        let bait = g.work("led/tools/bait");
        tried(plant_io(&bait).and_then(|()| fs::rename(bait, g.work("led/tools/monitor.sh"))))
    })
    .alone(),
    led("led-filter-argument", "openat O_APPEND", |g| append(&g.work("led/tools/clean.py"))),
    led("led-textconv", "openat O_APPEND", |g| append(&g.work("led/tools/textconv"))),
    led("led-alias", "unlink", |g| tried(fs::remove_file(g.work("led/tools/alias.sh")))).alone(),
    led("led-credential-helper", "openat O_CREAT", |g| plant(&g.work("led/tools/helper.sh"))),
    led("linked-hook", "openat O_APPEND", |g| append(&g.work("linked/scripts/pre-commit"))),
    led("linked-hook-parent-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.work("linked/scripts"), g.own("scripts"))
            .and_then(|()| fs::create_dir(g.work("linked/scripts")))
            .and_then(|()| plant_io(&g.work("linked/scripts/pre-commit")));
        tried(done)
    })
    .alone(),
    led("bare-config", "openat O_APPEND", |g| append(&g.work("store/config"))),
    led("bare-hook", "openat O_CREAT", |g| plant(&g.work("store/hooks/post-checkout"))),
    led("deep-git-config", "openat O_APPEND", |g| append(&g.work("one/two/three/four/five/.git/config"))),
    led("separate-git-dir-config", "openat O_APPEND", |g| append(&g.work("apart/config"))),
    led("separate-git-dir-hook", "openat O_CREAT", |g| plant(&g.work("apart/hooks/pre-commit"))),
    rule("rule-read", "openat", |g| read(&g.work("box/rule.env"))),
    rule("rule-read-deep", "openat", |g| read(&g.work("other/deep/rule.env"))),
    rule("rule-read-grant", "openat", |g| read(&g.at("reads/rule.env"))),
    rule("rule-read-directory", "openat", |g| read(&g.work("box/rules/a/file"))),
    rule("rule-read-by-link", "symlink, openat", |g| {
        match std::os::unix::fs::symlink(g.work("box/rule.env"), g.own("link")) {
            Ok(()) => read(&g.own("link")),
            err => tried(err),
        }
    }),
    rule("rule-read-by-hard-link", "linkat, openat", |g| {
        match fs::hard_link(g.work("box/rule.env"), g.own("hard")) {
            Ok(()) => read(&g.own("hard")),
            err => tried(err),
        }
    }),
    rule("rule-read-by-rename", "rename, openat", |g| {
        match fs::rename(g.work("box/rule.env"), g.own("moved")) {
            Ok(()) => read(&g.own("moved")),
            err => tried(err),
        }
    })
    .alone(),
    rule("rule-read-by-parent-rename", "rename, openat", |g| {
        match fs::rename(g.work("other"), g.own("other")) {
            Ok(()) => read(&g.own("other/deep/rule.env")),
            err => tried(err),
        }
    })
    .alone(),
    rule("rule-read-linked-target", "openat", |g| read(&g.work("linked/target"))),
    rule("rule-write", "openat O_APPEND", |g| append(&g.work("box/rule.env"))),
    rule("rule-unlink", "unlink", |g| tried(fs::remove_file(g.work("box/rule.env")))).alone(),
];

const fn led(name: &'static str, call: &'static str, run: fn(&Ground) -> Seen) -> Probe {
    probe(name, call, Wall::Names, run).left_by_b(Rest::Names)
}

const fn rule(name: &'static str, call: &'static str, run: fn(&Ground) -> Seen) -> Probe {
    probe(name, call, Wall::Carved, run).on(crate::probe::Stage::Denied)
}

fn plant(path: &Path) -> Seen {
    tried(plant_io(path))
}

fn plant_io(path: &Path) -> std::io::Result<()> {
    fs::write(path, "planted\n")
}

fn append(path: &Path) -> Seen {
    use std::io::Write;
    let opened = fs::OpenOptions::new().append(true).open(path);
    tried(opened.and_then(|mut file| file.write_all(b"planted\n")))
}

fn read(path: &Path) -> Seen {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(crate::inside::CANARY) => Seen::Done("read".to_owned()),
        Ok(_) => Seen::Held("empty".to_owned()),
        err => tried(err),
    }
}
