//! Layers: every key in every layer, its origin, and ten thousand random layers compared with an independent
//! implementation of the rules.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Instant;

use minke_manifest::{
    ConfigLayer, LayerKind, Manifest, Merge, Origin, PartialManifest, ResolvedManifest, all_keys, find_key,
    origins_by_path, resolve_layers,
};
use serde_json::{Value, json};

/// Two values of each key; the second one is lower or different.
fn samples() -> &'static BTreeMap<&'static str, [Value; 2]> {
    static SAMPLES: LazyLock<BTreeMap<&'static str, [Value; 2]>> = LazyLock::new(make_samples);
    &SAMPLES
}

fn make_samples() -> BTreeMap<&'static str, [Value; 2]> {
    let rule = |action: &str, tool: &str| json!([{ "action": action, "tool": tool }]);
    let scope = |path: &str, right: &str| json!([{ "target": path, "permission": right, "recursive": true }]);
    let mut all = BTreeMap::from([
        ("pod.name", [json!("tale"), json!("other")]),
        ("pod.idle_exit", [json!(60), json!(30)]),
        ("pod.prompt_pack", [json!("/a"), json!("/b")]),
        ("model.ref", [json!("a/b"), json!("c/d")]),
        ("model.scheme", [json!("one"), json!("two")]),
        ("model.base_url", [json!("http://a"), json!("http://b")]),
        ("model.model_id", [json!("m"), json!("n")]),
        ("model.auth", [json!("none"), json!({"api_key": {"env": "A"}})]),
        ("model.capability", [json!({"vision": true}), json!({"vision": false})]),
        ("model.context_window", [json!(9_000), json!(8_000)]),
        ("model.max_output", [json!(900), json!(800)]),
        ("model.fallback", [json!(["a/b"]), json!([])]),
        ("worker.max_turns", [json!(9), json!(8)]),
        ("worker.max_tokens", [json!(9), json!(8)]),
        ("worker.reasoning", [json!("high"), json!(2_000)]),
        ("worker.language", [json!("French"), json!("German")]),
        ("worker.temperature", [json!(0.5), json!(0.25)]),
        ("worker.top_p", [json!(0.5), json!(0.25)]),
        ("worker.top_k", [json!(40), json!(4)]),
        ("worker.stop_sequences", [json!(["A"]), json!(["B", "C"])]),
        ("worker.instruction", [json!("Be brief."), json!("Be kind.")]),
        ("worker.tool_output.default_max_bytes", [json!(9_000), json!(8_000)]),
        ("worker.tool_output.per_tool", [json!({"A": 1, "B": 2}), json!({"B": 3, "C": 4})]),
        ("worker.file_upload.max_bytes", [json!(9_000), json!(8_000)]),
        ("skills.directories", [json!(["/a"]), json!(["/b"])]),
        ("scope.allow", [scope("/a", "write"), scope("/b", "read")]),
        ("scope.deny", [scope("/c", "write"), scope("/d", "read")]),
        ("sandbox.mode", [json!("scope"), json!("read_only")]),
        ("sandbox.network", [json!("on"), json!(["docs.rs"])]),
        ("sandbox.writable_tmp", [json!(true), json!(false)]),
        ("sandbox.env.pass", [json!(["A"]), json!(["B"])]),
        ("sandbox.env.set", [json!({"A": "1", "B": "2"}), json!({"B": "3", "C": "4"})]),
        ("permissions.posture", [json!("full"), json!("plan")]),
        ("permissions.default_action", [json!("allow"), json!("deny")]),
        ("permissions.rule", [rule("deny", "Write"), rule("ask", "WebFetch")]),
        ("permissions.ask_expires_s", [json!(60), json!(30)]),
        ("permissions.may_answer", [json!(true), json!(false)]),
        ("budget.usd", [json!(2.5), json!(0.5)]),
        ("session.durability", [json!("full"), json!("lazy")]),
        ("session.record_streams", [json!(true), json!(false)]),
        ("session.record_max_bytes", [json!(9), json!(8)]),
        ("web.enabled", [json!(true), json!(false)]),
        ("web.search.provider", [json!("brave"), json!("brave")]),
        ("web.search.base_url", [json!("http://a"), json!("http://b")]),
        ("web.search.api_key_env", [json!("A"), json!("B")]),
        ("web.search.timeout_s", [json!(9), json!(8)]),
        ("web.fetch.timeout_s", [json!(9), json!(8)]),
        ("web.fetch.redirects", [json!(9), json!(8)]),
        ("web.fetch.max_response_bytes", [json!(9), json!(8)]),
        ("web.fetch.max_output_bytes", [json!(9), json!(8)]),
        ("web.fetch.allow_private", [json!(true), json!(false)]),
        ("hooks.enabled", [json!(true), json!(false)]),
    ]);
    for path in all_keys().map(|key| key.path) {
        if path.starts_with("budget.") || path.starts_with("pod.limits.") {
            all.entry(path).or_insert([json!(3), json!(2)]);
        }
    }
    all
}

