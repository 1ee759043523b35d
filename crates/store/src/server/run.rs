//! Event loops, one for each shard: starting, ticking, publishing figures, shutting down.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::MissedTickBehavior;

use super::ServerConfig;
use super::accept::{Certificate, Entrance, reload_on_hangup};
use super::background_save::save_when_asked;
use super::bind::{ServeError, Server};
use super::expiry::expire_when_late;
use super::memory_limit::KnownLimit;
use super::shard_context::{Core, Shard};
use super::snapshot::Snapshot;
use crate::engine::Engine;
use crate::shards::mailboxes::{Mailboxes, Message};
use crate::shards::stop::StopRequest;

const TICK: Duration = Duration::from_nanos(tiermem_policy::shard_memory::TICK_NS);

/// Parts of every shard.
struct Plan {
    config: ServerConfig,
    tcp_port: u16,
    tls_port: u16,
    certificate: Option<Certificate>,
    known_limit: KnownLimit,
}

/// A shard and its event loop.
struct Stage {
    runtime: LocalRuntime,
    shard: Rc<Shard>,
    entrance: Entrance,
}

impl Stage {
    /// Makes a shard's event loop, on the thread that will run it.
    fn build(plan: &Plan, engine: Engine, mailboxes: Option<Mailboxes>) -> Result<Self, ServeError> {
        let cores = &plan.config.pin_cores;
        if !cores.is_empty() {
            let own = mailboxes.as_ref().map_or(0, |mailboxes| mailboxes.placement.own);
            let core = cores[own % cores.len()];
            tiermem_sys::affinity::pin_thread(core).map_err(|source| ServeError::Pin { core, source })?;
        }
        let woken = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&woken);
        // A local runtime runs tasks that need not be `Send` from its own queue. A `LocalSet` in an ordinary one
        // would wake the loop through a file descriptor for every batch of events: two system calls more.
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(move || flag.store(true, Ordering::Relaxed))
            .build_local(LocalOptions::default())
            .map_err(ServeError::EventLoop)?;
        let mut core = Core::new(
            &plan.config,
            engine,
            plan.tcp_port,
            woken,
            mailboxes.clone(),
            plan.known_limit.clone(),
        );
        core.host.tls_port = plan.tls_port;
        let shard = Rc::new(RefCell::new(core));
        let certificate = plan.certificate.clone();
        let entrance =
            Entrance { shard: Rc::clone(&shard), certificate, mailboxes, turn: Rc::new(Cell::new(0)) };
        Ok(Stage { runtime, shard, entrance })
    }

    /// Begins what every shard does by itself.
    fn begin(shard: &Rc<Shard>, every: Duration, publish: Rc<dyn Fn(Snapshot)>) {
        drive_flash(shard);
        spawn_local(tick(Rc::clone(shard)));
        spawn_local(expire_when_late(Rc::clone(shard)));
        spawn_local(save_when_asked(Rc::clone(shard)));
        spawn_local(publish_often(Rc::clone(shard), publish, every));
    }

    /// Stops all shards, whatever is lost by it.
    fn stop(&self) {
        let Core { engine, host, .. } = &mut *self.shard.borrow_mut();
        let request = StopRequest { saves: None, forced: true };
        // A client may have begun an attempt that fails; then this shard's own is the next one.
        while !host.persistence.is_stopped {
            if let Err(failure) = host.stop(engine, request) {
                tracing::warn!(failure, "a client's SHUTDOWN has failed");
            }
        }
    }

    /// Ends all connections, which gives their pins free, and closes what outlives the process. Returns what was not kept.
    fn end(self) -> (Rc<Shard>, Option<String>) {
        drop(self.runtime);
        let core = &mut *self.shard.borrow_mut();
        let mut failures: Vec<String> = core.host.persistence.stop_failure.take().into_iter().collect();
        core.look_for_losses();
        if let Err(error) = core.engine.flash().close() {
            failures
                .push(format!("the flash tier was not closed in order, a restart may find less: {error}"));
        }
        if let Err(error) = core.engine.warm_start().close() {
            failures.push(format!(
                "a tier of kind dax was not written back, it outlives the process but not the machine: {error}"
            ));
        }
        core.tell_losses();
        failures.dedup();
        (Rc::clone(&self.shard), (!failures.is_empty()).then(|| failures.join("; ")))
    }
}

