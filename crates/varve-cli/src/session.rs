//! One command's talk with the daemon: requests, plans, questions, and the wait for a job.

use crate::answer::{Answer, print_aside};
use crate::client::Client;
use crate::grammar::Waiting;
use crate::{confirm, progress};
use serde::Serialize;
use std::path::PathBuf;
use std::pin::pin;
use varve_api::calls::{self, Call};
use varve_api::{Changed, Code, DryRun, Failure, Job, JobState, Plan, Timeout};

/// The daemon, and how to talk to the user.
pub(crate) struct Session {
    client: Client,
    json: bool,
}

impl Session {
    /// A session with the daemon at `socket`.
    pub(crate) fn new(socket: PathBuf, json: bool) -> Self {
        Self { client: Client::new(socket), json }
    }

    /// Asks for something.
    pub(crate) async fn ask<C: Call>(&self, call: &C) -> Result<C::Answer, Failure> {
        self.client.call(call).await
    }

    /// A text that the daemon serves at `path`.
    pub(crate) async fn text(&self, path: &str) -> Result<String, Failure> {
        self.client.text(path).await
    }

    /// Shows what is answered; `text` shows it to users.
    pub(crate) async fn show<C: Call>(
        &self,
        call: C,
        text: impl FnOnce(&C::Answer) -> String,
    ) -> Result<Answer, Failure> {
        let data = self.ask(&call).await?;
        Ok(Answer::new(&data, text(&data)))
    }

    /// Prints what the plan of a change warns of, before it is carried out.
    pub(crate) async fn warn_of<T>(&self, call: &impl Call<Request: DryRun, Answer = Changed<T>>) {
        if call.request().is_dry_run() {
            return; // The plan is shown.
        }
        // What cannot be planned is refused when it is carried out.
        let Ok(plan) = self.plan(call).await else { return };
        let is_warning = |step: &&String| step.starts_with("warning: ");
        plan.steps.iter().filter(is_warning).for_each(|warning| print_aside(warning));
    }

