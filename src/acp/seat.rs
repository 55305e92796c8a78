//! One session that a client has open: what is asked of it, done in the order in which it is asked.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use greenroom_actors::{Host, RootHandle, error::ControlError, host::Cancel};
use greenroom_session::{
    event::RootOpened,
    id::{MessageId, SessionId},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, WeakUnboundedSender},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    fault::{Fault, Kind},
    follower::{Follower, Stop},
    house::House,
    outlet::Outlet,
    prompts::{Prompts, Reply, Stopped, Waiting},
};

/// How long the end of a turn that is cancelled is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked of a session.
pub(super) enum Ask {
    /// To be live for this client; with `replay` everything that its log holds is told first.
    Open { replay: bool, reply: Reply<()> },
    /// To take a prompt. `cancelled` comes when the client takes the request back.
    Prompt { text: String, reply: Reply<Stopped>, cancelled: BoxFuture<'static, ()> },
    /// To take one prompt back, or to end its turn.
    CancelOne(MessageId),
    /// To end the turn under way and take back what waits.
    Cancel,
    /// To be let go of.
    Close { reply: Reply<()> },
}

impl Ask {
    /// Answers that it is not done.
    pub(super) fn refuse(self, fault: Fault) {
        match self {
            Self::Open { reply, .. } | Self::Close { reply } => reply(Err(fault)),
            Self::Prompt { reply, .. } => reply(Err(fault)),
            Self::CancelOne(_) | Self::Cancel => {}
        }
    }
}

/// One session that a client has open.
pub(super) struct Seat {
    house: Arc<House>,
    session: SessionId,
    outlet: Outlet,
    prompts: Arc<Prompts>,
    held: Option<Held>,
}

/// What keeps a session live and tells of it.
struct Held {
    root: RootHandle,
    following: JoinHandle<()>,
    stop: CancellationToken,
}

impl Seat {
    pub(super) fn new(house: Arc<House>, session: SessionId, outlet: Outlet) -> Self {
        Self { house, session, outlet, prompts: Arc::default(), held: None }
    }

    /// Takes a root that was just made, whose log tells nothing yet.
    pub(super) fn made(mut self, root: RootHandle) -> Self {
        let (follower, news) = (self.follower(0), self.host().subscribe());
        self.hold(root, follower.follow(news));
        self
    }

    /// Does what is asked until the session is closed or the client is gone; what was asked before that is done.
    pub(super) async fn serve(mut self, mut asked: UnboundedReceiver<Ask>, own: WeakUnboundedSender<Ask>) {
        while let Some(ask) = asked.recv().await {
            match ask {
                Ask::Open { replay: retold, reply } => self.open(retold, reply).await,
                Ask::Prompt { text, reply, cancelled } => self.prompt(text, reply, cancelled, own.clone()).await,
                Ask::CancelOne(message) => self.cancel_one(&message).await,
                Ask::Cancel => {
                    self.house.takes_cancel(&self.session);
                    self.cancel().await;
                }
                Ask::Close { reply } => {
                    self.close().await;
                    self.house.leave(&self.session);
                    reply(Ok(()));
                }
            }
            if self.held.is_none() {
                // Whoever asks from here on asks a new seat, or is told that there is none.
                self.house.leave(&self.session);
                asked.close();
                while let Ok(ask) = asked.try_recv() {
                    ask.refuse(Fault::not_open(self.session.as_str()));
                }
            }
        }
        self.let_go().await;
    }

    fn host(&self) -> &Host {
        &self.house.host
    }

    fn follower(&self, next: u64) -> Follower {
        Follower::new(self.host().clone(), self.session.clone(), self.outlet.clone(), self.prompts.clone(), next)
    }

