//! Comparing repositories before and after a command: hostile lines leave nothing that git runs, ordinary work stays.
//!
//! The lines run without a sandbox here: what is tested is the comparison, which holds in every backend.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use minke_git::{Area, Finder, Ground, Guard, Notes, Scanner, config};
use minke_record::Scope;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        for dir in ["work/src", "home", "state"] {
            std::fs::create_dir_all(place.at(dir)).unwrap();
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn ground(&self) -> Ground {
        Ground { scope: Scope::write(self.at("work").to_str().unwrap()), ..Ground::default() }
    }

    /// Runs a line in the work directory; whether it succeeded.
    fn bash(&self, line: &str) -> bool {
        let mut command = Command::new("bash");
        command.args(["-ec", line]).current_dir(self.at("work")).env("HOME", self.at("home"));
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

    fn compared(&self, line: &str) -> Notes {
        let guard = Guard::default();
        let watch = guard.begin(self.ground()).unwrap();
        assert!(self.bash(line), "{line}");
        watch.end()
    }

    /// Uses git in every directory as a person would, and says whether something that was planted ran: it makes a file
    /// `ran` in the home directory.
    fn something_runs(&self) -> bool {
        let use_git = "for d in $(find . -type d -not -path '*/objects/*'); do (cd $d; git status; git log -1; git diff; \
                       git commit --allow-empty -m x; git fetch --all) </dev/null >/dev/null 2>&1 || true; done";
        self.bash(use_git);
        self.at("home/ran").exists()
    }
}

/// Each leaves something that the next use of git would run.
const HOSTILE: [&str; 24] = [
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
    for line in HOSTILE {
        // The planting works: without a comparison it runs.
        let control = Place::new();
        assert!(control.bash(line), "{line}");
        let ran = control.something_runs();
        let place = Place::new();
        let notes = place.compared(line);
        assert!(!notes.moved.is_empty(), "{line}");
        assert!(!place.something_runs(), "{line}: {notes:?}");
        if !ran {
            eprintln!("not run by this git without a comparison either: {line}");
        }
    }
}

#[test]
fn most_of_the_hostile_lines_run_without_a_comparison() {
    let run = HOSTILE.iter().filter(|line| {
        let control = Place::new();
        control.bash(line) && control.something_runs()
    });
    assert!(run.count() >= 16);
}

/// Each is ordinary work.
const ORDINARY: [&str; 14] = [
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
    for line in ORDINARY {
        let place = Place::new();
        let notes = place.compared(line);
        assert_eq!(notes.moved, [""; 0], "{line}");
        assert!(notes.named.iter().any(|line| line.starts_with("new git repository: ")), "{line}: {notes:?}");
    }
}

#[test]
fn a_repository_stays_usable_when_its_settings_are_cleaned() {
    let place = Place::new();
    let notes = place.compared(
        "git init -q src && git -C src remote add origin ../up && git -C src config core.fsmonitor 'touch ~/ran; false' && \
         git -C src commit -q --allow-empty -m x",
    );
    assert_eq!(notes.moved.len(), 1, "{notes:?}");
    assert!(notes.moved[0].contains("core.fsmonitor") && !notes.moved[0].contains("touch"), "{notes:?}");
    assert!(place.bash("test $(git -C src remote) = origin && git -C src log --oneline -1"));
    assert!(place.at("work/src/.git/config.minke-quarantined-1").exists());
}

#[test]
fn what_was_there_before_stays() {
    let place = Place::new();
    let user = "git init -q . && mkdir .husky && printf '#!/bin/sh\\ntrue\\n' > .husky/pre-commit && chmod +x .husky/pre-commit \
                && git config core.hooksPath .husky && git add . && git commit -qm x && git init -q a/b/c/d && \
                git -C a/b/c/d config core.fsmonitor false && git -C a/b/c/d config core.pager less";
    assert!(place.bash(user));
    for line in [
        "echo x > file",
        "git worktree add -q tree",
        "git -C a/b/c/d config user.name x",
        "cp -r .husky other",
    ] {
        assert_eq!(place.compared(line).moved, [""; 0], "{line}");
    }
    let notes = place.compared("git -C a/b/c/d config core.fsmonitor 'touch ~/ran; false'");
    assert_eq!(notes.moved.len(), 1, "{notes:?}");
    assert!(place.bash("test $(git -C a/b/c/d config core.pager) = less"), "what was there before stays");
    assert!(!place.something_runs());
}

#[test]
fn a_killed_pod_compares_when_it_returns() {
    let place = Place::new();
    let file = place.at("state/repositories/session");
    let guard = Guard::new(Some(file.clone()));
    let watch = guard.begin(place.ground()).unwrap();
    assert!(place.bash(HOSTILE[0]));
    // A killed process neither ends nor drops it.
    Box::leak(Box::new(watch));
    let next = Guard::new(Some(file.clone()));
    let notes = next.recover(place.ground());
    assert!(!notes.moved.is_empty() && !file.exists(), "{notes:?}");
    assert!(!place.something_runs());
    assert_eq!(next.recover(place.ground()), Notes::default());
}

#[test]
fn a_command_that_was_given_up_is_compared() {
    let place = Place::new();
    let guard = Guard::default();
    let watch = guard.begin(place.ground()).unwrap();
    drop(watch);
    // It is killed a moment later and has written meanwhile.
    assert!(place.bash(HOSTILE[0]));
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&told);
    guard.tell(std::sync::Arc::new(move |notes| heard.lock().unwrap().push(notes)));
    guard.begin(place.ground()).unwrap().end();
    assert!(!place.something_runs());
}

