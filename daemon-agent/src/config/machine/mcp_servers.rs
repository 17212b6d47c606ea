//! The section `mcp:` of `config.yaml`, and the predecessor's `mcp_servers`: the MCP servers that agents may use.

use std::{cell::RefCell, collections::BTreeMap, fmt, path::PathBuf};

use protocol::{
    ConfigError, McpKind,
    agent::is_variable_name,
    mcp::{MAX_MCP_NAME_BYTES, is_mcp_name},
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

use crate::config::{variables::Variables, yaml::YamlFile};

/// Most servers of a machine.
const MAX_SERVERS: usize = 100;
/// How long a call may take without a word, if the file does not say, seconds; and at most.
const DEFAULT_TIMEOUT_SECONDS: u64 = 60;
const MAX_TIMEOUT_SECONDS: u64 = 3_600;
/// How long a server stays that nobody uses, if the file does not say, seconds; and at most.
const DEFAULT_IDLE_SECONDS: u64 = 600;
const MAX_IDLE_SECONDS: u64 = 86_400;
/// Words in the name of a variable whose value is a key, and the shortest value that is taken for one, bytes.
const KEY_WORDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH"];
const MIN_KEY_BYTES: usize = 6;

/// One server, checked.
#[derive(Clone, PartialEq, Eq)]
pub struct McpServer {
    pub carrier: McpCarrier,
    /// How long a call may take without a word of progress, seconds.
    pub timeout: u64,
    /// How long it stays that nobody uses it, seconds.
    pub idle: u64,
    /// Why it cannot be used: a variable that its values name is not set.
    pub problem: Option<String>,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum McpCarrier {
    /// A program that the daemon starts.
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String>, cwd: Option<PathBuf> },
    /// Streamable HTTP.
    Http {
        url: String,
        headers: BTreeMap<String, String>,
        /// The client that is registered at the authorization server, where clients cannot register themselves.
        client_id: Option<String>,
        /// What to ask for when somebody signs in.
        scope: Option<String>,
    },
}

// Values of variables and headers are often keys.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        match &self.carrier {
            McpCarrier::Stdio { command, env, .. } => {
                shown.field("command", command).field("env", &env.keys().collect::<Vec<_>>());
            }
            McpCarrier::Http { url, headers, .. } => {
                shown.field("url", url).field("headers", &headers.keys().collect::<Vec<_>>());
            }
        }
        shown.finish_non_exhaustive()
    }
}

impl McpServer {
    /// `text` without the keys among its variables and headers.
    pub fn redact(&self, text: &str) -> String {
        let keys: Vec<&str> = match &self.carrier {
            McpCarrier::Stdio { env, .. } => {
                env.iter().filter(|(name, _)| is_for_key(name)).map(|(_, key)| key.as_str()).collect()
            }
            McpCarrier::Http { headers, .. } => headers.values().flat_map(|value| value.split_whitespace()).collect(),
        };
        let keys = keys.into_iter().filter(|key| key.len() >= MIN_KEY_BYTES && *key != "Bearer");
        keys.fold(text.to_owned(), |text, key| text.replace(key, "[key]"))
    }

    /// How it is reached, in a word.
    pub fn kind(&self) -> McpKind {
        match self.carrier {
            McpCarrier::Stdio { .. } => McpKind::Stdio,
            McpCarrier::Http { .. } => McpKind::Http,
        }
    }
}

fn is_for_key(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    KEY_WORDS.iter().any(|word| name.contains(word))
}

/// `mcp:` as written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpSection {
    servers: BTreeMap<String, Spanned<ServerSection>>,
}

/// A server as written: a program or an address.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerSection {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    client_id: Option<String>,
    scope: Option<String>,
    timeout: Option<u64>,
    idle: Option<u64>,
}

/// `mcp_servers` as the predecessor's files have it: a mapping by name, or a list with names. Keys that are not known there
/// are left out.
#[derive(Default)]
pub struct OldServers(Vec<(String, ServerSection)>);

/// A server of the predecessor's files.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OldSection {
    name: String,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
}

impl From<OldSection> for ServerSection {
    fn from(OldSection { name: _, command, args, env, cwd, url, headers }: OldSection) -> Self {
        Self { command, args, env, cwd, url, headers, ..Self::default() }
    }
}

