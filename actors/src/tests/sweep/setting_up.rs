//! Worlds in which contributions come and go while sessions start and end.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::cast::{config, dawdle, family, look_for_leaks, senders, settle_after_failures};
use crate::{
    Registration,
    race::plan::roll,
    setup::{Installation, Setup, SetupContribution, SetupError},
    tests::support::{Ledger, Witness, lock, on_paused_time},
};

/// What became of each installation: how often it was committed and released.
pub(super) type Book = Arc<Mutex<Vec<(u32, u32)>>>;

pub(super) struct Fickle {
    pub(super) book: Book,
    pub(super) fails: bool,
}

struct Installed {
    book: Book,
    number: usize,
    fails: bool,
}

impl SetupContribution for Fickle {
    fn apply<'a>(&'a self, _: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
        Box::pin(async move {
            dawdle().await;
            if self.fails && roll(3) == 0 {
                return Err(SetupError::new("FICKLE", "not today"));
            }
            let number = {
                let mut book = lock(&self.book);
                book.push((0, 0));
                book.len() - 1
            };
            let fails = self.fails && roll(3) == 0;
            Ok(Box::new(Installed { book: self.book.clone(), number, fails }) as Box<dyn Installation>)
        })
    }
}

impl Installation for Installed {
    fn commit(&mut self) -> Result<(), SetupError> {
        lock(&self.book)[self.number].0 += 1;
        if self.fails { Err(SetupError::new("FICKLE", "not after all")) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<(), SetupError> {
        lock(&self.book)[self.number].1 += 1;
        if roll(4) == 0 { Err(SetupError::new("FICKLE", "it sticks")) } else { Ok(()) }
    }
}

pub(super) fn set_up_against_removal(store: &Witness, ledger: &Arc<Ledger>) {
    let book = Book::default();
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let register = |fails| host.register_setup(Fickle { book: book.clone(), fails });
        let mut registered: Vec<Registration> = (0..=roll(2)).map(|_| register(roll(3) == 0)).collect();
        let meddle = async {
            for _ in 0..roll(6) {
                for _ in 0..roll(4) {
                    dawdle().await;
                }
                if roll(2) == 0 || registered.is_empty() {
                    registered.push(register(roll(3) == 0));
                } else {
                    let which = usize::try_from(roll(u32::try_from(registered.len()).unwrap())).unwrap();
                    drop(registered.remove(which));
                }
                // An epoch that is ended from outside releases as any other does.
                if roll(4) == 0
                    && let Some(view) = host.services().live.get(&receivers[0])
                {
                    ledger.lossy.store(true, std::sync::atomic::Ordering::Relaxed);
                    view.cell().kill();
                }
            }
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, false), meddle);
        settle_after_failures(&host).await;
        // What was refused is there, and runs when nobody refuses it any more.
        drop(registered);
        host.recover(None).await.unwrap();
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
    });
    judge(&book, ledger);
}

/// Looks whether everything that was installed was released once.
pub(super) fn judge(book: &Book, ledger: &Ledger) {
    for (number, (committed, released)) in lock(book).iter().enumerate() {
        if *committed > 1 || *released != 1 {
            ledger.complain(format!("installation {number} was committed {committed} times and released {released} times"));
        }
    }
}
