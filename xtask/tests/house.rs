//! The repository rules hold for this tree, and each check can fail.
//!
//! Here: labels, purity, promises. Elsewhere: dependencies (`arrows.rs`).

use std::path::Path;

use serde_json::json;
use xtask::{arrows, labels, pages, promises, providers, purity, starts, tree};

#[test]
fn every_file_has_a_label() {
    let root = tree::workspace_root();
    let bare = labels::missing_labels(&root, &tree::rust_files(&root).unwrap()).unwrap();
    assert!(bare.is_empty(), "these files have no label (`//!` on the first line): {bare:#?}");
}

#[test]
fn a_file_without_a_label_is_found() {
    assert!(labels::is_labelled("//! Arrows.\nfn main() {}"));
    for bare in ["", "fn main() {}", "//!\nfn main() {}", "// Arrows.\n", "\n//! Too late.\n"] {
        assert!(!labels::is_labelled(bare), "{bare:?}");
    }
}

/// No page contains conflict markers of an unfinished merge.
#[test]
fn no_page_holds_an_unfinished_merge() {
    let root = tree::workspace_root();
    let pages = pages::all_pages(&root).unwrap();
    assert!(pages.len() > 30, "{}", pages.len());
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let left = text.lines().find(|line| line.starts_with("<<<<<<<") || line.starts_with(">>>>>>>"));
        assert_eq!(left, None, "{}", page.display());
    }
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = tree::workspace_root();
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages::all_pages(&root).unwrap() {
        links += pages::link_targets(&std::fs::read_to_string(&page).unwrap()).len();
        broken.extend(pages::broken_links(&page).unwrap());
    }
    assert!(links > 100, "only {links} links were found");
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn every_crate_has_a_readme_whose_paths_exist() {
    let root = tree::workspace_root();
    let plan =
        arrows::read_page_plan(&std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap()).unwrap();
    let mut missing = Vec::new();
    for name in plan.keys() {
        let folder = if name == "xtask" { root.join(name) } else { root.join("crates").join(name) };
        missing.extend(pages::missing_sources(&folder.join("README.md")).unwrap());
    }
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
}

