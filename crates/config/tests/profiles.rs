//! Profiles and their registries, with real files.
#![expect(clippy::unwrap_used, reason = "a test that cannot create its files has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use minke_config::sources::{ChildRequest, Profile, ProfileRegistry, create_profile, declare_child};
use minke_lua::WorkspaceAccess;
use minke_manifest::profiles::{ProfileChoice, ProfileName, ProfileOrigin};
use minke_manifest::{ConfigLayer, resolve_layers};

/// A configuration directory and a workspace.
struct ProfileFixture {
    _dir: tempfile::TempDir,
    config: PathBuf,
    workspace: PathBuf,
}

impl ProfileFixture {
    fn new() -> ProfileFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (config, workspace) = (root.join("config"), root.join("work"));
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(workspace.join(".minke/profiles")).unwrap();
        ProfileFixture { _dir: dir, config, workspace }
    }

    fn write_user_file(&self, file: &str, text: &str) -> &ProfileFixture {
        write_file(&self.config.join(file), text);
        self
    }

    fn write_project_file(&self, file: &str, text: &str) -> &ProfileFixture {
        write_file(&self.workspace.join(".minke").join(file), text);
        self
    }

    fn load_registry(&self, trusted: bool) -> ProfileRegistry {
        let inventory = minke_config::trust::scan_workspace(&self.workspace);
        ProfileRegistry::load_registries(&self.config, trusted.then_some(&inventory))
    }

    fn select_profile(&self, selector: &str) -> Result<Profile, String> {
        self.load_registry(true).select_profile(Some(selector), &self.workspace).map_err(|e| e.to_string())
    }
}

fn write_file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn profile_text(fields: &str) -> String {
    format!(
        "local profile, scope = require('minke.profile'), require('minke.scope')\nreturn profile {{\n{fields}\n}}"
    )
}

fn profile_manifest(profile: &Profile) -> minke_manifest::Manifest {
    resolve_layers(std::slice::from_ref(&profile.layer)).unwrap().manifest
}

#[test]
fn a_builtin_says_what_is_listed() {
    let fixture = ProfileFixture::new();
    let registry = fixture.load_registry(false);
    let offer = registry.profile_offer();
    assert_eq!(offer.problem, None);
    let names: Vec<String> = offer.profiles.iter().map(|listed| listed.name.to_string()).collect();
    assert_eq!(
        names,
        ["builtin:default", "builtin:coder", "builtin:reviewer", "builtin:explorer", "builtin:planner"]
    );
    for listed in &offer.profiles {
        let profile = registry.load_profile(&listed.name).unwrap_or_else(|e| panic!("{}: {e}", listed.name));
        assert_eq!(profile.description, listed.description, "{}", listed.name);
        let instruction = profile_manifest(&profile).worker.instruction;
        assert_eq!(instruction, format!("$minke/{}", listed.name.name));
    }
    let reviewer = fixture.select_profile("reviewer").unwrap();
    assert_eq!(reviewer.scope, Some(WorkspaceAccess::Read));
    assert_eq!(reviewer.slug.as_deref(), Some("reviewer"));
    let starter = minke_config::sources::STARTER.replace("NAME", "mine");
    fixture
        .write_user_file("mine.lua", &starter)
        .write_user_file("profiles.toml", "[profile]\nmine = \"mine.lua\"");
    assert_eq!(fixture.select_profile("mine").unwrap().chain, ["user:mine", "builtin:default"]);
}

#[test]
fn later_defaults_win_and_an_unqualified_one_belongs_to_its_file() {
    let house = ProfileFixture::new();
    let default = |trusted| house.load_registry(trusted).default_name().to_string();
    assert_eq!(default(true), "builtin:default");
    house
        .write_user_file("profiles.toml", "default = 'coder'\n[profile]\ncoder = 'c.lua'\n")
        .write_user_file("c.lua", &profile_text(""));
    assert_eq!(default(true), "user:coder", "not the built-in one of the same name");
    house.write_project_file("profiles.toml", "default = \"builtin:planner\"");
    assert_eq!(default(true), "builtin:planner");
    assert_eq!(default(false), "user:coder", "the workspace is not trusted");
    assert_eq!(house.select_profile("").unwrap().selector, "builtin:planner");
    assert_eq!(house.select_profile("default").unwrap().selector, "builtin:planner");
    house
        .write_project_file("profiles.toml", "default = 'x'\n[profile]\nx = 'profiles/x.lua'")
        .write_project_file("profiles/x.lua", &profile_text(""));
    assert_eq!(default(true), "project:x");
    let ambiguous = house.select_profile("coder").unwrap_err();
    assert!(ambiguous.contains("`builtin:coder` or `user:coder`"), "{ambiguous}");
    assert_eq!(house.select_profile("user:coder").unwrap().selector, "user:coder");
}

