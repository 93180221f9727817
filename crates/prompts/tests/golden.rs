//! The embedded prompts, as somebody has read them. Changed on purpose: `MINKE_BLESS=1 cargo nextest run -p minke-prompts`.

#![expect(clippy::disallowed_methods, reason = "a test reads what it compares with")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::path::Path;

use minke_prompts::{AssetName, Assets, Variables, Who, day, embedded, render, system_prompt};
use minke_record::Scope;

/// Every request carries it.
const BYTES: usize = 2_800;

fn rendered(name: &str) -> String {
    let variables = Variables {
        date: "2026-11-16".to_owned(),
        cwd: "/project".to_owned(),
        workspace: "/project".to_owned(),
        language: "the language of the person".to_owned(),
        tools: ["Bash", "Edit", "Read"].map(str::to_owned).to_vec(),
        platform: "linux".to_owned(),
        model: "scripted/demo".to_owned(),
    };
    let name: AssetName = format!("$minke/{name}").parse().unwrap();
    let assets = Assets::gather(&name, &mut |name| panic!("{name} is not embedded")).unwrap();
    render(&name, &assets, &variables).unwrap()
}

#[test]
fn every_embedded_prompt_is_as_it_was_looked_at() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names = Vec::new();
    for (name, _) in embedded() {
        let (text, file) = (format!("{}\n", rendered(name)), dir.join(format!("{name}.txt")));
        names.push(format!("{name}.txt"));
        if std::env::var_os("MINKE_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        } else {
            let golden = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(text, golden, "`{name}` has changed: look at it, then write it with MINKE_BLESS=1");
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
    let (name, scope, instruction) = ("tale".parse().unwrap(), Scope::write("/project"), rendered("default"));
    let told = |fence: &str, network: &str| {
        system_prompt(&Who {
            name: &name,
            cwd: Path::new("/project"),
            scope: &scope,
            fence,
            network,
            instruction: &instruction,
            language: None,
            project: "",
            known: &[],
        })
    };
    let fenced = told("A", "off");
    assert!(fenced.len() <= BYTES, "{} bytes", fenced.len());
    for needed in ["`tale`", "/project", "write:/project", "network for commands: off"] {
        assert!(fenced.contains(needed), "{needed}: {fenced}");
    }
    assert!(told("A", "docs.rs").contains("network for commands: docs.rs"));
    assert!(told("D", "off").contains("No command can be run"));
    assert!(told("off", "off").contains("without a fence"));
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
        assert_eq!(day(seconds * 1000), date);
    }
    assert!(!day(u64::MAX).is_empty());
}
