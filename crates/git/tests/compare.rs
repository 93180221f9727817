//! Comparing repositories before and after a command: hostile lines leave nothing that git runs, ordinary work stays.
//!
//! The lines run without a sandbox: the tests cover the comparison, which is the same in every backend.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use minke_git::{
    GuardScope, RepositoryGuard, RepositoryNotes, RepositoryScanner, SurveyArea, TargetFinder, config,
};
use minke_record::Scope;

struct RepositoryFixture {
    dir: tempfile::TempDir,
}

impl RepositoryFixture {
    fn new() -> RepositoryFixture {
        let place = RepositoryFixture { dir: tempfile::tempdir().unwrap() };
        for dir in ["work/src", "home", "state"] {
            std::fs::create_dir_all(place.path_to(dir)).unwrap();
        }
        place
    }

    fn path_to(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn guard_scope(&self) -> GuardScope {
        GuardScope { scope: Scope::writable(self.path_to("work").to_str().unwrap()), ..GuardScope::default() }
    }

    /// Runs a line in the work directory and returns whether it succeeded.
    fn run_bash(&self, line: &str) -> bool {
        let mut command = Command::new("bash");
        command.args(["-ec", line]).current_dir(self.path_to("work")).env("HOME", self.path_to("home"));
        for (name, value) in [
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ALLOW_PROTOCOL", "file:ext"),
        ] {
            command.env(name, value);
        }
        let done = command.output().unwrap();
        if !done.status.success() {
            eprintln!("{line}: {}", String::from_utf8_lossy(&done.stderr));
        }
        done.status.success()
    }

    fn compare_after(&self, line: &str) -> RepositoryNotes {
        let guard = RepositoryGuard::default();
        let watch = guard.begin_command(self.guard_scope()).unwrap();
        assert!(self.run_bash(line), "{line}");
        watch.finish_watch()
    }

    /// Uses git in every directory as a user would. Returns whether planted code ran, which creates a file `ran` in the
    /// home directory.
    fn something_runs(&self) -> bool {
        let use_git = "for d in $(find . -type d -not -path '*/objects/*'); do (cd $d; git status; git log -1; git diff; \
                       git commit --allow-empty -m x; git fetch --all) </dev/null >/dev/null 2>&1 || true; done";
        self.run_bash(use_git);
        self.path_to("home/ran").exists()
    }
}

/// Each line leaves something that the next use of git would run.
const HOSTILE_LINES: [&str; 24] = [
    "git init -q src && git -C src config core.fsmonitor 'touch ~/ran; false'",
    "git init -q --bare store.git && git -C store.git config core.fsmonitor 'touch ~/ran; false' && git -C store.git config core.bare false && git -C store.git config core.worktree . ; mkdir lib && echo 'gitdir: ../store.git' > lib/.git",
    "git init -q src && printf '#!/bin/sh\\ntouch ~/ran\\n' > src/.git/hooks/pre-commit && chmod +x src/.git/hooks/pre-commit",
    "git init -q src && mkdir src/h && printf '#!/bin/sh\\ntouch ~/ran\\n' > src/h/pre-commit && chmod +x src/h/pre-commit && git -C src config core.hooksPath h",
    "git init -q src && printf '[core]\\nfsmonitor = touch ~/ran; false\\n' > x.cfg && git -C src config include.path $PWD/x.cfg",
    "git init -q a && git -C a config core.fsmonitor 'touch ~/ran; false' && mkdir -p deep/b && mv a/.git deep/b/.git",
    "git init -q a && git -C a config core.fsmonitor 'touch ~/ran; false' && ln -s ../a/.git src/.git",
    "git init -q --separate-git-dir=$PWD/elsewhere src && git -C src config core.fsmonitor 'touch ~/ran; false'",
    "git init -q src && git -C src commit -q --allow-empty -m x && git -C src worktree add -q ../tree && git -C src config extensions.worktreeConfig true && git -C tree config --worktree core.fsmonitor 'touch ~/ran; false'",
    "git init -q src && git -C src config alias.status '!touch ~/ran' && git -C src config core.pager 'touch ~/ran'; git -C src config core.fsmonitor 'touch ~/ran; false'",
    "git init -q src && echo '* filter=f' > src/.gitattributes && echo x > src/file && git -C src add . && git -C src config filter.f.clean 'touch ~/ran; cat' && touch -d 2001-01-01 src/file",
    "git init -q src && git -C src remote add evil 'ext::sh -c touch% ~/ran' && git -C src config protocol.ext.allow always",
    "git init -q src && rm src/.git/config && printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch ~/ran; false\"\\n' > other.cfg && ln -s ../../other.cfg src/.git/config",
    "git init -q src && rm -r src/.git/hooks && mkdir hooks && printf '#!/bin/sh\\ntouch ~/ran\\n' > hooks/pre-commit && chmod +x hooks/pre-commit && ln -s ../../hooks src/.git/hooks",
    "git init -q src && git -C src config core.fsmonitor 'touch ~/ran; false' && cp -r src copy && rm -rf src",
    "mkdir -p a/b/c/d/e/f && git init -q a/b/c/d/e/f && git -C a/b/c/d/e/f config core.fsmonitor 'touch ~/ran; false'",
    "mkdir -p fake/objects fake/refs && echo 'ref: refs/heads/main' > fake/HEAD && printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = .\\nfsmonitor = touch ~/ran; false\\n' > fake/config",
    "git init -q src && mkdir far && cp -r src/.git/. far/ && git -C src config user.name x && git --git-dir=far config core.fsmonitor 'touch ~/ran; false' && rm -r src/.git && echo \"gitdir: $PWD/far\" > src/.git",
    "git init -q src && mkdir common && cp -r src/.git/. common && git --git-dir=common config core.fsmonitor 'touch ~/ran; false' && echo $PWD/common > src/.git/commondir",
    "git init -q sub && git -C sub commit -q --allow-empty -m x && git init -q src && git -C src -c protocol.file.allow=always submodule --quiet add ../sub m && git -C src/m config core.fsmonitor 'touch ~/ran; false'",
    "git init -q src && git -C src config gpg.program $PWD/gpg && git -C src config commit.gpgsign true && printf '#!/bin/sh\\ntouch ~/ran\\n' > gpg && chmod +x gpg",
    "git init -q src && git -C src config diff.external 'touch ~/ran' && echo a > src/f && git -C src add f && git -C src commit -qm x && echo b > src/f",
    "git init -q src && printf '[core]\\n\\tfsmonitor = \\\\\\n touch ~/ran; false\\n' >> src/.git/config",
    "git init -q src && git -C src config core.editor 'touch ~/ran; true' && git -C src config sequence.editor x && git -C src config core.fsmonitor 'touch ~/ran; false'",
];

#[test]
fn what_a_command_leaves_for_git_to_run_is_moved_aside_and_named() {
    for line in HOSTILE_LINES {
        // Check the attack: without a comparison the planted code runs.
        let control = RepositoryFixture::new();
        assert!(control.run_bash(line), "{line}");
        let ran = control.something_runs();
        let place = RepositoryFixture::new();
        let notes = place.compare_after(line);
        assert!(!notes.quarantined.is_empty(), "{line}");
        assert!(!place.something_runs(), "{line}: {notes:?}");
        if !ran {
            eprintln!("not run by this git without a comparison either: {line}");
        }
    }
}

#[test]
fn most_of_the_hostile_lines_run_without_a_comparison() {
    let run = HOSTILE_LINES.iter().filter(|line| {
        let control = RepositoryFixture::new();
        control.run_bash(line) && control.something_runs()
    });
    assert!(run.count() >= 16);
}

/// Each line is ordinary work.
const ORDINARY_LINES: [&str; 14] = [
    "git init -q src",
    "git init -q src && git -C src config user.name x && git -C src config user.email x@y",
    "git init -q src && echo a > src/a && git -C src add a && git -C src commit -qm a && git -C src branch b",
    "git init -q a && git -C a commit -q --allow-empty -m x && git clone -q a b && git -C b pull -q --rebase",
    "git init -q a && git -C a commit -q --allow-empty -m x && git -C a worktree add -q ../tree",
    "git init -q a && git -C a remote add origin https://example.org/x.git && git -C a remote add two git@example.org:x",
    "git init -q --bare store.git && git clone -q store.git b 2>/dev/null",
    "git init -q sub && git -C sub commit -q --allow-empty -m x && git init -q src && git -C src -c protocol.file.allow=always submodule --quiet add ../sub m && git -C src commit -qm m",
    "git init -q a && git -C a commit -q --allow-empty -m x && git -C a checkout -q -b b && git -C a commit -q --allow-empty -m y && git -C a checkout -q - && git -C a merge -q b",
    "git init -q a && git -C a commit -q --allow-empty -m x && git -C a checkout -q -b b && git -C a rebase -q -",
    "git init -q --object-format=sha256 a && git -C a commit -q --allow-empty -m x",
    "git init -q -b trunk a && git -C a config pull.rebase true && git -C a config push.default simple",
    "git init -q a && git -C a commit -q --allow-empty -m x && git clone -q --depth 1 file://$PWD/a b && git -C b sparse-checkout init --cone",
    "mkdir -p x/y && cd x/y && git init -q && cp -r ../y ../z && mv ../z ../w",
];

#[test]
fn ordinary_work_is_named_and_left_alone() {
    for line in ORDINARY_LINES {
        let place = RepositoryFixture::new();
        let notes = place.compare_after(line);
        assert_eq!(notes.quarantined, [""; 0], "{line}");
        assert!(
            notes.notices.iter().any(|line| line.starts_with("new git repository: ")),
            "{line}: {notes:?}"
        );
    }
}

#[test]
fn a_repository_stays_usable_when_its_settings_are_cleaned() {
    let place = RepositoryFixture::new();
    let notes = place.compare_after(
        "git init -q src && git -C src remote add origin ../up && git -C src config core.fsmonitor 'touch ~/ran; false' && \
         git -C src commit -q --allow-empty -m x",
    );
    assert_eq!(notes.quarantined.len(), 1, "{notes:?}");
    assert!(
        notes.quarantined[0].contains("core.fsmonitor") && !notes.quarantined[0].contains("touch"),
        "{notes:?}"
    );
    assert!(place.run_bash("test $(git -C src remote) = origin && git -C src log --oneline -1"));
    assert!(place.path_to("work/src/.git/config.minke-quarantined-1").exists());
}

#[test]
fn what_was_there_before_stays() {
    let place = RepositoryFixture::new();
    let user = "git init -q . && mkdir .husky && printf '#!/bin/sh\\ntrue\\n' > .husky/pre-commit && chmod +x .husky/pre-commit \
                && git config core.hooksPath .husky && git add . && git commit -qm x && git init -q a/b/c/d && \
                git -C a/b/c/d config core.fsmonitor false && git -C a/b/c/d config core.pager less";
    assert!(place.run_bash(user));
    for line in [
        "echo x > file",
        "git worktree add -q tree",
        "git -C a/b/c/d config user.name x",
        "cp -r .husky other",
    ] {
        assert_eq!(place.compare_after(line).quarantined, [""; 0], "{line}");
    }
    let notes = place.compare_after("git -C a/b/c/d config core.fsmonitor 'touch ~/ran; false'");
    assert_eq!(notes.quarantined.len(), 1, "{notes:?}");
    assert!(place.run_bash("test $(git -C a/b/c/d config core.pager) = less"), "existing settings are kept");
    assert!(!place.something_runs());
}

#[test]
fn a_killed_pod_compares_when_it_returns() {
    let place = RepositoryFixture::new();
    let file = place.path_to("state/repositories/session");
    let guard = RepositoryGuard::new(Some(file.clone()));
    let watch = guard.begin_command(place.guard_scope()).unwrap();
    assert!(place.run_bash(HOSTILE_LINES[0]));
    // As after a kill: the watch is neither ended nor dropped.
    Box::leak(Box::new(watch));
    let next = RepositoryGuard::new(Some(file.clone()));
    let notes = next.recover_baseline(place.guard_scope());
    assert!(!notes.quarantined.is_empty() && !file.exists(), "{notes:?}");
    assert!(!place.something_runs());
    assert_eq!(next.recover_baseline(place.guard_scope()), RepositoryNotes::default());
}

#[test]
fn a_command_that_was_given_up_is_compared() {
    let place = RepositoryFixture::new();
    let guard = RepositoryGuard::default();
    let watch = guard.begin_command(place.guard_scope()).unwrap();
    drop(watch);
    // It is killed a moment later and has written in the meantime.
    assert!(place.run_bash(HOSTILE_LINES[0]));
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&told);
    guard.set_callback(std::sync::Arc::new(move |notes| heard.lock().unwrap().push(notes)));
    guard.begin_command(place.guard_scope()).unwrap().finish_watch();
    assert!(!place.something_runs());
}

