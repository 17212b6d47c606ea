//! Who answers: another agent or another model for the next task, as far as the viber offers them.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    browser::Scripts,
    eventually,
    fake_daemon::{accepted, completed, started},
    llm::Reply,
};
use protocol::{AgentInfo, EventBody, FromDaemon, ProviderInfo, ViberState};
use serde_json::json;

use super::{resting, session_page, until};

crate::on_both_databases!(another_agent_and_model_answer_from_a_task_on, a_real_viber_uses_the_model_that_was_chosen);

/// The viber has two agents and three models.
pub async fn offers(fixture: &mut Fixture<FakeDaemon>) {
    let agent = |id: &str, name: &str, model: &str| AgentInfo {
        id: id.into(),
        name: name.into(),
        model: model.into(),
        max_steps: 25,
        ..AgentInfo::default()
    };
    let models = vec!["claude-sonnet-4-5".into(), "claude-opus-4-1".into()];
    let provider = ProviderInfo {
        id: "anthropic".into(),
        api: "anthropic".into(),
        has_key: true,
        models,
        ..ProviderInfo::default()
    };
    let agents = vec![
        agent("default", "Coder", "anthropic/claude-sonnet-4-5"),
        agent("reviewer", "Reviewer", "anthropic/claude-opus-4-1"),
    ];
    let state = ViberState { agents: Some(agents), providers: Some(vec![provider]), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let there = async || {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        (viber["agents"].as_array().map(Vec::len) == Some(2)).then_some(())
    };
    eventually("the agents are known", there).await;
}

async fn another_agent_and_model_answer_from_a_task_on(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.begin("begin").await;
    fixture.tell(vec![completed("begun")]).await;
    offers(&mut fixture).await;
    let next = |more: serde_json::Value| {
        let mut body = json!({ "goal": "go on", "sessionId": fixture.session() });
        body.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
        body
    };
    // What the viber does not have is refused, with what it has.
    let post = |body: serde_json::Value| {
        let operator = &fixture.operator;
        async move { operator.post("/api/v1/tasks", &body).await }
    };
    for (more, code, word) in [
        (json!({ "agentId": "poet" }), "unknown_agent", "reviewer"),
        (json!({ "model": "anthropic/claude-9" }), "unknown_model", "claude-opus-4-1"),
        (json!({ "model": "" }), "unknown_model", "claude-opus-4-1"),
    ] {
        let refused = post(next(more.clone())).await.expect(422);
        assert_eq!(refused.code(), code, "{more}");
        assert!(refused.body.contains(word), "{}", refused.body);
    }
    let session = async || {
        let path = format!("/api/v1/sessions/{}", fixture.session());
        fixture.operator.get(&path).await.expect(200).json()["agentId"].clone()
    };
    assert_eq!(session().await, "default", "a refused task changes nothing");
    let task =
        post(next(json!({ "agentId": "reviewer", "model": "anthropic/claude-sonnet-4-5" }))).await.expect(201).json();
    assert_eq!(task["agentId"], "reviewer");
    assert_eq!(session().await, "reviewer");
    let after = post(next(json!({}))).await.expect(201).json();
    assert_eq!(after["agentId"], "reviewer", "who answered last answers again");
    let submit = fixture.viber.submitted().await;
    assert_eq!((submit.agent_id.as_str(), submit.model.as_deref()), ("reviewer", Some("anthropic/claude-sonnet-4-5")));
    assert_eq!(submit.messages.len(), 2, "the new agent knows what was said");
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("seen")]).await;
    let submit = fixture.viber.submitted().await;
    assert_eq!((submit.agent_id.as_str(), submit.model), ("reviewer", None));
    fixture.board.assert_invariants().await;
}

