//! What a conversation shows of the trees that its tasks are in.

use std::collections::HashMap;

use protocol::{SessionId, TaskId, mesh::MAX_TREE_DEPTH};

use super::Conversation;
use crate::{
    domain::{Kin, Message, MessageRole, Role, Task, task},
    web::{extract::Caller, view::call::ChildFold},
};

impl Conversation {
    /// The sessions of the tasks that hang below others, each with the one of this session that it hangs below, else with the
    /// first of its tree.
    pub fn askers(&self) -> HashMap<SessionId, TaskId> {
        let by_child = |child: &TaskId| self.kin.iter().find(|kin| kin.asked.child.as_ref() == Some(child));
        let is_here = |kin: &Kin| kin.task.as_ref().is_some_and(|task| task.session_id == self.session.id);
        let asker = |kin: &Kin| {
            let mut asker = kin.asked.call.task_id.clone();
            for _ in 0..MAX_TREE_DEPTH {
                match by_child(&asker).filter(|above| !is_here(above)) {
                    Some(above) => asker = above.asked.call.task_id.clone(),
                    None => break,
                }
            }
            asker
        };
        let of = |kin: &Kin| Some((kin.task.as_ref()?.session_id.clone(), asker(kin)));
        self.kin.iter().filter_map(of).collect()
    }

    /// Who asked: of a task that another one asked for, that one's agent; of one that began at the machine, who that is there,
    /// or through what.
    pub(super) fn asker(&self, message: &Message, task: Option<&Task>) -> String {
        let by = task.and_then(Task::parent).map(|place| place.by).filter(|by| !by.is_empty());
        let through = match task.map(|task| task.origin.as_str()) {
            Some("cli") => Some("Someone at the command line"),
            Some("slack") => Some("Someone in Slack"),
            Some("websocket") => Some("A program of the machine"),
            _ => None,
        };
        // What people on the Board said in such a session is theirs.
        let named = task.and_then(|task| Some(format!("{} ({})", task.author()?, task::origin_name(&task.origin))));
        let through = named.or(through.map(str::to_owned)).filter(|_| !self.names.contains_key(&message.author));
        by.or(through).unwrap_or_else(|| self.name(&message.author))
    }

    /// The tasks that an agent asked for in a message.
    pub(super) fn children_of(&self, caller: &Caller, message: &Message) -> Vec<ChildFold> {
        if message.role != MessageRole::Assistant {
            return Vec::new();
        }
        let may_act = caller.role >= Role::Operator;
        let asked = self
            .kin
            .iter()
            .filter(|kin| (&kin.asked.call.task_id, kin.asked.call.attempt) == (&message.task_id, message.attempt));
        asked.map(|kin| ChildFold::of(kin, &self.kin, (&caller.team.slug, may_act))).collect()
    }
}
