//! Installation on a work machine: `/install.sh` and the `daemon-agent` build that this Board serves.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::{
    config::Reloadable,
    error::{Error, Result},
    state::Board,
    web::Rejection,
};

const INSTALL_SCRIPT: &str = include_str!("install.sh");

/// The routes: open to everybody, because a machine that joins has nothing but its token.
pub fn routes() -> Router<Board> {
    Router::new()
        .route("/install.sh", get(script))
        .route("/download/daemon-agent", get(download))
        .route("/download/daemon-agent.sha256", get(checksum))
}

/// The line that makes a machine a viber of this Board.
pub fn command(origin: &str, token: &str) -> String {
    format!("curl -fsSL {origin}/install.sh | sh -s -- {token}")
}

async fn script(State(board): State<Board>) -> Result<Response, Rejection> {
    let origin = board.config.base_url();
    // The address stands inside single quotes of a script that people run.
    if !origin.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:/-_[]".contains(&byte)) {
        return Err(Error::Malformed(
            "the URL of this Board contains characters that the install script cannot hold".into(),
        )
        .into());
    }
    let arch = match build(&board.reloadable.load_full()).await {
        Some(build) => build.arch,
        None => "",
    };
    let media = [(header::CONTENT_TYPE, "text/x-shellscript; charset=utf-8")];
    Ok((media, INSTALL_SCRIPT.replace("@BOARD@", &origin).replace("@ARCH@", arch)).into_response())
}

async fn download(State(board): State<Board>, headers: HeaderMap) -> Response {
    let Some(build) = build(&board.reloadable.load_full()).await else { return absent() };
    let Ok(file) = tokio::fs::File::open(&build.path).await else { return absent() };
    let tag = format!("\"{}\"", build.sha256);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let media = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
            (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"daemon-agent\"")),
            (header::CONTENT_LENGTH, HeaderValue::from(build.size)),
        ];
        // Exactly the announced bytes, also when the file is replaced by a longer one meanwhile.
        (media, Body::from_stream(ReaderStream::new(file.take(build.size)))).into_response()
    };
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

async fn checksum(State(board): State<Board>) -> Response {
    match build(&board.reloadable.load_full()).await {
        Some(build) => format!("{}  daemon-agent\n", build.sha256).into_response(),
        None => absent(),
    }
}

fn absent() -> Response {
    let text = "This Board has no daemon-agent to give away.\n\
                Its administrator can put one beside the viber-board program, or name it with --daemon-binary.\n\
                On the work machine it can also be built from source: cargo install --path daemon-agent\n";
    // Named as Markdown, so that it reaches whoever ran curl: a bare text would be taken for a refusal without a form.
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response()
}

/// The daemon build as it lies on disk.
#[derive(Clone, Debug)]
struct Build {
    path: PathBuf,
    size: u64,
    changed: Option<SystemTime>,
    sha256: String,
    /// As `uname -m` has it; empty when it is no program we know.
    arch: &'static str,
}

/// The configured build, hashed anew only when the file changed.
async fn build(config: &Reloadable) -> Option<Build> {
    static LAST_BUILD: Mutex<Option<Build>> = Mutex::new(None);
    let path = match &config.daemon_binary {
        Some(path) => path.clone(),
        None => std::env::current_exe().ok()?.with_file_name("daemon-agent"),
    };
    let about = tokio::fs::metadata(&path).await.ok().filter(std::fs::Metadata::is_file)?;
    let (size, changed) = (about.len(), about.modified().ok());
    let last = LAST_BUILD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(last) = last.filter(|last| last.path == path && last.size == size && last.changed == changed) {
        return Some(last);
    }
    let (sha256, arch) = tokio::task::spawn_blocking({
        let path = path.clone();
        move || hash(&path)
    })
    .await
    .ok()?
    .ok()?;
    let build = Build { path, size, changed, sha256, arch };
    *LAST_BUILD.lock().unwrap_or_else(PoisonError::into_inner) = Some(build.clone());
    Some(build)
}

fn hash(path: &Path) -> std::io::Result<(String, &'static str)> {
    use std::io::Read;
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 64 * 1024];
    let mut arch = None;
    loop {
        let n = file.read(&mut block)?;
        if n == 0 {
            break;
        }
        arch.get_or_insert_with(|| machine(&block[..n]));
        hasher.update(&block[..n]);
    }
    let hex = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((hex, arch.unwrap_or("")))
}

/// The machine a Linux program is for: `e_machine` of its ELF header (System V ABI, chapter 4).
fn machine(head: &[u8]) -> &'static str {
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return "";
    }
    match u16::from_le_bytes([head[18], head[19]]) {
        62 => "x86_64",
        183 => "aarch64",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_tells_its_machine() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("this program");
        assert_eq!(machine(&own), std::env::consts::ARCH);
        assert_eq!(machine(b"#!/bin/sh\necho not a program"), "");
        assert_eq!(machine(b""), "");
    }

    #[test]
    fn the_script_is_one_that_sh_can_read() {
        let script = INSTALL_SCRIPT.replace("@BOARD@", "http://127.0.0.1:7400").replace("@ARCH@", "x86_64");
        assert!(!script.contains("@BOARD@") && !script.contains("@ARCH@"), "every mark is filled in");
        let mut sh = std::process::Command::new("sh");
        sh.args(["-n", "-c", &script]);
        assert!(sh.status().expect("a shell").success());
        let refused = std::process::Command::new("sh").args(["-c", &script, "sh"]).output().expect("a shell");
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("vbj_"));
    }
}