/// The rules of the specification for workspaces.
fn workspace_may_set(path: &str, value: &Value) -> bool {
    match path {
        "scope.deny" => true,
        // It tightens nothing, but is allowed.
        "worker.language" | "skills.directories" => true,
        "permissions.rule" => value.as_array().unwrap().iter().all(|rule| rule["action"] != "allow"),
        "web.enabled" => value == &json!(false),
        _ => path.starts_with("budget.") || path.starts_with("pod.limits."),
    }
}

fn set_path(whole: &mut Value, path: &str, value: &Value) {
    let place = path.split('.').fold(whole, |here, part| &mut here[part]);
    *place = value.clone();
}

fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| value.get(part))
}

fn layer_name(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Default => "",
        LayerKind::Parent => "parent",
        LayerKind::User => "/home/me/config.toml",
        LayerKind::Profile => "builtin:coder",
        LayerKind::Project => "project:mine",
        LayerKind::Workspace => "/w/.minke/config.toml",
        LayerKind::CommandLine => "--set",
    }
}

fn make_layer(kind: LayerKind, tables: &[(&str, &Value)]) -> ConfigLayer {
    let from = Origin::new(kind, layer_name(kind));
    let mut whole = json!({});
    for (path, value) in tables {
        set_path(&mut whole, path, value);
    }
    let values =
        PartialManifest::from_table(&whole, &from, &|_| Some(7)).unwrap_or_else(|e| panic!("{whole}: {e}"));
    ConfigLayer { kind, values }
}

const SEARCH_PROVIDER: &str = "web.search.provider";

/// Adds a search provider, which keys of a search require.
fn with_search<'a>(path: &'a str, value: &'a Value, brave: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let mut tables = vec![(path, value)];
    if path.starts_with("web.search.") && path != SEARCH_PROVIDER {
        tables.push((SEARCH_PROVIDER, brave));
    }
    tables
}

fn resolved_value(resolved: &ResolvedManifest, path: &str) -> Option<Value> {
    let mut value = value_at(&resolved.manifest.to_value(), path).cloned();
    let rules = &resolved.manifest.permissions.workspace_rule;
    if path == "permissions.rule" && !rules.is_empty() {
        let mut all = value.unwrap_or_else(|| json!([]));
        all.as_array_mut().unwrap().extend(rules.iter().map(|rule| serde_json::to_value(rule).unwrap()));
        value = Some(all);
    }
    value
}

fn origins_of(resolved: &ResolvedManifest, path: &str) -> Vec<LayerKind> {
    let inside =
        |row: &String| row == path || row.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
    let origins = origins_by_path(resolved);
    origins.iter().filter(|(row, _)| inside(row)).map(|(_, origin)| origin.layer).collect()
}

#[test]
fn every_key_reaches_its_field() {
    let samples = samples();
    let known: Vec<&str> = all_keys().map(|key| key.path).collect();
    for path in &known {
        assert!(samples.contains_key(path), "{path} has no samples");
    }
    assert_eq!(known.len(), samples.len());
    let brave = json!("brave");
    for (path, values) in samples {
        for value in values {
            let resolved =
                resolve_layers(&[make_layer(LayerKind::User, &with_search(path, value, &brave))]).unwrap();
            let empty =
                value.as_array().is_some_and(Vec::is_empty) && resolved_value(&resolved, path).is_none();
            assert!(empty || resolved_value(&resolved, path).as_ref() == Some(value), "{path}");
        }
    }
}

