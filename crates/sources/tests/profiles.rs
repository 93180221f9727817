//! Profiles and their registries, with real files.
#![expect(clippy::unwrap_used, reason = "a test whose files cannot be made has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use minke_lua::WorkspaceScope;
use minke_manifest::profiles::{Choice, ProfileName, Source};
use minke_manifest::{Layer, resolve};
use minke_sources::{Child, Profile, Registry, declare_child, new_profile};

/// A configuration directory and a workspace.
struct House {
    _dir: tempfile::TempDir,
    config: PathBuf,
    workspace: PathBuf,
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (config, workspace) = (root.join("config"), root.join("work"));
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(workspace.join(".minke/profiles")).unwrap();
        House { _dir: dir, config, workspace }
    }

    fn user(&self, file: &str, text: &str) -> &House {
        put(&self.config.join(file), text);
        self
    }

    fn project(&self, file: &str, text: &str) -> &House {
        put(&self.workspace.join(".minke").join(file), text);
        self
    }

    fn registry(&self, trusted: bool) -> Registry {
        let found = minke_trust::look(&self.workspace);
        Registry::find(&self.config, trusted.then_some(&found))
    }

    fn chosen(&self, selector: &str) -> Result<Profile, String> {
        self.registry(true).chosen(Some(selector), &self.workspace).map_err(|e| e.to_string())
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn says(fields: &str) -> String {
    format!(
        "local profile, scope = require('minke.profile'), require('minke.scope')\nreturn profile {{\n{fields}\n}}"
    )
}

fn manifest(profile: &Profile) -> minke_manifest::Manifest {
    resolve(std::slice::from_ref(&profile.layer)).unwrap().manifest
}

#[test]
fn a_builtin_says_what_is_listed() {
    let house = House::new();
    let registry = house.registry(false);
    let offer = registry.offer();
    assert_eq!(offer.problem, None);
    let names: Vec<String> = offer.profiles.iter().map(|listed| listed.name.to_string()).collect();
    assert_eq!(
        names,
        ["builtin:default", "builtin:coder", "builtin:reviewer", "builtin:explorer", "builtin:planner"]
    );
    for listed in &offer.profiles {
        let profile = registry.load(&listed.name).unwrap_or_else(|e| panic!("{}: {e}", listed.name));
        assert_eq!(profile.description, listed.description, "{}", listed.name);
        let instruction = manifest(&profile).worker.instruction;
        assert_eq!(instruction, format!("$minke/{}", listed.name.name));
    }
    let reviewer = house.chosen("reviewer").unwrap();
    assert_eq!(reviewer.scope, Some(WorkspaceScope::Read));
    assert_eq!(reviewer.slug.as_deref(), Some("reviewer"));
    let starter = minke_sources::STARTER.replace("NAME", "mine");
    house.user("mine.lua", &starter).user("profiles.toml", "[profile]\nmine = \"mine.lua\"");
    assert_eq!(house.chosen("mine").unwrap().chain, ["user:mine", "builtin:default"]);
}

#[test]
fn later_defaults_win_and_an_unqualified_one_belongs_to_its_file() {
    let house = House::new();
    let default = |trusted| house.registry(trusted).default_name().to_string();
    assert_eq!(default(true), "builtin:default");
    house.user("profiles.toml", "default = 'coder'\n[profile]\ncoder = 'c.lua'\n").user("c.lua", &says(""));
    assert_eq!(default(true), "user:coder", "not the built-in one of the same name");
    house.project("profiles.toml", "default = \"builtin:planner\"");
    assert_eq!(default(true), "builtin:planner");
    assert_eq!(default(false), "user:coder", "nobody trusted the other");
    assert_eq!(house.chosen("").unwrap().selector, "builtin:planner");
    assert_eq!(house.chosen("default").unwrap().selector, "builtin:planner");
    house
        .project("profiles.toml", "default = 'x'\n[profile]\nx = 'profiles/x.lua'")
        .project("profiles/x.lua", &says(""));
    assert_eq!(default(true), "project:x");
    let ambiguous = house.chosen("coder").unwrap_err();
    assert!(ambiguous.contains("`builtin:coder` or `user:coder`"), "{ambiguous}");
    assert_eq!(house.chosen("user:coder").unwrap().selector, "user:coder");
}

#[test]
fn a_project_profile_is_used_once_trusted() {
    let house = House::new();
    house.project(
        "profiles.toml",
        "[profile]\nmine = { path = 'profiles/mine.lua', description = 'of the project' }",
    );
    house.project("profiles/mine.lua", &says("worker = { max_turns = require('lib.n') }"));
    house.project("profiles/lib/n.lua", "return 7");
    let name = ProfileName::new(Source::Project, "mine");
    assert_eq!(manifest(&house.registry(true).load(&name).unwrap()).worker.max_turns, 7);
    assert!(house.registry(true).offer().listing().contains("project:mine: of the project"));
    let untrusted = house.registry(false);
    assert!(untrusted.load(&name).is_err());
    assert!(!untrusted.offer().listing().contains("project:"));
    // Nothing of it is even read before.
    house.project("profiles.toml", "= broken");
    assert_eq!(house.registry(false).problems(), &[] as &[String]);
}

#[test]
fn a_registry_leads_nowhere_else() {
    let house = House::new();
    put(&house.workspace.join("outside.lua"), &says(""));
    put(&house.workspace.join(".minke/memory/x.lua"), &says(""));
    for path in [
        "../outside.lua",
        "/etc/passwd",
        "profiles/../../outside.lua",
        "outside.lua",
        "memory/x.lua",
        "./profiles/x.lua",
        "",
    ] {
        house.project("profiles.toml", &format!("[profile]\nx = '{path}'"));
        let registry = house.registry(true);
        assert_eq!(registry.problems().len(), 1, "{path}");
        assert!(registry.problems()[0].contains("`x`"), "{path}: {:?}", registry.problems());
    }
    house.project("profiles.toml", "[profile]\nx = 'profiles/x.lua'");
    symlink(house.workspace.join("outside.lua"), house.workspace.join(".minke/profiles/x.lua")).unwrap();
    let error = house.chosen("project:x").unwrap_err();
    assert!(error.contains("symbolic link"), "{error}");
}

#[test]
fn a_module_never_leads_outside() {
    let house = House::new();
    put(&house.config.parent().unwrap().join("secret.lua"), "return 1");
    house
        .user("profiles.toml", "[profile]\nx = 'here/x.lua'")
        .user("here/x.lua", &says("worker = { max_turns = require('m') }"));
    let wanted = |text: &str| {
        let error = house.chosen("x").unwrap_err();
        assert!(error.contains(text) && error.contains("x.lua:3"), "{error}");
    };
    wanted("no module `m`");
    let module = house.config.join("here/m.lua");
    symlink("../../secret.lua", &module).unwrap();
    wanted("symbolic link");
    fs::remove_file(&module).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &module, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    wanted("module `m`");
    fs::remove_file(&module).unwrap();
    symlink("../..", house.config.join("here/up")).unwrap();
    house.user("here/x.lua", &says("worker = { max_turns = require('up.secret') }"));
    wanted("symbolic link");
    for name in ["../secret", "up/secret", "...secret", "/secret"] {
        house.user("here/x.lua", &says(&format!("worker = {{ max_turns = require('{name}') }}")));
        wanted("");
    }
    house
        .user("here/x.lua", &says("worker = { max_turns = require('m') }"))
        .user("here/m.lua", &"-".repeat(70_000));
    wanted("longer than");
    house.user("here/m.lua", "return 3");
    assert_eq!(manifest(&house.chosen("x").unwrap()).worker.max_turns, 3);
}

#[test]
fn what_is_wrong_with_a_registry_is_told_with_its_line() {
    let house = House::new();
    for (text, words) in [
        ("[profile\n", "profiles.toml:1"),
        ("default = 'nothing'", "`user:nothing`, and there is no such profile"),
        ("default = 'x/y'", "names a file"),
        ("default = 'inherit'", "no profile's name"),
        ("\ndefalt = 'x'", "profiles.toml:2: unknown field `defalt`"),
        ("[profile]\n\nx = 5", "profiles.toml:3"),
        ("[profile]\nx = { path = 'x', descripton = 'y' }", "profiles.toml:2"),
        ("[profile]\n'A B' = 'x'", "`A B`"),
        ("[profile]\ninherit = 'x'", "not `inherit`"),
        ("[profile]\nx = { path = 'x', description = \"a\\nb\" }", "one line"),
    ] {
        house.user("profiles.toml", text);
        let registry = house.registry(true);
        let problems = registry.problems().join("; ");
        assert!(problems.contains(words), "{text}: `{words}` is missing: {problems}");
        let offer = registry.offer();
        assert_eq!(offer.choose(Some("inherit")), Ok(Choice::Inherit));
        assert!(house.chosen("builtin:coder").unwrap_err().contains(words), "{text}");
        assert!(offer.listing().contains(words), "{text}");
    }
    let many: String = (0..65).map(|n| format!("p{n} = 'x'\n")).collect();
    house.user("profiles.toml", &format!("[profile]\n{many}"));
    assert!(house.registry(true).problems()[0].contains("64 are the most"));
    fs::remove_file(house.config.join("profiles.toml")).unwrap();
    fs::create_dir(house.config.join("profiles.toml")).unwrap();
    assert_eq!(house.registry(true).problems().len(), 1);
}

#[test]
fn a_profile_extends_another_and_circles_are_told() {
    let house = House::new();
    house.user("profiles.toml", "[profile]\na = 'a.lua'\nb = 'b.lua'\nc = 'c.lua'");
    house.user("a.lua", &says("extends = 'b', worker = { max_turns = 1 }, permissions = { rule = { { action = 'ask', tool = 'Bash' } } }"));
    house.user("b.lua", &says("extends = 'builtin:reviewer', description = 'b', worker = { max_turns = 2, max_tokens = 5 }, permissions = { rule = { { action = 'deny', tool = 'WebFetch' } } }"));
    let a = house.chosen("a").unwrap();
    assert_eq!(a.chain, ["user:a", "user:b", "builtin:reviewer"]);
    assert_eq!(
        (a.scope, a.slug.as_deref(), a.description.as_deref()),
        (Some(WorkspaceScope::Read), None, None)
    );
    let resolved = resolve(std::slice::from_ref(&a.layer)).unwrap();
    let worker = &resolved.manifest.worker;
    assert_eq!((worker.max_turns, worker.max_tokens), (1, Some(5)));
    assert_eq!(worker.instruction, "$minke/reviewer");
    assert_eq!(resolved.manifest.permissions.rule.len(), 2, "rules come together");
    assert_eq!(
        resolved.origin("worker.max_turns").to_string(),
        format!("{}:3", house.config.join("a.lua").display())
    );
    let scope = &resolved.manifest.scope;
    assert_eq!((scope.allow.len(), scope.deny.len()), (1, 1), "the workspace is read and nothing more");
    let reviewer = resolved.origin("worker.instruction").to_string();
    assert!(reviewer.starts_with("builtin:reviewer:"), "{reviewer}");

    house.user("b.lua", &says("extends = 'user:c'")).user("c.lua", &says("extends = 'a'"));
    let circle = house.chosen("b").unwrap_err();
    assert!(circle.contains("user:b → user:c → user:a → user:b"), "{circle}");
    house.user("b.lua", &says("extends = 'nothing'"));
    assert!(house.chosen("b").unwrap_err().contains("b.lua: `extends`: there is no profile `nothing`"));
    house.user("b.lua", &says("extends = 'inherit'"));
    assert!(house.chosen("b").unwrap_err().contains("no profile"));
    let names: Vec<String> = (0..10).map(|n| format!("p{n} = 'p{n}.lua'\n")).collect();
    house.user("profiles.toml", &format!("[profile]\n{}", names.concat()));
    for n in 0..10 {
        house.user(
            &format!("p{n}.lua"),
            &says(&format!("extends = '{}'", if n < 9 { format!("p{}", n + 1) } else { "default".into() })),
        );
    }
    assert!(house.chosen("p0").unwrap_err().contains("8 profiles are the most"));
    assert_eq!(house.chosen("p3").unwrap().chain.len(), 8);
}

#[test]
fn a_path_is_for_the_command_line() {
    let house = House::new();
    put(&house.workspace.join("tools/own.lua"), &says("slug = 'own', worker = { max_turns = require('n') }"));
    put(&house.workspace.join("tools/n.lua"), "return 4");
    let absolute = house.workspace.join("tools/own.lua");
    for said in ["tools/own.lua", "./tools/own.lua", "path:tools/own.lua", absolute.to_str().unwrap()] {
        let profile = house.chosen(said).unwrap_or_else(|e| panic!("{said}: {e}"));
        assert_eq!(manifest(&profile).worker.max_turns, 4, "{said}");
    }
    assert!(house.chosen("tools/missing.lua").unwrap_err().contains("no such file"));
    assert!(house.chosen("tools/").unwrap_err().contains("not a file"));
    assert!(house.chosen("inherit").unwrap_err().contains("SpawnPod"));
    assert!(house.chosen("other:x").unwrap_err().contains("prefix"));
}

#[test]
fn a_key_that_is_none_is_refused_with_its_line() {
    let house = House::new();
    let refused = |fields: &str| {
        put(&house.workspace.join("p.lua"), &says(fields));
        house.chosen("p.lua").unwrap_err()
    };
    for (fields, line, words) in [
        ("worker = {\n max_turn = 5 }", 4, "`worker.max_turns`"),
        ("worker = {\n\n max_turns = 'many' }", 5, "`worker.max_turns`"),
        (
            "permissions = { rule = {\n { action = 'deny', tool = 'Bash' },\n { action = 'alow', tool = 'Bash' } } }",
            3,
            "entry 2",
        ),
        ("memory = { enabled = true }", 3, "memory"),
        ("sandbox = { mode = 'off' }", 3, "--unsandboxed"),
        ("sandbox = { lifted = { 'x' } }", 3, "--lift"),
        ("pod = {}", 3, "`pod` is no field"),
    ] {
        let error = refused(fields);
        assert!(error.contains(&format!("p.lua:{line}: ")), "{fields}: {error}");
        assert!(error.contains(words), "{fields}: `{words}` is missing: {error}");
    }
}

/// The whole way: registries, a profile that extends another, and the manifest.
#[test]
fn resolving_is_quick() {
    let house = House::new();
    house.user("profiles.toml", "default = 'a'\n[profile]\na = { path = 'a.lua', description = 'x' }");
    house.user("a.lua", &says("extends = 'builtin:coder', worker = { max_turns = 9 }"));
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            let profile = house.registry(false).chosen(None, &house.workspace).unwrap();
            let layers: [Layer; 1] = [profile.layer];
            assert_eq!(resolve(&layers).unwrap().manifest.worker.max_turns, 9);
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    eprintln!(
        "a profile and its manifest: {} µs, at most {} µs",
        times[10].as_micros(),
        times[19].as_micros()
    );
    // Without optimization, on a busy machine; the figure that counts is the benchmark's.
    assert!(times[10].as_millis() < 100, "{times:?}");
}

/// A profile that says everything that would free its pod, under a parent that has nothing of it.
#[test]
fn no_profile_frees_a_child() {
    let house = House::new();
    house.user(
        "config.toml",
        "[worker]\nmax_tokens = 11\n[model]\nref = \"scripted/config\"\n[web]\nenabled = true\n",
    );
    house.user("profiles.toml", "default = 'free'\n[profile]\nfree = 'free.lua'\nown = 'own.lua'");
    house.user(
        "free.lua",
        &says(
            "scope = scope.workspace_write(), worker = { instruction = 'Be free.' },\n\
             permissions = { posture = 'full', default_action = 'allow', may_answer = true,\n\
             rule = { { action = 'allow', tool = 'Bash' } } },\n\
             sandbox = { mode = 'scope', network = 'on', env = { pass = { 'LC_ALL', 'HOME_TOWN' } } },\n\
             web = { fetch = { allow_private = true } }, budget = { usd = 1000 }",
        ),
    );
    house.user("own.lua", &says("model = { ref = 'scripted/own' }"));
    let said = serde_json::json!({
        "model": { "ref": "scripted/parent" },
        "permissions": { "posture": "ask", "may_answer": true, "rule": [{ "action": "deny", "tool": "Bash" }] },
        "sandbox": { "mode": "read_only", "network": ["docs.rs"], "env": { "pass": ["LC_ALL"] } },
        "worker": { "instruction": "Be the parent.", "max_tokens": 99 },
        "pod": { "limits": { "depth": 2 } },
    });
    let parent = minke_manifest::Manifest::read(&said).unwrap();
    let child = |selector: &str| {
        let profile = house.registry(true).registered(Some(selector)).unwrap();
        let (config, workspace) = (house.config.as_path(), house.workspace.as_path());
        let child =
            Child { config, workspace, here: workspace, trusted: true, profile: &profile, parent: &parent };
        declare_child(child).unwrap()
    };
    let free = child("default");
    assert_eq!(free.permissions.posture, parent.permissions.posture);
    assert_eq!(free.permissions.rule, parent.permissions.rule);
    assert_eq!((free.permissions.default_action, free.permissions.may_answer), (None, false));
    assert_eq!((free.sandbox.mode, &free.sandbox.network), (parent.sandbox.mode, &parent.sandbox.network));
    assert_eq!(free.sandbox.env.pass, ["LC_ALL"]);
    assert_eq!(free.web, None);
    assert!(free.budget.is_empty() && free.scope.is_empty());
    assert_eq!(free.pod.limits.depth, 2);
    // Files say how it works, the parent says with which model.
    assert_eq!((free.worker.instruction.as_str(), free.worker.max_tokens), ("Be free.", Some(11)));
    assert_eq!(free.model.reference.as_deref(), Some("scripted/parent"));
    let own = child("own");
    assert_eq!(own.model.reference.as_deref(), Some("scripted/own"));
    assert_eq!(own.worker.instruction, minke_manifest::INSTRUCTION);
    assert_eq!(own.sandbox, parent.sandbox);
}

#[test]
fn a_new_profile_can_be_used_and_nothing_is_written_over() {
    let house = House::new();
    house.user("profiles.toml", "# mine\ndefault = 'builtin:coder' # for now\n");
    let made = new_profile(&house.config, "helper").unwrap();
    let kept = fs::read_to_string(&made.registry).unwrap();
    assert!(kept.starts_with("# mine\ndefault = 'builtin:coder' # for now\n"), "{kept}");
    let profile = house.chosen("helper").unwrap();
    assert_eq!((profile.selector.as_str(), profile.slug.as_deref()), ("user:helper", Some("helper")));
    fs::write(&made.file, says("worker = { max_turns = 3 }")).unwrap();
    assert!(new_profile(&house.config, "helper").unwrap_err().to_string().contains("already"));
    put(&house.config.join("profiles/other.lua"), "mine");
    assert!(new_profile(&house.config, "other").is_err());
    assert_eq!(fs::read_to_string(house.config.join("profiles/other.lua")).unwrap(), "mine");
    assert!(!fs::read_to_string(&made.registry).unwrap().contains("other"));
    for name in ["", "A", "../x", "inherit", "default", "a--b"] {
        assert!(new_profile(&house.config, name).is_err(), "{name}");
    }
    house.user("profiles.toml", "[profile");
    assert!(new_profile(&house.config, "third").is_err());
    assert!(!house.config.join("profiles/third.lua").exists());
    new_profile(&house.workspace.join(".minke"), "ours").unwrap();
    fs::remove_file(house.config.join("profiles.toml")).unwrap();
    assert_eq!(house.chosen("ours").unwrap().selector, "project:ours");
}
