//! A viber that keeps what is not acknowledged, and comes back whenever the Board does: what its disk would hold is its
//! memory here.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::time::MissedTickBehavior;

use super::Ledger;
use crate::bench::{
    http::ConnectionError,
    link::{self, Link, Seen},
    stage::EnrolledViber,
};

/// Events of a task; the last one is its result.
const EVENTS: u64 = 120;
const TICK: Duration = Duration::from_millis(50);
/// Events that a task reports in a tick.
const IN_A_TICK: u64 = 5;
/// The step of the first reconnect, and the longest (the protocol's jitter is not needed for ten).
const FIRST_STEP: Duration = Duration::from_millis(250);
const LONGEST_STEP: Duration = Duration::from_secs(4);
/// Nothing else comes when the clients are done for so long.
const QUIET: Duration = Duration::from_secs(2);

/// An attempt that runs here.
#[derive(Debug, Default)]
struct RunningAttempt {
    attempt: u32,
    /// The last event that was made, and the last that is durable.
    made: u64,
    acked: u64,
}

struct SimulatedViber {
    enrolled: EnrolledViber,
    ledger: Arc<Ledger>,
    last_cmd: u64,
    plays: HashMap<String, RunningAttempt>,
    /// When it last heard of a task.
    busy: Instant,
}

/// The event of every task with this seq.
pub(super) fn event(seq: u64) -> String {
    match seq {
        1 => link::accepted(seq),
        2 => link::started(seq),
        EVENTS => link::completed(seq, "survived"),
        _ => link::text(seq, "still here "),
    }
}

/// Plays until it is over and nothing is left to do.
pub(super) async fn play(host: String, enrolled: EnrolledViber, ledger: Arc<Ledger>) {
    let mut player = SimulatedViber { enrolled, ledger, last_cmd: 0, plays: HashMap::new(), busy: Instant::now() };
    let mut step = FIRST_STEP;
    loop {
        match player.connect(&host).await {
            Ok(mut link) => {
                step = FIRST_STEP;
                player.ledger.back.fetch_add(1, Ordering::Relaxed);
                if player.talk(&mut link).await.is_ok() {
                    return;
                }
            }
            Err(_) => step = (step * 2).min(LONGEST_STEP),
        }
        tokio::time::sleep(step).await;
    }
}

impl SimulatedViber {
    async fn connect(&mut self, host: &str) -> Result<Link, ConnectionError> {
        let mut running = Vec::new();
        let mut outbox = Vec::new();
        for (task, RunningAttempt { attempt, made, acked }) in &self.plays {
            if *made < EVENTS {
                running.push(format!(r#"{{"taskId":"{task}","attempt":{attempt}}}"#));
            }
            if acked < made {
                let first = acked + 1;
                outbox
                    .push(format!(r#"{{"taskId":"{task}","attempt":{attempt},"firstSeq":{first},"lastSeq":{made}}}"#));
            }
        }
        let (last, running, outbox) = (self.last_cmd, running.join(","), outbox.join(","));
        let more = format!(r#""lastCmdSeq":{last},"running":[{running}],"outbox":[{outbox}]"#);
        let (mut link, welcome) = Link::dial(host, &self.enrolled, &more).await?;
        for fence in &welcome.fence {
            let fenced = self.plays.get(&fence.task_id).is_some_and(|play| play.attempt < fence.min_attempt);
            if fenced {
                self.plays.remove(&fence.task_id);
            }
        }
        for ack in &welcome.acked {
            self.acked(&ack.task_id, ack.attempt, ack.seq);
            if let Some(play) = self.plays.get(&ack.task_id).filter(|play| play.acked > ack.seq) {
                self.ledger.taken_back.fetch_add(play.acked - ack.seq, Ordering::Relaxed);
            }
        }
        for (task, play) in &self.plays {
            if play.acked < play.made {
                let items: Vec<String> = (play.acked + 1..=play.made).map(event).collect();
                link.send(link::events(task, play.attempt, play.acked + 1, &items)).await?;
            }
        }
        Ok(link)
    }

    /// Ends well when it is over and nothing is left to do.
    async fn talk(&mut self, link: &mut Link) -> Result<(), ConnectionError> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                seen = link.next() => self.heard(link, &seen?).await?,
                _ = tick.tick() => {
                    for (task, play) in &mut self.plays {
                        let from = play.made + 1;
                        play.made = (play.made + IN_A_TICK).min(EVENTS);
                        if from <= play.made {
                            let items: Vec<String> = (from..=play.made).map(event).collect();
                            link.send(link::events(task, play.attempt, from, &items)).await?;
                        }
                    }
                    let over = self.ledger.over.load(Ordering::Relaxed);
                    if over && self.plays.is_empty() && self.busy.elapsed() > QUIET {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn heard(&mut self, link: &mut Link, seen: &Seen) -> Result<(), ConnectionError> {
        match seen.kind.as_str() {
            "task:submit" => {
                self.busy = Instant::now();
                if seen.cmd_seq > self.last_cmd {
                    self.last_cmd = seen.cmd_seq;
                    self.plays.insert(
                        seen.task_id.clone(),
                        RunningAttempt { attempt: seen.attempt, ..RunningAttempt::default() },
                    );
                }
                link.send(link::ack_command(self.last_cmd)).await
            }
            "ack:events" => {
                for ack in &seen.acks {
                    self.acked(&ack.task_id, ack.attempt, ack.seq);
                }
                Ok(())
            }
            "nack" => {
                let Some(play) = self.plays.get_mut(&seen.task_id) else { return Ok(()) };
                self.ledger.taken_back.fetch_add((play.acked + 1).saturating_sub(seen.expect), Ordering::Relaxed);
                let items: Vec<String> = (seen.expect..=play.made).map(event).collect();
                link.send(link::events(&seen.task_id, play.attempt, seen.expect, &items)).await
            }
            "error" => Err(ConnectionError(format!("refused: {}", seen.code))),
            _ => Ok(()),
        }
    }

    /// Durable up to `seq`: written into the ledger, and forgotten when it is the end.
    fn acked(&mut self, task: &str, attempt: u32, seq: u64) {
        let Some(play) = self.plays.get_mut(task).filter(|play| play.attempt == attempt) else { return };
        play.acked = play.acked.max(seq);
        let mut acked = self.ledger.acked.lock().expect("not poisoned");
        let last = acked.entry((task.to_owned(), attempt)).or_default();
        *last = (*last).max(seq);
        if play.acked == EVENTS {
            self.plays.remove(task);
        }
    }
}
