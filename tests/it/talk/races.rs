//! Races: what is said against the end, a stop against the end, and two people against each other and the agent. However
//! they end, a task has one end, and a message too.

use std::time::Duration;

use board_tests::{fake_daemon::Heard, seed::SeededRandom};
use protocol::{Command, ToDaemon};

use super::*;

crate::on_both_databases!(
    what_is_said_as_the_task_ends_is_told_once,
    a_stop_as_the_task_ends_leaves_one_end,
    two_people_and_the_agent_agree_about_a_message,
);

/// Races of each kind in the ordinary suite.
const RACES: u64 = 60;
/// The longest that one side begins after the other, microseconds.
const MAX_HEAD_START_US: u64 = 4000;

async fn what_is_said_as_the_task_ends_is_told_once(engine: Engine) {
    steer_against_end(engine, RACES).await;
}

async fn a_stop_as_the_task_ends_leaves_one_end(engine: Engine) {
    stop_against_end(engine, RACES).await;
}

/// The next command, as the viber's disk has it.
async fn command(viber: &mut FakeDaemon) -> Command {
    loop {
        if let Heard::Frame(ToDaemon::Command(numbered)) = viber.next().await {
            viber.ack_command(numbered.cmd_seq).await;
            return numbered.command;
        }
    }
}

