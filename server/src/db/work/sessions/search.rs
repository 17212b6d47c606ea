//! Finding sessions by a part of their title.
//!
//! The newest sessions are read one by one, which ends soon for a word that many titles have. What is rarer is found by an
//! index of trigrams: FTS5 on SQLite, GIN on PostgreSQL. Writing either costs more than much of a new session, and many
//! titles at once cost little more than one. So titles are added later (`index_titles`): a trigger notes what is not
//! indexed yet, and a search reads that as well. Whatever the index finds is compared with the title. When that would be
//! very many titles, some thousands of sessions are read one by one instead, and the next page goes on behind them.
//!
//! The same way a list is narrowed to an agent, a person or a state: what few sessions have is found by an index.

use protocol::{Instant, OperatorId, SessionId, TeamId, limits::MAX_TITLE_CHARS};

use super::{SessionFilter, line, start};
use crate::{
    args,
    db::{Arg, DbError, TeamTx, fold, pattern},
    domain::{SessionLine, SessionState},
};

/// Longest title that a person may give, characters. One that is taken from a goal is shorter.
pub const MAX_GIVEN_TITLE_CHARS: usize = 2 * MAX_TITLE_CHARS;
/// Longest title as it is compared, characters: in lower case one character becomes two at most.
const MAX_FOLDED_TITLE_CHARS: usize = 2 * MAX_GIVEN_TITLE_CHARS;
/// Sessions that a search reads one by one before it turns to the index.
const WALKED_SESSIONS: u64 = 500;
/// How many times as many it reads when that promises to fill the page, or when the index does not help.
const LONG_WALK_FACTOR: usize = 8;
const MAX_WALKED_SESSIONS: u64 = WALKED_SESSIONS * LONG_WALK_FACTOR as u64;
/// Sessions that the index may leave to be read, those that are not in it yet included.
const MAX_CANDIDATES: u64 = 20_000;
/// The same for those of a person, an agent or a state: their rows are read, not only their titles.
const MAX_NARROWED_CANDIDATES: u64 = 2_000;
/// Sessions that are read one by one when each one's tasks have to be looked at.
const MAX_WALKED_STATES: u64 = 1_000;
/// Characters of a trigram.
const TRIGRAM_CHARS: usize = 3;
/// Trigrams that cover what the index is asked for, the beginning of a long text: what it finds is compared with the title
/// anyway.
const MAX_ASKED_TRIGRAMS: usize = 16;
/// Titles that are added to the index in one change.
const TITLES_PER_CHANGE: u64 = 20;
/// Pages of SQLite's index that are merged in the same change, about twice what one needs. The migration says why.
const MERGED_PAGES_PER_CHANGE: u64 = 16;

/// A page of what a search finds.
#[derive(Debug)]
pub struct FoundSessions {
    pub lines: Vec<SessionLine>,
    /// Where the search goes on: behind the last line, or behind the last session that was read when not every session
    /// was. Then a page may hold less than its limit, or nothing, and have a next one.
    pub next: Option<(Instant, SessionId)>,
}

/// What is looked for, and who looks.
#[derive(Clone, Copy, Debug)]
pub struct TitleSearch<'a> {
    pub reader: Option<&'a OperatorId>,
    pub filter: &'a SessionFilter,
    pub title: &'a str,
}

/// Sessions whose title contains the one asked for in any case, the most recently active first: see [`super::list`]. Every title
/// contains the empty one.
pub async fn search(
    tx: &mut TeamTx<'_>,
    asked: TitleSearch<'_>,
    cursor: Option<(Instant, &SessionId)>,
    limit: usize,
) -> Result<FoundSessions, DbError> {
    let TitleSearch { reader, filter, title } = asked;
    let title = fold(title);
    let chars = title.chars().count();
    if chars > MAX_FOLDED_TITLE_CHARS {
        return Ok(FoundSessions { lines: Vec::new(), next: None });
    }
    let sources = Source::of(filter, chars >= TRIGRAM_CHARS);
    // One more line says that there is a next page.
    let page = TitlePage { reader, filter, title: &title, start: start(cursor), limit: limit as u64 + 1 };
    let longest = if filter.state.is_some() { MAX_WALKED_STATES } else { MAX_WALKED_SESSIONS };
    let sessions = if sources.is_empty() { longest } else { WALKED_SESSIONS };
    let (mut lines, mut horizon) = page.walk(tx, sessions).await?;
    if !sources.is_empty() && horizon.is_some() && lines.len() <= limit {
        let is_promising = lines.len() >= (limit / LONG_WALK_FACTOR).max(1);
        if is_promising {
            (lines, horizon) = page.walk(tx, longest).await?;
        }
        if horizon.is_some() && lines.len() <= limit {
            match page.narrow(tx, &sources).await? {
                Some(source) => (lines, horizon) = (page.by_index(tx, source).await?, None),
                None if !is_promising => (lines, horizon) = page.walk(tx, longest).await?,
                None => {}
            }
        }
    }
    let next = if lines.len() > limit {
        lines.truncate(limit);
        lines.last().map(|last| (last.session.active_at, last.session.id.clone()))
    } else {
        horizon
    };
    Ok(FoundSessions { lines, next })
}

