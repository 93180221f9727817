//! Measures building a manifest: from files to resolved values, with a Lua profile that extends another and
//! needs a module, the user's file, the workspace's file, and keys of the command line.
//!
//! Prints medians of the samples, next to a baseline that reads the same files and parses the TOML files. A
//! missed goal is reported.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use minke_config::sources::{DeclareRequest, ProfileRegistry, declare_manifest};
use minke_manifest::PartialManifest;

const SAMPLES: usize = 201;
const GOAL: Duration = Duration::from_millis(5);

const CONFIG: &str = "[worker]\nmax_tokens = 4000\nlanguage = \"French\"\n[budget]\nusd = 5.0\n[sandbox]\nnetwork = \
    \"off\"\n[[permissions.rule]]\ntool = \"Bash\"\ncommand = \"git push\"\naction = \"ask\"\n";
const REGISTRY: &str = "default = 'a'\n[profile]\na = { path = 'a.lua', description = 'x' }\n";
const PROFILE: &str = "local profile, scope = require('minke.profile'), require('minke.scope')\nlocal own = \
    require('own')\nreturn profile {\nslug = 'a', description = 'x', extends = 'builtin:coder',\nworker = { max_turns = \
    own.turns(3) }, scope = scope.workspace_write(),\n}";
const MODULE: &str = "local own = {}\nfunction own.turns(n) local t = 0 for i = 1, 100 do t = t + i % n end return t end\n\
    return own";
const WORKSPACE: &str = "[worker]\nlanguage = \"German\"\n[budget]\nusd = 2.0\n";

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path().canonicalize().expect("it exists");
    let (config, workspace) = (root.join("config"), root.join("work"));
    write_file(&config.join("config.toml"), CONFIG);
    write_file(&config.join("profiles.toml"), REGISTRY);
    write_file(&config.join("a.lua"), PROFILE);
    write_file(&config.join("own.lua"), MODULE);
    write_file(&workspace.join(".minke/config.toml"), WORKSPACE);
    let whole = measure_median(|| {
        let profile = ProfileRegistry::load_registries(&config, None)
            .select_profile(None, &workspace)
            .expect("a good profile");
        let request = DeclareRequest {
            config: &config,
            workspace: &workspace,
            cwd: &workspace,
            options: PartialManifest::default(),
            trusted: false,
            profile: Some(profile.layer),
        };
        let declared = declare_manifest(request).expect("good files");
        assert_eq!(declared.manifest.worker.max_turns, 100, "the module was evaluated");
    });
    let floor = measure_median(|| {
        for file in ["config.toml", "profiles.toml", "a.lua", "own.lua"] {
            let text = fs::read_to_string(config.join(file)).expect("it is there");
            if Path::new(file).extension().is_some_and(|kind| kind == "toml") {
                text.parse::<toml::Table>().expect("good TOML");
            }
        }
    });
    let goal = if whole <= GOAL { "met" } else { "MISSED" };
    let ratio = whole.as_secs_f64() / floor.as_secs_f64();
    println!(
        "a manifest with a Lua profile: {whole:?} (median of {SAMPLES}), {ratio:.0} × the floor; goal {GOAL:?}: {goal}"
    );
    println!("floor, the files read and their TOML parsed: {floor:?} (median of {SAMPLES})");
}

fn write_file(path: &Path, text: &str) {
    let parent = path.parent().expect("every file here has one");
    fs::create_dir_all(parent).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn measure_median(mut what: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            what();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times.get(SAMPLES / 2).copied().unwrap_or_default()
}