#[test]
fn a_second_command_does_not_make_the_first_ones_repository_known() {
    let place = Place::new();
    let guard = Guard::default();
    let first = guard.begin(place.ground()).unwrap();
    assert!(place.bash(HOSTILE[0]));
    let second = guard.begin(place.ground()).unwrap();
    second.end();
    assert!(!place.something_runs());
    first.end();
}

#[test]
fn what_is_lent_or_outside_is_left_alone() {
    let place = Place::new();
    assert!(place.bash("mkdir -p lent ../outside"));
    let mut ground = place.ground();
    ground.scope.deny.push(minke_record::ScopeRule {
        target: place.at("work/lent").to_str().unwrap().to_owned(),
        permission: minke_record::Permission::Write,
        recursive: true,
    });
    let guard = Guard::default();
    let watch = guard.begin(ground).unwrap();
    assert!(place.bash("for d in lent ../outside; do git init -q $d && git -C $d config core.pager x; done"));
    assert_eq!(watch.end(), Notes::default());
}

#[test]
fn git_and_the_parser_agree() {
    let place = Place::new();
    for text in [
        "[a]\nb = c\n",
        "[a \"S.x\"] k=v ; comment\n\tl = \"x # y\" # z\n[b]c\n",
        "[A.B]\nk = a\\\n b\\tc\\\"d\n",
        "[a]\r\nk = v\r\n",
        "\u{feff}[a]\nk = \"  two  words  \"  \n",
        "[core]fsmonitor=x y  z\n[a \"q\\\"\\\\w\"]\nk\n",
        "# only a comment\n",
    ] {
        std::fs::write(place.at("work/config"), text).unwrap();
        let listed = Command::new("git")
            .args(["config", "--list", "-z", "-f"])
            .arg(place.at("work/config"))
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
        let parsed = config::parse(text).unwrap();
        let ours: Vec<_> = parsed.iter().map(|setting| (setting.name(), setting.value.clone())).collect();
        assert_eq!(ours, theirs, "{text:?}");
        let written = config::write(&parsed);
        assert_eq!(config::parse(&written).unwrap(), parsed, "written_settings_are_read_back: {written}");
    }
}

