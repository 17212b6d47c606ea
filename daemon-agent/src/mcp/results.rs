//! What a server answered, in parts: text for the model, and files that people keep.

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::text::head;
use serde_json::Value;

/// Most parts of one result, files among them, and bytes of one of these.
const MAX_PARTS: usize = 1_000;
const MAX_FILES: usize = 32;
const MAX_FILE_BYTES: usize = 12 * 1024 * 1024;
/// Longest name and type of a file, bytes.
const MAX_NAME_BYTES: usize = 300;
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
    files: usize,
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
        let mut output = Self { is_error: result["isError"] == true, ..Self::default() };
        let content: &[Value] = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        content.iter().take(MAX_PARTS).for_each(|block| output.add(block));
        output.left_out(content.len());
        let structured = &result["structuredContent"];
        if !structured.is_null() && !is_said(structured, content) {
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
        let contents: &[Value] = result["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
        contents.iter().take(MAX_PARTS).for_each(|one| output.resource(one));
        output.left_out(contents.len());
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
        let mut output = Self::default();
        output.text(text);
        output
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
                let name = head(&uri, MAX_NAME_BYTES).to_owned();
                self.file(OutputFile { name, media_type, bytes: text.as_bytes().to_vec() });
            }
            None => self.encoded(&resource["blob"], uri, media_type),
        }
    }

    fn encoded(&mut self, data: &Value, name: String, media_type: String) {
        let data = data.as_str().unwrap_or_default();
        let (name, media_type) = (head(&name, MAX_NAME_BYTES).to_owned(), head(&media_type, MAX_NAME_BYTES).to_owned());
        if self.files >= MAX_FILES {
            return self.file(OutputFile { name, media_type, bytes: Vec::new() });
        }
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
        if self.files >= MAX_FILES {
            let name = head(&file.name, MAX_NAME_BYTES);
            self.text(format!("[{name}: not kept, a result has at most {MAX_FILES} files]"));
        } else {
            self.files += 1;
            self.parts.push(OutputPart::File(file));
        }
    }

    /// Says how many of so many parts are missing.
    fn left_out(&mut self, count: usize) {
        if count > MAX_PARTS {
            self.text(format!("[{} more parts: not kept, a result has at most {MAX_PARTS}]", count - MAX_PARTS));
        }
    }

    fn text(&mut self, text: String) {
        self.parts.push(OutputPart::Text(text));
    }
}

/// Whether structured content says nothing that does not stand in the other content. Servers repeat it as text for clients
/// that do not know it, and many wrap what a tool returns, text or parts of content, in an object with one field.
fn is_said(structured: &Value, content: &[Value]) -> bool {
    let wrapped = structured.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
    let is_same = |value: &Value, text: &str| {
        value.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
    };
    content
        .iter()
        .filter_map(|block| block["text"].as_str())
        .any(|text| is_same(structured, text) || wrapped.is_some_and(|value| is_same(value, text)))
        || wrapped.and_then(Value::as_array).is_some_and(|parts| !parts.is_empty() && parts == content)
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
        // As server-filesystem, server-memory and the Python package wrap it.
        for (content, wrapped) in [
            (json!([{ "type": "text", "text": "five" }]), json!({ "result": "five" })),
            (json!([{ "type": "text", "text": "[1, 2]" }]), json!({ "entities": [1, 2] })),
            (json!([{ "type": "image", "data": "AAAA" }]), json!({ "content": [{ "type": "image", "data": "AAAA" }] })),
        ] {
            let wrapping = json!({ "content": content, "structuredContent": wrapped });
            assert_eq!(McpOutput::of_call(&wrapping).parts.len(), 1, "{wrapping}");
        }
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
    fn a_bomb_of_parts_is_cut_short() {
        let picture = json!({ "type": "image", "data": "AAAA", "mimeType": "x".repeat(1_000) });
        let bomb = json!({ "content": vec![picture; 50_000] });
        let output = McpOutput::of_call(&bomb);
        assert_eq!(output.parts.len(), MAX_PARTS + 1);
        assert!(
            texts(&output).last().is_some_and(|text| text.contains("49000 more parts")),
            "{:?}",
            texts(&output).last()
        );
        let inside = json!({ "contents": vec![json!({ "uri": "file:///a", "text": "x" }); 2_000] });
        assert_eq!(McpOutput::of_resource(&inside).parts.len(), MAX_PARTS + 1);
    }

    #[test]
    fn resources_are_listed_in_lines() {
        let output = McpOutput::of_list(&[json!({ "uri": "file:///a", "name": "a", "description": "x\ny" })], &[]);
        assert_eq!(texts(&output), ["file:///a  a: x y\n"]);
    }
}
