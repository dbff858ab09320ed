//! Provision, adopt, teardown, sweep: each may be cut at any instant and is simply called again.

use super::death::Exit;
use super::environment::{Environment, marks};
use super::layout::Place;
use super::record::{self, Record, Stage};
use super::supervise::{self, Job};
use super::{INSTANCE_HARNESS, Live, LocalProvider, process};
use crate::run::{Clock, SystemClock};
use crate::workspace::control::{self, Voice};
use crate::workspace::git::{Slot, check_branch_name, make_slot, refused};
use crate::workspace::name::{check_branch, check_label};
use crate::workspace::{
    HarnessEndpoint, ProvisionError, Provisioned, SandboxEvent, SandboxProvider, SandboxSpec, SavedBranch,
};
use jr2_shared::size::Size;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::sync::watch;

/// What a slot that is being made is called; no slot can have this name.
const PARTIAL_PREFIX: &str = ".partial-";

/// Whether a Harness was found or had to be started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BroughtUp {
    Found,
    Started,
}

impl LocalProvider {
    pub(super) async fn provision_held(&self, spec: &SandboxSpec) -> Result<Provisioned, ProvisionError> {
        check_label("sandbox", &spec.name)?;
        check_branch(&spec.branch)?;
        let place = self.layout.place(&spec.name);
        let slots = slots(spec, &place)?;
        let known = load(&place)?.filter(|record| !matches!(record.stage, Stage::Gone { .. }));
        let known = match known {
            Some(record) if record.stage == Stage::Cloned && !place.is_there() => {
                self.let_go(&spec.name).await;
                process::end_all(record.process.as_ref(), &marks(&place, record.cgroup.as_ref())).await;
                None
            }
            other => other,
        };
        let mut record = match known {
            Some(record) if record.spec.repos == spec.repos && record.spec.branch == spec.branch => record,
            // No Agent has seen it: it is made as it is asked for now.
            Some(record) if record.stage == Stage::Cloning => self.begin(spec, &place).await?,
            Some(record) => {
                let message =
                    format!("the Sandbox `{}` exists with other repositories or another branch", record.spec.name);
                return Err(refused("name-taken", message));
            }
            None => self.begin(spec, &place).await?,
        };
        if record.stage == Stage::Cloning {
            self.make_slots(&place, &slots, &spec.branch).await?;
            record.stage = Stage::Cloned;
            save(&record, &place)?;
        }
        self.bring_up(&record, &place, false).await?;
        let repos =
            slots.iter().map(|s| (s.binding.slot.clone(), s.worktree().to_string_lossy().into_owned())).collect();
        Ok(Provisioned { uid: record.uid, repos, branch: spec.branch.clone() })
    }

    /// A Sandbox that was never there, or of which nothing is left.
    async fn begin(&self, spec: &SandboxSpec, place: &Place) -> Result<Record, ProvisionError> {
        self.let_go(&spec.name).await;
        remove_tree(&place.dir).await?;
        let record = new_record(spec.clone(), place)?;
        // Written first: whatever is made from here on has an owner.
        save(&record, place)?;
        Ok(record)
    }

    async fn make_slots(&self, place: &Place, slots: &[Slot], branch: &str) -> Result<(), ProvisionError> {
        place.make().map_err(|e| refused("state-folder", e.to_string()))?;
        check_branch_name(&self.git, &place.dir, branch).await?;
        std::fs::write(place.home.join(".gitconfig"), crate::workspace::git::Git::configuration())
            .map_err(|e| refused("state-folder", e.to_string()))?;
        remove_partial(&place.work).await;
        for slot in slots {
            let partial = place.work.join(format!("{PARTIAL_PREFIX}{}-{}", random_word()?, slot.binding.slot));
            make_slot(&self.git, slot, &partial).await?;
        }
        // A git of an Orchestrator that died may have gone on for a while.
        remove_partial(&place.work).await;
        Ok(())
    }

