//! The dependencies in ARCHITECTURE.md match Cargo in both directions.
//!
//! Here: the page against the real workspace, and small made-up plans that show that the comparison can fail.
//! Elsewhere: labels, purity and promises (`house.rs`).

use serde_json::{Value, json};
use xtask::arrows::{ArrowList, PlanMismatch, compare_plans, read_cargo_plan, read_page_plan};
use xtask::tree;

const PAGE: &str = "
Some words before the table.

| crate | kind | one line | may use | in tests also |
|---|---|---|---|---|
| `record` | types | log entries | – | – |
| `session` | adapters | the log | record | testkit |
| `testkit` | dev | stories | record | – |

And after it.
";

fn packages(session_uses: &[(&str, Option<&str>)]) -> Value {
    let arrows: Vec<Value> =
        session_uses.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
    json!({ "packages": [
        { "name": "minke-record", "dependencies": [{ "name": "serde", "kind": null }] },
        { "name": "minke-session", "dependencies": arrows },
        { "name": "minke-testkit", "dependencies": [{ "name": "minke-record", "kind": null }] },
    ]})
}

fn plan_mismatches(session_uses: &[(&str, Option<&str>)]) -> Vec<PlanMismatch> {
    let drawn = read_page_plan(PAGE).expect("the page above has a table");
    let built = read_cargo_plan(&packages(session_uses)).expect("the packages above are listed");
    compare_plans(&drawn, &built)
}

#[test]
fn what_is_drawn_is_what_is_built() {
    let root = tree::workspace_root();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let built = read_cargo_plan(&tree::cargo_metadata(&root, false).unwrap()).unwrap();
    let complaints = compare_plans(&read_page_plan(&page).unwrap(), &built);
    let text: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "\n{}\n", text.join("\n"));
}

#[test]
fn plans_that_agree_raise_no_complaint() {
    let arrows = [("minke-record", None), ("serde", None), ("minke-testkit", Some("dev"))];
    assert_eq!(plan_mismatches(&arrows), []);
    // A feature of its own, for its tests.
    assert_eq!(plan_mismatches(&[arrows.as_slice(), &[("minke-session", Some("dev"))]].concat()), []);
}

#[test]
fn an_arrow_built_and_not_drawn_is_told() {
    let found =
        plan_mismatches(&[("minke-record", None), ("minke-testkit", None), ("minke-testkit", Some("dev"))]);
    let arrow =
        PlanMismatch::ArrowNotDrawn { from: "session".into(), to: "testkit".into(), place: ArrowList::Code };
    assert_eq!(found, [arrow]);
}

#[test]
fn an_arrow_drawn_and_not_built_is_told() {
    let found = plan_mismatches(&[("minke-testkit", Some("dev"))]);
    let arrow =
        PlanMismatch::ArrowNotBuilt { from: "session".into(), to: "record".into(), place: ArrowList::Code };
    assert_eq!(found, [arrow]);
}

#[test]
fn an_arrow_of_tests_is_no_arrow_of_code() {
    let found = plan_mismatches(&[("minke-record", Some("dev")), ("minke-testkit", Some("dev"))]);
    let not_drawn =
        PlanMismatch::ArrowNotDrawn { from: "session".into(), to: "record".into(), place: ArrowList::Tests };
    let not_built =
        PlanMismatch::ArrowNotBuilt { from: "session".into(), to: "record".into(), place: ArrowList::Code };
    assert_eq!(found, [not_built, not_drawn]);
}

#[test]
fn a_crate_on_one_side_only_is_told() {
    let mut page = read_page_plan(PAGE).unwrap();
    page.remove("testkit");
    page.insert("policy".into(), Default::default());
    let built =
        read_cargo_plan(&packages(&[("minke-record", None), ("minke-testkit", Some("dev"))])).unwrap();
    let found = compare_plans(&page, &built);
    assert_eq!(
        found,
        [PlanMismatch::CrateNotBuilt("policy".into()), PlanMismatch::CrateNotDrawn("testkit".into())]
    );
}

#[test]
fn a_page_without_the_table_is_told() {
    assert!(read_page_plan("# Nothing here\n").unwrap_err().contains("no table"));
    assert!(
        read_page_plan(&PAGE.replace("| `testkit` | dev |", "| `record` | dev |"))
            .unwrap_err()
            .contains("two rows")
    );
}
