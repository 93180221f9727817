//! Git targets outside of protected names: hooks, included configurations, programs of settings, linked hooks, bare
//! repositories, and `.git` files.

use std::fs;
use std::path::Path;

use crate::attacker::AttackContext;
use crate::probe::{DocumentedGap, ProbeOutcome, SandboxProbe, TestedRestriction, attack_probe, outcome_of};

pub(super) const PROBES: &[SandboxProbe] = &[
    target_path("led-hooks-path", "openat O_CREAT", |g| plant_file(&g.path_in_work("led/.husky/pre-commit"))),
    target_path("led-hooks-path-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.path_in_work("led/.husky"), g.own_path("husky"))
            .and_then(|()| fs::create_dir(g.path_in_work("led/.husky")))
            .and_then(|()| try_plant_file(&g.path_in_work("led/.husky/pre-commit")));
        outcome_of(done)
    })
    .run_alone(),
    target_path("led-include", "openat O_APPEND", |g| append_file(&g.path_in_work("led/shared.cfg"))),
    target_path("led-include-of-include", "openat O_APPEND", |g| {
        append_file(&g.path_in_work("led/more/second.cfg"))
    }),
    target_path("led-include-if-missing", "openat O_CREAT", |g| {
        plant_file(&g.path_in_work("led/missing.cfg"))
    }),
    target_path("led-fsmonitor", "openat O_APPEND", |g| append_file(&g.path_in_work("led/tools/monitor.sh"))),
    target_path("led-fsmonitor-replace", "rename", |g| {
        let bait = g.path_in_work("led/tools/bait");
        outcome_of(
            try_plant_file(&bait).and_then(|()| fs::rename(bait, g.path_in_work("led/tools/monitor.sh"))),
        )
    })
    .run_alone(),
    target_path("led-filter-argument", "openat O_APPEND", |g| {
        append_file(&g.path_in_work("led/tools/clean.py"))
    }),
    target_path("led-textconv", "openat O_APPEND", |g| append_file(&g.path_in_work("led/tools/textconv"))),
    target_path("led-alias", "unlink", |g| outcome_of(fs::remove_file(g.path_in_work("led/tools/alias.sh"))))
        .run_alone(),
    target_path("led-credential-helper", "openat O_CREAT", |g| {
        plant_file(&g.path_in_work("led/tools/helper.sh"))
    }),
    target_path("linked-hook", "openat O_APPEND", |g| {
        append_file(&g.path_in_work("linked/scripts/pre-commit"))
    }),
    target_path("linked-hook-parent-rename", "rename, mkdir", |g| {
        let done = fs::rename(g.path_in_work("linked/scripts"), g.own_path("scripts"))
            .and_then(|()| fs::create_dir(g.path_in_work("linked/scripts")))
            .and_then(|()| try_plant_file(&g.path_in_work("linked/scripts/pre-commit")));
        outcome_of(done)
    })
    .run_alone(),
    target_path("bare-config", "openat O_APPEND", |g| append_file(&g.path_in_work("store/config"))),
    target_path("bare-hook", "openat O_CREAT", |g| plant_file(&g.path_in_work("store/hooks/post-checkout"))),
    target_path("deep-git-config", "openat O_APPEND", |g| {
        append_file(&g.path_in_work("one/two/three/four/five/.git/config"))
    }),
    target_path("separate-git-dir-config", "openat O_APPEND", |g| {
        append_file(&g.path_in_work("apart/config"))
    }),
    target_path("separate-git-dir-hook", "openat O_CREAT", |g| {
        plant_file(&g.path_in_work("apart/hooks/pre-commit"))
    }),
    rule_path("rule-read", "openat", |g| read_denied(&g.path_in_work("box/rule.env"))),
    rule_path("rule-read-deep", "openat", |g| read_denied(&g.path_in_work("other/deep/rule.env"))),
    rule_path("rule-read-grant", "openat", |g| read_denied(&g.path_to("reads/rule.env"))),
    rule_path("rule-read-directory", "openat", |g| read_denied(&g.path_in_work("box/rules/a/file"))),
    rule_path("rule-read-by-link", "symlink, openat", |g| {
        match std::os::unix::fs::symlink(g.path_in_work("box/rule.env"), g.own_path("link")) {
            Ok(()) => read_denied(&g.own_path("link")),
            err => outcome_of(err),
        }
    }),
    rule_path("rule-read-by-hard-link", "linkat, openat", |g| {
        match fs::hard_link(g.path_in_work("box/rule.env"), g.own_path("hard")) {
            Ok(()) => read_denied(&g.own_path("hard")),
            err => outcome_of(err),
        }
    }),
    rule_path("rule-read-by-rename", "rename, openat", |g| {
        match fs::rename(g.path_in_work("box/rule.env"), g.own_path("moved")) {
            Ok(()) => {
                let read = read_denied(&g.own_path("moved"));
                // Without a sandbox, the later probes need the file again.
                drop(fs::rename(g.own_path("moved"), g.path_in_work("box/rule.env")));
                read
            }
            err => outcome_of(err),
        }
    })
    .run_alone(),
    rule_path("rule-read-by-parent-rename", "rename, openat", |g| {
        match fs::rename(g.path_in_work("other"), g.own_path("other")) {
            Ok(()) => read_denied(&g.own_path("other/deep/rule.env")),
            err => outcome_of(err),
        }
    })
    .run_alone(),
    rule_path("rule-read-linked-target", "openat", |g| read_denied(&g.path_in_work("linked/target"))),
    rule_path("rule-write", "openat O_APPEND", |g| append_file(&g.path_in_work("box/rule.env"))),
    rule_path("rule-unlink", "unlink", |g| outcome_of(fs::remove_file(g.path_in_work("box/rule.env"))))
        .run_alone(),
];

const fn target_path(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    attack_probe(name, call, TestedRestriction::Names, run).left_by_landlock(DocumentedGap::Names)
}

const fn rule_path(
    name: &'static str,
    call: &'static str,
    run: fn(&AttackContext) -> ProbeOutcome,
) -> SandboxProbe {
    attack_probe(name, call, TestedRestriction::Exclusions, run).in_stage(crate::probe::ProbeStage::Denied)
}

fn plant_file(path: &Path) -> ProbeOutcome {
    outcome_of(try_plant_file(path))
}

fn try_plant_file(path: &Path) -> std::io::Result<()> {
    fs::write(path, "planted\n")
}

fn append_file(path: &Path) -> ProbeOutcome {
    use std::io::Write;
    let opened = fs::OpenOptions::new().append(true).open(path);
    outcome_of(opened.and_then(|mut file| file.write_all(b"planted\n")))
}

fn read_denied(path: &Path) -> ProbeOutcome {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(crate::attacker::CANARY) => ProbeOutcome::Succeeded("read".to_owned()),
        Ok(_) => ProbeOutcome::Stopped("empty".to_owned()),
        err => outcome_of(err),
    }
}
