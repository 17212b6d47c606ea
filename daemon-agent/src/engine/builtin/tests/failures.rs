//! Providers that ask to wait for long or cannot be had, and the agent's other model.

use std::sync::atomic::Ordering;

use protocol::{Decision, PauseCause, TaskLimits};

use super::{
    limits::{ended, with_clock},
    *,
};

fn limited(seconds: u32) -> ScriptedReply {
    ScriptedReply::refusal(429, r#"{"error":{"message":"slow down"}}"#).header("Retry-After", &seconds.to_string())
}

fn is_wait(event: &AgentStreamEvent) -> bool {
    matches!(event, AgentStreamEvent::StateChange { state: ActivityState::Waiting, .. })
}

impl Fixture {
    fn said_of(&self, word: &str) -> Vec<String> {
        let notices = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::Notice { text, .. } => Some(text),
            _ => None,
        });
        notices.filter(|text| text.contains(word)).collect()
    }
}

#[tokio::test]
async fn an_hour_is_waited_for_the_provider_and_then_the_task_goes_on_by_itself() {
    let endpoint = ScriptedProvider::start(vec![limited(3600), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let (running, clock) = with_clock(fixture.run("x"));
    fixture.until(is_wait).await;
    let wait = fixture.waits().pop().expect("it waits");
    let until = wait.until.expect("an end").millis();
    let ahead = until - clock.load(Ordering::SeqCst);
    assert!(wait.cause == PauseCause::RateLimit && (3_600_000..=3_615_000).contains(&ahead), "{ahead}");
    clock.store(until, Ordering::SeqCst);
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!((endpoint.seen().len(), fixture.said_of("by itself").len()), (2, 1));
}

#[tokio::test]
async fn people_let_it_try_before_the_hour_is_over() {
    let endpoint = ScriptedProvider::start(vec![limited(3600), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_wait).await;
    // A pause is for the next step, and shortens nothing.
    fixture.pause.pause(protocol::PausePoint::Step);
    tokio::task::yield_now().await;
    assert_eq!(endpoint.seen().len(), 1);
    fixture.pause.resume(1);
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!(endpoint.seen().len(), 2);
}

#[tokio::test]
async fn six_hours_of_waiting_are_the_most_and_a_stop_ends_them() {
    let endpoint = ScriptedProvider::start(vec![limited(4 * 3600)]).await;
    let fixture = Fixture::new(&endpoint);
    let (running, clock) = with_clock(fixture.run("x"));
    fixture.until(is_wait).await;
    clock.fetch_add(5 * 3_600_000, Ordering::SeqCst);
    assert_eq!(error(ended(running).await).code, ErrorCode::ProviderRateLimited);
    assert_eq!(endpoint.seen().len(), 2);
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_wait).await;
    fixture.stop.cancel();
    assert!(matches!(ended(running).await, EngineOutcome::Stopped { .. }));
}

#[tokio::test]
async fn the_other_model_is_used_when_it_is_configured_and_announced() {
    let broken =
        ScriptedProvider::start(vec![ScriptedReply::refusal(529, "overloaded").header("Retry-After", "61")]).await;
    let other = ScriptedProvider::start(vec![says("From the other.")]).await;
    let mut fixture = Fixture::new(&broken);
    fixture.config.providers.insert("spare".to_owned(), other.provider(ProviderApi::OpenAi));
    assert_eq!(error(run(fixture.run("x")).await).code, ErrorCode::ProviderUnavailable);
    assert!(other.seen().is_empty(), "never silently");
    fixture.agent.fallback_model = Some("spare/m2".to_owned());
    assert_eq!(result(run(fixture.run("x")).await).text, "From the other.");
    let said = fixture.said_of("fallbackModel");
    assert!(said.len() == 1 && said[0].contains("acme/m1") && said[0].contains("spare/m2"), "{said:?}");
    assert_eq!(other.seen().last().expect("a call").body["model"], "m2");
}

#[tokio::test]
async fn the_other_model_is_not_used_for_other_failures_or_without_its_price() {
    let other = ScriptedProvider::start(vec![says("From the other.")]).await;
    for (status, limits, code) in [
        (401, TaskLimits::default(), ErrorCode::ProviderAuth),
        (503, TaskLimits { cost_usd: Some(1.0), ..TaskLimits::default() }, ErrorCode::ProviderUnavailable),
    ] {
        let broken =
            ScriptedProvider::start(vec![ScriptedReply::refusal(status, "").header("Retry-After", "61")]).await;
        let mut fixture = Fixture::new(&broken);
        fixture.config.providers.insert("spare".to_owned(), other.provider(ProviderApi::OpenAi));
        fixture.agent.fallback_model = Some("spare/m2".to_owned());
        fixture.limits = limits;
        let mut asked = fixture.run("x");
        asked.submit.prices = vec![protocol::ModelPrice { model: "acme/m1".to_owned(), ..Default::default() }];
        assert_eq!(error(run(asked).await).code, code);
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn people_are_asked_about_a_call_that_fails_five_times_and_the_model_reads_what_they_say() {
    let failing = || calls(&[("read_file", r#"{"path":"nowhere.txt"}"#)]);
    let endpoint = ScriptedProvider::start((0..5).map(|_| failing()).chain([says("Done.")]).collect()).await;
    let fixture = Fixture::new(&endpoint);
    let mut stubborn = fixture.run("x");
    Arc::make_mut(&mut stubborn.agent).max_steps = 9;
    let running = tokio::spawn(run(stubborn));
    let asked = fixture.question(1).await;
    assert_eq!(fixture.waits().pop().expect("it waits").cause, PauseCause::Input);
    assert_eq!(endpoint.seen().len(), 5, "no model is called while people are asked");
    let question = asked.question.clone().expect("a question");
    assert!(question.text.contains("nowhere.txt") && question.options.len() == 2, "{question:?}");
    fixture.respond(&asked, Decision::Answer, |word| word.answer = Some("Try it again".to_owned()));
    assert_eq!(result(ended(running).await).text, "Done.");
    let told = endpoint.seen()[5].body.to_string();
    assert!(told.contains("chose “Try it again”") && told.contains("failed 5 times"), "{told}");

    // Nobody can be asked about a task that began on this machine.
    let endpoint = ScriptedProvider::start((0..5).map(|_| failing()).chain([says("Done.")]).collect()).await;
    let fixture = Fixture::new(&endpoint);
    let mut local = fixture.run("x");
    local.local = true;
    Arc::make_mut(&mut local.agent).max_steps = 9;
    assert_eq!(result(run(local).await).text, "Done.");
    assert!(fixture.waits().is_empty());
}