impl Server {
    /// Serves on this thread, and on one more for each further shard, until `shutdown` is ready, then closes all connections.
    /// `begin` is called within a tokio runtime, so what it returns may await signals, when all that may fail is done and before
    /// the first request is read; where it fails, none is. Hands figures to `publish` every
    /// [`super::ServerConfig::snapshot_interval`] and once at the end.
    ///
    /// # Errors
    /// When a shard cannot be started, `begin` says so, or something that was to outlive the process was not kept.
    pub fn run<Shutdown: Future<Output = ()>>(
        self,
        begin: impl FnOnce() -> Result<Shutdown, ServeError>,
        publish: impl Fn(Snapshot) + 'static,
    ) -> Result<(), ServeError> {
        let publish: Rc<dyn Fn(Snapshot)> = Rc::new(publish);
        let tcp_port = self.local_addr().map_or(0, |address| address.port());
        let tls_port = self.local_tls_addr().map_or(0, |address| address.port());
        let Server { config, mut engines, tcp, tls, unix, watcher } = self;
        let (tls, certificate) = tls.unzip();
        let certificate = certificate.map(Certificate::new);
        let plan =
            Arc::new(Plan { config, tcp_port, tls_port, certificate, known_limit: KnownLimit::default() });
        let mut mailboxes = match engines.len() {
            1 => Vec::new(),
            shards => Mailboxes::open(shards),
        };
        let others = engines.split_off(1).into_iter().zip(mailboxes.drain(mailboxes.len().min(1)..));
        let mut threads = Vec::new();
        for (engine, (mailboxes, messages)) in others {
            threads.push(start_shard(Arc::clone(&plan), engine, mailboxes, messages)?);
        }
        // With several shards, only guests send to this one.
        let (mailboxes, mut messages) = mailboxes.pop().unzip();
        let Some(engine) = engines.pop() else { return Err(ServeError::NothingToListenOn) };
        let stage = Stage::build(&plan, engine, mailboxes.clone())?;
        stage.shard.borrow_mut().host.settings_watcher = watcher;
        let config = &plan.config;
        let result = stage.runtime.block_on(async {
            Stage::begin(&stage.shard, config.snapshot_interval, Rc::clone(&publish));
            let tcp = tcp.map(TcpListener::from_std).transpose().map_err(ServeError::EventLoop)?;
            let tls = tls.map(TcpListener::from_std).transpose().map_err(ServeError::EventLoop)?;
            let unix = unix.map(UnixListener::from_std).transpose().map_err(ServeError::EventLoop)?;
            let shutdown = begin()?;
            if let Some(listener) = tcp {
                spawn_local(stage.entrance.clone().accept_tcp(listener, false));
            }
            if let Some(listener) = tls {
                spawn_local(stage.entrance.clone().accept_tcp(listener, true));
            }
            if let (Some(config), Some(certificate)) = (config.tls.clone(), plan.certificate.clone()) {
                spawn_local(reload_on_hangup(config.files, certificate));
            }
            if let Some(listener) = unix {
                spawn_local(stage.entrance.clone().accept_unix(listener));
            }
            let asked = Rc::clone(&stage.shard.borrow().host.persistence.stop);
            tokio::select! {
                () = shutdown => stage.stop(),
                () = asked.notified() => tracing::info!("stopping, as a client has asked"),
                () = receive(&stage.entrance, messages.as_mut()) => tracing::info!("stopping, as a client has asked"),
            }
            Ok(())
        });
        if let Some(mailboxes) = mailboxes.filter(|_| result.is_err()) {
            // Nothing was served, so what was there before is as good.
            mailboxes.others().for_each(|shard| mailboxes.send(shard, Message::End));
        }
        let (shard, mut failure) = stage.end();
        for thread in threads {
            let ended = thread.join();
            failure =
                failure.or(ended.unwrap_or_else(|_| Some("a shard's thread did not end in order".into())));
        }
        publish(shard.borrow_mut().snapshot());
        if let Some(path) = &config.unix_socket
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "the unix socket was not removed");
        }
        result.and(failure.map_or(Ok(()), |failure| Err(ServeError::NotKept(failure))))
    }
}

