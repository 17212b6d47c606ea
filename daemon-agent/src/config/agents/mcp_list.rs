//! The key `mcp` of an agent's file: the MCP servers that it uses, each whole or with some of its tools.

use std::fmt;

use protocol::{ConfigError, mcp::is_mcp_name};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_saphyr::Spanned;

use crate::config::yaml::YamlFile;

/// Most servers of an agent.
const MAX_USES: usize = 20;

/// A server that an agent uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpUse {
    pub server: String,
    /// The tools that it is offered, by the names that the server gives them; `None`: all of them.
    pub tools: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for McpUse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            server: String,
            #[serde(default)]
            tools: Option<Vec<String>>,
        }
        struct Use;
        impl<'de> Visitor<'de> for Use {
            type Value = McpUse;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a server's name, or {server, tools}")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<McpUse, E> {
                Ok(McpUse { server: name.to_owned(), tools: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<McpUse, A::Error> {
                let Whole { server, tools } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(McpUse { server, tools })
            }
        }
        deserializer.deserialize_any(Use)
    }
}

/// The uses of a file, each server once.
pub fn check(written: Vec<Spanned<McpUse>>, source: &YamlFile) -> Result<Vec<McpUse>, ConfigError> {
    if let Some(one) = written.get(MAX_USES) {
        return Err(source.wrong(one, format!("an agent uses at most {MAX_USES} MCP servers")));
    }
    let mut all: Vec<McpUse> = Vec::new();
    for one in written {
        if !is_mcp_name(&one.value.server) {
            return Err(source.wrong(&one, format!("{:?} is not the name of an MCP server", one.value.server)));
        }
        if all.iter().any(|known| known.server == one.value.server) {
            return Err(source.wrong(&one, format!("{} is named twice", one.value.server)));
        }
        all.push(one.value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<McpUse>, ConfigError> {
        #[derive(Deserialize)]
        struct Whole {
            mcp: Vec<Spanned<McpUse>>,
        }
        let source = YamlFile::of(text.to_owned(), "agents/a.yaml");
        check(source.parse::<Whole>()?.mcp, &source)
    }

    #[test]
    fn a_server_is_used_whole_or_in_part() {
        let uses = read("mcp: [fs, { server: wiki, tools: [search] }]\n").expect("uses");
        let wiki = McpUse { server: "wiki".to_owned(), tools: Some(vec!["search".to_owned()]) };
        assert_eq!(uses, [McpUse { server: "fs".to_owned(), tools: None }, wiki]);
        for bad in ["mcp: [a b]\n", "mcp: [fs, fs]\n", "mcp: [{ server: fs, tolls: [] }]\n"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
