//! Two ways in at once, on the same files: a read sees every write that has returned, through either way.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{
    Kept, KeptPreload, Longer, Mount, Preload, Private, PrivatePreload, Python, Store,
};

/// Cases of a pair.
const CASES: u32 = 40;

macro_rules! pairs {
    ($($name:ident: $one:expr, $other:expr;)*) => { $(
        #[test]
        fn $name() {
            conforms(stringify!($name), &[$one, $other], CASES);
        }
    )* };
}

pairs! {
    mount_and_mount: Mount(0), Mount(0);
    mount_and_preload: Mount(0), Preload(0);
    mount_and_store: Mount(0), Store;
    mount_and_python: Mount(0), Python;
    preload_and_preload: Preload(0), Preload(0);
    preload_and_store: Preload(0), Store;
    preload_and_python: Preload(0), Python;
    store_and_store: Store, Store;
    store_and_python: Store, Python;
    python_and_python: Python, Python;
    kept_and_preload: Kept(0), KeptPreload(0);
    two_mounts: Mount(0), Mount(1);
    two_mounts_one_without_passthrough: Mount(0), Longer(1);
    preloads_of_two_mounts: Preload(0), Preload(1);
    two_private_mounts: Private, Private;
    preloads_of_two_private_mounts: PrivatePreload, PrivatePreload;
    private_mount_and_mount: PrivatePreload, Mount(1);
}