/// Receives messages, if there is any sender.
async fn receive(entrance: &Entrance, messages: Option<&mut UnboundedReceiver<Message>>) {
    match messages {
        Some(messages) => entrance.receive(messages).await,
        None => std::future::pending().await,
    }
}

/// Starts a shard's thread, and waits until it is ready to receive.
fn start_shard(
    plan: Arc<Plan>,
    engine: Engine,
    mailboxes: Mailboxes,
    mut messages: UnboundedReceiver<Message>,
) -> Result<JoinHandle<Option<String>>, ServeError> {
    let (ready, started) = std::sync::mpsc::channel();
    let name = format!("shard-{}", mailboxes.placement.own);
    let run = move || {
        let stage = match Stage::build(&plan, engine, Some(mailboxes)) {
            Ok(stage) => stage,
            Err(error) => {
                let _ = ready.send(Err(error));
                return None;
            }
        };
        let _ = ready.send(Ok(()));
        stage.runtime.block_on(async {
            // The first shard publishes its figures for all.
            Stage::begin(&stage.shard, plan.config.snapshot_interval, Rc::new(drop));
            let asked = Rc::clone(&stage.shard.borrow().host.persistence.stop);
            tokio::select! {
                () = stage.entrance.receive(&mut messages) => {}
                () = asked.notified() => {}
            }
        });
        let (shard, failure) = stage.end();
        shard.borrow_mut().tick();
        failure
    };
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(ServeError::EventLoop)?;
    match started.recv() {
        Ok(result) => result.map(|()| thread),
        Err(_) => Err(ServeError::EventLoop(std::io::Error::other("a shard's thread ended at once"))),
    }
}

/// Takes completions of the flash device as soon as it signals them.
fn drive_flash(shard: &Rc<Shard>) {
    let bell = Arc::new(Notify::new());
    let ring = Arc::clone(&bell);
    shard.borrow_mut().engine.flash().notify(Arc::new(move || ring.notify_one()));
    let shard = Rc::clone(shard);
    spawn_local(async move {
        loop {
            bell.notified().await;
            let engine = &mut shard.borrow_mut().engine;
            engine.flash().advance();
            engine.commit();
        }
    });
}

async fn tick(shard: Rc<Shard>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        shard.borrow_mut().tick();
        divide(&shard);
    }
}

/// Answers a question about the division of memory in another thread: it may take longer than requests should wait.
fn divide(shard: &Rc<Shard>) {
    let Some(question) = shard.borrow_mut().engine.tenants_mut().take_question() else { return };
    let shard = Rc::clone(shard);
    spawn_local(async move {
        // Without an answer all stays as it was.
        if let Ok(answer) = spawn_blocking(move || question.answer()).await {
            let verdict = &answer.verdict;
            tracing::debug!(window = answer.window, %verdict, "memory was looked at");
            shard.borrow_mut().engine.tenants_mut().take_answer(answer);
        }
    });
}

async fn publish_often(shard: Rc<Shard>, publish: Rc<dyn Fn(Snapshot)>, every: Duration) {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let snapshot = shard.borrow_mut().snapshot();
        publish(snapshot);
    }
}
