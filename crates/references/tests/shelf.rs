//! Knowledge, workflows and skills of a workspace and of a user: used files, trust, and reported problems.
#![expect(clippy::unwrap_used, reason = "an error fails the test")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_config::trust::TrustStore;
use minke_files::{FilesConfig, ScopedFiles};
use minke_record::{InputSegment, Permission, Scope, ScopeRule, SystemItem, SystemKind};
use minke_references::{CompletionKind, MAX_COMPLETIONS, ReferenceDirs, ReferenceLibrary, ReferenceResolver};

struct ReferenceFixture {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl ReferenceFixture {
    fn new() -> ReferenceFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("work")).unwrap();
        ReferenceFixture { dir, root }
    }

    fn work_dir(&self) -> PathBuf {
        self.root.join("work")
    }

    fn write_file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn write_skill(&self, dir: &str, description: &str) {
        let name = Path::new(dir).file_name().unwrap().to_str().unwrap().to_owned();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo {description}.\n");
        self.write_file(&format!("{dir}/SKILL.md"), &text);
    }

    fn reference_dirs(&self) -> ReferenceDirs {
        ReferenceDirs {
            cwd: self.work_dir(),
            workspace: self.work_dir(),
            config: self.root.join("config"),
            data: self.root.join("data"),
            directories: Vec::new(),
            max_bytes: 4_096,
        }
    }

    fn load_library(&self) -> ReferenceLibrary {
        self.reference_dirs().load_library()
    }

    fn reference_resolver(&self) -> ReferenceResolver {
        let rule = |path: PathBuf, permission| ScopeRule {
            target: path.to_str().unwrap().to_owned(),
            permission,
            recursive: true,
        };
        let scope = Scope {
            allow: vec![rule(self.work_dir(), Permission::Write)],
            deny: vec![rule(self.work_dir().join("closed"), Permission::Read)],
        };
        let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
        ReferenceResolver::new(Arc::new(files), self.reference_dirs())
    }

    fn trust_workspace(&self) {
        std::fs::create_dir_all(self.root.join("data")).unwrap();
        let found = minke_config::trust::scan_workspace(&self.work_dir());
        TrustStore::in_data_dir(&self.root.join("data")).add_workspace(&found, 1).unwrap();
    }

    fn resolve_text(&self, segment: InputSegment) -> Result<Vec<SystemItem>, String> {
        self.reference_resolver().resolve_input(&mut vec![segment], &|_| Ok("blob".to_owned()))
    }
}

fn skill_names(shelf: &ReferenceLibrary) -> Vec<&str> {
    shelf.skills.iter().map(|skill| skill.name.as_str()).collect()
}

fn skill_segment(name: &str) -> InputSegment {
    InputSegment::SkillRef { name: name.to_owned() }
}

fn workflow_segment(slug: &str) -> InputSegment {
    InputSegment::WorkflowInvoke { slug: slug.to_owned() }
}

fn knowledge_segment(slug: &str) -> InputSegment {
    InputSegment::KnowledgeRef { slug: slug.to_owned() }
}

fn item_bodies(items: &[SystemItem]) -> Vec<(SystemKind, &str)> {
    items.iter().map(|item| (item.kind.clone(), item.body.inline().unwrap())).collect()
}

