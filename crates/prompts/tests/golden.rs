//! Compares the built-in prompts with golden files, which `MINKE_BLESS=1` updates.

#![expect(clippy::disallowed_methods, reason = "a test reads what it compares with")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;

use minke_prompts::{
    AssetName, AssetSet, PromptInputs, PromptVariables, embedded_assets, format_day, render_asset,
    system_prompt,
};
use minke_record::Scope;

/// Maximum size, because every request contains it.
const MAX_PROMPT_BYTES: usize = 2_800;

fn render_embedded(name: &str) -> String {
    let variables = PromptVariables {
        date: "2026-11-16".to_owned(),
        cwd: "/project".to_owned(),
        workspace: "/project".to_owned(),
        language: "the language of the person".to_owned(),
        tools: ["Bash", "Edit", "Read"].map(str::to_owned).to_vec(),
        platform: "linux".to_owned(),
        model: "scripted/demo".to_owned(),
    };
    let name: AssetName = format!("$minke/{name}").parse().unwrap();
    let assets = AssetSet::load_included(&name, &mut |name| panic!("{name} is not embedded")).unwrap();
    render_asset(&name, &assets, &variables).unwrap()
}

#[test]
fn every_embedded_prompt_is_as_it_was_looked_at() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names = Vec::new();
    for (name, _) in embedded_assets() {
        let (text, file) = (format!("{}\n", render_embedded(name)), dir.join(format!("{name}.txt")));
        names.push(format!("{name}.txt"));
        if std::env::var_os("MINKE_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        } else {
            let golden = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(text, golden, "`{name}` has changed: review it, then update it with MINKE_BLESS=1");
        }
    }
    let mut there: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn the_system_prompt_is_short_and_says_what_holds() {
    let (name, scope, instruction) =
        ("tale".parse().unwrap(), Scope::writable("/project"), render_embedded("default"));
    let prompt = |sandbox_backend: &str, network: &str| {
        system_prompt(&PromptInputs {
            name: &name,
            cwd: Path::new("/project"),
            scope: &scope,
            sandbox_backend,
            network,
            instruction: &instruction,
            language: None,
            project: "",
            skills: &[],
        })
    };
    let sandboxed = prompt("namespaces", "off");
    assert!(sandboxed.len() <= MAX_PROMPT_BYTES, "{} bytes", sandboxed.len());
    for needed in ["`tale`", "/project", "write:/project", "network for commands: off"] {
        assert!(sandboxed.contains(needed), "{needed}: {sandboxed}");
    }
    assert!(prompt("namespaces", "docs.rs").contains("network for commands: docs.rs"));
    assert!(prompt("none", "off").contains("Commands cannot run"));
    assert!(prompt("off", "off").contains("without a sandbox"));
}

#[test]
fn days_are_those_of_the_calendar() {
    for (seconds, date) in [
        (0, "1970-01-01"),
        (86_399, "1970-01-01"),
        (86_400, "1970-01-02"),
        (951_782_400, "2000-02-29"),
        (1_709_164_800, "2024-02-29"),
        (1_709_251_200, "2024-03-01"),
        (1_735_689_599, "2024-12-31"),
        (1_794_787_200, "2026-11-16"),
        (4_107_542_400, "2100-03-01"),
    ] {
        assert_eq!(format_day(seconds * 1000), date);
    }
    assert!(!format_day(u64::MAX).is_empty());
}