async fn a_real_viber_uses_the_model_that_was_chosen(engine: Engine) {
    let script = [Reply::text("By my own."), Reply::text("By the other.")];
    let fixture = Fixture::on(engine).scripted_model(script).with_viber().await;
    let file = fixture.viber.home().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("readable");
    let path = format!("/api/v1/vibers/{}", fixture.viber_id);
    let viber = fixture.operator.get(&path).await.expect(200).json();
    let own = viber["agents"][0]["model"].as_str().expect("a model").to_owned();
    let (provider, _) = own.split_once('/').expect("a provider");
    let other = format!("{provider}/other-model");
    let before = fixture.play("one").await;
    let body = json!({ "goal": "two", "sessionId": before["sessionId"], "model": other });
    assert_eq!(fixture.operator.post("/api/v1/tasks", &body).await.expect(422).code(), "unknown_model");

    // The machine's owner lists it: it is offered at once.
    let listed = config.replacen("apiKey:", "models: [other-model], apiKey:", 1);
    assert_ne!(config, listed, "{config}");
    std::fs::write(&file, listed).expect("written");
    let offered = async || {
        let viber = fixture.operator.get(&path).await.expect(200).json();
        viber["providers"].to_string().contains("other-model").then_some(())
    };
    eventually("the model is offered", offered).await;
    let task = fixture.operator.post("/api/v1/tasks", &body).await.expect(201).json();
    let task = fixture.ended(&task).await;
    assert_eq!((&task["state"], &task["model"]), (&json!("completed"), &json!(other)), "{task:#}");
    let asked: Vec<_> = fixture.llm.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(asked[1], "other-model", "{asked:?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_composer_names_who_answers_and_lets_one_choose() {
    for scripts in [Scripts::On, Scripts::Off] {
        let (mut fixture, browser) = resting(scripts).await;
        offers(&mut fixture).await;
        browser.go(&session_page(&fixture)).await;
        browser.sees(".answerer summary", "Coder, claude-sonnet-4-5").await;
        browser.click(".answerer summary").await;
        browser.click(".answerer select[name=agent] option[value=reviewer]").await;
        browser.click(".answerer select[name=model] option[value='anthropic/claude-opus-4-1']").await;
        if scripts == Scripts::On {
            let named = "return document.querySelector('.answerer-words').textContent === 'Reviewer, claude-opus-4-1'";
            until(&browser, "the choice is named", named).await;
        }
        browser.fill("#content", "look at it").await;
        browser.click("#composer button.primary").await;
        let submit = fixture.viber.submitted().await;
        assert_eq!(
            (submit.agent_id.as_str(), submit.model.as_deref()),
            ("reviewer", Some("anthropic/claude-opus-4-1"))
        );
        let began = EventBody::Started { pid: None, model: "anthropic/claude-opus-4-1".into(), engine: "fake".into() };
        fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), began, completed("Fine.")]).await;

        // The answer says who gave it, the header who answers now, and the composer keeps both.
        if scripts == Scripts::Off {
            browser.go(&session_page(&fixture)).await;
        }
        browser.sees(".message[data-role=assistant]:last-of-type .message-head", "Reviewer").await;
        browser.sees(".message[data-role=assistant]:last-of-type .message-head", "claude-opus-4-1").await;
        browser.sees("#where", "Reviewer").await;
        browser.sees(".answerer summary", "Reviewer, claude-opus-4-1").await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_task_names_them_too() {
    let (mut fixture, browser) = resting(Scripts::On).await;
    offers(&mut fixture).await;
    browser.go(&format!("{}/t/home", fixture.board.url)).await;
    browser.sees("#choice select[name=agent]", "Coder, claude-sonnet-4-5").await;
    browser.fill("#goal", "review it").await;
    browser.click("#choice select[name=agent] option[value=reviewer]").await;
    until(
        &browser,
        "the other's own model is not among the others",
        "return ![...document.querySelectorAll('#choice select[name=model] option')].some((o) => o.value === 'anthropic/claude-opus-4-1')",
    )
    .await;
    browser.click("#choice select[name=model] option[value='anthropic/claude-sonnet-4-5']").await;
    browser.click("#composer button.primary").await;
    let submit = fixture.viber.submitted().await;
    assert_eq!((submit.goal.as_str(), submit.agent_id.as_str()), ("review it", "reviewer"));
    assert_eq!(submit.model.as_deref(), Some("anthropic/claude-sonnet-4-5"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_was_opened_before_somebody_chose_changes_nothing() {
    for scripts in [Scripts::On, Scripts::Off] {
        let (mut fixture, browser) = resting(scripts).await;
        offers(&mut fixture).await;
        browser.go(&session_page(&fixture)).await;
        browser.sees(".answerer summary", "Coder, claude-sonnet-4-5").await;
        let before = browser.content_of(".answerer select[name=agent] option:checked").await;
        assert_eq!(before, "Coder, as before");

        // Somebody else lets another agent go on, with another model.
        let other = json!({ "goal": "look at it", "sessionId": fixture.session(), "agentId": "reviewer",
            "model": "anthropic/claude-sonnet-4-5" });
        fixture.operator.post("/api/v1/tasks", &other).await.expect(201);
        let asked = async |fixture: &mut Fixture<FakeDaemon>| {
            let submit = fixture.viber.submitted().await;
            fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
            (submit.goal, submit.agent_id, submit.model)
        };
        assert_eq!(asked(&mut fixture).await.1, "reviewer");
        let say = async |words: &str| {
            browser.fill("#content", words).await;
            browser.click("#composer button.primary").await;
        };
        let sonnet = Some("anthropic/claude-sonnet-4-5".to_owned());
        say("and go on").await;
        let expected = ("and go on".to_owned(), "reviewer".to_owned(), sonnet.clone());
        assert_eq!(asked(&mut fixture).await, expected, "who wrote this chose nobody");
        browser.sees("#entries", "and go on").await;

        // Only what somebody chooses is another: the agent alone, then its own model.
        browser.go(&session_page(&fixture)).await;
        browser.sees(".answerer summary", "Reviewer, claude-sonnet-4-5").await;
        browser.click(".answerer summary").await;
        browser.click(".answerer select[name=agent] option[value=default]").await;
        say("again by the first").await;
        let (_, agent, model) = asked(&mut fixture).await;
        assert_eq!((agent.as_str(), model), ("default", sonnet.clone()));
        browser.sees("#entries", "again by the first").await;
        browser.go(&session_page(&fixture)).await;
        browser.click(".answerer summary").await;
        browser.click(".answerer select[name=model] option[value=own]").await;
        say("with its own model").await;
        let (_, agent, model) = asked(&mut fixture).await;
        assert_eq!((agent.as_str(), model), ("default", None));
        browser.sees("#entries", "with its own model").await;

        // An agent's own model stays with it, also when somebody named it.
        browser.go(&session_page(&fixture)).await;
        browser.click(".answerer summary").await;
        browser.click(".answerer select[name=model] option[value='anthropic/claude-sonnet-4-5']").await;
        say("named").await;
        assert_eq!(asked(&mut fixture).await.2, sonnet);
        browser.sees("#entries", "named").await;
        browser.go(&session_page(&fixture)).await;
        browser.click(".answerer summary").await;
        browser.click(".answerer select[name=agent] option[value=reviewer]").await;
        say("by the other").await;
        let (_, agent, model) = asked(&mut fixture).await;
        assert_eq!((agent.as_str(), model), ("reviewer", None));
        fixture.board.assert_invariants().await;
    }
}
