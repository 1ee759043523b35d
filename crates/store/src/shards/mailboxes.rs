//! Mailboxes between shards: one queue per shard, into which any thread may put messages.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use tiermem_policy::shard_memory::Word;
use tokio::io::DuplexStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot};

use super::Placement;
use super::reply_turns::ReplyTurns;
use super::shard_stats::ShardStats;
use super::stop::{StopAttempt, StopAttempts};
use crate::clients::{Class, Peer, Relay};

/// Bytes that a pipe between two shards holds in each direction before a writer has to wait.
pub const PIPE_BYTES: usize = 64 << 10;

/// A client or a message for a shard.
#[derive(Debug)]
pub enum Message {
    /// A client that shard 0 has accepted.
    Client(Socket),
    /// A client that is at home elsewhere.
    Guest {
        /// Its requests come through this.
        pipe: DuplexStream,
        /// The ends of its connection.
        peer: Peer,
        /// Where it is at home, and its number there.
        home: (usize, u64),
    },
    /// Drop a client that is at home here: it does not take its guests' output.
    Drop {
        /// Its number.
        client: u64,
    },
    /// A change to a key of another shard, which a client here may have asked for.
    Event {
        /// Its class.
        class: Class,
        /// Its name.
        event: String,
        /// The key's database.
        db: u8,
        /// The key.
        key: Box<[u8]>,
    },
    /// Asks for current figures in the shard statistics, those of commands
    /// included, and for the admission of clients that came before.
    Show(oneshot::Sender<()>),
    /// Memory moves between shards.
    Memory(Word),
    /// The store is to stop.
    TakePartInStop(Arc<StopAttempt>),
    /// The store does not begin to serve.
    End,
}

/// A socket on its way from the thread that accepted it to the one that serves it.
#[derive(Debug)]
pub enum Socket {
    /// TCP, and the client's address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// TLS over TCP, and the client's address.
    Tls(std::net::TcpStream, SocketAddr),
    /// A unix socket.
    Unix(UnixStream),
}

/// The mailboxes of all shards, and what else they have in common.
#[derive(Clone, Debug)]
pub struct Mailboxes {
    /// The shard that owns this copy, and the number of shards.
    pub placement: Placement,
    /// Figures of all shards.
    pub shard_stats: Arc<ShardStats>,
    /// One permit: its holder may send something to all shards.
    pub turns: Arc<Semaphore>,
    /// Clients connected to all shards; touched when one comes or goes.
    pub clients: Arc<AtomicU64>,
    /// Bytes of replies that wait in all shards; each adds and takes away its own.
    pub reply_bytes: Arc<AtomicUsize>,
    /// Replies that wait for room in any shard.
    pub reply_turns: Arc<ReplyTurns>,
    /// Attempts to stop all shards.
    pub stops: Arc<StopAttempts>,
    mailboxes: Arc<[UnboundedSender<Message>]>,
}

impl Mailboxes {
    /// The mailboxes of `shards` shards, a copy for each, with its receiving end.
    pub fn open(shards: usize) -> Vec<(Mailboxes, UnboundedReceiver<Message>)> {
        let (mailboxes, messages): (Vec<_>, Vec<_>) = (0..shards).map(|_| unbounded_channel()).unzip();
        let (mailboxes, shard_stats) = (mailboxes.into(), Arc::new(ShardStats::of(shards)));
        let (clients, turns) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(1)));
        let reply_turns = Arc::new(ReplyTurns::default());
        let (reply_bytes, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(StopAttempts::default()));
        let copy = |own| Mailboxes {
            placement: Placement { own, shards },
            shard_stats: Arc::clone(&shard_stats),
            clients: Arc::clone(&clients),
            turns: Arc::clone(&turns),
            reply_bytes: Arc::clone(&reply_bytes),
            reply_turns: Arc::clone(&reply_turns),
            stops: Arc::clone(&stops),
            mailboxes: Arc::clone(&mailboxes),
        };
        messages.into_iter().enumerate().map(|(own, messages)| (copy(own), messages)).collect()
    }

    /// Sends a client or message to a shard. A shard that has stopped takes none any more; then the whole store stops.
    pub fn send(&self, shard: usize, visit: Message) {
        self.reach(shard, visit);
    }

    /// The same; whether the shard still takes messages.
    pub fn reach(&self, shard: usize, visit: Message) -> bool {
        self.mailboxes[shard].send(visit).is_ok()
    }

    /// The other shards.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let Placement { own, shards } = self.placement;
        (0..shards).filter(move |shard| *shard != own)
    }
}

impl Relay for Mailboxes {
    fn tell_event(&self, class: Class, event: &str, db: u8, key: &[u8]) {
        for shard in self.others() {
            self.send(shard, Message::Event { class, event: event.to_owned(), db, key: key.into() });
        }
    }

    fn drop_client(&self, shard: usize, client: u64) {
        self.send(shard, Message::Drop { client });
    }
}