    /// What a Harness of this record inherits; a step gets a part of it.
    pub(super) fn variables(&self, record: &Record, place: &Place, menu_only: bool) -> Vec<(OsString, OsString)> {
        let config = self.providers.harness_config();
        let environment = Environment {
            place,
            harness_token: &record.harness_token,
            sandbox_token: &record.sandbox_token,
            config: &config,
            size: record.spec.size,
            cgroup: record.cgroup.as_ref(),
            toolchains: &self.options.toolchains,
            api_port: self.options.api_port,
            menu_only,
        };
        environment.variables(|variable| std::env::var_os(variable))
    }

    /// Binds the Custodian, finds or starts the Harness, and begins to watch it. Does nothing when all of it is there.
    async fn bring_up(&self, record: &Record, place: &Place, menu_only: bool) -> Result<BroughtUp, ProvisionError> {
        let name = record.spec.name.clone();
        if self.live().get(&name).is_some_and(|l| l.uid == record.uid && !l.lost.load(Ordering::Acquire)) {
            return Ok(BroughtUp::Found);
        }
        self.let_go(&name).await;
        place.make().map_err(|e| refused("state-folder", e.to_string()))?;
        let voice = Voice::new(&record.sandbox_token);
        let mut job = Job {
            name: name.clone(),
            place: place.clone(),
            program: self.options.harness_bin.clone(),
            variables: self.variables(record, place, menu_only),
            limits: self.options.limits.clone(),
            owner_epoch: self.options.owner_epoch,
            harness_token: record.harness_token.clone(),
            cgroup: record.cgroup.clone(),
            memory_bytes: record.spec.size.memory_bytes,
            pid: voice.pid.clone(),
            began: Instant::now(),
            lost: std::sync::Arc::default(),
            events: self.options.events.clone(),
        };
        // A running Harness is known before its socket is served again: it dials all the time, and is never refused.
        let found = supervise::find(&job, record).await;
        let listener = control::bind(&place.custodian)
            .await
            .map_err(|e| refused("custodian-not-ready", format!("{}: {e}", place.custodian.display())))?;
        let custodian = control::serve(listener, voice, (self.options.control)(&name), &self.providers, &name);
        let (harness, how) = match found {
            Some(harness) => (harness, BroughtUp::Found),
            None => {
                note_unseen_end(place)?;
                if !menu_only {
                    self.give_cgroup(&mut job)?;
                }
                (supervise::start(&job, record.process.as_ref()).await?, BroughtUp::Started)
            }
        };
        let endpoint =
            HarnessEndpoint { url: format!("unix:{}", place.harness.display()), token: record.harness_token.clone() };
        let token_digest = jr2_shared::harness::token_digest(&record.sandbox_token);
        let (stop, mut stopped) = watch::channel(());
        let lost = job.lost.clone();
        // The Instance Harness has no work of anybody in it, and its folder is no Workspace.
        let removal = (!menu_only).then(|| self.removal());
        let task = tokio::spawn(async move {
            let until_lost = async {
                let mut loss = supervise::watch(&job, harness).await;
                if let Some(removal) = removal {
                    loss.message.push_str(&removal.after_loss(&job.name).await);
                }
                supervise::say_lost(&job, loss);
            };
            tokio::select! {
                // The sender never sends: this ends when it is dropped.
                _ = stopped.changed() => {}
                () = until_lost => {}
            }
        });
        self.live().insert(name, Live { uid: record.uid.clone(), endpoint, lost, stop, task, custodian, token_digest });
        Ok(how)
    }

    /// A Harness that starts gets the group this machine allows for; one that runs keeps what it has.
    fn give_cgroup(&self, job: &mut Job) -> Result<(), ProvisionError> {
        let cgroup = self.ground.as_ref().map(|ground| ground.group(&job.name));
        let Some(mut record) = load(&job.place)? else { return Ok(()) };
        if record.cgroup != cgroup {
            record.cgroup = cgroup;
            // Written first: whatever is made from here on has an owner.
            save(&record, &job.place)?;
        }
        job.variables = self.variables(&record, &job.place, false);
        job.cgroup = record.cgroup;
        Ok(())
    }

