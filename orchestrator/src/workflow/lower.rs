//! [`Definition`] → [`Workflow`]: the same states in the same order, names turned into indexes.

use super::definition::{Definition, InvokeDef, StateDef, TriggerDef};
use super::input::Validators;
use super::menu;
use super::model::{EventDefinition, Invocation, InvocationKind, RepoSource, Workflow, WorkspaceDefinition};
use super::parse::literal_template;
use super::resolve::Resolved;
use super::source::Node;
use crate::chart::{Chart, InvokeKind, State, StateIx, StateKind, Transition, Trigger};
use std::collections::BTreeMap;

/// Lowers a definition without errors. One with errors gives a workflow that is good for further checks only.
pub fn lower(definition: &Definition, resolved: &Resolved, validators: Validators) -> Workflow {
    let states = definition.states.iter().enumerate().map(|(ix, state)| lower_state(ix, state, resolved)).collect();
    let events = definition.events.iter().map(|event| {
        let lowered = EventDefinition {
            from: event.from.clone(),
            description: event.description.clone(),
            payload: event.payload.as_ref().map(Node::to_value),
            briefing: event.briefing.as_ref().map(|b| b.value.clone()),
            buffer: event.buffer.is_some(),
        };
        (event.name.value.clone(), lowered)
    });
    let mut workflow = Workflow {
        name: definition.name.value.clone(),
        description: definition.description.clone(),
        input: definition.input.as_ref().map(Node::to_value),
        agents: definition.agents.iter().map(|(name, def)| (name.value.clone(), def.agent.clone())).collect(),
        events: events.collect(),
        workspace: definition.workspace.as_ref().map(|workspace| WorkspaceDefinition {
            repos: workspace
                .repos
                .iter()
                .map(|(slot, repo)| {
                    (slot.value.clone(), RepoSource { url: repo.url.clone(), reference: repo.reference.clone() })
                })
                .collect(),
            branch: workspace.branch.clone(),
            size: workspace.size,
        }),
        repos_open: definition.workspace.as_ref().is_some_and(|w| w.repos_open.is_some()),
        context: definition.context.clone(),
        chart: Chart { states },
        invocations: BTreeMap::new(),
        menus: BTreeMap::new(),
        derived: BTreeMap::new(),
        validators,
    };
    menu::derive(&mut workflow);
    for (ix, state) in definition.states.iter().enumerate() {
        if let Some(invoke) = &state.invoke {
            let kind = lower_invocation(invoke, ix as StateIx, &workflow);
            workflow.invocations.insert(ix as StateIx, Invocation { kind, retry: state.retry.clone() });
        }
    }
    workflow
}

fn lower_state(ix: usize, state: &StateDef, resolved: &Resolved) -> State {
    let transitions = state.transitions.iter().zip(&resolved.targets[ix]).map(|(transition, targets)| Transition {
        trigger: match &transition.trigger {
            TriggerDef::Events(events) => Trigger::Events(events.iter().map(|e| e.value.clone()).collect()),
            TriggerDef::Always => Trigger::Always,
            TriggerDef::After(delay_ms) => Trigger::After { delay_ms: *delay_ms },
        },
        guard: transition.guard.clone(),
        targets: targets.clone(),
        reenter: transition.reenter,
        actions: transition.actions.clone(),
    });
    State {
        key: state.key.value.clone(),
        path: state.path.clone(),
        parent: state.parent.map(|p| p as StateIx),
        children: state.children.iter().map(|c| *c as StateIx).collect(),
        last: state.last as StateIx,
        kind: lower_kind(ix, state, resolved),
        enter: state.enter.clone(),
        exit: state.exit.clone(),
        transitions: transitions.collect(),
        invoke: state.invoke.as_ref().map(|invoke| match invoke {
            InvokeDef::Agent { agent, .. } => InvokeKind::Agent(agent.value.clone()),
            InvokeDef::Gate { .. } => InvokeKind::Gate,
            InvokeDef::Run { .. } => InvokeKind::Run,
            InvokeDef::Do { .. } => InvokeKind::Do,
        }),
    }
}

fn lower_kind(ix: usize, state: &StateDef, resolved: &Resolved) -> StateKind {
    if state.is_final {
        StateKind::Final { output: state.output.clone() }
    } else if let Some(deep) = state.history {
        StateKind::History { deep, default: resolved.default[ix].clone(), actions: Vec::new() }
    } else if state.parallel {
        StateKind::Parallel
    } else if state.children.is_empty() {
        StateKind::Atomic
    } else {
        let actions = state.initial.as_ref().map(|(_, actions)| actions.clone()).unwrap_or_default();
        StateKind::Compound { initial: resolved.initial[ix].clone(), actions }
    }
}

fn lower_invocation(invoke: &InvokeDef, state: StateIx, workflow: &Workflow) -> InvocationKind {
    match invoke {
        InvokeDef::Agent { agent, prompt, cwd, continued, model, thinking } => InvocationKind::Agent {
            agent: agent.value.clone(),
            prompt: prompt.clone().unwrap_or_else(|| literal_template("")),
            cwd: cwd.clone(),
            continued: *continued,
            model: model.as_ref().map(|(template, _)| template.clone()),
            thinking: *thinking,
        },
        InvokeDef::Gate { meta, .. } => {
            InvocationKind::Gate { meta: meta.clone(), accepts: workflow.accepts_external(state) }
        }
        InvokeDef::Run { workflow, input } => {
            InvocationKind::Run { workflow: workflow.value.clone(), input: input.clone() }
        }
        InvokeDef::Do { step, .. } => InvocationKind::Do(step.clone()),
    }
}
