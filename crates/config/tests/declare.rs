//! From files to a manifest: precedence, relative paths, and errors that stop the start.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use minke_config::sources::{
    DeclareRequest, DeclaredManifest, HostSettings, declare_manifest, load_user_config,
    load_workspace_config, set_key, unset_key,
};
use minke_manifest::{LayerKind, Origin, PartialManifest};

struct DeclareFixture {
    dir: tempfile::TempDir,
    trusted: bool,
}

impl DeclareFixture {
    fn new() -> DeclareFixture {
        let dir = tempfile::tempdir().unwrap();
        for name in ["config", "work/.minke", "work/src", "here"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        DeclareFixture { dir, trusted: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn with_user_config(self, text: &str) -> DeclareFixture {
        fs::write(self.path("config/config.toml"), text).unwrap();
        self
    }

    fn with_workspace_config(self, text: &str) -> DeclareFixture {
        fs::write(self.path("work/.minke/config.toml"), text).unwrap();
        self
    }

    fn declare(&self, sets: &[&str]) -> Result<DeclaredManifest, String> {
        let from = Origin::new(LayerKind::CommandLine, "--set");
        let error_text = sets.iter().fold(PartialManifest::default(), |sum, pair| {
            sum.overridden_by(PartialManifest::from_assignment(pair, &from).unwrap())
        });
        let request = DeclareRequest {
            config: &self.path("config"),
            workspace: &self.path("work"),
            cwd: &self.path("here"),
            options: error_text,
            trusted: self.trusted,
            profile: None,
        };
        declare_manifest(request).map_err(|e| format!("{e}; {}", e.hint()))
    }
}

fn rule_targets(rules: &[minke_record::ScopeRule]) -> Vec<&Path> {
    rules.iter().map(|rule| Path::new(&rule.target)).collect()
}

#[test]
fn a_layer_that_cannot_be_read_stops_everything() {
    let cases: [(&str, &[&str]); 9] = [
        ("[worker\n", &[":1:", "invalid TOML"]),
        ("\n\n[worker]\nmax_turn = 5\n", &[":4:", "`worker.max_turn`", "`worker.max_turns`"]),
        ("[session]\nrecord_event_trace = true\n", &[":2:", "`session.record_streams`"]),
        ("[compaction]\noverview_target_tokens = 5\n", &["`compaction.summary_max_tokens`"]),
        ("[compaction]\nthreshold = 5\n", &["this version has no `compaction` yet"]),
        ("worker = 5\n", &["`worker` is a section"]),
        ("[budget]\nusd = nan\n", &[":2:", "`budget.usd`"]),
        ("[budget]\ntokens = 1979-05-27\n", &["`budget.tokens`"]),
        ("[[scope.deny]]\ntarget = \"x\"\n", &["`scope.deny`", "permission"]),
    ];
    for (text, words) in cases {
        for fixture in
            [DeclareFixture::new().with_user_config(text), DeclareFixture::new().with_workspace_config(text)]
        {
            let error_text = fixture.declare(&[]).unwrap_err();
            for word in words {
                assert!(error_text.contains(word), "{text}: `{word}` is missing: {error_text}");
            }
            assert!(error_text.contains("config.toml"), "{error_text}");
        }
    }
    let fixture = DeclareFixture::new();
    fs::write(fixture.path("config/config.toml"), [0xff, 0xfe]).unwrap();
    assert!(fixture.declare(&[]).unwrap_err().contains("could not read"));
    let land = DeclareFixture::new();
    fs::write(land.path("work/.minke/config.toml"), [0xff, 0xfe]).unwrap();
    assert!(land.declare(&[]).unwrap_err().contains("not UTF-8"));
    let fixture = DeclareFixture::new().with_workspace_config(&"#".repeat(2 << 20));
    assert!(fixture.declare(&[]).unwrap_err().contains("longer than"));
}

#[test]
fn a_workspace_tightens_at_once_and_the_rest_is_an_alert() {
    let land = DeclareFixture::new().with_user_config("[budget]\nusd = 5\n[web]\n[sandbox]\nnetwork = \"on\"\n").with_workspace_config(
        "[budget]\nusd = 2\ntokens = 100\n[pod.limits]\nchildren = 99\ndepth = 1\n[web]\nenabled = false\n\
             [model]\nref = \"evil/model\"\n[sandbox]\nmode = \"off\"\n\
             [[scope.deny]]\ntarget = \"../secret\"\npermission = \"read\"\n\
             [[permissions.rule]]\naction = \"allow\"\ntool = \"*\"\n\
             [[permissions.rule]]\naction = \"deny\"\ncommand = \"rm\"\n",
    );
    let DeclaredManifest { manifest, alerts, .. } = land.declare(&[]).unwrap();
    assert_eq!((manifest.budget.usd, manifest.budget.tokens), (Some(2.0), Some(100)));
    assert_eq!((manifest.pod.limits.children, manifest.pod.limits.depth), (16, 1));
    assert!(!manifest.web.unwrap().enabled);
    assert_eq!(manifest.model.reference, None);
    assert_eq!(rule_targets(&manifest.scope.deny), [land.path("work/secret")]);
    assert_eq!(manifest.permissions.rule, []);
    assert_eq!(manifest.permissions.workspace_rule.len(), 1);
    let message: Vec<String> = alerts.iter().map(ToString::to_string).collect();
    let file = land.path("work/.minke/config.toml").display().to_string();
    for (key, line) in [("pod.limits.children", 5), ("model.ref", 10), ("sandbox.mode", 12)] {
        let wanted = format!("{file}:{line}: `{key}` is ignored");
        assert!(message.iter().any(|alert| alert.starts_with(&wanted)), "{wanted}: {message:?}");
    }
    assert!(message.iter().any(|alert| alert.contains("`permissions.rule[0]`")), "{message:?}");
    assert_eq!(message.len(), 4, "{message:?}");
    assert_eq!(manifest.left_out, message);
}

#[test]
fn relative_paths_are_from_the_file_that_names_them() {
    let rule = |target: &str| format!("[[scope.allow]]\ntarget = \"{target}\"\npermission = \"read\"\n");
    let fixture = DeclareFixture::new().with_user_config(&format!(
        "[model]\nref = \"scripted:talks/one.toml\"\n[model.auth.api_key]\nfile = \"key\"\n{}{}",
        rule("notes"),
        rule("$workspace/src")
    ));
    symlink(fixture.path("work/src"), fixture.path("here/link")).unwrap();
    let set = "scope.allow=[{\"target\":\"link/new\",\"permission\":\"write\"}]";
    let manifest = fixture.declare(&[set]).unwrap().manifest;
    assert_eq!(
        rule_targets(&manifest.scope.allow),
        [fixture.path("config/notes"), fixture.path("work/src"), fixture.path("work/src/new")]
    );
    let script = format!("scripted:{}", fixture.path("config/talks/one.toml").display());
    assert_eq!(manifest.model.reference, Some(script));
    let auth = manifest.model.auth.unwrap();
    assert_eq!(auth["api_key"]["file"], fixture.path("config/key").display().to_string());
    let nowhere = fixture.declare(&["scope.deny=[{\"target\":\"gone/../x\",\"permission\":\"read\"}]"]);
    assert!(nowhere.unwrap_err().contains("cannot be resolved"));
}

#[test]
fn a_link_in_place_of_a_workspaces_settings_is_named_and_left_alone() {
    let fixture = DeclareFixture::new();
    fs::write(fixture.path("here/other.toml"), "[budget]\nusd = 1\n").unwrap();
    symlink(fixture.path("here/other.toml"), fixture.path("work/.minke/config.toml")).unwrap();
    let declared = fixture.declare(&[]).unwrap();
    assert_eq!(declared.manifest.budget.usd, None);
    assert!(declared.manifest.left_out[0].contains("symbolic link"), "{:?}", declared.manifest.left_out);
    // The user's own file may be a link.
    let fixture = DeclareFixture::new();
    fs::write(fixture.path("here/mine.toml"), "[budget]\nusd = 1\n").unwrap();
    symlink(fixture.path("here/mine.toml"), fixture.path("config/config.toml")).unwrap();
    assert_eq!(fixture.declare(&[]).unwrap().manifest.budget.usd, Some(1.0));
    set_key(&fixture.path("config"), "budget.usd=2", &fixture.path("here")).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("here/mine.toml")).unwrap(), "[budget]\nusd = 2\n");
    assert!(fixture.path("config/config.toml").is_symlink());
}

#[test]
fn setting_keeps_comments_and_writes_nothing_that_is_wrong() {
    let before = "# mine\n[worker] # how\nmax_turns = 5 # few\n\n[sandbox.env]\nset = { A = \"1\" } # one\n";
    let fixture = DeclareFixture::new().with_user_config(before);
    let (config, cwd) = (fixture.path("config"), fixture.path("here"));
    let read = || fs::read_to_string(config.join("config.toml")).unwrap();
    set_key(&config, "worker.max_turns=7", &cwd).unwrap();
    set_key(&config, "sandbox.env.set.B=2", &cwd).unwrap();
    set_key(&config, "pod.idle_exit=2h", &cwd).unwrap();
    let after = read();
    for sections in ["# mine\n[worker] # how\nmax_turns = 7 # few\n", "# one", "[pod]\nidle_exit = 7200"] {
        assert!(after.contains(sections), "{sections}: {after}");
    }
    assert!(after.contains("B = \"2\"") && after.contains("A = \"1\""), "{after}");
    for wrong in [
        "worker.max_turns=none",
        "worker.max_turn=5",
        "web.search.timeout_s=5",
        "sandbox.mode=off",
        "nothing",
        "web.search.provider=searxng",
        "session.record_max_bytes=18446744073709551615",
    ] {
        assert!(set_key(&config, wrong, &cwd).is_err(), "{wrong}");
        assert_eq!(read(), after, "{wrong}");
    }
    unset_key(&config, "worker.max_turns").unwrap();
    unset_key(&config, "sandbox.env.set.A").unwrap();
    assert!(!read().contains("max_turns") && !read().contains("A ="), "{}", read());
    assert!(unset_key(&config, "worker.max_turn").is_err());
    let broken = DeclareFixture::new().with_user_config("[worker\n");
    assert!(set_key(&broken.path("config"), "worker.max_turns=7", &cwd).is_err());
    assert_eq!(fs::read_to_string(broken.path("config/config.toml")).unwrap(), "[worker\n");
}

#[test]
fn what_the_host_is_told_stands_in_the_persons_file_only() {
    let before = "[worker]\nmax_turns = 5\n\n[host]\nidle_exit = \"2h\"\n[host.jobs]\nrunning = 4 # few\n";
    let fixture = DeclareFixture::new().with_user_config(before);
    let (config, cwd) = (fixture.path("config"), fixture.path("here"));
    let host = || minke_config::sources::load_host_settings(&config).unwrap();
    assert_eq!((host().idle_exit, host().running, host().per_workspace), (Some(7200), Some(4), None));
    assert!(
        load_user_config(&config).unwrap().unwrap().get("worker.max_turns").is_some(),
        "the rest is a layer as ever"
    );
    set_key(&config, "host.jobs.per_workspace=2", &cwd).unwrap();
    set_key(&config, "host.bind=127.0.0.1:7777", &cwd).unwrap();
    assert_eq!((host().per_workspace, host().bind), (Some(2), "127.0.0.1:7777".parse().ok()));
    let after = fs::read_to_string(config.join("config.toml")).unwrap();
    assert!(after.contains("running = 4 # few"), "{after}");
    for wrong in [
        "host.jobs.running=0",
        "host.jobs.running=100000",
        "host.jobs.running=many",
        "host.jobs=5",
        "host.job=5",
        "host.bind=here",
        "host.token_file=relative",
        "host.tls_cert=/a/b",
        "host.idle_exit=soon",
        "host.nothing=1",
    ] {
        let refused = set_key(&config, wrong, &cwd).unwrap_err().to_string();
        let key = wrong.split('=').next().unwrap();
        assert!(refused.contains(&format!("`{key}")) && refused.contains("config.toml:"), "{refused}");
        assert_eq!(fs::read_to_string(config.join("config.toml")).unwrap(), after, "{wrong}");
    }
    unset_key(&config, "host.jobs.running").unwrap();
    assert_eq!(host().running, None);
    let theirs = DeclareFixture::new().with_workspace_config("[host]\nidle_exit = 5\n");
    assert!(load_workspace_config(&theirs.path("work")).unwrap_err().to_string().contains("host"));
    assert_eq!(
        minke_config::sources::load_host_settings(&DeclareFixture::new().path("config")).unwrap(),
        HostSettings::default()
    );
}