/// An index that finds what few sessions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Source {
    Title,
    /// Sessions with a task in one of these states.
    Tasks([&'static str; 2]),
    Person,
    Agent,
}

impl Source {
    /// Those that a search may use, the best one first.
    fn of(filter: &SessionFilter, has_trigrams: bool) -> Vec<Self> {
        let state = match filter.state {
            Some(SessionState::Waiting | SessionState::Working) => Some(Self::Tasks(["pending", "running"])),
            Some(SessionState::Error) => Some(Self::Tasks(["error", "error"])),
            Some(SessionState::Stopped) => Some(Self::Tasks(["stopped", "stopped"])),
            // Most sessions are completed; what is unread is among the newest.
            Some(SessionState::Completed | SessionState::Unread) | None => None,
        };
        let person = filter.person.as_ref().map(|_| Self::Person);
        let agent = filter.agent.as_ref().map(|_| Self::Agent);
        has_trigrams.then_some(Self::Title).into_iter().chain(state).chain(person).chain(agent).collect()
    }
}

/// What a page of a search asks for.
struct TitlePage<'a> {
    reader: Option<&'a OperatorId>,
    filter: &'a SessionFilter,
    /// Folded.
    title: &'a str,
    start: (i64, &'a str),
    limit: u64,
}

impl TitlePage<'_> {
    /// The last of the next `sessions` sessions, whatever their titles are; `None` when there are no more.
    async fn horizon(&self, tx: &mut TeamTx<'_>, sessions: u64) -> Result<Option<(Instant, SessionId)>, DbError> {
        macro_rules! page {
            ($archived:literal, $viber:literal) => {
                concat!(
                    "SELECT s.active_at, s.session_id FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL \
                     AND s.archived_at ",
                    $archived,
                    $viber,
                    " AND (s.active_at, s.session_id) < ($2, $3) ORDER BY s.active_at DESC, s.session_id DESC \
                     LIMIT 2 OFFSET $4 + 0"
                )
            };
        }
        let filter = self.filter;
        let sql = filtered!(filter, page, " AND s.viber_id = $5");
        match tx.rows(sql, &self.with_viber(args![self.start.0, self.start.1, sessions - 1])).await?.as_slice() {
            [last, _behind] => Ok(Some((last.instant("active_at")?, last.parse("session_id")?))),
            _ => Ok(None),
        }
    }

    /// What is found in the next `sessions` sessions, and the last of them when there are more.
    async fn walk(
        &self,
        tx: &mut TeamTx<'_>,
        sessions: u64,
    ) -> Result<(Vec<SessionLine>, Option<(Instant, SessionId)>), DbError> {
        let filter = self.filter;
        let mut args = if filter.is_narrow() { filter.args(self.reader) } else { vec![Arg::from(self.reader)] };
        // Every session has the empty title: nothing is read in vain, unless the list is narrowed.
        let horizon =
            if self.title.is_empty() && !filter.is_narrow() { None } else { self.horizon(tx, sessions).await? };
        let end = horizon.as_ref().map_or((i64::MIN, ""), |(at, id)| (at.0, id.as_str()));
        let rest = args![self.start.0, self.start.1, end.0, end.1, pattern(self.title), self.limit];
        args.extend(rest.iter().cloned());
        let lines = tx.rows(walk_sql(filter), &self.with_viber(&args)).await?;
        let lines = lines.iter().map(line).collect::<Result<_, _>>()?;
        Ok((lines, horizon))
    }

    /// The first of the indexes that leaves few enough sessions to be read.
    async fn narrow(&self, tx: &mut TeamTx<'_>, sources: &[Source]) -> Result<Option<Source>, DbError> {
        for source in sources {
            if self.has_few_candidates(tx, *source).await? {
                return Ok(Some(*source));
            }
        }
        Ok(None)
    }

    /// Whether the sessions that an index finds, and those that are not in it yet, are few enough to be read. They are
    /// counted without the rest of the filter and their place, which the index does not know.
    async fn has_few_candidates(&self, tx: &mut TeamTx<'_>, source: Source) -> Result<bool, DbError> {
        let sql = match source {
            Source::Title if tx.is_sqlite() => {
                "SELECT COUNT(*) AS n FROM (SELECT g.rowid FROM session_title_trigrams g \
                 WHERE g.session_title_trigrams MATCH $2 AND g.rowid BETWEEN $3 AND $3 + 4294967295 \
                 UNION ALL SELECT 1 FROM unindexed_titles u WHERE u.team_id = $1 LIMIT $4 + 0) c"
            }
            // Materialized, it is planned as if all were wanted: for so few, PostgreSQL may prefer to read the titles.
            Source::Title => {
                "SELECT COUNT(*) AS n FROM (WITH f AS MATERIALIZED (SELECT t.session_id FROM session_titles t \
                 WHERE t.team_id = $1 AND title_trigrams(t.team_id, t.title) @> title_trigrams($1, $2)) \
                 SELECT f.session_id FROM f UNION ALL SELECT u.session_id FROM unindexed_titles u WHERE u.team_id = $1 \
                 LIMIT $3 + 0) c"
            }
            Source::Tasks(_) => {
                "SELECT COUNT(*) AS n FROM (SELECT 1 FROM tasks x WHERE x.team_id = $1 AND x.state IN ($2, $3) \
                 AND x.state <> 'completed' LIMIT $4 + 0) c"
            }
            Source::Person => {
                "SELECT COUNT(*) AS n FROM (SELECT 1 FROM sessions s WHERE s.team_id = $1 AND s.created_by = $2 \
                 LIMIT $3 + 0) c"
            }
            Source::Agent => {
                "SELECT COUNT(*) AS n FROM (SELECT 1 FROM sessions s WHERE s.team_id = $1 AND s.agent_id = $2 \
                 LIMIT $3 + 0) c"
            }
        };
        let mut args = self.asked_of_index(tx, source);
        let most = if source == Source::Title { MAX_CANDIDATES } else { MAX_NARROWED_CANDIDATES };
        args.push(Arg::from(most + 1));
        let count = tx.row(sql, &args).await?.map(|row| row.count("n")).transpose()?;
        Ok(count.is_some_and(|count| count <= most))
    }

    /// What is found by an index, and among the titles that are not in it yet.
    async fn by_index(&self, tx: &mut TeamTx<'_>, source: Source) -> Result<Vec<SessionLine>, DbError> {
        let (filter, sql) = (self.filter, index_sql(self.filter, source, tx.is_sqlite()));
        let rest = args![self.start.0, self.start.1, pattern(self.title), self.limit];
        let mut args = filter.args(self.reader);
        args.extend(rest.iter().cloned());
        args.extend(self.asked_of_index(tx, source));
        tx.rows(sql, &self.with_viber(&args)).await?.iter().map(line).collect()
    }

    /// Parameters that say what the index is asked for.
    fn asked_of_index(&self, tx: &TeamTx<'_>, source: Source) -> Vec<Arg> {
        match source {
            Source::Title if tx.is_sqlite() => {
                vec![Arg::from(trigram_query(self.title)), Arg::from(before_first_number(&tx.team))]
            }
            Source::Title => {
                vec![Arg::from(self.title.chars().take(MAX_ASKED_TRIGRAMS * TRIGRAM_CHARS).collect::<String>())]
            }
            Source::Tasks(states) => states.map(Arg::from).to_vec(),
            Source::Person => vec![Arg::from(self.filter.person.clone())],
            Source::Agent => vec![Arg::from(self.filter.agent.clone())],
        }
    }

    /// Parameters with the filter's viber after them, when it has one.
    fn with_viber(&self, args: &[Arg]) -> Vec<Arg> {
        args.iter().cloned().chain(self.filter.viber.as_ref().map(Arg::from)).collect()
    }
}

