//! The arrows in ARCHITECTURE.md are the arrows in Cargo, both ways.
//!
//! Here: the page against the real workspace, and small made-up plans that show the comparison can fail.
//! Elsewhere: labels, purity and promises (`house.rs`).

use serde_json::{Value, json};
use xtask::arrows::{Complaint, Place, built, compare, drawn};
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

fn complaints(session_uses: &[(&str, Option<&str>)]) -> Vec<Complaint> {
    let drawn = drawn(PAGE).expect("the page above has a table");
    let built = built(&packages(session_uses)).expect("the packages above are listed");
    compare(&drawn, &built)
}

#[test]
fn what_is_drawn_is_what_is_built() {
    let root = tree::root();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let built = built(&tree::metadata(&root, false).unwrap()).unwrap();
    let complaints = compare(&drawn(&page).unwrap(), &built);
    let told: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "\n{}\n", told.join("\n"));
}

#[test]
fn plans_that_agree_raise_no_complaint() {
    let arrows = [("minke-record", None), ("serde", None), ("minke-testkit", Some("dev"))];
    assert_eq!(complaints(&arrows), []);
    // A feature of its own, for its tests.
    assert_eq!(complaints(&[arrows.as_slice(), &[("minke-session", Some("dev"))]].concat()), []);
}

#[test]
fn an_arrow_built_and_not_drawn_is_told() {
    let found =
        complaints(&[("minke-record", None), ("minke-testkit", None), ("minke-testkit", Some("dev"))]);
    let arrow = Complaint::ArrowNotDrawn { from: "session".into(), to: "testkit".into(), place: Place::Code };
    assert_eq!(found, [arrow]);
}

#[test]
fn an_arrow_drawn_and_not_built_is_told() {
    let found = complaints(&[("minke-testkit", Some("dev"))]);
    let arrow = Complaint::ArrowNotBuilt { from: "session".into(), to: "record".into(), place: Place::Code };
    assert_eq!(found, [arrow]);
}

#[test]
fn an_arrow_of_tests_is_no_arrow_of_code() {
    let found = complaints(&[("minke-record", Some("dev")), ("minke-testkit", Some("dev"))]);
    let not_drawn =
        Complaint::ArrowNotDrawn { from: "session".into(), to: "record".into(), place: Place::Tests };
    let not_built =
        Complaint::ArrowNotBuilt { from: "session".into(), to: "record".into(), place: Place::Code };
    assert_eq!(found, [not_built, not_drawn]);
}

#[test]
fn a_crate_on_one_side_only_is_told() {
    let mut page = drawn(PAGE).unwrap();
    page.remove("testkit");
    page.insert("policy".into(), Default::default());
    let built = built(&packages(&[("minke-record", None), ("minke-testkit", Some("dev"))])).unwrap();
    let found = compare(&page, &built);
    assert_eq!(
        found,
        [Complaint::CrateNotBuilt("policy".into()), Complaint::CrateNotDrawn("testkit".into())]
    );
}

#[test]
fn a_page_without_the_table_is_told() {
    assert!(drawn("# Nothing here\n").unwrap_err().contains("no table"));
    assert!(
        drawn(&PAGE.replace("| `testkit` | dev |", "| `record` | dev |")).unwrap_err().contains("two rows")
    );
}
