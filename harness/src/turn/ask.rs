//! One question to the model with what may come before it: compaction, before every request (spec H-33). A summary is
//! no step of the loop, so none of this is in it.

use super::run::Shell;
use super::step::State;
use crate::compaction::{self, Budget, Context, Next, Plan};
use crate::conversation::Entry;
use crate::model::quirks::limit_in;
use crate::model::{ChatMessage, ModelAnswer, ModelError, ModelRequest, ToolSpec};
use crate::telemetry::{self, Asked};
use std::sync::Arc;

/// Retries of a summary (spec H-34), out of the Submission's own (decision 52).
const SUMMARY_RETRIES: u32 = 2;

impl Shell<'_> {
    pub(super) async fn ask(&mut self, state: &State) -> Result<ModelAnswer, ModelError> {
        if self.tools.is_empty() {
            // Working tools first, then the Menu: the same bytes on every Turn of a seat (spec 6.6).
            self.tools = self.working.iter().cloned().chain(state.menu.specs()).collect();
            self.guide.fixed = fixed_tokens(&self.system, &self.tools);
        }
        let (job, iid) = (self.job, self.conversation.iid.as_str());
        loop {
            let context = self.conversation.context();
            let budget = self.budget(&context).await;
            match self.guide.next(&context, budget) {
                Next::Fail(message) => return Err(ModelError::ContextOverflow { message }),
                Next::Compact(plan) => self.compact(state, &context, &plan).await?,
                Next::Ask => {
                    let messages = self.messages(context);
                    let request = self.request(messages, Arc::clone(&self.tools), self.job.max_tokens);
                    let asked = Asked::now(&job.provider, &request, iid, job.trace);
                    let answer =
                        self.means.model.ask(&self.job.provider, &request, &mut self.retries, self.stop.clone()).await;
                    asked.over(&answer);
                    match answer {
                        Err(ModelError::ContextOverflow { message }) => self.overflowed(&message),
                        Ok(answer) => {
                            self.answered(&answer, budget);
                            return Ok(answer);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// The window's shares. Nobody looks for an unknown window before it can matter (spec H-35).
    async fn budget(&self, context: &Context) -> Option<Budget> {
        let (provider, model) = (&self.job.provider, &self.job.model);
        let known = context.counted.is_some() || context.summary.is_some() || self.guide.was_refused();
        let window = if known { self.means.model.window(provider, model).await } else { None };
        window.map(|window| Budget::of(window, self.means.model.max_tokens(provider, self.job.max_tokens)))
    }

    fn overflowed(&mut self, message: &str) {
        let sent = self.guide.overflowed();
        let (provider, model) = (&self.job.provider, &self.job.model);
        tracing::warn!("{provider}/{model} refused about {sent} tokens as too long: {message}");
        self.means.model.proved(provider, model, limit_in(message).unwrap_or_else(|| sent.saturating_sub(1).max(1)));
    }

    fn answered(&mut self, answer: &ModelAnswer, budget: Option<Budget>) {
        self.guide.answered(answer.usage, budget);
        if answer.usage.and_then(|usage| usage.prompt_tokens).is_none() && !self.uncounted_said {
            self.uncounted_said = true;
            let (provider, model) = (&self.job.provider, &self.job.model);
            tracing::warn!(
                "{provider}/{model} does not say how many tokens it used: that is unknown, not zero, so compaction waits \
                 until it refuses a question as too long"
            );
        }
    }

    /// Asks for the summary and puts the cut into the record.
    async fn compact(&mut self, state: &State, context: &Context, plan: &Plan) -> Result<(), ModelError> {
        let messages = compaction::summary_question(context, plan);
        let request = self.request(messages, Arc::from(Vec::new()), Some(plan.budget.summary()));
        let mut part = self.retries.part(SUMMARY_RETRIES);
        let (job, iid) = (self.job, self.conversation.iid.as_str());
        let answer = loop {
            let asked = Asked::now(&job.provider, &request, iid, job.trace);
            let answer = self.means.model.ask(&self.job.provider, &request, &mut part, self.stop.clone()).await;
            asked.over(&answer);
            let empty = matches!(&answer, Ok(answer) if answer.text.trim().is_empty());
            if !empty || !part.spend() {
                break answer;
            }
        };
        self.retries.settle(SUMMARY_RETRIES, &part);
        let summary = match answer {
            Ok(answer) if answer.text.trim().is_empty() => {
                let message = "the conversation could not be compacted: its summary came back empty".to_owned();
                return Err(ModelError::Provider { status: None, message });
            }
            Ok(answer) => answer.text.trim().to_owned(),
            Err(ModelError::ContextOverflow { message }) => {
                // Planned anew for the smaller window that this shows; counted, so that it ends.
                self.guide.compacted();
                self.overflowed(&message);
                return Ok(());
            }
            Err(error) => return Err(while_compacting(error)),
        };
        let after = plan.kept + compaction::tokens_of_bytes(summary.len());
        let submission = state.frame.submission.clone();
        // Durable before it is used: a restart sends the bytes that were sent.
        let entries = vec![Entry::Compacted { submission, summary, from: plan.from }];
        telemetry::recorded(&entries);
        self.conversation.append(entries, true).await;
        self.guide.compacted();
        self.means.printer.print(&format!(
            "[{}] [compacted] context {} → ~{after} tokens (window {})",
            self.conversation.agent, plan.tokens, plan.budget.window
        ));
        Ok(())
    }

    fn messages(&self, context: Context) -> Vec<ChatMessage> {
        let system = ChatMessage::System(self.system.clone());
        std::iter::once(system).chain(context.into_messages()).collect()
    }

    fn request(&self, messages: Vec<ChatMessage>, tools: Arc<[ToolSpec]>, max_tokens: Option<u64>) -> ModelRequest {
        ModelRequest {
            model: self.job.model.clone(),
            messages,
            tools,
            thinking: self.job.thinking,
            max_tokens,
            temperature: self.job.temperature,
        }
    }
}

/// Says of a summary's failure that it was one, behind what faults are read by (decision 24). A summary that an abort
/// cut is nothing the conversation said.
fn while_compacting(error: ModelError) -> ModelError {
    let said = |message: String| format!("{message} (while the conversation was compacted)");
    match error {
        ModelError::Limit { message } => ModelError::Limit { message: said(message) },
        ModelError::Provider { status, message } => ModelError::Provider { status, message: said(message) },
        ModelError::Transport { message } => ModelError::Transport { message: said(message) },
        ModelError::Aborted { .. } => ModelError::Aborted { partial: Box::new(ModelAnswer::empty()) },
        other => other,
    }
}

/// Estimated tokens of what stands before the conversation.
fn fixed_tokens(system: &str, tools: &[ToolSpec]) -> u64 {
    let tool = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
    compaction::tokens_of_bytes(system.len() + tools.iter().map(tool).sum::<usize>())
}
