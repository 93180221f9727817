//! Compares the JSON Schema of `config.toml` with the file in `schema/`. `MINKE_BLESS=1` updates the file.

const SCHEMA_FILE: &str = include_str!("../../../schema/config.schema.json");

#[test]
fn the_schema_of_settings_is_up_to_date() {
    let mut now = serde_json::to_string_pretty(&minke_manifest::config_schema()).unwrap();
    now.push('\n');
    if std::env::var_os("MINKE_BLESS").is_some() {
        return write_schema(&now);
    }
    assert!(
        now == SCHEMA_FILE,
        "keys have changed: review the difference, then run this test with MINKE_BLESS=1"
    );
}

#[expect(clippy::disallowed_methods, reason = "the test updates its golden file")]
fn write_schema(text: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/config.schema.json");
    std::fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {path}: {e}"));
}