impl<'de> Deserialize<'de> for OldServers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Servers;
        impl<'de> Visitor<'de> for Servers {
            type Value = OldServers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("MCP servers, as a mapping by name or a list")
            }

            fn visit_unit<E>(self) -> Result<OldServers, E> {
                Ok(OldServers::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OldServers, A::Error> {
                let mut all = Vec::new();
                while let Some((name, section)) = map.next_entry::<String, OldSection>()? {
                    all.push((name, section.into()));
                }
                Ok(OldServers(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OldServers, A::Error> {
                let mut all = Vec::new();
                while let Some(section) = list.next_element::<OldSection>()? {
                    all.push((section.name.clone(), section.into()));
                }
                Ok(OldServers(all))
            }
        }
        deserializer.deserialize_any(Servers)
    }
}

/// The servers of both keys, by name; one under `mcp:` goes before one of the same name under `mcp_servers`.
pub fn check(
    section: &McpSection,
    old: Option<&Spanned<OldServers>>,
    source: &YamlFile,
    variables: &Variables,
) -> Result<BTreeMap<String, McpServer>, ConfigError> {
    let mut all = BTreeMap::new();
    if let Some(old) = old {
        for (name, section) in &old.value.0 {
            let checked = server(name, section, variables).map_err(|why| source.wrong(old, why))?;
            all.insert(name.clone(), checked);
        }
    }
    for (name, section) in &section.servers {
        let checked = server(name, &section.value, variables).map_err(|why| source.wrong(section, why))?;
        all.insert(name.clone(), checked);
        if all.len() > MAX_SERVERS {
            return Err(source.wrong(section, format!("more than {MAX_SERVERS} MCP servers")));
        }
    }
    Ok(all)
}

fn server(name: &str, written: &ServerSection, variables: &Variables) -> Result<McpServer, String> {
    if !is_mcp_name(name) {
        return Err(format!(
            "{name:?} is no name for an MCP server: at most {MAX_MCP_NAME_BYTES} letters, digits, - and single _"
        ));
    }
    let timeout = written.timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    if !(1..=MAX_TIMEOUT_SECONDS).contains(&timeout) {
        return Err(format!("timeout is {timeout}, expected 1 to {MAX_TIMEOUT_SECONDS}"));
    }
    let idle = written.idle.unwrap_or(DEFAULT_IDLE_SECONDS);
    if !(1..=MAX_IDLE_SECONDS).contains(&idle) {
        return Err(format!("idle is {idle}, expected 1 to {MAX_IDLE_SECONDS}"));
    }
    let missing = RefCell::new(None);
    let fill = |text: &str| match variables.fill(text) {
        Ok(filled) => filled,
        // Normal in a file that is shared between machines: only this server cannot be used.
        Err(name) => {
            missing.borrow_mut().get_or_insert(format!("the variable {name} is not set"));
            String::new()
        }
    };
    let carrier = match (&written.command, &written.url) {
        (Some(command), None) => {
            if command.trim().is_empty() || !written.headers.is_empty() || written.client_id.is_some() {
                return Err(format!("the MCP server {name} needs a command; headers and clientId go with a url"));
            }
            if let Some(variable) = written.env.keys().find(|variable| !is_variable_name(variable)) {
                return Err(format!("{variable:?} is not a variable's name"));
            }
            let home = variables.value("HOME");
            let word = |text: String| match (text.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => format!("{home}/{rest}"),
                (None, Some(home)) if text == "~" => home.to_owned(),
                _ => text,
            };
            let args: Vec<String> = written.args.iter().map(|text| word(fill(text))).collect();
            let env = written.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect::<BTreeMap<_, _>>();
            let command = word(fill(command));
            if args.iter().chain(env.values()).chain([&command]).any(|text| text.contains('\0')) {
                return Err("a command, its arguments and variables contain no NUL".to_owned());
            }
            let cwd = written.cwd.as_ref().map(|path| variables.path(path)).transpose()?;
            McpCarrier::Stdio { command, args, env, cwd }
        }
        (None, Some(url)) => {
            if !written.args.is_empty() || !written.env.is_empty() || written.cwd.is_some() {
                return Err(format!("the MCP server {name} has a url: args, env and cwd go with a command"));
            }
            let filled = fill(url);
            let is_good = |url: &reqwest::Url| {
                matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.username().is_empty()
            };
            if missing.borrow().is_none() && !reqwest::Url::parse(&filled).is_ok_and(|url| is_good(&url)) {
                return Err("expected an address such as https://wiki.example.com/mcp".to_owned());
            }
            let mut headers = BTreeMap::new();
            for (name, value) in &written.headers {
                let value = fill(value);
                let is_header = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
                    && reqwest::header::HeaderValue::from_str(&value).is_ok();
                if !is_header {
                    return Err(format!("{name:?} is no header, or its value has characters that none may have"));
                }
                headers.insert(name.clone(), value);
            }
            let (client_id, scope) = (written.client_id.clone(), written.scope.clone());
            McpCarrier::Http { url: filled, headers, client_id, scope }
        }
        _ => return Err(format!("the MCP server {name} has either a command or a url")),
    };
    Ok(McpServer { carrier, timeout, idle, problem: missing.into_inner() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<String, McpServer>, ConfigError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Whole {
            mcp: McpSection,
            mcp_servers: Option<Spanned<OldServers>>,
        }
        let source = YamlFile::of(text.to_owned(), "config.yaml");
        let whole: Whole = source.parse()?;
        let variables = Variables::of([("HOME", "/home/mia"), ("TOKEN", "t1")]);
        check(&whole.mcp, whole.mcp_servers.as_ref(), &source, &variables)
    }

    #[test]
    fn programs_and_addresses_are_read() {
        let text = "mcp:\n  servers:\n    fs: { command: npx, args: [-y, server, ~/code], env: { PORT: \"80\" }, cwd: ~/code }\n    \
                    wiki: { url: \"https://wiki.example.com/mcp\", headers: { Authorization: \"Bearer ${TOKEN}\" }, timeout: 5 }\n";
        let all = read(text).expect("servers");
        let McpCarrier::Stdio { args, env, cwd, .. } = &all["fs"].carrier else { panic!("a program") };
        assert_eq!(args[2], "/home/mia/code");
        assert_eq!((env["PORT"].as_str(), cwd.as_deref()), ("80", Some(std::path::Path::new("/home/mia/code"))));
        let McpCarrier::Http { headers, .. } = &all["wiki"].carrier else { panic!("an address") };
        assert_eq!((headers["Authorization"].as_str(), all["wiki"].timeout), ("Bearer t1", 5));
        assert!(!format!("{all:?}").contains("t1"), "{all:?}");
        assert_eq!((all["fs"].idle, all["wiki"].idle), (600, 600));
    }

    #[test]
    fn keys_are_taken_out_of_what_a_server_complains_about() {
        let text = "mcp:\n  servers:\n    fs: { command: x, env: { API_TOKEN: sesame-1, LEVEL: verbose } }\n    \
                    wiki: { url: \"https://a/mcp\", headers: { Authorization: \"Bearer sesame-2\" }, idle: 5 }\n";
        let all = read(text).expect("servers");
        assert_eq!(all["fs"].redact("verbose: sesame-1 is no key"), "verbose: [key] is no key");
        assert_eq!(all["wiki"].redact("Bearer sesame-2?"), "Bearer [key]?");
        assert_eq!(all["wiki"].idle, 5);
    }

    #[test]
    fn the_predecessors_servers_are_read_in_both_forms() {
        for text in [
            "mcp_servers:\n  fs: { command: npx, args: [a], type: stdio }\n",
            "mcp_servers:\n  - { name: fs, command: npx, args: [a], disabled: false }\n",
        ] {
            let all = read(text).expect("servers");
            assert!(matches!(&all["fs"].carrier, McpCarrier::Stdio { args, .. } if args == &["a"]), "{text}");
        }
        let both = "mcp:\n  servers: { fs: { command: new } }\nmcp_servers: { fs: { command: old } }\n";
        assert!(
            matches!(&read(both).expect("servers")["fs"].carrier, McpCarrier::Stdio { command, .. } if command == "new")
        );
    }

    #[test]
    fn mistakes_name_their_line_and_a_missing_variable_is_none() {
        for (text, line) in [
            ("mcp:\n  servers:\n    a__b: { command: x }\n", 3),
            ("mcp:\n  servers:\n    fs: { command: x, url: \"https://a\" }\n", 3),
            ("mcp:\n  servers:\n    fs: { url: \"ftp://a\" }\n", 3),
            ("mcp:\n  servers:\n    fs: { command: x, timeout: 0 }\n", 3),
            ("mcp:\n  servers:\n    fs: { command: x, idle: 0 }\n", 3),
        ] {
            assert_eq!(read(text).expect_err(text).line, line, "{text}");
        }
        let all = read("mcp:\n  servers: { fs: { command: x, env: { KEY: \"${NONE}\" } } }\n").expect("servers");
        assert_eq!(all["fs"].problem.as_deref(), Some("the variable NONE is not set"));
    }
}
