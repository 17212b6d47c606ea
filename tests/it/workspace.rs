//! The files of a work machine, changed by people here, by editors there, and by both at once.

mod away;
mod edits;
mod folders;
mod live;
mod paths;
mod story;

use board_tests::{Answer, Fixture, Viber, board::HOME, eventually};
use reqwest::{Method, header};

/// The workspace of the machine, as people and programs on the Board and editors on the machine have it.
trait Workspace {
    fn api(&self, path: &str) -> String;
    fn page(&self, path: &str) -> String;
    async fn read(&self, path: &str) -> Answer;
    /// PUT; `base` is `Some("")` for a file that must not be there.
    async fn put(&self, path: &str, base: Option<&str>, text: &str) -> Answer;
    /// The file on the machine.
    fn on_disk(&self, path: &str) -> Option<String>;
    /// An editor on the machine: a process of its own that writes the file.
    async fn editor(&self, path: &str, text: &str);
    /// Waits until a reader sees this text.
    async fn seen(&self, path: &str, text: &str);
}

impl Workspace for Fixture<Viber> {
    fn api(&self, path: &str) -> String {
        format!("/api/v1/vibers/{}/workspace/{path}", self.viber_id)
    }

    fn page(&self, path: &str) -> String {
        format!("/t/{HOME}/vibers/{}/files/{path}", self.viber_id)
    }

    async fn read(&self, path: &str) -> Answer {
        self.operator.get(&self.api(path)).await
    }

    async fn put(&self, path: &str, base: Option<&str>, text: &str) -> Answer {
        let request = self.operator.request(Method::PUT, &self.api(path)).body(text.to_owned());
        let request = match base {
            None => request,
            Some("") => request.header(header::IF_NONE_MATCH, "*"),
            Some(hash) => request.header(header::IF_MATCH, format!("\"{hash}\"")),
        };
        self.operator.send(request).await
    }

    fn on_disk(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.viber.home().join("workspace").join(path)).ok()
    }

    async fn editor(&self, path: &str, text: &str) {
        let script = "mkdir -p \"$(dirname \"$1\")\" && printf %s \"$2\" > \"$1.swp\" && mv \"$1.swp\" \"$1\"";
        let file = self.viber.home().join("workspace").join(path);
        let mut shell = tokio::process::Command::new("sh");
        let done = shell.args(["-c", script, "sh"]).arg(file).arg(text).status().await.expect("a shell");
        assert!(done.success());
    }

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
