//! What a model calls the tools of a server: `mcp__NAME__tool`, short enough and unique.

use std::collections::BTreeSet;

use protocol::mcp::MCP_PREFIX;

use crate::workspace::hex;

/// Longest name of a tool that every provider takes, bytes.
const MAX_TOOL_NAME_BYTES: usize = 64;
/// Characters of a hash that make a name unique.
const HASH_CHARS: usize = 8;

/// A name for each of these tools of `server`, in their order. The same tools get the same names, whatever stands beside them,
/// unless two would be called alike.
pub fn names(server: &str, tools: &[&str]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut named = Vec::new();
    for tool in tools {
        let plain = joined(server, &readable(tool));
        // What was changed or cut could be taken for another tool.
        let is_exact = readable(tool) == *tool && plain.len() <= MAX_TOOL_NAME_BYTES;
        let name = if is_exact && !taken.contains(&plain) { plain } else { unique(server, tool, &taken) };
        taken.insert(name.clone());
        named.push(name);
    }
    named
}

fn joined(server: &str, tool: &str) -> String {
    format!("{MCP_PREFIX}{server}__{tool}")
}

/// The name with `_` for what no provider takes in one.
fn readable(tool: &str) -> String {
    tool.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn unique(server: &str, tool: &str, taken: &BTreeSet<String>) -> String {
    let mut seed = tool.to_owned();
    loop {
        let hash = hex(seed.as_bytes());
        let hash = protocol::text::head(&hash, HASH_CHARS);
        let room = MAX_TOOL_NAME_BYTES.saturating_sub(joined(server, "").len() + HASH_CHARS + 1);
        let name = joined(server, &format!("{}_{hash}", protocol::text::head(&readable(tool), room)));
        if !taken.contains(&name) {
            return name;
        }
        seed.push('+');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_told_apart() {
        assert_eq!(names("fs", &["read_file", "write-file"]), ["mcp__fs__read_file", "mcp__fs__write-file"]);
        let odd = names("fs", &["a.b", "a/b", "a_b", "a_b"]);
        assert!(odd[0].starts_with("mcp__fs__a_b_") && odd[1].starts_with("mcp__fs__a_b_"), "{odd:?}");
        assert_eq!(odd[2], "mcp__fs__a_b");
        assert_eq!(odd.iter().collect::<BTreeSet<_>>().len(), 4, "{odd:?}");
        assert_eq!(names("fs", &["x", "a.b"])[1], names("fs", &["a.b"])[0], "whatever stands beside it");
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_providers_take_and_occurs_once(tools in prop::collection::vec("\\PC{0,90}", 0..40)) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let named = names("a-server-with-a-name-of-32-letter", &tools);
            prop_assert_eq!(named.len(), tools.len());
            prop_assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), tools.len());
            for name in named {
                prop_assert!(name.len() <= MAX_TOOL_NAME_BYTES, "{}", name);
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{}", name);
            }
        }
    }
}