/// The statement of [`TitlePage::walk`]. Its range is a `BETWEEN`, less what is too much at both ends: with two bounds by pairs
/// SQLite, which has no statistics, reads all sessions of the team to find those of a viber.
pub(in crate::db) fn walk_sql(filter: &SessionFilter) -> &'static str {
    macro_rules! plain {
        ($archived:literal, $viber:literal) => {
            lines!(
                "SELECT * FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL AND s.archived_at ",
                $archived,
                $viber,
                " AND s.active_at BETWEEN $5 AND $3 AND NOT (s.active_at = $3 AND s.session_id >= $4) \
                 AND NOT (s.active_at = $5 AND s.session_id < $6) AND s.title_folded LIKE $7 ESCAPE '!' \
                 ORDER BY s.active_at DESC, s.session_id DESC LIMIT $8 + 0"
            )
        };
    }
    macro_rules! narrow {
        ($archived:literal, $viber:literal) => {
            lines!(
                "SELECT * FROM sessions s WHERE s.team_id = $1 AND s.deleted_at IS NULL AND s.archived_at ",
                $archived,
                $viber,
                " AND s.active_at BETWEEN $8 AND $6 AND NOT (s.active_at = $6 AND s.session_id >= $7) \
                 AND NOT (s.active_at = $8 AND s.session_id < $9) AND s.title_folded LIKE $10 ESCAPE '!'",
                wanted!(),
                " ORDER BY s.active_at DESC, s.session_id DESC LIMIT $11 + 0"
            )
        };
    }
    match filter.is_narrow() {
        true => filtered!(filter, narrow, " AND s.viber_id = $12"),
        false => filtered!(filter, plain, " AND s.viber_id = $9"),
    }
}

