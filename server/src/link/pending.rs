//! Work of a connection besides recording events. One piece of work runs at a time; pieces of the same kind that wait are
//! merged into one. What is reported about files stays in order: the report of a file and the outcome of an edit that moved
//! it mean different things one after the other.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    pin::Pin,
    time::Duration,
};

use protocol::{AttemptRef, CommandDone, NumberedCommand, ToDaemon, ViberState, WorkspaceWritten};

use super::compose;
use crate::{
    actions::{
        file_reports, orders,
        reconcile::{self, AttemptVerdict, LastSeen},
    },
    domain::{Connection, FileReport},
    error::{Error, Result},
    state::Board,
};

/// File reports that may wait. More are dropped: the Board asks for a file when somebody looks at it.
const MAX_PENDING_FILES: usize = 10_000;
/// Turns of reports and outcomes that may wait: no daemon takes that many turns, and each of them costs a look.
const MAX_PENDING_TURNS: usize = 200;

/// Outcomes of commands that may wait.
const MAX_PENDING_DONE: usize = 1_000;

/// Work that the database could not do for now is retried after this time.
pub const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Work in progress.
pub type BoxedWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The work that waits.
#[derive(Debug, Default)]
pub struct PendingWork {
    /// At most one piece of each kind besides files.
    waiting: BTreeMap<Kind, Pending>,
    /// What was reported about files, the oldest first. Neighbours are of two kinds.
    files: VecDeque<Pending>,
}

/// The kinds of work, in the order in which they are done. The two about files have one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Acked,
    Lists,
    Done,
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
    /// How commands ended that have an outcome of their own. The lists come before: whoever waits for it reads them next.
    Done(Vec<CommandDone>),
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
    /// Outcomes are stored, which this acknowledges.
    Stored(ToDaemon),
    /// The database was unavailable: the work is to be retried.
    Retry(Pending),
}

impl PendingWork {
    /// Adds work that is newer than all that waits.
    pub fn add(&mut self, newer: Pending) {
        match newer.kind() {
            Kind::Written | Kind::Heard => self.add_about_files(newer),
            kind => match self.waiting.entry(kind) {
                Entry::Vacant(place) => {
                    place.insert(newer);
                }
                Entry::Occupied(mut older) => older.get_mut().merge(newer),
            },
        }
    }

    /// Puts back work that has to be retried. What was added meanwhile is newer and takes precedence.
    pub fn restore(&mut self, mut older: Pending) {
        match older.kind() {
            Kind::Written | Kind::Heard => self.restore_about_files(older),
            kind => {
                if let Some(newer) = self.waiting.remove(&kind) {
                    older.merge(newer);
                }
                self.waiting.insert(kind, older);
            }
        }
    }

    /// Adds an outcome or reports. Of a file only the newest report waits.
    fn add_about_files(&mut self, newer: Pending) {
        if let Pending::Heard(reports) = &newer {
            for older in self.reports_mut() {
                reports.keys().for_each(|path| drop(older.remove(path)));
            }
        }
        let (room, turns) = (self.room_for_reports(), self.files.len());
        match (self.files.back_mut(), newer) {
            (Some(Pending::Written(all)), Pending::Written(newer)) => all.extend(newer),
            (Some(Pending::Heard(all)), Pending::Heard(newer)) => all.extend(newer.into_iter().take(room)),
            (_, Pending::Heard(_)) if room == 0 || turns >= MAX_PENDING_TURNS => {}
            (_, Pending::Heard(newer)) => self.files.push_back(Pending::Heard(newer.into_iter().take(room).collect())),
            (_, newer) => self.files.push_back(newer),
        }
    }

    fn restore_about_files(&mut self, mut older: Pending) {
        if let Pending::Heard(reports) = &mut older {
            for newer in self.reports_mut() {
                reports.retain(|path, _| !newer.contains_key(path));
            }
        }
        let room = self.room_for_reports();
        match (self.files.front_mut(), older) {
            (Some(Pending::Written(all)), Pending::Written(older)) => drop(all.splice(..0, older)),
            (Some(Pending::Heard(all)), Pending::Heard(older)) => all.extend(older.into_iter().take(room)),
            (_, Pending::Heard(older)) => self.files.push_front(Pending::Heard(older.into_iter().take(room).collect())),
            (_, older) => self.files.push_front(older),
        }
    }

