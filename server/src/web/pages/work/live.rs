//! The one stream of a tab: regions of the page as they change, and the log of the task that is watched.
//!
//! A viewer is polled, never pushed to: nothing is queued for one that reads slowly. The hub says that something
//! changed, the database says what; a region is sent when its HTML differs from what was sent last.

mod conversation;
pub mod presence;
mod run;
mod view;

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    time::Duration,
};

use askama::Template;
use axum::{
    body::{Body, Bytes},
    extract::{Query, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use protocol::{SessionId, TaskId, ViberId};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use crate::{
    db,
    domain::{Role, ViberFilter},
    error::{Error, Result},
    hub::{Changed, Subscription},
    measure,
    state::Board,
    web::pages::{
        bus::AtWork,
        conversation::Conversation,
        files,
        join::JoinStatus,
        pane, patches,
        playbooks::list::RunRows,
        session::composer::{self, AttachedFiles},
        skills::rollouts,
        viber::StateView,
        vibers,
    },
    web::{
        AsViewer, Rejection,
        api::bus::StreamRequest,
        extract::Caller,
        stream::{KEEP_ALIVE_INTERVAL, kept_alive, revoked},
        view::{Shell, shell::RailView},
    },
};
use run::WatchedRun;
use view::View;

/// Time between two looks at what changed.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long a live page waits after the database did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Metrics are not announced as changes: pages that show them look at this interval.
const METRICS_INTERVAL: Duration = Duration::from_secs(15);

/// Where the tab stands.
#[derive(Debug, Deserialize)]
pub struct LiveQuery {
    view: String,
    /// `{task}:{attempt}.{seq}`, or what the page of a run shows; `Last-Event-ID` takes precedence.
    #[serde(default)]
    cursor: String,
    /// The tab of the pane that the page shows.
    #[serde(default)]
    pane: Option<String>,
    /// The same when its address does not name it.
    #[serde(default)]
    shown: Option<String>,
    /// The newest message that the page shows.
    #[serde(default)]
    last: u64,
    /// The page of the list of vibers.
    #[serde(default)]
    q: String,
    #[serde(default)]
    show: ViberFilter,
    #[serde(default)]
    after: String,
    /// The vibers that it shows, with commas between them.
    #[serde(default)]
    rows: String,
}

/// `GET /t/{team}/live`
pub async fn watch(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<LiveQuery>,
    how: StreamRequest,
) -> Result<Response, Rejection> {
    let view = View::parse(&asked.view).ok_or(Error::NotFound)?;
    let (place, last) = how.place_of(caller.by.actor.id())?;
    let cursor = last.unwrap_or(asked.cursor);
    let news = board.hub.subscribe(&caller.team.id);
    let mut workspace = None;
    let conversation = match &view {
        View::Session(id) => {
            let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
            workspace = Some(found.ok_or(Error::NotFound)?.viber_id);
            Some(conversation::WatchedConversation::new(id.clone(), &cursor, asked.last))
        }
        _ => None,
    };
    let presence = match &view {
        View::Session(id) => Some(presence::WatchedPresence::new(&board, &caller, id)),
        _ => None,
    };
    let run = match &view {
        View::Run(id) => Some(WatchedRun::new(id.clone(), &cursor)),
        _ => None,
    };
    let gone = Box::pin(revoked(board.clone(), caller.0.clone()));
    let now = Instant::now();
    let watcher = Watcher {
        board,
        caller: caller.0,
        view,
        pane: pane::PaneSelection::of_stream(asked.pane.as_deref(), asked.shown.as_deref()),
        list: vibers::ViberListQuery {
            q: protocol::text::head(asked.q.trim(), 200).to_owned(),
            show: asked.show,
            after: asked.after,
        },
        rows: vibers::shown_rows(&asked.rows),
        workspace,
        news,
        gone,
        conversation,
        presence,
        run,
        askers: HashMap::new(),
        sent: HashMap::new(),
        stale: Stale::ALL,
        heard: now,
        fleet: None,
        next_look: now,
        next_measure: now + METRICS_INTERVAL,
        over: false,
        ready: vec![Bytes::from_static(b"retry: 1000\n\n")],
    };
    let bytes =
        stream::unfold(watcher, |mut watcher| async move { watcher.next().await.map(|bytes| (bytes, watcher)) });
    let viewer = measure::Viewer::open();
    let bytes = futures_util::StreamExt::map(kept_alive(bytes, KEEP_ALIVE_INTERVAL), move |bytes| {
        let _counted = (&viewer, &place);
        Ok::<_, Infallible>(bytes)
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // nginx buffers answers unless told otherwise.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(bytes)).into_response())
}

/// What may differ from what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stale {
    rail: bool,
    place: bool,
}

impl Stale {
    const ALL: Self = Self { rail: true, place: true };
    const NONE: Self = Self { rail: false, place: false };
}

/// One tab.
struct Watcher {
    board: Board,
    caller: Caller,
    view: View,
    /// Of a session: the tab beside the conversation.
    pane: pane::PaneSelection,
    /// Of the list of vibers: its page.
    list: vibers::ViberListQuery,
    /// Of the list of vibers: what the page shows, which is kept current when the list no longer has it.
    rows: Vec<ViberId>,
    /// Of a session: whose files its tab Files shows.
    workspace: Option<ViberId>,
    news: Subscription,
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    conversation: Option<conversation::WatchedConversation>,
    presence: Option<presence::WatchedPresence>,
    run: Option<WatchedRun>,
    /// Of a session: which of its tasks those of other sessions hang below, by their sessions.
    askers: HashMap<SessionId, TaskId>,
    /// The hash of what was sent last, by region.
    sent: HashMap<String, u64>,
    stale: Stale,
    /// When something was announced last that the place shows.
    heard: Instant,
    /// How many vibers there were: a page that shows none is fetched anew when the first one comes.
    fleet: Option<usize>,
    next_look: Instant,
    next_measure: Instant,
    over: bool,
    ready: Vec<Bytes>,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.ready.drain(..).collect::<Vec<_>>().concat().into());
            }
            if self.over {
                return None;
            }
            let soft = self.board.shutdown.soft.clone();
            let regions = (self.stale != Stale::NONE).then_some(self.next_look);
            let entries = self.conversation.as_ref().and_then(conversation::WatchedConversation::due);
            let look = [regions, entries].into_iter().flatten().min();
            let measures = matches!(self.view, View::Vibers | View::Viber(_));
            tokio::select! {
                biased;
                () = soft.cancelled() => self.end("shutdown"),
                () = &mut self.gone => self.end("revoked"),
                news = self.news.next() => self.hear(&news),
                frame = conversation::next(&mut self.conversation) => self.follow(frame),
                () = sleep_until(look.unwrap_or(self.next_look)), if look.is_some() => self.look().await,
                (looking, writing) = presence::next(&mut self.presence, &self.caller) => {
                    for (name, html) in [("presence", looking.to_string()), ("writing", writing.to_string())] {
                        self.region(name, html.clone(), &html);
                    }
                }
                () = sleep_until(self.next_measure), if measures => {
                    self.next_measure = Instant::now() + METRICS_INTERVAL;
                    self.stale.place = true;
                }
            }
        }
    }

    fn end(&mut self, reason: &str) {
        self.ready.push(patches::frame(None, "end", reason));
        self.over = true;
    }

    fn hear(&mut self, news: &Changed) {
        let ours = |id: &SessionId| matches!(&self.view, View::Session(session) if session == id);
        let (rail, place) = match news {
            Changed::Session(id) | Changed::Task { session: id, .. } => {
                let is_step = self.run.as_ref().is_some_and(|run| run.has(id));
                (
                    true,
                    ours(id)
                        || is_step
                        || self.askers.contains_key(id)
                        || matches!(self.view, View::Vibers | View::Viber(_) | View::Bus(..)),
                )
            }
            Changed::Run(id) => {
                (true, self.view == View::Playbooks || matches!(&self.view, View::Run(run) if run == id))
            }
            Changed::Viber(_) => (true, true),
            Changed::File { viber, path } => {
                let tab = self.pane.shows(pane::Tab::Files) && self.workspace.as_ref() == Some(viber);
                (false, tab || self.view.shows(viber, path))
            }
            Changed::Team => (true, matches!(self.view, View::Skill(..))),
            Changed::Read(operator) => (self.caller.reader() == Some(operator), false),
            Changed::Revoked(_) => (false, false),
            Changed::Anything => (true, true),
        };
        if let (Changed::Task { session, task }, Some(conversation)) = (news, &mut self.conversation)
            && ours(session)
        {
            conversation.touch(task);
        }
        if let (Changed::Task { session, .. }, Some(conversation)) = (news, &mut self.conversation)
            && let Some(asker) = self.askers.get(session)
        {
            conversation.touch(asker);
        }
        self.stale = Stale { rail: self.stale.rail || rail, place: self.stale.place || place };
        self.heard = if place { Instant::now() } else { self.heard };
    }

    fn follow(&mut self, frame: crate::live::StreamFrame) {
        let Some(conversation) = &mut self.conversation else { return };
        if let Some(bytes) = conversation.hear(frame) {
            self.ready.push(bytes);
        }
    }

    async fn look(&mut self) {
        let now = Instant::now();
        let regions = self.next_look <= now;
        let wait = match self.gather(regions).await {
            Ok(()) if !regions => return,
            Ok(()) => LOOK_INTERVAL,
            // The session or viber, or one of the list, no longer exists: the page says so when it is fetched anew.
            Err(Error::NotFound) => {
                self.ready.push(patches::frame(None, "reset", ""));
                self.over = true;
                LOOK_INTERVAL
            }
            Err(error) => {
                tracing::warn!(%error, "a live page waits for the database");
                self.stale = Stale::ALL;
                RETRY_DELAY
            }
        };
        self.next_look = Instant::now() + wait;
    }

    /// Reads what is stale. Between two looks at regions (`regions` is false) only the conversation is read.
    async fn gather(&mut self, regions: bool) -> Result<()> {
        let stale = if regions { std::mem::take(&mut self.stale) } else { Stale::NONE };
        let due = self
            .conversation
            .as_ref()
            .and_then(conversation::WatchedConversation::due)
            .is_some_and(|at| at <= Instant::now());
        if let Some(conversation) = self.conversation.as_mut().filter(|_| due || stale.place) {
            let found = conversation.look(&self.board, &self.caller).await?;
            self.ready.extend(found.log);
            if let Some(conversation) = &found.conversation {
                self.askers = conversation.askers();
            }
            self.stale.rail |= found.read;
            if regions {
                if let Some(dock) = found.dock {
                    self.region("dock", dock.to_string(), &dock.ageless());
                }
                if let Some(asks) = found.asks {
                    self.region("asks", asks.to_string(), &asks.ageless());
                }
                if let Some(place) = found.place {
                    let html = render(&place)?;
                    self.region("where", html.clone(), &html);
                }
                if let Some(conversation) = found.conversation {
                    self.show_pane(&conversation).await?;
                    self.show_attached(&conversation.session.id).await?;
                }
            } else {
                self.stale.place = true;
            }
        } else if stale.place && self.conversation.is_none() {
            self.place().await?;
        }
        if stale.rail {
            let shell = Shell::load(&self.board, &self.caller).await?.at(self.view.location());
            let html = render(&RailView { shell: &shell })?;
            self.region("rail", html.clone(), &html);
        }
        Ok(())
    }

    /// The tab beside the conversation, and the strip with its numbers.
    async fn show_pane(&mut self, conversation: &Conversation) -> Result<()> {
        let Caller { team, .. } = &self.caller;
        let (asked, reader) = (self.pane.clone(), self.caller.reader());
        let held = pane::PaneData::load(&self.board, &team.id, &conversation.session, reader, &asked).await?;
        self.stale.place |= held.is_older(self.heard);
        let pane = pane::Pane::of(&asked, &held, conversation, &self.caller, self.board.clock.now());
        let strip = pane.strip()?;
        if asked.named.or(asked.shown).is_none() && held.choice().is_some() {
            // It opens by itself, and stays.
            self.pane.shown = held.choice();
            let opened = pane.opened()?;
            self.region("opened", opened.clone(), &opened);
        }
        let (body, ageless) = (pane.body()?, pane.ageless()?);
        self.region("pane", body, &ageless);
        self.region("strip", strip.clone(), &strip);
        let gauge = pane.gauge()?;
        self.region("gauge", gauge.clone(), &gauge);
        Ok(())
    }

    /// The files that go with the next message, whoever attached them.
    async fn show_attached(&mut self, session: &SessionId) -> Result<()> {
        let Caller { team, role, .. } = &self.caller;
        if *role < Role::Operator {
            return Ok(());
        }
        let waiting = composer::waiting(&self.board, &team.id, session).await?;
        let html = render(&AttachedFiles::of(&team.slug, &waiting))?;
        self.region("attached", html.clone(), &html);
        Ok(())
    }

    async fn place(&mut self) -> Result<()> {
        match self.view.clone() {
            View::Rail | View::Session(_) => {}
            View::Home => {
                let (all, connected) =
                    db::vibers::connectivity(&mut self.board.db.reader_of(&self.caller.team.id).await?).await?;
                match self.fleet.replace(all * 1_000_000 + connected) {
                    // With the first viber the page becomes another one.
                    Some(before) if before < 1_000_000 && all > 0 => self.ready.push(patches::frame(None, "reset", "")),
                    Some(before) if before != all * 1_000_000 + connected => {
                        self.ready.push(patches::frame(None, "nudge", "choice"));
                    }
                    _ => {}
                }
            }
            View::Playbooks => {
                let runs = RunRows::newest(&self.board, &self.caller).await?;
                self.region("runs", runs.to_string(), &runs.ageless());
            }
            View::Run(_) => {
                if let Some(run) = &mut self.run {
                    self.ready.extend(run.look(&self.board, &self.caller).await?);
                }
            }
            View::Skill(id, ordered) => {
                let [rollouts, orders] = rollouts::regions(&self.board, &self.caller, &id, &ordered).await?;
                for (name, (html, ageless)) in [("rollouts", rollouts), ("orders", orders)] {
                    self.region(name, html, &ageless);
                }
            }
            View::Vibers => {
                let watched = vibers::watched(&self.board, &self.caller, &self.list, &self.rows).await?;
                for viber in watched {
                    let row = vibers::ViberRow::of(&self.board, &self.caller.team.slug, viber);
                    let (name, html) = (row.viber.id.to_string(), render(&row)?);
                    self.region(&name, html.clone(), &html);
                }
            }
            View::Viber(id) => {
                let found = db::vibers::load(&mut self.board.db.reader_of(&self.caller.team.id).await?, &id).await?;
                let viber = found.ok_or(Error::NotFound)?;
                let html = render(&StateView::of(&self.board, viber))?;
                self.region("viber", html.clone(), &html);
            }
            View::Bus(id, agent) => {
                let html = render(&AtWork::load(&self.board, &self.caller, (&id, agent.as_str())).await?)?;
                self.region("at-work-now", html.clone(), &html);
            }
            View::Files { viber, how, path } => {
                for (name, html) in files::regions(&self.board, &self.caller, &viber, &how, &path).await? {
                    self.region(name, html.clone(), &html);
                }
            }
            View::Joining(id) => {
                let joining = JoinStatus::load(&self.board, &self.caller, &id).await?.ok_or(Error::NotFound)?;
                let html = render(&joining)?;
                self.region("join", html.clone(), &html);
            }
        }
        Ok(())
    }

    /// Sends a region unless it was last sent like this. `ageless` is compared, because the page itself keeps ages
    /// current.
    fn region(&mut self, name: &str, html: String, ageless: &str) {
        let mut hasher = DefaultHasher::new();
        ageless.hash(&mut hasher);
        let hash = hasher.finish();
        if self.sent.insert(name.to_owned(), hash) != Some(hash) {
            self.ready.push(patches::frame(None, "region", &html));
        }
    }
}

fn render(template: &impl Template) -> Result<String> {
    template.render().map_err(|error| Error::Internal(format!("a template: {error}")))
}