#[test]
fn a_project_profile_is_used_once_trusted() {
    let fixture = ProfileFixture::new();
    fixture.write_project_file(
        "profiles.toml",
        "[profile]\nmine = { path = 'profiles/mine.lua', description = 'of the project' }",
    );
    fixture
        .write_project_file("profiles/mine.lua", &profile_text("worker = { max_turns = require('lib.n') }"));
    fixture.write_project_file("profiles/lib/n.lua", "return 7");
    let name = ProfileName::new(ProfileOrigin::Project, "mine");
    assert_eq!(
        profile_manifest(&fixture.load_registry(true).load_profile(&name).unwrap()).worker.max_turns,
        7
    );
    assert!(fixture.load_registry(true).profile_offer().describe().contains("project:mine: of the project"));
    let untrusted = fixture.load_registry(false);
    assert!(untrusted.load_profile(&name).is_err());
    assert!(!untrusted.profile_offer().describe().contains("project:"));
    // Its files are not even read before.
    fixture.write_project_file("profiles.toml", "= broken");
    assert_eq!(fixture.load_registry(false).problems(), &[] as &[String]);
}

#[test]
fn a_registry_leads_nowhere_else() {
    let house = ProfileFixture::new();
    write_file(&house.workspace.join("outside.lua"), &profile_text(""));
    write_file(&house.workspace.join(".minke/memory/x.lua"), &profile_text(""));
    for path in [
        "../outside.lua",
        "/etc/passwd",
        "profiles/../../outside.lua",
        "outside.lua",
        "memory/x.lua",
        "./profiles/x.lua",
        "",
    ] {
        house.write_project_file("profiles.toml", &format!("[profile]\nx = '{path}'"));
        let registry = house.load_registry(true);
        assert_eq!(registry.problems().len(), 1, "{path}");
        assert!(registry.problems()[0].contains("`x`"), "{path}: {:?}", registry.problems());
    }
    house.write_project_file("profiles.toml", "[profile]\nx = 'profiles/x.lua'");
    symlink(house.workspace.join("outside.lua"), house.workspace.join(".minke/profiles/x.lua")).unwrap();
    let error = house.select_profile("project:x").unwrap_err();
    assert!(error.contains("symbolic link"), "{error}");
}

#[test]
fn a_module_never_leads_outside() {
    let fixture = ProfileFixture::new();
    write_file(&fixture.config.parent().unwrap().join("secret.lua"), "return 1");
    fixture
        .write_user_file("profiles.toml", "[profile]\nx = 'here/x.lua'")
        .write_user_file("here/x.lua", &profile_text("worker = { max_turns = require('m') }"));
    let wanted = |text: &str| {
        let error = fixture.select_profile("x").unwrap_err();
        assert!(error.contains(text) && error.contains("x.lua:3"), "{error}");
    };
    wanted("no module `m`");
    let module = fixture.config.join("here/m.lua");
    symlink("../../secret.lua", &module).unwrap();
    wanted("symbolic link");
    fs::remove_file(&module).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &module, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    wanted("module `m`");
    fs::remove_file(&module).unwrap();
    symlink("../..", fixture.config.join("here/up")).unwrap();
    fixture.write_user_file("here/x.lua", &profile_text("worker = { max_turns = require('up.secret') }"));
    wanted("symbolic link");
    for name in ["../secret", "up/secret", "...secret", "/secret"] {
        fixture.write_user_file(
            "here/x.lua",
            &profile_text(&format!("worker = {{ max_turns = require('{name}') }}")),
        );
        wanted("");
    }
    fixture
        .write_user_file("here/x.lua", &profile_text("worker = { max_turns = require('m') }"))
        .write_user_file("here/m.lua", &"-".repeat(70_000));
    wanted("longer than");
    fixture.write_user_file("here/m.lua", "return 3");
    assert_eq!(profile_manifest(&fixture.select_profile("x").unwrap()).worker.max_turns, 3);
}

