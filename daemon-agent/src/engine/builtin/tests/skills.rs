//! Skills in the requests of an attempt: what was loaded stays, what changed takes the place of what was there.

use protocol::InjectionPoint;

use super::{
    messages::{idle_loop, is_text, message},
    planning::PLANNING_PROMPT,
    *,
};
use crate::config::Variables;

const RELEASE: &str = "---\nname: release\ndescription: How releases are made\n---\nAsk the owl first.\n";

fn write(fixture: &Fixture, name: &str, text: &str) {
    let folder = fixture.home.skills().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("SKILL.md"), text).expect("a skill");
}

/// The skills of the fixture's home as they are now.
fn take_up(fixture: &mut Fixture) {
    let files = ConfigSnapshot { config: Arc::default(), agents: Default::default(), error: None };
    let files = tokio::sync::watch::channel(Arc::new(files)).1;
    fixture.skills = Skills::open(&fixture.home, Variables::default(), files);
    fixture.agent.skills = vec!["*".to_owned()];
}

#[tokio::test]
async fn a_loaded_skill_is_not_shortened_to_make_room() {
    let reads = (0..30).map(|n| calls(&[("read_file", &json!({ "path": format!("{n}.txt") }).to_string())]));
    let script = [calls(&[("load_skill", r#"{"name":"release"}"#)])].into_iter().chain(reads).chain([says("Done.")]);
    let endpoint = ScriptedProvider::start(script.collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.agent.context_window, fixture.agent.max_steps) = (Some(32_768), 100);
    write(&fixture, "release", RELEASE);
    take_up(&mut fixture);
    for n in 0..30 {
        let text: String =
            (0..800).map(|line| format!("file {n}, line {line}, and what else stands in it\n")).collect();
        std::fs::write(fixture.home.workspace().join(format!("{n}.txt")), text).expect("written");
    }
    result(run(fixture.run("Read everything")).await);
    let last = endpoint.seen()[31].body["messages"].as_array().expect("messages").clone();
    let shortened = last.iter().filter(|message| message["content"].to_string().contains("callId")).count();
    assert!(shortened > 5, "other results became lines");
    let loaded = last.iter().find(|message| message["role"] == "tool").expect("the first result");
    assert!(loaded["content"].as_str().is_some_and(|text| text.contains("Ask the owl first.")), "{loaded:#}");
}

#[tokio::test]
async fn a_message_that_names_a_skill_loads_it_before_the_next_call() {
    for mode in [InjectionPoint::Followup, InjectionPoint::Steer] {
        let endpoint = ScriptedProvider::start(vec![says("One."), says("Two."), says("Three.")]).await;
        let mut fixture = Fixture::new(&endpoint);
        write(&fixture, "release", RELEASE);
        take_up(&mut fixture);
        fixture.say_at(message("/release the next one", 1, mode), is_text);
        result(run(fixture.run("Hello")).await);
        let system = |request: usize| {
            let messages = endpoint.seen()[request].body["messages"].clone();
            messages[0]["content"].as_str().expect("a system prompt").to_owned()
        };
        assert!(!system(0).contains("Ask the owl first."), "{}", system(0));
        assert_eq!(system(1).matches("Ask the owl first.").count(), 1, "{mode:?}: {}", system(1));
        let (role, said) = endpoint.conversation(1).pop().expect("a message");
        assert!(role == "user" && said.contains("/release the next one"), "{said}");
    }
}

#[tokio::test]
async fn what_the_prompt_says_of_skills_is_replaced_in_its_place() {
    let endpoint = ScriptedProvider::start(vec![says("never asked")]).await;
    let mut fixture = Fixture::new(&endpoint);
    write(&fixture, "release", RELEASE);
    take_up(&mut fixture);
    let mut agent_loop = idle_loop(&fixture).await;
    agent_loop.request.system = "The rules.\n".to_owned();
    agent_loop.plan_first(Planning::default());
    agent_loop.take_up_skills();
    let system = |agent_loop: &AgentLoop| agent_loop.request.system.clone();
    let first = system(&agent_loop);
    assert!(first.starts_with("The rules.\n") && first.ends_with(PLANNING_PROMPT), "{first}");
    assert!(first.contains("- release: How releases are made") && !first.contains("Ask the owl"), "{first}");
    let tools: Vec<_> = agent_loop.request.tools.iter().map(|tool| &*tool.name).collect();
    assert!(tools.contains(&"load_skill") && !tools.contains(&"shell"), "{tools:?}");

    // The conversation begins anew: what the session has loaded goes into the prompt.
    let session = agent_loop.run.submit.session_id.clone();
    fixture.skills.remember_loaded(&session, "release");
    agent_loop.recall_loaded_skills().await;
    let second = system(&agent_loop);
    assert_eq!((second.matches("Ask the owl").count(), second.matches("<skills>").count()), (1, 1), "{second}");
    assert!(second.ends_with(PLANNING_PROMPT));

    std::fs::remove_dir_all(fixture.home.skills()).expect("removed");
    take_up(&mut fixture);
    agent_loop.run.skills = fixture.skills.clone();
    agent_loop.tools = Toolbox::new(ToolContext {
        home: fixture.home.clone(),
        workspace: agent_loop.run.memory.workspace(),
        agent: agent_loop.run.agent.clone(),
        config: agent_loop.run.config.clone(),
        task_id: fixture.task.clone(),
        attempt: 1,
        sink: agent_loop.run.sink.clone(),
        collector: agent_loop.run.collector.clone(),
        stop: fixture.stop.clone(),
    })
    .with_skills(fixture.skills.clone(), session, Clock::system());
    agent_loop.take_up_skills();
    assert_eq!(system(&agent_loop), format!("The rules.\n{PLANNING_PROMPT}"));
}