#[test]
fn what_needs_trust_waits_for_it() {
    let world = ReferenceFixture::new();
    world.write_skill("work/.agents/skills/texts", "words");
    world.write_skill("work/.claude/skills/scripts", "commands");
    world.write_file("work/.claude/skills/scripts/run.sh", "#!/bin/sh\necho hi\n");
    let script = world.work_dir().join(".claude/skills/scripts/run.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.write_file(
        "work/.minke/workflows/release.md",
        "---\ndescription: Make a release\nrequires: [steps]\n---\nGo.\n",
    );
    world.write_file(
        "work/.minke/knowledge/steps.md",
        "---\ncreated_at: 1\nkind: fact\ndescription: d\n---\nFirst this.\n",
    );
    let shelf = world.load_library();
    assert_eq!(skill_names(&shelf), ["texts"]);
    assert!(shelf.workflows.is_empty() && shelf.problems.is_empty(), "{:?}", shelf.problems);
    for waits in [skill_segment("scripts"), workflow_segment("release"), knowledge_segment("steps")] {
        assert!(world.resolve_text(waits).unwrap_err().contains("there is no "));
    }
    assert_eq!(world.resolve_text(skill_segment("texts")).unwrap().len(), 1);
    world.trust_workspace();
    let shelf = world.load_library();
    assert_eq!(skill_names(&shelf), ["scripts", "texts"]);
    let read = world.resolve_text(workflow_segment("release")).unwrap();
    assert_eq!(
        item_bodies(&read),
        [
            (SystemKind::Knowledge, "[Knowledge `steps`; it may be out of date]\nFirst this.\n"),
            (SystemKind::Workflow, "[Workflow `release`: do this now]\nGo.\n"),
        ]
    );
    let read = world.resolve_text(skill_segment("scripts")).unwrap();
    let dir = world.work_dir().join(".claude/skills/scripts");
    let head = format!("[Skill `scripts`; files that it names are in {}]\nDo commands.\n", dir.display());
    assert_eq!(item_bodies(&read), [(SystemKind::Skill, head.as_str())]);
    // A change revokes the trust.
    world.write_file(
        "work/.minke/workflows/release.md",
        "---\ndescription: Make a release\n---\nSomething else.\n",
    );
    assert!(world.resolve_text(workflow_segment("release")).is_err());
    assert_eq!(skill_names(&world.load_library()), ["texts"]);
}

#[test]
fn collisions_are_named() {
    let world = ReferenceFixture::new();
    world.write_skill("work/.agents/skills/same", "the project's");
    world.write_skill("work/.claude/skills/same", "the project's");
    world.write_skill("work/.claude/skills/other", "of claude");
    world.write_skill("work/.agents/skills/other", "of agents");
    world.write_skill("config/skills/same", "mine");
    world.write_skill("config/skills/own", "mine alone");
    world.write_skill("more/own", "configured");
    let places = ReferenceDirs { directories: vec![world.root.join("more")], ..world.reference_dirs() };
    let shelf = places.load_library();
    assert_eq!(skill_names(&shelf), ["other", "own", "same"]);
    assert_eq!(shelf.find_skill("same").unwrap().description, "the project's");
    assert_eq!(shelf.find_skill("other").unwrap().description, "of agents");
    assert_eq!(shelf.find_skill("own").unwrap().description, "configured");
    assert_eq!(shelf.problems.len(), 3, "{:?}", shelf.problems);
    for (problem, left) in
        shelf.problems.iter().zip([".claude/skills/other", "config/skills/own", "config/skills/same"])
    {
        assert!(problem.contains(left) && problem.contains("has one of that name"), "{problem}");
    }
}

#[test]
fn a_bad_file_is_reported_and_skipped() {
    let world = ReferenceFixture::new();
    world.write_skill("work/.agents/skills/good", "good");
    world.write_file("work/.agents/skills/empty/README.md", "no skill\n");
    world.write_file(
        "work/.agents/skills/huge/SKILL.md",
        &format!("---\nname: huge\ndescription: {}\n---\n", "x".repeat(900_000)),
    );
    world.write_file("work/.agents/skills/bomb/SKILL.md", "---\nname: bomb\ndescription: &a [*a, *a]\n---\n");
    world.write_file("work/.agents/skills/named/SKILL.md", "---\nname: otherwise\ndescription: d\n---\n");
    std::fs::create_dir_all(world.work_dir().join(".agents/skills/link")).unwrap();
    symlink("/etc/passwd", world.work_dir().join(".agents/skills/link/SKILL.md")).unwrap();
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
    world.write_file("config/skills/large/SKILL.md", &"y".repeat(10 * 1024 * 1024));
    world.write_file("config/skills/plain-file", "not a directory");
    world.write_skill("config/skills/own", "mine");
    world.write_file("work/.minke/workflows/good.md", "---\ndescription: d\n---\nbody\n");
    world.write_file("work/.minke/workflows/typo.md", "---\ndescripton: d\n---\nbody\n");
    world.write_file(
        "work/.minke/workflows/lacks.md",
        "---\ndescription: d\nrequires: [nothing]\n---\nbody\n",
    );
    world.write_file("work/.minke/workflows/Not A Slug.md", "---\ndescription: d\n---\nbody\n");
    world.trust_workspace();
    let shelf = world.load_library();
    assert_eq!(skill_names(&shelf), ["good", "own"]);
    assert_eq!(shelf.workflows.iter().map(|w| w.slug.as_str()).collect::<Vec<_>>(), ["good"]);
    for bad in ["empty", "huge", "bomb", "named", "link", "fifo", "large", "typo", "lacks", "Not A Slug"] {
        assert!(shelf.problems.iter().any(|problem| problem.contains(bad)), "{bad}: {:#?}", shelf.problems);
    }
    assert!(shelf.problems.iter().all(|problem| problem.len() < 600));
    assert!(
        world.resolve_text(skill_segment("bomb")).unwrap_err().contains("anchors"),
        "a reference to it returns the reason"
    );
}