#[test]
fn a_broken_link_is_found() {
    let text = "See [a](b.md#c-d), [site](https://example.org/x).\n```\n[not](one.md)\n```\n![p](i/p.svg)\n";
    assert_eq!(pages::link_targets(text), ["b.md#c-d", "i/p.svg"]);
    assert_eq!(pages::heading_anchor("Keys of `--set`"), "keys-of---set");
    assert_eq!(pages::heading_anchor("What `landlock` leaves open"), "what-landlock-leaves-open");
    let dir = std::env::temp_dir().join(format!("minke-links-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let page = dir.join("page.md");
    std::fs::write(&page, "# One\n[ok](#one) [gone](other.md) [no](page.md#two)\n").unwrap();
    let broken = pages::broken_links(&page).unwrap();
    std::fs::write(&page, "`src/gone.rs`, `page.md`\n").unwrap();
    let missing = pages::missing_sources(&page).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(broken[0].contains("other.md") && broken[1].contains("#two"), "{broken:?}");
    assert_eq!(missing.len(), 1, "{missing:?}");
}

#[test]
fn only_our_own_files_are_listed() {
    let files = tree::rust_files(&tree::workspace_root()).unwrap();
    assert!(files.iter().any(|file| file == Path::new("xtask/src/tree.rs")));
    assert!(files.iter().all(|file| !file.starts_with("target")));
}

#[test]
fn no_code_outside_llm_names_a_provider() {
    let root = tree::workspace_root();
    let catalog = std::fs::read_to_string(root.join("crates/llm/data/providers.toml")).unwrap();
    let names = providers::provider_names(&catalog);
    assert!(names.len() >= 10, "only {names:?} were found in the catalog");
    let found = providers::lines_with_names(&root, &tree::rust_files(&root).unwrap(), &names).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_provider_that_is_named_is_found() {
    let names = providers::provider_names("[groq]\n[groq.models.x]\n[scripted]\n[\"open-router\"]\n");
    assert!(names.iter().any(|name| name == "groq") && names.iter().any(|name| name == "open-router"));
    assert!(!names.iter().any(|name| name == "scripted"));
    for line in ["if provider == \"groq\" {", "// Claude does it so", "gpt-5", "OPENAI_API_KEY"] {
        assert!(providers::find_name(line, &names).is_some(), "{line}");
    }
    assert!(providers::find_name("a groqqy thing", &names).is_none());
    assert_eq!(providers::find_name("a directory `.openai/x`", &providers::provider_names("")), None);
    assert_eq!(providers::find_name("a text `OPENAI.md`", &providers::provider_names("")), None);
    assert_eq!(providers::find_name("a session file of Claude Code", &providers::provider_names("")), None);
}

#[test]
fn no_program_is_started_by_its_bare_name() {
    let root = tree::workspace_root();
    let found = starts::unreviewed_starts(&root, &tree::rust_files(&root).unwrap()).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_program_that_is_started_by_its_bare_name_is_found() {
    for line in [
        "let done = Command::new(\"git\").status();",
        "std::process::Command::new(\"sh\")",
        "tokio::process::Command::new(name)",
        "Command::new(\"./x\")",
        "for dir in std::env::split_paths(&path) {",
        "let path = std::env::var_os(\"PATH\");",
    ] {
        assert_eq!(starts::problems_in("crates/cli/src/x.rs", line).len(), 1, "{line}");
    }
    for line in [
        "Command::new(\"/bin/ps\")",
        "BackgroundCommand::new(row)",
        "#[cfg(test)]\nCommand::new(\"sh\")",
        "// `PATH`",
    ] {
        assert!(starts::problems_in("crates/cli/src/x.rs", line).is_empty(), "{line}");
    }
}

#[test]
fn types_and_core_are_pure() {
    let root = tree::workspace_root();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let plan = arrows::read_page_plan(&page).unwrap();
    let pure = purity::pure_crates(&plan);
    assert!(pure.contains(&"pod") && pure.contains(&"record"), "{pure:?}");
    let mut complaints = purity::find_runtimes(&tree::cargo_metadata(&root, true).unwrap(), &pure).unwrap();
    complaints.extend(purity::missing_bans(&root, &pure));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_runtime_deep_below_a_pure_crate_is_found() {
    let graph = |kind: serde_json::Value| {
        json!({
            "packages": [
                { "id": "p", "name": "minke-pod" }, { "id": "s", "name": "stream" }, { "id": "t", "name": "tokio" },
            ],
            "resolve": { "nodes": [
                { "id": "p", "deps": [{ "pkg": "s", "dep_kinds": [{ "kind": null }] }] },
                { "id": "s", "deps": [{ "pkg": "t", "dep_kinds": [{ "kind": kind }] }] },
                { "id": "t", "deps": [] },
            ]},
        })
    };
    let found = purity::find_runtimes(&graph(json!(null)), &["pod"]).unwrap();
    assert_eq!(found, ["`pod` is drawn as pure and has `tokio` below it"]);
    // Test dependencies of other packages do not count.
    assert!(purity::find_runtimes(&graph(json!("dev")), &["pod"]).unwrap().is_empty());
}

#[test]
fn a_ban_that_is_missing_or_commented_out_is_found() {
    let all: String = purity::REQUIRED_BANS.iter().map(|ban| format!("{{ path = \"{ban}\" }},\n")).collect();
    assert_eq!(purity::absent_bans(&all).count(), 0);
    let without = all.replace("{ path = \"std::env::var\"", "# { path = \"std::env::var\"");
    assert_eq!(purity::absent_bans(&without).collect::<Vec<_>>(), ["std::env::var"]);
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let root = tree::workspace_root();
    let known = promises::find_tests(&root, &tree::rust_files(&root).unwrap()).unwrap();
    let mut complaints = Vec::new();
    for name in promises::PAGES {
        let page = std::fs::read_to_string(root.join(name)).unwrap();
        let made = promises::read_promises(&page).len();
        assert!(made >= 8, "only {made} promises were found in {name}");
        complaints.extend(promises::promise_problems(&page, &known));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn promises_and_tests_are_read_as_written() {
    let page = "# x\n## Promises, kept\n\n1. It holds `record`, kept by\n   `it_holds`.\n2. Bare.\n\n## Next\n3. Not one `x_y`.\n";
    let made = promises::read_promises(page);
    assert_eq!(made.len(), 2);
    assert_eq!(made[0].tests, ["it_holds"]);
    assert!(made[1].tests.is_empty());

    let code = "fn not_one() {}\n#[test]\n#[should_panic(\n    expected = \"x\"\n)]\nfn it_holds() {\n}\n#[tokio::test]\nasync fn and_this() {}\nfn nor_this() {}\n";
    assert_eq!(promises::test_names(code).collect::<Vec<_>>(), ["it_holds", "and_this"]);
}
