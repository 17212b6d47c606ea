//! The pictures of a conversation, read from the disk for each call and bounded by what every provider takes.

use std::{borrow::Cow, io::Read};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::fs::OFlags;

use crate::{
    home::open_plain,
    model::{Message, ModelRequest, Picture},
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
    if !request.messages.iter().any(|message| matches!(message, Message::Pictures(_))) {
        return Cow::Borrowed(request);
    }
    let mut filled = request.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (mut room, mut left) = (MAX_PICTURES_BYTES, MAX_PICTURES);
        let pictures = filled.messages.iter_mut().rev().filter_map(|message| match message {
            Message::Pictures(pictures) => Some(pictures.iter_mut().rev()),
            _ => None,
        });
        for picture in pictures.flatten() {
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
    let kind = protocol::sniff::sniff(&bytes);
    (bytes.len() <= most && hex(&bytes) == picture.sha256 && kind == picture.media_type).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn picture(path: &Path, bytes: &[u8]) -> Picture {
        fs::write(path, bytes).expect("written");
        Picture { path: path.to_owned(), sha256: hex(bytes), media_type: "image/png", data: None }
    }

    fn request(pictures: Vec<Picture>) -> ModelRequest {
        ModelRequest {
            model: "m".to_owned(),
            system: String::new(),
            messages: pictures.into_iter().map(|picture| Message::Pictures(vec![picture])).collect(),
            tools: vec![],
            temperature: None,
            max_tokens: None,
            context_window: 1000,
        }
    }

    async fn shown(pictures: Vec<Picture>) -> Vec<bool> {
        let request = request(pictures);
        let filled = filled(&request).await;
        let is_shown = |message: &Message| matches!(message, Message::Pictures(all) if all[0].data.is_some());
        filled.messages.iter().map(is_shown).collect()
    }

    #[tokio::test]
    async fn only_what_was_sent_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (good, changed, gone) =
            (picture(&at("a.png"), PNG), picture(&at("b.png"), PNG), picture(&at("c.png"), PNG));
        fs::write(at("b.png"), b"\x89PNG\r\n\x1a\nother").expect("written");
        fs::remove_file(at("c.png")).expect("removed");
        let linked = picture(&at("d.png"), PNG);
        fs::rename(at("d.png"), at("e.png")).expect("renamed");
        std::os::unix::fs::symlink(at("e.png"), at("d.png")).expect("a link");
        let text = picture(&at("f.png"), b"words");
        assert_eq!(shown(vec![good, changed, gone, linked, text]).await, [true, false, false, false, false]);
    }

    #[tokio::test]
    async fn a_call_has_room_for_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let sized = |n: usize, size: usize| {
            let mut bytes = PNG.to_vec();
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