#[test]
fn one_bad_reference_refuses_the_input() {
    let world = ReferenceFixture::new();
    world.write_file("work/a", "A");
    let good = InputSegment::FileRef { path: "a".to_owned() };
    let mut input =
        vec![InputSegment::from_text("x"), good.clone(), InputSegment::FileRef { path: "b".to_owned() }];
    let before = input.clone();
    let why = world.reference_resolver().resolve_input(&mut input, &|_| Ok(String::new())).unwrap_err();
    assert!(why.starts_with("params.input[2]: there is no file `b`"), "{why}");
    assert_eq!(input, before);
    for hidden in ["---\nuser_invocable: false\n---\nx", "---\nuser_invocable: perhaps\n---\nx"] {
        world.write_file("work/.minke/knowledge/k.md", hidden);
        assert!(world.resolve_text(knowledge_segment("k")).unwrap_err().contains("user_invocable"));
    }
    world.write_file("work/.minke/knowledge/k.md", &"漢".repeat(9_000));
    let read = world.resolve_text(knowledge_segment("k")).unwrap();
    assert!(item_bodies(&read)[0].1.ends_with("[cut: the first 8000 characters are shown]\n"));
    // Outside of the files that the pod may read.
    world.write_skill("config/skills/own", "mine");
    assert!(world.resolve_text(skill_segment("own")).unwrap_err().contains("outside"));
}

#[test]
fn completions_are_few_and_true() {
    let world = ReferenceFixture::new();
    for number in 0..300 {
        world.write_file(&format!("work/many/file-{number:03}.txt"), "");
    }
    world.write_file("work/src/deep/main.rs", "");
    world.write_file("work/src/.hidden", "");
    world.write_file("work/ignored/main.rs", "");
    world.write_file("work/.ignore", "ignored/\n");
    world.write_file("work/closed/main.rs", "");
    world.write_file("main.rs", "outside");
    symlink("/etc", world.work_dir().join("etc")).unwrap();
    world.write_skill("work/.agents/skills/mapping", "d");
    world.write_file("work/.minke/knowledge/maps.md", "x");
    let references = world.reference_resolver();
    let complete = |wanted, prefix: &str| -> Vec<String> {
        references.complete_prefix(wanted, prefix).into_iter().map(|found| found.value).collect()
    };
    assert_eq!(complete(CompletionKind::File, "many/").len(), MAX_COMPLETIONS);
    assert_eq!(complete(CompletionKind::File, "src/").first().map(String::as_str), Some("src/deep/"));
    assert_eq!(complete(CompletionKind::File, "src/.").first().map(String::as_str), Some("src/.hidden"));
    assert_eq!(complete(CompletionKind::File, "sr").first().map(String::as_str), Some("src/"));
    // The index is built in the background; the directory is listed at once.
    let begun = std::time::Instant::now();
    while complete(CompletionKind::File, "main").is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "the index was not built");
        std::thread::yield_now();
    }
    assert_eq!(complete(CompletionKind::File, "main"), ["src/deep/main.rs"]);
    assert_eq!(complete(CompletionKind::File, "sdm"), ["src/deep/main.rs"]);
    for outside in ["../", "/", "/etc/pass", "etc/pass", "closed/", "clos", "zzz", &"x".repeat(10_000), "\0"]
    {
        assert_eq!(complete(CompletionKind::File, outside), [""; 0], "{outside}");
    }
    assert_eq!(complete(CompletionKind::Skill, "map"), ["mapping"]);
    assert_eq!(complete(CompletionKind::Command, "mg"), ["mapping"]);
    assert_eq!(complete(CompletionKind::Knowledge, ""), ["maps"]);
    assert_eq!(complete(CompletionKind::Workflow, ""), [""; 0]);
    drop(world.dir);
}