#[test]
fn a_broken_text_is_an_error() {
    for text in ["k = v", "[a\nk = v", "[a]\nk = \"v", "[a]\n= v", "[a \"b]\nk", "[a]\nk = \\q", "[a] k v"] {
        assert!(config::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn each_link_to_a_hook_is_a_target() {
    let place = Place::new();
    assert!(place.bash(
        "git init -q . && mkdir -p real scripts cfg tools && ln -s real hop && rm -r .git/hooks && ln -s ../hop .git/hooks && \
         echo x > scripts/a && ln -s ../scripts/a real/pre-commit && git config include.path ../cfg/missing && \
         echo x > tools/f && git config filter.f.clean 'env X=1 tools/f %f' && git config core.pager tools/none"
    ));
    let scope = Scope::write(place.at("work").to_str().unwrap());
    let survey = Scanner::default().scan(Area { scope: &scope, denied: None });
    let found = Finder::new(Some(place.at("home")), |_| None)
        .targets(&survey.repositories, |path| path.starts_with(place.at("work")));
    let names: BTreeSet<String> = found
        .iter()
        .map(|target| target.path.strip_prefix(place.at("work")).unwrap().to_string_lossy().into_owned())
        .collect();
    for name in ["hop", "real", "scripts/a", "cfg/missing", "tools/f", "tools/none"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn a_persons_own_configuration_leads_into_each_repository() {
    let place = Place::new();
    assert!(place.bash("git init -q src && git config --global core.hooksPath .husky"));
    let scope = Scope::write(place.at("work").to_str().unwrap());
    let survey = Scanner::default().scan(Area { scope: &scope, denied: None });
    let finder = Finder::new(Some(place.at("home")), |_| None);
    let found = finder.targets(&survey.repositories, |_| true);
    assert!(found.iter().any(|target| target.path == place.at("work/src/.husky")), "{found:?}");
}

#[test]
fn a_scan_that_keeps_finds_what_a_fresh_one_finds() {
    let place = Place::new();
    let scope = Scope::write(place.at("work").to_str().unwrap());
    let mut kept = Scanner::default();
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let long = std::env::var_os("MINKE_LONG").is_some();
    for round in 0..if long { 5000 } else { 300 } {
        let at = |n: u64| place.at("work").join(format!("d{}/d{}", n % 4, n / 4 % 4));
        let (one, two) = (at(next(16)), at(next(16)));
        // What cannot be done in this state is no step.
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
            Scanner::default().scan(Area { scope: &scope, denied: None }),
            kept.scan(Area { scope: &scope, denied: None }),
        );
        let sorted =
            |survey: &minke_git::Survey| survey.repositories.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(sorted(&again), sorted(&fresh), "round {round}");
    }
}

#[test]
fn a_scan_says_when_it_did_not_see_all() {
    let place = Place::new();
    let many = place.at("work/many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..=minke_git::DIRECTORIES {
        std::fs::create_dir(many.join(number.to_string())).unwrap();
    }
    let scope = Scope::write(place.at("work").to_str().unwrap());
    let survey = Scanner::default().scan(Area { scope: &scope, denied: None });
    assert_eq!(survey.limits.len(), 1);
    let guard = Guard::default();
    let notes = guard.begin(place.ground()).unwrap().end();
    assert_eq!(notes.named, survey.limits);
}

/// `MINKE_LONG=1` prints what a scan of 60,000 files costs.
#[test]
fn a_known_tree_is_scanned_quickly() {
    let place = Place::new();
    let files: usize = if std::env::var_os("MINKE_LONG").is_some() { 60_000 } else { 2000 };
    for dir in 0..files / 10 {
        let dir = place.at("work").join(format!("{}/{}", dir / 50, dir % 50));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..10 {
            std::fs::write(dir.join(file.to_string()), "").unwrap();
        }
    }
    let scope = Scope::write(place.at("work").to_str().unwrap());
    let mut scanner = Scanner::default();
    let area = Area { scope: &scope, denied: None };
    let begun = std::time::Instant::now();
    let first = scanner.scan(area);
    let fresh = begun.elapsed();
    // What was made just now is read once more.
    scanner.scan(area);
    let begun = std::time::Instant::now();
    let again = scanner.scan(area);
    eprintln!(
        "{files} files in {} directories: first {fresh:?}, again {:?}",
        first.directories,
        begun.elapsed()
    );
    assert_eq!(again.directories, first.directories);
}

#[test]
fn a_bare_repository_cannot_be_made_file_by_file() {
    let place = Place::new();
    assert!(place.bash("mkdir -p x/objects x/refs y && git init -q --bare z && echo x > src/config"));
    for (name, held) in [
        ("x/HEAD", true),
        ("z/config", true),
        ("z/hooks/pre-receive", true),
        ("z/HEAD", false),
        ("z/refs/heads/x", false),
        ("y/HEAD", false),
        ("src/config", false),
    ] {
        assert_eq!(minke_git::is_of_a_bare_repository(&place.at("work").join(name)), held, "{name}");
    }
}