#[test]
fn what_is_wrong_with_a_registry_is_told_with_its_line() {
    let house = ProfileFixture::new();
    for (text, words) in [
        ("[profile\n", "profiles.toml:1"),
        ("default = 'nothing'", "`user:nothing`, which does not exist"),
        ("default = 'x/y'", "names a file"),
        ("default = 'inherit'", "not a valid profile name"),
        ("\ndefalt = 'x'", "profiles.toml:2: unknown field `defalt`"),
        ("[profile]\n\nx = 5", "profiles.toml:3"),
        ("[profile]\nx = { path = 'x', descripton = 'y' }", "profiles.toml:2"),
        ("[profile]\n'A B' = 'x'", "`A B`"),
        ("[profile]\ninherit = 'x'", "not `inherit`"),
        ("[profile]\nx = { path = 'x', description = \"a\\nb\" }", "one line"),
    ] {
        house.write_user_file("profiles.toml", text);
        let registry = house.load_registry(true);
        let problems = registry.problems().join("; ");
        assert!(problems.contains(words), "{text}: `{words}` is missing: {problems}");
        let offer = registry.profile_offer();
        assert_eq!(offer.select(Some("inherit")), Ok(ProfileChoice::Inherit));
        assert!(house.select_profile("builtin:coder").unwrap_err().contains(words), "{text}");
        assert!(offer.describe().contains(words), "{text}");
    }
    let many: String = (0..65).map(|n| format!("p{n} = 'x'\n")).collect();
    house.write_user_file("profiles.toml", &format!("[profile]\n{many}"));
    assert!(house.load_registry(true).problems()[0].contains("the limit is 64"));
    fs::remove_file(house.config.join("profiles.toml")).unwrap();
    fs::create_dir(house.config.join("profiles.toml")).unwrap();
    assert_eq!(house.load_registry(true).problems().len(), 1);
}

#[test]
fn a_profile_extends_another_and_circles_are_told() {
    let fixture = ProfileFixture::new();
    fixture.write_user_file("profiles.toml", "[profile]\na = 'a.lua'\nb = 'b.lua'\nc = 'c.lua'");
    fixture.write_user_file("a.lua", &profile_text("extends = 'b', worker = { max_turns = 1 }, permissions = { rule = { { action = 'ask', tool = 'Bash' } } }"));
    fixture.write_user_file("b.lua", &profile_text("extends = 'builtin:reviewer', description = 'b', worker = { max_turns = 2, max_tokens = 5 }, permissions = { rule = { { action = 'deny', tool = 'WebFetch' } } }"));
    let a = fixture.select_profile("a").unwrap();
    assert_eq!(a.chain, ["user:a", "user:b", "builtin:reviewer"]);
    assert_eq!(
        (a.scope, a.slug.as_deref(), a.description.as_deref()),
        (Some(WorkspaceAccess::Read), None, None)
    );
    let resolved = resolve_layers(std::slice::from_ref(&a.layer)).unwrap();
    let worker = &resolved.manifest.worker;
    assert_eq!((worker.max_turns, worker.max_tokens), (1, Some(5)));
    assert_eq!(worker.instruction, "$minke/reviewer");
    assert_eq!(resolved.manifest.permissions.rule.len(), 2, "rules come together");
    assert_eq!(
        resolved.origin_of("worker.max_turns").to_string(),
        format!("{}:3", fixture.config.join("a.lua").display())
    );
    let scope = &resolved.manifest.scope;
    assert_eq!((scope.allow.len(), scope.deny.len()), (1, 1), "the workspace is read and nothing more");
    let reviewer = resolved.origin_of("worker.instruction").to_string();
    assert!(reviewer.starts_with("builtin:reviewer:"), "{reviewer}");

    fixture
        .write_user_file("b.lua", &profile_text("extends = 'user:c'"))
        .write_user_file("c.lua", &profile_text("extends = 'a'"));
    let circle = fixture.select_profile("b").unwrap_err();
    assert!(circle.contains("user:b → user:c → user:a → user:b"), "{circle}");
    fixture.write_user_file("b.lua", &profile_text("extends = 'nothing'"));
    assert!(
        fixture.select_profile("b").unwrap_err().contains("b.lua: `extends`: there is no profile `nothing`")
    );
    fixture.write_user_file("b.lua", &profile_text("extends = 'inherit'"));
    assert!(fixture.select_profile("b").unwrap_err().contains("not a profile"));
    let names: Vec<String> = (0..10).map(|n| format!("p{n} = 'p{n}.lua'\n")).collect();
    fixture.write_user_file("profiles.toml", &format!("[profile]\n{}", names.concat()));
    for n in 0..10 {
        fixture.write_user_file(
            &format!("p{n}.lua"),
            &profile_text(&format!(
                "extends = '{}'",
                if n < 9 { format!("p{}", n + 1) } else { "default".into() }
            )),
        );
    }
    assert!(fixture.select_profile("p0").unwrap_err().contains("a chain has at most 8 profiles"));
    assert_eq!(fixture.select_profile("p3").unwrap().chain.len(), 8);
}

