//! Comments on lines: one's own until they are sent, then one message, once.

use board_tests::{Engine, Fixture, Person, Viber, board::HOME, tasks};
use serde_json::Value;

use super::{Space, with_space};

crate::on_both_databases!(
    comments_become_one_message_once,
    a_comment_is_its_authors_alone,
    a_comment_that_is_sent_twice_is_one,
);

/// A session with one task that is over, and a repository with a change.
async fn session(fixture: &Fixture<Viber>) -> String {
    fixture.repository(&[("src/a.rs", "let a = 1;\nlet b = 2;\n")]);
    let task = fixture.play("begin").await;
    fixture.write("src/a.rs", "let a = 1;\nlet c = 3;\n");
    tasks::id(&task, "sessionId").to_owned()
}

fn path(session: &str, verb: &str) -> String {
    format!("/t/{HOME}/sessions/{session}/comments{verb}")
}

async fn comment(
    fixture: &Fixture<Viber>,
    person: &Person,
    session: &str,
    (side, line): (&str, &str),
    remark: &str,
) -> u16 {
    let space = fixture.space();
    let fields = [
        ("space", space.as_str()),
        ("path", "src/a.rs"),
        ("place", "diff"),
        ("side", side),
        ("line", line),
        ("quote", if side == "old" { "let b = 2;" } else { "let c = 3;" }),
        ("remark", remark),
    ];
    let answer = person.post_form(&path(session, ""), &fields).await;
    if answer.status == 303 {
        let back = answer.header("location").to_owned();
        assert!(back.contains("/diff?path=src/a.rs") && back.ends_with(&format!("#{side}{line}")), "{back}");
    }
    answer.status
}