#[test]
fn a_second_command_does_not_make_the_first_ones_repository_known() {
    let place = RepositoryFixture::new();
    let guard = RepositoryGuard::default();
    let first = guard.begin_command(place.guard_scope()).unwrap();
    assert!(place.run_bash(HOSTILE_LINES[0]));
    let second = guard.begin_command(place.guard_scope()).unwrap();
    second.finish_watch();
    assert!(!place.something_runs());
    first.finish_watch();
}

#[test]
fn what_is_lent_or_outside_is_left_alone() {
    let place = RepositoryFixture::new();
    assert!(place.run_bash("mkdir -p lent ../outside"));
    let mut ground = place.guard_scope();
    ground.scope.deny.push(minke_record::ScopeRule {
        target: place.path_to("work/lent").to_str().unwrap().to_owned(),
        permission: minke_record::Permission::Write,
        recursive: true,
    });
    let guard = RepositoryGuard::default();
    let watch = guard.begin_command(ground).unwrap();
    assert!(
        place.run_bash("for d in lent ../outside; do git init -q $d && git -C $d config core.pager x; done")
    );
    assert_eq!(watch.finish_watch(), RepositoryNotes::default());
}

#[test]
fn git_and_the_parser_agree() {
    let place = RepositoryFixture::new();
    for text in [
        "[a]\nb = c\n",
        "[a \"S.x\"] k=v ; comment\n\tl = \"x # y\" # z\n[b]c\n",
        "[A.B]\nk = a\\\n b\\tc\\\"d\n",
        "[a]\r\nk = v\r\n",
        "\u{feff}[a]\nk = \"  two  words  \"  \n",
        "[core]fsmonitor=x y  z\n[a \"q\\\"\\\\w\"]\nk\n",
        "# only a comment\n",
    ] {
        std::fs::write(place.path_to("work/config"), text).unwrap();
        let listed = Command::new("git")
            .args(["config", "--list", "-z", "-f"])
            .arg(place.path_to("work/config"))
            .output()
            .unwrap();
        assert!(listed.status.success(), "{text:?}");
        let listed = String::from_utf8(listed.stdout).unwrap();
        let theirs: Vec<(String, Option<String>)> = listed
            .split_terminator('\0')
            .map(|one| match one.split_once('\n') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (one.to_owned(), None),
            })
            .collect();
        let parsed = config::parse_config(text).unwrap();
        let ours: Vec<_> =
            parsed.iter().map(|setting| (setting.full_name(), setting.value.clone())).collect();
        assert_eq!(ours, theirs, "{text:?}");
        let written = config::format_config(&parsed);
        assert_eq!(
            config::parse_config(&written).unwrap(),
            parsed,
            "written_settings_are_read_back: {written}"
        );
    }
}

