//! One command's talk with the daemon: requests, plans, questions, and the wait for a job.

use crate::answer::Answer;
use crate::client::{Client, segment};
use crate::grammar::{Destroy, Waiting};
use crate::{confirm, progress};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::IsTerminal;
use std::path::PathBuf;
use varve_api::{Code, Failure, Job, JobState, Plan};

/// The daemon, and how to talk to the user.
pub(crate) struct Session {
    client: Client,
    json: bool,
}

/// A change as a request: where it goes, and what it says with and without `dry_run`.
pub(crate) struct Call<'a, R> {
    /// POST or DELETE.
    pub(crate) method: Method,
    /// Path of the HTTP interface.
    pub(crate) path: String,
    /// The body.
    pub(crate) request: &'a R,
    /// Only tell what would be done.
    pub(crate) dry_run: bool,
}

impl Session {
    /// A session with the daemon at `socket`.
    pub(crate) fn new(socket: PathBuf, json: bool) -> Self {
        Self { client: Client::new(socket), json }
    }

    /// Asks for something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.client.call(Method::GET, path, None::<&()>).await
    }

    /// Prints what the plan of a change warns of, before it is carried out.
    pub(crate) async fn warn_of<R: Serialize>(&self, call: &Call<'_, R>) {
        if call.dry_run {
            return; // The plan is shown.
        }
        // What cannot be planned is refused when it is carried out.
        let Ok(plan) = self.plan(call).await else { return };
        let is_warning = |step: &&String| step.starts_with("warning: ");
        plan.steps.iter().filter(is_warning).for_each(|warning| eprintln!("{warning}"));
    }

    /// Carries out a change, or shows its plan; `text` tells users what was done.
    pub(crate) async fn change<R: Serialize, T: DeserializeOwned + Serialize>(
        &self,
        call: Call<'_, R>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<Answer, Failure> {
        if call.dry_run {
            let plan = self.plan(&call).await?;
            return Ok(Answer::planned(&plan));
        }
        let data: T = self.send(&call, false).await?;
        Ok(Answer::new(&data, text(&data)))
    }

    /// Asks before `what` destroys something, unless told not to. What the daemon refuses is refused before that.
    pub(crate) async fn consent<R: Serialize>(
        &self,
        what: &str,
        call: &Call<'_, R>,
        destroy: Destroy,
    ) -> Result<(), Failure> {
        if destroy.yes || destroy.dry_run {
            return Ok(());
        }
        let plan = self.plan(call).await?;
        match self.can_ask() {
            true => confirm::ask(what, &plan),
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

    /// Starts a job and waits for it if that is wanted; `text` tells users what was done.
    pub(crate) async fn job<R: Serialize>(
        &self,
        call: Call<'_, R>,
        waiting: Waiting,
        text: &str,
    ) -> Result<Answer, Failure> {
        self.job_told(call, waiting, |_| text.to_owned()).await
    }

    /// Like [`Session::job`]; `text` tells users how the job has ended.
    pub(crate) async fn job_told<R: Serialize>(
        &self,
        call: Call<'_, R>,
        waiting: Waiting,
        text: impl FnOnce(&Job) -> String,
    ) -> Result<Answer, Failure> {
        if call.dry_run {
            return self.change(call, |_: &Job| String::new()).await;
        }
        let job: Job = self.send(&call, false).await?;
        let wait = waiting.wait || (!waiting.no_wait && std::io::stdout().is_terminal());
        if !wait && job.state == JobState::Running {
            let hint = format!("job {} runs; varve job wait {} waits for its end", job.id, job.id);
            return Ok(Answer::new(&job, hint));
        }
        let job = self.wait(job).await?;
        Ok(Answer::new(&job, text(&job)))
    }

    /// Waits until `job` has ended, with a bar on a terminal. A job that failed is an error.
    pub(crate) async fn wait(&self, mut job: Job) -> Result<Job, Failure> {
        let bar = (!self.json).then(|| progress::Bar::new(&job));
        while job.state == JobState::Running {
            job = self.get(&format!("/v1/jobs/{}/wait?timeout_ms=250", segment(&job.id))).await?;
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

    async fn plan<R: Serialize>(&self, call: &Call<'_, R>) -> Result<Plan, Failure> {
        self.send(call, true).await
    }

    async fn send<R: Serialize, T: DeserializeOwned>(
        &self,
        call: &Call<'_, R>,
        dry_run: bool,
    ) -> Result<T, Failure> {
        let mut body = serde_json::to_value(call.request).expect("the requests are plain data");
        body["dry_run"] = dry_run.into();
        self.client.call(call.method.clone(), &call.path, Some(&body)).await
    }
}
