//! Work of a connection besides recording events. One piece of work runs at a time; pieces of the same kind that wait are
//! merged into one.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    pin::Pin,
    time::Duration,
};

use protocol::{AttemptRef, EditId, NumberedCommand, ViberState, WorkspaceWritten};

use super::compose;
use crate::{
    actions::{
        file_reports,
        reconcile::{self, AttemptVerdict, LastSeen},
    },
    domain::{Connection, FileReport},
    error::{Error, Result},
    state::Board,
};

/// File reports that may wait. More are dropped: the Board asks for a file when somebody looks at it.
const MAX_PENDING_FILES: usize = 10_000;

/// Work that the database could not do for now is retried after this time.
pub const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Work in progress.
pub type BoxedWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The work that waits, at most one piece of each kind.
#[derive(Debug, Default)]
pub struct PendingWork {
    waiting: BTreeMap<Kind, Pending>,
}

/// The kinds of work, in the order in which they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Acked,
    Lists,
    Claims,
    Settle,
    Written,
    Heard,
    Commands,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
pub enum Pending {
    /// The daemon has commands up to this number on disk.
    Acked(u64),
    /// The lists that the daemon reports: agents, skills, jobs …
    Lists(Box<ViberState>),
    /// Attempts that the daemon names and the connection does not know.
    Claims(Vec<AttemptRef>),
    /// Attempts that the daemon no longer has.
    Settle(Vec<AttemptRef>),
    /// The outcomes of edits of files.
    Written(Vec<WorkspaceWritten>),
    /// Reports of changed files, by path.
    Heard(BTreeMap<String, FileReport>),
    /// There may be new commands.
    Commands,
}

/// The outcome of a piece of work.
pub enum WorkOutcome {
    /// There is nothing to send.
    Nothing,
    /// These commands are to be sent.
    Commands(Vec<NumberedCommand>),
    /// The outcomes of these edits are stored, and are to be acknowledged.
    Written(Vec<EditId>),
    /// The database was unavailable: the work is to be retried.
    Retry(Pending),
}

impl PendingWork {
    /// Adds work that is newer than all that waits.
    pub fn add(&mut self, newer: Pending) {
        match self.waiting.entry(newer.kind()) {
            Entry::Vacant(place) => {
                place.insert(newer);
            }
            Entry::Occupied(mut older) => older.get_mut().merge(newer),
        }
    }

    /// Puts back work that has to be retried. What was added meanwhile is newer and takes precedence.
    pub fn restore(&mut self, older: Pending) {
        let kind = older.kind();
        let merged = match self.waiting.remove(&kind) {
            Some(newer) => older.followed_by(newer),
            None => older,
        };
        self.waiting.insert(kind, merged);
    }

    /// Takes the acknowledged commands, to be stored in a change that is made anyway.
    pub fn take_acked(&mut self) -> Option<u64> {
        match self.waiting.remove(&Kind::Acked) {
            Some(Pending::Acked(cmd_seq)) => Some(cmd_seq),
            _ => None,
        }
    }

    /// Starts the next piece of work, if there is one. Commands are composed after number `sent`, the last one that was
    /// sent, and only when the send queue has room for them.
    pub fn next(
        &mut self,
        board: &Board,
        connection: &Connection,
        sent: u64,
        has_room: bool,
    ) -> Option<BoxedWork<WorkOutcome>> {
        let work = self.take(has_room)?;
        let (board, own) = (board.clone(), connection.clone());
        Some(Box::pin(async move {
            match work.carry_out(&board, &own, sent).await {
                Ok(outcome) => outcome,
                Err(Error::Unavailable { .. } | Error::Conflict { .. }) => {
                    tokio::time::sleep(RETRY_AFTER).await;
                    WorkOutcome::Retry(work)
                }
                Err(error) => {
                    tracing::error!(%error, "something that a viber reported could not be stored");
                    WorkOutcome::Nothing
                }
            }
        }))
    }

    fn take(&mut self, has_room: bool) -> Option<Pending> {
        let first = self.waiting.first_entry()?;
        (has_room || *first.key() != Kind::Commands).then(|| first.remove())
    }
}

