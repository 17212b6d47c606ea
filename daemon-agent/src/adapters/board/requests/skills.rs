//! The Board's requests about skills: `skills.list`, and `skills.read {name, digest?, path?, offset?}`, with which a person looks
//! at the files of one before accepting them. Without `path` it lists them: `{digest, total, files: [{path, mode, size,
//! sha256}]}` from the file number `offset` on, as many as fit. With it, it is `{digest, size, data}`: a part of that file from
//! the byte `offset` on, in base64.

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::limits::MAX_LISTING_BYTES;
use serde_json::{Value, json};

use crate::{mesh::Mesh, skills::BundleFile};

/// Answers a request about skills.
pub async fn answer(mesh: &Mesh, method: &str, params: &Value) -> Result<Value, String> {
    let skills = mesh.skills().clone();
    match method {
        "skills.list" => {
            skills.rescan().await;
            Ok(json!({ "items": skills.report() }))
        }
        "skills.read" => {
            let text = |name: &str| params[name].as_str().map(str::to_owned);
            let name = text("name").ok_or("bad_request: it names no skill")?;
            let (digest, path) = (text("digest"), text("path"));
            let offset = params["offset"].as_u64().unwrap_or(0);
            let reading = tokio::task::spawn_blocking(move || {
                let found = skills.to_review(&name, digest.as_deref());
                let shown = protocol::text::head(&name, 80);
                let skill = found.ok_or_else(|| format!("not_found: there is no skill {shown} on this viber"))?;
                let wrong = |error: std::io::Error| format!("not_found: the files of {shown} cannot be read: {error}");
                match path {
                    Some(path) => {
                        let piece = skills.review_piece(&skill, &path, offset).map_err(wrong)?;
                        let data = BASE64_STANDARD.encode(piece.data);
                        Ok(json!({ "digest": piece.digest, "size": piece.size, "data": data }))
                    }
                    None => {
                        let read = skills.review(&skill).map_err(wrong)?;
                        let from = usize::try_from(offset).unwrap_or(usize::MAX);
                        let files = fitting(read.files.get(from..).unwrap_or_default());
                        Ok(json!({ "digest": read.digest, "total": read.files.len(), "files": files }))
                    }
                }
            });
            reading.await.map_err(|error| error.to_string())?
        }
        _ => Err(format!("{} is not built on this viber", protocol::text::head(method, 64))),
    }
}

/// The first of these files, as many as one answer holds.
fn fitting(files: &[BundleFile]) -> &[BundleFile] {
    let mut room = MAX_LISTING_BYTES;
    let fits = |file: &&BundleFile| {
        let bytes = serde_json::to_string(file).map_or(usize::MAX, |json| json.len() + 1);
        let is_fitting = bytes <= room;
        room = room.saturating_sub(bytes);
        is_fitting
    };
    &files[..files.iter().take_while(fits).count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_are_listed_as_fit() {
        let file = |n: usize| BundleFile {
            path: format!("{n:04}{}", "\u{1}".repeat(60)),
            mode: "644",
            size: 1,
            sha256: "0".repeat(64),
        };
        let files: Vec<BundleFile> = (0..2000).map(file).collect();
        let some = fitting(&files);
        let bytes = serde_json::to_string(some).expect("JSON").len();
        assert!(
            some.len() < files.len() && bytes <= MAX_LISTING_BYTES + 2 && bytes > MAX_LISTING_BYTES - 1000,
            "{bytes}"
        );
        assert_eq!(fitting(&files[..3]).len(), 3);
        assert!(fitting(&[]).is_empty());
    }
}
