//! Whatever is killed, a run goes on by itself: what is done stays done, and what began twice shows as two attempts.

use board_tests::{
    Spawns, Viber,
    llm::Reply,
    seed::SeededRandom,
    wait::{EVENT_TIMEOUT, within},
};

use super::*;

crate::on_both_databases!(
    a_run_goes_on_whatever_is_killed,
    a_supervised_run_goes_on_whatever_is_killed,
    a_board_that_dies_before_it_dispatches_starts_a_step_once,
);

/// What a shaken run may take in all.
const LONG_TIMEOUT: Duration = EVENT_TIMEOUT.saturating_mul(4);
/// Steps that run side by side.
const WIDTH: u32 = 4;
/// Steps of a run, in rows of [`WIDTH`].
const STEPS: u32 = 12;

/// Two real vibers whose agents `echo` run the commands that their steps say.
struct Shaken {
    fixture: Fixture<Viber>,
    den: Viber,
    /// What commands began on each.
    spawns: [Spawns; 2],
    /// How often a daemon was killed.
    daemons_killed: u64,
}

/// Furnishes a machine.
fn furnish(viber: &Viber) {
    viber.write("config.yaml", "maxTasks: 10\n");
    let space = viber.space().display().to_string();
    let agent = format!("name: Echo\nmodel: echo/echo\nmode: always_execute\nspaces: [{space}]\ntools: [shell]\n");
    viber.write("agents/echo.yaml", &agent);
}

impl Shaken {
    async fn start(engine: Engine) -> Self {
        let fixture = Fixture::on(engine).owner().with_enrolled_viber().await;
        furnish(&fixture.viber);
        Self::beside(fixture.running().await).await
    }

    /// The same with this first viber.
    async fn beside(fixture: Fixture<Viber>) -> Self {
        let mut den = Viber::fresh("den");
        den.enrol(&fixture.board).await;
        furnish(&den);
        den.run();
        den.connected(&fixture.operator).await;
        let spawns = [Spawns::in_folder(&fixture.viber.space()), Spawns::in_folder(&den.space())];
        Self { fixture, den, spawns, daemons_killed: 0 }
    }

    /// Starts a run as written of steps in rows, every other one on the second viber.
    async fn run(&self) -> Value {
        let row_before = |n: u32| {
            let first = (n - 1) / WIDTH * WIDTH;
            let before: Vec<String> = (1..=first).skip_while(|m| m + WIDTH <= first).map(|m| m.to_string()).collect();
            if before.is_empty() { "none".to_owned() } else { before.join(", ") }
        };
        let steps: String = (1..=STEPS)
            .map(|n| {
                let there = n % 2 == 0;
                let command = self.spawns[usize::from(there)].command("sleep 1");
                let viber = if there { "   - Viber: den\n" } else { "" };
                format!("{n}. [echo] shell {command}\n   - After: {}\n   - Retry: 10\n{viber}", row_before(n))
            })
            .collect();
        self.fixture.viber.write("workspace/playbooks/release-feature.md", &playbook(&steps));
        start(&self.fixture, json!({})).await
    }

    /// Kills one of them, or several, and starts them again.
    async fn kill(&mut self, which: u64) {
        let operator = &self.fixture.operator;
        match which {
            0 => {
                self.fixture.board.kill9();
                self.fixture.board.restart().await;
            }
            1 => {
                self.fixture.viber.kill9();
                self.fixture.viber.run_again(operator).await;
            }
            2 => {
                self.den.kill9();
                self.den.run_again(operator).await;
            }
            _ => {
                self.fixture.board.kill9();
                self.fixture.viber.kill9();
                self.den.kill9();
                self.fixture.board.restart().await;
                self.fixture.viber.run();
                self.den.run();
            }
        }
        self.daemons_killed += [0, 1, 1, 2][usize::try_from(which).expect("small")];
        for viber in [&self.fixture.viber, &self.den] {
            viber.connected(&self.fixture.operator).await;
        }
    }

