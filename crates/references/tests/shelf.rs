//! Knowledge, workflows and skills of a workspace and of a person: what is used, what waits, what is named.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as a test does")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_files::{Files, FilesConfig};
use minke_record::{InputSegment, Permission, Scope, ScopeRule, SystemItem, SystemKind};
use minke_references::{COMPLETIONS, Places, References, Shelf, Wanted};
use minke_trust::TrustStore;

struct World {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("work")).unwrap();
        World { dir, root }
    }

    fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn skill(&self, dir: &str, description: &str) {
        let name = Path::new(dir).file_name().unwrap().to_str().unwrap().to_owned();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo {description}.\n");
        self.put(&format!("{dir}/SKILL.md"), &text);
    }

    fn places(&self) -> Places {
        Places {
            cwd: self.work(),
            workspace: self.work(),
            config: self.root.join("config"),
            data: self.root.join("data"),
            directories: Vec::new(),
            max_bytes: 4_096,
        }
    }

    fn shelf(&self) -> Shelf {
        self.places().shelf()
    }

    fn references(&self) -> References {
        let rule = |path: PathBuf, permission| ScopeRule {
            target: path.to_str().unwrap().to_owned(),
            permission,
            recursive: true,
        };
        let scope = Scope {
            allow: vec![rule(self.work(), Permission::Write)],
            deny: vec![rule(self.work().join("closed"), Permission::Read)],
        };
        let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
        References::new(Arc::new(files), self.places())
    }

    fn trust(&self) {
        std::fs::create_dir_all(self.root.join("data")).unwrap();
        let found = minke_trust::look(&self.work());
        TrustStore::in_data(&self.root.join("data")).trust(&found, 1).unwrap();
    }

    fn refer(&self, segment: InputSegment) -> Result<Vec<SystemItem>, String> {
        self.references().refer(&mut vec![segment], &|_| Ok("blob".to_owned()))
    }
}

fn names(shelf: &Shelf) -> Vec<&str> {
    shelf.skills.iter().map(|skill| skill.name.as_str()).collect()
}

fn skill(name: &str) -> InputSegment {
    InputSegment::SkillRef { name: name.to_owned() }
}

fn workflow(slug: &str) -> InputSegment {
    InputSegment::WorkflowInvoke { slug: slug.to_owned() }
}

fn knowledge(slug: &str) -> InputSegment {
    InputSegment::KnowledgeRef { slug: slug.to_owned() }
}

fn bodies(items: &[SystemItem]) -> Vec<(SystemKind, &str)> {
    items.iter().map(|item| (item.kind.clone(), item.body.here().unwrap())).collect()
}

#[test]
fn what_needs_trust_waits_for_it() {
    let world = World::new();
    world.skill("work/.agents/skills/texts", "words");
    world.skill("work/.claude/skills/scripts", "commands");
    world.put("work/.claude/skills/scripts/run.sh", "#!/bin/sh\necho hi\n");
    let script = world.work().join(".claude/skills/scripts/run.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.put(
        "work/.minke/workflows/release.md",
        "---\ndescription: Make a release\nrequires: [steps]\n---\nGo.\n",
    );
    world.put(
        "work/.minke/knowledge/steps.md",
        "---\ncreated_at: 1\nkind: fact\ndescription: d\n---\nFirst this.\n",
    );
    let shelf = world.shelf();
    assert_eq!(names(&shelf), ["texts"]);
    assert!(shelf.workflows.is_empty() && shelf.problems.is_empty(), "{:?}", shelf.problems);
    for waits in [skill("scripts"), workflow("release"), knowledge("steps")] {
        assert!(world.refer(waits).unwrap_err().contains("there is no "));
    }
    assert_eq!(world.refer(skill("texts")).unwrap().len(), 1);
    world.trust();
    let shelf = world.shelf();
    assert_eq!(names(&shelf), ["scripts", "texts"]);
    let read = world.refer(workflow("release")).unwrap();
    assert_eq!(
        bodies(&read),
        [
            (SystemKind::Knowledge, "[Knowledge `steps`; it may be out of date]\nFirst this.\n"),
            (SystemKind::Workflow, "[Workflow `release`: do this now]\nGo.\n"),
        ]
    );
    let read = world.refer(skill("scripts")).unwrap();
    let dir = world.work().join(".claude/skills/scripts");
    let head = format!("[Skill `scripts`; files that it names lie in {}]\nDo commands.\n", dir.display());
    assert_eq!(bodies(&read), [(SystemKind::Skill, head.as_str())]);
    // A change takes it away again.
    world.put("work/.minke/workflows/release.md", "---\ndescription: Make a release\n---\nSomething else.\n");
    assert!(world.refer(workflow("release")).is_err());
    assert_eq!(names(&world.shelf()), ["texts"]);
}