#[test]
fn a_path_is_for_the_command_line() {
    let house = ProfileFixture::new();
    write_file(
        &house.workspace.join("tools/own.lua"),
        &profile_text("slug = 'own', worker = { max_turns = require('n') }"),
    );
    write_file(&house.workspace.join("tools/n.lua"), "return 4");
    let absolute = house.workspace.join("tools/own.lua");
    for error_text in ["tools/own.lua", "./tools/own.lua", "path:tools/own.lua", absolute.to_str().unwrap()] {
        let profile = house.select_profile(error_text).unwrap_or_else(|e| panic!("{error_text}: {e}"));
        assert_eq!(profile_manifest(&profile).worker.max_turns, 4, "{error_text}");
    }
    assert!(house.select_profile("tools/missing.lua").unwrap_err().contains("does not exist"));
    assert!(house.select_profile("tools/").unwrap_err().contains("not a file"));
    assert!(house.select_profile("inherit").unwrap_err().contains("SpawnPod"));
    assert!(house.select_profile("other:x").unwrap_err().contains("prefix"));
}

#[test]
fn a_key_that_is_none_is_refused_with_its_line() {
    let fixture = ProfileFixture::new();
    let refused = |fields: &str| {
        write_file(&fixture.workspace.join("p.lua"), &profile_text(fields));
        fixture.select_profile("p.lua").unwrap_err()
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
        ("pod = {}", 3, "`pod` is not a field"),
    ] {
        let error = refused(fields);
        assert!(error.contains(&format!("p.lua:{line}: ")), "{fields}: {error}");
        assert!(error.contains(words), "{fields}: `{words}` is missing: {error}");
    }
}

/// The full path: registries, a profile that extends another, and the manifest.
#[test]
fn resolving_is_quick() {
    let fixture = ProfileFixture::new();
    fixture.write_user_file(
        "profiles.toml",
        "default = 'a'\n[profile]\na = { path = 'a.lua', description = 'x' }",
    );
    fixture.write_user_file("a.lua", &profile_text("extends = 'builtin:coder', worker = { max_turns = 9 }"));
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            let profile = fixture.load_registry(false).select_profile(None, &fixture.workspace).unwrap();
            let layers: [ConfigLayer; 1] = [profile.layer];
            assert_eq!(resolve_layers(&layers).unwrap().manifest.worker.max_turns, 9);
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    eprintln!(
        "a profile and its manifest: {} µs, at most {} µs",
        times[10].as_micros(),
        times[19].as_micros()
    );
    // Unoptimized and on a busy machine; the benchmark has the relevant figure.
    assert!(times[10].as_millis() < 100, "{times:?}");
}