    pub(super) async fn adopt_held(&self, spec: &SandboxSpec, uid: &str) -> Result<(), ProvisionError> {
        check_label("sandbox", &spec.name)?;
        let place = self.layout.place(&spec.name);
        let Some(record) = load(&place)?.filter(|r| r.uid == uid && r.stage == Stage::Cloned) else {
            self.say_lost(&spec.name, "this Sandbox is not known here any more".to_owned());
            return Ok(());
        };
        if !place.is_there() {
            self.let_go(&spec.name).await;
            self.removal().after_loss(&spec.name).await;
            self.say_lost(&spec.name, format!("the Sandbox's directory {} was deleted", place.dir.display()));
            return Ok(());
        }
        if self.bring_up(&record, &place, false).await? == BroughtUp::Started {
            self.say_restarted(&spec.name);
        }
        Ok(())
    }

    pub(super) async fn instance_held(&self) -> Result<HarnessEndpoint, ProvisionError> {
        let place = self.layout.instance(INSTANCE_HARNESS);
        let record = match load(&place)? {
            Some(record) => record,
            None => {
                let spec = SandboxSpec {
                    name: INSTANCE_HARNESS.to_owned(),
                    run: String::new(),
                    repos: Vec::new(),
                    branch: String::new(),
                    size: Size::default(),
                };
                let mut record = new_record(spec, &place)?;
                record.stage = Stage::Cloned;
                save(&record, &place)?;
                record
            }
        };
        let ran_before = record.process.is_some();
        if self.bring_up(&record, &place, true).await? == BroughtUp::Started && ran_before {
            self.say_restarted(INSTANCE_HARNESS);
        }
        Ok(HarnessEndpoint { url: format!("unix:{}", place.harness.display()), token: record.harness_token })
    }

    pub(super) async fn teardown_held(&self, name: &str, uid: &str) -> Result<Vec<SavedBranch>, ProvisionError> {
        check_label("sandbox", name)?;
        let place = self.layout.place(name);
        // Given up while it was made: its uid was never heard, so no Agent has seen it. A name is of one entry alone.
        let unseen = uid.is_empty();
        let Some(record) = load(&place)?.filter(|r| unseen || r.uid == uid) else { return Ok(Vec::new()) };
        self.let_go(name).await;
        self.removal().remove(record, unseen).await
    }

    /// The row has the answer: the record that was kept for a repeat goes.
    pub(super) fn forget_gone(&self, name: &str, uid: &str) {
        if check_label("sandbox", name).is_err() {
            return;
        }
        let place = self.layout.place(name);
        let gone = |r: &Record| (uid.is_empty() || r.uid == uid) && matches!(r.stage, Stage::Gone { .. });
        if load(&place).ok().flatten().is_some_and(|record| gone(&record)) {
            let _ = std::fs::remove_file(&place.record);
        }
    }

    /// Ends the Instance Harness: an Orchestrator that lives for one command leaves none behind.
    pub async fn end_instance_harness(&self) {
        let turn = self.turn(INSTANCE_HARNESS);
        let _held = turn.lock().await;
        let place = self.layout.instance(INSTANCE_HARNESS);
        let Ok(Some(record)) = load(&place) else { return };
        self.let_go(INSTANCE_HARNESS).await;
        let left = process::end_all(record.process.as_ref(), &marks(&place, record.cgroup.as_ref())).await;
        if left > 0 {
            tracing::warn!(left, "instance_harness.processes_left");
        }
    }

