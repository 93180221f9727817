//! What a person's next git runs is the same before and after each sandboxed command, whatever it does to repositories.
//!
//! Random lines are put together from hostile and ordinary blocks. The oracle knows nothing of the code under test: it
//! copies the tree, uses git in every directory of the copy as a person would, starts shells, and reads what ran.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use minke_policy::Tier;
use minke_tool::News;

use crate::support::{Home, tiers};

/// `@` is replaced by a line that says that it ran; each block works in a random directory `$D` below the grant.
const BLOCKS: [&str; 46] = [
    "git init -q $D",
    "git init -q $D && git -C $D commit -q --allow-empty -m x",
    "git init -q --bare $D/store",
    "git init -q $D && git -C $D config core.fsmonitor '@; false'",
    "git -C $D config core.fsmonitor '@; false'",
    "git -C $D config core.hooksPath hooks",
    "mkdir -p $D/hooks && printf '#!/bin/sh\\nE\\n' > $D/hooks/pre-commit && chmod +x $D/hooks/pre-commit",
    "printf '#!/bin/sh\\nE\\n' > $D/.git/hooks/pre-commit && chmod +x $D/.git/hooks/pre-commit",
    "printf '#!/bin/sh\\nE\\n' > .husky/pre-commit",
    "printf '#!/bin/sh\\nE\\n' > x && chmod +x x && mv x .husky/pre-commit",
    "printf '#!/bin/sh\\nE\\n' > tools/monitor",
    "mv tools old && mkdir tools && printf '#!/bin/sh\\nE; false\\n' > tools/monitor && chmod +x tools/monitor",
    "rm -rf .husky && mkdir .husky && printf '#!/bin/sh\\nE\\n' > .husky/pre-commit && chmod +x .husky/pre-commit",
    "printf '[core]\\nfsmonitor = \"@; false\"\\n' >> shared.cfg",
    "printf '[core]\\nfsmonitor = \"@; false\"\\n' >> .git/config",
    "printf '[core]\\nfsmonitor = \"@; false\"\\n' >> $D/.git/config",
    "printf '[core]\\nfsmonitor = \"@; false\"\\n' > $D/evil.cfg && git -C $D config include.path ../evil.cfg",
    "git init -q --bare $D/b && git -C $D/b config core.fsmonitor '@; false' && git -C $D/b config core.bare false && git -C $D/b config core.worktree ..",
    "mkdir -p $D/fake/objects $D/fake/refs && echo 'ref: refs/heads/x' > $D/fake/HEAD && printf '[core]\\nfsmonitor=\"@; false\"\\nworktree=.\\nrepositoryformatversion=0\\n' > $D/fake/config",
    "echo 'gitdir: fake' > $D/.git",
    "echo \"gitdir: $PWD/d1/fake\" > $D/.git",
    "ln -s $PWD/d1/fake $D/.git",
    "ln -s ../d1/.git $D/.git",
    "ln -sfn $PWD/d2/hooks $D/.git/hooks",
    "rm -rf $D/.git/hooks && ln -s $PWD/d1/hooks $D/.git/hooks",
    "echo $PWD/d1/fake > $D/.git/commondir",
    "git init -q $D && printf '[core]\\nfsmonitor=\"@; false\"\\n' > $D/.git/config.worktree && git -C $D config extensions.worktreeConfig true",
    "mv d1 d3",
    "mv d2/d1 d1",
    "cp -r d1 d2/copy",
    "rm -rf d1",
    "rm -rf $D/.git && git init -q $D && git -C $D config alias.status '!@' && git -C $D config core.editor '@; true'",
    "git -C $D commit -q --allow-empty -m x && git -C $D worktree add -q $PWD/tree$RANDOM",
    "git clone -q d1 $D/clone",
    "git init -q sub && git -C sub commit -q --allow-empty -m x && git -C $D -c protocol.file.allow=always submodule --quiet add $PWD/sub m",
    "git -C $D/m config core.fsmonitor '@; false'",
    "git init -q --separate-git-dir=$PWD/apart $D",
    "git --git-dir=$PWD/apart config core.fsmonitor '@; false'",
    "echo '@' >> .bashrc; echo '@' >> .profile; echo '@' >> .zshrc",
    "mkdir -p .vscode && echo '{}' > .vscode/notes; echo x > $D/file",
    "git -C $D config user.name x; git -C $D remote add o https://example.org/x",
    "echo x > $D/f && git -C $D add f && git -C $D commit -qm f",
    "git -C $D config filter.f.clean '@; cat' && echo '* filter=f' > $D/.gitattributes && echo y > $D/g",
    "git -C $D config remote.o.url 'ext::sh -c @' && git -C $D config protocol.ext.allow always",
    "git -C $D config diff.external '@' && git -C $D config core.pager '@'",
    "mkdir -p $D/a/b/c/d/e && git init -q $D/a/b/c/d/e && git -C $D/a/b/c/d/e config core.fsmonitor '@; false'",
];