/// The statement of [`TitlePage::by_index`].
pub(in crate::db) fn index_sql(filter: &SessionFilter, source: Source, is_sqlite: bool) -> &'static str {
    // `CROSS JOIN` lets SQLite begin with what was found. Only keys are sorted, whole rows are read of one page.
    macro_rules! page {
        ($found:literal, $archived:literal, $viber:literal) => {
            lines!(
                "SELECT s.* FROM (SELECT s.session_id FROM (",
                $found,
                ") f CROSS JOIN sessions s \
                 WHERE s.team_id = $1 AND s.session_id = f.session_id AND s.deleted_at IS NULL AND s.archived_at ",
                $archived,
                $viber,
                " AND (s.active_at, s.session_id) < ($6, $7) AND s.title_folded LIKE $8 ESCAPE '!'",
                wanted!(),
                " ORDER BY s.active_at DESC, s.session_id DESC LIMIT $9 + 0) k CROSS JOIN sessions s \
                 WHERE s.team_id = $1 AND s.session_id = k.session_id"
            )
        };
    }
    macro_rules! found_by {
        ($name:ident, $found:literal) => {
            macro_rules! $name {
                ($archived:literal, $viber:literal) => {
                    page!($found, $archived, $viber)
                };
            }
        };
    }
    found_by!(
        sqlite,
        "SELECT t.session_id FROM session_title_trigrams g CROSS JOIN session_titles t ON t.title_id = g.rowid \
         WHERE g.session_title_trigrams MATCH $10 AND g.rowid BETWEEN $11 AND $11 + 4294967295 AND t.team_id = $1 \
         UNION SELECT u.session_id FROM unindexed_titles u WHERE u.team_id = $1"
    );
    found_by!(
        postgres,
        "SELECT t.session_id FROM session_titles t WHERE t.team_id = $1 \
         AND title_trigrams(t.team_id, t.title) @> title_trigrams($1, $10) \
         UNION SELECT u.session_id FROM unindexed_titles u WHERE u.team_id = $1"
    );
    found_by!(
        tasks,
        // `|| ''`: otherwise SQLite reads all tasks in the order of their sessions, to see equal ones together.
        "SELECT DISTINCT x.session_id || '' AS session_id FROM tasks x WHERE x.team_id = $1 AND x.state IN ($10, $11) \
         AND x.state <> 'completed'"
    );
    found_by!(person, "SELECT x.session_id FROM sessions x WHERE x.team_id = $1 AND x.created_by = $10");
    found_by!(agent, "SELECT x.session_id FROM sessions x WHERE x.team_id = $1 AND x.agent_id = $10");
    match source {
        Source::Title if is_sqlite => filtered!(filter, sqlite, " AND s.viber_id = $12"),
        Source::Title => filtered!(filter, postgres, " AND s.viber_id = $11"),
        Source::Tasks(_) => filtered!(filter, tasks, " AND s.viber_id = $12"),
        Source::Person => filtered!(filter, person, " AND s.viber_id = $11"),
        Source::Agent => filtered!(filter, agent, " AND s.viber_id = $11"),
    }
}

/// What FTS5 is asked for: trigrams that cover `folded`, one behind the other and the last one.
fn trigram_query(folded: &str) -> String {
    let chars: Vec<char> = folded.chars().collect();
    let last = chars.len().saturating_sub(TRIGRAM_CHARS);
    let covering = (0..last).step_by(TRIGRAM_CHARS).chain([last]).take(MAX_ASKED_TRIGRAMS);
    let trigram = |at: usize| chars.iter().skip(at).take(TRIGRAM_CHARS).collect::<String>();
    let quoted = covering.map(|at| format!("\"{}\"", trigram(at).replace('"', "\"\"")));
    quoted.collect::<Vec<_>>().join(" AND ")
}

