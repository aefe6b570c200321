//! The free room of servers, read before files are made.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use stripewise_store::{Store, run_anywhere};

/// Longest that the making of a file waits for servers that do not say what they have. The kernel lets nothing else be made
/// in its directory meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Takes the look at the servers' room that is due, in a thread of its own: after [`LONGEST_WAIT`] the file is made by what is
/// known. There is no other look until that one has ended, so that a server that stalls makes one file wait, once.
pub fn look_for_room(store: &Arc<Store>) {
    let Some(look) = store.due_look() else { return };
    let (told, done) = mpsc::channel();
    let take = move || {
        run_anywhere();
        look.take();
        // The file is made already.
        let _ = told.send(());
    };
    // Without a thread the look is due again later.
    if thread::Builder::new().name("look".into()).spawn(take).is_ok() {
        let _ = done.recv_timeout(LONGEST_WAIT);
    }
}
