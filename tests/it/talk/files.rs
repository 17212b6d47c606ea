//! Files with what is said: they go to the running task, their pictures to models that see, and along with what becomes a
//! task of its own.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use board_tests::llm::{Gate, Piece, Reply};
use reqwest::{Method, header};

use super::*;

crate::on_both_databases!(
    files_go_with_a_message_to_the_running_task,
    files_go_along_with_what_is_left_over_and_with_what_is_sent,
    what_has_too_many_files_is_the_next_task,
    no_more_than_64_files_wait_whatever_is_taken_back,
);

/// A picture of one dot.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

const ALL: [Capability; 3] = [Capability::Steer, Capability::Queue, Capability::Files];

/// Attaches a file to a session, and returns its id.
async fn attach<V>(fixture: &Fixture<V>, session: &str, name: &str, bytes: Vec<u8>) -> String {
    let path = format!("/api/v1/sessions/{session}/artifacts?name={name}");
    let request = fixture.operator.request(Method::POST, &path).header(header::CONTENT_TYPE, "image/png");
    id(&fixture.operator.send(request.body(bytes)).await.expect(201).json(), "id").to_owned()
}

fn dot() -> Vec<u8> {
    BASE64_STANDARD.decode(DOT).expect("base64")
}

async fn files_go_with_a_message_to_the_running_task(engine: Engine) {
    let (mut fixture, task, submit) = talking_with(engine, ALL.to_vec()).await;
    let session = id(&task, "sessionId").to_owned();
    let (dot_file, other) =
        (attach(&fixture, &session, "dot.png", dot()).await, attach(&fixture, &session, "other.png", dot()).await);
    let path = format!("/api/v1/tasks/{}/messages", submit.task_id);
    let asked = json!({ "content": "Like this", "injectionMode": "steer", "attachments": [dot_file] });
    let message = fixture.operator.post(&path, &asked).await.expect(202).json();
    assert_eq!(message["attachments"][0]["name"], "dot.png");
    let told = fixture.viber.told().await;
    let [file] = &told.attachments[..] else { panic!("{told:?}") };
    assert_eq!((file.name.as_str(), file.size, file.id.as_str()), ("dot.png", dot().len() as u64, dot_file.as_str()));
    // It went: no other message has it.
    assert_eq!(fixture.operator.post(&path, &asked).await.expect(422).code(), "attachment_not_found");
    let waits = fixture.operator.delete(&format!("/api/v1/artifacts/{dot_file}")).await.expect(409).code();
    assert_eq!(waits, "attached");

    let page = fixture.owner().get(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    assert!(page.contains("dot.png"), "in the strip");
    fixture.viber.report(&submit.task_id, 1, 4, vec![state_of(&told, "consumed", Some(1)), text("Done.")]).await;
    let page = fixture.owner().get(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    let link =
        format!("<ul class=\"said-files\"><li><a class=\"btn quiet small\" href=\"/t/home/artifacts/{dot_file}\">");
    assert!(page.contains(&link), "where the agent was told: {page}");

    // The page sends what its composer shows.
    let form = [("content", "And that"), ("key", "k-1"), ("shows_files", "yes"), ("attached", &other)];
    fixture.owner().post_form(&format!("/t/home/sessions/{session}/messages"), &form).await.expect(303);
    assert_eq!(fixture.viber.told().await.attachments[0].name, "other.png");
    fixture.board.assert_invariants().await;
}

async fn files_go_along_with_what_is_left_over_and_with_what_is_sent(engine: Engine) {
    let (mut fixture, task, submit) = talking_with(engine, ALL.to_vec()).await;
    let session = id(&task, "sessionId").to_owned();
    let path = format!("/api/v1/sessions/{session}/messages");
    for name in ["one.png", "two.png"] {
        let file = attach(&fixture, &session, name, dot()).await;
        let asked = json!({ "content": name, "injectionMode": "collect", "attachments": [{ "id": file }] });
        fixture.operator.post(&path, &asked).await.expect(202);
        fixture.viber.told().await;
    }
    fixture.viber.report(&submit.task_id, 1, 4, vec![completed("done")]).await;
    let next = fixture.viber.submitted().await;
    let names = |submit: &TaskSubmit| submit.attachments.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
    assert_eq!((next.goal.as_str(), names(&next)), ("one.png", vec!["one.png".to_owned()]));
    let message = said(&fixture, &task).await.remove(0);
    let of_task = fixture.operator.get(&format!("/api/v1/artifacts/{}", id(&message["attachments"][0], "id"))).await;
    assert_eq!(of_task.expect(200).json()["taskId"], json!(next.task_id), "it is a file of that task");
    fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    let last = fixture.viber.submitted().await;
    assert_eq!(names(&last), ["two.png"]);

    // One that is held goes with its file when somebody sends it.
    fixture.viber.report(&last.task_id, 1, 1, vec![accepted(), started()]).await;
    let file = attach(&fixture, &session, "three.png", dot()).await;
    let asked = json!({ "content": "three", "attachments": [file] });
    let held = fixture.operator.post(&path, &asked).await.expect(202).json();
    fixture.viber.told().await;
    fixture.viber.report(&last.task_id, 1, 3, vec![failed()]).await;
    let form = format!("/t/home/tasks/{}/messages/{}", last.task_id, id(&held, "id"));
    fixture.owner().post_form(&form, &[("verb", "send")]).await.expect(303);
    let sent = fixture.viber.submitted().await;
    assert_eq!((sent.goal.as_str(), names(&sent)), ("three", vec!["three.png".to_owned()]));
    fixture.board.assert_invariants().await;
}

async fn what_has_too_many_files_is_the_next_task(engine: Engine) {
    let (fixture, task, _) = talking_with(engine, ALL.to_vec()).await;
    let session = id(&task, "sessionId").to_owned();
    let mut files = Vec::new();
    for n in 0..17 {
        files.push(attach(&fixture, &session, &format!("{n}.png"), dot()).await);
    }
    let path = format!("/api/v1/sessions/{session}/messages");
    let asked = json!({ "content": "All of them", "attachments": files });
    let answer = fixture.operator.post(&path, &asked).await.expect(201);
    assert_eq!(answer.header("said-as-task"), "it has more than 16 files, or more than 256 MiB of them");

    let (fixture, task, _) = talking(engine).await;
    let session = id(&task, "sessionId").to_owned();
    let file = attach(&fixture, &session, "dot.png", dot()).await;
    let path = format!("/api/v1/sessions/{session}/messages");
    let answer = fixture.operator.post(&path, &json!({ "content": "This", "attachments": [file] })).await.expect(201);
    assert_eq!(answer.header("said-as-task"), "the agent takes no files while it works");
}

async fn no_more_than_64_files_wait_whatever_is_taken_back(engine: Engine) {
    let (mut fixture, task, submit) = talking_with(engine, ALL.to_vec()).await;
    let session = id(&task, "sessionId").to_owned();
    let mut files = Vec::new();
    for name in ["one.png", "two.png"] {
        files.push(attach(&fixture, &session, name, dot()).await);
    }
    let path = format!("/api/v1/sessions/{session}/messages");
    let form = [
        ("content", "These"),
        ("key", "k-1"),
        ("shows_files", "yes"),
        ("attached", &files[0]),
        ("attached", &files[1]),
    ];
    fixture.owner().post_form(&format!("/t/home/sessions/{session}/messages"), &form).await.expect(303);
    assert_eq!(fixture.viber.told().await.attachments.len(), 2);
    let held = said(&fixture, &task).await.remove(0);
    fixture.viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    let mut waiting = Vec::new();
    for n in 0..63 {
        waiting.push(attach(&fixture, &session, &format!("{n}.png"), dot()).await);
    }
    let (of, back) = (format!("/t/home/tasks/{}/messages/{}", submit.task_id, id(&held, "id")), [("verb", "back")]);
    let full = fixture.owner().post_form(&of, &back).await.expect(409).body;
    assert!(full.contains("63 files wait for the next task already"), "{full}");
    assert_eq!(said(&fixture, &task).await[0]["state"], "held", "it is as it was");
    let gone = format!("/api/v1/artifacts/{}", waiting.remove(0));
    fixture.operator.delete(&gone).await.expect(204);
    fixture.owner().post_form(&of, &back).await.expect(303);
    let more = format!("/api/v1/sessions/{session}/artifacts?name=more.png");
    let more = fixture.operator.request(Method::POST, &more).header(header::CONTENT_TYPE, "image/png").body(dot());
    assert_eq!(fixture.operator.send(more).await.expect(409).code(), "too_many");
    // All that wait can be named, those that came back among them.
    waiting.extend(files);
    let next = fixture.operator.post(&path, &json!({ "content": "All of them", "attachments": waiting })).await;
    next.expect(201);
    assert_eq!(fixture.viber.submitted().await.attachments.len(), 64);
    fixture.board.assert_invariants().await;
}

/// What the model was asked after somebody sent it a picture, and the notices of the task.
async fn asked_with_a_picture(api: &'static str, images: &str) -> (Value, Vec<Value>) {
    let half = Reply::Stream(vec![Piece::text("half an answer"), Piece::Wait(Gate::new())]);
    let setup = Fixture::on(Engine::Sqlite).scripted_model_for(api, vec![half, Reply::text("I see a dot.")]);
    let fixture = setup.with_enrolled_viber().await;
    let config = fixture.llm.config(api).replace("apiKey:", &format!("images: {images}, apiKey:"));
    fixture.viber.write("config.yaml", &config);
    let fixture = fixture.running().await;
    let task = fixture.submit("Draw").await;
    fixture.llm.asked(1).await;
    let session = id(&task, "sessionId").to_owned();
    let file = attach(&fixture, &session, "dot.png", dot()).await;
    let path = format!("/api/v1/tasks/{}/messages", id(&task, "id"));
    let asked = json!({ "content": "What is this?", "injectionMode": "steer", "attachments": [file] });
    fixture.operator.post(&path, &asked).await.expect(202);
    assert_eq!(fixture.ended(&task).await["state"], "completed");
    let notices = fixture.events_of_kind(&task, "notice").await;
    (fixture.llm.requests()[1].body.clone(), notices)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_reaches_every_model_that_sees() {
    for (api, like) in [
        ("openai", format!("\"image_url\":{{\"url\":\"data:image/png;base64,{DOT}\"}}")),
        ("anthropic", format!("\"source\":{{\"data\":\"{DOT}\",\"media_type\":\"image/png\",\"type\":\"base64\"}}")),
        ("ollama", format!("\"images\":[\"{DOT}\"]")),
    ] {
        let (body, notices) = asked_with_a_picture(api, "[scripted]").await;
        let body = body.to_string();
        assert!(body.contains(&like), "{api}: {body}");
        assert!(body.contains("Attached files:") && body.contains("What is this?"), "{api}: {body}");
        assert_eq!(notices, Vec::<Value>::new(), "{api}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_does_not_see_reads_where_the_picture_lies() {
    let (body, notices) = asked_with_a_picture("openai", "[other]").await;
    let body = body.to_string();
    assert!(!body.contains(DOT) && body.contains("/dot.png (not shown)"), "{body}");
    assert!(notices[0].to_string().contains("is shown no pictures"), "people are told: {notices:?}");
}
