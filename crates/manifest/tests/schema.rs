//! The JSON Schema of `config.toml`: what this version says is what `schema/` holds. `MINKE_BLESS=1` writes it anew.

const FILE: &str = include_str!("../../../schema/config.schema.json");

#[test]
fn the_schema_of_settings_is_up_to_date() {
    let mut now = serde_json::to_string_pretty(&minke_manifest::schema()).unwrap();
    now.push('\n');
    if std::env::var_os("MINKE_BLESS").is_some() {
        return bless(&now);
    }
    assert!(now == FILE, "keys have changed: look at the difference, then run this test with MINKE_BLESS=1");
}

#[expect(clippy::disallowed_methods, reason = "a test that is asked to write its golden file")]
fn bless(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/config.schema.json");
    std::fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {path}: {e}"));
}
