//! The pictures of a conversation, read from the disk for each call and bounded by what every provider takes.

use std::{borrow::Cow, io::Read};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::fs::OFlags;

use crate::{
    home::open_plain,
    model::{ModelRequest, Picture, picture_kind},
    workspace::hex,
};

/// Pictures of one call at most, the newest ones.
const MAX_PICTURES: usize = 20;
/// Their size at most, bytes: a request of Anthropic's has 32 MB at most.
const MAX_PICTURES_BYTES: usize = 16 * 1024 * 1024;
/// Largest picture, bytes: Anthropic takes 5 MB of base64.
const MAX_PICTURE_BYTES: usize = 3_900_000;

/// The request with the bytes of its pictures. One that is no longer what was sent, too large or one too many has none.
pub(super) async fn filled(request: &ModelRequest) -> Cow<'_, ModelRequest> {
    if !request.has_pictures() {
        return Cow::Borrowed(request);
    }
    let mut filled = request.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (mut room, mut left) = (MAX_PICTURES_BYTES, MAX_PICTURES);
        let messages = filled.messages.iter_mut().rev();
        for picture in messages.flat_map(|message| message.pictures_mut().iter_mut().rev()) {
            if left == 0 {
                break;
            }
            if let Some(bytes) = bytes(picture, room) {
                room -= bytes.len();
                left -= 1;
                picture.data = Some(BASE64_STANDARD.encode(bytes));
            }
        }
        filled
    });
    read.await.map_or(Cow::Borrowed(request), Cow::Owned)
}

/// The bytes of a picture, if they are those that were sent and there is room for them. The agent's commands may have put
/// anything in its place.
fn bytes(picture: &Picture, room: usize) -> Option<Vec<u8>> {
    let most = room.min(MAX_PICTURE_BYTES);
    let file = open_plain(&picture.path, OFlags::NOFOLLOW).ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = bytes.len() <= most && hex(&bytes) == picture.sha256;
    (is_whole && picture_kind(&bytes) == Some(Ok(picture.media_type))).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::model::{Message, testing::png};

    fn picture(path: &Path, bytes: &[u8]) -> Picture {
        fs::write(path, bytes).expect("written");
        Picture { path: path.to_owned(), sha256: hex(bytes), media_type: "image/png", data: None }
    }

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            model: "m".to_owned(),
            system: String::new(),
            messages,
            tools: vec![],
            temperature: None,
            max_tokens: None,
            context_window: 1000,
        }
    }

    async fn shown(pictures: Vec<Picture>) -> Vec<bool> {
        shown_in(pictures.into_iter().map(|picture| Message::Pictures(vec![picture])).collect()).await
    }

    async fn shown_in(messages: Vec<Message>) -> Vec<bool> {
        let request = request(messages);
        let filled = filled(&request).await;
        filled.messages.iter().flat_map(Message::pictures).map(|picture| picture.data.is_some()).collect()
    }

    #[tokio::test]
    async fn only_what_was_sent_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (good, changed, gone) =
            (picture(&at("a.png"), &png(4, 4)), picture(&at("b.png"), &png(4, 4)), picture(&at("c.png"), &png(4, 4)));
        fs::write(at("b.png"), png(5, 5)).expect("written");
        fs::remove_file(at("c.png")).expect("removed");
        let linked = picture(&at("d.png"), &png(4, 4));
        fs::rename(at("d.png"), at("e.png")).expect("renamed");
        std::os::unix::fs::symlink(at("e.png"), at("d.png")).expect("a link");
        let (text, huge) = (picture(&at("f.png"), b"words"), picture(&at("g.png"), &png(8_001, 4)));
        let all = vec![good, changed, gone, linked, text, huge];
        assert_eq!(shown(all).await, [true, false, false, false, false, false]);
    }

    #[tokio::test]
    async fn pictures_of_results_are_read_again_as_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (kept, gone) = (picture(&at("a.png"), &png(4, 4)), picture(&at("b.png"), &png(4, 4)));
        fs::remove_file(at("b.png")).expect("removed");
        let (call_id, tool, content) = ("c".to_owned(), "mcp__x__look".to_owned(), "Look.".to_owned());
        let result = Message::Tool { call_id, tool, content, ok: true, pictures: vec![kept, gone] };
        // What lies on disk while an attempt rests names them, and has none of their bytes.
        let resting = serde_json::to_string(&result).expect("JSON");
        let resumed: Message = serde_json::from_str(&resting).expect("a message");
        assert!(resumed == result && !resting.contains("\"data\"") && !resting.contains("IHDR"), "{resting}");
        assert_eq!(shown_in(vec![resumed]).await, [true, false]);
    }

    #[test]
    fn a_result_without_pictures_is_kept_as_it_was_before_there_were_any() {
        let (call_id, tool, content) = ("c".to_owned(), "read".to_owned(), "Words.".to_owned());
        let result = Message::Tool { call_id, tool, content, ok: true, pictures: vec![] };
        let kept = serde_json::to_string(&result).expect("JSON");
        assert!(!kept.contains("pictures"), "{kept}");
        assert_eq!(serde_json::from_str::<Message>(&kept).expect("a message"), result);
    }

    #[tokio::test]
    async fn a_call_has_room_for_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let sized = |n: usize, size: usize| {
            let mut bytes = png(4, 4);
            bytes.resize(size, n as u8);
            picture(&folder.path().join(format!("{n}.png")), &bytes)
        };
        let many = (0..MAX_PICTURES + 2).map(|n| sized(n, 100)).collect();
        let shown_of_many = shown(many).await;
        assert_eq!((shown_of_many[0], shown_of_many[1], shown_of_many[2]), (false, false, true));
        let large = (0..6).map(|n| sized(n, MAX_PICTURE_BYTES)).collect();
        assert_eq!(shown(large).await, [false, false, true, true, true, true]);
        assert_eq!(shown(vec![sized(9, MAX_PICTURE_BYTES + 1)]).await, [false]);
    }
}
