//! Pictures among the files of a result: which of them a model that sees is shown. They are artifacts all the same.

use std::path::PathBuf;

use crate::{
    model::{Picture, PictureType, picture_kind},
    workspace::hex,
};

/// Pictures of one result that are shown.
const MAX_SHOWN_PICTURES: usize = 4;
/// Largest of them, bytes: screenshots have less, and as many as a request has of them leave room for what people sent.
const MAX_SHOWN_BYTES: usize = 1024 * 1024;

/// What is known of a picture by its bytes: its type and hash, or why no model is shown it.
pub(super) struct SeenPicture(Result<(PictureType, String), &'static str>);

impl SeenPicture {
    /// `None`: these bytes are no picture, whatever the server says.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let kind = picture_kind(bytes)?;
        let kind = if bytes.len() > MAX_SHOWN_BYTES { Err("it is larger than 1 MiB") } else { kind };
        Some(Self(kind.map(|kind| (kind, hex(bytes)))))
    }
}

/// The pictures of one result.
#[derive(Default)]
pub(super) struct ResultPictures(Vec<Picture>);

impl ResultPictures {
    /// Takes up a file that lies at `path` if it is a picture. Returns what is said of one that is not shown.
    pub fn take(&mut self, seen: Option<SeenPicture>, path: PathBuf) -> String {
        let Some(SeenPicture(shown)) = seen else { return String::new() };
        match shown {
            Ok(_) if self.0.len() == MAX_SHOWN_PICTURES => {
                format!("; not shown to models: a result shows at most {MAX_SHOWN_PICTURES} pictures")
            }
            Ok((media_type, sha256)) => {
                self.0.push(Picture { path, sha256, media_type, data: None });
                String::new()
            }
            Err(why) => format!("; not shown to models: {why}"),
        }
    }

    /// In the order of the result.
    pub fn into_all(self) -> Vec<Picture> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::png;

    fn taken(files: &[Vec<u8>]) -> (Vec<Picture>, Vec<String>) {
        let mut pictures = ResultPictures::default();
        let said = files.iter().map(|bytes| pictures.take(SeenPicture::of(bytes), PathBuf::from("/a.png"))).collect();
        (pictures.into_all(), said)
    }

    #[test]
    fn few_small_pictures_are_shown_and_of_others_it_is_said_why_not() {
        let mut large = png(4, 4);
        large.resize(MAX_SHOWN_BYTES + 1, 0);
        let mut files = vec![png(1, 1), b"<html>".to_vec(), large, png(9_000, 9_000), b"\x89PNG\r\n\x1a\n".to_vec()];
        files.extend((2..9).map(|side| png(side, side)));
        let (shown, said) = taken(&files);
        assert_eq!(shown.len(), MAX_SHOWN_PICTURES);
        let first = Picture { path: "/a.png".into(), sha256: hex(&png(1, 1)), media_type: "image/png", data: None };
        assert_eq!((&shown[0], &shown[3].sha256), (&first, &hex(&png(4, 4))));
        assert_eq!(said[..2], ["", ""], "what is no picture is a file like any other");
        for (n, why) in [(2, "1 MiB"), (3, "8,000 pixels"), (4, "cannot be read"), (8, "at most 4"), (11, "at most 4")]
        {
            assert!(said[n].starts_with("; not shown to models: ") && said[n].contains(why), "{n}: {}", said[n]);
        }
        assert_eq!(said[5..8], ["", "", ""]);
    }

    #[test]
    fn ten_thousand_pictures_are_four() {
        let (shown, said) = taken(&vec![png(2, 2); 10_000]);
        assert_eq!((shown.len(), said.iter().filter(|words| words.is_empty()).count()), (4, 4));
    }
}
