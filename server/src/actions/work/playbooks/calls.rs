//! Carrying out what a supervisor calls for, and answering it.

use protocol::{ApprovalId, ApprovalResponse, Decision, playbook::StepViber, text::head};

use super::{begin, play::Play};
use crate::{
    actions::approvals::respond,
    db,
    domain::{
        By, RunEvent, RunEventKind, RunState, RunStep, SkippedStep, StepPhase, SupervisorCall,
        playbook_run::calls::{self, AddedStep, CallVerdict},
    },
    error::{Error, Result},
};

/// Longest answer, bytes: it fits a frame.
const MAX_ANSWER_BYTES: usize = 24 * 1024;
/// How the supervisor is called where it did something itself.
const SUPERVISOR: &str = "supervisor";

impl Play<'_, '_> {
    /// Does what a call wants, or says why not. One that waits for a step is answered later.
    pub(super) async fn answer(&mut self, id: &ApprovalId) -> Result<()> {
        let call = self.now.calls.iter().find(|call| call.id == *id).cloned();
        let call = call.ok_or_else(|| Error::Internal("the call is not open".into()))?;
        if let Some(session) = &self.now.run.supervisor_session {
            // Sessions are locked before their viber.
            db::sessions::lock(self.tx, session).await?;
        }
        let by = Some(SUPERVISOR);
        match calls::verdict(&self.now, &call) {
            CallVerdict::Wait => Ok(()),
            CallVerdict::Want { label, instruction } => {
                self.change(&label, |step, _| step.want(instruction)).await?;
                db::playbook_runs::set_waits_for(self.tx, id, &label).await?;
                self.save().await
            }
            CallVerdict::Tell(label) => {
                let text = self.told(&label).await?;
                self.respond(&call, Decision::Answer, text).await
            }
            CallVerdict::Say(text) => self.respond(&call, Decision::Answer, text).await,
            CallVerdict::Deny(why) => self.respond(&call, Decision::Deny, why).await,
            CallVerdict::Add(added) => match self.add(&added).await? {
                Ok(text) => {
                    self.respond(&call, Decision::Answer, text).await?;
                    self.save().await
                }
                Err(why) => self.respond(&call, Decision::Deny, why).await,
            },
            CallVerdict::Skip { label, reason } => {
                let at = self.tx.now;
                let skipped = SkippedStep {
                    by: SUPERVISOR.to_owned(),
                    by_name: "the supervisor".to_owned(),
                    reason: reason.clone(),
                };
                self.change(&label, |step, _| step.skip(skipped, at)).await?;
                self.step_event(RunEventKind::StepSkipped, &label, &format!("skipped: {reason}"), by).await?;
                self.respond(&call, Decision::Answer, format!("Step {label} is skipped.")).await?;
                self.save().await
            }
            CallVerdict::Finish { summary, is_complete } => {
                let at = self.tx.now;
                let (state, kind, word) = match is_complete {
                    true => (RunState::Completed, RunEventKind::Completed, "Completed"),
                    false => (RunState::Error, RunEventKind::Failed, "Ended with steps that could go no further"),
                };
                let text = if summary.is_empty() { word.to_owned() } else { format!("{word}: {summary}") };
                self.now.run.end(state, Some(summary).filter(|summary| !summary.is_empty()), at);
                self.event(RunEvent::of_run(kind, &text, by, at)).await?;
                self.respond(&call, Decision::Answer, "The run has ended.".to_owned()).await?;
                self.save().await
            }
        }
    }

    /// Answers a call, and ends it.
    async fn respond(&mut self, call: &SupervisorCall, decision: Decision, text: String) -> Result<()> {
        let text = Some(head(&text, MAX_ANSWER_BYTES).to_owned());
        let (answer, note) = if decision == Decision::Answer { (text, None) } else { (None, text) };
        let bare = ApprovalResponse::new(call.id.clone(), call.digest.clone(), decision);
        let response = ApprovalResponse { answer, note, by: By::board().actor.name().to_owned(), ..bare };
        // A viber that was revoked hears of nothing any more.
        respond(self.tx, &self.now.run.viber_id, &response, &mut self.after).await?;
        db::playbook_runs::close_call(self.tx, &call.id).await?;
        Ok(())
    }

    /// What is told about a step that has ended.
    async fn told(&mut self, label: &str) -> Result<String> {
        let step = self.step(label)?.clone();
        let task = match step.task_id.as_ref().filter(|_| step.phase == StepPhase::Done) {
            Some(task) => db::tasks::load(self.tx, task).await?,
            None => None,
        };
        let result = task.and_then(|task| task.result).map(|result| result.text).unwrap_or_default();
        let files =
            db::playbook_runs::step_files(self.tx, &self.now.run.id, label, calls::MAX_NAMED_FILES as u64).await?;
        Ok(calls::told(&step, &result, &files))
    }

    /// Adds a step of the supervisor's own. `Err`: why not.
    async fn add(&mut self, added: &AddedStep) -> Result<Result<String, String>> {
        let run = &self.now.run;
        let own = db::vibers::load(self.tx, &run.viber_id).await?;
        let is_own = |name: &String| own.as_ref().is_some_and(|own| own.name == *name);
        let other = added.viber.as_ref().filter(|name| !is_own(name));
        let is_named = |name: &String| {
            let written = self.now.steps.iter().filter(|step| !step.added);
            written.filter_map(|step| step.target.as_ref()).any(|target| *target == StepViber::Name(name.clone()))
        };
        if let Some(name) = other.filter(|name| run.by_viber || !is_named(name)) {
            let why = "leave it out, or take one that the playbook names";
            return Ok(Err(format!("The playbook does not name the viber {name:?}: {why}.")));
        }
        let place = match other {
            Some(name) => db::vibers::candidate_named(self.tx, name).await?,
            None => db::vibers::candidate(self.tx, &run.viber_id).await?,
        };
        let Some(place) = place else { return Ok(Err("There is no such viber in the team any more.".to_owned())) };
        let agent = match begin::agent_of(&place, &added.agent) {
            Ok(agent) => agent,
            Err(Error::Unacceptable { message, .. }) => return Ok(Err(message)),
            Err(error) => return Err(error),
        };
        let step = RunStep {
            target: other.cloned().map(StepViber::Name),
            after: added.after.clone(),
            added: true,
            ..RunStep::new(run.id.clone(), added.label.clone(), agent, added.instruction.clone())
        };
        let title = step.title.clone();
        db::playbook_runs::insert_steps(self.tx, std::slice::from_ref(&step)).await?;
        self.now.steps.push(step);
        let what = format!("added: {title}");
        self.step_event(RunEventKind::StepAdded, &added.label, &what, Some(SUPERVISOR)).await?;
        Ok(Ok(format!("It is step {label}. Start it with `run_step`.", label = added.label)))
    }
}
