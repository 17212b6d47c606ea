//! What a server answered, in parts: text for the model, and files that people keep.

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::text::head;
use serde_json::Value;

/// Most files of one result, and bytes of one of them.
const MAX_FILES: usize = 32;
const MAX_FILE_BYTES: usize = 12 * 1024 * 1024;
/// Longest text of a resource that stands in the result itself, bytes.
const MAX_INLINE_BYTES: usize = 16 * 1024;
/// Resources that a list names, and longest words of one, bytes.
const MAX_LISTED_RESOURCES: usize = 200;
const MAX_LISTED_BYTES: usize = 300;

/// A result in parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpOutput {
    pub is_error: bool,
    /// Texts and the places of files, in the order of the result.
    pub parts: Vec<OutputPart>,
}

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputPart {
    Text(String),
    File(OutputFile),
}

/// A file in a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputFile {
    /// What it is called, for its title: an address, or `image`.
    pub name: String,
    /// As the server says.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

impl McpOutput {
    /// The result of `tools/call`.
    pub fn of_call(result: &Value) -> Self {
        let mut output = Self { is_error: result["isError"] == true, parts: Vec::new() };
        let content: &[Value] = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        content.iter().for_each(|block| output.add(block));
        let structured = &result["structuredContent"];
        // Servers repeat it as text for clients that do not know it.
        let is_said = content
            .iter()
            .filter_map(|block| block["text"].as_str())
            .any(|text| serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured));
        if !structured.is_null() && !is_said {
            output.text(serde_json::to_string_pretty(structured).unwrap_or_default());
        }
        if output.parts.is_empty() {
            output.text("(no content)".to_owned());
        }
        output
    }

    /// The result of `resources/read`.
    pub fn of_resource(result: &Value) -> Self {
        let mut output = Self::default();
        for contents in result["contents"].as_array().into_iter().flatten() {
            output.resource(contents);
        }
        if output.parts.is_empty() {
            output.text("(no content)".to_owned());
        }
        output
    }

    /// What `resources/list` and `resources/templates/list` answered.
    pub fn of_list(resources: &[Value], templates: &[Value]) -> Self {
        let line = |one: &Value, key: &str| {
            let words = [&one[key], &one["name"], &one["description"]].map(|value| value.as_str().unwrap_or_default());
            let [address, name, description] = words.map(|text| head(text, MAX_LISTED_BYTES).replace('\n', " "));
            format!("{address}  {name}{}{description}\n", if description.is_empty() { "" } else { ": " })
        };
        let all = resources.len() + templates.len();
        let lines =
            resources.iter().map(|one| line(one, "uri")).chain(templates.iter().map(|one| line(one, "uriTemplate")));
        let mut text: String = lines.take(MAX_LISTED_RESOURCES).collect();
        if all > MAX_LISTED_RESOURCES {
            text.push_str(&format!("({} more)\n", all - MAX_LISTED_RESOURCES));
        }
        let text = if text.is_empty() { "(no resources)".to_owned() } else { text };
        Self { is_error: false, parts: vec![OutputPart::Text(text)] }
    }

    fn add(&mut self, block: &Value) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match block["type"].as_str() {
            Some("text") => self.text(word(&block["text"])),
            Some(kind @ ("image" | "audio")) => {
                self.encoded(&block["data"], kind.to_owned(), word(&block["mimeType"]));
            }
            Some("resource") => self.resource(&block["resource"]),
            Some("resource_link") => {
                let (uri, name) = (word(&block["uri"]), word(&block["name"]));
                self.text(format!("[resource {name}: {uri}]"));
            }
            other => {
                self.text(format!("[content of a kind that is not known here: {}]", head(other.unwrap_or("?"), 40)))
            }
        }
    }

    fn resource(&mut self, resource: &Value) {
        let uri = resource["uri"].as_str().unwrap_or("resource").to_owned();
        let media_type = resource["mimeType"].as_str().unwrap_or_default().to_owned();
        match resource["text"].as_str() {
            Some(text) if text.len() <= MAX_INLINE_BYTES => {
                self.text(format!("[resource {uri}]\n{text}"));
            }
            Some(text) => {
                let media_type = if media_type.is_empty() { "text/plain".to_owned() } else { media_type };
                self.file(OutputFile { name: uri, media_type, bytes: text.as_bytes().to_vec() });
            }
            None => self.encoded(&resource["blob"], uri, media_type),
        }
    }

    fn encoded(&mut self, data: &Value, name: String, media_type: String) {
        let data = data.as_str().unwrap_or_default();
        if data.len() / 4 * 3 > MAX_FILE_BYTES {
            self.text(format!("[{name} {media_type}: larger than {} MiB, not kept]", MAX_FILE_BYTES / 1024 / 1024));
            return;
        }
        match BASE64_STANDARD.decode(data) {
            Ok(bytes) => self.file(OutputFile { name, media_type, bytes }),
            Err(_) => self.text(format!("[{name} {media_type}: not readable]")),
        }
    }

    fn file(&mut self, file: OutputFile) {
        if self.parts.iter().filter(|part| matches!(part, OutputPart::File(_))).count() >= MAX_FILES {
            self.text(format!("[{}: not kept, a result has at most {MAX_FILES} files]", file.name));
        } else {
            self.parts.push(OutputPart::File(file));
        }
    }

    fn text(&mut self, text: String) {
        self.parts.push(OutputPart::Text(text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(output: &McpOutput) -> Vec<&str> {
        let text = |part: &'_ OutputPart| matches!(part, OutputPart::Text(_));
        output
            .parts
            .iter()
            .filter(|part| text(part))
            .map(|part| if let OutputPart::Text(text) = part { text.as_str() } else { "" })
            .collect()
    }

    #[test]
    fn every_kind_of_content_has_its_place() {
        let output = McpOutput::of_call(&json!({ "isError": true, "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": BASE64_STANDARD.encode(b"png"), "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "two" } },
            { "type": "resource_link", "uri": "file:///b", "name": "b" },
            { "type": "hologram" },
        ] }));
        assert!(output.is_error);
        assert_eq!(texts(&output)[..2], ["one", "[resource file:///a]\ntwo"]);
        let file = OutputFile { name: "image".to_owned(), media_type: "image/png".to_owned(), bytes: b"png".to_vec() };
        assert_eq!(output.parts[1], OutputPart::File(file));
        assert_eq!(output.parts.len(), 5);
    }

    #[test]
    fn structured_content_is_said_once() {
        let structured = json!({ "sum": 5 });
        let said =
            json!({ "content": [{ "type": "text", "text": structured.to_string() }], "structuredContent": structured });
        assert_eq!(texts(&McpOutput::of_call(&said)), ["{\"sum\":5}"]);
        let other = json!({ "content": [{ "type": "text", "text": "five" }], "structuredContent": structured });
        assert_eq!(texts(&McpOutput::of_call(&other)), ["five", "{\n  \"sum\": 5\n}"]);
        assert_eq!(texts(&McpOutput::of_call(&json!({ "content": [] }))), ["(no content)"]);
    }

    #[test]
    fn large_and_broken_parts_do_not_stand_in_the_result() {
        let large = json!({ "contents": [{ "uri": "file:///a", "text": "x".repeat(MAX_INLINE_BYTES + 1) }] });
        assert!(
            matches!(&McpOutput::of_resource(&large).parts[..], [OutputPart::File(file)] if file.media_type == "text/plain")
        );
        let broken = json!({ "content": [{ "type": "image", "data": "%%", "mimeType": "image/png" }] });
        assert!(texts(&McpOutput::of_call(&broken))[0].contains("not readable"));
        let many: Vec<Value> =
            (0..40).map(|_| json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" })).collect();
        let output = McpOutput::of_call(&json!({ "content": many }));
        assert_eq!(texts(&output).len(), 40 - MAX_FILES);
    }

    #[test]
    fn resources_are_listed_in_lines() {
        let output = McpOutput::of_list(&[json!({ "uri": "file:///a", "name": "a", "description": "x\ny" })], &[]);
        assert_eq!(texts(&output), ["file:///a  a: x y\n"]);
    }
}
