//! Files of operators: kept, sent along with the session's next task, taken back before that.

use board_tests::{Engine, FakeDaemon, board::HOME};
use reqwest::{Method, header};
use serde_json::json;

use super::{read, sha256, working};

crate::on_both_databases!(a_file_goes_with_the_next_task);

async fn a_file_goes_with_the_next_task(engine: Engine) {
    let mut fixture = working(engine).await;
    let upload = |name: &str, bytes: &'static [u8]| {
        let path = format!("/api/v1/sessions/{}/artifacts?name={name}", fixture.session());
        let request = fixture.operator.request(Method::POST, &path).header(header::CONTENT_TYPE, "text/csv");
        fixture.operator.send(request.body(bytes))
    };
    let table = upload("..%2Fnumbers.csv", b"a,b\n1,2\n").await.expect(201).json();
    assert_eq!(
        (&table["name"], &table["state"], &table["origin"]),
        (&json!("numbers.csv"), &json!("stored"), &json!("operator"))
    );
    assert_eq!(table["sniffed"], "text/plain");
    let other = upload("other.csv", b"x").await.expect(201).json();
    assert_eq!(upload("%E2%80%AE", b"x").await.code(), "bad_name");
    let taken_back = format!("/api/v1/artifacts/{}", other["id"].as_str().expect("an id"));
    fixture.operator.delete(&taken_back).await.expect(204);
    fixture.operator.get(&taken_back).await.expect(404);

    fixture.tell(vec![board_tests::fake_daemon::completed("done")]).await;
    let next = json!({ "goal": "read it", "sessionId": fixture.session() });
    fixture.operator.post("/api/v1/tasks", &next).await.expect(201);
    let submit = fixture.viber.submitted().await;
    let attached = submit.attachments.first().expect("the file");
    assert_eq!((attached.name.as_str(), attached.size, attached.kind.as_deref()), ("numbers.csv", 8, Some("text/csv")));
    assert_eq!((attached.sha256.as_str(), submit.attachments.len()), (sha256(b"a,b\n1,2\n").as_str(), 1));
    let path = format!("{}/api/daemon/blobs/{}", fixture.board.url, attached.id);
    let get = |credential: &str| read(reqwest::Client::new().get(&path).bearer_auth(credential));
    let fetched = get(&fixture.viber.credential).await;
    assert_eq!((fetched.status, fetched.bytes.as_slice()), (200, &b"a,b\n1,2\n"[..]));
    let stranger = FakeDaemon::enrol_in(&fixture.board, HOME, "stranger").await;
    assert_eq!(get(&stranger.credential).await.status, 404);
    // It went: nobody takes it back, and the task after that does not have it.
    let id = table["id"].as_str().expect("an id");
    assert_eq!(fixture.operator.delete(&format!("/api/v1/artifacts/{id}")).await.expect(409).code(), "attached");
    let foreign = json!({ "goal": "x", "sessionId": fixture.session(), "attachments": [id] });
    assert_eq!(fixture.operator.post("/api/v1/tasks", &foreign).await.expect(422).code(), "attachment_not_found");
    fixture.board.assert_invariants().await;
}