impl Pending {
    /// The report of one changed file.
    pub fn heard(report: FileReport) -> Self {
        Self::Heard(BTreeMap::from([(report.path.clone(), report)]))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Acked(_) => Kind::Acked,
            Self::Lists(_) => Kind::Lists,
            Self::Claims(_) => Kind::Claims,
            Self::Settle(_) => Kind::Settle,
            Self::Written(_) => Kind::Written,
            Self::Heard(_) => Kind::Heard,
            Self::Commands => Kind::Commands,
        }
    }

    /// Merges newer work of the same kind into this. File reports beyond [`MAX_PENDING_FILES`] are dropped.
    fn merge(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Acked(cmd_seq), Self::Acked(newer)) => *cmd_seq = newer.max(*cmd_seq),
            (Self::Lists(lists), Self::Lists(newer)) => replace(lists, *newer),
            (Self::Claims(all), Self::Claims(newer)) | (Self::Settle(all), Self::Settle(newer)) => all.extend(newer),
            (Self::Written(all), Self::Written(newer)) => all.extend(newer),
            (Self::Heard(all), Self::Heard(newer)) => {
                for (path, report) in newer {
                    if all.len() < MAX_PENDING_FILES || all.contains_key(&path) {
                        all.insert(path, report);
                    }
                }
            }
            // Commands are read from the database when it is their turn; two kinds are never merged.
            _ => {}
        }
    }

    /// The same for work that has to be retried. No newer file report is dropped: older ones fill the room that is left.
    fn followed_by(mut self, newer: Self) -> Self {
        match (&mut self, newer) {
            (Self::Heard(older), Self::Heard(mut newer)) => {
                for (path, report) in std::mem::take(older) {
                    if newer.len() < MAX_PENDING_FILES {
                        newer.entry(path).or_insert(report);
                    }
                }
                *older = newer;
            }
            (older, newer) => older.merge(newer),
        }
        self
    }

    async fn carry_out(&self, board: &Board, own: &Connection, sent: u64) -> Result<WorkOutcome> {
        match self {
            Self::Acked(cmd_seq) => reconcile::ack_commands(board, own, *cmd_seq).await?,
            Self::Lists(lists) => reconcile::lists(board, own, lists).await?,
            Self::Claims(claims) => reconcile::claims(board, own, claims).await?,
            Self::Settle(lost) => {
                let seen = LastSeen { team: &own.team, viber: &own.viber, epoch: own.epoch };
                reconcile::settle(board, seen, lost, AttemptVerdict::DaemonRestarted).await?;
            }
            Self::Written(written) => {
                file_reports::written(board, own, written).await?;
                return Ok(WorkOutcome::Written(written.iter().map(|one| one.edit_id.clone()).collect()));
            }
            Self::Heard(heard) => file_reports::heard(board, own, heard.values().cloned().collect()).await?,
            Self::Commands => return Ok(WorkOutcome::Commands(compose::next(board, own, sent).await?)),
        }
        Ok(WorkOutcome::Nothing)
    }
}

/// Replaces each list that the newer report contains; the others stay.
fn replace(lists: &mut ViberState, newer: ViberState) {
    let ViberState { agents, skills, jobs, providers, damage, confinement } = newer;
    lists.agents = agents.or(lists.agents.take());
    lists.skills = skills.or(lists.skills.take());
    lists.jobs = jobs.or(lists.jobs.take());
    lists.providers = providers.or(lists.providers.take());
    lists.damage = damage.or(lists.damage.take());
    lists.confinement = confinement.or(lists.confinement.take());
}

#[cfg(test)]
mod tests {
    use protocol::AgentInfo;

    use super::*;

    const TASK: &str = "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3";

    fn running(attempt: u32) -> AttemptRef {
        AttemptRef { task_id: TASK.parse().expect("an id"), attempt }
    }

    fn file(path: &str, size: u64) -> Pending {
        Pending::heard(FileReport { path: path.into(), hash: None, size, mtime: None, by: "file".into() })
    }

    fn agents(names: &[&str]) -> Option<Vec<AgentInfo>> {
        Some(names.iter().map(|name| AgentInfo { name: (*name).into(), ..AgentInfo::default() }).collect())
    }

    /// All work that waits, in the order in which it is done.
    fn all(mut pending: PendingWork) -> Vec<Pending> {
        std::iter::from_fn(|| pending.take(true)).collect()
    }

