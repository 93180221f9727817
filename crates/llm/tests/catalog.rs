//! The catalog and the resolution of references: layers, origins, errors, and which address receives a key.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use minke_llm::{
    CachingMode, Catalog, ModelRequest, ReasoningKind, ResolveContext, ResolveError, ResolvedModel,
    ToolUseSupport, WireScheme, canonical_reference, resolve_model,
};
use minke_model::{ModelEvent, Prompt};
use minke_record::Item;
use serde_json::json;

/// A configuration directory and an environment.
struct CatalogFixture {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

impl CatalogFixture {
    fn new() -> CatalogFixture {
        CatalogFixture { dir: tempfile::tempdir().unwrap(), env: BTreeMap::new() }
    }

    fn with_file(self, name: &str, text: &str) -> CatalogFixture {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self
    }

    fn with_env(mut self, name: &str, value: &str) -> CatalogFixture {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn resolve_context(&self) -> ResolveContext {
        let env = self.env.clone();
        ResolveContext::for_process(Path::new("/somewhere"), Some(self.dir.path().to_owned()))
            .with_env(move |name| env.get(name).cloned())
    }

    fn try_resolve(&self, request: &ModelRequest) -> Result<ResolvedModel, ResolveError> {
        resolve_model(request, &self.resolve_context())
    }

    fn resolve_ok(&self, request: impl Into<ModelRequest>) -> ResolvedModel {
        self.try_resolve(&request.into()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn resolve_error(&self, request: impl Into<ModelRequest>) -> String {
        match self.try_resolve(&request.into()) {
            Ok(resolved) => panic!("unexpected success: {resolved:?}"),
            Err(e) => e.to_string(),
        }
    }
}

/// Returns a value and its origin.
fn value_and_origin(resolved: &ResolvedModel, key: &str) -> (String, String) {
    let field = resolved.origins.iter().find(|field| field.key == key);
    field
        .map(|field| (field.value.clone(), field.origin.clone()))
        .unwrap_or_else(|| panic!("{key} is not there"))
}

fn owned_pair(value: &str, origin: &str) -> (String, String) {
    (value.to_owned(), origin.to_owned())
}

#[test]
fn every_built_in_model_resolves_and_the_providers_are_there() {
    let catalog = Catalog::load(None).unwrap();
    let wanted = [
        "anthropic",
        "deepseek",
        "google",
        "groq",
        "llamacpp",
        "lmstudio",
        "mistral",
        "ollama",
        "openai",
        "openai-chat",
        "openrouter",
        "scripted",
        "vllm",
        "xai",
    ];
    assert_eq!(catalog.providers(), wanted);
    let world = CatalogFixture::new();
    for reference in catalog.references() {
        let resolved = world.resolve_ok(reference);
        assert!(resolved.alerts.is_empty(), "{reference}: {:?}", resolved.alerts);
        let fits = match (resolved.context_window, resolved.max_output) {
            (Some(window), Some(output)) => output <= window,
            _ => true,
        };
        assert!(fits, "{reference}: {resolved:?}");
    }
}

#[test]
fn each_value_comes_from_the_first_layer_that_has_it() {
    let world = CatalogFixture::new()
        .with_file(
            "providers.toml",
            "[anthropic]\nmax_output = 7\ncapability = { vision = false }\ntimeouts = { idle_s = 5 }\n",
        )
        .with_file("models.toml", "[\"anthropic/claude-opus-4-6\"]\ncontext_window = 123\n");
    let request = ModelRequest {
        capability: Some(json!({ "tools": "sequential" })),
        ..ModelRequest::from("anthropic/claude-opus-4-6")
    };
    let resolved = world.resolve_ok(request);
    assert_eq!(value_and_origin(&resolved, "capability.tools"), owned_pair("sequential", "manifest"));
    assert_eq!(value_and_origin(&resolved, "context_window"), owned_pair("123", "models.toml (user)"));
    assert_eq!(value_and_origin(&resolved, "max_output"), owned_pair("128000", "models.toml"));
    assert_eq!(
        value_and_origin(&resolved, "capability.vision"),
        owned_pair("false", "providers.toml (user)")
    );
    assert_eq!(value_and_origin(&resolved, "capability.reasoning"), owned_pair("budget", "providers.toml"));
    assert_eq!(value_and_origin(&resolved, "timeouts.idle_s"), owned_pair("5.0", "providers.toml (user)"));
    assert_eq!(value_and_origin(&resolved, "timeouts.connect_s"), owned_pair("10.0", "scheme default"));
    assert_eq!(
        value_and_origin(&resolved, "base_url"),
        owned_pair("https://api.anthropic.com/", "providers.toml")
    );
    assert_eq!(value_and_origin(&resolved, "model_id"), owned_pair("claude-opus-4-6", "ref"));
    assert_eq!(resolved.settings.capability.tools, ToolUseSupport::Sequential);
    assert_eq!(resolved.settings.capability.reasoning, ReasoningKind::Budget);
    assert_eq!(resolved.settings.capability.caching, CachingMode::Explicit(4));
    assert!(resolved.settings.quirks.adaptive_thinking);
    assert_eq!((resolved.context_window, resolved.max_output), (Some(123), Some(128_000)));
    // An unknown model of the provider gets the fields of the provider.
    let other = world.resolve_ok("anthropic/claude-of-tomorrow");
    assert_eq!(value_and_origin(&other, "max_output"), owned_pair("7", "providers.toml (user)"));
}

#[test]
fn the_users_files_are_merged_field_by_field() {
    let before = CatalogFixture::new().resolve_ok("openai/gpt-5");
    let world =
        CatalogFixture::new().with_file("models.toml", "[\"openai/gpt-5\"]\nprices = { output = 99 }\n");
    let after = world.resolve_ok("openai/gpt-5");
    assert_eq!(value_and_origin(&after, "prices.output"), owned_pair("99.0", "models.toml (user)"));
    assert_eq!(value_and_origin(&after, "prices.input"), value_and_origin(&before, "prices.input"));
    assert_eq!(after.settings, before.settings);
}

#[test]
fn a_provider_of_ones_own_is_as_good_as_a_built_in_one() {
    let world = CatalogFixture::new()
        .with_file(
            "providers.toml",
            "[work]\nscheme = \"anthropic\"\nbase_url = \"https://llm.example/claude\"\nkey_header = \"bearer\"\n\
             auth = { api_key = { env = [\"WORK_KEY\", \"WORK_TOKEN\"] } }\n",
        )
        .with_env("WORK_TOKEN", "something-secret");
    let resolved = world.resolve_ok("work/opus");
    assert_eq!(resolved.settings.scheme, WireScheme::Anthropic);
    assert_eq!(resolved.missing_key, None);
    assert_eq!(value_and_origin(&resolved, "key").0, "from the variable WORK_TOKEN");
    assert_eq!(
        (&*resolved.route.provider, &*resolved.route.model, &*resolved.route.scheme),
        ("work", "opus", "anthropic")
    );
    assert_eq!(resolved.alerts.len(), 1, "an unknown model causes an alert");
}

#[test]
fn a_model_needs_no_reference() {
    let request = ModelRequest {
        scheme: Some("openai_chat".into()),
        base_url: Some("http://127.0.0.1:8081".into()),
        model_id: Some("qwen3".into()),
        ..ModelRequest::default()
    };
    let resolved = CatalogFixture::new().resolve_ok(request.clone());
    assert_eq!((&*resolved.route.provider, &*resolved.route.model), ("custom", "qwen3"));
    assert_eq!(resolved.missing_key, None);
    let refused = CatalogFixture::new().resolve_error(ModelRequest { base_url: None, ..request.clone() });
    assert!(refused.contains("base_url"), "{refused}");
    let refused =
        CatalogFixture::new().resolve_error(ModelRequest { scheme: Some("openai-chat".into()), ..request });
    assert!(refused.contains("openai_chat"), "{refused}");
    assert!(CatalogFixture::new().resolve_error(ModelRequest::default()).contains("provider/model"));
}

#[test]
fn an_unknown_provider_is_refused_and_an_unknown_model_is_told() {
    let world = CatalogFixture::new();
    let refused = world.resolve_error("antropic/claude-opus-4-6");
    for words in ["antropic", "did you mean `anthropic`", "openrouter", "vllm"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    for (reference, near) in
        [("gpt-5", "openai/gpt-5"), ("anthropic:claude-opus-4-6", "anthropic/claude-opus-4-6")]
    {
        let refused = world.resolve_error(reference);
        assert!(refused.contains(near), "{refused}");
        assert!(canonical_reference(reference, Path::new("/")).is_err());
    }
    assert!(world.resolve_error("").contains("provider/model"));
    let resolved = world.resolve_ok("anthropic/claude-opus-4-66");
    let [alert] = &resolved.alerts[..] else { panic!("{:?}", resolved.alerts) };
    assert!(alert.contains("claude-opus-4-66") && alert.contains("claude-opus-4-6`"), "{alert}");
    assert_eq!(resolved.settings.model_id, "claude-opus-4-66", "the model is not replaced");
    assert_eq!((resolved.context_window, resolved.max_output), (None, None));
}

#[test]
fn an_unknown_key_is_refused_with_its_nearest_name() {
    for (file, text, words) in [
        (
            "providers.toml",
            "[anthropic]\nbase_ulr = \"https://x.example\"\n",
            &["line 2", "base_ulr", "did you mean `base_url`"][..],
        ),
        (
            "models.toml",
            "[\"openai/gpt-5\"]\nprices = { inptu = 1 }\n",
            &["line 2", "inptu", "did you mean `input`"],
        ),
        ("models.toml", "[gpt-5]\n", &["gpt-5", "provider/model"]),
        ("providers.toml", "[Work]\nscheme = \"gemini\"\n", &["Work", "a-z"]),
        ("providers.toml", "[x]\ntimeouts = { idle_s = 0 }\n", &["idle_s", "more than 0"]),
        ("providers.toml", "[x]\nscheme = \"openai\"\n", &["line 2", "openai_chat"]),
        ("models.toml", "[\"a/b\"]\ncontext_window = 0\n", &["context_window"]),
        ("models.toml", "[\"a/b\"]\nprices = { input = -1 }\n", &["price"]),
    ] {
        let world = CatalogFixture::new().with_file(file, text);
        let refused = world.resolve_error("openai/gpt-5");
        assert!(refused.contains(&world.dir.path().join(file).display().to_string()), "{refused}");
        for words in words {
            assert!(refused.contains(words), "{words} is missing: {refused}");
        }
    }
}

#[test]
fn a_key_in_the_place_of_its_place_is_not_shown() {
    let planted = "sk-planted-0123456789";
    let world =
        CatalogFixture::new().with_file("providers.toml", &format!("[anthropic]\nauth = \"{planted}\"\n"));
    let refused = world.resolve_error("anthropic/claude-opus-4-6");
    assert!(refused.contains("never the key") && !refused.contains(planted), "{refused}");
    let request =
        ModelRequest { auth: Some(json!(planted)), ..ModelRequest::from("anthropic/claude-opus-4-6") };
    let refused = CatalogFixture::new().resolve_error(request);
    assert!(refused.contains("never the key") && !refused.contains(planted), "{refused}");
    let base_url = Some(format!("https://user:{planted}@x.example"));
    let refused =
        CatalogFixture::new().resolve_error(ModelRequest { base_url, ..ModelRequest::from("openai/gpt-5") });
    assert!(refused.contains("password") && !refused.contains(planted), "{refused}");
}

#[test]
fn base_urls_come_from_the_manifest_the_ecosystems_variables_or_a_file() {
    let reference = "openai-chat/gpt-5";
    let file = "[openai-chat]\nbase_url = \"https://file.example/v1\"\n";
    let world = CatalogFixture::new().with_file("providers.toml", file);
    assert_eq!(
        value_and_origin(&world.resolve_ok(reference), "base_url"),
        owned_pair("https://file.example/v1", "providers.toml (user)")
    );
    let world =
        world.with_env("OPENAI_BASE_URL", "").with_env("OPENAI_API_BASE", " https://variable.example ");
    let (url, from) = value_and_origin(&world.resolve_ok(reference), "base_url");
    assert_eq!((&*url, &*from), ("https://variable.example/", "env OPENAI_API_BASE"));
    let base_url = Some("https://manifest.example".to_owned());
    let resolved = world.resolve_ok(ModelRequest { base_url, ..ModelRequest::from(reference) });
    assert_eq!(value_and_origin(&resolved, "base_url"), owned_pair("https://manifest.example/", "manifest"));
    for (bad, words) in
        [("ftp://x", "http"), ("nonsense", "not an HTTP URL"), ("https://", "not an HTTP URL")]
    {
        let base_url = Some(bad.to_owned());
        let refused = world.resolve_error(ModelRequest { base_url, ..ModelRequest::from(reference) });
        assert!(refused.contains("manifest") && refused.contains(words), "{refused}");
    }
    // Some servers are configured without a scheme or a port.
    for (host, url) in [
        ("127.0.0.1:5000", "http://127.0.0.1:5000/"),
        ("box", "http://box:11434/"),
        ("https://box", "https://box/"),
    ] {
        let resolved = CatalogFixture::new().with_env("OLLAMA_HOST", host).resolve_ok("ollama/qwen3:8b");
        assert_eq!(value_and_origin(&resolved, "base_url"), owned_pair(url, "env OLLAMA_HOST"));
    }
}

#[test]
fn a_missing_key_is_no_reason_not_to_open_a_pod() {
    let resolved = CatalogFixture::new().resolve_ok("openrouter/some/model");
    let missing = resolved.missing_key.expect("there is no key");
    for words in ["openrouter", "OPENROUTER_API_KEY", "minke login openrouter"] {
        assert!(missing.contains(words), "{missing}");
    }
    let (shown, _) = value_and_origin(&CatalogFixture::new().resolve_ok("openai/gpt-5"), "key");
    assert_eq!(shown, "missing: not in OPENAI_API_KEY, `minke login openai`");
    assert_eq!(CatalogFixture::new().resolve_ok("ollama/x").missing_key, None);
}

#[test]
fn a_key_file_is_found_beside_the_catalog_and_refused_if_others_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let world = CatalogFixture::new()
        .with_file("providers.toml", "[groq]\nauth = { api_key = { file = \"groq.key\" } }\n")
        .with_file("groq.key", "gsk_something\n");
    let path = world.dir.path().join("groq.key");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    assert_eq!(world.resolve_ok("groq/x").missing_key, None);
    mode(0o644);
    let missing = world.resolve_ok("groq/x").missing_key.expect("an open file is refused");
    assert!(missing.contains("chmod 600"), "{missing}");
}

#[test]
fn a_key_is_not_sent_to_another_provider() {
    let world = CatalogFixture::new()
        .with_env("ANTHROPIC_API_KEY", "sk-ant-something")
        .with_env("ANTHROPIC_BASE_URL", "https://api.openai.com/v1");
    let missing = world.resolve_ok("anthropic/claude-opus-4-6").missing_key.expect("the key stays here");
    assert!(missing.contains("api.openai.com") && missing.contains("belongs to openai"), "{missing}");
    let paired = CatalogFixture::new()
        .with_env("ANTHROPIC_API_KEY", "sk-ant-something")
        .with_env("ANTHROPIC_BASE_URL", "https://gate.example");
    assert_eq!(paired.resolve_ok("anthropic/claude-opus-4-6").missing_key, None);
    // Two names of one vendor belong together.
    let same = CatalogFixture::new()
        .with_env("OPENAI_API_KEY", "sk-something")
        .with_env("OPENAI_BASE_URL", "https://api.openai.com");
    assert_eq!(same.resolve_ok("openai-chat/gpt-5").missing_key, None);
}

#[test]
fn a_key_that_travels_in_clear_is_told() {
    let url =
        |url: &str| ModelRequest { base_url: Some(url.to_owned()), ..ModelRequest::from("openai/gpt-5") };
    let alerts = CatalogFixture::new().resolve_ok(url("http://gate.example")).alerts;
    assert!(alerts.iter().any(|alert| alert.contains("unencrypted")), "{alerts:?}");
    for quiet in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://gate.example"] {
        assert!(CatalogFixture::new().resolve_ok(url(quiet)).alerts.is_empty(), "{quiet}");
    }
}

#[test]
fn a_reference_means_the_same_wherever_it_is_read() {
    let here = Path::new("/somewhere");
    assert_eq!(canonical_reference("scripted:demo", here).unwrap(), "scripted/demo");
    assert_eq!(canonical_reference("scripted:a/b.toml", here).unwrap(), "scripted//somewhere/a/b.toml");
    assert_eq!(canonical_reference("scripted//x/y.toml", here).unwrap(), "scripted//x/y.toml");
    assert_eq!(canonical_reference("ollama/qwen3:8b", here).unwrap(), "ollama/qwen3:8b");
    assert!(matches!(canonical_reference("scripted:", here), Err(ResolveError::UnknownScript { .. })));
    let resolved = CatalogFixture::new().resolve_ok("scripted/demo");
    assert_eq!((&*resolved.route.provider, &*resolved.route.model), ("scripted", "demo"));
    let refused = CatalogFixture::new().resolve_error("scripted:none.toml");
    assert!(refused.contains("/somewhere/none.toml"), "{refused}");
}

#[test]
fn an_entry_that_leads_nowhere_does_not_hide_the_others() {
    let models = "[\"unknown/x\"]\ncontext_window = 5\n[\"ollama/mine\"]\ncontext_window = 6\n";
    let world = CatalogFixture::new().with_file("models.toml", models);
    let listing = minke_llm::list_models(&world.resolve_context()).unwrap();
    let [problem] = &listing.problems[..] else { panic!("{:?}", listing.problems) };
    assert!(problem.contains("unknown"), "{problem}");
    assert!(listing.models.iter().any(|model| model.reference == "openai/gpt-5" && model.key == Some(false)));
    for reference in ["scripted/demo", "ollama/mine"] {
        assert!(listing.models.iter().any(|model| model.reference == reference && model.key.is_none()));
    }
    assert!(
        listing.others.contains(&"lmstudio".to_owned()) && !listing.others.contains(&"ollama".to_owned())
    );
}

#[tokio::test]
async fn a_script_costs_nothing_unless_the_user_prices_it() {
    let plain = CatalogFixture::new();
    let priced = CatalogFixture::new()
        .with_file("models.toml", "[\"scripted/demo\"]\nprices = { input = 1, output = 1000000 }\n");
    for (world, free) in [(plain, true), (priced, false)] {
        let resolved = world.resolve_ok("scripted/demo");
        let mut stream = resolved.model.stream_reply(Arc::new(test_prompt(&resolved)));
        let mut cost = None;
        while let Some(event) = stream.next().await {
            if let Ok(ModelEvent::Usage(usage)) = event {
                cost = usage.cost_usd;
            }
        }
        assert_eq!(cost.expect("a script's price is known") == 0.0, free);
    }
}

fn test_prompt(resolved: &ResolvedModel) -> Prompt {
    Prompt {
        system: "be brief".into(),
        ..Prompt::new(resolved.route.clone(), vec![Arc::new(Item::user_message("hello"))])
    }
}