    pub(super) async fn sweep_all(&self, live: &[String]) -> usize {
        let mut removed = 0;
        if let Some(ground) = &self.ground {
            ground.sweep(&record::names(&self.layout.records()));
        }
        for name in record::names(&self.layout.records()) {
            if name == INSTANCE_HARNESS || live.contains(&name) {
                continue;
            }
            let turn = self.turn(&name);
            let _held = turn.lock().await;
            let place = self.layout.place(&name);
            let Ok(Some(record)) = load(&place) else {
                tracing::warn!(sandbox = %name, "sandbox.record_unreadable");
                continue;
            };
            let was_gone = matches!(record.stage, Stage::Gone { .. });
            match self.teardown_held(&name, &record.uid).await {
                // What was left out of its branch keeps its Workspace.
                Ok(saved) if saved.iter().any(|branch| branch.kept.is_some()) => {}
                Ok(_) => {
                    let _ = std::fs::remove_file(&place.record);
                    removed += usize::from(!was_gone);
                }
                Err(error) => tracing::warn!(sandbox = %name, %error, "sandbox.kept"),
            }
        }
        removed
    }

    async fn let_go(&self, name: &str) {
        let held = self.live().remove(name);
        if let Some(live) = held {
            live.release().await;
        }
    }

    fn say_lost(&self, name: &str, message: String) {
        let event = SandboxEvent::Lost { name: name.to_owned(), reason: "Deleted".to_owned(), message };
        let _ = self.options.events.send(event);
    }

    fn say_restarted(&self, name: &str) {
        // None only when it had never been started: then nothing ended.
        let Some(last_end) = self.last_end(name) else { return };
        let _ = self.options.events.send(SandboxEvent::HarnessRestarted { name: name.to_owned(), last_end });
    }
}

pub(super) fn slots(spec: &SandboxSpec, place: &Place) -> Result<Vec<Slot>, ProvisionError> {
    let mut slots: Vec<Slot> = Vec::new();
    for binding in &spec.repos {
        if slots.iter().any(|s| s.binding.slot == binding.slot) {
            return Err(refused("slot-refused", format!("the slot `{}` is there twice", binding.slot)));
        }
        slots.push(Slot::new(binding, &place.work, &spec.branch)?);
    }
    Ok(slots)
}

pub(super) fn load(place: &Place) -> Result<Option<Record>, ProvisionError> {
    Record::load(&place.record).map_err(|e| refused("record-unreadable", e.to_string()))
}

pub(super) fn save(record: &Record, place: &Place) -> Result<(), ProvisionError> {
    record.save(&place.record).map_err(|e| refused("record-unwritable", e.to_string()))
}

/// The Harness died while nobody watched: its end is kept too, cause unknown, before another one is started.
fn note_unseen_end(place: &Place) -> Result<(), ProvisionError> {
    let Some(mut record) = load(place)?.filter(Record::has_unnoted_end) else { return Ok(()) };
    let process = record.process.clone();
    record.note_end(process.as_ref(), Exit::Unknown, None, SystemClock.now_ms());
    save(&record, place)
}

fn new_record(spec: SandboxSpec, place: &Place) -> Result<Record, ProvisionError> {
    Record::new(spec, &place.record).map_err(|e| refused("record-unwritable", e.to_string()))
}

fn random_word() -> Result<String, ProvisionError> {
    let mut bytes = [0_u8; 4];
    getrandom::fill(&mut bytes).map_err(|e| refused("state-folder", e.to_string()))?;
    Ok(format!("{:08x}", u32::from_be_bytes(bytes)))
}

/// A git that outlived its Orchestrator may still write there; what it leaves goes with the Workspace at the latest.
async fn remove_partial(work: &Path) {
    for entry in std::fs::read_dir(work).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL_PREFIX)
            && let Err(error) = remove_tree(&entry.path()).await
        {
            tracing::warn!(%error, "sandbox.partial_kept");
        }
    }
}

/// Removes a folder and everything in it, folders without rights too.
pub(super) async fn remove_tree(path: &Path) -> Result<(), ProvisionError> {
    let owned = path.to_owned();
    let remove = move || match std::fs::remove_dir_all(&owned) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            open_up(&owned);
            std::fs::remove_dir_all(&owned)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let failed = |e: &dyn std::fmt::Display| refused("remove-failed", format!("{}: {e}", path.display()));
    tokio::task::spawn_blocking(remove).await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
}

/// Gives the owner all rights on every folder below `path`; symbolic links are not followed.
fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if !std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
        return;
    }
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path());
    }
}