/// Each layer alone, then each pair: the value and its origin.
#[test]
fn the_cascade() {
    let brave = json!("brave");
    let layers = [LayerKind::User, LayerKind::Profile, LayerKind::Workspace, LayerKind::CommandLine];
    for (path, [a, b]) in samples() {
        let key = find_key(path).unwrap();
        let usable: Vec<LayerKind> =
            layers.into_iter().filter(|kind| key.profile || *kind != LayerKind::Profile).collect();
        for kind in &usable {
            let resolved = resolve_layers(&[make_layer(*kind, &with_search(path, a, &brave))]).unwrap();
            let counts =
                *kind != LayerKind::Workspace || (workspace_may_set(path, a) && *path != "web.enabled");
            let kinds = if counts { vec![*kind] } else { vec![LayerKind::Default] };
            let found: Vec<LayerKind> = origins_of(&resolved, path);
            assert!(found.iter().all(|kind| kinds.contains(kind)), "{path} in {kind:?}: {found:?}");
            assert_eq!(
                resolved.alerts.is_empty(),
                *kind != LayerKind::Workspace || workspace_may_set(path, a),
                "{path}"
            );
            if counts {
                assert_eq!(resolved_value(&resolved, path).as_ref(), Some(a), "{path} in {kind:?}");
                let lines = resolved.rows().into_iter().filter(|row| row.origin.layer == *kind);
                assert!(lines.clone().count() > 0 && lines.clone().all(|row| row.origin.line == Some(7)));
            }
        }
        for (i, low) in usable.iter().enumerate() {
            for high in usable.iter().skip(i + 1) {
                let both = [
                    make_layer(*low, &with_search(path, a, &brave)),
                    make_layer(*high, &with_search(path, b, &brave)),
                ];
                // The order of the layers does not matter.
                let turned = [both[1].clone(), both[0].clone()];
                let resolved = resolve_layers(&both).unwrap();
                assert_eq!(resolved, resolve_layers(&turned).unwrap(), "{path}");
                let counts = |kind: LayerKind, value: &Value| {
                    kind != LayerKind::Workspace || workspace_may_set(path, value)
                };
                let (found, kinds) = (resolved_value(&resolved, path), origins_of(&resolved, path));
                let place = format!("{path}: {low:?} then {high:?}");
                match (counts(*low, a), counts(*high, b), key.merge) {
                    (true, true, Merge::Override) => {
                        assert_eq!((found.as_ref(), kinds), (Some(b), vec![*high]), "{place}");
                    }
                    (true, true, Merge::Concatenate) => {
                        let mut all = a.as_array().unwrap().clone();
                        let mut wanted = vec![*low, *high];
                        let higher = b.as_array().unwrap().clone();
                        // Rules of a workspace are a separate layer after all others.
                        if *path == "permissions.rule" && *low == LayerKind::Workspace {
                            all = higher.into_iter().chain(all).collect();
                            wanted.reverse();
                        } else {
                            all.extend(higher);
                        }
                        assert_eq!((found, kinds), (Some(all.into()), wanted), "{place}");
                    }
                    (true, true, Merge::PerKey) => {
                        let [texts, numbers] =
                            [json!({"A": "1", "B": "3", "C": "4"}), json!({"A": 1, "B": 3, "C": 4})];
                        assert!(found == Some(texts) || found == Some(numbers), "{place}: {found:?}");
                        assert_eq!(kinds, [*low, *high, *high], "{place}");
                    }
                    (true, false, _) => {
                        assert_eq!(found.as_ref(), Some(a), "{place}");
                        assert!(kinds.iter().all(|kind| kind == low), "{place}: {kinds:?}");
                    }
                    (false, _, _) => {
                        let empty = b.as_array().is_some_and(Vec::is_empty);
                        assert!(empty || found.as_ref() == Some(b), "{place}");
                    }
                }
            }
        }
    }
}

/// A deterministic random generator.
struct XorShift64(u64);