    #[test]
    fn each_kind_has_its_turn_and_commands_wait_for_room() {
        let mut pending = PendingWork::default();
        pending.add(Pending::Commands);
        assert_eq!(pending.take(false), None);
        pending.add(file("a", 1));
        pending.add(Pending::Written(Vec::new()));
        pending.add(Pending::Settle(vec![running(1)]));
        pending.add(Pending::Claims(vec![running(2)]));
        pending.add(Pending::Lists(Box::default()));
        pending.add(Pending::Acked(1));
        let order: Vec<Kind> = std::iter::from_fn(|| pending.take(false)).map(|work| work.kind()).collect();
        assert_eq!(order, [Kind::Acked, Kind::Lists, Kind::Claims, Kind::Settle, Kind::Written, Kind::Heard]);
        assert_eq!(all(pending), [Pending::Commands]);
    }

    #[test]
    fn what_waits_merges_with_its_like() {
        let mut pending = PendingWork::default();
        for cmd_seq in [3, 7, 5] {
            pending.add(Pending::Acked(cmd_seq));
        }
        pending.add(Pending::Lists(Box::new(ViberState { agents: agents(&["a"]), ..ViberState::default() })));
        let damage = Some(Vec::new());
        pending.add(Pending::Lists(Box::new(ViberState { damage: damage.clone(), ..ViberState::default() })));
        pending.add(Pending::Lists(Box::new(ViberState { agents: agents(&["b"]), ..ViberState::default() })));
        pending.add(Pending::Claims(vec![running(1)]));
        pending.add(Pending::Settle(vec![running(2)]));
        pending.add(Pending::Claims(vec![running(3)]));
        pending.add(Pending::Commands);
        pending.add(Pending::Commands);
        let lists = ViberState { agents: agents(&["b"]), damage, ..ViberState::default() };
        let expected = [
            Pending::Acked(7),
            Pending::Lists(Box::new(lists)),
            Pending::Claims(vec![running(1), running(3)]),
            Pending::Settle(vec![running(2)]),
            Pending::Commands,
        ];
        assert_eq!(all(pending), expected);
    }

    #[test]
    fn what_is_put_back_lies_below_what_came_meanwhile() {
        let mut pending = PendingWork::default();
        pending.restore(Pending::Commands);
        pending.add(Pending::Acked(7));
        pending.restore(Pending::Acked(5));
        pending.add(Pending::Settle(vec![running(2)]));
        pending.restore(Pending::Settle(vec![running(1)]));
        pending.add(file("a", 2));
        let mut older = file("a", 1);
        older.merge(file("b", 1));
        pending.restore(older);
        let mut newest = file("a", 2);
        newest.merge(file("b", 1));
        let expected = [Pending::Acked(7), Pending::Settle(vec![running(1), running(2)]), newest, Pending::Commands];
        assert_eq!(all(pending), expected);
    }

    #[test]
    fn the_newest_of_a_file_counts_and_too_many_files_are_left_out() {
        let mut pending = PendingWork::default();
        for n in 0..MAX_PENDING_FILES + 2 {
            pending.add(file(&n.to_string(), 1));
        }
        pending.add(file("7", 2));
        let [Pending::Heard(heard)] = &all(pending)[..] else { panic!("one kind waits") };
        assert_eq!((heard.len(), heard["7"].size, heard["8"].size), (MAX_PENDING_FILES, 2, 1));
        assert!(!heard.contains_key(&MAX_PENDING_FILES.to_string()));
    }

    #[test]
    fn newer_reports_stay_when_older_ones_fill_the_queue() {
        let mut older = file("0", 1);
        (1..MAX_PENDING_FILES).for_each(|n| older.merge(file(&n.to_string(), 1)));
        let mut pending = PendingWork::default();
        pending.add(file("new", 2));
        pending.add(file("7", 2));
        pending.restore(older);
        let [Pending::Heard(heard)] = &all(pending)[..] else { panic!("one kind waits") };
        assert_eq!((heard.len(), heard["new"].size, heard["7"].size, heard["8"].size), (MAX_PENDING_FILES, 2, 2, 1));
    }

    #[test]
    fn acks_go_with_a_change_that_is_made_anyway() {
        let mut pending = PendingWork::default();
        assert_eq!(pending.take_acked(), None);
        pending.add(Pending::Acked(2));
        pending.add(Pending::Commands);
        assert_eq!((pending.take_acked(), pending.take_acked()), (Some(2), None));
        assert_eq!(all(pending), [Pending::Commands]);
    }
}
