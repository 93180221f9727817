//! The programs that the user's git runs are the same before and after each sandboxed command.
//!
//! Random lines are composed of hostile and ordinary blocks. The oracle is independent of the code under test: it
//! copies the tree, uses git in every directory of the copy as a user would, starts shells, and reads which programs
//! ran.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use minke_policy::SandboxBackend;
use minke_tool::CommandEventSink;

use crate::support::{CommandFixture, working_backends};

/// `@` is replaced by a line that records its execution; each block works in a random directory `$D` below the grant.
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

const EVIL_LINE: &str = "echo evil >> ${MARK:-/dev/null}";

struct LineGenerator(u64);

impl LineGenerator {
    fn next_below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn random_line(&mut self) -> String {
        let count = 2 + self.next_below(5);
        let block = |random: &mut LineGenerator| {
            let place = ["d1", "d2", "d2/d1", "d1/x/y", "."][random.next_below(5)];
            let block = BLOCKS[random.next_below(BLOCKS.len())].replace('@', EVIL_LINE);
            format!("D={place}; mkdir -p $D; {{ {block}; }}")
        };
        (0..count).map(|_| block(self)).collect::<Vec<_>>().join("; ") + "; true"
    }
}

fn run_bash(home: &CommandFixture, dir: &Path, line: &str) -> bool {
    let mut command = Command::new("bash");
    command
        .args(["-c", line])
        .current_dir(dir)
        .env("HOME", home.path_to("user"))
        .env("MARK", home.path_to("mark"));
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

/// Returns the programs that a user's git and shells run in the tree.
fn executed_programs(home: &CommandFixture) -> BTreeSet<String> {
    let copy = home.path_to("copy");
    drop(std::fs::remove_dir_all(&copy));
    std::fs::write(home.path_to("mark"), "").unwrap();
    assert!(run_bash(home, &home.path_to(""), "cp -a work copy"));
    run_bash(
        home,
        &copy,
        "find . -type d -not -path '*/objects/??' | while read -r d; do (cd \"$d\" && git status && git log -1 && git diff && \
         git add -A . ; git commit --allow-empty -m x; git fetch --all); done; \
         for f in .bashrc .profile .zshrc; do [ -f $f ] && bash $f; done",
    );
    let ran = std::fs::read_to_string(home.path_to("mark")).unwrap();
    ran.lines().map(str::to_owned).collect()
}

/// Creates a repository with the user's own hooks, programs and includes.
fn user_repository() -> CommandFixture {
    let home = CommandFixture::new();
    std::fs::create_dir(home.path_to("user")).unwrap();
    let made = run_bash(
        &home,
        &home.work_dir(),
        "git init -q . && mkdir .husky tools && printf '#!/bin/sh\\necho hook >> $MARK\\n' > .husky/pre-commit && \
         printf '#!/bin/sh\\necho monitor >> $MARK; false\\n' > tools/monitor && chmod +x .husky/pre-commit tools/monitor && \
         echo > shared.cfg && echo 'echo shell >> $MARK' > .bashrc && git config include.path ../shared.cfg && \
         git config core.fsmonitor tools/monitor && git add . && git commit -qm x && git config core.hooksPath .husky",
    );
    assert!(made);
    home
}

async fn check_rounds(backend: SandboxBackend, rounds: usize) {
    let mut random = LineGenerator(42);
    for round in 0..rounds {
        let home = user_repository();
        let before = executed_programs(&home);
        assert!(
            before.contains("hook") && before.contains("monitor") && !before.contains("evil"),
            "{before:?}"
        );
        let commands = home.commands_in(backend);
        for _ in 0..3 {
            let line = random.random_line();
            let done = commands
                .run_command(home.command_spec(&commands, &line), &CommandEventSink::discard())
                .await
                .unwrap();
            assert_eq!(
                executed_programs(&home),
                before,
                "{backend}, round {round}: {line}\n{:#?}\n{}",
                done.notes,
                done.tail
            );
        }
    }
}

#[tokio::test]
async fn git_runs_the_same_before_and_after_random_commands() {
    let rounds = if std::env::var_os("MINKE_LONG").is_some() { 200 } else { 6 };
    // Landlock alone cannot protect names against commands, as documented and shown by the probes.
    for backend in working_backends()
        .into_iter()
        .filter(|backend| matches!(backend, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap))
    {
        check_rounds(backend, rounds).await;
    }
}

/// Without the guard and the sandbox the same lines plant code that runs, so the test would detect it.
#[tokio::test]
async fn the_oracle_sees_what_is_planted() {
    let mut random = LineGenerator(42);
    let mut planted = 0;
    for _ in 0..6 {
        let home = user_repository();
        let commands = home.commands_in(SandboxBackend::Off);
        for _ in 0..3 {
            commands
                .run_command(
                    home.command_spec(&commands, &random.random_line()),
                    &CommandEventSink::discard(),
                )
                .await
                .unwrap();
        }
        planted += usize::from(executed_programs(&home).contains("evil"));
    }
    assert!(planted >= 3, "{planted}");
}

#[tokio::test]
async fn a_repository_that_a_command_makes_is_named_and_cleaned_in_each_backend() {
    for backend in working_backends().into_iter().filter(|backend| *backend != SandboxBackend::Off) {
        let home = CommandFixture::new();
        std::fs::create_dir(home.work_dir().join("src")).unwrap();
        let commands = home.commands_in(backend);
        let line = "git init -q src && git -C src config core.fsmonitor 'touch PWN; false'";
        let done = commands
            .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert_eq!(done.notes.len(), 2, "{backend}: {:?}", done.notes);
        assert!(
            done.notes[0].contains("core.fsmonitor") && done.notes[1].contains("new git repository"),
            "{backend}"
        );
        let line = "git init -q other && echo x > other/f && git -C other add f";
        let done = commands
            .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert_eq!(done.notes.len(), 1, "{backend}: {:?}", done.notes);
    }
}
