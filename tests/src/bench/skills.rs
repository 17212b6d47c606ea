//! Skills on a machine: 500 of them read and put into an agent's index, and what the call of one costs over the same command by
//! `shell`.

use std::{path::Path, sync::Arc, time::Instant};

use daemon_agent::{
    artifacts::Collector,
    clock::Clock,
    config::{Agent, ConfigSnapshot, Variables},
    home::Home,
    report::Sink,
    skills::{Skills, SkillsPrompt},
    tools::{ToolContext, Toolbox},
    workspace::Workspace,
};
use protocol::{SessionId, TaskId};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Scale,
    load::Latencies,
    proc::{Boards, Watch},
    report::{Bound, Measured},
};
use crate::programs::program;

/// Skills of the agent.
const SKILLS: usize = 500;
/// Files beside the script that is called, of 10 KiB each.
const FILES_BESIDE: usize = 20;

/// A home whose agent `a` has all skills, and works in a space beside it.
struct SkillHome {
    folder: tempfile::TempDir,
    home: Home,
}

impl SkillHome {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        let space = folder.path().join("space");
        std::fs::create_dir(&space).expect("a folder");
        let agent = format!("model: demo/tour\nskills: [\"*\"]\nspaces: [{}]\n", space.display());
        write(&home.agents().join("a.yaml"), &agent);
        Self { folder, home }
    }

    /// The skills as a daemon that starts reads them, with its agent.
    fn read(&self) -> (Skills, Arc<ConfigSnapshot>, Arc<Agent>) {
        let variables = Variables::of_process();
        let files = Arc::new(ConfigSnapshot::read(&self.home, &variables));
        let agent = files.agent("a").expect("there").expect("good");
        let receiver = watch::channel(files.clone()).1;
        (Skills::open(&self.home, variables, receiver), files, agent)
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, text).expect("a file");
}

/// What the tools of an agent work with, as in the first attempt of a task.
pub(super) fn tool_context(home: &Home, files: &ConfigSnapshot, agent: Arc<Agent>) -> ToolContext {
    let (stop, clock) = (CancellationToken::new(), Clock::system());
    let (sink, task_id) = (Sink::new(|_| async {}), TaskId::new(clock.now().millis()));
    ToolContext {
        home: home.clone(),
        workspace: Workspace::open(home),
        agent,
        config: files.config.clone(),
        collector: Collector::new(home.clone(), task_id.clone(), clock, sink.clone(), &stop),
        task_id,
        attempt: 1,
        sink,
        stop,
    }
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    vec![scanned(scale), called(scale).await]
}

fn scanned(scale: Scale) -> Measured {
    let place = SkillHome::new();
    for n in 0..SKILLS {
        let folder = place.home.skills().join(format!("skill-{n:03}"));
        let about = "Collects what was merged since the last release, and writes notes that people like to read.";
        let body = "Look at the log, then write.\n".repeat(60);
        write(&folder.join("SKILL.md"), &format!("---\nname: skill-{n:03}\ndescription: {about}\n---\n{body}"));
        write(&folder.join("scripts/collect.sh"), &format!("#!/bin/sh\necho {n}\n"));
    }
    let runs = scale.count(20, 5);
    let (watch, mut scans, mut tokens) = (Watch::machine(), Latencies::default(), 0);
    for _ in 0..runs {
        let began = Instant::now();
        let (skills, _, agent) = place.read();
        scans.push(began.elapsed());
        let offered = skills.of(&agent);
        assert_eq!(offered.instructions().count(), SKILLS, "all are offered");
        tokens = SkillsPrompt::of(&offered, &[]).items.iter().map(|(_, tokens)| tokens).sum::<u64>();
    }
    Measured::new("500 skills of an agent", "scan", runs, Boards::default().spent(&watch))
        .figure("read from nothing, p50", scans.ms(50.0), "ms", Bound::AtMost(300.0))
        .figure("slowest", scans.ms(100.0), "ms", None)
        .figure("index in a prompt", tokens as f64, "tokens", Bound::AtMost(2_100.0))
}

async fn called(scale: Scale) -> Measured {
    let place = SkillHome::new();
    // In a space: its files and their copy are looked at before each call.
    let folder = place.folder.path().join("space/.agents/skills/nothing");
    let text = "---\nname: nothing\ndescription: Does nothing\nparameters: { word: {} }\n---\n```sh\ntrue\n```\n";
    write(&folder.join("SKILL.md"), text);
    for n in 0..FILES_BESIDE {
        write(&folder.join(format!("data/{n}.txt")), &format!("{n:010}").repeat(1_024));
    }
    let (skills, files, agent) = place.read();
    let found = skills.to_review("nothing", None).expect("there");
    skills.accept("nothing", &found.digest).expect("accepted");
    skills.rescan().await;
    let (context, clock) = (tool_context(&place.home, &files, agent), Clock::system());
    let session = SessionId::new(clock.now().millis());
    let tools = Toolbox::new(context).with_hold(program("daemon-agent")).with_skills(skills, session, clock);
    let runs = scale.count(200, 30);
    let (watch, mut shell, mut skill) = (Watch::machine(), Latencies::default(), Latencies::default());
    // In turn, so that whatever else the machine does slows both.
    for n in 0..runs {
        for (name, args, times) in
            [("shell", json!({ "command": "true" }), &mut shell), ("nothing", json!({ "word": "owl" }), &mut skill)]
        {
            let began = Instant::now();
            let done = tools.call(&format!("{name}-{n}"), name, &args, None).await;
            times.push(began.elapsed());
            assert!(done.ok, "{name}: {}", done.result);
        }
    }
    Measured::new("a `true` as a skill", "pair of calls", runs, Boards::default().spent(&watch))
        .figure("over the same by shell, p50", skill.ms(50.0) - shell.ms(50.0), "ms", Bound::AtMost(30.0))
        .figure("skill, p50", skill.ms(50.0), "ms", None)
        .figure("skill, p95", skill.ms(95.0), "ms", None)
        .figure("shell, p50", shell.ms(50.0), "ms", None)
}
