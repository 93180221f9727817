//! From files to a manifest: what counts, against what paths are, and what stops everything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use minke_manifest::{LayerKind, Origin, Partial};
use minke_sources::{Asked, Declared, HostSettings, declare, set, unset, user, workspace};

struct Land {
    dir: tempfile::TempDir,
    trusted: bool,
}

impl Land {
    fn new() -> Land {
        let dir = tempfile::tempdir().unwrap();
        for name in ["config", "work/.minke", "work/src", "here"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Land { dir, trusted: false }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn user(self, text: &str) -> Land {
        fs::write(self.at("config/config.toml"), text).unwrap();
        self
    }

    fn workspace(self, text: &str) -> Land {
        fs::write(self.at("work/.minke/config.toml"), text).unwrap();
        self
    }

    fn declare(&self, sets: &[&str]) -> Result<Declared, String> {
        let from = Origin::new(LayerKind::CommandLine, "--set");
        let said =
            sets.iter().fold(Partial::default(), |sum, pair| sum.over(Partial::set(pair, &from).unwrap()));
        let asked = Asked {
            config: &self.at("config"),
            workspace: &self.at("work"),
            here: &self.at("here"),
            said,
            trusted: self.trusted,
            profile: None,
        };
        declare(asked).map_err(|e| format!("{e}; {}", e.hint()))
    }
}

fn targets(rules: &[minke_record::ScopeRule]) -> Vec<&Path> {
    rules.iter().map(|rule| Path::new(&rule.target)).collect()
}

#[test]
fn a_layer_that_cannot_be_read_stops_everything() {
    let cases: [(&str, &[&str]); 9] = [
        ("[worker\n", &[":1:", "not TOML"]),
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
        for land in [Land::new().user(text), Land::new().workspace(text)] {
            let said = land.declare(&[]).unwrap_err();
            for word in words {
                assert!(said.contains(word), "{text}: `{word}` is missing: {said}");
            }
            assert!(said.contains("config.toml"), "{said}");
        }
    }
    let land = Land::new();
    fs::write(land.at("config/config.toml"), [0xff, 0xfe]).unwrap();
    assert!(land.declare(&[]).unwrap_err().contains("cannot read"));
    let land = Land::new();
    fs::write(land.at("work/.minke/config.toml"), [0xff, 0xfe]).unwrap();
    assert!(land.declare(&[]).unwrap_err().contains("not UTF-8"));
    let land = Land::new().workspace(&"#".repeat(2 << 20));
    assert!(land.declare(&[]).unwrap_err().contains("longer than"));
}

#[test]
fn a_workspace_tightens_at_once_and_the_rest_is_an_alert() {
    let land = Land::new().user("[budget]\nusd = 5\n[web]\n[sandbox]\nnetwork = \"on\"\n").workspace(
        "[budget]\nusd = 2\ntokens = 100\n[pod.limits]\nchildren = 99\ndepth = 1\n[web]\nenabled = false\n\
             [model]\nref = \"evil/model\"\n[sandbox]\nmode = \"off\"\n\
             [[scope.deny]]\ntarget = \"../secret\"\npermission = \"read\"\n\
             [[permissions.rule]]\naction = \"allow\"\ntool = \"*\"\n\
             [[permissions.rule]]\naction = \"deny\"\ncommand = \"rm\"\n",
    );
    let Declared { manifest, alerts, .. } = land.declare(&[]).unwrap();
    assert_eq!((manifest.budget.usd, manifest.budget.tokens), (Some(2.0), Some(100)));
    assert_eq!((manifest.pod.limits.children, manifest.pod.limits.depth), (16, 1));
    assert!(!manifest.web.unwrap().enabled);
    assert_eq!(manifest.model.reference, None);
    assert_eq!(targets(&manifest.scope.deny), [land.at("work/secret")]);
    assert_eq!(manifest.permissions.rule, []);
    assert_eq!(manifest.permissions.workspace_rule.len(), 1);
    let told: Vec<String> = alerts.iter().map(ToString::to_string).collect();
    let file = land.at("work/.minke/config.toml").display().to_string();
    for (key, line) in [("pod.limits.children", 5), ("model.ref", 10), ("sandbox.mode", 12)] {
        let wanted = format!("{file}:{line}: `{key}` is left out");
        assert!(told.iter().any(|alert| alert.starts_with(&wanted)), "{wanted}: {told:?}");
    }
    assert!(told.iter().any(|alert| alert.contains("`permissions.rule[0]`")), "{told:?}");
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(manifest.left_out, told);
}

#[test]
fn relative_paths_are_from_the_file_that_names_them() {
    let rule = |target: &str| format!("[[scope.allow]]\ntarget = \"{target}\"\npermission = \"read\"\n");
    let land = Land::new().user(&format!(
        "[model]\nref = \"scripted:talks/one.toml\"\n[model.auth.api_key]\nfile = \"key\"\n{}{}",
        rule("notes"),
        rule("$workspace/src")
    ));
    symlink(land.at("work/src"), land.at("here/link")).unwrap();
    let set = "scope.allow=[{\"target\":\"link/new\",\"permission\":\"write\"}]";
    let manifest = land.declare(&[set]).unwrap().manifest;
    assert_eq!(
        targets(&manifest.scope.allow),
        [land.at("config/notes"), land.at("work/src"), land.at("work/src/new")]
    );
    let script = format!("scripted:{}", land.at("config/talks/one.toml").display());
    assert_eq!(manifest.model.reference, Some(script));
    let auth = manifest.model.auth.unwrap();
    assert_eq!(auth["api_key"]["file"], land.at("config/key").display().to_string());
    let nowhere = land.declare(&["scope.deny=[{\"target\":\"gone/../x\",\"permission\":\"read\"}]"]);
    assert!(nowhere.unwrap_err().contains("leads nowhere"));
}

#[test]
fn a_link_in_place_of_a_workspaces_settings_is_named_and_left_alone() {
    let land = Land::new();
    fs::write(land.at("here/other.toml"), "[budget]\nusd = 1\n").unwrap();
    symlink(land.at("here/other.toml"), land.at("work/.minke/config.toml")).unwrap();
    let declared = land.declare(&[]).unwrap();
    assert_eq!(declared.manifest.budget.usd, None);
    assert!(declared.manifest.left_out[0].contains("symbolic link"), "{:?}", declared.manifest.left_out);
    // The person's own file may be one.
    let land = Land::new();
    fs::write(land.at("here/mine.toml"), "[budget]\nusd = 1\n").unwrap();
    symlink(land.at("here/mine.toml"), land.at("config/config.toml")).unwrap();
    assert_eq!(land.declare(&[]).unwrap().manifest.budget.usd, Some(1.0));
    set(&land.at("config"), "budget.usd=2", &land.at("here")).unwrap();
    assert_eq!(fs::read_to_string(land.at("here/mine.toml")).unwrap(), "[budget]\nusd = 2\n");
    assert!(land.at("config/config.toml").is_symlink());
}

#[test]
fn setting_keeps_comments_and_writes_nothing_that_is_wrong() {
    let before = "# mine\n[worker] # how\nmax_turns = 5 # few\n\n[sandbox.env]\nset = { A = \"1\" } # one\n";
    let land = Land::new().user(before);
    let (config, here) = (land.at("config"), land.at("here"));
    let read = || fs::read_to_string(config.join("config.toml")).unwrap();
    set(&config, "worker.max_turns=7", &here).unwrap();
    set(&config, "sandbox.env.set.B=2", &here).unwrap();
    set(&config, "pod.idle_exit=2h", &here).unwrap();
    let after = read();
    for kept in ["# mine\n[worker] # how\nmax_turns = 7 # few\n", "# one", "[pod]\nidle_exit = 7200"] {
        assert!(after.contains(kept), "{kept}: {after}");
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
        assert!(set(&config, wrong, &here).is_err(), "{wrong}");
        assert_eq!(read(), after, "{wrong}");
    }
    unset(&config, "worker.max_turns").unwrap();
    unset(&config, "sandbox.env.set.A").unwrap();
    assert!(!read().contains("max_turns") && !read().contains("A ="), "{}", read());
    assert!(unset(&config, "worker.max_turn").is_err());
    let broken = Land::new().user("[worker\n");
    assert!(set(&broken.at("config"), "worker.max_turns=7", &here).is_err());
    assert_eq!(fs::read_to_string(broken.at("config/config.toml")).unwrap(), "[worker\n");
}

#[test]
fn what_the_host_is_told_stands_in_the_persons_file_only() {
    let before = "[worker]\nmax_turns = 5\n\n[host]\nidle_exit = \"2h\"\n[host.jobs]\nrunning = 4 # few\n";
    let land = Land::new().user(before);
    let (config, here) = (land.at("config"), land.at("here"));
    let host = || minke_sources::host(&config).unwrap();
    assert_eq!((host().idle_exit, host().running, host().per_workspace), (Some(7200), Some(4), None));
    assert!(user(&config).unwrap().unwrap().get("worker.max_turns").is_some(), "the rest is a layer as ever");
    set(&config, "host.jobs.per_workspace=2", &here).unwrap();
    set(&config, "host.bind=127.0.0.1:7777", &here).unwrap();
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
        let refused = set(&config, wrong, &here).unwrap_err().to_string();
        let key = wrong.split('=').next().unwrap();
        assert!(refused.contains(&format!("`{key}")) && refused.contains("config.toml:"), "{refused}");
        assert_eq!(fs::read_to_string(config.join("config.toml")).unwrap(), after, "{wrong}");
    }
    unset(&config, "host.jobs.running").unwrap();
    assert_eq!(host().running, None);
    let theirs = Land::new().workspace("[host]\nidle_exit = 5\n");
    assert!(workspace(&theirs.at("work")).unwrap_err().to_string().contains("host"));
    assert_eq!(minke_sources::host(&Land::new().at("config")).unwrap(), HostSettings::default());
}