    fn reports_mut(&mut self) -> impl Iterator<Item = &mut BTreeMap<String, FileReport>> {
        self.files.iter_mut().filter_map(|one| if let Pending::Heard(reports) = one { Some(reports) } else { None })
    }

    /// How many more file reports may wait.
    fn room_for_reports(&self) -> usize {
        let waiting = self.files.iter().map(|one| if let Pending::Heard(reports) = one { reports.len() } else { 0 });
        MAX_PENDING_FILES.saturating_sub(waiting.sum())
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
        match self.waiting.first_entry() {
            Some(first) if *first.key() < Kind::Written => Some(first.remove()),
            _ if !self.files.is_empty() => self.files.pop_front(),
            Some(commands) if has_room => Some(commands.remove()),
            _ => None,
        }
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
            Self::Done(_) => Kind::Done,
            Self::Claims(_) => Kind::Claims,
            Self::Settle(_) => Kind::Settle,
            Self::Written(_) => Kind::Written,
            Self::Heard(_) => Kind::Heard,
            Self::Commands => Kind::Commands,
        }
    }

    /// Merges newer work of the same kind into this.
    fn merge(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Acked(cmd_seq), Self::Acked(newer)) => *cmd_seq = newer.max(*cmd_seq),
            (Self::Lists(lists), Self::Lists(newer)) => replace(lists, *newer),
            // Dropped ones come again with the next connection.
            (Self::Done(all), Self::Done(newer)) => {
                let room = MAX_PENDING_DONE.saturating_sub(all.len());
                all.extend(newer.into_iter().take(room));
            }
            (Self::Claims(all), Self::Claims(newer)) | (Self::Settle(all), Self::Settle(newer)) => all.extend(newer),
            // Commands are read from the database when it is their turn; two kinds are never merged, and what is about
            // files has its own queue.
            _ => {}
        }
    }

    async fn carry_out(&self, board: &Board, own: &Connection, sent: u64) -> Result<WorkOutcome> {
        match self {
            Self::Acked(cmd_seq) => reconcile::ack_commands(board, own, *cmd_seq).await?,
            Self::Lists(lists) => reconcile::lists(board, own, lists).await?,
            Self::Done(all) => {
                orders::done(board, own, all).await?;
                let cmd_seqs = all.iter().map(|one| one.cmd_seq).collect();
                return Ok(WorkOutcome::Stored(ToDaemon::AckDone { cmd_seqs }));
            }
            Self::Claims(claims) => reconcile::claims(board, own, claims).await?,
            Self::Settle(lost) => {
                let seen = LastSeen { team: &own.team, viber: &own.viber, epoch: own.epoch };
                reconcile::settle(board, seen, lost, AttemptVerdict::DaemonRestarted).await?;
            }
            Self::Written(written) => {
                file_reports::written(board, own, written).await?;
                let edit_ids = written.iter().map(|one| one.edit_id.clone()).collect();
                return Ok(WorkOutcome::Stored(ToDaemon::AckWritten { edit_ids }));
            }
            Self::Heard(heard) => file_reports::heard(board, own, heard.values().cloned().collect()).await?,
            Self::Commands => return Ok(WorkOutcome::Commands(compose::next(board, own, sent).await?)),
        }
        Ok(WorkOutcome::Nothing)
    }
}

/// Replaces each list that the newer report contains; the others stay.
fn replace(lists: &mut ViberState, newer: ViberState) {
    let ViberState { agents, skills, jobs, providers, mcp, damage, confinement, adapters } = newer;
    lists.agents = agents.or(lists.agents.take());
    lists.skills = skills.or(lists.skills.take());
    lists.jobs = jobs.or(lists.jobs.take());
    lists.providers = providers.or(lists.providers.take());
    lists.mcp = mcp.or(lists.mcp.take());
    lists.damage = damage.or(lists.damage.take());
    lists.confinement = confinement.or(lists.confinement.take());
    lists.adapters = adapters.or(lists.adapters.take());
}