/// The number before those of a team's titles or texts in an index: they lie together there, so that searching them does
/// not read what other teams have. Two teams may share their numbers, which costs time and shows nothing.
pub(in crate::db) fn before_first_number(team: &TeamId) -> i64 {
    // FNV-1a, of which 31 bits leave 32 for the titles: no number is negative.
    let hash = team
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    i64::from(u32::try_from(hash >> 33).unwrap_or_default()) << 32
}

/// Adds some of a team's titles to the index.
pub(super) async fn index_titles(tx: &mut TeamTx<'_>) -> Result<(), DbError> {
    // Taken before the titles are read, so that on PostgreSQL one that changes meanwhile waits, and is noted anew.
    let sql = "UPDATE unindexed_titles SET taken = 1 WHERE team_id = $1 AND session_id IN (SELECT u.session_id \
               FROM unindexed_titles u WHERE u.team_id = $1 ORDER BY u.session_id LIMIT $2 + 0)";
    let taken = tx.execute(sql, args![TITLES_PER_CHANGE]).await?;
    if taken == 0 {
        return Ok(());
    }
    if tx.is_sqlite() {
        let sql = "INSERT INTO session_titles (team_id, session_id, title, title_id) \
                   SELECT s.team_id, s.session_id, s.title_folded, COALESCE((SELECT t.title_id FROM session_titles t \
                   WHERE t.title_id BETWEEN $2 AND $2 + 4294967295 ORDER BY t.title_id DESC LIMIT 1), $2) \
                   + ROW_NUMBER() OVER (ORDER BY s.session_id) FROM unindexed_titles u CROSS JOIN sessions s \
                   WHERE u.team_id = $1 AND u.taken = 1 AND s.team_id = $1 AND s.session_id = u.session_id \
                   AND s.deleted_at IS NULL ON CONFLICT (team_id, session_id) DO UPDATE SET title = excluded.title";
        let first = before_first_number(&tx.team);
        tx.execute(sql, args![first]).await?;
    } else {
        let sql = "INSERT INTO session_titles (team_id, session_id, title) \
                   SELECT s.team_id, s.session_id, s.title_folded FROM unindexed_titles u CROSS JOIN sessions s \
                   WHERE u.team_id = $1 AND u.taken = 1 AND s.team_id = $1 AND s.session_id = u.session_id \
                   AND s.deleted_at IS NULL ON CONFLICT (team_id, session_id) DO UPDATE SET title = excluded.title";
        tx.execute(sql, &[]).await?;
    }
    tx.execute("DELETE FROM unindexed_titles WHERE team_id = $1 AND taken = 1", &[]).await?;
    if tx.is_sqlite() {
        // It also writes what this change added to the index, which FTS5 would leave to the change after it.
        let sql = "INSERT INTO session_title_trigrams (session_title_trigrams, rank) VALUES ('merge', $1)";
        tx.without_team().execute(sql, args![MERGED_PAGES_PER_CHANGE]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigrams_cover_what_is_looked_for() {
        assert_eq!(trigram_query("abc"), r#""abc""#);
        assert_eq!(trigram_query("module 7"), r#""mod" AND "ule" AND "e 7""#);
        assert_eq!(trigram_query("module 77"), r#""mod" AND "ule" AND " 77""#);
        assert_eq!(trigram_query("größe"), r#""grö" AND "öße""#);
        assert_eq!(trigram_query(r#"a"b"#), r#""a""b""#);
        assert_eq!(trigram_query(&"x".repeat(500)).matches("\"xxx\"").count(), MAX_ASKED_TRIGRAMS);
    }

    #[test]
    fn no_title_is_longer_than_what_is_looked_for_may_be() {
        assert!(('\0'..=char::MAX).all(|c| c.to_lowercase().count() <= 2));
        assert_eq!(fold(&"İ".repeat(MAX_GIVEN_TITLE_CHARS)).chars().count(), MAX_FOLDED_TITLE_CHARS);
    }

    #[test]
    fn the_titles_of_a_team_have_numbers_of_their_own() {
        let (one, two) = (TeamId::new(1), TeamId::new(1));
        assert_eq!(before_first_number(&one), before_first_number(&one));
        assert_ne!(before_first_number(&one), before_first_number(&two));
        assert!(before_first_number(&one) >= 0 && before_first_number(&one) % (1 << 32) == 0);
    }
}
