//! What was worked out of a session's context lately. Planning its next request reads the whole past: while its agent works,
//! the streams of its pages share one plan for a while.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{SessionId, TeamId};
use tokio::time::Instant;

use crate::domain::context::overview::ContextOverview;

/// How long a stream takes what another one worked out.
const SHARED_DURATION: Duration = Duration::from_secs(2);
/// Sessions of which something is kept.
const MAX_KEPT_SESSIONS: usize = 64;

static OVERVIEWS: LazyLock<Mutex<KeptOverviews>> = LazyLock::new(Mutex::default);

/// The overviews of some sessions. Ids are unique, so that several Boards of one process may share them.
#[derive(Debug, Default)]
pub struct KeptOverviews(HashMap<(TeamId, SessionId), Kept>);

/// An overview, when what it is made of was read, and since when it is shared or somebody makes the next one.
#[derive(Clone, Debug)]
struct Kept {
    overview: Arc<ContextOverview>,
    read: Instant,
    shared: Instant,
}

impl KeptOverviews {
    /// Those of this process.
    pub fn here() -> MutexGuard<'static, Self> {
        OVERVIEWS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is still shared at an instant, and when it was read. Whoever gets nothing makes the next one: the others get what
    /// there is for as long again.
    pub fn shared(
        &mut self,
        (team, session): (&TeamId, &SessionId),
        now: Instant,
    ) -> Option<(Arc<ContextOverview>, Instant)> {
        let kept = self.0.get_mut(&(team.clone(), session.clone()))?;
        if now.duration_since(kept.shared) < SHARED_DURATION {
            return Some((kept.overview.clone(), kept.read));
        }
        kept.shared = now;
        None
    }

    /// Shares one from an instant on that was made of what was `read` at another, unless a newer one is shared.
    pub fn share(
        &mut self,
        (team, session): (&TeamId, &SessionId),
        overview: Arc<ContextOverview>,
        (read, now): (Instant, Instant),
    ) {
        let (key, new) = ((team.clone(), session.clone()), Kept { overview, read, shared: now });
        if let Some(kept) = self.0.get_mut(&key) {
            if kept.read <= read {
                *kept = new;
            }
            return;
        }
        if self.0.len() >= MAX_KEPT_SESSIONS {
            self.0.retain(|_, kept| now.duration_since(kept.shared) < SHARED_DURATION);
        }
        if self.0.len() < MAX_KEPT_SESSIONS {
            self.0.insert(key, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::prune::ResultCaps;

    use super::*;
    use crate::domain::context::{ModelLimits, Past, Pins, PlanSettings, SessionPast, overview::SessionTasks};

    fn overview() -> Arc<ContextOverview> {
        let model = ModelLimits { caps: ResultCaps::default(), ..ModelLimits::of(None) };
        let settings = PlanSettings::of(&model, None);
        let past = Past::new(1_000, Pins::default(), None);
        let now = SessionPast { model, reported: None, settings, past, standing: None, percent: 70 };
        Arc::new(ContextOverview::of(&now, SessionTasks::default()))
    }

    #[test]
    fn one_is_shared_for_a_while_and_then_one_reader_makes_the_next() {
        let (mut kept, begun) = (KeptOverviews::default(), Instant::now());
        let (team, session) = (TeamId::new(1), SessionId::new(1));
        let of = (&team, &session);
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(kept.shared(of, at(0)), None, "nobody has made one");
        kept.share(of, overview(), (at(0), at(100)));
        let read = |shared: Option<(Arc<ContextOverview>, Instant)>| shared.map(|(_, read)| read);
        assert_eq!(read(kept.shared(of, at(2_050))), Some(at(0)));
        assert_eq!(kept.shared((&TeamId::new(2), &session), at(200)), None, "another team's is another one");
        assert_eq!(kept.shared(of, at(2_100)), None, "whoever comes first makes it");
        assert_eq!(read(kept.shared(of, at(2_110))), Some(at(0)), "the others do not wait");
        kept.share(of, overview(), (at(2_100), at(2_200)));
        kept.share(of, overview(), (at(2_000), at(2_300)));
        assert_eq!(read(kept.shared(of, at(4_000))), Some(at(2_100)), "an older one that took longer is not shared");
    }

    #[test]
    fn few_are_kept() {
        let (mut kept, begun, team) = (KeptOverviews::default(), Instant::now(), TeamId::new(1));
        let overview = overview();
        for n in 0..1_000 {
            kept.share((&team, &SessionId::new(n)), overview.clone(), (begun, begun));
            assert!(kept.0.len() <= MAX_KEPT_SESSIONS);
        }
        let later = begun + 2 * SHARED_DURATION;
        kept.share((&team, &SessionId::new(2_000)), overview, (later, later));
        assert_eq!(kept.0.len(), 1, "what nobody is given any more makes room");
    }
}