impl XorShift64 {
    fn next_below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn random_layer(random: &mut XorShift64, kind: LayerKind) -> ConfigLayer {
    let allow = json!([{ "action": "allow", "tool": "Write" }, { "action": "deny", "command": "rm" }]);
    let mut tables: Vec<(&str, Value)> = Vec::new();
    for (path, values) in samples() {
        let profile = find_key(path).unwrap().profile || kind != LayerKind::Profile;
        if !profile || random.next_below(4) > 0 {
            continue;
        }
        let value = match values[random.next_below(2)].clone() {
            Value::Number(number) if number.is_u64() => json!(1 + random.next_below(20)),
            Value::Array(_) if *path == "permissions.rule" && random.next_below(2) == 0 => allow.clone(),
            value => value,
        };
        tables.push((path, value));
    }
    if kind == LayerKind::User {
        tables.push((SEARCH_PROVIDER, json!("brave")));
    }
    let tables: Vec<(&str, &Value)> = tables.iter().map(|(path, value)| (*path, value)).collect();
    make_layer(kind, &tables)
}

/// Checks key by key that a manifest allows no more than another one, independently of the product.
fn check_not_freer(strict: &Manifest, free: &Manifest) -> Result<(), String> {
    let (mut s, mut f) = (strict.to_value(), free.to_value());
    for path in all_keys().map(|key| key.path) {
        let (a, b) = (value_at(&s, path).cloned(), value_at(&f, path).cloned());
        let fine = if path.starts_with("budget.") || path.starts_with("pod.limits.") {
            match (&a, &b) {
                (Some(a), Some(b)) => a.as_f64() <= b.as_f64(),
                (None, Some(_)) => false,
                _ => true,
            }
        } else if path == "scope.deny" {
            let list = |value: &Option<Value>| value.clone().unwrap_or_else(|| json!([]));
            let (a, b) = (list(&a), list(&b));
            b.as_array().unwrap().iter().all(|rule| a.as_array().unwrap().contains(rule))
        } else if path == "worker.language" || path == "skills.directories" {
            true
        } else if path == "web.enabled" {
            a == b || a == Some(json!(false))
        } else {
            a == b
        };
        if !fine {
            return Err(format!("{path}: {a:?} beside {b:?}"));
        }
    }
    for value in [&mut s, &mut f] {
        value["permissions"].as_object_mut().unwrap().remove("workspace_rule");
    }
    if strict.permissions.workspace_rule.iter().any(|rule| rule.action.as_str() == "allow") {
        return Err("a rule of the workspace allows".to_owned());
    }
    (s["permissions"] == f["permissions"]).then_some(()).ok_or_else(|| "permissions differ".to_owned())
}

#[test]
fn a_workspace_never_loosens_and_merging_is_associative() {
    let mut random = XorShift64(0x5eed_0007);
    let mut tightened = 0;
    for round in 0..10_000 {
        let [a, b, c] = [LayerKind::User, LayerKind::Profile, LayerKind::CommandLine]
            .map(|kind| random_layer(&mut random, kind));
        let left = a.values.clone().overridden_by(b.values.clone()).overridden_by(c.values.clone());
        let right = a.values.clone().overridden_by(b.values.clone().overridden_by(c.values.clone()));
        assert_eq!(left, right, "round {round}");
        let workspace = random_layer(&mut random, LayerKind::Workspace);
        let without = resolve_layers(&[a.clone(), b.clone()]).unwrap();
        let with = resolve_layers(&[a.clone(), b.clone(), workspace.clone()]).unwrap();
        check_not_freer(&with.manifest, &without.manifest).unwrap_or_else(|e| panic!("round {round}: {e}"));
        tightened += usize::from(with.manifest != without.manifest);
        // Options of the command line come last; the rules of the workspace stay.
        let whole = resolve_layers(&[a, b, workspace, c.clone()]).unwrap();
        assert_eq!(whole.manifest.permissions.workspace_rule, with.manifest.permissions.workspace_rule);
        for (key, given) in c.values.iter().filter(|(key, _)| key.merge == Merge::Override) {
            assert_eq!(whole.origin_of(key.path), given.origin, "round {round}: {}", key.path);
        }
    }
    assert!(tightened > 5_000, "the workspaces tightened something in {tightened} rounds only");
}

#[test]
fn a_whole_manifest_is_resolved_in_no_time() {
    let mut random = XorShift64(11);
    let kinds = [LayerKind::User, LayerKind::Profile, LayerKind::Workspace, LayerKind::CommandLine];
    let layers = kinds.map(|kind| random_layer(&mut random, kind));
    const ROUNDS: u32 = 200;
    #[expect(clippy::disallowed_methods, reason = "a test measures")]
    let before = Instant::now();
    for _ in 0..ROUNDS {
        assert!(resolve_layers(&layers).is_ok());
    }
    let each = before.elapsed() / ROUNDS;
    eprintln!("four layers are resolved in {each:?}");
    assert!(each.as_millis() < 5, "{each:?}");
}

#[test]
fn what_is_taken_fits_the_schema() {
    let schema = minke_manifest::config_schema();
    for (path, values) in samples() {
        let place = path.split('.').try_fold(&schema, |schema, part| schema["properties"].get(part));
        let place = place.unwrap_or_else(|| panic!("{path} is not in the schema"));
        assert!(place["description"].as_str().is_some_and(|text| text.len() > 5), "{path}");
        for value in values {
            assert!(matches_schema(place, value), "{path}: {value} does not fit {place}");
        }
        assert!(!matches_schema(place, &Value::Null), "{path} takes nothing");
    }
}

/// The subset of JSON Schema that the schema uses, without patterns and ranges.
fn matches_schema(schema: &Value, value: &Value) -> bool {
    if let Some(some) = schema.get("anyOf") {
        return some.as_array().unwrap().iter().any(|schema| matches_schema(schema, value));
    }
    if let Some(words) = schema.get("enum") {
        return words.as_array().unwrap().contains(value);
    }
    match schema["type"].as_str() {
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value
            .as_array()
            .is_some_and(|entries| entries.iter().all(|entry| matches_schema(&schema["items"], entry))),
        Some("object") => value.is_object(),
        other => panic!("a schema of type {other:?}"),
    }
}
