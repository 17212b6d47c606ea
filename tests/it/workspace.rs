//! The files of a work machine, changed by people here, by editors there, and by both at once.

mod away;
mod edits;
mod folders;
mod live;
mod paths;
mod story;

use board_tests::{Answer, Board, Engine, Person, Viber, board::HOME, eventually};
use reqwest::{Method, header};

/// A Board, a program that may change things, and a real daemon.
struct Stage {
    board: Board,
    operator: Person,
    viber: Viber,
    id: String,
}

impl Stage {
    async fn set(engine: Engine) -> Self {
        let board = Board::start(engine).await;
        let viber = Viber::join(&board, "lab").await;
        let operator = board.token(HOME, "operator").await;
        let id = viber.id(&operator).await;
        Self { board, operator, viber, id }
    }

    fn api(&self, path: &str) -> String {
        format!("/api/v1/vibers/{}/workspace/{path}", self.id)
    }

    fn page(&self, path: &str) -> String {
        format!("/t/{HOME}/vibers/{}/files/{path}", self.id)
    }

    async fn read(&self, path: &str) -> Answer {
        self.operator.get(&self.api(path)).await
    }

    /// PUT; `base` is `Some("")` for a file that must not be there.
    async fn put(&self, path: &str, base: Option<&str>, text: &str) -> Answer {
        let request = self.operator.request(Method::PUT, &self.api(path)).body(text.to_owned());
        let request = match base {
            None => request,
            Some("") => request.header(header::IF_NONE_MATCH, "*"),
            Some(hash) => request.header(header::IF_MATCH, format!("\"{hash}\"")),
        };
        self.operator.send(request).await
    }

    /// The file on the machine.
    fn on_disk(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.viber.home().join("workspace").join(path)).ok()
    }

    /// An editor on the machine: a process of its own that writes the file.
    async fn editor(&self, path: &str, text: &str) {
        let script = "mkdir -p \"$(dirname \"$1\")\" && printf %s \"$2\" > \"$1.swp\" && mv \"$1.swp\" \"$1\"";
        let file = self.viber.home().join("workspace").join(path);
        let mut shell = tokio::process::Command::new("sh");
        let done = shell.args(["-c", script, "sh"]).arg(file).arg(text).status().await.expect("a shell");
        assert!(done.success());
    }

    /// Waits until a reader sees this text.
    async fn seen(&self, path: &str, text: &str) {
        eventually(&format!("{path} says {text:?}"), || async {
            let answer = self.read(path).await;
            (answer.status == 200 && answer.body == text).then_some(())
        })
        .await;
    }
}

/// The version that an answer names.
fn tag(answer: &Answer) -> String {
    answer.header("etag").trim_matches('"').to_owned()
}