#[cfg(test)]
mod tests {
    use protocol::{AgentInfo, WriteState};

    use super::*;

    const TASK: &str = "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3";

    fn running(attempt: u32) -> AttemptRef {
        AttemptRef { task_id: TASK.parse().expect("an id"), attempt }
    }

    fn files(sizes: &[(&str, u64)]) -> Pending {
        let report =
            |path: &str, size| FileReport { path: path.into(), hash: None, size, mtime: None, by: "file".into() };
        Pending::Heard(sizes.iter().map(|(path, size)| ((*path).to_owned(), report(path, *size))).collect())
    }

    fn file(path: &str, size: u64) -> Pending {
        files(&[(path, size)])
    }

    fn written(n: u8) -> Pending {
        let edit_id = format!("edt_0192d1c7a0f07a3cb1f0c6f8d1f1a2{n:02}").parse().expect("an id");
        let path = "a".to_owned();
        Pending::Written(vec![WorkspaceWritten { edit_id, path, state: WriteState::Applied, hash: None, reason: None }])
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
        pending.add(written(1));
        pending.add(file("a", 1));
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
        pending.restore(files(&[("a", 1), ("b", 1)]));
        let newest = files(&[("a", 2), ("b", 1)]);
        let expected = [Pending::Acked(7), Pending::Settle(vec![running(1), running(2)]), newest, Pending::Commands];
        assert_eq!(all(pending), expected);
    }

    /// A file that was reported before it was moved is not there again afterwards.
    #[test]
    fn reports_and_outcomes_of_edits_stay_in_order() {
        let mut pending = PendingWork::default();
        for newer in [file("a", 1), file("b", 1), written(1), written(2), file("a", 2), file("a", 3), written(3)] {
            pending.add(newer);
        }
        let first = pending.take(true).expect("reports");
        assert_eq!(first, file("b", 1), "of a file only the newest report waits");
        pending.restore(first.clone());
        assert_eq!(pending.take(true), Some(first));
        let two = pending.take(true).expect("outcomes");
        pending.restore(two.clone());
        let all = all(pending);
        assert_eq!(all[1..], [file("a", 3), written(3)]);
        let (Pending::Written(two), Pending::Written(first)) = (&all[0], &written(1)) else { panic!("{all:?}") };
        assert_eq!((two.len(), &two[0]), (2, &first[0]));
    }

    #[test]
    fn outcomes_between_reports_make_no_room_for_more() {
        let mut pending = PendingWork::default();
        (0..MAX_PENDING_FILES - 1).for_each(|n| pending.add(file(&n.to_string(), 1)));
        for more in [written(1), file("x", 1), written(2), file("y", 1), file("x", 2)] {
            pending.add(more);
        }
        pending.restore(file("z", 1));
        let reports =
            all(pending).into_iter().filter_map(|one| if let Pending::Heard(all) = one { Some(all) } else { None });
        let after: Vec<_> = reports.skip(1).flatten().map(|(path, report)| (path, report.size)).collect();
        assert_eq!(after, [("x".to_owned(), 2)]);
    }

    #[test]
    fn reports_and_outcomes_in_turns_do_not_pile_up() {
        let mut pending = PendingWork::default();
        for n in 0..MAX_PENDING_TURNS {
            pending.add(written(1));
            pending.add(file(&n.to_string(), 1));
        }
        let all = all(pending);
        assert_eq!(all.len(), MAX_PENDING_TURNS + 1);
        let outcomes = all.iter().map(|one| if let Pending::Written(some) = one { some.len() } else { 0 });
        assert_eq!(outcomes.sum::<usize>(), MAX_PENDING_TURNS, "no outcome is dropped");
        assert_eq!(all[MAX_PENDING_TURNS - 1], file(&(MAX_PENDING_TURNS / 2 - 1).to_string(), 1));
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
        let mut before = PendingWork::default();
        (0..MAX_PENDING_FILES).for_each(|n| before.add(file(&n.to_string(), 1)));
        let older = before.take(true).expect("all of them");
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