/// The next task; what is said to one that is over does not reach anybody.
async fn next_task(viber: &mut FakeDaemon) -> TaskSubmit {
    loop {
        match command(viber).await {
            Command::Submit(submit) => return *submit,
            Command::Message(_) | Command::Stop { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Ends a task after a while, and tells its agent before what had come by then, as an inbox does. Returns how much that was.
async fn end_after(viber: &mut FakeDaemon, submit: &TaskSubmit, wait: Duration) -> usize {
    let mut told = Vec::new();
    let waiting = tokio::time::sleep(wait);
    tokio::pin!(waiting);
    loop {
        tokio::select! {
            biased;
            heard = viber.next() => match heard {
                Heard::Frame(ToDaemon::Command(numbered)) => {
                    viber.ack_command(numbered.cmd_seq).await;
                    if let Command::Message(message) = numbered.command {
                        told.push(state_of(&message, "consumed", Some(2)));
                    }
                }
                Heard::Frame(_) => {}
                Heard::Closed { code, reason } => panic!("{code} {reason}"),
            },
            () = &mut waiting => break,
        }
    }
    let count = told.len();
    told.push(completed("done"));
    viber.report_unacked(&submit.task_id, submit.attempt, 3, told).await;
    count
}

async fn steer_against_end(engine: Engine, races: u64) {
    let (mut fixture, task, first) = talking(engine).await;
    fixture.viber.report(&first.task_id, 1, 4, vec![completed("begun")]).await;
    let session = id(&task, "sessionId").to_owned();
    let mut random = SeededRandom::new();
    let (mut running, mut told, mut tasks) = (None, 0, 0);
    for n in 0..races {
        let submit = match running.take() {
            Some(submit) => submit,
            None => {
                fixture.operator.follow_up(&task, "go on").await;
                next_task(&mut fixture.viber).await
            }
        };
        fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
        let mut head_start = || Duration::from_micros(random.between(0, MAX_HEAD_START_US));
        let (speaks, ends) = (head_start(), head_start());
        let (operator, viber) = (&fixture.operator, &mut fixture.viber);
        let body = json!({ "content": format!("steer {n}"), "injectionMode": "steer" });
        let path = format!("/api/v1/sessions/{session}/messages");
        let say = async {
            tokio::time::sleep(speaks).await;
            operator.post(&path, &body).await
        };
        let (answer, heard) = tokio::join!(say, end_after(viber, &submit, ends));
        assert!([201, 202].contains(&answer.status), "{} {}", answer.status, answer.body);
        if heard > 0 {
            assert_eq!((heard, answer.status), (1, 202));
            fixture.viber.acked(&submit.task_id, 1, 4).await;
            told += 1;
        } else {
            let next = next_task(&mut fixture.viber).await;
            assert_eq!(next.goal, format!("steer {n}"), "it is the next task, and nothing is before it");
            tasks += 1;
            running = Some(next);
        }
    }
    assert_eq!(told + tasks, races);
    let rows = |what: &str| fixture.board.sql_text(format!("UPDATE task_messages SET place = place WHERE {what}"));
    assert_eq!(rows("state <> 'consumed'").await, 0, "every message has one end");
    assert_eq!(rows("next_task_id IS NULL AND event_seq IS NULL").await, 0, "its agent was told, or it is a task");
    assert_eq!(rows("next_task_id IS NOT NULL AND event_seq IS NOT NULL").await, 0, "not both");
    assert_eq!(rows("event_seq IS NOT NULL").await, told);
    let tasks_of = "UPDATE tasks SET goal = goal WHERE goal LIKE 'steer %'";
    assert_eq!(fixture.board.sql(tasks_of).await, tasks, "none of them twice");
    fixture.board.assert_invariants().await;
}

async fn stop_against_end(engine: Engine, races: u64) {
    let (mut fixture, task, first) = talking(engine).await;
    fixture.viber.report(&first.task_id, 1, 4, vec![completed("begun")]).await;
    let session = id(&task, "sessionId").to_owned();
    let mut random = SeededRandom::new();
    let (mut completed_ones, mut stopped_ones) = (0, 0);
    for n in 0..races {
        fixture.operator.follow_up(&task, "go on").await;
        let submit = next_task(&mut fixture.viber).await;
        fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
        let body = json!({ "content": format!("left {n}") });
        let message = fixture.operator.post(&format!("/api/v1/sessions/{session}/messages"), &body).await.expect(202);
        fixture.viber.told().await;
        let mut head_start = || Duration::from_micros(random.between(0, MAX_HEAD_START_US));
        let (stops, ends) = (head_start(), head_start());
        let (operator, viber) = (&fixture.operator, &mut fixture.viber);
        let path = format!("/api/v1/tasks/{}/stop", submit.task_id);
        let stop = async {
            tokio::time::sleep(stops).await;
            operator.post(&path, &json!({})).await.expect(200).json()
        };
        let end = async {
            tokio::time::sleep(ends).await;
            viber.report_unacked(&submit.task_id, 1, 3, vec![completed("done")]).await;
        };
        let (answer, ()) = tokio::join!(stop, end);
        match answer["state"].as_str() {
            Some("completed") => {
                completed_ones += 1;
                let next = next_task(&mut fixture.viber).await;
                assert_eq!(next.goal, format!("left {n}"));
                fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
            }
            Some("stopped") => {
                stopped_ones += 1;
                fixture.viber.acked(&submit.task_id, 1, 3).await;
                let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&message.json(), "id"));
                let discarded = fixture.operator.delete(&path).await.expect(200).json();
                assert_eq!(discarded["state"], "discarded", "it was held");
            }
            other => panic!("{other:?}"),
        }
        let end = fixture.operator.get(&format!("/api/v1/tasks/{}", submit.task_id)).await.expect(200).json();
        assert_eq!(end["state"], answer["state"], "one end, whatever came after it");
    }
    assert_eq!(completed_ones + stopped_ones, races);
    let rows = |what: &str| fixture.board.sql_text(format!("UPDATE task_messages SET place = place WHERE {what}"));
    assert_eq!(rows("state = 'consumed' AND next_task_id IS NOT NULL").await, completed_ones);
    assert_eq!(rows("state = 'discarded'").await, stopped_ones);
    fixture.board.assert_invariants().await;
}

/// Plays the viber: has each version that comes, and tells the agent the newest after a few of them. Ends with `over`.
async fn listen(
    viber: &mut FakeDaemon,
    (submit, message): (&TaskSubmit, &str),
    seq: &mut u64,
    tells_after: u64,
    over: impl Future,
) {
    tokio::pin!(over);
    let (mut versions, mut is_over) = (0, false);
    loop {
        let heard = tokio::select! {
            biased;
            heard = viber.next() => heard,
            _ = &mut over => return,
        };
        let Heard::Frame(ToDaemon::Command(numbered)) = heard else { continue };
        viber.ack_command(numbered.cmd_seq).await;
        let Command::Message(version) = numbered.command else { panic!("{:?}", numbered.command) };
        // What was told or taken back changes no more.
        if is_over || version.message_id.as_str() != message {
            continue;
        }
        versions += 1;
        let state = if version.withdrawn {
            "withdrawn"
        } else if versions > tells_after {
            "consumed"
        } else {
            "delivered"
        };
        is_over = state != "delivered";
        viber.report_unacked(&submit.task_id, 1, *seq, vec![state_of(&version, state, Some(2))]).await;
        *seq += 1;
    }
}

async fn two_people_and_the_agent_agree_about_a_message(engine: Engine) {
    let (mut fixture, task, submit) = talking(engine).await;
    let other = fixture.board.token("home", "operator").await;
    let mut random = SeededRandom::new();
    let (mut seq, mut ends) = (4, std::collections::BTreeMap::new());
    for n in 0..20 {
        let message = say(&fixture, &task, &format!("first {n}"), "followup").await.expect(202).json();
        let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&message, "id"));
        let tells_after = random.between(0, 5);
        let mut wait = || Duration::from_micros(random.between(0, MAX_HEAD_START_US));
        let waits = [wait(), wait(), wait()];
        let (operator, other, viber) = (&fixture.operator, &other, &mut fixture.viber);
        let (edit, steer) = (json!({ "content": format!("second {n}") }), json!({ "injectionMode": "steer" }));
        let people = async {
            tokio::join!(
                async {
                    tokio::time::sleep(waits[0]).await;
                    operator.patch(&path, &edit).await
                },
                async {
                    tokio::time::sleep(waits[1]).await;
                    other.patch(&path, &steer).await
                },
                async {
                    tokio::time::sleep(waits[2]).await;
                    other.delete(&path).await
                },
            )
        };
        let (said_it, hears_it) = tokio::sync::oneshot::channel();
        let acts = async {
            let answers = people.await;
            let _ = said_it.send(());
            answers
        };
        let ((edited, steered, gone), ()) =
            tokio::join!(acts, listen(viber, (&submit, id(&message, "id")), &mut seq, tells_after, hears_it));
        fixture.viber.report(&submit.task_id, 1, seq, vec![text(".")]).await;
        seq += 1;
        let all = said(&fixture, &task).await;
        let of = |key: &str, id: &Value| all.iter().find(|one| one[key] == *id).cloned().unwrap_or_default();
        let end = of("id", &message["id"]);
        let state = end["state"].as_str().expect("a state").to_owned();
        for (name, answer) in [("edit", &edited), ("steer", &steered), ("delete", &gone)] {
            assert!([200, 202, 409].contains(&answer.status), "{name}: {} {}", answer.status, answer.body);
        }
        match state.as_str() {
            "withdrawn" => assert_ne!(gone.status, 409, "{}", gone.body),
            "consumed" => assert!(gone.status == 409 || gone.status == 202, "{}", gone.body),
            other => panic!("{other}: {edited:?} {steered:?} {gone:?}"),
        }
        if edited.status == 200 && state == "consumed" {
            assert_eq!(end["content"], format!("second {n}"), "what is certain was told");
        }
        // Words that came too late are held once, and nowhere else.
        let late = of("lateFor", &message["id"]);
        if late.is_object() {
            assert_eq!((&late["content"], end["content"].as_str()), (&edit["content"], Some(&*format!("first {n}"))));
            let path = format!("/api/v1/tasks/{}/messages/{}", submit.task_id, id(&late, "id"));
            fixture.operator.delete(&path).await.expect(200);
        }
        *ends.entry(state).or_insert(0) += 1;
    }
    assert_eq!(ends.values().sum::<u32>(), 20, "{ends:?}");
    fixture.board.assert_invariants().await;
}

mod long {
    //! The same by the thousand.

    use super::*;

    crate::on_both_databases!(a_thousand_steers_race_against_the_end, a_thousand_stops_race_against_the_end);

    async fn a_thousand_steers_race_against_the_end(engine: Engine) {
        steer_against_end(engine, 1000).await;
    }

    async fn a_thousand_stops_race_against_the_end(engine: Engine) {
        stop_against_end(engine, 1000).await;
    }
}
