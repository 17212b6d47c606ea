//! Which model providers this machine can use: the well-known ones, those of `config.yaml`, and their keys.

use std::{
    collections::BTreeMap,
    net::{TcpStream, ToSocketAddrs},
    sync::Mutex,
    time::{Duration, Instant},
};

use super::{Api, Provider, variables::Variables};
use crate::home::{Home, open_to_others, read_plain};

/// Known without being named: name, wire format, address, variable of the key, variable of another address.
const WELL_KNOWN: &[(&str, Api, &str, &str, &str)] = &[
    ("anthropic", Api::Anthropic, "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", ""),
    ("openai", Api::OpenAi, "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("openrouter", Api::OpenAi, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ""),
    ("deepseek", Api::OpenAi, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", ""),
    ("ollama", Api::Ollama, "http://127.0.0.1:11434", "OLLAMA_API_KEY", "OLLAMA_HOST"),
];

/// The well-known providers with the keys of the environment and of `secrets/`, and the built-in demo.
pub fn well_known(home: &Home, variables: &Variables) -> BTreeMap<String, Provider> {
    let mut all = BTreeMap::new();
    for (id, api, usual, key, address) in WELL_KNOWN {
        let named = variables
            .value(address)
            .map(|address| if address.contains("://") { address.to_owned() } else { format!("http://{address}") });
        let base_url = named.unwrap_or_else(|| (*usual).to_owned()).trim_end_matches('/').to_owned();
        let mut provider = Provider { api: *api, base_url, api_key: None, warning: None };
        take_key(&mut provider, id, home);
        provider.api_key = provider.api_key.or_else(|| variables.value(key).map(str::to_owned));
        all.insert((*id).to_owned(), provider);
    }
    let demo = Provider { api: Api::Demo, base_url: String::new(), api_key: None, warning: None };
    all.insert("demo".to_owned(), demo);
    all
}

/// The address and variable of a well-known name, the usual address of a wire format otherwise.
pub fn usual(id: &str, api: Api) -> (&'static str, Option<&'static str>) {
    let by_name = WELL_KNOWN.iter().find(|(name, known, ..)| *name == id && *known == api);
    let by_api = || WELL_KNOWN.iter().find(|(_, known, ..)| *known == api);
    match (by_name, by_api()) {
        (Some((.., address, key, _)), _) => (address, Some(key)),
        (None, Some((.., address, _, _))) => (address, None),
        (None, None) => ("", None),
    }
}

/// Takes the key that `key set` wrote.
pub fn take_key(provider: &mut Provider, id: &str, home: &Home) {
    let path = home.secrets().join(id);
    if let Ok(key) = read_plain(&path) {
        provider.api_key = Some(key.trim().to_owned()).filter(|key| !key.is_empty());
        if open_to_others(&path) {
            provider.warning = Some(format!("secrets/{id} can be read by others: chmod 600"));
        }
    }
}

/// Whether something listens at an Ollama's address. Asked at most every 30 s an address: snapshots are read often.
pub fn listens(base_url: &str) -> bool {
    static SEEN: Mutex<BTreeMap<String, (Instant, bool)>> = Mutex::new(BTreeMap::new());
    let mut seen = SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let now = Instant::now();
    if let Some((at, answer)) = seen.get(base_url)
        && now.duration_since(*at) < Duration::from_secs(30)
    {
        return *answer;
    }
    let authority = base_url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
    // Only a loopback is tried: asking a name server may take long.
    let local = ["127.0.0.1:", "localhost:", "[::1]:"].iter().any(|host| authority.starts_with(host));
    let answer = local
        && authority
            .to_socket_addrs()
            .is_ok_and(|mut all| all.any(|to| TcpStream::connect_timeout(&to, Duration::from_millis(150)).is_ok()));
    seen.insert(base_url.to_owned(), (now, answer));
    answer
}