#[test]
fn collisions_are_named() {
    let world = World::new();
    world.skill("work/.agents/skills/same", "the project's");
    world.skill("work/.claude/skills/same", "the project's");
    world.skill("work/.claude/skills/other", "of claude");
    world.skill("work/.agents/skills/other", "of agents");
    world.skill("config/skills/same", "mine");
    world.skill("config/skills/own", "mine alone");
    world.skill("more/own", "configured");
    let places = Places { directories: vec![world.root.join("more")], ..world.places() };
    let shelf = places.shelf();
    assert_eq!(names(&shelf), ["other", "own", "same"]);
    assert_eq!(shelf.skill("same").unwrap().description, "the project's");
    assert_eq!(shelf.skill("other").unwrap().description, "of agents");
    assert_eq!(shelf.skill("own").unwrap().description, "configured");
    assert_eq!(shelf.problems.len(), 3, "{:?}", shelf.problems);
    for (problem, left) in
        shelf.problems.iter().zip([".claude/skills/other", "config/skills/own", "config/skills/same"])
    {
        assert!(problem.contains(left) && problem.contains("has one of that name"), "{problem}");
    }
}

#[test]
fn a_bad_file_is_reported_and_skipped() {
    let world = World::new();
    world.skill("work/.agents/skills/good", "good");
    world.put("work/.agents/skills/empty/README.md", "no skill\n");
    world.put(
        "work/.agents/skills/huge/SKILL.md",
        &format!("---\nname: huge\ndescription: {}\n---\n", "x".repeat(900_000)),
    );
    world.put("work/.agents/skills/bomb/SKILL.md", "---\nname: bomb\ndescription: &a [*a, *a]\n---\n");
    world.put("work/.agents/skills/named/SKILL.md", "---\nname: otherwise\ndescription: d\n---\n");
    std::fs::create_dir_all(world.work().join(".agents/skills/link")).unwrap();
    symlink("/etc/passwd", world.work().join(".agents/skills/link/SKILL.md")).unwrap();
    let fifo = world.root.join("config/skills/fifo");
    std::fs::create_dir_all(&fifo).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fifo.join("SKILL.md"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    world.put("config/skills/large/SKILL.md", &"y".repeat(10 * 1024 * 1024));
    world.put("config/skills/plain-file", "not a directory");
    world.skill("config/skills/own", "mine");
    world.put("work/.minke/workflows/good.md", "---\ndescription: d\n---\nbody\n");
    world.put("work/.minke/workflows/typo.md", "---\ndescripton: d\n---\nbody\n");
    world.put("work/.minke/workflows/lacks.md", "---\ndescription: d\nrequires: [nothing]\n---\nbody\n");
    world.put("work/.minke/workflows/Not A Slug.md", "---\ndescription: d\n---\nbody\n");
    world.trust();
    let shelf = world.shelf();
    assert_eq!(names(&shelf), ["good", "own"]);
    assert_eq!(shelf.workflows.iter().map(|w| w.slug.as_str()).collect::<Vec<_>>(), ["good"]);
    for bad in ["empty", "huge", "bomb", "named", "link", "fifo", "large", "typo", "lacks", "Not A Slug"] {
        assert!(shelf.problems.iter().any(|problem| problem.contains(bad)), "{bad}: {:#?}", shelf.problems);
    }
    assert!(shelf.problems.iter().all(|problem| problem.len() < 600));
    assert!(
        world.refer(skill("bomb")).unwrap_err().contains("anchors"),
        "the reason is told to whoever asks for it"
    );
}

#[test]
fn one_bad_reference_refuses_the_input() {
    let world = World::new();
    world.put("work/a", "A");
    let good = InputSegment::FileRef { path: "a".to_owned() };
    let mut input =
        vec![InputSegment::text("x"), good.clone(), InputSegment::FileRef { path: "b".to_owned() }];
    let before = input.clone();
    let why = world.references().refer(&mut input, &|_| Ok(String::new())).unwrap_err();
    assert!(why.starts_with("params.input[2]: there is no file `b`"), "{why}");
    assert_eq!(input, before);
    for hidden in ["---\nuser_invocable: false\n---\nx", "---\nuser_invocable: perhaps\n---\nx"] {
        world.put("work/.minke/knowledge/k.md", hidden);
        assert!(world.refer(knowledge("k")).unwrap_err().contains("user_invocable"));
    }
    world.put("work/.minke/knowledge/k.md", &"漢".repeat(9_000));
    let read = world.refer(knowledge("k")).unwrap();
    assert!(bodies(&read)[0].1.ends_with("[cut: the first 8000 characters are shown]\n"));
    // Outside of what the pod may read.
    world.skill("config/skills/own", "mine");
    assert!(world.refer(skill("own")).unwrap_err().contains("outside"));
}

#[test]
fn completions_are_few_and_true() {
    let world = World::new();
    for number in 0..300 {
        world.put(&format!("work/many/file-{number:03}.txt"), "");
    }
    world.put("work/src/deep/main.rs", "");
    world.put("work/src/.hidden", "");
    world.put("work/ignored/main.rs", "");
    world.put("work/.ignore", "ignored/\n");
    world.put("work/closed/main.rs", "");
    world.put("main.rs", "outside");
    symlink("/etc", world.work().join("etc")).unwrap();
    world.skill("work/.agents/skills/mapping", "d");
    world.put("work/.minke/knowledge/maps.md", "x");
    let references = world.references();
    let complete = |wanted, prefix: &str| -> Vec<String> {
        references.complete(wanted, prefix).into_iter().map(|found| found.value).collect()
    };
    assert_eq!(complete(Wanted::File, "many/").len(), COMPLETIONS);
    assert_eq!(complete(Wanted::File, "src/").first().map(String::as_str), Some("src/deep/"));
    assert_eq!(complete(Wanted::File, "src/.").first().map(String::as_str), Some("src/.hidden"));
    assert_eq!(complete(Wanted::File, "sr").first().map(String::as_str), Some("src/"));
    // The index is made in the background; the directory answers at once.
    let begun = std::time::Instant::now();
    while complete(Wanted::File, "main").is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "the index never came");
        std::thread::yield_now();
    }
    assert_eq!(complete(Wanted::File, "main"), ["src/deep/main.rs"]);
    assert_eq!(complete(Wanted::File, "sdm"), ["src/deep/main.rs"]);
    for outside in ["../", "/", "/etc/pass", "etc/pass", "closed/", "clos", "zzz", &"x".repeat(10_000), "\0"]
    {
        assert_eq!(complete(Wanted::File, outside), [""; 0], "{outside}");
    }
    assert_eq!(complete(Wanted::Skill, "map"), ["mapping"]);
    assert_eq!(complete(Wanted::Command, "mg"), ["mapping"]);
    assert_eq!(complete(Wanted::Knowledge, ""), ["maps"]);
    assert_eq!(complete(Wanted::Workflow, ""), [""; 0]);
    drop(world.dir);
}
