//! Which model providers this machine can use: the well-known ones, those of `config.yaml`, and their keys.

use std::{
    collections::BTreeMap,
    net::{TcpStream, ToSocketAddrs},
    sync::Mutex,
    time::{Duration, Instant},
};

use protocol::KeySource;

use super::{Provider, ProviderApi, variables::Variables};
use crate::home::{Home, open_to_others, read_plain};

/// Providers that need no entry in the file: name, wire format, address, variable with the key, variable with another
/// address.
const WELL_KNOWN_PROVIDERS: &[(&str, ProviderApi, &str, &str, &str)] = &[
    ("anthropic", ProviderApi::Anthropic, "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", ""),
    ("openai", ProviderApi::OpenAi, "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("openrouter", ProviderApi::OpenAi, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ""),
    ("deepseek", ProviderApi::OpenAi, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", ""),
    ("ollama", ProviderApi::Ollama, "http://127.0.0.1:11434", "OLLAMA_API_KEY", "OLLAMA_HOST"),
];

/// The well-known providers with the keys from the environment and `secrets/`, and the built-in demo.
pub fn well_known(home: &Home, variables: &Variables) -> BTreeMap<String, Provider> {
    let mut all = BTreeMap::new();
    for (id, api, usual, key, address) in WELL_KNOWN_PROVIDERS {
        let named = variables
            .value(address)
            .map(|address| if address.contains("://") { address.to_owned() } else { format!("http://{address}") });
        let base_url = named.unwrap_or_else(|| (*usual).to_owned()).trim_end_matches('/').to_owned();
        let mut provider = Provider {
            api: *api,
            base_url,
            api_key: None,
            key_source: None,
            models: Vec::new(),
            images: None,
            warning: None,
        };
        take_key(&mut provider, id, home);
        take_variable(&mut provider, key, variables);
        all.insert((*id).to_owned(), provider);
    }
    let demo = Provider {
        api: ProviderApi::Demo,
        base_url: String::new(),
        api_key: None,
        key_source: None,
        models: Vec::new(),
        images: None,
        warning: None,
    };
    all.insert("demo".to_owned(), demo);
    all
}

/// How the names of well-known models that see begin, without their vendor's prefix (providers' model pages, 2026).
const SEEING_MODELS: &[&str] = &[
    "claude-",
    "gpt-5",
    "gpt-4.1",
    "gpt-4o",
    "gpt-4-turbo",
    "o1",
    "o3",
    "o4",
    "gemini-",
    "grok-4",
    "pixtral",
    "llava",
    "bakllava",
    "llama4",
    "llama-4",
    "gemma3",
    "gemma-3",
    "minicpm-v",
    "moondream",
    "mistral-small3.",
    "mistral-medium-3",
];
/// Those among them that do not.
const BLIND_MODELS: &[&str] =
    &["claude-2", "claude-instant", "o1-mini", "o1-preview", "o3-mini", "gemma3:1b", "gemma3:270m"];
/// Words for it in a model's name, as in `qwen2.5vl` and `llama3.2-vision`.
const SEEING_WORDS: &[&str] = &["-vl", "2.5vl", "3vl", "vision"];

impl Provider {
    /// Whether its model `name` is shown pictures.
    pub fn sees(&self, name: &str) -> bool {
        if let Some(images) = &self.images {
            return images.iter().any(|model| model == name || model == "*");
        }
        let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        (begins(SEEING_MODELS) && !begins(BLIND_MODELS)) || SEEING_WORDS.iter().any(|word| name.contains(word))
    }
}

/// Default address and key variable for a well-known name, otherwise for the wire format.
pub fn usual(id: &str, api: ProviderApi) -> (&'static str, Option<&'static str>) {
    let by_name = WELL_KNOWN_PROVIDERS.iter().find(|(name, known, ..)| *name == id && *known == api);
    let by_api = || WELL_KNOWN_PROVIDERS.iter().find(|(_, known, ..)| *known == api);
    match (by_name, by_api()) {
        (Some((.., address, key, _)), _) => (address, Some(key)),
        (None, Some((.., address, _, _))) => (address, None),
        (None, None) => ("", None),
    }
}

/// Uses the key that `key set` wrote.
pub fn take_key(provider: &mut Provider, id: &str, home: &Home) {
    let path = home.secrets().join(id);
    if let Ok(key) = read_plain(&path) {
        provider.api_key = Some(key.trim().to_owned()).filter(|key| !key.is_empty());
        provider.key_source = provider.api_key.as_ref().map(|_| KeySource::File);
        if open_to_others(&path) {
            provider.warning = Some(format!("secrets/{id} can be read by others: chmod 600"));
        }
    }
}

/// Uses the key in the variable `name` if there is none yet.
pub fn take_variable(provider: &mut Provider, name: &str, variables: &Variables) {
    if let (None, Some(key)) = (&provider.api_key, variables.value(name)) {
        provider.api_key = Some(key.to_owned());
        provider.key_source = Some(KeySource::Environment);
    }
}

/// Whether a server listens at an Ollama address. Checked at most every 30 s per address, because snapshots are read
/// often.
pub fn listens(base_url: &str) -> bool {
    static CHECKED_ADDRESSES: Mutex<BTreeMap<String, (Instant, bool)>> = Mutex::new(BTreeMap::new());
    let mut seen = CHECKED_ADDRESSES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let now = Instant::now();
    if let Some((at, answer)) = seen.get(base_url)
        && now.duration_since(*at) < Duration::from_secs(30)
    {
        return *answer;
    }
    let authority = base_url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
    // Only loopback addresses are checked: a name lookup may take long.
    let local = ["127.0.0.1:", "localhost:", "[::1]:"].iter().any(|host| authority.starts_with(host));
    let answer = local
        && authority
            .to_socket_addrs()
            .is_ok_and(|mut all| all.any(|to| TcpStream::connect_timeout(&to, Duration::from_millis(150)).is_ok()));
    seen.insert(base_url.to_owned(), (now, answer));
    answer
}
