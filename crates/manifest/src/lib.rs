//! Manifest: what a pod was declared to be.
//!
//! Here: the resolved configuration that stands in `session_start`, as far as anything reads it yet. Layers, origins,
//! profiles and the whole table of keys come with their own issue; a key that nobody reads is not here.

pub mod profiles;

pub use minke_policy::Posture;
use minke_policy::{Rule, RuleSet};
use minke_record::{Budget, Judgement, Reasoning};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pod's resolved configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    pub pod: PodSection,
    pub model: ModelSection,
    pub worker: WorkerSection,
    pub permissions: PermissionsSection,
    pub sandbox: SandboxSection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<WebSection>,
    pub session: SessionSection,
    pub hooks: HooksSection,
    /// What the pod may spend over its whole session; what is absent is not limited.
    #[serde(skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HooksSection {
    /// Whether hooks are asked and told; the hooks themselves stand in `hooks.toml`.
    pub enabled: bool,
}

impl Default for HooksSection {
    fn default() -> Self {
        HooksSection { enabled: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSection {
    /// Seconds without client, child, command or run after which the process ends; 0 = never.
    pub idle_exit: u64,
    pub limits: Limits,
}

impl Default for PodSection {
    fn default() -> Self {
        PodSection { idle_exit: 30 * 60, limits: Limits::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Accepted inputs that wait, and notes from `notify` that wait.
    pub queue: u64,
    /// Alerts kept for late clients.
    pub alerts: u64,
    /// Waiting methods of one client.
    pub methods: u64,
    /// Of the tree: how many pods may be above one.
    pub depth: u64,
    /// Live children of one pod.
    pub children: u64,
    /// Live pods of one user.
    pub pods_per_user: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { queue: 64, alerts: 512, methods: 64, depth: 4, children: 16, pods_per_user: 256 }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSection {
    /// `provider/model`, or `scripted:FILE`. Without any model a `run` is refused; the pod starts.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The wire format, if the catalog does not say or says another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The provider's own name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// `"none"`, or a table `api_key` that says where the key is; never a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<Value>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// References of models that are asked in this order when the first one cannot be had any more.
    pub fallback: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerSection {
    /// Requests of one run.
    pub max_turns: u64,
    /// Output of one request; the model's maximum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How much the model thinks: an effort in a word or a number of tokens; the provider's own measure if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// How the agent is to work, in place of the usual words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
}

impl Default for WorkerSection {
    fn default() -> Self {
        WorkerSection { max_turns: 2_000, max_tokens: None, reasoning: None, instruction: None }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PermissionsSection {
    /// Where the fence holds everything inside the scope `auto`, else `ask`, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posture: Option<Posture>,
    /// What becomes of everything that no rule of the person decides: the least specific rule of that layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_action: Option<Judgement>,
    /// Rules of the person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<Rule>,
    /// Seconds after which a question that nobody answered is denied; absent = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_expires_s: Option<u64>,
    /// This pod may answer what its children ask, where its own policy would not ask.
    pub may_answer: bool,
    /// Every rule that holds, of all layers, as it was last found; nobody writes this but the pod itself.
    #[serde(skip_serializing_if = "is_empty")]
    pub rules: RuleSet,
}

impl PermissionsSection {
    fn check(&self) -> Result<(), String> {
        if let Some(Judgement::Other(word)) = &self.default_action {
            return Err(format!(
                "permissions.default_action is `{word}`: there are `allow`, `ask` and `deny`"
            ));
        }
        for (rule, number) in self.rule.iter().zip(1..) {
            rule.check().map_err(|why| format!("rule {number} of permissions.rule: {why}"))?;
        }
        Ok(())
    }
}

fn is_empty(rules: &RuleSet) -> bool {
    rules.rules.is_empty()
}

/// What commands may touch and reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSection {
    pub mode: SandboxMode,
    /// Which hosts commands and web tools may reach.
    pub network: Network,
    /// Whether the pod's own temporary directory can be written.
    pub writable_tmp: bool,
    pub env: EnvSection,
    /// Protected names that a person lifted, by their absolute paths; only the command line sets it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lifted: Vec<String>,
}

impl Default for SandboxSection {
    fn default() -> Self {
        SandboxSection {
            mode: SandboxMode::Scope,
            network: Network::Off,
            writable_tmp: true,
            env: EnvSection::default(),
            lifted: Vec::new(),
        }
    }
}

/// What the fence is compiled from. `off` is no word of a file: only `--unsandboxed` on the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SandboxMode {
    Scope,
    ReadOnly,
    Off,
}

impl TryFrom<String> for SandboxMode {
    type Error = String;
    fn try_from(word: String) -> Result<SandboxMode, String> {
        match word.as_str() {
            "scope" => Ok(SandboxMode::Scope),
            "read_only" => Ok(SandboxMode::ReadOnly),
            "off" => Ok(SandboxMode::Off),
            _ => Err(format!(
                "`{word}` is no mode of the sandbox: use \"scope\" or \"read_only\"; commands run without a fence \
                 only by --unsandboxed on the command line"
            )),
        }
    }
}

impl From<SandboxMode> for String {
    fn from(mode: SandboxMode) -> String {
        let word = match mode {
            SandboxMode::Scope => "scope",
            SandboxMode::ReadOnly => "read_only",
            SandboxMode::Off => "off",
        };
        word.to_owned()
    }
}

/// Where to a command may connect, always through the pod's own proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NetworkWritten", into = "NetworkWritten")]
pub enum Network {
    Off,
    /// Every public host.
    On,
    /// `docs.rs`, or `*.example.org` for what is below a name.
    Hosts(Vec<String>),
}

impl Network {
    /// Hosts that may be reached without a question; `*` is every one.
    pub fn hosts(&self) -> Vec<String> {
        match self {
            Network::Off => Vec::new(),
            Network::On => vec!["*".to_owned()],
            Network::Hosts(hosts) => hosts.clone(),
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::Off => f.write_str("off"),
            Network::On => f.write_str("on, public hosts only"),
            Network::Hosts(hosts) => f.write_str(&hosts.join(", ")),
        }
    }
}

/// A word or a list, as it stands in a file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum NetworkWritten {
    Word(String),
    Hosts(Vec<String>),
}

impl TryFrom<NetworkWritten> for Network {
    type Error = String;
    fn try_from(written: NetworkWritten) -> Result<Network, String> {
        match written {
            NetworkWritten::Word(word) if word == "off" => Ok(Network::Off),
            NetworkWritten::Word(word) if word == "on" => Ok(Network::On),
            NetworkWritten::Word(word) => {
                Err(format!("`{word}` is not a network: use \"off\", \"on\" or a list of hosts"))
            }
            NetworkWritten::Hosts(hosts) => Ok(Network::Hosts(hosts)),
        }
    }
}

impl From<Network> for NetworkWritten {
    fn from(network: Network) -> NetworkWritten {
        match network {
            Network::Off => NetworkWritten::Word("off".to_owned()),
            Network::On => NetworkWritten::Word("on".to_owned()),
            Network::Hosts(hosts) => NetworkWritten::Hosts(hosts),
        }
    }
}

/// The environment of commands, beside what every command gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvSection {
    /// Names of variables that are passed on.
    pub pass: Vec<String>,
    pub set: std::collections::BTreeMap<String, String>,
}

impl EnvSection {
    fn check(&self) -> Result<(), String> {
        for name in self.pass.iter().chain(self.set.keys()) {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(format!(
                    "sandbox.env has a variable called `{}`: a name is not empty and has no `=` and no NUL",
                    name.escape_debug()
                ));
            }
        }
        match self.set.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => {
                Err(format!("sandbox.env.set.{name} holds a NUL, which no variable can: leave it out"))
            }
            None => Ok(()),
        }
    }
}

/// Tools that reach the web. Without the section there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebSection {
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<WebSearchSection>,
    pub fetch: WebFetchSection,
}

impl Default for WebSection {
    fn default() -> Self {
        WebSection { enabled: true, search: None, fetch: WebFetchSection::default() }
    }
}

impl WebSection {
    /// The longest that one exchange may take, in seconds.
    const TIMEOUT_MOST: u64 = 600;
    const REDIRECTS_MOST: u64 = 20;
    /// It is held in memory, and unpacked once more.
    const RESPONSE_MOST: u64 = 64 << 20;
    /// No result of a tool holds more.
    const OUTPUT_MOST: u64 = 64 << 10;

    fn check(&self) -> Result<(), String> {
        let fetch = &self.fetch;
        let search = self.search.as_ref();
        let within = [
            ("web.fetch.timeout_s", fetch.timeout_s, 1, WebSection::TIMEOUT_MOST),
            ("web.fetch.redirects", fetch.redirects, 0, WebSection::REDIRECTS_MOST),
            ("web.fetch.max_response_bytes", fetch.max_response_bytes, 1, WebSection::RESPONSE_MOST),
            ("web.fetch.max_output_bytes", fetch.max_output_bytes, 1, WebSection::OUTPUT_MOST),
            (
                "web.search.timeout_s",
                search.map_or(1, |search| search.timeout_s),
                1,
                WebSection::TIMEOUT_MOST,
            ),
        ];
        for (key, given, least, most) in within {
            if !(least..=most).contains(&given) {
                return Err(format!("{key} is {given}: give a number from {least} to {most}"));
            }
        }
        search.map_or(Ok(()), WebSearchSection::check)
    }
}

/// Who searches; without it WebSearch is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WebSearchWritten")]
pub struct WebSearchSection {
    pub provider: String,
    /// Where the provider is asked, if it is not its usual place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The variable that holds the key, if it is not the provider's usual one; never a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    pub timeout_s: u64,
}

impl WebSearchSection {
    const TIMEOUT: u64 = 15;

    fn check(&self) -> Result<(), String> {
        match (self.provider.as_str(), &self.base_url) {
            ("brave", _) | ("searxng", Some(_)) => Ok(()),
            ("searxng", None) => {
                Err("web.search.provider is `searxng`, which is somewhere else for everybody: web.search.base_url \
                     says where"
                    .to_owned())
            }
            (other, _) => Err(format!("web.search.provider is `{other}`: there are `brave` and `searxng`")),
        }
    }
}

/// As it stands in a file.
#[derive(Deserialize)]
struct WebSearchWritten {
    provider: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    timeout_s: Option<u64>,
}

impl TryFrom<WebSearchWritten> for WebSearchSection {
    type Error = &'static str;
    fn try_from(written: WebSearchWritten) -> Result<WebSearchSection, &'static str> {
        let WebSearchWritten { provider, base_url, api_key_env, timeout_s } = written;
        let provider =
            provider.ok_or("nobody is named to search: web.search.provider is `brave` or `searxng`")?;
        let timeout_s = timeout_s.unwrap_or(WebSearchSection::TIMEOUT);
        Ok(WebSearchSection { provider, base_url, api_key_env, timeout_s })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebFetchSection {
    pub timeout_s: u64,
    /// Each one is checked anew.
    pub redirects: u64,
    pub max_response_bytes: u64,
    pub max_output_bytes: u64,
    /// Private and link-local addresses.
    pub allow_private: bool,
}

impl Default for WebFetchSection {
    fn default() -> Self {
        WebFetchSection {
            timeout_s: 20,
            redirects: 5,
            max_response_bytes: 2 << 20,
            max_output_bytes: 64 << 10,
            allow_private: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSection {
    pub durability: SyncMode,
    /// Whether the response bytes of requests are kept, for replay.
    pub record_streams: bool,
    /// Bytes of recordings that a session keeps, compressed.
    pub record_max_bytes: u64,
}

impl Default for SessionSection {
    fn default() -> Self {
        SessionSection { durability: SyncMode::default(), record_streams: true, record_max_bytes: 256 << 20 }
    }
}

/// Whether effects wait for the disk. `lazy` is for people who accept less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    #[default]
    Full,
    Lazy,
}

impl Manifest {
    /// Reads the manifest of a `session_start`.
    pub fn read(value: &Value) -> Result<Manifest, serde_json::Error> {
        Manifest::deserialize(value)
    }

    /// Whether what is set anew can be meant. What an older session says is read all the same.
    pub fn check(&self) -> Result<(), String> {
        self.permissions.check()?;
        self.sandbox.env.check()?;
        check_budget(&self.budget)?;
        self.web.as_ref().map_or(Ok(()), WebSection::check)
    }

    /// The form that stands in a `session_start`.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a manifest is plain data")
    }
}

/// Dollars are a number that can be counted with.
pub fn check_budget(budget: &Budget) -> Result<(), String> {
    match budget.usd {
        Some(usd) if !usd.is_finite() || usd < 0.0 => {
            Err(format!("budget.usd is {usd}: give a number of dollars that is not below 0"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_fills_in_defaults() {
        let manifest = Manifest::read(&serde_json::json!({"model": {"ref": "scripted:x.toml"}})).unwrap();
        assert_eq!(manifest.pod.idle_exit, 1800);
        assert_eq!(Manifest::read(&manifest.to_value()).unwrap(), manifest);
        assert!(Manifest::read(&serde_json::json!({"permissions": {"posture": "yolo"}})).is_err());
        let lots = Manifest::read(&serde_json::json!({"worker": {"reasoning": "lots"}})).unwrap_err();
        assert!(lots.to_string().contains("xhigh, or a number of tokens"), "{lots}");
    }
}