    /// A person has done again what failed too often; answers the run.
    async fn look_after(&self, run: &Value) -> Value {
        let now = run_now(&self.fixture.operator, run).await;
        for step in now["steps"].as_array().expect("steps") {
            if now["state"] == "running" && step["state"] == "failed" {
                let answer = act_on(&self.fixture.operator, run, id(step, "label"), json!({ "action": "retry" })).await;
                // It may go on by itself meanwhile.
                assert!(matches!(answer.status, 200 | 409), "{answer:#?}");
            }
        }
        now
    }

    /// Every step is done, and began as often as the run says.
    async fn check(&self, run: &Value) {
        let done = within(LONG_TIMEOUT, "the run is completed", async || {
            Some(self.look_after(run).await).filter(|run| run["state"] == "completed")
        })
        .await;
        let mut again = 0;
        for step in done["steps"].as_array().expect("steps") {
            assert_eq!(step["state"], "done", "{step:#}");
            let attempts = step["attempt"].as_u64().expect("a number");
            let task = id(step, "taskId");
            let begun: usize = self.spawns.iter().map(|spawns| spawns.begun(task)).sum();
            assert!((1..=attempts).contains(&(begun as u64)), "{attempts} attempts, {begun} commands: {step:#}");
            let task = self.fixture.operator.task(task).await;
            assert_eq!((&task["state"], &task["attempt"]), (&json!("completed"), &json!(attempts)), "{task:#}");
            again += attempts - 1;
        }
        let most = self.daemons_killed * u64::from(WIDTH);
        assert!(again <= most, "{again} steps began again, though {} daemons were killed", self.daemons_killed);
        assert_eq!(done["steps"].as_array().map(Vec::len), Some(STEPS as usize));
    }

    /// Nothing ran that no run has, and no attempt ran twice.
    async fn finish(&self, runs: &[Value]) {
        let mut known = Vec::new();
        for run in runs {
            self.check(run).await;
            let now = run_now(&self.fixture.operator, run).await;
            known.extend(now["steps"].as_array().expect("steps").iter().map(|step| id(step, "taskId").to_owned()));
            let file = self.fixture.viber.home().join(format!("workspace/playbooks/runs/{}.md", id(run, "id")));
            eventually("the ledger tells of the end", async || {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                text.contains("- State: completed").then_some(())
            })
            .await;
        }
        for spawns in &self.spawns {
            spawns.at_most_once();
            assert!(spawns.all().iter().all(|spawn| known.contains(&spawn.task)));
        }
        self.fixture.board.assert_invariants().await;
    }
}

/// A run of twelve steps in three rows, while everybody is killed at moments of chance.
async fn shaken(engine: Engine, kills: u32) {
    let mut seeded = SeededRandom::new();
    let mut shaken = Shaken::start(engine).await;
    let mut runs = vec![shaken.run().await];
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(seeded.between(100, 1_500))).await;
        // Who is quicker than the killing has the next one.
        if shaken.look_after(runs.last().expect("one")).await["state"] == "completed" {
            runs.push(shaken.run().await);
        }
        shaken.kill(seeded.between(0, 4)).await;
    }
    shaken.finish(&runs).await;
}

async fn a_run_goes_on_whatever_is_killed(engine: Engine) {
    shaken(engine, 6).await;
}

/// A supervisor that asks for the steps one after the other until each was told to be done, and then finishes.
fn supervising(body: &Value) -> Reply {
    let told = body["messages"].to_string();
    let open = ["1", "2", "3"].into_iter().find(|label| !told.contains(&format!("Step {label} is done.")));
    match open {
        Some(label) => Reply::call("run_step", json!({ "step": label })),
        None => Reply::call("finish", json!({ "summary": "Three shelves." })),
    }
}

