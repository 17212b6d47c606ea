//! The working directories of agents as people on the Board see them: looked at, commented on, never changed.

mod attacks;
mod beside;
mod comments;
mod honest;
mod hostile;
mod limits;
mod looking;
mod paths;
mod repositories;
mod story;

use board_tests::{Answer, Engine, Fixture, Viber, board::HOME, llm::Reply, tasks};
use serde_json::{Value, json};

/// A viber with one space.
async fn with_space(engine: Engine) -> Fixture<Viber> {
    Fixture::on(engine).scripted_model([Reply::text("Done.")]).with_viber().await
}

/// The viber's one space: what people on the Board see of it, and what its owner does there.
pub trait Space {
    /// What the Board calls it.
    fn space(&self) -> String;
    /// A call about the space.
    async fn ask(&self, what: &str) -> Answer;
    /// A page about the space.
    fn page(&self, what: &str) -> String;
    /// Writes a file of the space.
    fn write(&self, path: &str, content: impl AsRef<[u8]>);
    /// Runs git in the space, as its owner does.
    fn git(&self, args: &[&str]) -> String;
    /// A repository with one commit of these files.
    fn repository(&self, files: &[(&str, &str)]) -> String;
    fn commit(&self, subject: &str) -> String;
}

impl Space for Fixture<Viber> {
    fn space(&self) -> String {
        tasks::space(&self.viber.space().display().to_string())
    }

    async fn ask(&self, what: &str) -> Answer {
        self.operator.get(&format!("/api/v1/vibers/{}/spaces/{}/{what}", self.viber_id, self.space())).await
    }

    fn page(&self, what: &str) -> String {
        format!("/t/{HOME}/vibers/{}/spaces/{}{what}", self.viber_id, self.space())
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.viber.space().join(path);
        std::fs::create_dir_all(path.parent().expect("below the space")).expect("folders");
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn git(&self, args: &[&str]) -> String {
        let names = ["-c", "user.name=Mia", "-c", "user.email=mia@example.org", "-c", "init.defaultBranch=main"];
        let mut git = std::process::Command::new("git");
        git.args(names).args(args).current_dir(self.viber.space()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let done = git.output().expect("git runs");
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    fn repository(&self, files: &[(&str, &str)]) -> String {
        self.git(&["init", "-q"]);
        for (path, text) in files {
            self.write(path, text);
        }
        self.commit("first")
    }

    fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }
}

/// The changed files of a status, each with its kind.
fn changes(status: &Value) -> Vec<(String, String)> {
    let all = status["changes"].as_array().expect("changes");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter().map(|change| (text(&change["path"]), text(&change["kind"]))).collect()
}

fn named(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(path, kind)| ((*path).to_owned(), (*kind).to_owned())).collect()
}

fn code(answer: &Answer) -> String {
    json!(answer.code()).as_str().unwrap_or_default().to_owned()
}