/// The form that sends what its page shows.
async fn form(person: &Person, session: &str) -> Vec<(String, String)> {
    let page = person.page(&path(session, "")).await.expect(200).body;
    let form = page.split("id=\"send-comments\"").nth(1).and_then(|rest| rest.split("</form>").next()).expect("a form");
    let value =
        |piece: &str| piece.split("value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("").to_owned();
    let fields = form.split("<input").skip(1).map(|input| {
        let name = input.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
        (name.to_owned(), value(input))
    });
    fields.collect()
}

async fn send(person: &Person, session: &str, form: &[(String, String)]) -> board_tests::Answer {
    let fields: Vec<_> = form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    person.post_form(&path(session, "/send"), &fields).await
}

/// What was asked in the session, oldest first.
async fn asked(fixture: &Fixture<Viber>, session: &str) -> Vec<String> {
    let all = fixture.operator.get(&format!("/api/v1/sessions/{session}/messages")).await.expect(200).json();
    let of_user = |message: &&Value| message["role"] == "user";
    let items = all["items"].as_array().expect("messages").iter().filter(of_user);
    items.map(|message| tasks::said(message, "text")).collect()
}

async fn a_comment_that_is_sent_twice_is_one(engine: Engine) {
    let fixture = with_space(engine).await;
    let session = session(&fixture).await;
    let (mia, olga) = (
        fixture.board.operator(HOME, "mia@example.org", "operator").await,
        fixture.board.operator(HOME, "olga@example.org", "operator").await,
    );
    let space = fixture.space();
    let post = async |person: &Person, key: &str, remark: &str| {
        let fields = [
            ("space", space.as_str()),
            ("path", "src/a.rs"),
            ("place", "diff"),
            ("side", "new"),
            ("line", "2"),
            ("quote", "let c = 3;"),
            ("remark", remark),
            ("key", key),
        ];
        person.post_form(&path(&session, ""), &fields).await
    };
    let count = async |person: &Person| {
        person.page(&path(&session, "")).await.expect(200).body.matches("<li data-comment=").count()
    };
    post(&mia, "one", "Why three?").await.expect(303);
    post(&mia, "one", "Why three?").await.expect(303);
    assert_eq!(count(&mia).await, 1);
    // The key is the form's and its person's: another form, another person, or none at all.
    post(&mia, "two", "Why three?").await.expect(303);
    post(&mia, "", "No key").await.expect(303);
    post(&mia, "", "No key").await.expect(303);
    post(&olga, "one", "Why three?").await.expect(303);
    assert_eq!((count(&mia).await, count(&olga).await), (4, 1));
    // Whoever goes back to the form and writes another text writes another comment, once.
    post(&mia, "one", "Why four?").await.expect(303);
    post(&mia, "one", "Why four?").await.expect(303);
    post(&mia, "one", "Why three?").await.expect(303);
    assert_eq!(count(&mia).await, 5);
    // A form in place stays where it is until it is answered: with another text it was kept as it was, which is said.
    let fields = [
        ("space", space.as_str()),
        ("path", "src/a.rs"),
        ("side", "new"),
        ("line", "2"),
        ("quote", "let c = 3;"),
        ("key", "three"),
    ];
    let in_place = async |remark: &str| {
        let fields = [&fields[..], &[("remark", remark)]].concat();
        mia.send(mia.form(&path(&session, ""), &fields).header("hx-request", "true")).await
    };
    in_place("Why five?").await.expect(200);
    let other = in_place("Why six?").await.expect(409);
    assert!(other.body.contains("kept as it was first sent"), "{}", other.body);
    // What was sent meanwhile does not come back.
    let shown = form(&olga, &session).await;
    send(&olga, &session, &shown).await.expect(303);
    post(&olga, "one", "Why three?").await.expect(303);
    assert!(!olga.page(&path(&session, "")).await.expect(200).body.contains("<li data-comment="));
    fixture.board.assert_invariants().await;
}

async fn comments_become_one_message_once(engine: Engine) {
    let fixture = with_space(engine).await;
    let session = session(&fixture).await;
    let olga = fixture.board.operator(HOME, "olga@example.org", "operator").await;
    let page = olga.page(&fixture.page(&format!("/diff?path=src/a.rs&session={session}"))).await.expect(200).body;
    assert!(page.contains("Comment on line 2\"") && page.contains("Comment on line 2 as it was"), "{page}");
    let asks = format!("/diff?path=src/a.rs&session={session}&side=new&line=2");
    let with_form = olga.page(&fixture.page(&asks)).await.expect(200).body;
    assert!(with_form.contains("name=\"quote\" value=\"let c = 3;\""), "{with_form}");
    assert_eq!(comment(&fixture, &olga, &session, ("new", "2"), "Why three?\r\nSay it.").await, 303);
    assert_eq!(comment(&fixture, &olga, &session, ("old", "2"), "Keep <b>.").await, 303);
    assert_eq!(comment(&fixture, &olga, &session, ("new", "2"), "Not this one.").await, 303);
    for (place, remark) in [(("new", "0"), "x"), (("new", "2"), " "), (("new", "2"), &*"y".repeat(5_000))] {
        assert_eq!(comment(&fixture, &olga, &session, place, remark).await, 422, "{place:?}");
    }
    assert_eq!(comment(&fixture, &olga, &session, ("sideways", "2"), "x").await, 400);
    let waits = olga.page(&path(&session, "")).await.expect(200).body;
    assert!(waits.contains("Why three?") && waits.contains("3 comments") && !waits.contains("<b>."), "{waits}");
    let inline = olga.page(&fixture.page(&format!("/diff?path=src/a.rs&session={session}"))).await.expect(200).body;
    assert!(inline.contains("Why three?") && inline.contains("3 comments wait"), "{inline}");
    let third = form(&olga, &session).await.into_iter().filter(|(name, _)| name == "comment").map(|(_, id)| id);
    let mut unwanted = String::new();
    for id in third {
        if waits
            .split(&format!("data-comment=\"{id}\""))
            .nth(1)
            .is_some_and(|rest| rest.split("</li>").next().is_some_and(|item| item.contains("Not this one.")))
        {
            unwanted = id;
        }
    }
    olga.post_form(&path(&session, "/withdraw"), &[("comment", &unwanted)]).await.expect(303);
    assert_eq!(asked(&fixture, &session).await.len(), 1, "nothing is sent by writing");

    let (first, other) = (form(&olga, &session).await, form(&olga, &session).await);
    assert_ne!(first[0], other[0], "two windows");
    let sent = send(&olga, &session, &first).await.expect(303);
    assert_eq!(sent.header("location"), format!("/t/{HOME}/sessions/{session}"));
    // Again, because the answer was not seen; and from the other window.
    assert_eq!(send(&olga, &session, &first).await.expect(303).header("location"), sent.header("location"));
    assert_eq!(send(&olga, &session, &other).await.expect(303).header("location"), path(&session, ""));
    let told = asked(&fixture, &session).await;
    assert_eq!(told.len(), 2, "{told:#?}");
    let folder = fixture.viber.space().display().to_string();
    assert_eq!(
        told[1],
        format!(
            "Comments on lines:\n\nIn {folder}:\n\nsrc/a.rs:2\n> let c = 3;\n\nWhy three?\nSay it.\n\nsrc/a.rs:2 (before the change)\n\
             > let b = 2;\n\nKeep <b>."
        )
    );
    let empty = olga.page(&path(&session, "")).await.expect(200).body;
    assert!(empty.contains("No comments yet"), "{empty}");
    olga.post_form(&path(&session, "/send"), &[("key", "x")]).await.expect(422);
    fixture.board.assert_invariants().await;
}

async fn a_comment_is_its_authors_alone(engine: Engine) {
    let fixture = with_space(engine).await;
    let session = session(&fixture).await;
    let olga = fixture.board.operator(HOME, "olga@example.org", "operator").await;
    let otto = fixture.board.operator(HOME, "otto@example.org", "operator").await;
    let vera = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    fixture.board.make_operator("rivals", "rita@example.org", "owner").await;
    let rita = fixture.board.anon().in_team(HOME);
    rita.sign_in("rita@example.org", board_tests::board::PASSWORD).await;
    assert_eq!(comment(&fixture, &olga, &session, ("new", "2"), "Only mine.").await, 303);
    assert!(otto.page(&path(&session, "")).await.expect(200).body.contains("No comments yet"));
    let mine = form(&olga, &session).await;
    // Whoever knows its name cannot send or remove it.
    assert_eq!(send(&otto, &session, &mine).await.expect(303).header("location"), path(&session, ""));
    let id = mine.iter().find(|(name, _)| name == "comment").expect("one").1.clone();
    otto.post_form(&path(&session, "/withdraw"), &[("comment", &id)]).await.expect(303);
    assert_eq!(asked(&fixture, &session).await.len(), 1);
    vera.page(&path(&session, "")).await.expect(403);
    assert_eq!(comment(&fixture, &vera, &session, ("new", "2"), "x").await, 403);
    rita.page(&path(&session, "")).await.expect(404);
    rita.post_form(&path(&session, "/send"), &[("comment", &id)]).await.expect(404);
    assert!(olga.page(&path(&session, "")).await.expect(200).body.contains("Only mine."));
    // A session that goes takes what was written for it along.
    fixture.operator.delete(&format!("/api/v1/sessions/{session}")).await.expect(204);
    olga.page(&path(&session, "")).await.expect(404);
    fixture.board.assert_invariants().await;
}