    fn hold(&mut self, root: RootHandle, follow: impl Future<Output = ()> + Send + 'static) {
        let stop = self.house.over.child_token();
        let stopped = stop.clone();
        let following = self.house.tasks.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = follow => {}
            }
        });
        self.held = Some(Held { root, following, stop });
    }

    async fn let_go(&mut self) -> Option<RootHandle> {
        let Held { root, following, stop } = self.held.take()?;
        stop.cancel();
        if let Err(error) = following.await {
            tracing::error!(session = %self.session, %error, "a session was not followed to its end");
        }
        Some(root)
    }

    async fn open(&mut self, retold: bool, reply: Reply<()>) {
        let (known, in_turn) = match self.look().await {
            Ok(known) => known,
            Err(fault) => return reply(Err(fault)),
        };
        // Loaded anew, it is told anew; prompts that wait go on waiting.
        let news = self.host().subscribe();
        let root = match self.let_go().await {
            Some(root) => root,
            None => match self.host().resume(&self.session).await {
                Ok(root) => root,
                Err(error) => return reply(Err(Fault::of_root(Some(&self.session), &error))),
            },
        };
        if let Err(error) = self.host().recover(Some(&self.session)).await {
            tracing::warn!(session = %self.session, code = error.code(), "what waits below is not looked for: {error}");
        }
        let mut follower = self.follower(if retold { 0 } else { known });
        let prompts = self.prompts.clone();
        let follow = async move {
            let begun = async {
                if retold {
                    follower.replay(known).await?;
                }
                Ok::<(), Stop>(())
            };
            match begun.await {
                Ok(()) => reply(Ok(())),
                Err(Stop::Fault(fault)) => {
                    prompts.fail(&fault);
                    return reply(Err(fault));
                }
                Err(Stop::Gone) => return,
            }
            match follower.catch_up(in_turn).await {
                Ok(()) => follower.follow(news).await,
                Err(_) => prompts.fail(&Fault::ending()),
            }
        };
        self.hold(root, follow);
    }

    /// Looks whether the session can be played here, and returns the seq that its next event gets and whether a turn is under way.
    async fn look(&self) -> Result<(u64, bool), Fault> {
        let fold = self.host().fold(&self.session).await.map_err(|error| Fault::of_query(&self.session, &error))?;
        let refused = |code: &str, message: String| Err(Fault::params(code, message).fact("sessionId", self.session.as_str()));
        if fold.header().parent.is_some() {
            return refused("NOT_A_ROOT", format!("session {} is no root: it has a parent", self.session));
        }
        if fold.head().held > 0 {
            return refused("NOT_ACTIVATED", format!("session {} was imported and waits to be activated", self.session));
        }
        if let Some(opened) = fold.root()
            && let Some((name, stored, ours)) = self.differs(opened)
        {
            return refused("VARIABLE_FIXED", format!("the root was opened with {name} = {stored:?}, and is played with {ours:?} here"));
        }
        Ok((fold.head().next_seq, fold.head().open.is_some()))
    }

    fn differs<'a>(&'a self, opened: &'a RootOpened) -> Option<(&'a str, &'a str, &'a str)> {
        let vars = &self.house.options.vars;
        opened.vars.iter().find_map(|(name, stored)| vars.get(name).filter(|ours| *ours != stored).map(|ours| (&**name, &**stored, &**ours)))
    }

    async fn prompt(&mut self, text: String, reply: Reply<Stopped>, cancelled: BoxFuture<'static, ()>, own: WeakUnboundedSender<Ask>) {
        if self.held.is_none() {
            return reply(Err(Fault::not_open(self.session.as_str())));
        }
        let message = MessageId::from_uuid(self.house.options.ids.uuid());
        let listening = CancellationToken::new();
        // Before it is accepted, so that its turn's end finds it here.
        self.prompts.add(message.clone(), Waiting { reply, listening: listening.clone().drop_guard() });
        if let Err(error) = self.host().send(&self.session, text, Some(message.clone())).await {
            let fault = Fault::of_delivery(&error).fact("messageId", message.as_str());
            self.prompts.answer(&message, Err(fault));
            return;
        }
        self.house.tasks.spawn(async move {
            tokio::select! {
                () = listening.cancelled() => {}
                () = cancelled => {
                    if let Some(own) = own.upgrade() {
                        // Nobody is there: then nothing waits either.
                        drop(own.send(Ask::CancelOne(message)));
                    }
                }
            }
        });
    }

    async fn cancel_one(&mut self, message: &MessageId) {
        let done = match self.host().withdraw(&self.session, message, PATIENCE).await {
            Err(ControlError::AlreadyStarted(_)) => self.interrupt(message).await,
            other => other,
        };
        self.told(done.map(drop));
    }

    /// Ends the turn of a message, if that is the turn under way.
    async fn interrupt(&self, message: &MessageId) -> Result<(), ControlError> {
        match self.host().fold(&self.session).await {
            Ok(fold) if fold.head().open.as_ref().is_some_and(|open| open.message == *message) => {
                self.host().interrupt(&self.session, PATIENCE).await.map(drop)
            }
            // It has ended, and whoever follows answers.
            _ => Ok(()),
        }
    }

    async fn cancel(&mut self) {
        let cancel = Cancel { patience: PATIENCE, ..Cancel::default() };
        let done = self.host().cancel(&self.session, cancel).await.map(drop);
        self.told(done);
    }

    fn told(&self, done: Result<(), ControlError>) {
        match done {
            Ok(()) | Err(ControlError::NotRunning(_) | ControlError::NotPending(_)) => {}
            Err(error) => tracing::warn!(session = %self.session, code = error.code(), "a cancellation was not done: {error}"),
        }
        self.prompts.nudge();
    }

    async fn close(&mut self) {
        if self.held.is_none() {
            return;
        }
        self.cancel().await;
        tokio::select! {
            () = self.prompts.none_left() => {}
            () = self.house.over.cancelled() => {}
        }
        // Let go of, the root settles when everybody below has.
        drop(self.let_go().await);
        self.prompts.fail(&Fault::new(Kind::Failed, "CANCELLED", "the session was closed"));
    }
}
