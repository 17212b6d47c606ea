//! What agents remember: files on the viber, written at the end of tasks, by agents and by people, found again, and sent along.

mod board;
mod daily;
mod notes;
mod search;
mod sent;
mod suggested;

use board_tests::{Engine, FakeBoard, Fixture, Llm, Viber, eventually, fake_board::Behaviour, llm::Reply};

/// What an agent needs that has a memory.
const TOOLS: &[&str] = &["plan", "memory"];

/// A viber whose agent has a memory and a scripted model, with files below its home.
async fn remembering(engine: Engine, script: Vec<Reply>, files: &[(&str, &str)]) -> Fixture<Viber> {
    let setup = Fixture::on(engine).scripted_model(script).tools(TOOLS);
    let fixture = setup.with_enrolled_viber().await;
    files.iter().for_each(|(path, text)| fixture.viber.write(path, text));
    fixture.running().await
}

/// The log of the newest day, once it holds `word`.
async fn log_with(viber: &Viber, word: &str) -> String {
    eventually(&format!("the log of the day says {word}"), async || Some(log(viber)).filter(|text| text.contains(word)))
        .await
}

/// The log of the newest day; empty when there is none.
fn log(viber: &Viber) -> String {
    let days = std::fs::read_dir(viber.home().join("workspace/memory")).into_iter().flatten().flatten();
    let newest = days.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "md")).max();
    newest.map(|path| std::fs::read_to_string(path).expect("a log")).unwrap_or_default()
}

fn curated(viber: &Viber) -> String {
    std::fs::read_to_string(viber.home().join("workspace/MEMORY.md")).unwrap_or_default()
}

/// A daemon at a Board that only listens and asks.
async fn alone(script: Vec<Reply>, files: &[(&str, &str)]) -> (FakeBoard, Viber, Llm) {
    let llm = Llm::start(script).await;
    let mut viber = Viber::fresh("lab");
    viber.use_scripted_model(&llm, "openai");
    let agent = viber.agent("mode: always_execute\nmaxSteps: 25\n");
    viber.write("agents/default.yaml", &agent.replace("shell]", &format!("shell, {}]", TOOLS.join(", "))));
    files.iter().for_each(|(path, text)| viber.write(path, text));
    let board = FakeBoard::start(Behaviour::Serve).await;
    board.enrol(&viber);
    viber.run();
    (board, viber, llm)
}