/// A profile that sets everything that would grant its pod more, under a parent without those rights.
#[test]
fn no_profile_frees_a_child() {
    let fixture = ProfileFixture::new();
    fixture.write_user_file(
        "config.toml",
        "[worker]\nmax_tokens = 11\n[model]\nref = \"scripted/config\"\n[web]\nenabled = true\n",
    );
    fixture
        .write_user_file("profiles.toml", "default = 'free'\n[profile]\nfree = 'free.lua'\nown = 'own.lua'");
    fixture.write_user_file(
        "free.lua",
        &profile_text(
            "scope = scope.workspace_write(), worker = { instruction = 'Be free.' },\n\
             permissions = { posture = 'full', default_action = 'allow', may_answer = true,\n\
             rule = { { action = 'allow', tool = 'Bash' } } },\n\
             sandbox = { mode = 'scope', network = 'on', env = { pass = { 'LC_ALL', 'HOME_TOWN' } } },\n\
             web = { fetch = { allow_private = true } }, budget = { usd = 1000 }",
        ),
    );
    fixture.write_user_file("own.lua", &profile_text("model = { ref = 'scripted/own' }"));
    let error_text = serde_json::json!({
        "model": { "ref": "scripted/parent" },
        "permissions": { "posture": "ask", "may_answer": true, "rule": [{ "action": "deny", "tool": "Bash" }] },
        "sandbox": { "mode": "read_only", "network": ["docs.rs"], "env": { "pass": ["LC_ALL"] } },
        "worker": { "instruction": "Be the parent.", "max_tokens": 99 },
        "pod": { "limits": { "depth": 2 } },
    });
    let parent = minke_manifest::Manifest::from_value(&error_text).unwrap();
    let child = |selector: &str| {
        let profile = fixture.load_registry(true).load_registered(Some(selector)).unwrap();
        let (config, workspace) = (fixture.config.as_path(), fixture.workspace.as_path());
        let child = ChildRequest {
            config,
            workspace,
            cwd: workspace,
            trusted: true,
            profile: &profile,
            parent: &parent,
        };
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
    // Files tell how the child works; the parent determines the model.
    assert_eq!((free.worker.instruction.as_str(), free.worker.max_tokens), ("Be free.", Some(11)));
    assert_eq!(free.model.reference.as_deref(), Some("scripted/parent"));
    let own = child("own");
    assert_eq!(own.model.reference.as_deref(), Some("scripted/own"));
    assert_eq!(own.worker.instruction, minke_manifest::DEFAULT_INSTRUCTION);
    assert_eq!(own.sandbox, parent.sandbox);
}

#[test]
fn a_new_profile_can_be_used_and_nothing_is_written_over() {
    let fixture = ProfileFixture::new();
    fixture.write_user_file("profiles.toml", "# mine\ndefault = 'builtin:coder' # for now\n");
    let made = create_profile(&fixture.config, "helper").unwrap();
    let kept = fs::read_to_string(&made.registry).unwrap();
    assert!(kept.starts_with("# mine\ndefault = 'builtin:coder' # for now\n"), "{kept}");
    let profile = fixture.select_profile("helper").unwrap();
    assert_eq!((profile.selector.as_str(), profile.slug.as_deref()), ("user:helper", Some("helper")));
    fs::write(&made.file, profile_text("worker = { max_turns = 3 }")).unwrap();
    assert!(create_profile(&fixture.config, "helper").unwrap_err().to_string().contains("already"));
    write_file(&fixture.config.join("profiles/other.lua"), "mine");
    assert!(create_profile(&fixture.config, "other").is_err());
    assert_eq!(fs::read_to_string(fixture.config.join("profiles/other.lua")).unwrap(), "mine");
    assert!(!fs::read_to_string(&made.registry).unwrap().contains("other"));
    for name in ["", "A", "../x", "inherit", "default", "a--b"] {
        assert!(create_profile(&fixture.config, name).is_err(), "{name}");
    }
    fixture.write_user_file("profiles.toml", "[profile");
    assert!(create_profile(&fixture.config, "third").is_err());
    assert!(!fixture.config.join("profiles/third.lua").exists());
    create_profile(&fixture.workspace.join(".minke"), "ours").unwrap();
    fs::remove_file(fixture.config.join("profiles.toml")).unwrap();
    assert_eq!(fixture.select_profile("ours").unwrap().selector, "project:ours");
}
