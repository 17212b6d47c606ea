//! Pictures in a conversation: where they lie, and which ones providers take.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// A picture that people sent beside what they said, or a tool with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    pub path: PathBuf,
    /// Of what was sent.
    pub sha256: String,
    /// One of [`PICTURE_TYPES`].
    #[serde(deserialize_with = "picture_type")]
    pub media_type: PictureType,
    /// The bytes in base64, during a call of a model that sees.
    #[serde(skip)]
    pub data: Option<String>,
}

/// One of [`PICTURE_TYPES`].
pub type PictureType = &'static str;

fn picture_type<'de, D: Deserializer<'de>>(from: D) -> Result<PictureType, D::Error> {
    let said = String::deserialize(from)?;
    PICTURE_TYPES.into_iter().find(|known| *known == said).ok_or_else(|| D::Error::custom("no type of pictures"))
}

/// The pictures that every provider takes.
pub const PICTURE_TYPES: [PictureType; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Tokens that a picture costs, about: the most at Anthropic.
pub const PICTURE_TOKENS: u64 = 1_600;

/// Largest width and height, pixels: Anthropic refuses a request with more.
const MAX_PICTURE_SIDE: usize = 8_000;

/// What kind of picture these bytes are, whatever was said of them, or why no model is shown it. `None`: they are none that
/// providers take. Only the beginning is looked at, nothing is unpacked.
pub fn picture_kind(bytes: &[u8]) -> Option<Result<PictureType, &'static str>> {
    let sniffed = protocol::sniff::sniff(bytes);
    let known = PICTURE_TYPES.into_iter().find(|known| *known == sniffed)?;
    let is_fit = |side: usize| (1..=MAX_PICTURE_SIDE).contains(&side);
    Some(match imagesize::blob_size(bytes) {
        Ok(size) if is_fit(size.width) && is_fit(size.height) => Ok(known),
        Ok(_) => Err("it is not 1 to 8,000 pixels wide and high"),
        Err(_) => Err("its size cannot be read"),
    })
}

impl Picture {
    /// What a model reads before it, or instead of it.
    pub fn caption(&self) -> String {
        let note = if self.data.is_some() { "" } else { " (not shown)" };
        format!("{}{note}:", self.path.display())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::model::{AssistantMessage, Message, ModelRequest, ToolCall};

    /// The beginning of a PNG with so many pixels.
    pub fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
        bytes.extend(*b"\x08\x06\0\0\0");
        bytes
    }

    /// A picture at `path`, with its bytes if a model is shown it.
    pub fn picture(path: &str, data: Option<&str>) -> Picture {
        let (path, data) = (PathBuf::from(path), data.map(str::to_owned));
        Picture { path, sha256: "ab".to_owned(), media_type: "image/png", data }
    }

    /// A request with an answer whose two calls brought a picture each, and one whose picture is gone.
    pub fn results_with_pictures() -> ModelRequest {
        let answer = |ids: &[&str]| {
            let call =
                |id: &&str| ToolCall { id: (*id).to_owned(), name: "look".to_owned(), args: Ok(serde_json::json!({})) };
            Message::Assistant(AssistantMessage {
                calls: ids.iter().map(call).collect(),
                ..AssistantMessage::default()
            })
        };
        let result = |id: &str, picture| {
            let (call_id, tool, content) = (id.to_owned(), "look".to_owned(), "Look.".to_owned());
            Message::Tool { call_id, tool, content, ok: true, pictures: vec![picture] }
        };
        ModelRequest {
            model: "m".to_owned(),
            system: "rules".to_owned(),
            messages: vec![
                Message::User("Look around".to_owned()),
                answer(&["a", "b"]),
                result("a", picture("/a.png", Some("AAAA"))),
                result("b", picture("/b.png", Some("BBBB"))),
                answer(&["c"]),
                result("c", picture("/gone.png", None)),
            ],
            tools: vec![],
            temperature: None,
            max_tokens: None,
            context_window: 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::png, *};

    #[test]
    fn a_picture_is_what_its_bytes_are() {
        assert_eq!(picture_kind(&png(640, 480)), Some(Ok("image/png")));
        assert_eq!(picture_kind(&png(8_000, 1)), Some(Ok("image/png")));
        assert_eq!(picture_kind(b"GIF89a\x02\0\x03\0\x80\0\0"), Some(Ok("image/gif")));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\0\x05\0\x07\x01\x01\x11\0";
        assert_eq!(picture_kind(jpeg), Some(Ok("image/jpeg")));
        let webp = b"RIFF\x24\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x0f\0\0\x0f\0\0";
        assert_eq!(picture_kind(webp), Some(Ok("image/webp")));
    }

    #[test]
    fn what_providers_refuse_is_not_shown() {
        for no_picture in [&b"<html><script>alert(1)</script>"[..], b"%PDF-1.7\n", b"<svg xmlns=\"x\"/>", b"BM", b""] {
            assert_eq!(picture_kind(no_picture), None, "{no_picture:?}");
        }
        for (width, height) in [(8_001, 10), (10, 8_001), (u32::MAX, u32::MAX), (0, 10)] {
            assert_eq!(picture_kind(&png(width, height)), Some(Err("it is not 1 to 8,000 pixels wide and high")));
        }
        for cut in [&b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff\xe0\xff\xff\xff\xff", b"GIF89a"] {
            assert_eq!(picture_kind(cut), Some(Err("its size cannot be read")), "{cut:?}");
        }
    }
}