    /// Carries out a change, or shows its plan; `text` tells users what was done.
    pub(crate) async fn change<T: Serialize>(
        &self,
        call: impl Call<Answer = Changed<T>>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<Answer, Failure> {
        Ok(match self.ask(&call).await? {
            Changed::Planned(plan) => Answer::planned(&plan),
            Changed::Done(data) => Answer::new(&data, text(&data)),
        })
    }

    /// Like [`Session::change`], once there is consent.
    pub(crate) async fn destroy<T: Serialize>(
        &self,
        what: &str,
        yes: bool,
        call: impl Call<Request: DryRun, Answer = Changed<T>>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<Answer, Failure> {
        self.consent(what, yes, &call).await?;
        self.change(call, text).await
    }

    /// Like [`Session::destroy`] for each of `calls`, with what they are about: what the daemon refuses of one is refused before the first.
    pub(crate) async fn destroy_each<T: Serialize, C: Call<Request: DryRun, Answer = Changed<T>>>(
        &self,
        verb: &str,
        yes: bool,
        mut calls: Vec<(String, C)>,
        text: impl Fn(&str, &T) -> String,
    ) -> Result<Answer, Failure> {
        if calls.len() == 1 {
            let (name, call) = calls.remove(0);
            return self.destroy(&format!("{verb} {name}"), yes, call, |done| text(&name, done)).await;
        }
        let mut plan = Plan::of_steps(Vec::new());
        for (at, (name, call)) in calls.iter().enumerate() {
            if calls[..at].iter().any(|(other, _)| other == name) {
                return Err(Failure::new(Code::Usage, format!("{name} is named twice")).help("name it once"));
            }
            plan = plan.and(self.plan(call).await?);
        }
        if calls.iter().any(|(_, call)| call.request().is_dry_run()) {
            return Ok(Answer::planned(&plan));
        }
        let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
        if !yes {
            self.agree(&format!("{verb} {}", names.join(" ")), &plan)?;
        }
        let (mut all, mut lines) = (Vec::new(), Vec::new());
        for (name, call) in &calls {
            let done = match self.ask(call).await {
                Ok(Changed::Done(done)) => done,
                Ok(Changed::Planned(_)) => return Err(protocol()),
                Err(failure) => return Err(after(failure, &names[..all.len()])),
            };
            lines.push(text(name, &done));
            all.push(OneOf { removed: name.clone(), done });
        }
        Ok(Answer::new(&all, lines.join("\n")))
    }

    /// Asks before `what` destroys something, unless --yes is given. What the daemon refuses is refused before that.
    pub(crate) async fn consent<T>(
        &self,
        what: &str,
        yes: bool,
        call: &impl Call<Request: DryRun, Answer = Changed<T>>,
    ) -> Result<(), Failure> {
        if yes || call.request().is_dry_run() {
            return Ok(());
        }
        let plan = self.plan(call).await?;
        self.agree(what, &plan)
    }

    fn agree(&self, what: &str, plan: &Plan) -> Result<(), Failure> {
        match self.can_ask() {
            true => confirm::ask(what, plan),
            false => Err(confirm::declined(what)),
        }
    }

    /// Whether answers are for programs.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a question may be asked in this session.
    pub(crate) fn can_ask(&self) -> bool {
        !self.json && confirm::can_ask()
    }

    /// Starts a job and waits for it if that is wanted; `text` tells users how it has ended.
    pub(crate) async fn job(
        &self,
        call: impl Call<Answer = Changed<Job>>,
        waiting: Waiting,
        text: impl FnOnce(&Job) -> String,
    ) -> Result<Answer, Failure> {
        match self.ask(&call).await? {
            Changed::Planned(plan) => Ok(Answer::planned(&plan)),
            Changed::Done(job) => self.begun(job, waiting, text).await,
        }
    }

    /// Waits for a job that runs, if that is wanted.
    pub(crate) async fn begun(
        &self,
        job: Job,
        waiting: Waiting,
        text: impl FnOnce(&Job) -> String,
    ) -> Result<Answer, Failure> {
        if !waiting.is_wanted() && job.state == JobState::Running {
            return Ok(Answer::new(&job, running(&job.id)));
        }
        let job = self.wait(job).await?;
        Ok(Answer::new(&job, text(&job)))
    }

    /// Waits until `job` has ended, with a bar on a terminal. A job that failed is an error; an interrupt leaves it to the daemon.
    pub(crate) async fn wait(&self, mut job: Job) -> Result<Job, Failure> {
        let bar = (!self.json).then(|| progress::Bar::new(&job));
        let id = job.id.clone();
        let mut interrupt = pin!(tokio::signal::ctrl_c());
        while job.state == JobState::Running {
            let call = calls::WaitJob(id.clone(), Timeout { timeout_ms: Some(250) });
            job = tokio::select! {
                job = self.ask(&call) => job?,
                Ok(()) = &mut interrupt => {
                    drop(bar);
                    return Err(Failure::new(Code::JobGoesOn, format!("job {id} goes on without this command"))
                        .help(format!("varve job wait {id} waits for its end")));
                }
            };
            if let Some(bar) = &bar {
                bar.show(&job);
            }
        }
        drop(bar);
        match job.state {
            JobState::Failed => {
                let unknown = || Failure::new(Code::JobFailed, format!("job {} failed", job.id));
                Err(job.error.clone().unwrap_or_else(unknown))
            }
            JobState::Cancelled => {
                Err(Failure::new(Code::JobCancelled, format!("job {} was cancelled", job.id)))
            }
            JobState::Running | JobState::Done => Ok(job),
        }
    }

    async fn plan<T>(&self, call: &impl Call<Request: DryRun, Answer = Changed<T>>) -> Result<Plan, Failure> {
        match self.ask(&call.with(DryRun::set_dry_run)).await? {
            Changed::Planned(plan) => Ok(plan),
            Changed::Done(_) => Err(protocol()),
        }
    }
}

/// One of several things that a command has removed.
#[derive(Serialize)]
struct OneOf<T> {
    removed: String,
    #[serde(flatten)]
    done: T,
}

fn protocol() -> Failure {
    Failure::new(Code::Protocol, "the daemon did what it was to plan, or planned what it was to do")
}

/// `failure` of one change after others were made.
fn after(mut failure: Failure, made: &[&str]) -> Failure {
    if !made.is_empty() {
        failure.message = format!("{}; it was done before that for {}", failure.message, made.join(" "));
    }
    failure
}

/// What is said of a job that runs on.
pub(crate) fn running(id: &str) -> String {
    format!("job {id} runs; varve job wait {id} waits for its end")
}
