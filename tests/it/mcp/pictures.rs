//! Pictures that servers answer: a model that sees is shown them, another one reads where they lie.

use board_tests::{
    Engine, Fixture, Viber,
    llm::{Piece, Reply},
    programs::program,
};
use serde_json::{Value, json};

use super::{FREE, result};

/// What the fake server draws.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// A running viber whose agent uses the fake server and has a model of this API; `images` are its models that see.
async fn shown(api: &'static str, images: &str, script: Vec<Reply>) -> Fixture<Viber> {
    let agent = format!("{FREE}mcp: [fake]\n");
    let setup = Fixture::on(Engine::Sqlite).owner().scripted_model_for(api, script).agent(&agent);
    let fixture = setup.with_enrolled_viber().await;
    let provider = fixture.llm.config(api).replace("apiKey:", &format!("images: {images}, apiKey:"));
    let server = json!({ "command": program("fake_mcp"), "args": [], "env": {} });
    fixture.viber.write("config.yaml", &format!("{provider}mcp:\n  servers:\n    fake: {server}\n"));
    fixture.running().await
}

/// An answer with these calls for so many pictures each.
fn looks(counts: &[u64]) -> Reply {
    let call =
        |(n, count): (usize, &u64)| Piece::call(&format!("call_{n}"), "mcp__fake__picture", json!({ "n": count }));
    Reply::Stream(counts.iter().enumerate().map(call).collect())
}

/// How many pictures a request shows.
fn pictures(body: &Value) -> usize {
    body.to_string().matches(DOT).count()
}

/// What the model was told last.
fn last_message(body: &Value) -> Value {
    body["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_sees_is_shown_what_a_tool_answers() {
    for (api, place) in [
        // Behind the results of both calls: there results are text alone.
        ("openai", "/content/2/image_url/url"),
        ("ollama", "/images/0"),
        ("anthropic", "/content/0/content/2/source/data"),
    ] {
        let fixture = shown(api, "[scripted]", vec![looks(&[6, 1]), Reply::text("Five dots.")]).await;
        let task = fixture.play("Look").await;
        assert_eq!(task["state"], "completed", "{api}: {task:#}");
        let body = fixture.llm.requests()[1].body.clone();
        let data = last_message(&body).pointer(place).cloned().unwrap_or_default();
        assert!(data.as_str().is_some_and(|data| data.ends_with(DOT)), "{api}: {body:#}");
        assert_eq!(pictures(&body), 5, "{api}: four of the first call, one of the second");
        let (ok, said) = result(&fixture, &task, 0).await;
        assert!(ok && said.matches("kept as the artifact mcp-").count() == 7, "{said}");
        assert_eq!(said.matches("a result shows at most 4 pictures").count(), 2, "{said}");
        for event in ["tool-result", "artifact"] {
            let told = json!(fixture.events_of_kind(&task, event).await).to_string();
            assert!(!told.contains(DOT), "only their places are told: {told}");
        }
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_does_not_see_reads_where_the_pictures_lie() {
    let fixture = shown("openai", "[other]", vec![looks(&[2]), Reply::text("Done.")]).await;
    let task = fixture.play("Look").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let body = fixture.llm.requests()[1].body.clone();
    let last = last_message(&body);
    assert_eq!((pictures(&body), &last["role"]), (0, &json!("tool")), "{body:#}");
    assert!(last["content"].to_string().contains("kept as the artifact mcp-"), "{last:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_pictures_make_room_and_refused_ones_do_not_end_the_task() {
    let unreadable = json!({ "error": { "message": "Could not process image", "type": "invalid_request_error" } });
    let script = vec![
        looks(&[4]),
        looks(&[4]),
        looks(&[1]),
        looks(&[1]),
        Reply::fault(400, &unreadable),
        Reply::fault(400, &unreadable),
        Reply::text("I go by the words."),
    ];
    let fixture = shown("openai", "[\"*\"]", script).await;
    let task = fixture.play("Look").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let requests = fixture.llm.requests();
    let shown: Vec<usize> = requests.iter().map(|request| pictures(&request.body)).collect();
    // The ninth pushes older ones out; what came last is left out first when the provider refuses, then the others.
    assert_eq!(shown, [0, 4, 8, 4, 5, 4, 0]);
    let last = requests[6].body.to_string();
    assert!(last.contains("Its pictures are not shown: the provider refused"), "{last}");
    let notices = json!(fixture.events_of_kind(&task, "notice").await).to_string();
    assert_eq!(
        notices.matches("The pictures in the request may be why: trying again without them").count(),
        2,
        "{notices}"
    );
    fixture.board.assert_invariants().await;
}