const EVIL: &str = "echo evil >> ${MARK:-/dev/null}";

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn line(&mut self) -> String {
        let count = 2 + self.next(5);
        let block = |random: &mut Random| {
            let place = ["d1", "d2", "d2/d1", "d1/x/y", "."][random.next(5)];
            let block = BLOCKS[random.next(BLOCKS.len())].replace('@', EVIL);
            format!("D={place}; mkdir -p $D; {{ {block}; }}")
        };
        (0..count).map(|_| block(self)).collect::<Vec<_>>().join("; ") + "; true"
    }
}

fn bash(home: &Home, dir: &Path, line: &str) -> bool {
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(dir).env("HOME", home.at("user")).env("MARK", home.at("mark"));
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "file:ext")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
    }
    command.status().unwrap().success()
}

/// What a person's git and shells run in the tree.
fn what_runs(home: &Home) -> BTreeSet<String> {
    let copy = home.at("copy");
    drop(std::fs::remove_dir_all(&copy));
    std::fs::write(home.at("mark"), "").unwrap();
    assert!(bash(home, &home.at(""), "cp -a work copy"));
    bash(
        home,
        &copy,
        "find . -type d -not -path '*/objects/??' | while read -r d; do (cd \"$d\" && git status && git log -1 && git diff && \
         git add -A . ; git commit --allow-empty -m x; git fetch --all); done; \
         for f in .bashrc .profile .zshrc; do [ -f $f ] && bash $f; done",
    );
    let ran = std::fs::read_to_string(home.at("mark")).unwrap();
    ran.lines().map(str::to_owned).collect()
}

/// A repository with hooks, programs and includes of a person's own.
fn a_persons_tree() -> Home {
    let home = Home::new();
    std::fs::create_dir(home.at("user")).unwrap();
    let made = bash(
        &home,
        &home.work(),
        "git init -q . && mkdir .husky tools && printf '#!/bin/sh\\necho hook >> $MARK\\n' > .husky/pre-commit && \
         printf '#!/bin/sh\\necho monitor >> $MARK; false\\n' > tools/monitor && chmod +x .husky/pre-commit tools/monitor && \
         echo > shared.cfg && echo 'echo shell >> $MARK' > .bashrc && git config include.path ../shared.cfg && \
         git config core.fsmonitor tools/monitor && git add . && git commit -qm x && git config core.hooksPath .husky",
    );
    assert!(made);
    home
}

async fn hold(tier: Tier, rounds: usize) {
    let mut random = Random(42);
    for round in 0..rounds {
        let home = a_persons_tree();
        let before = what_runs(&home);
        assert!(
            before.contains("hook") && before.contains("monitor") && !before.contains("evil"),
            "{before:?}"
        );
        let commands = home.commands(tier);
        for _ in 0..3 {
            let line = random.line();
            let done = commands.run(home.order(&commands, &line), &News::nobody()).await.unwrap();
            assert_eq!(
                what_runs(&home),
                before,
                "{tier}, round {round}: {line}\n{:#?}\n{}",
                done.notes,
                done.tail
            );
        }
    }
}

#[tokio::test]
async fn git_runs_the_same_before_and_after_random_commands() {
    let rounds = if std::env::var_os("MINKE_LONG").is_some() { 200 } else { 6 };
    // Landlock cannot hold protected names against commands; the page of the sandbox says so, and the probes show it.
    for tier in tiers().into_iter().filter(|tier| matches!(tier, Tier::A | Tier::APrime)) {
        hold(tier, rounds).await;
    }
}

/// Without the guard and the sandbox the same lines plant something that runs, so the test would see it.
#[tokio::test]
async fn the_oracle_sees_what_is_planted() {
    let mut random = Random(42);
    let mut planted = 0;
    for _ in 0..6 {
        let home = a_persons_tree();
        let commands = home.commands(Tier::Off);
        for _ in 0..3 {
            commands.run(home.order(&commands, &random.line()), &News::nobody()).await.unwrap();
        }
        planted += usize::from(what_runs(&home).contains("evil"));
    }
    assert!(planted >= 3, "{planted}");
}

#[tokio::test]
async fn a_repository_that_a_command_makes_is_named_and_cleaned_in_each_tier() {
    for tier in tiers().into_iter().filter(|tier| *tier != Tier::Off) {
        let home = Home::new();
        std::fs::create_dir(home.work().join("src")).unwrap();
        let commands = home.commands(tier);
        let line = "git init -q src && git -C src config core.fsmonitor 'touch PWN; false'";
        let done = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
        assert_eq!(done.notes.len(), 2, "{tier}: {:?}", done.notes);
        assert!(
            done.notes[0].contains("core.fsmonitor") && done.notes[1].contains("new git repository"),
            "{tier}"
        );
        let line = "git init -q other && echo x > other/f && git -C other add f";
        let done = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
        assert_eq!(done.notes.len(), 1, "{tier}: {:?}", done.notes);
    }
}
