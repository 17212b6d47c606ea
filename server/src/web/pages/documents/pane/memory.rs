//! The tab Memory: proposed changes to `MEMORY.md`, the excerpts that went with the newest request, and links to
//! the whole memory of the viber.

use askama::Template;
use protocol::{Policy, SessionId, TaskId, ViberId};

use super::PaneContext;
use crate::{
    db::{self, TeamTx},
    domain::{
        Edit, EditState, File, FileText, Policies, Proposal, Session, TaskKind,
        context::compaction::Compaction,
        memory::{MEMORY_FILE, RequestContext, SentExcerpt},
        plan::ProposalKind,
    },
    error::Result,
    web::pages::proposals::{self, KnownFile, ProposalEditor, ProposalView, ShownProposal},
    web::{urls, view::filters},
};

/// Changes of the file made here that are looked through for a conflict.
const MAX_SEARCHED_EDITS: u64 = 20;
/// Messages after one that may stand on the newest page with it.
const NEWEST_PAGE_MESSAGES: u64 = 40;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct MemoryPane {
    viber: ViberId,
    agent: String,
    policies: Policies,
    /// A change from here that the viber has not made yet, and one that met another one.
    queued: Option<Edit>,
    conflict: Option<Edit>,
    proposals: Vec<ShownProposal>,
    sent: Option<RequestContext>,
    /// A proposal that is rewritten before it is accepted.
    rewritten: Option<Box<ShownProposal>>,
}

/// A proposal for the file as it is known.
async fn shown(
    tx: &mut TeamTx<'_>,
    session: &Session,
    file: Option<&File>,
    proposal: Proposal,
) -> Result<ShownProposal> {
    let hash = file.and_then(|file| file.hash.clone());
    let text = file.and_then(|file| file.text.as_ref()).filter(|text| Some(&text.hash) == hash.as_ref());
    let known = match text {
        Some(FileText { content, hash, .. }) => KnownFile::Version { hash, text: content },
        // A file that was never heard of is absent if the agent saw none either.
        None if hash.is_none() && (file.is_some() || proposal.base_hash.is_none()) => KnownFile::Absent,
        None => KnownFile::Unknown,
    };
    let attempt = db::attempts::load_with_task(tx, &proposal.task_id, proposal.attempt).await?;
    let turns = match &attempt {
        Some(attempt) if attempt.kind != TaskKind::Work => noted_turns(tx, session, &proposal.task_id).await?,
        _ => None,
    };
    let place = |seq: u64| (seq, session.last_seq.saturating_sub(seq) > NEWEST_PAGE_MESSAGES);
    let message = attempt.map(|attempt| place(attempt.message_seq));
    let turns = turns.map(|(first, last)| (place(first), place(last)));
    let base = proposal.base.clone();
    let shown = ShownProposal::new(proposal, base, known).about(hash.unwrap_or_default());
    Ok(shown.with_message(message).with_turns(turns))
}

/// The seqs of the first and the last question that a compaction's notes were taken of.
async fn noted_turns(tx: &mut TeamTx<'_>, session: &Session, task: &TaskId) -> Result<Option<(u64, u64)>> {
    let task = db::tasks::load(tx, task).await?;
    let kept = task.and_then(|task| task.payload.get("compact").cloned());
    let compaction: Option<Compaction> = kept.and_then(|kept| serde_json::from_value(kept).ok());
    let Some(Compaction { up_to, notes_after: Some(after), .. }) = compaction else { return Ok(None) };
    let first = db::tasks::first_asked(tx, &session.id, (after, up_to)).await?;
    Ok(first.map(|first| (first, up_to)))
}

impl MemoryPane {
    /// As it is now. A place that is not there is the front.
    pub async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let (id, viber) = (&session.id, &session.viber_id);
        let file = db::files::load(tx, viber, MEMORY_FILE).await?;
        let mut proposals = Vec::new();
        for proposal in proposals::waiting(tx, id, ProposalKind::Memory).await? {
            proposals.push(shown(tx, session, file.as_ref(), proposal).await?);
        }
        let edits = db::edits::of_file(tx, viber, MEMORY_FILE, None, MAX_SEARCHED_EDITS).await?;
        Ok(Self {
            viber: viber.clone(),
            agent: session.agent_id.clone(),
            policies: session.policies,
            queued: db::edits::pending(tx, viber, MEMORY_FILE).await?,
            conflict: edits.into_iter().find(|edit| edit.state == EditState::Conflict),
            rewritten: proposals::rewritten(&proposals, at).map(Box::new),
            proposals,
            sent: db::contexts::load(tx, id).await?,
        })
    }
}

/// The tab as a reader sees it.
#[derive(Template)]
#[template(path = "documents/memory/pane.html")]
pub struct MemoryView<'a> {
    data: &'a MemoryPane,
    context: &'a PaneContext,
    excerpts: Vec<SentExcerpt>,
}

impl<'a> MemoryView<'a> {
    pub fn of(data: &'a MemoryPane, context: &'a PaneContext) -> Self {
        Self { data, context, excerpts: data.sent.as_ref().map(RequestContext::memory).unwrap_or_default() }
    }

    fn proposes(&self) -> bool {
        self.data.policies.memory == Policy::Propose
    }

    fn verb(&self, verb: &str) -> String {
        urls::session_verb(&self.context.slug, &self.context.session, verb)
    }

    fn proposal(&self, shown: &'a ShownProposal) -> ProposalView<'a> {
        ProposalView { shown, context: self.context }
    }

    fn proposal_editor(&self, shown: &'a ShownProposal) -> ProposalEditor<'a> {
        ProposalEditor { shown, context: self.context }
    }

    fn file(&self) -> String {
        urls::file(&self.context.slug, &self.data.viber, MEMORY_FILE)
    }

    fn search(&self) -> String {
        urls::memory(&self.context.slug, &self.data.viber, &self.data.agent, "")
    }

    fn edit(&self, edit: &Edit) -> String {
        urls::edit(&self.context.slug, &self.data.viber, &edit.id)
    }

    /// Where an excerpt comes from.
    fn source(&self, path: &str) -> Option<String> {
        source(&self.context.slug, &self.data.viber, path)
    }

    fn total(&self) -> u64 {
        let sent = self.data.sent.as_ref().and_then(RequestContext::layer);
        sent.unwrap_or_else(|| self.excerpts.iter().map(|excerpts| excerpts.tokens).sum())
    }
}

/// The address of a file of the viber's memory, or of the session whose log it is; `None` for what is neither.
pub fn source(slug: &str, viber: &ViberId, path: &str) -> Option<String> {
    if let Some(file) = path.strip_prefix("workspace/") {
        return protocol::path::file(file).is_ok().then(|| urls::file(slug, viber, file));
    }
    let (_, session) = path.strip_prefix("agents/")?.split_once("/sessions/")?;
    let session: SessionId = session.strip_suffix(".jsonl")?.parse().ok()?;
    Some(urls::machine_session(slug, viber, &session))
}
