//! Skills in a request: what changed in their files since the last call of the model is in effect with the next one, and what
//! the session loaded stays with it.

use std::collections::HashSet;

use protocol::{NoticeLevel, TaskMessage};

use crate::{
    config::toolset::LOAD_SKILL,
    engine::builtin::{
        AgentLoop,
        planning::{PLANNING_PROMPT, looks_only},
    },
    model::Message,
    skills::SkillsPrompt,
};

impl AgentLoop {
    /// Begins with what the session loaded before, and with the skill that the goal calls (`/name …`).
    pub(in crate::engine::builtin) async fn begin_with_skills(&mut self) {
        let goal = self.run.submit.goal.clone();
        self.remember_called(&[&goal]).await;
        self.recall_loaded_skills().await;
    }

    /// Loads the skills that messages call (`/name …`), for the next call of the model.
    pub(in crate::engine::builtin) async fn load_called_by(&mut self, messages: &[TaskMessage]) {
        let said: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
        if self.remember_called(&said).await {
            self.recall_loaded_skills().await;
        }
    }

    /// Remembers that the session loads the skills that these texts begin with, and says which, and which not and why;
    /// `false`: none is loaded.
    async fn remember_called(&mut self, said: &[&str]) -> bool {
        let offered = self.tools.skills();
        let mut called = Vec::new();
        for text in said {
            match offered.called_by(text) {
                Some(skill) => called.push(skill.clone()),
                None => {
                    if let Some(why) = self.run.skills.why_not_called(&self.run.agent, text) {
                        self.notice(NoticeLevel::Warning, why).await;
                    }
                }
            }
        }
        for skill in &called {
            self.notice(NoticeLevel::Info, format!("The skill {} was loaded.", skill.name)).await;
        }
        if called.is_empty() {
            return false;
        }
        let (skills, session, now) = (self.run.skills.clone(), self.run.submit.session_id.clone(), self.clock.now());
        let noting = tokio::task::spawn_blocking(move || {
            for skill in called {
                skills.remember_loaded(&session, &skill.name);
                skills.count(&skill, true, now);
            }
        });
        let _ = noting.await;
        true
    }

    /// Keeps the skills in the system prompt that the session loaded and whose text its conversation no longer has.
    pub(in crate::engine::builtin) async fn recall_loaded_skills(&mut self) {
        let (skills, session) = (self.run.skills.clone(), self.run.submit.session_id.clone());
        let reading = tokio::task::spawn_blocking(move || skills.loaded_by(&session));
        let loaded = reading.await.unwrap_or_default();
        let there = self.loaded_in_conversation();
        self.loaded_skills = loaded.into_iter().filter(|name| !there.contains(name)).collect();
        self.take_up_skills();
    }

    /// The skills whose whole text the conversation has.
    fn loaded_in_conversation(&self) -> HashSet<String> {
        let mut asked = std::collections::HashMap::new();
        let mut there = HashSet::new();
        for message in &self.request.messages {
            match message {
                Message::Assistant(said) => {
                    let loads = said.calls.iter().filter(|call| call.name == LOAD_SKILL);
                    asked.extend(loads.filter_map(|call| {
                        let args = call.args.as_ref().ok()?;
                        let is_file =
                            args.get("path").and_then(|path| path.as_str()).is_some_and(|path| !path.is_empty());
                        Some((call.id.clone(), args["name"].as_str().filter(|_| !is_file)?.to_owned()))
                    }));
                }
                Message::Tool { call_id, ok: true, content, .. } if content.starts_with("<skill ") => {
                    there.extend(asked.get(call_id).cloned());
                }
                _ => {}
            }
        }
        there
    }

    /// Takes up the skills as their files say now.
    pub(in crate::engine::builtin) fn take_up_skills(&mut self) {
        // A compaction has no tools.
        if self.run.submit.compact.is_some() {
            return;
        }
        // Both: neither waits for the other.
        if self.tools.renew_skills() | self.tools.renew_mcp() {
            self.request.tools = self.tools.specs();
            if self.planning.is_some() {
                self.request.tools.retain(|tool| looks_only(&tool.name));
            }
            if let Some(layers) = &mut self.layers {
                layers.replace_tools(&self.request.tools);
            }
        }
        let prompt = SkillsPrompt::of(&self.tools.skills(), &self.loaded_skills);
        if prompt.text == self.skills_prompt {
            return;
        }
        if let Some(layers) = &mut self.layers {
            layers.replace_skills(&prompt.items);
        }
        let system = &mut self.request.system;
        let is_planning = system.ends_with(PLANNING_PROMPT);
        if is_planning {
            system.truncate(system.len() - PLANNING_PROMPT.len());
        }
        if !self.skills_prompt.is_empty() && system.ends_with(&block(&self.skills_prompt)) {
            system.truncate(system.len() - block(&self.skills_prompt).len());
        }
        if !prompt.text.is_empty() {
            system.push_str(&block(&prompt.text));
        }
        if is_planning {
            system.push_str(PLANNING_PROMPT);
        }
        self.skills_prompt = prompt.text;
    }
}

/// What the system prompt ends with.
fn block(text: &str) -> String {
    format!("\n{text}\n")
}