async fn a_supervised_run_goes_on_whatever_is_killed(engine: Engine) {
    let fixture = Fixture::on(engine).owner().scripted_model([]).with_enrolled_viber().await;
    fixture.llm.answers(supervising);
    furnish(&fixture.viber);
    fixture.viber.write("config.yaml", &format!("maxTasks: 1\n{}", fixture.llm.config("openai")));
    let mut shaken = Shaken::beside(fixture.running().await).await;
    let steps: String = (1..=3)
        .map(|n| {
            let command = shaken.spawns[1].command("sleep 3");
            format!("{n}. [echo] shell {command}\n   - Viber: den\n   - Retry: 3\n")
        })
        .collect();
    shaken.fixture.viber.write("workspace/playbooks/release-feature.md", &playbook(&steps));
    let run = start(&shaken.fixture, json!({ "supervised": true })).await;
    // The supervisor's machine, the Board and the step's machine, each while a step runs.
    for (label, which) in [("1", 1), ("2", 0), ("3", 2)] {
        step_in(&shaken.fixture.operator, &run, label, "running").await;
        let has_begun = async || (shaken.spawns[1].all().len().to_string() == label).then_some(());
        eventually("its command runs", has_begun).await;
        shaken.kill(which).await;
    }
    let done = within(LONG_TIMEOUT, "the run is completed", async || {
        Some(run_now(&shaken.fixture.operator, &run).await).filter(|run| run["state"] == "completed")
    })
    .await;
    let attempts: Vec<_> = ["1", "2", "3"].map(|label| step(&done, label)["attempt"].clone()).into();
    assert_eq!(attempts, [1, 1, 2], "only what was broken was done again: {done:#}");
    assert_eq!(done["summary"], "Three shelves.");
    for spawns in &shaken.spawns {
        spawns.at_most_once();
    }
    assert_eq!(shaken.spawns[1].all().len(), 4);
    shaken.fixture.board.assert_invariants().await;
}

async fn a_board_that_dies_before_it_dispatches_starts_a_step_once(engine: Engine) {
    let mut fixture = with_playbook(engine, &playbook("1. [coder] One.\n2. [git] Two.\n   - After: none")).await;
    // Whichever change is the last: the run's, the steps', their tasks'.
    for commits in 1..=6 {
        let key = format!("k{commits}");
        let body = wanted(&fixture, json!({}));
        fixture.board.fail("db::after_commit", &format!("{commits}*off->1*return(crash)")).await;
        let request = fixture.operator.request(reqwest::Method::POST, RUNS).header("idempotency-key", &key);
        drop(fixture.operator.try_send(request.json(&body)).await);
        let crashed = fixture.board.ended().await;
        assert!(!crashed.success(), "it was to crash: {crashed}");
        fixture.board.heal().await;
        fixture.board.restart().await;
        fixture.viber.leave().await;
        fixture.viber.come_back().await;
        let again = eventually("an answer", async || {
            let answer = fixture.operator.post_once(&key, RUNS, &body).await;
            (answer.status == 201).then(|| answer.json())
        });
        let run = again.await;
        for job in Job::side_by_side(&fixture.viber, 2).await.into_values() {
            let of_run = job.submit.playbook.as_ref().map(|playbook| playbook.run_id.to_string());
            assert_eq!((of_run.as_deref(), job.submit.attempt), (run["id"].as_str(), 1));
            job.completes(&fixture.viber, "Done.").await;
        }
        assert_eq!(states(&run_in(&fixture.operator, &run, "completed").await), ["done", "done"]);
    }
    let tasks = fixture.operator.get("/api/v1/tasks?limit=200").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(12), "two a run");
    fixture.board.assert_invariants().await;
}

mod long {
    //! What takes a while.

    use super::*;

    crate::on_both_databases!(a_run_goes_on_though_thirty_times_somebody_is_killed);

    async fn a_run_goes_on_though_thirty_times_somebody_is_killed(engine: Engine) {
        shaken(engine, 30).await;
    }
}