#[test]
fn a_broken_text_is_an_error() {
    for text in ["k = v", "[a\nk = v", "[a]\nk = \"v", "[a]\n= v", "[a \"b]\nk", "[a]\nk = \\q", "[a] k v"] {
        assert!(config::parse_config(text).is_err(), "{text:?}");
    }
}

#[test]
fn each_link_to_a_hook_is_a_target() {
    let place = RepositoryFixture::new();
    assert!(place.run_bash(
        "git init -q . && mkdir -p real scripts cfg tools && ln -s real hop && rm -r .git/hooks && ln -s ../hop .git/hooks && \
         echo x > scripts/a && ln -s ../scripts/a real/pre-commit && git config include.path ../cfg/missing && \
         echo x > tools/f && git config filter.f.clean 'env X=1 tools/f %f' && git config core.pager tools/none"
    ));
    let scope = Scope::writable(place.path_to("work").to_str().unwrap());
    let survey = RepositoryScanner::default().scan_area(SurveyArea { scope: &scope, denied: None });
    let found = TargetFinder::new(Some(place.path_to("home")), |_| None)
        .find_targets(&survey.repositories, |path| path.starts_with(place.path_to("work")));
    let names: BTreeSet<String> = found
        .iter()
        .map(|target| target.path.strip_prefix(place.path_to("work")).unwrap().to_string_lossy().into_owned())
        .collect();
    for name in ["hop", "real", "scripts/a", "cfg/missing", "tools/f", "tools/none"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn a_persons_own_configuration_leads_into_each_repository() {
    let place = RepositoryFixture::new();
    assert!(place.run_bash("git init -q src && git config --global core.hooksPath .husky"));
    let scope = Scope::writable(place.path_to("work").to_str().unwrap());
    let survey = RepositoryScanner::default().scan_area(SurveyArea { scope: &scope, denied: None });
    let finder = TargetFinder::new(Some(place.path_to("home")), |_| None);
    let found = finder.find_targets(&survey.repositories, |_| true);
    assert!(found.iter().any(|target| target.path == place.path_to("work/src/.husky")), "{found:?}");
}

#[test]
fn a_scan_that_keeps_finds_what_a_fresh_one_finds() {
    let place = RepositoryFixture::new();
    let scope = Scope::writable(place.path_to("work").to_str().unwrap());
    let mut kept = RepositoryScanner::default();
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let long = std::env::var_os("MINKE_LONG").is_some();
    for round in 0..if long { 5000 } else { 300 } {
        let at = |n: u64| place.path_to("work").join(format!("d{}/d{}", n % 4, n / 4 % 4));
        let (one, two) = (at(next(16)), at(next(16)));
        // Steps that are impossible in this state are skipped.
        let _done = match next(6) {
            0 => std::fs::create_dir_all(one.join(".git")),
            1 => std::fs::remove_dir_all(&one),
            2 => std::fs::create_dir_all(&one).and_then(|()| std::fs::write(one.join(".git"), "gitdir: x")),
            3 => std::fs::rename(&one, &two),
            4 => ["HEAD", "objects", "refs"]
                .iter()
                .try_for_each(|name| std::fs::create_dir_all(one.join(name))),
            _ => std::fs::remove_file(one.join(".git")),
        };
        let (fresh, again) = (
            RepositoryScanner::default().scan_area(SurveyArea { scope: &scope, denied: None }),
            kept.scan_area(SurveyArea { scope: &scope, denied: None }),
        );
        let sorted = |survey: &minke_git::RepositorySurvey| {
            survey.repositories.iter().cloned().collect::<BTreeSet<_>>()
        };
        assert_eq!(sorted(&again), sorted(&fresh), "round {round}");
    }
}

#[test]
fn a_scan_says_when_it_did_not_see_all() {
    let place = RepositoryFixture::new();
    let many = place.path_to("work/many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..=minke_git::MAX_DIRECTORIES {
        std::fs::create_dir(many.join(number.to_string())).unwrap();
    }
    let scope = Scope::writable(place.path_to("work").to_str().unwrap());
    let survey = RepositoryScanner::default().scan_area(SurveyArea { scope: &scope, denied: None });
    assert_eq!(survey.limits.len(), 1);
    let guard = RepositoryGuard::default();
    let notes = guard.begin_command(place.guard_scope()).unwrap().finish_watch();
    assert_eq!(notes.notices, survey.limits);
}

/// `MINKE_LONG=1` prints the time for a scan of 60,000 files.
#[test]
fn a_known_tree_is_scanned_quickly() {
    let place = RepositoryFixture::new();
    let files: usize = if std::env::var_os("MINKE_LONG").is_some() { 60_000 } else { 2000 };
    for dir in 0..files / 10 {
        let dir = place.path_to("work").join(format!("{}/{}", dir / 50, dir % 50));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..10 {
            std::fs::write(dir.join(file.to_string()), "").unwrap();
        }
    }
    let scope = Scope::writable(place.path_to("work").to_str().unwrap());
    let mut scanner = RepositoryScanner::default();
    let area = SurveyArea { scope: &scope, denied: None };
    let begun = std::time::Instant::now();
    let first = scanner.scan_area(area);
    let fresh = begun.elapsed();
    // Directories that were created just now are read once more.
    scanner.scan_area(area);
    let begun = std::time::Instant::now();
    let again = scanner.scan_area(area);
    eprintln!(
        "{files} files in {} directories: first {fresh:?}, again {:?}",
        first.directories,
        begun.elapsed()
    );
    assert_eq!(again.directories, first.directories);
}

#[test]
fn a_bare_repository_cannot_be_made_file_by_file() {
    let place = RepositoryFixture::new();
    assert!(place.run_bash("mkdir -p x/objects x/refs y && git init -q --bare z && echo x > src/config"));
    for (name, held) in [
        ("x/HEAD", true),
        ("z/config", true),
        ("z/hooks/pre-receive", true),
        ("z/HEAD", false),
        ("z/refs/heads/x", false),
        ("y/HEAD", false),
        ("src/config", false),
    ] {
        assert_eq!(minke_git::is_bare_repository_file(&place.path_to("work").join(name)), held, "{name}");
    }
}
