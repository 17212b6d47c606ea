//! Turns that are large for their window: what a request does not carry of a session is in its summary, whatever the sizes.

use board_tests::{
    Engine, Fixture, Viber,
    llm::{Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::long_session::read;

crate::on_both_databases!(
    turns_before_a_large_one_are_summed_up,
    turns_that_fill_a_fifth_of_the_window_are_summed_up,
    after_one_that_was_asked_for_nothing_is_left_out,
    beside_a_long_question_pins_and_the_summary_stay,
    the_room_for_the_answer_is_that_of_the_agents_file,
);

const HEADING: &str = "## Session Summary (compacted)";

/// The marks that a text has: `mark3x`.
fn marks(text: &str) -> Vec<&str> {
    let all = text.split("mark").skip(1).filter_map(|rest| rest.split_once('x').map(|(n, _)| n));
    let mut marks: Vec<&str> = all.filter(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit())).collect();
    marks.sort_unstable();
    marks.dedup();
    marks
}

/// A model that answers shortly, and sums up by the marks of what it reads.
fn answer(body: &Value) -> Reply {
    let tokens = body.to_string().len() as u64 / 5;
    let say = |text: &str| Reply::Stream(vec![Piece::Input(tokens), Piece::text(text)]);
    if body["tools"].as_array().is_none_or(Vec::is_empty) {
        let text = read(body);
        let marks: Vec<String> = marks(&text).into_iter().map(|n| format!("mark{n}x")).collect();
        return say(&format!("{HEADING}\n- {}", marks.join(" ")));
    }
    say("Well.")
}

/// A session with an agent that has so large a window.
struct LargeTurns {
    fixture: Fixture<Viber>,
    session: Option<String>,
    asked: usize,
}

impl LargeTurns {
    async fn with(engine: Engine, keys: &str) -> Self {
        let agent = format!("mode: always_execute\n{keys}");
        let fixture = Fixture::on(engine).scripted_model([]).agent(&agent).with_viber().await;
        fixture.llm.answers(answer);
        Self { fixture, session: None, asked: 0 }
    }

    fn path(&self, verb: &str) -> String {
        format!("/api/v1/sessions/{}{verb}", self.session.as_deref().expect("a session"))
    }

    /// Asks a question of so many words.
    async fn ask(&mut self, words: usize) {
        let goal = format!("mark{}x {}", self.asked, "word ".repeat(words.saturating_sub(1)));
        let more = self.session.as_ref().map_or(json!({}), |session| json!({ "sessionId": session }));
        let task = self.fixture.submit_with(&goal, more).await;
        self.session.get_or_insert_with(|| id(&task, "sessionId").to_owned());
        let ended = self.fixture.ended(&task).await;
        assert_eq!(ended["state"], "completed", "{ended:#}");
        self.asked += 1;
    }

    /// What the model read of the newest question, without what the machine's memory tells of earlier ones.
    fn last(&self) -> String {
        let requests = self.fixture.llm.requests();
        let works = |body: &Value| body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let mut body = requests.iter().rfind(|request| works(&request.body)).expect("a request").body.clone();
        let is_memory = |message: &Value| message["content"].to_string().contains("<memory>");
        body["messages"].as_array_mut().expect("messages").retain(|message| !is_memory(message));
        read(&body)
    }

    async fn compact(&self, asked: Value) {
        let told = self.fixture.operator.post(&self.path("/compact"), &asked).await.expect(200).json();
        assert!(told["messageId"].is_string(), "{told}");
    }

    /// How many summaries were written.
    fn summaries(&self) -> usize {
        let requests = self.fixture.llm.requests();
        requests.iter().filter(|request| request.body.get("tools").is_none()).count()
    }

    /// Asks, and looks whether each question before is there, in its words or in the summary.
    async fn ask_and_look(&mut self, words: usize) {
        self.ask(words).await;
        let read = self.last();
        let all: Vec<String> = (0..self.asked).map(|n| n.to_string()).collect();
        let missing: Vec<&String> = all.iter().filter(|n| !marks(&read).contains(&n.as_str())).collect();
        assert!(missing.is_empty(), "question {} lacks {missing:?}", self.asked - 1);
    }
}

async fn turns_before_a_large_one_are_summed_up(engine: Engine) {
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\n").await;
    for words in [100, 100, 100, 100, 100, 6_500, 50, 50, 50] {
        session.ask_and_look(words).await;
    }
    assert!((1..=3).contains(&session.summaries()), "{}", session.summaries());
    // The same where nothing was compacted while they came.
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\n").await;
    session.ask(600).await;
    session.fixture.operator.patch(&session.path(""), &json!({ "compactAt": 0 })).await.expect(200);
    for words in [600, 600, 7_000, 50, 50] {
        session.ask(words).await;
    }
    let read = session.last();
    assert!(!marks(&read).contains(&"0"), "they are left out: {read}");
    session.fixture.operator.patch(&session.path(""), &json!({ "compactAt": 70 })).await.expect(200);
    session.ask_and_look(50).await;
    session.fixture.board.assert_invariants().await;
}

async fn turns_that_fill_a_fifth_of_the_window_are_summed_up(engine: Engine) {
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\n").await;
    for words in [2_500, 2_500, 2_500, 2_500, 100, 2_500] {
        session.ask_and_look(words).await;
    }
    assert!((1..=6).contains(&session.summaries()), "once before a task at most: {}", session.summaries());
    session.fixture.board.assert_invariants().await;
}

async fn after_one_that_was_asked_for_nothing_is_left_out(engine: Engine) {
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\n").await;
    session.ask(1_250).await;
    session.fixture.operator.patch(&session.path(""), &json!({ "compactAt": 0 })).await.expect(200);
    for _ in 0..8 {
        session.ask(1_250).await;
    }
    session.compact(json!({})).await;
    session.ask_and_look(1_250).await;
    // A longer one than that needs another summary, though nothing was done since the last one.
    session.fixture.operator.patch(&session.path(""), &json!({ "compactAt": 70 })).await.expect(200);
    session.compact(json!({ "keep": 2 })).await;
    session.ask_and_look(3_500).await;
    session.fixture.board.assert_invariants().await;
}

async fn beside_a_long_question_pins_and_the_summary_stay(engine: Engine) {
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\n").await;
    session.ask(4).await;
    session.ask(100).await;
    let context = session.fixture.operator.get(&session.path("/context")).await.expect(200).json();
    let history = context["history"].as_array().expect("a history");
    let oldest = history.iter().rfind(|message| message["role"] == "user").expect("the first question");
    let pin = json!({ "messageId": oldest["messageId"], "pinned": true });
    session.fixture.operator.post(&session.path("/pins"), &pin).await.expect(200);
    session.ask(6_500).await;
    let read = session.last();
    assert!(read.contains("mark0x word word word"), "the pin stays, in its own words");
    assert!(marks(&read).contains(&"1") || read.contains("were left out"), "and the model knows of the rest");
    session.ask(50).await;
    session.ask(6_500).await;
    let read = session.last();
    assert!(read.contains("mark0x word word word"), "the pin stays");
    assert!(read.contains(HEADING) && marks(&read).contains(&"1"), "and so does the summary");
    session.fixture.board.assert_invariants().await;
}

async fn the_room_for_the_answer_is_that_of_the_agents_file(engine: Engine) {
    let mut session = LargeTurns::with(engine, "contextWindow: 14000\nmaxTokens: 1000\n").await;
    session.ask(50).await;
    let path = session.path("/context");
    let context = async |session: &LargeTurns| session.fixture.operator.get(&path).await.expect(200).json();
    assert_eq!(context(&session).await["reserve"], 1_000);
    session.fixture.operator.patch(&session.path(""), &json!({ "compactAt": 0 })).await.expect(200);
    for _ in 0..12 {
        session.ask(1_000).await;
    }
    // What is sent comes up to what is shown.
    let told = context(&session).await;
    let (next, threshold) = (told["next"]["tokens"].as_u64(), told["threshold"].as_u64());
    let (next, threshold) = (next.expect("a number"), threshold.expect("a number"));
    assert!(next <= threshold && next + 1_300 > threshold, "{next} of {threshold}");
    session.fixture.board.assert_invariants().await;
}
