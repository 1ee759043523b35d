//! The thread that fetches, and moves pages between nodes. The kernel takes 2 to 3 us of processor time to send for a page, so one thread that hears of page faults, pages
//! out and fetches is slower than a program which sweeps. This one only fetches; what it has done is told when it is asked.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};

use tiermem_sys::numa::{self, Policy};

use super::advice::{Batch, CarriedOut};

/// The thread, and what was sent to it. Dropped, it ends once its batch is done: nobody waits for a device that does not answer.
#[derive(Debug)]
pub struct Fetcher {
    batches: Sender<Batch>,
    done: Receiver<CarriedOut>,
    under_way: usize,
}

impl Fetcher {
    /// Starts the thread. What it fetches comes to this node, if one is given and has room.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(node: Option<u32>) -> io::Result<Self> {
        let (batches, received) = mpsc::channel::<Batch>();
        let (tell, done) = mpsc::channel();
        std::thread::Builder::new().name("fetch".to_owned()).spawn(move || {
            if let Some(node) = node {
                // Pages that come to another node are moved after the next scan.
                let _ = numa::set_thread_policy(&Policy::PreferredMany(vec![node]));
            }
            // Until one of the two ends is gone.
            for batch in received {
                if tell.send(batch.carry_out()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Fetcher { batches, done, under_way: 0 })
    }

    /// Has a batch carried out after those before it. Given back, it has to be carried out by the caller: there is no thread any more.
    pub fn fetch(&mut self, batch: Batch) -> Option<Batch> {
        match self.batches.send(batch) {
            Ok(()) => {
                self.under_way += 1;
                None
            }
            Err(mpsc::SendError(batch)) => Some(batch),
        }
    }

    /// What was done since the last time.
    pub fn done(&mut self) -> Vec<CarriedOut> {
        let done: Vec<CarriedOut> = self.done.try_iter().collect();
        self.under_way -= done.len();
        done
    }

    /// Waits for a batch; `None`: none is under way.
    pub fn next(&mut self) -> Option<CarriedOut> {
        self.under_way = self.under_way.checked_sub(1)?;
        self.done.recv().ok()
    }

    /// Whether batches are under way.
    pub fn is_busy(&self) -> bool {
        self.under_way > 0
    }
}

#[cfg(test)]
mod tests {
    use tiermem_policy::paging::{Act, Event, PageRange, PageState};
    use tiermem_policy::prefetch::Named;
    use tiermem_policy::prefetch::readahead::ReadaheadParameters;

    use super::super::logged::{CoreOptions, Logged};
    use super::super::spaces::Spaces;
    use super::*;

    const PAGES: u64 = 2000;

    /// A core that wants pages of this process, and what it wants.
    fn wants(memory: &[u8], spaces: &mut Spaces) -> (Logged, Vec<Act>) {
        let prefetch = Named::Readahead(ReadaheadParameters::DEFAULT);
        let options = CoreOptions {
            evict: None,
            prefetch,
            drop_behind: false,
            local_pages: 0,
            dram_pages: 1 << 20,
            swap_pages: 1 << 20,
        };
        let mut core = Logged::new(&options).unwrap();
        let first = spaces.page(std::process::id(), memory.as_ptr() as u64 + 4095).unwrap();
        let mut acts = Vec::new();
        let pages = PageRange { first, end: first + PAGES };
        core.on(Event::Found { pages, state: PageState::Swapped }, 0, &mut acts);
        for page in first..first + 500 {
            core.on(Event::Fault { page, major: true, write: false }, 0, &mut acts);
        }
        (core, acts)
    }

    #[test]
    fn each_act_is_settled_once_and_a_batch_is_small() {
        let memory = vec![1; (PAGES as usize + 1) * 4096];
        let mut spaces = Spaces::new(None);
        spaces.watch(std::process::id());
        let (mut core, mut acts) = wants(&memory, &mut spaces);
        let wanted = acts.len();
        assert!(wanted > 900 && !core.is_idle());
        let mut fetcher = Fetcher::start(None).unwrap();
        let batches = Batch::of(&mut acts, &spaces, None);
        assert!(acts.is_empty() && batches.len() > 3 && !batches.iter().any(Batch::makes_room));
        for batch in batches {
            assert!(fetcher.fetch(batch).is_none());
        }
        let (mut settled, mut more) = (0, Vec::new());
        while let Some(done) = fetcher.next() {
            let tell = |event| {
                settled += 1;
                core.on(event, 1, &mut more);
            };
            done.tell(tell).unwrap();
        }
        assert!(settled == wanted && more.is_empty() && core.is_idle() && !fetcher.is_busy());
    }
}
