//! What an agent asks by itself, in every mode.

use super::*;

const OPTIONS: &str = r#"{"question":"Which store?","recommended":"SQLite","timeoutMinutes":5,
    "options":[{"label":"Postgres","tradeOff":"Scales."},{"label":"SQLite","tradeOff":"Nothing to run."}]}"#;

/// What the agent is told of the answer to a question that is asked in this mode.
async fn told(mode: AgentMode, answer: impl FnOnce(&Fixture, &ApprovalRequest)) -> String {
    let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", OPTIONS)]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut asking = fixture.run("x");
    asking.submit.mode = Some(mode);
    let running = tokio::spawn(run(asking));
    let asked = fixture.question(1).await;
    let question = asked.question.as_ref().expect("a question");
    assert_eq!((asked.kind, question.recommended, question.options.len()), (ApprovalKind::Question, Some(1), 2));
    assert_eq!(fixture.decided(), ["call c0", "asks c0", "waits for Input"]);
    answer(&fixture, &asked);
    result(ended(running).await);
    assert_eq!(fixture.decided()[3..], ["result c0 true"]);
    endpoint.conversation(1).remove(2).1
}

#[tokio::test]
async fn an_answer_is_the_tools_result() {
    let chosen = told(AgentMode::AlwaysExecute, |fixture, asked| {
        fixture.respond(asked, Decision::Answer, |word| word.answer = Some("Postgres".to_owned()));
    });
    assert_eq!(chosen.await, "Ada chose “Postgres”.");
    let words = told(AgentMode::AlwaysAsk, |fixture, asked| {
        fixture.respond(asked, Decision::Answer, |word| word.answer = Some("Neither: files.".to_owned()));
    });
    assert_eq!(words.await, "Ada answered: Neither: files.");
    let declined = told(AgentMode::ViberDecides, |fixture, asked| {
        fixture.respond(asked, Decision::Deny, |word| word.note = Some("Decide yourself.".to_owned()));
    });
    assert_eq!(declined.await, "Ada does not want to answer: Decide yourself.");
}

#[tokio::test]
async fn a_time_out_says_that_nobody_answered_and_what_happens_then() {
    let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", OPTIONS)]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut asking = fixture.run("x");
    asking.submit.approval_minutes = Some(0);
    let running = tokio::spawn(run(asking));
    result(ended(running).await);
    let told = &endpoint.conversation(1)[2].1;
    assert!(told.contains("Nobody answered within 0 minutes.") && told.contains("goes on with “SQLite”"), "{told}");
    assert_eq!(fixture.decided()[3], "expired: nobody answered within 0 minutes");
}

#[tokio::test]
async fn a_question_that_cannot_be_read_is_a_tools_error() {
    let endpoint = ScriptedProvider::start(vec![
        calls(&[("ask_operator", r#"{"question":"q","options":["a"]}"#), ("ask_operator", "{}")]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.run("x")).await);
    let results = fixture.results();
    assert!(results.iter().all(|(_, ok, _)| !ok) && results[0].2.contains("2 to 4 options"), "{results:?}");
    assert!(fixture.all_asked().is_empty());
}

#[tokio::test]
async fn a_rule_may_deny_questions_and_an_agent_may_ask_while_it_plans() {
    let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", OPTIONS)]), says("A plan.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut denied = fixture.run("x");
    denied.submit.rules.deny.push("ask_operator".to_owned());
    result(run(denied).await);
    assert!(fixture.results()[0].2.contains("under `deny` of the team's rules"), "{:?}", fixture.results());

    let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", OPTIONS)]), says("A plan.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut planning = fixture.run("x");
    planning.submit.approve_first = true;
    let running = tokio::spawn(run(planning));
    let asked = fixture.question(1).await;
    fixture.respond(&asked, Decision::Answer, |word| word.answer = Some("SQLite".to_owned()));
    assert_eq!(fixture.question(2).await.kind, ApprovalKind::Plan);
    fixture.stop.cancel();
    ended(running).await;
}

#[tokio::test]
async fn a_plan_that_nobody_decides_about_ends_the_task() {
    let endpoint = ScriptedProvider::start(vec![says("A plan.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut planning = fixture.run("x");
    (planning.submit.approve_first, planning.submit.approval_minutes) = (true, Some(0));
    let error = error(run(planning).await);
    assert!(error.code == ErrorCode::Timeout && error.message.contains("about the plan"), "{error:?}");
    assert_eq!(fixture.decided()[1..], ["waits for Approval", "expired: nobody answered within 0 minutes"]);
}

#[tokio::test]
async fn a_question_of_the_agents_own_is_known_by_its_wait() {
    let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", OPTIONS)])]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    let asked = fixture.question(1).await;
    let waits = fixture.events().into_iter().find_map(|event| match event {
        AgentStreamEvent::StateChange { waiting, .. } => waiting,
        _ => None,
    });
    let wait = waits.expect("a wait");
    assert_eq!((wait.cause, wait.until), (PauseCause::Input, asked.expires_at));
    fixture.stop.cancel();
    ended(running).await;
}
